//! Which block of the device holds which block of a file.
//!
//! [`FileMap`] is one inode's map in memory: the root from `i_block` with the
//! extent tree below it, or the direct and indirect pointers of ext2 and ext3. The
//! inode owns it under its map lock (rank 6); the rooms above look up, allocate,
//! convert and remove through it. Blocks below the root live in the buffer cache
//! and change only through a journal handle. After a change the caller stores the
//! inode in the same handle: the root and `i_blocks` are in its slot.
//!
//! Invariants:
//! - Nothing from the disk is followed before it was checked: the node's checksum
//!   (once per buffer), its header and the entries used; all of its entries before it is
//!   changed. Depth decreases at every step, so no image makes a walk endless.
//! - A call that fails for want of space has changed nothing.
//! - Space is asked for when blocks are mapped: a range that was entered in flight (or
//!   isolated by [`FileMap::split_at`]) stays an extent of its own until it is converted,
//!   and the conversion allocates nothing.
//! - [`FileMap::remove`] and [`FileMap::shift`] go in steps, each of few credits; after each step the map
//!   is whole, and the operation can be taken up again in another transaction.
//! - What a lookup remembers ([`status`]) is forgotten at every change.

mod extents;
mod indirect;
mod node;
mod ranges;
mod status;
mod tx;

#[cfg(test)]
mod tests;

pub use crate::alloc::{Kind, Reservation};
pub use tx::AllocHow;

use crate::alloc::Allocator;
use crate::cache::BufferCache;
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::ondisk::extent::Extent;
use crate::ondisk::{FileKind, Geometry, Incompat, InodeFlags, InodeRecord, Seal, Sealer};
use crate::types::{Block, Ino, LBlock};
use extents::ExtentTree;
use indirect::IndirectMap;
use parking_lot::RwLock;
use status::StatusCache;
use tx::{Owner, Tx};

/// What a map is read with.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    /// Facts of the file system.
    pub geo: &'a Geometry,
    /// Metadata blocks.
    pub cache: &'a BufferCache,
    /// Who knows the blocks that belong to the file system itself, which no file may map; `None`
    /// before there is an allocator.
    pub guard: Option<&'a Allocator>,
}

/// What a map is changed with; it can be read with it too.
#[derive(Clone, Copy)]
pub struct MapCtx<'a> {
    look: Look<'a>,
    /// Blocks.
    pub alloc: &'a Allocator,
}

impl<'a> MapCtx<'a> {
    /// Of one file system.
    pub fn new(geo: &'a Geometry, cache: &'a BufferCache, alloc: &'a Allocator) -> MapCtx<'a> {
        MapCtx { look: Look { geo, cache, guard: Some(alloc) }, alloc }
    }
}

impl<'a> std::ops::Deref for MapCtx<'a> {
    type Target = Look<'a>;
    fn deref(&self) -> &Look<'a> {
        &self.look
    }
}

/// What a range of a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No blocks: reads as zeros.
    Hole,
    /// Blocks that were never written: reads as zeros.
    Unwritten,
    /// Blocks with data.
    Written,
}

/// A range of a file in one state, and in one piece on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First block of the file.
    pub lblk: LBlock,
    /// Number of blocks, at least 1.
    pub len: u32,
    /// First block on the device; of no meaning for a hole.
    pub pblk: Block,
    /// What the range is.
    pub state: State,
}

impl Mapping {
    /// As an extent; of a hole it makes no sense.
    pub fn as_extent(&self) -> Extent {
        let unwritten = self.state == State::Unwritten;
        Extent { lblock: self.lblk, len: self.len, block: self.pblk, unwritten }
    }

    /// One past the last block of the file.
    pub fn end(&self) -> u64 {
        u64::from(self.lblk.0) + u64::from(self.len)
    }
}

/// State in which [`FileMap::allocate`] enters blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enter {
    /// As data: the caller writes it before, or has the commit wait for it.
    Written,
    /// As unwritten, to stay so (`fallocate`).
    Unwritten,
    /// As unwritten, and about to be written and then converted.
    InFlight,
}

/// How far a restartable operation came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Progress {
    /// All of it is done.
    Done,
    /// The handle is used up: store the inode, let go of the map, restart the handle, call again.
    More,
}

/// A move of everything from some block on, and how far it came: see [`FileMap::shift`].
#[derive(Clone, Debug)]
pub struct Shift {
    from: u32,
    by: u32,
    right: bool,
    /// Blocks before (right: from) here are where they belong; `None` before the first step.
    cursor: Option<u64>,
}

impl Shift {
    /// Everything from `from` on moves down by `by` blocks, into a hole (`FALLOC_FL_COLLAPSE_RANGE`).
    pub fn left(from: LBlock, by: u32) -> Shift {
        Shift { from: from.0, by, right: false, cursor: None }
    }
    /// Everything from `from` on moves up by `by` blocks, leaving a hole (`FALLOC_FL_INSERT_RANGE`).
    pub fn right(from: LBlock, by: u32) -> Shift {
        Shift { from: from.0, by, right: true, cursor: None }
    }
}

/// The largest logical block of a file is one less (so that a count of blocks fits 32 bits).
pub const MAX_LBLK: u32 = u32::MAX;

enum Form {
    Extents(ExtentTree),
    Indirect(IndirectMap),
}

/// One file's map: see the module.
pub struct FileMap {
    owner: Owner,
    form: Form,
    /// Leaf lock.
    status: RwLock<StatusCache>,
}

impl FileMap {
    /// The map in an inode's record. Only for inodes that map blocks: not for devices, fast symlinks
    /// or inline data.
    ///
    /// # Errors
    /// `Corrupt` if the root of the extent tree is not one.
    pub fn from_inode(geo: &Geometry, ino: Ino, rec: &InodeRecord) -> Result<FileMap> {
        let seed = Sealer::new(geo).inode_seed(ino, rec.generation);
        let owner = Owner {
            ino,
            seal: Seal::ExtentBlock { seed },
            journalled: rec.kind() != Some(FileKind::Regular)
                || rec.flags.intersects(InodeFlags::JOURNAL_DATA | InodeFlags::EA_INODE),
            blocks512: rec.blocks,
            keep_data: false,
        };
        let form = if rec.flags.contains(InodeFlags::EXTENTS) {
            Form::Extents(ExtentTree::open(geo, &owner, rec.i_block)?)
        } else {
            Form::Indirect(IndirectMap::new(rec.i_block))
        };
        Ok(FileMap { owner, form, status: RwLock::new(StatusCache::new()) })
    }

    /// Gives a new inode an empty map: of extents where the file system has them.
    pub fn init_block(geo: &Geometry, rec: &mut InodeRecord) {
        rec.i_block = [0; 60];
        let extents = geo.has_incompat(Incompat::EXTENTS);
        rec.flags.set(InodeFlags::EXTENTS, extents);
        if extents {
            node::init(&mut rec.i_block, 0, &[]);
        }
    }

    /// `i_block`, as it belongs in the inode's slot.
    pub fn i_block(&self) -> &[u8; 60] {
        match &self.form {
            Form::Extents(t) => t.root(),
            Form::Indirect(m) => m.root(),
        }
    }

    /// `i_blocks` in units of 512 bytes: data, the map itself, and what was added.
    pub fn blocks512(&self) -> u64 {
        self.owner.blocks512
    }

    /// From here on data blocks that leave the map are not freed: a replay settles them all at its end.
    pub fn keep_data(&mut self) {
        self.owner.keep_data = true;
    }

    /// Enters an extent whose blocks are marked as used already, where there is a hole. Credits:
    /// [`FileMap::credits_for_alloc`].
    ///
    /// # Errors
    /// `Invalid` if a block is mapped, or on an indirect map; `NoSpace`, `Corrupt`, `Io`.
    pub fn attach(&mut self, ctx: &MapCtx<'_>, h: &mut Handle, e: Extent) -> Result<()> {
        self.change(ctx, h, |form, tx| match form {
            Form::Extents(t) => t.attach(tx, e),
            Form::Indirect(_) => Err(Error::NotSupported),
        })
    }

    /// Sets [`FileMap::blocks512`].
    pub fn set_blocks512(&mut self, n: u64) {
        self.owner.blocks512 = n;
    }

    /// Counts blocks that the map does not map (attributes), in units of 512 bytes.
    pub fn add_blocks512(&mut self, delta: i64) {
        self.owner.blocks512 = self.owner.blocks512.saturating_add_signed(delta);
    }

    /// Whether data blocks freed from now on are revoked: `data=journal`, or `chattr +j`.
    pub fn set_journalled(&mut self, on: bool) {
        self.owner.journalled = on;
    }

    /// Whether it is an extent tree; else it cannot hold unwritten blocks.
    pub fn is_extents(&self) -> bool {
        matches!(self.form, Form::Extents(_))
    }

    /// Whether the root maps nothing at all.
    pub fn is_vacant(&self) -> bool {
        let root = self.i_block();
        match &self.form {
            // The count of entries in the header.
            Form::Extents(_) => root[2..4] == [0, 0],
            Form::Indirect(_) => root.iter().all(|b| *b == 0),
        }
    }

    /// Levels below the root: of the extent tree, or 3 for an indirect map.
    pub fn depth(&self) -> u16 {
        match &self.form {
            Form::Extents(t) => t.depth(),
            Form::Indirect(_) => 3,
        }
    }

    /// What the file has from `lblk` on: one range, at most `max_len` blocks of it. For holes this may
    /// be less than all of the hole. No allocation; no I/O if the blocks of the map are cached.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn lookup(&self, ctx: &Look<'_>, lblk: LBlock, max_len: u32) -> Result<Mapping> {
        let max_len = max_len.max(1);
        if let Some(m) = self.status.read().get(lblk.0, max_len) {
            return Ok(m);
        }
        let whole = match &self.form {
            Form::Extents(t) => t.lookup(ctx, &self.owner, lblk.0)?,
            Form::Indirect(m) => m.lookup(ctx, &self.owner, lblk.0, u32::MAX)?,
        };
        if whole.state != State::Hole {
            self.owner.check_blocks(ctx, whole.pblk, whole.len)?;
        }
        if let Some(mut s) = self.status.try_write() {
            s.put(whole.lblk.0, whole.end(), whole.pblk.0, whole.state);
        }
        Ok(trim(whole, lblk.0, max_len))
    }

    /// How many blocks of the map are missing for data blocks anywhere in `first..=last`, and the part of
    /// the map that the last of them belong to; not counted is part `but`. An extent tree has no parts,
    /// and its blocks are not counted.
    ///
    /// # Errors
    /// `Corrupt`, `Io`; `TooBig` beyond what the map reaches.
    pub fn missing_nodes(
        &self,
        ctx: &Look<'_>,
        first: LBlock,
        last: LBlock,
        but: Option<u32>,
    ) -> Result<(u64, Option<u32>)> {
        match &self.form {
            Form::Extents(_) => Ok((0, None)),
            Form::Indirect(m) => m.missing_nodes(ctx, &self.owner, first.0, last.0, but),
        }
    }

    /// Maps blocks in the hole at `lblk`: one run of at most `len` blocks, less if the hole or the free
    /// space is in pieces. Credits: [`FileMap::credits_for_alloc`].
    ///
    /// # Errors
    /// `NoSpace`, with nothing changed; `Invalid` if `lblk` is mapped; `TooBig` for a block number
    /// that the map cannot hold; `Corrupt`, `Io`.
    pub fn allocate(
        &mut self,
        ctx: &MapCtx<'_>,
        h: &mut Handle,
        lblk: LBlock,
        len: u32,
        how: AllocHow<'_>,
    ) -> Result<Mapping> {
        self.change(ctx, h, |form, tx| match form {
            Form::Extents(t) => t.allocate(tx, lblk.0, len, how),
            Form::Indirect(m) => m.allocate(tx, lblk.0, len, how),
        })
    }

    /// Makes the unwritten blocks from `lblk` on, at most `len`, an extent of their own, because they are
    /// about to be written: their conversion will not allocate. Answers what was made ready; it is
    /// trimmed to one extent. A range that is not unwritten is answered as it is.
    /// Credits: [`FileMap::credits_for_alloc`].
    ///
    /// # Errors
    /// `NoSpace`, with nothing changed; `Corrupt`, `Io`.
    pub fn split_at(
        &mut self,
        ctx: &MapCtx<'_>,
        h: &mut Handle,
        lblk: LBlock,
        len: u32,
        how: AllocHow<'_>,
    ) -> Result<Mapping> {
        self.change(ctx, h, |form, tx| match form {
            Form::Extents(t) => t.split_at(tx, lblk.0, len, how),
            Form::Indirect(m) => m.lookup(tx.ctx, tx.owner, lblk.0, len),
        })
    }

    /// The blocks `lblk..lblk + len`, entered in flight, were written: they are data now. Blocks that
    /// are data already stay so. Credits: [`FileMap::credits_for_convert`].
    ///
    /// # Errors
    /// `Invalid` if there is a hole in the range; `Corrupt`, `Io`.
    pub fn convert(
        &mut self,
        ctx: &MapCtx<'_>,
        h: &mut Handle,
        lblk: LBlock,
        len: u32,
    ) -> Result<()> {
        self.change(ctx, h, |form, tx| match form {
            Form::Extents(t) => t.convert(tx, lblk.0, len),
            Form::Indirect(_) => Ok(()),
        })
    }

    /// The write of `lblk..lblk + len` failed: the blocks stay unwritten.
    pub fn not_written(&mut self, lblk: LBlock, len: u32) {
        if let Form::Extents(t) = &mut self.form {
            t.not_written(lblk.0, len);
        }
    }

    /// The written blocks of `lblk..lblk + len` become unwritten: they read as zeros (zero range). Nothing of
    /// the range is in flight. Credits: [`FileMap::credits_for_alloc`].
    ///
    /// # Errors
    /// `NoSpace`; what was done before it stays. `NotSupported` on an indirect map. `Corrupt`, `Io`.
    pub fn to_unwritten(
        &mut self,
        ctx: &MapCtx<'_>,
        h: &mut Handle,
        lblk: LBlock,
        len: u32,
    ) -> Result<Progress> {
        self.change(ctx, h, |form, tx| match form {
            Form::Extents(t) => t.unwrite(tx, lblk.0, len),
            Form::Indirect(_) => Err(Error::NotSupported),
        })
    }

    /// Frees the blocks from `from` up to `end` (exclusive; may be `u64::MAX`), from the end backwards.
    /// Nothing of the range is in flight. Credits to start or restart with:
    /// [`FileMap::credits_for_remove`].
    ///
    /// # Errors
    /// `NoSpace` if a hole in the middle of an extent needs a block for the map and there is none;
    /// `Corrupt`, `Io`. What was done before stays.
    pub fn remove(
        &mut self,
        ctx: &MapCtx<'_>,
        h: &mut Handle,
        from: LBlock,
        end: u64,
    ) -> Result<Progress> {
        self.change(ctx, h, |form, tx| match form {
            Form::Extents(t) => t.remove(tx, u64::from(from.0), end),
            Form::Indirect(m) => m.remove(tx, u64::from(from.0), end),
        })
    }

    /// Moves everything from some block on, in steps: `s` keeps how far it came. Nothing is in flight.
    /// Credits: [`FileMap::credits_for_remove`].
    ///
    /// # Errors
    /// `NotSupported` on an indirect map; `Invalid` if blocks would be moved onto others; `TooBig` if
    /// blocks would be moved past the largest; `Corrupt`, `Io`.
    pub fn shift(&mut self, ctx: &MapCtx<'_>, h: &mut Handle, s: &mut Shift) -> Result<Progress> {
        self.change(ctx, h, |form, tx| match form {
            Form::Extents(t) => t.shift(tx, s),
            Form::Indirect(_) => Err(Error::NotSupported),
        })
    }

    /// A block of the device near which a block at `lblk` is best: after the one before it, or where its
    /// neighbour suggests. `None` for an empty map: the allocator knows the inode's group.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn goal(&self, ctx: &Look<'_>, lblk: LBlock) -> Result<Option<Block>> {
        match &self.form {
            Form::Extents(t) => t.goal(ctx, &self.owner, lblk.0),
            Form::Indirect(m) => m.goal(ctx, &self.owner, lblk.0),
        }
    }

    /// The first block at or after `lblk` that holds data (unwritten blocks do not).
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn next_data(&self, ctx: &Look<'_>, lblk: LBlock) -> Result<Option<LBlock>> {
        let mut found = None;
        self.for_each(ctx, lblk, u64::from(MAX_LBLK), &mut |m| {
            if m.state == State::Written {
                found = Some(m.lblk);
            }
            found.is_none()
        })?;
        Ok(found)
    }

    /// The first block at or after `lblk` that holds no data; past the last block if all do.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn next_hole(&self, ctx: &Look<'_>, lblk: LBlock) -> Result<LBlock> {
        let mut at = u64::from(lblk.0);
        while at < u64::from(MAX_LBLK) {
            let m = self.lookup(ctx, LBlock(at as u32), u32::MAX)?;
            if m.state != State::Written {
                break;
            }
            at = m.end();
        }
        Ok(LBlock(at.min(u64::from(MAX_LBLK)) as u32))
    }

    /// Calls `f` with every mapped range of `from..end`, in order, holes left out, until it answers
    /// `false`.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn for_each(
        &self,
        ctx: &Look<'_>,
        from: LBlock,
        end: u64,
        f: &mut dyn FnMut(Mapping) -> bool,
    ) -> Result<()> {
        let end = end.min(u64::from(MAX_LBLK));
        let mut at = u64::from(from.0);
        while at < end {
            let max = (end - at).min(u64::from(u32::MAX)) as u32;
            let m = self.lookup(ctx, LBlock(at as u32), max)?;
            if m.state != State::Hole && !f(m) {
                break;
            }
            at = m.end();
        }
        Ok(())
    }

    /// Credits of one [`FileMap::allocate`] or [`FileMap::split_at`], whatever its length; the inode's own
    /// slot is not counted. Another thread may have grown the tree by a level meanwhile.
    pub fn credits_for_alloc(&self) -> u32 {
        match &self.form {
            Form::Extents(t) => t.split_credits() + 2,
            // Three new blocks and the one they hang from; each of four allocations in its own group.
            Form::Indirect(_) => 4 + 2 * 4,
        }
    }

    /// Credits of one [`FileMap::convert`] of a range that was mapped in one call.
    pub fn credits_for_convert(&self) -> u32 {
        match &self.form {
            Form::Extents(t) => t.convert_credits(),
            Form::Indirect(_) => 0,
        }
    }

    /// Credits of a step of [`FileMap::remove`] or [`FileMap::shift`].
    pub fn credits_for_remove(&self) -> u32 {
        match &self.form {
            Form::Extents(t) => t.remove_credits(),
            Form::Indirect(_) => IndirectMap::REMOVE_CREDITS,
        }
    }

    fn change<R>(
        &mut self,
        ctx: &MapCtx<'_>,
        h: &mut Handle,
        f: impl FnOnce(&mut Form, &mut Tx<'_>) -> R,
    ) -> R {
        let r = f(&mut self.form, &mut Tx { ctx, h, owner: &mut self.owner });
        self.status.get_mut().clear();
        r
    }
}

/// The part of a mapping from `lblk` on, at most `max` blocks.
fn trim(m: Mapping, lblk: u32, max: u32) -> Mapping {
    let skip = lblk.saturating_sub(m.lblk.0);
    Mapping {
        lblk: LBlock(lblk),
        len: m.len.saturating_sub(skip).min(max),
        pblk: if m.state == State::Hole { Block(0) } else { m.pblk.plus(u64::from(skip)) },
        state: m.state,
    }
}
