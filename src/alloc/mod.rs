//! Which blocks and inodes are free, and which to take.
//!
//! Called by `map` (data and map blocks), `inode` and `xattr` (their blocks, inode numbers),
//! `writeback` and `dio` (reservations), `fs` (statfs, trim, unmount). Everything changes inside the
//! caller's journal handle.
//!
//! - [`bitmap`], [`buddy`], [`scan`], [`normalize`], [`index`], [`zone`]: pure, tested without a disk.
//! - `groups`: the groups, their locks, descriptors and bitmaps; `mballoc`: the search; `free`: frees
//!   and what a commit releases; `inodes`: the inode allocator; [`counters`]: admission.
//!
//! Invariants:
//! - A block is handed out only if it is free in the bitmap, freed by no uncommitted transaction, held
//!   by no preallocation, and outside the system zone. The buddy is always bitmap + pending frees +
//!   preallocations, also after it was evicted and built again.
//! - Bitmap, its checksum and the descriptor's counts change under the group's lock in one handle.
//! - No I/O under a group's lock, and at most one group's lock at a time.
//! - avail = free - reserved is exact: who was given a reservation finds blocks, after a commit at the
//!   latest ([`Allocator::reclaim`]).
//! - A group whose bitmap contradicts itself is reported and left out; the rest goes on.
//!
//! Lock ranks: an inode's preallocations and locality groups between 6 and 7; a group 7; the list of
//! pending transactions and the eviction list after it.
//!
//! `bigalloc`: only what statfs needs is in clusters; such a file system is mounted read-only, and its
//! bitmaps are never used.

pub mod bitmap;
pub mod buddy;
pub mod counters;
mod free;
mod groups;
pub mod index;
pub mod inodes;
mod mballoc;
pub mod normalize;
mod orlov;
mod prealloc;
mod report;
pub mod scan;
mod statfs;
mod trim;
pub mod tunables;
pub mod zone;

pub use counters::{Reservation, Right};
pub use free::FreeFlags;
pub use report::ErrorSink;
pub use statfs::{FsCounts, GroupInfo};
pub use tunables::{Stats, TunableValues, Tunables};

#[cfg(test)]
mod tests;

use crate::cache::BufferCache;
use crate::error::{Corrupt, Error, Result};
use crate::journal::Journal;
use crate::ondisk::{Geometry, GroupDesc, Incompat, Superblock};
use crate::types::{Block, Group, Ino, LBlock};
use counters::Counters;
use groups::Groups;
use inodes::InodeState;
use parking_lot::Mutex;
use prealloc::Preallocs;
use report::Reporter;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// Consecutive blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Run {
    /// The first.
    pub start: Block,
    /// How many.
    pub len: u32,
}

/// What the blocks are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file's data: normalised and preallocated.
    Data,
    /// Map blocks, xattr blocks: exactly what is asked for.
    Metadata,
    /// Directory and symlink blocks: exactly what is asked for.
    Directory,
}

/// A request for blocks.
#[derive(Debug)]
pub struct Request<'a> {
    /// The file they are for.
    pub ino: Ino,
    /// The file block that the first is for.
    pub lblk: LBlock,
    /// How many are wanted; at least 1. Fewer may come.
    pub len: u32,
    /// Where the first would best be. `None`: near the inode.
    pub goal: Option<Block>,
    /// Size in bytes that the file has or is about to have.
    pub size_hint: u64,
    /// What they are for.
    pub kind: Kind,
    /// Space reserved for them: data from its data part, metadata from its map part.
    pub reservation: Option<&'a mut Reservation>,
    /// May use the blocks reserved for root.
    pub root_ok: bool,
    /// May use the reserved pool: map blocks that write-out needs.
    pub use_pool: bool,
    /// May hold more than asked for, for the file's next blocks. Off once it is closed.
    pub prealloc: bool,
    /// Comes from delayed allocation: the goal in a fresh group does not depend on the caller.
    pub delalloc: bool,
}

impl<'a> Request<'a> {
    /// For a regular file's data.
    pub fn data(ino: Ino, lblk: LBlock, len: u32) -> Request<'a> {
        Request {
            ino,
            lblk,
            len,
            goal: None,
            size_hint: 0,
            kind: Kind::Data,
            reservation: None,
            root_ok: false,
            use_pool: false,
            prealloc: true,
            delalloc: false,
        }
    }
    /// For one block of metadata.
    pub fn metadata(ino: Ino, goal: Option<Block>) -> Request<'a> {
        let r = Request::data(ino, LBlock(0), 1);
        Request { goal, kind: Kind::Metadata, prealloc: false, ..r }
    }
}

/// Journal credits that the calls here need, in distinct blocks.
pub mod credits {
    use crate::ondisk::Geometry;

    /// [`super::Allocator::alloc`]: bitmap and descriptor.
    pub const ALLOC: u32 = 2;
    /// [`super::Allocator::alloc_inode`]: both bitmaps, descriptor, a fresh inode-table block.
    pub const ALLOC_INODE: u32 = 4;
    /// [`super::Allocator::free_inode`]: bitmap and descriptor.
    pub const FREE_INODE: u32 = 2;

    /// [`super::Allocator::free`] of one run of `len` blocks: bitmap and descriptor of each group.
    /// Revokes of metadata blocks are not counted: their share is the journal's own.
    pub fn free(geo: &Geometry, len: u32) -> u32 {
        2 * (len.div_ceil(geo.blocks_per_group.max(1)) + 1)
    }
}

/// The allocator of one mounted file system.
pub struct Allocator {
    geo: Arc<Geometry>,
    cache: Arc<BufferCache>,
    tunables: Arc<Tunables>,
    groups: Groups,
    counters: Arc<Counters>,
    preallocs: Preallocs,
    inodes: InodeState,
    /// Groups with pending frees, by the transaction that freed, oldest first. Leaf lock.
    pending: Mutex<VecDeque<free::PendingFrees>>,
    /// Where stream allocation goes on: group numbers, by inode.
    stream_goals: Box<[AtomicU32]>,
    report: Arc<Reporter>,
    /// Metadata overhead in blocks, without the journal.
    overhead: u64,
}

impl Allocator {
    /// Reads and checks the group descriptors; bitmaps are read on first use. The allocator learns of
    /// `journal`'s commits from here on.
    ///
    /// # Errors
    /// `Corrupt` if a descriptor is or two groups' tables overlap; `Io`.
    pub fn open(
        geo: Arc<Geometry>,
        cache: Arc<BufferCache>,
        journal: &Arc<Journal>,
        sb: &Superblock,
        tunables: Tunables,
    ) -> Result<Arc<Allocator>> {
        let tunables = Arc::new(tunables);
        let report = Arc::new(Reporter::default());
        let (groups, totals) = Groups::open(
            Arc::clone(&geo),
            Arc::clone(&cache),
            Arc::clone(&tunables),
            Arc::clone(&report),
        )?;
        let total_clusters = geo.blocks_count >> geo.cluster_bits;
        let counters = Arc::new(Counters::new(
            totals.free_clusters,
            sb.r_blocks_count() >> geo.cluster_bits,
            match geo.has_incompat(Incompat::EXTENTS) {
                true => counters::default_pool(total_clusters),
                false => 0,
            },
        ));
        report.set_counters(Arc::clone(&counters));
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        let streams = cpus.min(geo.groups_count.div_ceil(4) as usize).max(1);
        let alloc = Arc::new(Allocator {
            overhead: u64::from(geo.first_data_block) + groups.zone.blocks(),
            inodes: InodeState::new(totals.free_inodes, totals.used_dirs),
            geo,
            cache,
            tunables,
            groups,
            counters,
            preallocs: Preallocs::new(cpus),
            pending: Mutex::default(),
            stream_goals: (0..streams).map(|_| AtomicU32::new(u32::MAX)).collect(),
            report,
        });
        journal.add_listener(Arc::clone(&alloc) as Arc<_>);
        Ok(alloc)
    }

    /// Where contradictions found along the way are told, instead of the log. Once.
    pub fn set_error_sink(&self, sink: ErrorSink) {
        self.report.set_sink(sink);
    }

    /// The tunables, live.
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// What the block allocator did while `mb_stats` was on.
    pub fn stats(&self) -> &Stats {
        &self.groups.stats
    }

    /// The counters of free and reserved clusters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Reserves space for `data` blocks and `meta` map blocks; nothing is chosen yet.
    ///
    /// # Errors
    /// `NoSpace`: the caller frees what it can ([`Allocator::reclaim`], write-out) before it says so.
    pub fn reserve(&self, data: u64, meta: u64, root_ok: bool) -> Result<Reservation> {
        let right = if root_ok { Right::Root } else { Right::Normal };
        self.counters.reserve(data, meta, right).ok_or(Error::NoSpace)
    }

    /// Protects blocks that belong to the file system itself beyond what the descriptors tell (the
    /// journal's): freeing them is refused. Call at mount.
    ///
    /// # Errors
    /// `Corrupt` if they overlap other metadata or lie outside.
    pub fn protect(&self, runs: &[Run]) -> Result<()> {
        let mut all: Vec<(u64, u64)> = Vec::with_capacity(runs.len());
        for r in runs {
            if !self.geo.is_valid_block(r.start, r.len.into()) {
                let c = Corrupt::new("journal block outside the file system");
                return Err(c.block(r.start).into());
            }
            let end = r.start.0 + u64::from(r.len);
            if let Some(b) = self.groups.zone.overlap(r.start.0, end) {
                return Err(Corrupt::new("journal overlaps other metadata").block(b).into());
            }
            all.push((r.start.0, end));
        }
        let mut extra = self.groups.extra_zone.write();
        all.extend(extra.within(0, u64::MAX));
        *extra = zone::Zone::new(all)?;
        Ok(())
    }

    /// A group's descriptor as it is now.
    ///
    /// # Errors
    /// `Corrupt` if there is no such group.
    pub fn group_desc(&self, g: Group) -> Result<GroupDesc> {
        Ok(self.groups.cell(g)?.state.lock().desc.clone())
    }

    /// First block of a group's inode table (does not change, needs no lock).
    ///
    /// # Errors
    /// `Corrupt` if there is no such group.
    pub fn inode_table(&self, g: Group) -> Result<Block> {
        Ok(self.groups.cell(g)?.inode_table)
    }
}
