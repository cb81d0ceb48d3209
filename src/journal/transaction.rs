//! A transaction: the changes that reach the disk together or not at all.

use super::token::Tokens;
use crate::cache::{BlockMap, Buffer};
use crate::device::AlignedBuf;
use crate::error::Result;
use crate::types::{Block, Tid};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

/// Told when a transaction is durable.
pub trait CommitListener: Send + Sync {
    /// Transaction `tid` is durable, and nothing older than it will be written to the blocks it
    /// freed. Called once per transaction, in order, by whichever thread committed it: it must not
    /// start a handle, wait for a commit, or take a lock of rank 1 to 4.
    fn committed(&self, tid: Tid);
}

/// Called when a transaction is durable, or has failed.
pub(super) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// A buffer as it was when its transaction closed.
pub(super) struct Captured {
    pub block: Block,
    pub data: Arc<AlignedBuf>,
    pub buf: Arc<Buffer>,
}

/// What a transaction changes.
#[derive(Default)]
pub(super) struct Contents {
    pub buffers: BlockMap<Arc<Buffer>>,
    /// Metadata blocks freed here and not taken into use again: no replay of an older version.
    pub revokes: BlockMap<()>,
    /// Blocks that are freed when it commits: older versions must not go home after that.
    pub forgotten: Vec<Block>,
    pub callbacks: Vec<Callback>,
}

impl Contents {
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.revokes.is_empty() && self.forgotten.is_empty()
    }
}

pub(super) struct Transaction {
    pub tid: Tid,
    pub started: Instant,
    /// Leaf lock (taken under ranks up to 7).
    pub contents: Mutex<Contents>,
    pub tokens: Arc<Tokens>,
    /// With the journal's state lock: this transaction ended, or it is its turn to be committed.
    pub ended: Condvar,
    /// Threads that wait on it.
    pub waiters: AtomicU32,
}

impl Transaction {
    pub fn new(tid: Tid) -> Transaction {
        Transaction {
            tid,
            started: Instant::now(),
            contents: Mutex::default(),
            tokens: Arc::default(),
            ended: Condvar::new(),
            waiters: AtomicU32::new(0),
        }
    }

    /// Adds a buffer; whether it is new here.
    pub fn join(&self, buf: &Arc<Buffer>) -> bool {
        let mut c = self.contents.lock();
        let old = c.buffers.insert(buf.block().0, Arc::clone(buf));
        let new = match &old {
            Some(o) if Arc::ptr_eq(o, buf) => return false,
            Some(o) => {
                o.drop_dirty();
                false
            }
            None => true,
        };
        if !c.revokes.is_empty() {
            c.revokes.remove(&buf.block().0);
        }
        buf.add_dirty();
        buf.set_joined(Some(self.tid));
        new
    }

    /// The block's old contents no longer matter: it is taken into use again.
    pub fn cancel_revoke(&self, block: Block) {
        self.contents.lock().revokes.remove(&block.0);
    }

    /// The block is freed: its buffer leaves, and with `revoke` older versions are not to be replayed.
    /// The number of revoke records, if one was added.
    pub fn forget(&self, block: Block, revoke: bool) -> Option<usize> {
        let mut c = self.contents.lock();
        if let Some(buf) = c.buffers.remove(&block.0) {
            buf.set_joined(None);
            buf.drop_dirty();
        }
        c.forgotten.push(block);
        (revoke && c.revokes.insert(block.0, ()).is_none()).then(|| c.revokes.len())
    }

    /// The bytes of every buffer as they are now. Only when no handle is left.
    pub fn capture(&self) -> Vec<Captured> {
        let c = self.contents.lock();
        let mut v: Vec<Captured> = c
            .buffers
            .values()
            .map(|b| Captured { block: b.block(), data: b.data(), buf: Arc::clone(b) })
            .collect();
        drop(c);
        v.sort_unstable_by_key(|c| c.block);
        v
    }
}
