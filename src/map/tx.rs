//! What a change of a map works with: the journal handle, the allocator and the
//! owner's accounts.

use super::{Enter, Kind, Look, MapCtx, Reservation};
use crate::alloc::{FreeFlags, Request, Run};
use crate::error::{Corrupt, Error, Result};
use crate::journal::Handle;
use crate::ondisk::{Geometry, Seal};
use crate::types::{Block, Ino, LBlock};
use smallvec::SmallVec;

/// The inode that a map belongs to, as far as the map is concerned.
pub(super) struct Owner {
    pub ino: Ino,
    /// Of the blocks of an extent tree.
    pub seal: Seal,
    /// The data blocks are metadata (directories, symlinks) or journalled data: freeing one revokes it.
    pub journalled: bool,
    /// `i_blocks` in units of 512 bytes.
    pub blocks512: u64,
    /// Data blocks that leave the map are only counted off, not freed.
    pub keep_data: bool,
}

impl Owner {
    pub fn bad(&self, (what, value): (&'static str, u64)) -> Corrupt {
        Corrupt::new(what).ino(self.ino).value(value)
    }

    /// Whether these may be blocks of this inode: none of the file system's own, unless it is one of the
    /// file system's own inodes.
    pub fn check_blocks(&self, ctx: &Look<'_>, start: Block, len: u32) -> Result<()> {
        if !ctx.geo.is_user_ino(self.ino) {
            return Ok(());
        }
        match ctx.guard {
            Some(g) => g.check_data_run(Run { start, len }).map_err(|e| self.name(e)),
            None => Ok(()),
        }
    }

    /// Adds the inode to an error that does not name one.
    pub fn name(&self, e: Error) -> Error {
        match e {
            Error::Corrupt(c) if c.ino.is_none() => c.ino(self.ino).into(),
            e => e,
        }
    }
}

/// How [`super::FileMap::allocate`] enters the blocks, and on whose account.
#[derive(Debug)]
pub struct AllocHow<'r> {
    /// State of the new extent.
    pub enter: Enter,
    /// Reserved blocks to take from.
    pub reservation: Option<&'r mut Reservation>,
    /// Size of the file in bytes, once what is being written is in it: for normalisation.
    pub size_hint: u64,
    /// May use the blocks reserved for root.
    pub root_ok: bool,
    /// Blocks of the map may come from the reserved pool: write-out and conversion.
    pub use_pool: bool,
    /// What the blocks will hold.
    pub kind: Kind,
    /// The allocator may hold more, for the file's next blocks.
    pub prealloc: bool,
    /// Comes from delayed allocation.
    pub delalloc: bool,
}

impl AllocHow<'_> {
    /// Blocks of this kind, entered so, without a reservation.
    pub fn new(enter: Enter, kind: Kind) -> AllocHow<'static> {
        AllocHow {
            enter,
            reservation: None,
            size_hint: 0,
            root_ok: false,
            use_pool: false,
            kind,
            prealloc: kind == Kind::Data,
            delalloc: false,
        }
    }

    /// Blocks of the map only, for a change of extents that exist.
    pub(super) fn nodes_only() -> AllocHow<'static> {
        AllocHow { use_pool: true, ..AllocHow::new(Enter::Written, Kind::Metadata) }
    }
}

/// A change in progress.
pub(super) struct Tx<'t> {
    pub ctx: &'t MapCtx<'t>,
    pub h: &'t mut Handle,
    pub owner: &'t mut Owner,
}

impl Tx<'_> {
    /// Counts blocks in `i_blocks`.
    pub fn count(&mut self, blocks: u64, add: bool) {
        let units = blocks << (self.ctx.geo.block_size.log2() - 9);
        let b = &mut self.owner.blocks512;
        *b = if add { b.saturating_add(units) } else { b.saturating_sub(units) };
    }

    /// A run of at most `len` data blocks.
    pub fn alloc_data(
        &mut self,
        lblk: LBlock,
        len: u32,
        goal: Option<Block>,
        how: &mut AllocHow<'_>,
    ) -> Result<Run> {
        let run = self.ctx.alloc.alloc(
            self.h,
            Request {
                goal,
                size_hint: how.size_hint,
                kind: how.kind,
                reservation: how.reservation.as_deref_mut(),
                root_ok: how.root_ok,
                prealloc: how.prealloc,
                delalloc: how.delalloc,
                ..Request::data(self.owner.ino, lblk, len)
            },
        )?;
        self.count(u64::from(run.len), true);
        Ok(run)
    }

    /// A block for the map itself.
    pub fn alloc_node(&mut self, goal: Option<Block>, how: &mut AllocHow<'_>) -> Result<Block> {
        let run = self.ctx.alloc.alloc(
            self.h,
            Request {
                reservation: how.reservation.as_deref_mut(),
                root_ok: how.root_ok,
                use_pool: how.use_pool,
                ..Request::metadata(self.owner.ino, goal)
            },
        )?;
        self.count(1, true);
        Ok(run.start)
    }

    fn free(&mut self, start: Block, len: u32, metadata: bool) -> Result<()> {
        let flags = FreeFlags { metadata };
        self.ctx.alloc.free(self.h, Run { start, len }, flags).map_err(|e| self.owner.name(e))?;
        self.count(u64::from(len), false);
        Ok(())
    }

    /// Gives data blocks back.
    pub fn free_data(&mut self, start: Block, len: u32) -> Result<()> {
        if self.owner.keep_data {
            self.count(u64::from(len), false);
            return Ok(());
        }
        self.free(start, len, self.owner.journalled)
    }

    /// Gives a block of the map back.
    pub fn free_node(&mut self, block: Block) -> Result<()> {
        self.free(block, 1, true)
    }

    /// Gives back what was just allocated, because the operation cannot go on: `e` is why.
    pub fn undo(&mut self, runs: &[Run], nodes: &[Block], e: Error) -> Error {
        for r in runs {
            if let Err(e) = self.free(r.start, r.len, false) {
                return e;
            }
        }
        for b in nodes {
            if let Err(e) = self.free_node(*b) {
                return e;
            }
        }
        e
    }
}

/// What a step of a removal may free, so that its credits are bounded: blocks of a few groups, and
/// of journalled blocks no more than a few revoke blocks name.
pub(super) struct Freeing {
    groups: SmallVec<[u64; Freeing::GROUPS]>,
    left: u64,
}

impl Freeing {
    /// Groups in one step, at most. Each costs a bitmap and a descriptor block.
    const GROUPS: usize = 8;
    /// Revoke blocks that a step fills.
    const REVOKE_BLOCKS: u64 = 4;
    /// Credits of one step; the first and the last revoke block may be partly filled.
    pub const CREDITS: u32 = 2 * Freeing::GROUPS as u32 + Freeing::REVOKE_BLOCKS as u32 + 1;

    /// Nothing yet; `journalled` blocks are revoked.
    pub fn new(geo: &Geometry, journalled: bool) -> Freeing {
        Freeing { groups: SmallVec::new(), left: Freeing::max_run(geo, journalled) }
    }

    /// Blocks in a row that are sure to be few enough.
    pub fn max_run(geo: &Geometry, journalled: bool) -> u64 {
        let groups = u64::from(geo.blocks_per_group) * (Freeing::GROUPS as u64 - 1);
        // A record takes 8 bytes at most, the header and the checksum of its block 32.
        let per_block = (geo.block_size.bytes64() - 32) / 8;
        let revoked = if journalled { Freeing::REVOKE_BLOCKS * per_block } else { u64::MAX };
        groups.min(revoked).max(1)
    }

    /// Adds a run; `false`, and nothing added, if that would be too much.
    pub fn add(&mut self, geo: &Geometry, start: Block, len: u32) -> bool {
        let Some(left) = self.left.checked_sub(len.into()) else { return false };
        let per = u64::from(geo.blocks_per_group).max(1);
        let first = u64::from(geo.first_data_block);
        let from = start.0.saturating_sub(first) / per;
        let to = start.plus(u64::from(len).saturating_sub(1)).0.saturating_sub(first) / per;
        let before = self.groups.len();
        for g in from..=to {
            if self.groups.contains(&g) {
                continue;
            }
            if self.groups.len() == Freeing::GROUPS {
                self.groups.truncate(before);
                return false;
            }
            self.groups.push(g);
        }
        self.left = left;
        true
    }
}
