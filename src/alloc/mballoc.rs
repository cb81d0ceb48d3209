//! mballoc: from a request to a run of blocks.
//!
//! In order: the inode's preallocation, the locality group of small files, the goal itself, then the
//! groups by criterion (0: a power of two from the buddy; 1: groups whose average free run is long
//! enough; 2: groups with enough free blocks; 3: any). The index finds the groups worth a look.

use super::buddy::Extent;
use super::counters::{Counters, Right};
use super::groups::{By, Entered};
use super::normalize::{self, Plan};
use super::prealloc::Pa;
use super::report::DeliverAtEnd;
use super::scan::{Seen, Want, scan};
use super::{Allocator, Kind, Request, Run};
use crate::error::{Corrupt, Error, Result};
use crate::journal::Handle;
use crate::trace;
use crate::types::{Block, Group, Ino, LBlock};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Times that a search is begun again because others took what it had found.
const RETRIES: u32 = 8;
/// Bitmaps read from the device for one search before criteria 0 to 2 give up.
const COLD_LOADS: u32 = 32;

/// Space taken out of the counters for a request, given back unless it is used.
struct Claim<'c> {
    counters: &'c Counters,
    n: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.counters.unclaim(self.n);
    }
}

/// A search: what to find and from where.
#[derive(Clone, Copy)]
struct Search {
    /// Blocks the caller gets at most.
    need: u32,
    /// Blocks to look for.
    want: u32,
    /// Group and block in it.
    goal: (u32, u32),
    /// Group to go on from when the goal is taken (stream allocation).
    stream: Option<usize>,
}

/// What a search took: the first `used` blocks of `all` are the caller's, the rest is held by `pa`.
struct Taken {
    group: Group,
    all: Extent,
    used: u32,
    pa: u64,
}

impl Allocator {
    /// Takes 1 to `req.len` consecutive blocks and marks them used in `h`'s transaction.
    ///
    /// # Errors
    /// `NoSpace` when nothing is left (perhaps only until pending frees commit: see
    /// [`Allocator::reclaim`]); `Corrupt`, `Io`, `ReadOnly`.
    pub fn alloc(&self, h: &mut Handle, mut req: Request<'_>) -> Result<Run> {
        let _told = DeliverAtEnd(&self.report);
        let t = &self.tunables;
        let cap = t.mb_max_request().clamp(1, self.geo.clusters_per_group);
        let reach = (u32::MAX - req.lblk.0).max(1);
        let goal = req.goal.map_or(0, |b| b.0);
        trace::event!(RequestBlocks, req.ino, len: req.len, lblk: req.lblk.0, goal: goal);
        let (len, mut claim) = self.admit(&mut req, cap.min(reach))?;
        self.count(&self.groups.stats.reqs, 1);
        let run = self.find_somewhere(h, &req, len)?;
        match (&mut claim, &mut req.reservation) {
            (Some(c), _) => {
                c.n = c.n.saturating_sub(run.len.into());
                self.counters.used(run.len.into());
            }
            (None, Some(r)) => r.spend(run.len.into(), req.kind == Kind::Metadata),
            (None, None) => {}
        }
        trace::event!(MballocAlloc, req.ino, lblk: req.lblk.0, orig_len: len, goal: goal,
            result: run.start.0, result_len: run.len);
        trace::event!(AllocateBlocks, req.ino, len: run.len, block: run.start.0, lblk: req.lblk.0);
        self.count(&self.groups.stats.success, 1);
        self.count(&self.groups.stats.allocated, run.len.into());
        Ok(run)
    }

    pub(super) fn count(&self, c: &AtomicU64, n: u64) {
        if self.tunables.mb_stats() {
            c.fetch_add(n, Relaxed);
        }
    }

    /// How many blocks the request may have: what its reservation covers, else what can be claimed.
    fn admit(&self, req: &mut Request<'_>, cap: u32) -> Result<(u32, Option<Claim<'_>>)> {
        let want = req.len.clamp(1, cap);
        let metadata = req.kind == Kind::Metadata;
        if let Some(r) = &req.reservation {
            let left = if metadata { r.meta() } else { r.data() };
            if left > 0 {
                return Ok((left.min(want.into()) as u32, None));
            }
        }
        let right = match (req.use_pool, req.root_ok) {
            (true, _) => Right::Pool,
            (false, true) => Right::Root,
            (false, false) => Right::Normal,
        };
        let mut n = want;
        while n > 0 {
            if self.counters.claim(n.into(), right) {
                return Ok((n, Some(Claim { counters: &self.counters, n: n.into() })));
            }
            n /= 2;
        }
        Err(Error::NoSpace)
    }

    /// A group that turns out to contradict itself is left out, and the search begins again.
    fn find_somewhere(&self, h: &mut Handle, req: &Request<'_>, len: u32) -> Result<Run> {
        let mut tries = 0;
        loop {
            match self.find_blocks(h, req, len) {
                Err(Error::Corrupt(_)) if tries < RETRIES => tries += 1,
                r => return r,
            }
        }
    }

    fn find_blocks(&self, h: &mut Handle, req: &Request<'_>, len: u32) -> Result<Run> {
        let data = req.kind == Kind::Data;
        if data && let Some(run) = self.use_inode_pa(h, req.ino, req.lblk, len)? {
            return Ok(run);
        }
        let plan = if data && req.prealloc { self.plan(req, len) } else { Plan::Exact };
        if let Plan::Locality(want) = plan {
            return self.use_locality(h, req, len, want);
        }
        if data
            && req.prealloc
            && let Some(run) = self.go_on_in_locality(h, req, len)?
        {
            return Ok(run);
        }
        let want = match plan {
            Plan::Inode(n) if self.has_room_for_pa() => n,
            _ => len,
        };
        let taken = self.search_or_reclaim(h, req, len, want)?;
        if taken.all.len > taken.used {
            let pa = Pa {
                id: taken.pa,
                lstart: req.lblk.0,
                group: taken.group,
                start: taken.all.start,
                len: taken.all.len,
            };
            self.preallocs.add(req.ino, pa);
        }
        Ok(self.run(taken.group, taken.all.start, taken.used))
    }

    fn plan(&self, req: &Request<'_>, len: u32) -> Plan {
        let t = &self.tunables;
        let max_request = t.mb_max_request().clamp(len, self.geo.clusters_per_group);
        let plan = normalize::plan(&normalize::Ask {
            lblk: req.lblk.0,
            len,
            file_blocks: self.geo.block_size.blocks_for(req.size_hint),
            block_bits: self.geo.block_size.log2(),
            stream_req: t.mb_stream_req(),
            group_prealloc: self.locality_size(),
            max_request,
        });
        match plan {
            // Another preallocation may begin inside the window.
            Plan::Inode(n) => match self.preallocs.next_covered(req.ino, req.lblk.0) {
                Some(next) => Plan::Inode(n.min(next - req.lblk.0).max(len)),
                None => plan,
            },
            _ => plan,
        }
    }

    /// `mb_group_prealloc`, in whole stripes.
    fn locality_size(&self) -> u32 {
        let (n, stripe) = (self.tunables.mb_group_prealloc(), self.tunables.stripe());
        if stripe > 1 && n > 0 { n.checked_next_multiple_of(stripe).unwrap_or(n) } else { n }
    }

    /// Whether one more preallocation may be kept; makes room by dropping some others.
    fn has_room_for_pa(&self) -> bool {
        let most = self.tunables.mb_max_preallocs();
        if self.preallocs.count() >= most {
            for pa in self.preallocs.take_some() {
                self.give_back(&pa);
            }
        }
        self.preallocs.count() < most
    }

    pub(super) fn run(&self, g: Group, start: u32, len: u32) -> Run {
        Run { start: self.geo.group_first_block(g).plus(start.into()), len }
    }

    /// Takes from what is held for this file.
    fn use_inode_pa(
        &self,
        h: &mut Handle,
        ino: Ino,
        lblk: LBlock,
        len: u32,
    ) -> Result<Option<Run>> {
        let Some(pa) = self.preallocs.find(ino, lblk.0) else { return Ok(None) };
        let at = pa.start.saturating_add(lblk.0 - pa.lstart);
        match self.take_held(h, &pa, Some(at), len)? {
            Some((start, n, left)) => {
                if left == 0 {
                    self.preallocs.remove(ino, pa.id);
                }
                self.count(&self.groups.stats.pa_hits, 1);
                Ok(Some(self.run(pa.group, start, n)))
            }
            None => Ok(None),
        }
    }

    /// A file that is still small goes on behind its last block, if that is where a locality group goes
    /// on.
    fn go_on_in_locality(
        &self,
        h: &mut Handle,
        req: &Request<'_>,
        len: u32,
    ) -> Result<Option<Run>> {
        let blocks = u64::from(req.lblk.0) + u64::from(len);
        let Some(goal) = req.goal.and_then(|b| self.geo.group_of_block(b)) else { return Ok(None) };
        if blocks > u64::from(self.tunables.mb_stream_req()) {
            return Ok(None);
        }
        let mut slot = self.preallocs.locality(Some(goal));
        let Some(pa) = slot.filter(|p| (p.group, p.start) == goal) else { return Ok(None) };
        let Some((start, n, left)) = self.take_held(h, &pa, None, len)? else { return Ok(None) };
        *slot = (left > 0).then_some(Pa { start: start + n, len: left, ..pa });
        self.count(&self.groups.stats.lg_hits, 1);
        Ok(Some(self.run(pa.group, start, n)))
    }

    /// Takes from what is held for small files, and holds more of it if need be.
    fn use_locality(&self, h: &mut Handle, req: &Request<'_>, len: u32, want: u32) -> Result<Run> {
        let goal = req.goal.and_then(|b| self.geo.group_of_block(b));
        let mut slot = self.preallocs.locality(goal);
        if let Some(pa) = slot.take() {
            // A small file that does not fit whole goes into a fresh one.
            let taken = if pa.len >= len { self.take_held(h, &pa, None, len)? } else { None };
            if let Some((start, n, left)) = taken {
                let rest = Pa { start: start + n, len: left, ..pa };
                *slot = (left > 0).then_some(rest);
                self.count(&self.groups.stats.lg_hits, 1);
                return Ok(self.run(pa.group, start, n));
            }
            self.give_back(&pa);
        }
        // The search may drop all preallocations, this slot's too.
        drop(slot);
        let taken = self.search_or_reclaim(h, req, len, want)?;
        if taken.all.len > taken.used {
            let pa = Pa {
                id: taken.pa,
                lstart: 0,
                group: taken.group,
                start: taken.all.start + taken.used,
                len: taken.all.len - taken.used,
            };
            let mut slot = self.preallocs.locality(None);
            match &*slot {
                None => *slot = Some(pa),
                Some(_) => {
                    drop(slot);
                    self.give_back(&pa);
                }
            }
        }
        Ok(self.run(taken.group, taken.all.start, taken.used))
    }

    /// Uses up to `len` held blocks from block `at` of the group (`None`: from the first there is).
    /// Start, length and how many stay held; `None` if they are gone.
    fn take_held(
        &self,
        h: &mut Handle,
        pa: &Pa,
        at: Option<u32>,
        len: u32,
    ) -> Result<Option<(u32, u32, u32)>> {
        let Some(mut e) = self.groups.enter(pa.group, false)? else { return Ok(None) };
        let Some(held) = e.state.withheld.as_ref().and_then(|w| w.held.get(&pa.id)) else {
            return Ok(None);
        };
        let part = held.iter().enumerate().find_map(|(i, x)| match at {
            None => Some((i, *x, x.start)),
            Some(at) => (x.start <= at && at < x.end()).then_some((i, *x, at)),
        });
        let Some((i, x, start)) = part else { return Ok(None) };
        let run = Extent { start, len: len.min(x.end() - start) };
        self.groups.use_blocks(h, &mut e, run)?;
        let st = &mut *e.state;
        st.held_blocks = st.held_blocks.saturating_sub(run.len);
        let w = st.withheld();
        let mut left = 0;
        if let Some(held) = w.held.get_mut(&pa.id) {
            held.remove(i);
            let rest = [
                Extent { start: x.start, len: start - x.start },
                Extent { start: run.end(), len: x.end() - run.end() },
            ];
            held.extend(rest.into_iter().filter(|r| r.len > 0));
            left = held.iter().map(|r| r.len).sum();
        }
        if left == 0 {
            w.held.remove(&pa.id);
        }
        self.groups.refresh(pa.group, st);
        Ok(Some((run.start, run.len, left)))
    }

    /// Returns what a preallocation still holds to the buddy; how many blocks that was.
    pub(super) fn give_back(&self, pa: &Pa) -> u32 {
        let Ok(cell) = self.groups.cell(pa.group) else { return 0 };
        let mut st = cell.state.lock();
        let Some(held) = st.withheld.as_mut().and_then(|w| w.held.remove(&pa.id)) else { return 0 };
        let mut n = 0;
        for e in held {
            n += e.len;
            self.free_in_buddy(pa.group, &mut st, e);
        }
        st.held_blocks = st.held_blocks.saturating_sub(n);
        self.groups.refresh(pa.group, &mut st);
        self.count(&self.groups.stats.discarded, n.into());
        n
    }

    /// Frees blocks in the buddy, if it is in memory.
    pub(super) fn free_in_buddy(&self, g: Group, st: &mut super::groups::GroupState, e: Extent) {
        if let Some(Err(bit)) = st.buddy.as_mut().map(|b| b.mark_free(e)) {
            let block = self.geo.group_first_block(g).plus(bit.into());
            let c = Corrupt::new("block is free in the buddy already").group(g).block(block);
            self.groups.exclude(g, st, c.into());
        }
    }

    /// The search; when it finds nothing, once more without what others only hold.
    fn search_or_reclaim(
        &self,
        h: &mut Handle,
        req: &Request<'_>,
        need: u32,
        want: u32,
    ) -> Result<Taken> {
        let goal = self.goal(req);
        let stream = (req.kind == Kind::Data && want >= self.tunables.mb_stream_req())
            .then(|| req.ino.0 as usize % self.stream_goals.len());
        let mut s = Search { need, want, goal, stream };
        for _ in 0..RETRIES {
            if let Some(t) = self.search(h, &s)? {
                if let Some(i) = stream {
                    self.stream_goals[i].store(t.group.0, Relaxed);
                }
                return Ok(t);
            }
            if self.discard_all_preallocs() == 0 {
                return Err(Error::NoSpace);
            }
            s.want = need;
        }
        Err(Error::NoSpace)
    }

    /// Group and block to begin at.
    fn goal(&self, req: &Request<'_>) -> (u32, u32) {
        let at = |b: Block| self.geo.group_of_block(b).map(|(g, bit)| (g.0, bit));
        req.goal.and_then(at).unwrap_or_else(|| self.inode_goal(req))
    }

    /// ext4's goal for a file without neighbours: the inode's group (the flex group's second for
    /// regular files), coloured by inode unless delayed allocation orders the requests anyway.
    fn inode_goal(&self, req: &Request<'_>) -> (u32, u32) {
        let geo = &self.geo;
        let Some((g, _)) = geo.ino_location(req.ino) else { return (0, 0) };
        let mut g = g.0;
        if geo.flex_bg_size >= 4 {
            g &= !(geo.flex_bg_size - 1);
            if req.kind == Kind::Data && g + 1 < geo.groups_count {
                g += 1;
            }
        }
        if req.delalloc || req.kind != Kind::Data {
            return (g, 0);
        }
        (g, req.ino.0 % 16 * (geo.clusters_in_group(Group(g)) / 16))
    }

    fn search(&self, h: &mut Handle, s: &Search) -> Result<Option<Taken>> {
        if let Some(t) = self.at_goal(h, s)? {
            self.count(&self.groups.stats.goal_hits, 1);
            return Ok(Some(t));
        }
        let mut s = *s;
        if let Some(i) = s.stream {
            let g = self.stream_goals[i].load(Relaxed);
            if g < self.groups.count() && g != s.goal.0 {
                s.goal = (g, 0);
            }
        }
        for _ in 0..RETRIES {
            match self.by_criteria(h, &s)? {
                Found::Taken(t) => return Ok(Some(t)),
                Found::Lost => self.count(&self.groups.stats.lost, 1),
                Found::Nothing => return Ok(None),
            }
        }
        self.first_free(h, &s)
    }

    /// The goal itself, if there is room for what was asked.
    fn at_goal(&self, h: &mut Handle, s: &Search) -> Result<Option<Taken>> {
        let Some(e) = self.groups.enter(Group(s.goal.0), true)? else { return Ok(None) };
        let Some(buddy) = &e.state.buddy else { return Ok(None) };
        let x = buddy.free_at(s.goal.1, s.want);
        if x.len < s.need {
            return Ok(None);
        }
        self.take(h, e, x, s.need).map(Some)
    }

    fn by_criteria(&self, h: &mut Handle, s: &Search) -> Result<Found> {
        let t = &self.tunables;
        let stats = &self.groups.stats;
        let order = s.want.ilog2();
        let ceil = order + u32::from(!s.want.is_power_of_two());
        let buddy_only = s.want.is_power_of_two()
            && order >= t.mb_order2_req()
            && order <= self.groups.max_order;
        let first = if buddy_only { 0 } else { 1 };
        let stripe = t.stripe();
        let max = t.mb_max_to_scan();
        let mut seen = Seen::default();
        let mut best: Option<(u32, Extent)> = None;
        let mut cold = 0;
        'criteria: for cr in first..=3 {
            let (by, class) = match cr {
                0 => (By::Largest, order),
                1 => (By::Average, ceil),
                2 => (By::Free, ceil),
                _ => (By::Free, 0),
            };
            let n = self.groups.count();
            for (from, to) in [(s.goal.0, n), (0, s.goal.0)] {
                let mut next = from;
                while let Some(g) = self.groups.next_by(by, class, next, to) {
                    next = g + 1;
                    if self.is_cold(Group(g)) {
                        if cr < 3 && cold >= COLD_LOADS {
                            continue;
                        }
                        cold += 1;
                        self.groups.prefetch_bitmaps(Group(g));
                    }
                    let Some(e) = self.groups.enter(Group(g), true)? else { continue };
                    let Some(buddy) = &e.state.buddy else { continue };
                    self.count(&stats.groups_scanned, 1);
                    let want = Want {
                        len: s.want,
                        cr,
                        from: if g == s.goal.0 { s.goal.1 } else { 0 },
                        stripe: if stripe > 1 && s.want.is_multiple_of(stripe) {
                            stripe
                        } else {
                            0
                        },
                        group_first: self.geo.group_first_block(Group(g)).0,
                        min_to_scan: t.mb_min_to_scan(),
                        max_to_scan: max,
                    };
                    let before = seen.found;
                    let hit = scan(buddy, &want, &mut seen);
                    self.count(&stats.extents_scanned, (seen.found - before).into());
                    if let Some(x) = hit {
                        let hits =
                            [&stats.cr0_hits, &stats.cr1_hits, &stats.cr2_hits, &stats.cr3_hits];
                        self.count(hits[cr as usize], 1);
                        return self.take(h, e, x, s.need).map(Found::Taken);
                    }
                    if seen.best.len > best.map_or(0, |b| b.1.len) {
                        best = Some((g, seen.best));
                    }
                    if cr > 0 && seen.found > max {
                        self.count(&stats.breaks, 1);
                        break 'criteria;
                    }
                }
            }
        }
        let Some((g, x)) = best else { return Ok(Found::Nothing) };
        let Some(e) = self.groups.enter(Group(g), true)? else { return Ok(Found::Lost) };
        let Some(buddy) = &e.state.buddy else { return Ok(Found::Lost) };
        let x = buddy.free_at(x.start, s.want);
        if x.len == 0 {
            return Ok(Found::Lost);
        }
        self.count(&stats.cr3_hits, 1);
        self.take(h, e, x, s.need).map(Found::Taken)
    }

    /// Whether looking at the group means reading its bitmap.
    fn is_cold(&self, g: Group) -> bool {
        self.groups.cell(g).is_ok_and(|c| {
            let st = c.state.lock();
            let uninit = crate::ondisk::GroupFlags::BLOCK_UNINIT;
            st.buddy.is_none() && !st.desc.flags.contains(uninit)
        })
    }

    /// Whatever is free, wherever: after the careful search was beaten too often.
    fn first_free(&self, h: &mut Handle, s: &Search) -> Result<Option<Taken>> {
        let mut next = 0;
        while let Some(g) = self.groups.next_by(By::Free, 0, next, self.groups.count()) {
            next = g + 1;
            let Some(e) = self.groups.enter(Group(g), true)? else { continue };
            let run = e.state.buddy.as_ref().and_then(|b| b.next_free(0));
            if let Some(x) = run {
                let x = Extent { len: x.len.min(s.need), ..x };
                return self.take(h, e, x, s.need).map(Some);
            }
        }
        Ok(None)
    }

    /// Takes a free run: the first `need` blocks are used, the rest is held.
    fn take(&self, h: &mut Handle, mut e: Entered<'_>, x: Extent, need: u32) -> Result<Taken> {
        let g = e.g;
        let used = Extent { start: x.start, len: x.len.min(need) };
        let rest = Extent { start: used.end(), len: x.len - used.len };
        let marked = e.state.buddy.as_mut().map(|b| b.mark_used(x));
        if marked != Some(Ok(())) {
            let c = Corrupt::new("a free run is not free in the buddy").group(g);
            return Err(c.value(x.start.into()).into());
        }
        if let Err(err) = self.groups.use_blocks(h, &mut e, used) {
            // Nothing was written: the buddy gets them back (unless the group is out of use).
            if let Some(b) = e.state.buddy.as_mut() {
                let _ = b.mark_free(x);
            }
            return Err(err);
        }
        let mut pa = 0;
        if rest.len > 0 {
            pa = self.preallocs.next_id();
            e.state.held_blocks += rest.len;
            e.state.withheld().held.insert(pa, smallvec::smallvec![rest]);
            self.count(&self.groups.stats.preallocated, rest.len.into());
        }
        self.groups.refresh(g, &mut e.state);
        Ok(Taken { group: g, all: x, used: used.len, pa })
    }
}

/// How a search by criteria ended.
enum Found {
    Taken(Taken),
    /// Somebody else took the best.
    Lost,
    Nothing,
}
