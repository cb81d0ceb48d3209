//! Freeing blocks, and when they may be handed out again.
//!
//! A freed block is free on disk at once and in the buddy only when the transaction that freed it has
//! committed, even if the same transaction allocated it.

use super::buddy::Extent;
use super::counters::Right;
use super::report::DeliverAtEnd;
use super::{Allocator, Run};
use crate::device::seeded::{self, Fault};
use crate::error::{Corrupt, Error, Result};
use crate::journal::{CommitListener, Handle, Journal};
use crate::trace;
use crate::types::{Block, Group, Tid};
use std::collections::VecDeque;
use std::sync::Arc;

/// How blocks are freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeFlags {
    /// They hold metadata, or data that went through the journal: revoked, so that replay leaves them
    /// alone.
    pub metadata: bool,
}

/// The groups that a transaction freed blocks in.
pub(super) struct PendingFrees {
    tid: Tid,
    /// Sorted if there are many: see `note`.
    groups: Vec<u32>,
}

impl Allocator {
    /// Frees a run in `h`'s transaction. It may span groups.
    ///
    /// # Errors
    /// `Corrupt` if a block is outside the file system, belongs to its own metadata, or is free
    /// already; in the last case that group is out of use from then on.
    pub fn free(&self, h: &mut Handle, run: Run, flags: FreeFlags) -> Result<()> {
        let _told = DeliverAtEnd(&self.report);
        trace::event!(FreeBlocks, -, block: run.start.0, count: run.len, metadata: flags.metadata);
        self.check_data_run(run)?;
        let mut at = run.start;
        let end = run.start.0 + u64::from(run.len);
        while at.0 < end {
            let Some((g, bit)) = self.geo.group_of_block(at) else {
                return Err(Corrupt::new("freeing outside the file system").block(at).into());
            };
            let room = self.geo.clusters_in_group(g).saturating_sub(bit);
            let len = u64::from(room).min(end - at.0) as u32;
            if len == 0 {
                return Err(Corrupt::new("freeing outside the group").block(at).group(g).into());
            }
            self.free_in_group(h, g, Extent { start: bit, len })?;
            if flags.metadata {
                for i in 0..u64::from(len) {
                    h.forget(at.plus(i))?;
                }
            }
            at = at.plus(len.into());
        }
        Ok(())
    }

    /// Marks as used what of the run is not: a replay gives these blocks to a file. Only before blocks are
    /// allocated or freed otherwise.
    ///
    /// # Errors
    /// As [`Allocator::free`]; `Corrupt` if a group is out of use.
    pub fn mark_used(&self, h: &mut Handle, run: Run) -> Result<()> {
        let _told = DeliverAtEnd(&self.report);
        self.check_data_run(run)?;
        let mut at = run.start;
        let end = run.start.0 + u64::from(run.len);
        while at.0 < end {
            let bad = |what| Error::from(Corrupt::new(what).block(at));
            let (g, bit) =
                self.geo.group_of_block(at).ok_or_else(|| bad("block outside the file system"))?;
            let room = self.geo.clusters_in_group(g).saturating_sub(bit);
            let len = u64::from(room).min(end - at.0) as u32;
            let mut e = match self.groups.enter(g, false)? {
                Some(e) if len > 0 => e,
                _ => return Err(bad("the group of this block cannot be used")),
            };
            self.groups.use_blocks(h, &mut e, Extent::default())?;
            let mut from = bit;
            while from < bit + len {
                let (start, stop) = e.next_free(from, bit + len);
                if start < stop {
                    let n = stop - start;
                    self.groups.use_blocks(h, &mut e, Extent { start, len: n })?;
                    // Not refused: the blocks are taken already.
                    let _ = self.counters.claim(n.into(), Right::Pool);
                    self.counters.used(n.into());
                }
                from = stop.max(from + 1);
            }
            at = at.plus(len.into());
        }
        Ok(())
    }

    /// Whether a run of a file's blocks may be what it says: inside, and none of the file system's own.
    ///
    /// # Errors
    /// `Corrupt`, with the block.
    pub fn check_data_run(&self, run: Run) -> Result<()> {
        if !self.geo.is_valid_block(run.start, run.len.into()) {
            let c = Corrupt::new("blocks outside the file system").block(run.start);
            return Err(c.value(run.len.into()).into());
        }
        let end = run.start.0 + u64::from(run.len);
        let hit = self.groups.zone.overlap(run.start.0, end);
        let hit = hit.or_else(|| self.groups.extra_zone.read().overlap(run.start.0, end));
        match hit {
            Some(b) => Err(Corrupt::new("a file claims a metadata block").block(b).into()),
            None => Ok(()),
        }
    }

    fn free_in_group(&self, h: &mut Handle, g: Group, x: Extent) -> Result<()> {
        // A group out of use was reported: its blocks stay lost.
        let Some(mut e) = self.groups.enter(g, false)? else { return Ok(()) };
        self.groups.release_blocks(h, &mut e, x)?;
        let tid = h.tid();
        let st = &mut *e.state;
        st.pending_blocks = st.pending_blocks.saturating_add(x.len);
        push_merged(&mut st.withheld().pending, tid, x);
        self.note(tid, g);
        drop(e);
        self.counters.freed(x.len.into());
        if seeded::on(Fault::FreedReusedAtOnce) {
            self.committed(tid);
        }
        Ok(())
    }

    /// Remembers that `tid` freed in `g`. Called before `tid` can commit: its handle is open.
    fn note(&self, tid: Tid, g: Group) {
        let mut pending = self.pending.lock();
        let entry = match pending.iter_mut().rev().find(|p| p.tid == tid) {
            Some(p) => p,
            None => {
                pending.push_back(PendingFrees { tid, groups: Vec::new() });
                let Some(p) = pending.back_mut() else { return };
                p
            }
        };
        if entry.groups.last() == Some(&g.0) {
            return;
        }
        entry.groups.push(g.0);
        if entry.groups.len() > 2 * self.groups.count() as usize {
            entry.groups.sort_unstable();
            entry.groups.dedup();
        }
    }

    /// Whether blocks wait for a commit.
    pub fn has_pending_frees(&self) -> bool {
        !self.pending.lock().is_empty()
    }

    /// Makes free what only waits: drops every preallocation, and commits if freed blocks wait for
    /// that. Whether anything was gained. Only with no handle open and no lock held.
    ///
    /// # Errors
    /// Of the commit.
    pub fn reclaim(&self, journal: &Arc<Journal>) -> Result<bool> {
        let gained = self.discard_all_preallocs() > 0;
        if !self.has_pending_frees() {
            return Ok(gained);
        }
        journal.commit_all()?;
        Ok(true)
    }

    /// Gives back what is preallocated for an inode: at truncate, last close and eviction.
    pub fn discard_prealloc(&self, ino: crate::types::Ino) {
        trace::event!(DiscardPreallocations, ino);
        for pa in self.preallocs.take(ino) {
            self.give_back(&pa);
        }
    }

    /// Gives back all that is preallocated; how many blocks.
    pub fn discard_all_preallocs(&self) -> u64 {
        self.preallocs.take_all().iter().map(|pa| u64::from(self.give_back(pa))).sum()
    }

    /// The blocks that a group's committed transactions freed go to the buddy.
    fn release_group(&self, g: Group, tid: Tid) {
        let Ok(cell) = self.groups.cell(g) else { return };
        if self.tunables.discard() {
            // Still withheld while they are discarded.
            let due: Vec<Extent> = match &cell.state.lock().withheld {
                Some(w) => w.pending.iter().filter(|p| !p.0.after(tid)).map(|p| p.1).collect(),
                None => return,
            };
            for x in due {
                self.discard_blocks(g, x);
            }
        }
        let mut st = cell.state.lock();
        st.trimmed = false;
        let Some(w) = st.withheld.as_mut() else { return };
        let mut due = Vec::new();
        w.pending.retain(|(t, x)| {
            if !t.after(tid) {
                due.push(*x);
            }
            t.after(tid)
        });
        for x in due {
            st.pending_blocks = st.pending_blocks.saturating_sub(x.len);
            self.free_in_buddy(g, &mut st, x);
        }
        self.groups.refresh(g, &mut st);
    }

    /// Discards blocks; a device that cannot is not asked again.
    pub(super) fn discard_blocks(&self, g: Group, x: Extent) {
        let run = self.run(g, x.start, x.len);
        let bs = self.geo.block_size;
        let len = u64::from(run.len) << bs.log2();
        match self.cache.dev().discard(bs.offset(run.start), len) {
            Ok(()) => {}
            Err(Error::NotSupported) => {
                log::warn!("the device does not discard: switched off");
                self.tunables.set_discard(false);
            }
            Err(e) => log::warn!("discard of {} blocks at {}: {e}", run.len, run.start),
        }
    }
}

/// Adds a pending run, joined to the last one where they touch (a truncate frees backwards).
fn push_merged(list: &mut Vec<(Tid, Extent)>, tid: Tid, x: Extent) {
    if let Some((t, last)) = list.last_mut()
        && *t == tid
    {
        if last.end() == x.start {
            last.len += x.len;
            return;
        }
        if x.end() == last.start {
            *last = Extent { start: x.start, len: x.len + last.len };
            return;
        }
    }
    list.push((tid, x));
}

impl CommitListener for Allocator {
    fn committed(&self, tid: Tid) {
        let due: VecDeque<PendingFrees> = {
            let mut pending = self.pending.lock();
            let (due, later) = pending.drain(..).partition(|p| !p.tid.after(tid));
            *pending = later;
            due
        };
        for mut p in due {
            p.groups.sort_unstable();
            p.groups.dedup();
            for g in p.groups {
                self.release_group(Group(g), tid);
            }
        }
        self.report.deliver();
    }
}

impl Run {
    /// One past the last block.
    pub fn end(self) -> Block {
        self.start.plus(self.len.into())
    }
}
