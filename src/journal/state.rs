//! What the journal's state lock guards.

use super::transaction::Transaction;
use crate::types::Tid;
use std::sync::Arc;

/// Where a running transaction stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Handles join.
    Running,
    /// Closing: waits for its handles; only reserved handles still join.
    Locked,
    /// Its buffers are being captured: nobody joins.
    Switching,
}

/// The transaction that handles join.
pub(super) struct Running {
    pub txn: Arc<Transaction>,
    pub phase: Phase,
    /// Open handles.
    pub handles: u32,
    /// Blocks it may log: those that handles used, and the unused credits of open handles.
    pub credits: u64,
}

#[derive(Default)]
pub(super) struct State {
    pub running: Option<Running>,
    /// Closed and being written.
    pub committing: Option<Arc<Transaction>>,
    /// Some thread is committing (from closing to the end).
    pub committer: bool,
    /// More than one thread waited for the last commit.
    pub company: bool,
    /// The newest transaction number given out.
    pub last: Tid,
    /// The newest committed transaction.
    pub committed: Tid,
    /// Somebody wants every transaction up to this one committed.
    pub wanted: Tid,
    /// Credits of reserved handles that have not started.
    pub reserved: u64,
    /// Log blocks promised to the committing transaction and not yet taken.
    pub committing_need: u64,
    /// Log blocks neither holding a live transaction nor being written.
    pub log_free: u64,
    /// Threads that wait in `start` for log space.
    pub space_waiters: u32,
}
