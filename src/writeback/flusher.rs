//! The thread that writes dirty data in the background: what has expired, or the oldest
//! first while more is dirty than the background threshold. Fair: an inode with
//! more than a pass's worth goes to the end of the list.

use super::{Scope, Writeback, policy, write_out};
use crate::inode::{Inode, Volume};
use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

pub(super) fn run(wb: &Weak<Writeback>, vol: &Weak<Volume>) {
    loop {
        let Some(w) = wb.upgrade() else { return };
        if w.stop.load(Ordering::Acquire) {
            return;
        }
        w.sleep();
        let Some(v) = vol.upgrade() else { return };
        if w.stop.load(Ordering::Acquire) {
            return;
        }
        v.flush_noted();
        pass(&w, &v);
    }
}

/// One look at every inode on the list.
fn pass(wb: &Writeback, vol: &Volume) {
    let expire = Duration::from_millis(wb.expire_ms.load(Ordering::Relaxed));
    let now = Instant::now();
    for _ in 0..wb.listed() {
        if wb.stop.load(Ordering::Acquire) {
            return;
        }
        let Some(inode) = wb.pop() else { return };
        let since = inode.pages.lock().dirty_since();
        let old = since.is_some_and(|t| now.duration_since(t) >= expire);
        if old || (since.is_some() && wb.over_background()) {
            let budget = policy::pass_budget(vol, &inode);
            // The error is kept in the inode for its next fsync.
            let _ = write_out(vol, wb, &inode, Scope { budget, ..Scope::ALL });
        }
        if since.is_none() {
            store_times(vol, &inode);
        }
        if !inode.pages.lock().is_empty() || inode.attrs().dirty {
            wb.mark(&inode);
        }
    }
}

/// Times changed in memory only: to the slot.
fn store_times(vol: &Volume, inode: &Arc<Inode>) {
    if !inode.attrs().dirty || vol.writable().is_err() {
        return;
    }
    let stored = vol.journal.start("dirty_inode", 2).and_then(|mut h| {
        inode.store_times(vol, &mut h)?;
        h.stop()
    });
    if let Err(e) = stored {
        log::error!("inode {}: storing its times failed: {e}", inode.ino);
    }
}
