//! Taking blocks away from an indirect map, from the end backwards, in steps of few credits.

use super::{DIRECT, IndirectMap, SLOTS, per_block, pointer, read, set_pointer, slot_range, span};
use crate::error::Result;
use crate::map::Progress;
use crate::map::tx::{Freeing, Tx};
use crate::ondisk::Seal;
use crate::types::Block;
use smallvec::SmallVec;

/// Pointers cleared in one step, at most.
const BATCH: usize = 512;

/// What became of a block of pointers.
enum Left {
    /// No pointer is left in it.
    Empty,
    /// Some are, all of them outside the range.
    Some,
    /// The handle is used up.
    Stopped,
}

/// Runs of blocks, from pointers in any order.
#[derive(Default)]
struct Runs(SmallVec<[(u64, u32); 32]>);

impl Runs {
    fn add(&mut self, b: u64) {
        match self.0.last_mut() {
            Some((start, len)) if b == *start + u64::from(*len) => *len += 1,
            Some((start, len)) if b + 1 == *start => {
                *start = b;
                *len += 1;
            }
            _ => self.0.push((b, 1)),
        }
    }
}

/// The part of a removal that concerns one block of pointers: those in `from..end`.
#[derive(Clone, Copy)]
struct Range {
    from: u64,
    end: u64,
}

impl Range {
    /// Indexes of the pointers that cover part of the range, if `n` pointers to `each` blocks begin at
    /// `base`.
    fn indexes(&self, base: u64, each: u64, n: u32) -> std::ops::Range<u32> {
        let from = self.from.saturating_sub(base) / each;
        let end = self.end.saturating_sub(base).div_ceil(each);
        from.min(u64::from(n)) as u32..end.min(u64::from(n)) as u32
    }
}

impl IndirectMap {
    /// Credits of one step: a block of pointers and those above it, which may be freed with their
    /// groups' bitmaps and descriptors, and the groups of the blocks freed.
    pub const REMOVE_CREDITS: u32 = 3 + 2 * 3 + Freeing::CREDITS;

    /// See [`crate::map::FileMap::remove`].
    pub fn remove(&mut self, tx: &mut Tx<'_>, from: u64, end: u64) -> Result<Progress> {
        let range = Range { from, end };
        let per = per_block(tx.ctx.geo);
        for slot in (DIRECT as usize..SLOTS).rev() {
            let (levels, first) = slot_range(per, slot);
            let root = pointer(&self.root, slot as u32);
            if root == 0 || range.indexes(first, span(per, levels), 1).is_empty() {
                continue;
            }
            let block = Block(u64::from(root));
            match prune(tx, block, levels, first, range)? {
                Left::Stopped => return Ok(Progress::More),
                Left::Some => {}
                Left::Empty => {
                    set_pointer(&mut self.root, slot as u32, 0);
                    tx.free_node(block)?;
                }
            }
        }
        for i in range.indexes(0, 1, DIRECT).rev() {
            let p = pointer(&self.root, i);
            if p == 0 {
                continue;
            }
            if !tx.h.ensure(Self::REMOVE_CREDITS)? {
                return Ok(Progress::More);
            }
            set_pointer(&mut self.root, i, 0);
            tx.free_data(Block(u64::from(p)), 1)?;
        }
        Ok(Progress::Done)
    }
}

/// Removes what is below `block`, which has `levels - 1` levels of blocks of pointers below it and
/// covers the file from `base`.
fn prune(tx: &mut Tx<'_>, block: Block, levels: usize, base: u64, range: Range) -> Result<Left> {
    let per = per_block(tx.ctx.geo);
    let each = span(per, levels.saturating_sub(1));
    let indexes = range.indexes(base, each, per);
    let buf = read(tx.ctx, tx.owner, block)?;
    if levels <= 1 {
        loop {
            if !tx.h.ensure(IndirectMap::REMOVE_CREDITS)? {
                return Ok(Left::Stopped);
            }
            let (cut, runs) = buf.read(|b| last_pointers(tx, b, indexes.clone()));
            if runs.0.is_empty() {
                break;
            }
            tx.h.modify(&buf, &Seal::None, |b| {
                for i in cut..indexes.end {
                    set_pointer(b, i, 0);
                }
            })?;
            for (start, len) in runs.0 {
                tx.free_data(Block(start), len)?;
            }
        }
    } else {
        for i in indexes.rev() {
            let p = buf.read(|b| pointer(b, i));
            if p == 0 {
                continue;
            }
            let child = Block(u64::from(p));
            match prune(tx, child, levels - 1, base + u64::from(i) * each, range)? {
                Left::Stopped => return Ok(Left::Stopped),
                Left::Some => {}
                Left::Empty => {
                    tx.h.modify(&buf, &Seal::None, |b| set_pointer(b, i, 0))?;
                    tx.free_node(child)?;
                }
            }
        }
    }
    Ok(if buf.read(|b| b.iter().all(|&x| x == 0)) { Left::Empty } else { Left::Some })
}

/// The last pointers of `indexes` that one step takes, as runs, and the index of the first of them.
fn last_pointers(tx: &Tx<'_>, b: &[u8], indexes: std::ops::Range<u32>) -> (u32, Runs) {
    let mut freeing = Freeing::new(tx.ctx.geo, tx.owner.journalled);
    let mut runs = Runs::default();
    let mut first = indexes.end;
    let mut n = 0;
    for i in indexes.rev() {
        let p = pointer(b, i);
        if p != 0 {
            let block = Block(u64::from(p));
            if n == BATCH || !freeing.add(tx.ctx.geo, block, 1) {
                break;
            }
            runs.add(block.0);
            n += 1;
        }
        first = i;
    }
    (first, runs)
}
