//! jbd2: metadata changes reach the disk as transactions, whole or not at all.
//!
//! Every room above changes metadata through a [`Handle`] and nothing else. The journal is given the
//! device, the buffer cache and the blocks of its log when it is opened, and asks nobody above.
//!
//! A transaction is *running* (handles join), then *closing* (it waits for its handles), then
//! *committing* (its buffers are captured, the next transaction runs, it is written), then *committed*
//! and listed for the checkpoint, which writes its blocks home and takes the log space back.
//!
//! Invariants:
//! - No handle joins the next transaction before the closing one has no handles and its buffers are
//!   captured (only reserved handles still join a closing one).
//! - The log always has room for what the running transaction may become, the reserved handles and
//!   the committing transaction: a handle waits before it starts, a commit never does.
//! - A commit waits for data tokens only. It takes no lock of rank 1 to 4 and starts no data I/O.
//! - Home goes only the newest committed version of a block, never one of the running transaction.
//! - After an error nothing pretends to have been written: the journal stays failed.
//!
//! Without a log ([`Journal::none`]) the same transactions exist, but their commit writes the blocks
//! home: the same interface, no atomicity.

mod abort;
mod checkpoint;
mod commit;
mod commit_log;
mod flusher;
pub mod handle;
mod home;
mod kick;
mod live;
mod log_store;
pub mod log_map;
mod log_write;
mod nesting;
pub mod open;
mod options;
pub mod recovery;
pub mod start;
mod state;
mod superblocks;
mod threads;
pub mod token;
pub mod transaction;

pub use handle::Handle;
pub use log_map::{LogExtent, LogMap};
pub use open::{CleanJournal, DirtyJournal, FastCommitArea, Opened, ReplayedJournal, open};
pub use options::JournalOptions;
pub use recovery::Recovered;
pub use start::ReservedHandle;
pub use token::DataToken;
pub use transaction::CommitListener;

#[cfg(test)]
mod tests;

use crate::cache::BufferCache;
use crate::device::AlignedBuf;
use crate::error::Result;
use crate::types::Block;
use flusher::Flusher;
use kick::Kick;
use parking_lot::{Condvar, Mutex, RwLock};
use state::State;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// Where a commit writes.
enum Backend {
    /// No log: blocks go home.
    Home,
    /// To the log, and home later.
    Log(Box<log_store::Log>),
}

/// The journal of one mounted file system.
pub struct Journal {
    cache: Arc<BufferCache>,
    live: live::Live,
    async_commit: bool,
    flusher: Flusher,
    backend: Backend,
    /// Most blocks a transaction logs (one larger operation is let in alone).
    max_credits: u64,
    /// Blocks of the log.
    log_len: u64,
    /// Committed blocks not yet at home beyond which a checkpoint begins: bounds memory.
    max_pending: usize,
    /// Above locks of rank 7 and 8; contents of transactions and the leaf locks come after it.
    state: Mutex<State>,
    /// Handles may be able to start.
    startable: Condvar,
    /// The closing transaction has no handles.
    idle: Condvar,
    /// Some commit ended.
    commit_ended: Condvar,
    listeners: RwLock<Vec<Arc<dyn CommitListener>>>,
    health: AtomicU8,
    kick: Arc<Kick>,
    checkpoint_kick: Arc<Kick>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

/// Most blocks of a transaction without a log.
const HOME_CREDITS: u64 = 8192;
/// Bytes of committed blocks not yet at home, beyond which a checkpoint begins.
const MAX_PENDING_BYTES: usize = 64 << 20;

impl Journal {
    /// A file system without a journal: transactions group changes in the same way, and their commit
    /// waits for ordered data, writes the blocks home and flushes.
    pub fn none(cache: Arc<BufferCache>, opts: JournalOptions) -> Arc<Journal> {
        let j = Arc::new(Journal::with(
            cache,
            opts,
            Backend::Home,
            HOME_CREDITS,
            State { log_free: u64::MAX / 2, ..State::default() },
        ));
        if let Err(e) = threads::spawn_commit(&j) {
            j.abort(&e);
        }
        j
    }

    fn with(
        cache: Arc<BufferCache>,
        opts: JournalOptions,
        backend: Backend,
        max_credits: u64,
        state: State,
    ) -> Journal {
        let live = live::Live::new(&opts);
        let flusher = Flusher::new(Arc::clone(cache.dev()), live.barrier.clone());
        let log_len = match &backend {
            Backend::Home => 0,
            Backend::Log(log) => u64::from(log.ring.len()),
        };
        Journal {
            log_len,
            max_pending: MAX_PENDING_BYTES / cache.geo().block_size.bytes(),
            cache,
            flusher,
            backend,
            max_credits,
            live,
            async_commit: opts.async_commit,
            state: Mutex::new(state),
            startable: Condvar::new(),
            idle: Condvar::new(),
            commit_ended: Condvar::new(),
            listeners: RwLock::default(),
            health: AtomicU8::new(0),
            kick: Arc::default(),
            checkpoint_kick: Arc::default(),
            threads: Mutex::default(),
        }
    }

    /// The cache whose buffers handles change.
    pub fn cache(&self) -> &Arc<BufferCache> {
        &self.cache
    }

    /// Whether there is a log, so that a crash loses nothing committed and needs no fsck.
    pub fn has_log(&self) -> bool {
        matches!(self.backend, Backend::Log(_))
    }

    /// Most credits a handle should ask for at once.
    pub fn max_credits(&self) -> u32 {
        u32::try_from(self.max_credits).unwrap_or(u32::MAX)
    }

    /// `listener` is told of every commit from here on.
    pub fn add_listener(&self, listener: Arc<dyn CommitListener>) {
        self.listeners.write().push(listener);
    }

    /// Commits and checkpoints everything, marks the log empty, clears the file system's RECOVER flag
    /// and ends the threads. Every handle must have ended; starting one afterwards fails.
    ///
    /// # Errors
    /// Of the commit or checkpoint; the threads have ended all the same.
    pub fn close(&self) -> Result<()> {
        let r = self.commit_all().and_then(|()| self.checkpoint_all());
        let r = r.and_then(|()| match &self.backend {
            Backend::Home => self.flush(),
            Backend::Log(log) => {
                let next = log.checkpoint.lock().next_seq;
                log.write_tail(next, 0, true)?;
                self.write_recover_flag(false)
            }
        });
        self.stop_threads();
        self.end();
        r
    }

    /// Log blocks that a transaction of so many blocks may take.
    fn log_need(&self, credits: u64) -> u64 {
        match &self.backend {
            Backend::Home => credits,
            Backend::Log(log) => log.need(credits),
        }
    }

    /// Log blocks that a single operation may need at most.
    fn largest_need(&self) -> u64 {
        match &self.backend {
            Backend::Home => u64::MAX,
            Backend::Log(_) => self.log_len / 2,
        }
    }

    /// Revoke records in a block of the log.
    fn revokes_per_block(&self) -> usize {
        match &self.backend {
            Backend::Home => usize::MAX,
            Backend::Log(log) => log.format.revokes_per_block().max(1),
        }
    }

    /// The bytes of a block that a transaction changed and that are not at home yet: what a reader of
    /// journalled file data must see instead of what is on the device.
    pub fn pending_data(&self, block: Block) -> Option<Arc<AlignedBuf>> {
        self.cache.peek(block).filter(|b| b.is_dirty()).map(|b| b.data())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.kick.stop();
        self.checkpoint_kick.stop();
    }
}
