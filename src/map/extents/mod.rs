//! The extent tree: the root in the inode, nodes in blocks, extents in the leaves.
//!
//! Every change of a leaf is one [`ExtentTree::splice`]: some entries are replaced by a few others,
//! and what follows from it (a split, a new key in the node above, an emptied node) goes up the
//! path. The blocks for splits are allocated before, so that nothing is half done when
//! there are none.

mod convert;
mod insert;
mod remove;
mod shift;
mod splice;
mod tidy;
mod walk;

use super::node::{self, Node};
use super::ranges::Ranges;
use super::tx::{Freeing, Owner};
use super::{Look, Mapping, State};
use crate::error::Result;
use crate::ondisk::Geometry;
use crate::ondisk::extent::{Extent, MAX_UNWRITTEN};
use crate::types::{Block, LBlock};
use smallvec::SmallVec;

/// The extents that take the place of others in one change.
pub(super) type Pieces = SmallVec<[Extent; 6]>;

/// The tree of one inode.
pub(super) struct ExtentTree {
    root: [u8; 60],
    depth: u16,
    /// Unwritten blocks that are being written: such extents stay as they are until converted.
    in_flight: Ranges,
}

impl ExtentTree {
    /// From `i_block`.
    pub fn open(geo: &Geometry, owner: &Owner, root: [u8; 60]) -> Result<ExtentTree> {
        let n = Node::root(&root).map_err(|b| owner.bad(b))?;
        n.check(geo, node::LBLK_END).map_err(|b| owner.bad(b))?;
        let depth = n.depth();
        Ok(ExtentTree { root, depth, in_flight: Ranges::default() })
    }

    pub fn root(&self) -> &[u8; 60] {
        &self.root
    }

    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// The extent or hole that `lblk` lies in; a hole as far as it goes.
    pub fn lookup(&self, ctx: &Look<'_>, owner: &Owner, lblk: u32) -> Result<Mapping> {
        let f = self.find(ctx, owner, lblk)?;
        let at = u64::from(lblk);
        let hole_start = match f.extent {
            Some(e) if at < e.end() => {
                return Ok(Mapping {
                    lblk: e.lblock,
                    len: e.len,
                    pblk: e.block,
                    state: if e.unwritten { State::Unwritten } else { State::Written },
                });
            }
            Some(e) => e.end(),
            None => f.low,
        };
        let len = u32::try_from(f.next - hole_start).unwrap_or(u32::MAX);
        // A hole that begins at 0 and never ends is one block longer than its length can say.
        Ok(Mapping { lblk: LBlock(hole_start as u32), len, pblk: Block(0), state: State::Hole })
    }

    /// Where `lblk` would be best: next to its neighbour before it, else the one after it.
    pub fn goal(&self, ctx: &Look<'_>, owner: &Owner, lblk: u32) -> Result<Option<Block>> {
        let f = self.find(ctx, owner, lblk)?;
        if let Some(e) = f.extent {
            return Ok(Some(near(&e, lblk)));
        }
        if f.next == node::LBLK_END {
            return Ok(None);
        }
        let after = self.find(ctx, owner, f.next as u32)?.extent;
        Ok(after.map(|e| near(&e, lblk)))
    }

    /// Credits of a change that may split every node of the path, the tree a level deeper than now:
    /// the path, the new nodes, and their groups' bitmaps and descriptors.
    pub fn split_credits(&self) -> u32 {
        let levels = u32::from(self.depth) + 1;
        levels + 3 * (levels + 1)
    }

    /// Credits of a conversion: the path, and a node that is freed when the tree gets shallower.
    pub fn convert_credits(&self) -> u32 {
        u32::from(self.depth) + 1 + 2
    }

    /// Credits of one step of a removal: the path twice (a partial extent is split), emptied nodes, the
    /// groups of the blocks freed, and a merge.
    pub fn remove_credits(&self) -> u32 {
        self.split_credits() + 2 * (u32::from(self.depth) + 1) + Freeing::CREDITS + 4
    }

    fn may_join(&self, a: &Extent, b: &Extent) -> bool {
        a.can_merge(b) && !(a.unwritten && self.in_flight.overlaps(u64::from(a.lblock.0), b.end()))
    }
}

/// Where the block at `lblk` would be if it were in a row with `e`.
fn near(e: &Extent, lblk: u32) -> Block {
    let start = e.lblock.0;
    if lblk >= start {
        e.block.plus(u64::from(lblk - start))
    } else {
        let back = u64::from(start - lblk);
        Block(e.block.0.checked_sub(back).unwrap_or(e.block.0))
    }
}

/// Adds an extent in pieces that are not too long for their state.
fn push_whole(pieces: &mut Pieces, mut e: Extent) {
    let max = Extent::max_len(e.unwritten);
    while e.len > max {
        // Only ever one block too long: a written extent that becomes unwritten.
        let first = Extent { len: MAX_UNWRITTEN, ..e };
        pieces.push(first);
        e = Extent {
            lblock: LBlock(e.lblock.0 + first.len),
            len: e.len - first.len,
            block: e.block.plus(u64::from(first.len)),
            ..e
        };
    }
    pieces.push(e);
}
