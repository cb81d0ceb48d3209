//! Changing the lock mode of an inode, and of a mount, while it works.

use crate::{
    error::Result,
    inode::{Inode, Share, Volume, lock_mode::LockMode},
    writeback::{self, Scope, Writeback},
};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// Puts `inode` into mode `to`; with `pinned` it keeps it when the mount's mode changes, for as long
/// as the inode stays in memory. What is in flight finishes under the old mode first: the I/O lock
/// is held exclusively, the gate drained and, where blocks may have been entered as written ahead of their
/// data and readers will no longer lock, that data is down.
pub fn switch(
    vol: &Volume,
    wb: &Writeback,
    inode: &Arc<Inode>,
    to: LockMode,
    pinned: bool,
) -> Result<()> {
    let write_out = to == LockMode::Nolock && inode.has_map() && inode.is_reg();
    if write_out && inode.dio_mode.get() != to {
        // Most of it, while others still work.
        writeback::write_out(vol, wb, inode, Scope::ALL)?;
    }
    let _lock = inode.io.acquire(Share::Exclusive, "dioread_mode");
    let from = inode.dio_mode.get();
    if from != to {
        let _closed = inode.gate.close();
        let _one = inode.wb.lock();
        if write_out {
            writeback::write_out_locked(vol, wb, inode, Scope::ALL)?;
        }
        inode.dio_mode.set(to, pinned);
        vol.dio.of(from).drains.fetch_add(1, Relaxed);
    } else {
        inode.dio_mode.set(to, pinned);
    }
    Ok(())
}

/// Puts the mount into mode `to`: inodes read from now on start with it, those in memory follow one
/// by one, but for those whose mode was set by name. On an error the rest keep theirs.
pub fn switch_mount(vol: &Volume, wb: &Writeback, to: LockMode) -> Result<()> {
    vol.dio.set_default(to);
    // Again for inodes that were being read from disk meanwhile.
    for _ in 0..2 {
        for i in vol.inodes.all() {
            if !i.dio_mode.pinned() && i.dio_mode.get() != to {
                switch(vol, wb, &i, to, false)?;
            }
        }
    }
    Ok(())
}
