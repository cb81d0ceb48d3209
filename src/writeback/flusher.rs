//! The thread that writes dirty data in the background: what has expired, or the oldest
//! first while more is dirty than the background threshold. Fair: each inode in turn gets
//! one pass, as large as its policy says.

use super::{
    Scope, Writeback,
    policy::{self, Dirty},
    start_of,
    stats::PassStats,
};
use crate::{
    device::pool_shrink,
    inode::{Inode, Volume},
    map::State,
    types::LBlock,
};
use std::{
    cell::Cell,
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::Ordering::{Acquire, Relaxed},
    },
    time::Instant,
};

/// Bytes of free buffers kept while nothing is written.
const IDLE_POOL: usize = 16 << 20;

pub(super) fn run(wb: &Weak<Writeback>, vol: &Weak<Volume>) {
    let mut was_idle = false;
    loop {
        let Some(w) = wb.upgrade() else { return };
        if w.stop.load(Acquire) {
            return;
        }
        w.sleep();
        let Some(v) = vol.upgrade() else { return };
        if w.stop.load(Acquire) {
            return;
        }
        v.flush_noted();
        // A whole period without data to write: the memory it took is given back.
        let idle = w.dirty_bytes() == 0;
        if idle && was_idle {
            pool_shrink(IDLE_POOL);
        }
        was_idle = idle;
        sweep(&w, &v);
    }
}

/// An inode whose turn it is.
struct Turn {
    inode: Arc<Inode>,
    /// It has data older than `dirty_expire`.
    old: bool,
    /// What became dirty later is left for another sweep.
    upto: u64,
}

/// Everything that has expired, and of the rest enough to come below the threshold.
fn sweep(wb: &Writeback, vol: &Volume) {
    let begin = Instant::now();
    let expire = wb.expire();
    let mut turns = VecDeque::new();
    for inode in wb.dirty_inodes() {
        let (since, upto) = {
            let p = inode.pages.lock();
            (p.dirty_since(), p.now())
        };
        match since {
            Some(t) => {
                let old = begin.duration_since(t) >= expire;
                turns.push_back(Turn { inode, old, upto });
            }
            None => store_times(vol, &inode),
        }
    }
    while let Some(t) = turns.pop_front() {
        if wb.stop.load(Acquire) {
            return;
        }
        if !t.old && !wb.over_background() {
            continue;
        }
        let wrote = pass(vol, wb, &t.inode);
        let left = t.inode.pages.lock().next_dirty(LBlock(0), t.upto).is_some();
        if wrote && left {
            turns.push_back(t);
        } else if !left {
            t.inode.pages.lock().is_younger_than(begin);
        }
    }
    wb.drop_clean();
}

/// One background pass over an inode; whether it got anything done.
fn pass(vol: &Volume, wb: &Writeback, inode: &Arc<Inode>) -> bool {
    let _one = inode.wb.lock();
    let Some(mut at) = index(vol, inode) else { return false };
    let name = wb.policy_of(inode);
    let ask = wb.ask(vol.geo.block_size);
    let view = View { vol, inode, index: at, counted: Cell::new(0) };
    let budget = policy::by_name(name).budget(&ask, &view);
    let stats = wb.stats.of(Some(name));
    PassStats::add(&stats.asked, budget);
    PassStats::add(&stats.counted, view.counted.get());
    let scope = Scope { from: at, budget, policy: Some(name), ..Scope::ALL };
    let r = super::pass(vol, wb, inode, scope, &mut at);
    inode.wb_index.store(at.0, Relaxed);
    // An error is kept in the inode for its next fsync, and its pages are gone.
    r.map_or(true, |n| n > 0)
}

/// The dirty page at which the pass starts: where the last one ended, round the end of the file.
fn index(vol: &Volume, inode: &Inode) -> Option<LBlock> {
    let from = start_of(vol, inode, LBlock(inode.wb_index.load(Relaxed)));
    let p = inode.pages.lock();
    p.next_dirty(from, u64::MAX).or_else(|| p.next_dirty(LBlock(0), u64::MAX))
}

/// An inode's dirty pages as a policy sees them.
struct View<'a> {
    vol: &'a Volume,
    inode: &'a Inode,
    index: LBlock,
    counted: Cell<u64>,
}

impl Dirty for View<'_> {
    fn contiguous(&self, max: u64) -> u64 {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        self.inode.pages.lock().contiguous_dirty(self.index, max) as u64
    }

    fn count_unmapped(&self, max: u64) -> u64 {
        let ctx = self.vol.map_ctx();
        let mut n = 0;
        while n < max {
            let Some(at) = u32::try_from(u64::from(self.index.0) + n).ok().map(LBlock) else {
                break;
            };
            let room = usize::try_from(max - n).unwrap_or(usize::MAX);
            let (dirty, delayed) = {
                let p = self.inode.pages.lock();
                (p.contiguous_dirty(at, room) as u64, p.contiguous_delayed(at, room) as u64)
            };
            let mut step = delayed;
            if step == 0 && dirty > 0 {
                let want = u32::try_from(dirty).unwrap_or(u32::MAX);
                let state = self.inode.map().and_then(|m| m.lookup(&ctx, at, want));
                if let Ok(m) = state
                    && m.state == State::Unwritten
                {
                    step = dirty.min(u64::from(m.len));
                }
            }
            if step == 0 {
                break;
            }
            n += step;
        }
        self.counted.set(self.counted.get() + n);
        n
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
