//! How much a background write-out pass takes, and the counters of what it took.

use crate::inode::{Inode, Volume};
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages that one background pass over an inode may take.
pub fn pass_budget(vol: &Volume, inode: &Inode) -> u64 {
    let cap = (u64::from(vol.conf.max_writeback_mb_bump) << 20) >> vol.geo.block_size.log2();
    u64::from(inode.pages.lock().dirty()).min(cap).max(1)
}

/// Counters of write-out, since the mount.
#[derive(Debug, Default)]
pub struct Stats {
    /// Runs of contiguous pages.
    pub runs: AtomicU64,
    /// Pages written.
    pub pages: AtomicU64,
    /// Device requests.
    pub requests: AtomicU64,
    /// Bytes in them.
    pub bytes: AtomicU64,
    /// Runs that failed.
    pub errors: AtomicU64,
}

impl Stats {
    pub(super) fn run(&self, pages: u32) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.pages.fetch_add(u64::from(pages), Ordering::Relaxed);
    }

    pub(super) fn request(&self, bytes: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
