//! The I/O lock of a direct request.

use crate::inode::{
    Inode, Share, Ticket, Volume,
    lock_mode::{self, LockMode},
};
use std::{sync::Arc, time::Instant};

/// Reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dir {
    /// A direct read.
    Read,
    /// A direct write.
    Write,
}

impl Dir {
    /// The operation as `locks` shows it.
    pub fn op(self) -> &'static str {
        match self {
            Dir::Read => "direct read",
            Dir::Write => "direct write",
        }
    }

    /// Reads of mode `lock` let writers pass, as sleepers on the mutex of 2.6.33 did.
    fn yields(self, mode: LockMode) -> bool {
        self == Dir::Read && mode == LockMode::Lock
    }
}

/// The lock, taken for a direct request before it started.
pub struct Grant {
    mode: LockMode,
    share: Share,
    ticket: Ticket,
}

impl Grant {
    /// Whether it is enough for what the request needs now. As long as it is held the mode stays.
    pub fn fits(&self, vol: &Volume, inode: &Inode, share: Share) -> bool {
        self.mode == lock_mode::effective(vol, inode)
            && (self.share == share || self.share == Share::Exclusive)
    }

    /// The ticket, if it fits.
    pub(super) fn take(self, vol: &Volume, inode: &Inode, share: Share) -> Option<Ticket> {
        self.fits(vol, inode, share).then_some(self.ticket)
    }
}

/// Takes the lock, sleeping if need be, and counts the time if that takes any.
pub(super) fn take(vol: &Volume, inode: &Inode, mode: LockMode, share: Share, dir: Dir) -> Ticket {
    let start = inode.io.would_wait(share).then(Instant::now);
    let t = match dir.yields(mode) {
        true => inode.io.acquire_yielding(share, dir.op()),
        false => inode.io.acquire(share, dir.op()),
    };
    if let Some(s) = start {
        vol.dio.waited(mode, s.elapsed());
    }
    t
}

/// Takes the lock without a thread that waits: `then` is called with it, here or by whoever releases
/// the lock. It must not block.
pub fn take_then(
    vol: &Arc<Volume>,
    inode: &Arc<Inode>,
    share: Share,
    dir: Dir,
    then: impl FnOnce(Grant) + Send + 'static,
) {
    let mode = lock_mode::effective(vol, inode);
    let (vol, start) = (vol.clone(), Instant::now());
    inode.io.acquire_then(share, dir.op(), dir.yields(mode), move |ticket| {
        vol.dio.waited(mode, start.elapsed());
        then(Grant { mode, share, ticket });
    });
}
