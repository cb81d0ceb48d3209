//! The map of ext2 and ext3: twelve direct pointers in the inode, then a single, a
//! double and a triple indirect block. 32-bit block numbers, 0 for a hole; no
//! checksums, no unwritten state.

mod alloc;
mod remove;

use super::tx::Owner;
use super::{Look, Mapping, State};
use crate::cache::Buffer;
use crate::error::{Corrupt, Error, Result};
use crate::ondisk::bytes::le32;
use crate::ondisk::{Geometry, Seal};
use crate::types::{Block, LBlock};
use std::sync::Arc;

/// Pointers to data in the inode.
const DIRECT: u32 = 12;
/// All pointers in the inode.
const SLOTS: usize = 15;

/// The map of one inode.
pub(super) struct IndirectMap {
    root: [u8; 60],
}

/// Where the pointer to a logical block is: a slot of the inode, then an index in each of `levels`
/// blocks.
struct Spot {
    slot: usize,
    levels: usize,
    index: [u32; 3],
}

/// Pointers in a block.
fn per_block(geo: &Geometry) -> u32 {
    (geo.block_size.bytes() / 4) as u32
}

/// Logical blocks below a pointer that has `levels` blocks between it and the data.
fn span(per: u32, levels: usize) -> u64 {
    u64::from(per).saturating_pow(levels as u32)
}

/// Levels of blocks below a slot of the inode, and the first logical block it covers.
fn slot_range(per: u32, slot: usize) -> (usize, u64) {
    let direct = u64::from(DIRECT);
    match slot {
        0..12 => (0, slot as u64),
        12 => (1, direct),
        13 => (2, direct + span(per, 1)),
        _ => (3, direct + span(per, 1) + span(per, 2)),
    }
}

/// `None` beyond the largest block that such a map reaches.
fn spot(per: u32, lblk: u32) -> Option<Spot> {
    let at = u64::from(lblk);
    let slot = if lblk < DIRECT {
        lblk as usize
    } else {
        (12..SLOTS).rev().find(|&s| slot_range(per, s).1 <= at)?
    };
    let (levels, first) = slot_range(per, slot);
    let mut rest = at - first;
    if rest >= span(per, levels) {
        return None;
    }
    let mut index = [0; 3];
    for (i, x) in index.iter_mut().take(levels).enumerate() {
        let below = span(per, levels - 1 - i);
        *x = (rest / below) as u32;
        rest %= below;
    }
    Some(Spot { slot, levels, index })
}

/// One past the largest block that such a map reaches.
fn limit(per: u32) -> u64 {
    (slot_range(per, SLOTS - 1).1 + span(per, 3)).min(u64::from(u32::MAX))
}

fn pointer(b: &[u8], i: u32) -> u32 {
    le32(b, i as usize * 4).unwrap_or(0)
}

fn set_pointer(b: &mut [u8], i: u32, to: u32) {
    let done = crate::ondisk::bytes::put(b, i as usize * 4, &to.to_le_bytes());
    debug_assert!(done, "pointer {i} of {}", b.len());
}

/// How many pointers from `i` on, at most `max`, go on where the one before ends (or are all holes).
fn run_length(b: &[u8], i: u32, max: u32) -> u32 {
    let first = pointer(b, i);
    let end = (b.len() / 4) as u32;
    let mut n = 1;
    while n < max && i + n < end {
        let want = if first == 0 { Some(0) } else { first.checked_add(n) };
        if Some(pointer(b, i + n)) != want {
            break;
        }
        n += 1;
    }
    n
}

impl IndirectMap {
    pub fn new(root: [u8; 60]) -> IndirectMap {
        IndirectMap { root }
    }

    pub fn root(&self) -> &[u8; 60] {
        &self.root
    }

    /// The pointers in the inode that are of the kind of slot `slot`, as a slice from the first.
    fn direct(&self) -> &[u8] {
        &self.root[..DIRECT as usize * 4]
    }

    /// From `lblk` on: a run of at most `max` blocks, or a hole.
    pub fn lookup(&self, ctx: &Look<'_>, owner: &Owner, lblk: u32, max: u32) -> Result<Mapping> {
        let max = max.max(1);
        let per = per_block(ctx.geo);
        let hole = |len: u64| Mapping {
            lblk: LBlock(lblk),
            len: len.clamp(1, u64::from(max)) as u32,
            pblk: Block(0),
            state: State::Hole,
        };
        let Some(spot) = spot(per, lblk) else { return Ok(hole(u64::from(u32::MAX))) };
        let (first, n) = if spot.levels == 0 {
            let i = spot.slot as u32;
            (pointer(&self.root, i), run_length(self.direct(), i, max))
        } else {
            let mut ptr = pointer(&self.root, spot.slot as u32);
            let mut found = (0, 0);
            for level in 0..spot.levels {
                let below = span(per, spot.levels - level);
                if ptr == 0 {
                    let within = self.offset_below(per, &spot, level);
                    return Ok(hole(below - within));
                }
                let buf = read(ctx, owner, Block(u64::from(ptr)))?;
                let i = spot.index[level];
                found = buf.read(|b| {
                    let last = level + 1 == spot.levels;
                    (pointer(b, i), if last { run_length(b, i, max) } else { 1 })
                });
                ptr = found.0;
            }
            found
        };
        if first == 0 {
            return Ok(hole(u64::from(n)));
        }
        let pblk = Block(u64::from(first));
        if !ctx.geo.is_valid_block(pblk, u64::from(n)) {
            return Err(bad_pointer(owner, pblk));
        }
        Ok(Mapping { lblk: LBlock(lblk), len: n, pblk, state: State::Written })
    }

    /// See [`crate::map::FileMap::missing_nodes`]. A part is what one block of pointers to data covers.
    pub fn missing_nodes(
        &self,
        ctx: &Look<'_>,
        owner: &Owner,
        first: u32,
        last: u32,
        but: Option<u32>,
    ) -> Result<(u64, Option<u32>)> {
        let per = per_block(ctx.geo);
        let part_of = |lblk: u32| lblk.checked_sub(DIRECT).map(|b| b / per);
        let Some(end) = part_of(last) else { return Ok((0, but)) };
        let mut missing = 0;
        for part in part_of(first).unwrap_or(0)..=end {
            if but == Some(part) {
                continue;
            }
            let lblk = part.checked_mul(per).and_then(|b| b.checked_add(DIRECT));
            let spot = lblk.and_then(|b| spot(per, b)).ok_or(Error::TooBig)?;
            let mut have = 0;
            let mut ptr = pointer(&self.root, spot.slot as u32);
            while ptr != 0 && have < spot.levels {
                let i = spot.index[have];
                have += 1;
                if have < spot.levels {
                    let buf = read(ctx, owner, Block(u64::from(ptr)))?;
                    ptr = buf.read(|b| pointer(b, i));
                }
            }
            missing += (spot.levels - have) as u64;
        }
        Ok((missing, Some(end)))
    }

    /// How far into the range below the pointer of `level` the spot is.
    fn offset_below(&self, per: u32, spot: &Spot, level: usize) -> u64 {
        (level..spot.levels)
            .map(|l| u64::from(spot.index[l]) * span(per, spot.levels - 1 - l))
            .sum()
    }

    /// Next to the pointer before it in its block, else the block that it will be in.
    pub fn goal(&self, ctx: &Look<'_>, owner: &Owner, lblk: u32) -> Result<Option<Block>> {
        let Some(spot) = spot(per_block(ctx.geo), lblk) else { return Ok(None) };
        let before = |b: &[u8], i: u32| {
            (0..=i)
                .rev()
                .map(|k| (k, pointer(b, k)))
                .find(|p| p.1 != 0)
                .map(|(k, p)| Block(u64::from(p)).plus(u64::from(i - k)))
        };
        if spot.levels == 0 {
            return Ok(before(self.direct(), spot.slot as u32));
        }
        let mut ptr = pointer(&self.root, spot.slot as u32);
        let mut near = before(self.direct(), DIRECT - 1).map(|b| b.plus(1));
        for i in spot.index.iter().take(spot.levels) {
            if ptr == 0 {
                break;
            }
            let block = Block(u64::from(ptr));
            let buf = read(ctx, owner, block)?;
            near = buf.read(|b| before(b, *i)).or(Some(block.plus(1)));
            ptr = buf.read(|b| pointer(b, *i));
        }
        Ok(near.filter(|b| ctx.geo.is_valid_block(*b, 1)))
    }
}

fn bad_pointer(owner: &Owner, b: Block) -> Error {
    Corrupt::new("block pointer outside the file system").ino(owner.ino).value(b.0).into()
}

/// Reads an indirect block.
fn read(ctx: &Look<'_>, owner: &Owner, block: Block) -> Result<Arc<Buffer>> {
    if !ctx.geo.is_valid_block(block, 1) {
        return Err(bad_pointer(owner, block));
    }
    owner.check_blocks(ctx, block, 1)?;
    ctx.cache.read(block, &Seal::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spots() {
        let s = |l| spot(256, l).map(|s| (s.slot, s.levels, s.index));
        assert_eq!(s(11), Some((11, 0, [0; 3])));
        assert_eq!(s(12), Some((12, 1, [0; 3])));
        assert_eq!(s(12 + 255), Some((12, 1, [255, 0, 0])));
        assert_eq!(s(12 + 256), Some((13, 2, [0; 3])));
        assert_eq!(s(12 + 256 + 65535), Some((13, 2, [255, 255, 0])));
        assert_eq!(s(12 + 256 + 65536), Some((14, 3, [0; 3])));
        assert_eq!(limit(256), 12 + 256 + 65536 + 256 * 65536);
        assert!(s(limit(256) as u32 - 1).is_some());
        assert!(s(limit(256) as u32).is_none());
        assert!(spot(16384, u32::MAX).is_some());
    }

    #[test]
    fn runs() {
        let mut b = [0; 32];
        for (i, p) in [5, 6, 7, 0, 0, 9, u32::MAX, 0].into_iter().enumerate() {
            set_pointer(&mut b, i as u32, p);
        }
        let r: Vec<u32> = (0..8).map(|i| run_length(&b, i, 99)).collect();
        assert_eq!(r, [3, 2, 1, 2, 1, 1, 1, 1]);
        assert_eq!(run_length(&b, 0, 2), 2);
    }
}
