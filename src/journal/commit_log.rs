//! The I/O of a commit to the log.

use super::Journal;
use super::log_store::Log;
use super::log_write::Record;
use super::superblocks::now;
use super::transaction::{Captured, Transaction};
use crate::device::AlignedBuf;
use crate::device::seeded::{self, Fault};
use crate::error::{Error, Result};
use crate::types::Block;

impl Journal {
    /// Writes a transaction to the log: revokes, descriptors and blocks; then, when those and the
    /// ordered data are stable, the commit block. On return it is durable and listed for checkpoint.
    pub(super) fn commit_to_log(
        &self,
        log: &Log,
        txn: &Transaction,
        captured: Vec<Captured>,
    ) -> Result<()> {
        // Only this thread commits, so nobody else moves the head.
        let (seq, head) = {
            let cp = log.checkpoint.lock();
            (cp.next_seq, cp.head)
        };
        let (revokes, forgotten) = {
            let mut c = txn.contents.lock();
            (std::mem::take(&mut c.revokes), std::mem::take(&mut c.forgotten))
        };
        let revokes = revokes.into_keys().map(Block);
        let mut record = Record::build(log.format, seq, revokes, &captured)?;
        let len = record.len() as u64 + 1;
        self.take_log_space(len, txn)?;
        // It fits the log, whose length is a u32.
        let len = len as u32;
        let commit_at = log.ring.advance(head, len - 1);

        let mut commit = AlignedBuf::for_overwrite(log.format.block_bytes);
        let (sec, nsec) = now();
        log.format.write_commit(&mut commit, seq, sec, nsec, record.v1_sum);
        if log.marked_empty() {
            log.write_tail(seq, head, false)?;
        }
        if self.async_commit {
            record.push(commit);
            record.write(&log.map, log.ring, head)?;
            self.check_commit()?;
            self.flusher.flush()?;
        } else {
            record.write(&log.map, log.ring, head)?;
            self.check_commit()?;
            if !seeded::on(Fault::NoFlushBeforeCommit) {
                self.flusher.flush()?;
            }
            self.check_commit()?;
            let (at, _) = log.map.locate(commit_at)?;
            let off = log.map.block_size().offset(at);
            if self.live.barrier() && !seeded::on(Fault::CommitNotStable) {
                log.map.dev().write_fua(&commit, off)?;
            } else {
                log.map.dev().write_at(&commit, off)?;
            }
        }

        self.forget_committed(log, &forgotten);
        log.checkpoint.lock().add(captured, len, log.ring.advance(commit_at, 1));
        if self.checkpoint_due() {
            self.checkpoint_kick.poke();
        }
        Ok(())
    }

    /// Turns what was promised to the committing transaction into log blocks.
    fn take_log_space(&self, len: u64, txn: &Transaction) -> Result<()> {
        let mut st = self.state.lock();
        st.committing_need = 0;
        match st.log_free.checked_sub(len) {
            Some(left) => {
                st.log_free = left;
                Ok(())
            }
            // Handles used far more than they asked for.
            None => {
                log::error!("transaction {} needs {len} log blocks of {}", txn.tid, st.log_free);
                Err(Error::NoSpace)
            }
        }
    }
}
