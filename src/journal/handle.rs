//! A handle: one atomic operation's part in the running transaction.

use super::token::DataToken;
use super::transaction::Transaction;
use super::{Journal, ReservedHandle, nesting};
use crate::cache::Buffer;
use crate::device::AlignedBuf;
use crate::device::seeded::{self, Fault};
use crate::error::{Corrupt, Error, Result};
use crate::ondisk::Seal;
use crate::types::{Block, Tid};
use std::sync::Arc;

/// What an operation changes metadata through. Everything changed through one handle reaches the disk
/// together or not at all. Dropping it ends it; while it is open its transaction cannot commit, so
/// its holder never waits for a commit, another handle, or data I/O.
pub struct Handle {
    pub(super) journal: Arc<Journal>,
    pub(super) txn: Arc<Transaction>,
    pub(super) op: &'static str,
    /// Blocks it may still add to the transaction.
    pub(super) credits: u32,
    /// Blocks it added beyond its credits.
    pub(super) overdraft: u32,
    pub(super) sync: bool,
    /// It counts among its transaction's handles; not so after a restart that failed.
    pub(super) live: bool,
    pub(super) open: Option<nesting::Open>,
}

impl Handle {
    /// The transaction it belongs to.
    pub fn tid(&self) -> Tid {
        self.txn.tid
    }

    /// The operation it was started for.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// The journal it belongs to.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Blocks it may still add to the transaction.
    pub fn credits(&self) -> u32 {
        self.credits
    }

    /// Changes a metadata block as part of the transaction, and seals what `seal` names.
    ///
    /// # Errors
    /// `ReadOnly` or `Shutdown` when the journal failed meanwhile: `f` was not called. `Corrupt` if the
    /// block that `f` left has no place for its checksum.
    pub fn modify<R>(
        &mut self,
        buf: &Arc<Buffer>,
        seal: &Seal,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        self.check()?;
        self.join(buf);
        let sealer = self.journal.cache().sealer();
        let r = buf.change(|bytes| {
            let r = f(bytes);
            sealer.seal(seal, buf.block(), bytes)?;
            Ok(r)
        });
        if r.is_ok() {
            buf.set_verified(seal);
        }
        r
    }

    /// A metadata block taken into use: zeros, changed by `init`, sealed. Its old contents are not
    /// read; a revoke of it in this transaction is cancelled.
    ///
    /// # Errors
    /// As [`Handle::modify`]; `Corrupt` if the block is not in the file system.
    pub fn create(
        &mut self,
        block: Block,
        seal: &Seal,
        init: impl FnOnce(&mut [u8]),
    ) -> Result<Arc<Buffer>> {
        self.check()?;
        let buf = self.journal.cache().create(block)?;
        self.txn.cancel_revoke(block);
        self.modify(&buf, seal, init)?;
        Ok(buf)
    }

    /// A metadata block (or a block of a journalled-data file) is freed: what this transaction changed
    /// in it is dropped, and when it commits older versions are neither replayed nor written home.
    ///
    /// # Errors
    /// As [`Handle::modify`].
    pub fn forget(&mut self, block: Block) -> Result<()> {
        self.check()?;
        let logs = self.journal.has_log() && !seeded::on(Fault::MissingRevoke);
        let revokes = self.txn.forget(block, logs);
        // The first record of each revoke block pays for it.
        if revokes.is_some_and(|n| n % self.journal.revokes_per_block() == 1) {
            self.spend();
        }
        self.journal.cache().forget(block);
        Ok(())
    }

    /// File data that goes through the journal (`data=journal`): `data` is what the block holds from
    /// here on.
    ///
    /// # Errors
    /// As [`Handle::modify`]; `Corrupt` if the block is not in the file system or `data` is not a block.
    pub fn journal_data(&mut self, block: Block, data: Arc<AlignedBuf>) -> Result<()> {
        self.check()?;
        let geo = self.journal.cache().geo();
        if !geo.is_valid_block(block, 1) || data.len() != geo.block_size.bytes() {
            return Err(Corrupt::new("journalled data block").block(block).into());
        }
        let buf = self.journal.cache().create_with(block, data);
        self.txn.cancel_revoke(block);
        self.join(&buf);
        Ok(())
    }

    /// Makes sure that at least `credits` are left. `false`: the transaction cannot take that many
    /// more, so the caller must [`Handle::restart`] at a point where the file system is consistent.
    ///
    /// # Errors
    /// As [`Handle::modify`].
    pub fn ensure(&mut self, credits: u32) -> Result<bool> {
        self.check()?;
        let missing = credits.saturating_sub(self.credits);
        if missing == 0 || self.journal.extend(missing) {
            self.credits += missing;
            return Ok(true);
        }
        Ok(false)
    }

    /// Ends this part and goes on in the transaction that runs then, with `credits`. Only with
    /// nothing of rank 6 or above held: it may wait for a commit.
    ///
    /// # Errors
    /// As [`Journal::start`]. The handle is of no further use then.
    pub fn restart(&mut self, credits: u32) -> Result<()> {
        self.leave();
        self.txn = self.journal.join_running(credits, 0)?;
        self.credits = credits;
        self.live = true;
        self.open = Some(nesting::Open::new());
        Ok(())
    }

    /// The commit of this transaction waits until the token is given back.
    pub fn attach(&mut self) -> DataToken {
        self.txn.tokens.attach()
    }

    /// [`Handle::stop`] waits until the transaction is durable.
    pub fn set_sync(&mut self) {
        self.sync = true;
    }

    /// Ends the handle. After [`Handle::set_sync`] waits for the commit.
    ///
    /// # Errors
    /// Of the commit it waited for.
    pub fn stop(self) -> Result<()> {
        let sync = self.sync;
        let (journal, tid) = (Arc::clone(&self.journal), self.txn.tid);
        drop(self);
        if sync { journal.wait_commit(tid) } else { Ok(()) }
    }

    /// As [`Journal::reserve`], for a handle already open: never waits, so it may be refused.
    pub fn try_reserve(&mut self, credits: u32) -> Option<ReservedHandle> {
        self.journal.try_reserve(credits)
    }

    /// Stops counting among the transaction's handles; does nothing the second time.
    fn leave(&mut self) {
        if std::mem::take(&mut self.live) {
            let unused = std::mem::take(&mut self.credits);
            let over = std::mem::take(&mut self.overdraft);
            self.journal.leave(&self.txn, unused, over);
            self.open = None;
        }
    }

    fn check(&self) -> Result<()> {
        self.journal.check_start()?;
        if self.live { Ok(()) } else { Err(Error::ReadOnly) }
    }

    fn join(&mut self, buf: &Arc<Buffer>) {
        if !buf.joined(self.txn.tid) && self.txn.join(buf) {
            self.spend();
        }
    }

    fn spend(&mut self) {
        if let Some(left) = self.credits.checked_sub(1) {
            self.credits = left;
            return;
        }
        if self.overdraft == 0 {
            log::warn!("{}: handle out of journal credits", self.op);
        }
        debug_assert!(self.overdraft < 64, "{}: handle far out of credits", self.op);
        self.overdraft += 1;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.leave();
    }
}
