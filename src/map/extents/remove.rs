//! Taking blocks away, from the end backwards, in steps of few credits.

use super::walk::Path;
use super::{ExtentTree, Pieces};
use crate::error::{Error, Result};
use crate::map::Progress;
use crate::map::node::cut;
use crate::map::tx::{AllocHow, Freeing, Tx};
use crate::ondisk::extent::Extent;
use smallvec::{SmallVec, smallvec};

/// Extents taken away in one step, at most.
const BATCH: usize = 64;

impl ExtentTree {
    /// See [`crate::map::FileMap::remove`].
    pub fn remove(&mut self, tx: &mut Tx<'_>, from: u64, end: u64) -> Result<Progress> {
        let end = end.min(crate::map::node::LBLK_END);
        if from >= end {
            return Ok(Progress::Done);
        }
        self.in_flight.remove(from, end);
        loop {
            if !tx.h.ensure(self.remove_credits())? {
                return Ok(Progress::More);
            }
            if !self.remove_step(tx, from, end)? {
                break;
            }
        }
        self.tidy(tx, from as u32)?;
        Ok(Progress::Done)
    }

    /// Removes some of the last blocks of the range; whether there were any.
    fn remove_step(&mut self, tx: &mut Tx<'_>, from: u64, end: u64) -> Result<bool> {
        let path = self.load(tx.ctx, tx.owner, (end - 1) as u32)?;
        let leaf = path.last().ok_or(Error::Invalid("no path"))?;
        let Some(last) = leaf.at.checked_sub(1) else { return Ok(false) };
        let Some(e) = self.extent(tx.owner, leaf, last)? else { return Ok(false) };
        let Some(gone) = cut(&e, from, end) else { return Ok(false) };
        if gone != e || u64::from(gone.len) > Freeing::max_run(tx.ctx.geo, tx.owner.journalled) {
            self.remove_part(tx, &path, last, &e, gone)?;
            return Ok(true);
        }
        let batch = self.with(tx.owner, leaf, |n| {
            let mut freeing = Freeing::new(tx.ctx.geo, tx.owner.journalled);
            let mut batch: SmallVec<[Extent; BATCH]> = SmallVec::new();
            for e in (0..=last).rev().map_while(|i| n.extent(i)) {
                if batch.len() == BATCH
                    || u64::from(e.lblock.0) < from
                    || !freeing.add(tx.ctx.geo, e.block, e.len)
                {
                    break;
                }
                batch.push(e);
            }
            batch
        })?;
        let at = last + 1 - batch.len();
        self.splice(tx, &path, at, batch.len(), &[], &mut SmallVec::new())?;
        for e in &batch {
            tx.free_data(e.block, e.len)?;
        }
        Ok(true)
    }

    /// Removes the end of `gone`, which is a part of extent `e`, or as much as one step may.
    fn remove_part(
        &mut self,
        tx: &mut Tx<'_>,
        path: &Path,
        i: usize,
        e: &Extent,
        gone: Extent,
    ) -> Result<()> {
        let most = Freeing::max_run(tx.ctx.geo, tx.owner.journalled);
        let start = u64::from(gone.lblock.0).max(gone.end().saturating_sub(most));
        let Some(gone) = cut(&gone, start, u64::MAX) else { return Ok(()) };
        let mut pieces: Pieces = smallvec![];
        pieces.extend(cut(e, 0, start));
        pieces.extend(cut(e, gone.end(), u64::MAX));
        let mut how = AllocHow::nodes_only();
        self.put(tx, path, i, 1, pieces, &mut how)?;
        tx.free_data(gone.block, gone.len)
    }
}
