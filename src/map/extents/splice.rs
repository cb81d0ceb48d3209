//! The one change a tree is made of: entries of a node replaced by others, and
//! what follows from that in the nodes above.

use super::walk::{Path, Step};
use super::{ExtentTree, Pieces};
use crate::error::{Corrupt, Result};
use crate::map::node::{self, Raw, index, key};
use crate::map::tx::{AllocHow, Tx};
use crate::ondisk::extent::MAX_DEPTH;
use crate::types::Block;
use smallvec::SmallVec;

/// Blocks allocated for the splits to come.
pub(super) type Spare = SmallVec<[Block; 6]>;

/// Blocks that the splits take if a leaf's `del` entries are replaced by `ins`.
fn splits(path: &[Step], del: usize, ins: usize) -> usize {
    let (mut del, mut ins, mut blocks) = (del, ins, 0);
    for step in path.iter().rev() {
        if step.len + ins <= step.max + del {
            break;
        }
        blocks += 1;
        (del, ins) = (1, 2);
    }
    blocks
}

impl ExtentTree {
    /// Replaces `del` extents from `at` of the leaf at the end of `path` by `pieces`, joined with each
    /// other and with their neighbours where they can be. The path is out of date afterwards.
    ///
    /// # Errors
    /// `NoSpace` with nothing changed.
    pub(super) fn put(
        &mut self,
        tx: &mut Tx<'_>,
        path: &Path,
        mut at: usize,
        mut del: usize,
        mut pieces: Pieces,
        how: &mut AllocHow<'_>,
    ) -> Result<()> {
        let Some(leaf) = path.last() else { return Ok(()) };
        if let Some(i) = at.checked_sub(1)
            && let Some(before) = self.extent(tx.owner, leaf, i)?
            && pieces.first().is_some_and(|p| self.may_join(&before, p))
        {
            pieces.insert(0, before);
            at -= 1;
            del += 1;
        }
        if let Some(after) = self.extent(tx.owner, leaf, at + del)?
            && pieces.last().is_some_and(|p| self.may_join(p, &after))
        {
            pieces.push(after);
            del += 1;
        }
        let mut raws: SmallVec<[Raw; 8]> = SmallVec::new();
        let mut it = pieces.into_iter();
        if let Some(mut e) = it.next() {
            for next in it {
                if self.may_join(&e, &next) {
                    e.len += next.len;
                } else {
                    raws.push(e.encode());
                    e = next;
                }
            }
            raws.push(e.encode());
        }
        let mut spare = self.spare(tx, path, del, raws.len(), how)?;
        self.splice(tx, path, at, del, &raws, &mut spare)
    }

    pub(super) fn spare(
        &self,
        tx: &mut Tx<'_>,
        path: &[Step],
        del: usize,
        ins: usize,
        how: &mut AllocHow<'_>,
    ) -> Result<Spare> {
        let need = splits(path, del, ins);
        let mut spare = Spare::new();
        if need == 0 {
            return Ok(spare);
        }
        if need == path.len() && self.depth >= MAX_DEPTH {
            return Err(Corrupt::new("extent tree full at its largest depth")
                .ino(tx.owner.ino)
                .into());
        }
        let near = path.iter().rev().find_map(|s| s.buf.as_ref().map(|b| b.block()));
        let near = match (near, path.last()) {
            (None, Some(leaf)) => self.extent(tx.owner, leaf, 0)?.map(|e| e.block),
            _ => near,
        };
        while spare.len() < need {
            let goal = spare.last().copied().or(near).map(|b| b.plus(1));
            match tx.alloc_node(goal, how) {
                Ok(b) => spare.push(b),
                Err(e) => return Err(tx.undo(&[], &spare, e)),
            }
        }
        Ok(spare)
    }

    /// Replaces the `del` entries from `at` of the node at the end of `path` by `ins`, and goes up as far
    /// as something changes there. `spare` has the blocks for the splits.
    pub(super) fn splice(
        &mut self,
        tx: &mut Tx<'_>,
        path: &[Step],
        mut at: usize,
        mut del: usize,
        ins: &[Raw],
        spare: &mut Spare,
    ) -> Result<()> {
        let mut ins: SmallVec<[Raw; 8]> = SmallVec::from_slice(ins);
        let mut rest = path;
        while let Some((step, above)) = rest.split_last() {
            rest = above;
            let n = (step.len + ins.len()).saturating_sub(del);
            let up = above.last().map(|s| s.at);
            let block = step.buf.as_ref().map(|b| b.block());
            if n > step.max {
                let mut all: Vec<Raw> = self.with(tx.owner, step, |n| n.raws().to_vec())?;
                all.splice(at.min(all.len())..(at + del).min(all.len()), ins.iter().copied());
                let new = spare
                    .pop()
                    .ok_or(Corrupt::new("extent node to split, unforeseen").ino(tx.owner.ino))?;
                let (Some(up), Some(block)) = (up, block) else {
                    return self.grow(tx, step, new, &all);
                };
                // What is appended leaves a full node behind; else the cut is where the change is, so
                // that more of the same, upwards or downwards, fills a node before it splits again.
                let cut = if at + del == step.len { step.max } else { at + ins.len() };
                let cut = cut.clamp(n - step.max, step.max);
                let (left, right) = all.split_at(cut.min(all.len()));
                let (Some(l), Some(r)) = (left.first(), right.first()) else {
                    return Err(Corrupt::new("extent node cannot be split").block(block).into());
                };
                self.edit(tx, step, |b| node::splice(b, 0, step.len, left))?;
                create(tx, new, step.depth, right)?;
                ins = SmallVec::from_slice(&[index(key(l), block), index(key(r), new)]);
                (at, del) = (up, 1);
            } else if let (0, Some(up), Some(block)) = (n, up, block) {
                tx.free_node(block)?;
                ins.clear();
                (at, del) = (up, 1);
            } else {
                self.edit(tx, step, |b| node::splice(b, at, del, &ins))?;
                let (Some(up), Some(block)) = (up, block) else {
                    if n == 0 {
                        node::init(&mut self.root, 0, &[]);
                        self.depth = 0;
                    }
                    return Ok(());
                };
                let first = match (at, ins.first()) {
                    (0, Some(r)) => Some(key(r)),
                    (0, None) => self.first_key(step)?,
                    _ => step.first,
                };
                match first {
                    Some(k) if first != step.first => {
                        ins = SmallVec::from_slice(&[index(k, block)]);
                        (at, del) = (up, 1);
                    }
                    _ => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// The root is full: what should be in it goes to a node below it.
    fn grow(&mut self, tx: &mut Tx<'_>, root: &Step, new: Block, all: &[Raw]) -> Result<()> {
        create(tx, new, root.depth, all)?;
        let first = all.first().map_or(0, key);
        self.depth = root.depth + 1;
        node::init(&mut self.root, self.depth, &[index(first, new)]);
        Ok(())
    }

    fn first_key(&self, step: &Step) -> Result<Option<u32>> {
        Ok(step
            .buf
            .as_ref()
            .and_then(|b| b.read(|b| crate::ondisk::extent::entry_lblock(b, 0)))
            .map(|l| l.0))
    }
}

fn create(tx: &mut Tx<'_>, block: Block, depth: u16, entries: &[Raw]) -> Result<()> {
    let seal = tx.owner.seal;
    tx.h.create(block, &seal, |b| node::init(b, depth, entries))?;
    Ok(())
}
