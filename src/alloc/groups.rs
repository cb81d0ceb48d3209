//! The table of block groups: one small lock each, the descriptor, what is known
//! of the free space, and the buddy while it is cached.
//!
//! A bitmap, its checksum in the descriptor and the counts change together under
//! the group's lock in one handle. Buffers are read before the lock is taken.

use super::bitmap;
use super::buddy::{Buddy, Extent};
use super::index::OrderIndex;
use super::report::Reporter;
use super::tunables::{Stats, Tunables};
use super::zone::{Tables, Zone};
use crate::cache::{Buffer, BufferCache};
use crate::error::{Corrupt, Error, Result};
use crate::journal::Handle;
use crate::ondisk::group_desc::block_bitmap_csum;
use crate::ondisk::{Geometry, GroupDesc, GroupFlags, Seal};
use crate::types::{Block, Group, Tid};
use parking_lot::{Mutex, MutexGuard, RwLock};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// Blocks of the descriptor table read with one request.
const DESC_READ_AHEAD: u32 = 256;
/// Bitmaps read with one request when a search comes to groups not seen before.
const BITMAP_READ_AHEAD: usize = 32;

/// A preallocation's name, so that its blocks can be found in the group that has them.
pub(super) type PaId = u64;

/// Blocks that are free on disk and not in the buddy.
#[derive(Default)]
pub(super) struct Withheld {
    /// Freed, by transactions that have not committed.
    pub pending: Vec<(Tid, Extent)>,
    /// Held by preallocations (and by trim, while it discards them).
    pub held: HashMap<PaId, SmallVec<[Extent; 2]>>,
}

/// What a group's lock guards.
pub(super) struct GroupState {
    pub desc: GroupDesc,
    /// The block bitmap (or the descriptor) is wrong: nothing is allocated or freed here.
    pub bad_blocks: bool,
    /// The inode bitmap is wrong.
    pub bad_inodes: bool,
    /// The buddy was used since the eviction hand passed.
    referenced: bool,
    /// Its free space was discarded and nothing was freed since.
    pub trimmed: bool,
    /// What the indexes say: 1 + class; 0 for none.
    class: [u8; 3],
    /// Blocks of `withheld.pending`.
    pub pending_blocks: u32,
    /// Blocks of `withheld.held`.
    pub held_blocks: u32,
    pub withheld: Option<Box<Withheld>>,
    pub buddy: Option<Box<Buddy>>,
}

impl GroupState {
    /// Blocks that the buddy has, or would have.
    pub fn allocatable(&self) -> u32 {
        if self.bad_blocks {
            return 0;
        }
        match &self.buddy {
            Some(b) => b.free(),
            None => {
                let off = self.pending_blocks.saturating_add(self.held_blocks);
                self.desc.free_clusters.saturating_sub(off)
            }
        }
    }
    pub fn withheld(&mut self) -> &mut Withheld {
        self.withheld.get_or_insert_default()
    }
    fn drop_empty(&mut self) {
        if self.withheld.as_ref().is_some_and(|w| w.pending.is_empty() && w.held.is_empty()) {
            self.withheld = None;
        }
    }
}

/// One group.
pub(super) struct GroupCell {
    pub block_bitmap: Block,
    pub inode_bitmap: Block,
    pub inode_table: Block,
    /// Free inodes, for a look without the lock.
    pub free_inodes: AtomicU32,
    /// Rank 7.
    pub state: Mutex<GroupState>,
}

/// Sums over a flex group (over one group without `flex_bg`), for Orlov.
#[derive(Default)]
pub(super) struct FlexStats {
    pub free_inodes: AtomicI64,
    pub free_clusters: AtomicI64,
    pub used_dirs: AtomicI64,
}

/// Which value an index holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// Order of the largest free chunk.
    Largest = 0,
    /// log2 of the average run of free blocks.
    Average = 1,
    /// log2 of the free blocks.
    Free = 2,
}

/// See the module.
pub(super) struct Groups {
    pub geo: Arc<Geometry>,
    pub cache: Arc<BufferCache>,
    pub tunables: Arc<Tunables>,
    pub stats: Arc<Stats>,
    pub report: Arc<Reporter>,
    cells: Box<[GroupCell]>,
    flex: Box<[FlexStats]>,
    index: [OrderIndex; 3],
    /// Groups that have a free inode.
    pub inode_index: OrderIndex,
    pub max_order: u32,
    pub zone: Zone,
    /// The journal, and whatever else is protected after open. Leaf lock.
    pub extra_zone: RwLock<Zone>,
    /// Groups with a buddy, in the eviction hand's order. Leaf lock; under it groups are only tried.
    lru: Mutex<VecDeque<u32>>,
}

/// A group that is locked, with what its change needs.
pub(super) struct Entered<'a> {
    pub g: Group,
    pub state: MutexGuard<'a, GroupState>,
    desc_buf: Arc<Buffer>,
    /// `None` while the group is BLOCK_UNINIT.
    bitmap: Option<Arc<Buffer>>,
}

/// Free clusters, free inodes and directories, summed at open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub free_clusters: u64,
    pub free_inodes: u64,
    pub used_dirs: u64,
}

impl Groups {
    /// Reads and checks every descriptor.
    pub fn open(
        geo: Arc<Geometry>,
        cache: Arc<BufferCache>,
        tunables: Arc<Tunables>,
        report: Arc<Reporter>,
    ) -> Result<(Groups, Totals)> {
        let n = geo.groups_count;
        let mut cells = Vec::with_capacity(n as usize);
        let mut totals = Totals::default();
        let max_order = (geo.block_size.log2() + 1).min(geo.clusters_per_group.ilog2());
        let index = [(); 3].map(|()| OrderIndex::new(n, max_order + 3));
        let inode_index = OrderIndex::new(n, 1);
        let flex: Box<[FlexStats]> =
            (0..n.div_ceil(geo.flex_bg_size)).map(|_| FlexStats::default()).collect();
        let mut ahead = 0;
        let mut buf: Option<Arc<Buffer>> = None;
        for g in (0..n).map(Group) {
            let nr = g.0 / geo.descs_per_block();
            if g.0 % geo.descs_per_block() == 0 {
                if nr >= ahead {
                    ahead = prefetch_descs(&geo, &cache, nr);
                }
                buf = Some(cache.read(geo.desc_block(nr), &Seal::None)?);
            }
            let Some(buf) = &buf else { continue };
            let desc = read_desc(&geo, &cache, g, buf)?;
            totals.free_clusters += u64::from(desc.free_clusters);
            totals.free_inodes += u64::from(desc.free_inodes);
            totals.used_dirs += u64::from(desc.used_dirs);
            if let Some(f) = flex.get((g.0 / geo.flex_bg_size) as usize) {
                f.free_clusters.fetch_add(desc.free_clusters.into(), Relaxed);
                f.free_inodes.fetch_add(desc.free_inodes.into(), Relaxed);
                f.used_dirs.fetch_add(desc.used_dirs.into(), Relaxed);
            }
            if desc.free_inodes > 0 {
                inode_index.change(g.0, None, Some(0));
            }
            cells.push(GroupCell {
                block_bitmap: desc.block_bitmap,
                inode_bitmap: desc.inode_bitmap,
                inode_table: desc.inode_table,
                free_inodes: AtomicU32::new(desc.free_inodes),
                state: Mutex::new(GroupState {
                    desc,
                    bad_blocks: false,
                    bad_inodes: false,
                    referenced: false,
                    trimmed: false,
                    class: [0; 3],
                    pending_blocks: 0,
                    held_blocks: 0,
                    withheld: None,
                    buddy: None,
                }),
            });
        }
        let tables = cells.iter().map(|c| Tables {
            block_bitmap: c.block_bitmap,
            inode_bitmap: c.inode_bitmap,
            inode_table: c.inode_table,
        });
        let zone = Zone::system(&geo, tables)?;
        let groups = Groups {
            geo,
            cache,
            tunables,
            stats: Arc::default(),
            report,
            cells: cells.into_boxed_slice(),
            flex,
            index,
            inode_index,
            max_order,
            zone,
            extra_zone: RwLock::default(),
            lru: Mutex::default(),
        };
        for g in (0..n).map(Group) {
            groups.refresh(g, &mut groups.cell(g)?.state.lock());
        }
        Ok((groups, totals))
    }

    /// Number of groups.
    pub fn count(&self) -> u32 {
        self.cells.len() as u32
    }

    /// The group, if there is one of that number.
    pub fn cell(&self, g: Group) -> Result<&GroupCell> {
        let cell = self.cells.get(g.0 as usize);
        cell.ok_or_else(|| Corrupt::new("group number").group(g).into())
    }

    /// The sums of the flex group that `g` is in.
    pub fn flex_of(&self, g: Group) -> &FlexStats {
        &self.flex[(g.0 / self.geo.flex_bg_size) as usize % self.flex.len()]
    }

    /// The sums of each flex group.
    pub fn flex(&self) -> &[FlexStats] {
        &self.flex
    }

    /// The next group in `from..to` whose value may be at least `2^class`.
    pub fn next_by(&self, by: By, class: u32, from: u32, to: u32) -> Option<u32> {
        self.index[by as usize].next(class, from, to)
    }

    /// Locks a group with its buffers at hand, and with its buddy if `buddy`.
    /// `None` if the group is excluded because it is corrupt (which is reported once).
    pub fn enter(&self, g: Group, buddy: bool) -> Result<Option<Entered<'_>>> {
        if self.geo.cluster_bits != 0 {
            return Err(Error::NotSupported);
        }
        let cell = self.cell(g)?;
        let (block, offset) = self.geo.desc_location(g);
        let seal = Seal::GroupDesc { group: g, offset: offset as u32 };
        loop {
            let (uninit, cold) = {
                let st = cell.state.lock();
                if st.bad_blocks {
                    return Ok(None);
                }
                (st.desc.flags.contains(GroupFlags::BLOCK_UNINIT), st.buddy.is_none())
            };
            let bufs = self.cache.read(block, &seal).and_then(|d| {
                let b = match uninit {
                    true => None,
                    false => Some(self.cache.read(cell.block_bitmap, &Seal::None)?),
                };
                Ok((d, b))
            });
            let (desc_buf, bitmap) = match bufs {
                Ok(b) => b,
                Err(e) => {
                    self.exclude(g, &mut cell.state.lock(), e);
                    return Ok(None);
                }
            };
            if buddy && cold {
                self.make_room();
            }
            let mut state = cell.state.lock();
            if state.bad_blocks {
                return Ok(None);
            }
            if uninit != state.desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                continue;
            }
            let mut checked = match &bitmap {
                Some(b) => self.verify(g, &state, b),
                None => Ok(()),
            };
            if checked.is_ok() && buddy {
                state.referenced = true;
                if state.buddy.is_none() {
                    checked = self.build(g, &mut state, bitmap.as_deref());
                }
            }
            if let Err(e) = checked {
                self.exclude(g, &mut state, e);
                return Ok(None);
            }
            return Ok(Some(Entered { g, state, desc_buf, bitmap }));
        }
    }

    /// Reads ahead the block bitmaps of `g` and the groups after it that lie in a row.
    pub fn prefetch_bitmaps(&self, g: Group) {
        let Some(cells) = self.cells.get(g.0 as usize..) else { return };
        let Some(first) = cells.first().map(|c| c.block_bitmap) else { return };
        if self.cache.peek(first).is_some() {
            return;
        }
        let in_row = |(i, c): &(usize, &GroupCell)| {
            let there = c.block_bitmap == first.plus(*i as u64);
            there && !c.state.lock().desc.flags.contains(GroupFlags::BLOCK_UNINIT)
        };
        let n = cells.iter().enumerate().take(BITMAP_READ_AHEAD).take_while(in_row).count();
        if n > 1 {
            self.cache.prefetch(first, n as u32);
        }
    }

    /// Checks a bitmap that came from the device, once per buffer.
    fn verify(&self, g: Group, st: &GroupState, buf: &Buffer) -> Result<()> {
        if !buf.is_checked() {
            buf.read(|b| st.desc.verify_block_bitmap(&self.geo, g, b))?;
            buf.set_checked();
        }
        Ok(())
    }

    /// Builds the buddy from bitmap, pending frees and preallocations.
    fn build(&self, g: Group, st: &mut GroupState, bitmap: Option<&Buffer>) -> Result<()> {
        let size = self.geo.clusters_in_group(g);
        let mut buddy = match bitmap {
            Some(b) => b.read(|bytes| Buddy::new(size, self.max_order, bytes)),
            None => Buddy::new(size, self.max_order, &self.initial_bitmap(g)),
        };
        if buddy.free() != st.desc.free_clusters {
            return Err(Corrupt::new("free blocks in bitmap and descriptor differ")
                .group(g)
                .value(buddy.free().into())
                .into());
        }
        let first = self.geo.group_first_block(g).0;
        for (start, end) in self.zone.within(first, first + u64::from(size)) {
            let run = Extent { start: (start - first) as u32, len: (end - start) as u32 };
            if buddy.mask(run) != 0 {
                let c = Corrupt::new("metadata block marked free in the block bitmap");
                return Err(c.group(g).block(Block(start)).into());
            }
        }
        if let Some(w) = &st.withheld {
            let held = w.held.values().flatten();
            for e in w.pending.iter().map(|(_, e)| e).chain(held) {
                buddy.mask(*e);
            }
        }
        if self.tunables.mb_stats() {
            self.stats.buddies_generated.fetch_add(1, Relaxed);
        }
        st.buddy = Some(Box::new(buddy));
        self.lru.lock().push_back(g.0);
        self.refresh(g, st);
        Ok(())
    }

    /// The block bitmap of a group that was never used, padding set.
    fn initial_bitmap(&self, g: Group) -> Vec<u8> {
        let mut map = vec![0u8; self.geo.block_size.bytes()];
        let bits = map.len() as u32 * 8;
        let size = self.geo.clusters_in_group(g);
        let first = self.geo.group_first_block(g).0;
        for (start, end) in self.zone.within(first, first + u64::from(size)) {
            bitmap::fill(&mut map, (start - first) as u32, (end - first) as u32, true);
        }
        bitmap::fill(&mut map, size, bits, true);
        map
    }

    /// Drops buddies until there is room for one more.
    fn make_room(&self) {
        let each = Buddy::bytes(self.geo.clusters_per_group, self.max_order);
        let most = (self.tunables.buddy_cache_bytes() / each).max(8);
        let mut lru = self.lru.lock();
        let mut steps = 16;
        while lru.len() >= most && steps > 0 {
            steps -= 1;
            let Some(g) = lru.pop_front() else { return };
            let Some(cell) = self.cells.get(g as usize) else { continue };
            match cell.state.try_lock() {
                Some(mut st) if !st.referenced => st.buddy = None,
                Some(mut st) => {
                    st.referenced = false;
                    lru.push_back(g);
                }
                None => lru.push_back(g),
            }
        }
    }

    /// Takes a group out of allocation because of `e`, and reports it.
    pub fn exclude(&self, g: Group, st: &mut GroupState, e: Error) {
        if !st.bad_blocks {
            st.bad_blocks = true;
            let free = st.desc.free_clusters;
            self.flex_of(g).free_clusters.fetch_sub(free.into(), Relaxed);
            self.report.lost(free.into());
        }
        // The eviction hand's entry goes when it comes round.
        st.buddy = None;
        self.refresh(g, st);
        self.report.error(e);
    }

    /// Brings the indexes up to date with a group.
    pub fn refresh(&self, g: Group, st: &mut GroupState) {
        let free = st.allocatable();
        let class = |n: u32| n.checked_ilog2().map_or(0, |k| k as u8 + 1);
        let new = match &st.buddy {
            Some(b) if !st.bad_blocks => [
                b.largest_order().map_or(0, |k| k as u8 + 1),
                class(free.checked_div(b.fragments()).unwrap_or(0)),
                class(free),
            ],
            // Not known: the best that the free blocks allow, until somebody looks.
            _ => [class(free).min(self.max_order as u8 + 1), class(free), class(free)],
        };
        for (i, ix) in self.index.iter().enumerate() {
            let (old, new) = (st.class[i], new[i]);
            if old != new {
                ix.change(
                    g.0,
                    old.checked_sub(1).map(u32::from),
                    new.checked_sub(1).map(u32::from),
                );
            }
        }
        st.class = new;
        st.drop_empty();
    }

    /// Marks blocks used in the on-disk bitmap and the descriptor. They must not be in the buddy.
    pub fn use_blocks(&self, h: &mut Handle, e: &mut Entered<'_>, run: Extent) -> Result<()> {
        if e.bitmap.is_none() {
            let init = self.initial_bitmap(e.g);
            let buf = h.create(self.cell(e.g)?.block_bitmap, &Seal::None, |b| {
                b.iter_mut().zip(&init).for_each(|(d, s)| *d = *s);
            })?;
            buf.set_checked();
            e.bitmap = Some(buf);
            e.state.desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        }
        self.change_bitmap(h, e, run, true)
    }

    /// Makes the block bitmap of a BLOCK_UNINIT group, changing nothing else.
    pub fn init_block_bitmap(&self, h: &mut Handle, e: &mut Entered<'_>) -> Result<()> {
        self.use_blocks(h, e, Extent::default())
    }

    /// Marks blocks free in the on-disk bitmap and the descriptor; not in the buddy.
    ///
    /// # Errors
    /// `Corrupt` if one was free already: nothing has changed then, and the group is excluded.
    pub fn release_blocks(&self, h: &mut Handle, e: &mut Entered<'_>, run: Extent) -> Result<()> {
        if e.bitmap.is_none() {
            return self.refuse(e, Corrupt::new("freeing a block of an unused group"), run.start);
        }
        let held = e.state.withheld.as_ref().is_some_and(|w| {
            w.held.values().flatten().any(|x| x.start < run.end() && run.start < x.end())
        });
        if held {
            return self.refuse(e, Corrupt::new("freeing a preallocated block"), run.start);
        }
        self.change_bitmap(h, e, run, false)
    }

    fn refuse(&self, e: &mut Entered<'_>, c: Corrupt, bit: u32) -> Result<()> {
        let block = self.geo.group_first_block(e.g).plus(bit.into());
        let c = c.group(e.g).block(block);
        self.exclude(e.g, &mut e.state, c.clone().into());
        Err(c.into())
    }

    fn change_bitmap(
        &self,
        h: &mut Handle,
        e: &mut Entered<'_>,
        run: Extent,
        to: bool,
    ) -> Result<()> {
        let Some(buf) = e.bitmap.clone() else { return Ok(()) };
        let geo = &self.geo;
        let size = geo.clusters_in_group(e.g);
        let changed = if run.end() > size {
            Err(size)
        } else {
            h.modify(&buf, &Seal::None, |b| {
                bitmap::flip(b, run.start, run.len, to).map(|()| block_bitmap_csum(geo, b))
            })?
        };
        let csum = match changed {
            Ok(csum) => csum,
            Err(bit) if to => {
                return self.refuse(e, Corrupt::new("allocating a block in use"), bit);
            }
            Err(bit) => return self.refuse(e, Corrupt::new("freeing a free block"), bit),
        };
        let st = &mut *e.state;
        let before = st.desc.free_clusters;
        let after = if to {
            before.checked_sub(run.len)
        } else {
            before.checked_add(run.len).filter(|n| *n <= size)
        };
        let Some(after) = after else {
            let c = Corrupt::new("free blocks count").value(before.into());
            return self.refuse(e, c, run.start);
        };
        st.desc.free_clusters = after;
        st.desc.block_bitmap_csum = csum;
        let delta = i64::from(after) - i64::from(before);
        self.flex_of(e.g).free_clusters.fetch_add(delta, Relaxed);
        self.write_desc(h, e.g, &e.desc_buf, &e.state.desc)
    }

    /// Writes a group's descriptor. Under the group's lock.
    pub fn write_desc(
        &self,
        h: &mut Handle,
        g: Group,
        buf: &Arc<Buffer>,
        desc: &GroupDesc,
    ) -> Result<()> {
        let (_, offset) = self.geo.desc_location(g);
        let seal = Seal::GroupDesc { group: g, offset: offset as u32 };
        h.modify(buf, &seal, |b| match b.get_mut(offset..) {
            Some(slot) => desc.write(&self.geo, slot),
            None => Err(Corrupt::new("group descriptor offset").group(g).into()),
        })?
    }

    /// Whether a block is marked used on disk; so counts what a corrupt group holds.
    pub fn bit_is_used(&self, g: Group, bit: u32) -> Result<bool> {
        let Some(e) = self.enter(g, false)? else { return Ok(true) };
        Ok(match &e.bitmap {
            Some(b) => b.read(|b| bitmap::test(b, bit)),
            None => bitmap::test(&self.initial_bitmap(g), bit),
        })
    }

    /// The descriptor's buffer, its checksum verified.
    pub fn desc_buf(&self, g: Group) -> Result<Arc<Buffer>> {
        let (block, offset) = self.geo.desc_location(g);
        self.cache.read(block, &Seal::GroupDesc { group: g, offset: offset as u32 })
    }
}

impl Entered<'_> {
    /// The first free blocks in `from..end` of the bitmap on disk, as start and end.
    pub fn next_free(&self, from: u32, end: u32) -> (u32, u32) {
        let Some(b) = &self.bitmap else { return (end, end) };
        b.read(|b| {
            let start = bitmap::find(b, from, end, false);
            (start, bitmap::find(b, start, end, true))
        })
    }

    /// The descriptor's buffer.
    pub fn desc_buf(&self) -> &Arc<Buffer> {
        &self.desc_buf
    }
}

/// Reads ahead the descriptor blocks from `nr` that lie one after the other; the first not read.
fn prefetch_descs(geo: &Geometry, cache: &BufferCache, nr: u32) -> u32 {
    let first = geo.desc_block(nr);
    let mut n = 1;
    while n < DESC_READ_AHEAD
        && nr + n < geo.desc_blocks()
        && geo.desc_block(nr + n) == first.plus(n.into())
    {
        n += 1;
    }
    cache.prefetch(first, n);
    nr + n
}

/// One checked descriptor from the block that holds it.
fn read_desc(geo: &Geometry, cache: &BufferCache, g: Group, buf: &Buffer) -> Result<GroupDesc> {
    let (block, offset) = geo.desc_location(g);
    buf.read(|b| {
        let seal = Seal::GroupDesc { group: g, offset: offset as u32 };
        cache.sealer().verify(&seal, block, b)?;
        GroupDesc::parse(geo, g, b.get(offset..).unwrap_or_default())
    })
}
