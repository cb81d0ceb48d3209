//! Moving everything behind a block up or down the file, a leaf at a time.

use super::splice::Spare;
use super::walk::Path;
use super::{ExtentTree, Pieces};
use crate::error::{Error, Result};
use crate::map::node::{LBLK_END, Raw, cut};
use crate::map::tx::{AllocHow, Tx};
use crate::map::{MAX_LBLK, Progress, Shift};
use crate::ondisk::extent::Extent;
use crate::types::LBlock;
use smallvec::smallvec;

impl ExtentTree {
    /// See [`crate::map::FileMap::shift`].
    pub fn shift(&mut self, tx: &mut Tx<'_>, s: &mut Shift) -> Result<Progress> {
        if s.cursor.is_none() {
            self.start_shift(tx, s)?;
        }
        let mut done = s.by == 0;
        while !done {
            if !tx.h.ensure(self.remove_credits())? {
                return Ok(Progress::More);
            }
            done = if s.right { self.shift_right(tx, s)? } else { self.shift_left(tx, s)? };
        }
        if !s.right {
            // What moved may now go on where the part before it ends.
            let at = s.from.saturating_sub(s.by);
            self.rejoin(tx, at)?;
            self.tidy(tx, at)?;
        }
        Ok(Progress::Done)
    }

    /// Checks that there is room, and splits an extent that only partly moves.
    fn start_shift(&mut self, tx: &mut Tx<'_>, s: &mut Shift) -> Result<()> {
        if s.right {
            if let Some(e) = self.last(tx)?
                && e.end() > u64::from(s.from)
                && e.end() + u64::from(s.by) > u64::from(MAX_LBLK)
            {
                return Err(Error::TooBig);
            }
            let path = self.load(tx.ctx, tx.owner, s.from)?;
            if let Some(leaf) = path.last()
                && let Some(i) = leaf.at.checked_sub(1)
                && let Some(e) = self.extent(tx.owner, leaf, i)?
                && e.lblock.0 < s.from
                && e.end() > u64::from(s.from)
            {
                self.split(tx, &path, i, &e, s.from)?;
            }
            s.cursor = Some(LBLK_END);
        } else {
            let to = s.from.checked_sub(s.by).ok_or(Error::Invalid("shift before the start"))?;
            let f = self.find(tx.ctx, tx.owner, to)?;
            let used = f.extent.is_some_and(|e| e.end() > u64::from(to));
            if s.by > 0 && (used || f.next < u64::from(s.from)) {
                return Err(Error::Invalid("shift onto mapped blocks"));
            }
            s.cursor = Some(u64::from(s.from));
        }
        Ok(())
    }

    /// Splits extent `i` at `lblk`; the parts are not joined again.
    fn split(
        &mut self,
        tx: &mut Tx<'_>,
        path: &Path,
        i: usize,
        e: &Extent,
        lblk: u32,
    ) -> Result<()> {
        let at = u64::from(lblk);
        let parts = [cut(e, 0, at), cut(e, at, u64::MAX)];
        let raws: Vec<Raw> = parts.iter().flatten().map(Extent::encode).collect();
        let mut how = AllocHow::nodes_only();
        let mut spare = self.spare(tx, path, 1, raws.len(), &mut how)?;
        self.splice(tx, path, i, 1, &raws, &mut spare)
    }

    /// The last extent of the file.
    fn last(&self, tx: &Tx<'_>) -> Result<Option<Extent>> {
        Ok(self.find(tx.ctx, tx.owner, u32::MAX)?.extent)
    }

    /// Joins the extent that begins at `lblk` with its neighbours in the leaf, where that can be.
    fn rejoin(&mut self, tx: &mut Tx<'_>, lblk: u32) -> Result<()> {
        let path = self.load(tx.ctx, tx.owner, lblk)?;
        if let Some(leaf) = path.last()
            && let Some(i) = leaf.at.checked_sub(1)
            && let Some(e) = self.extent(tx.owner, leaf, i)?
            && e.lblock.0 == lblk
        {
            let pieces: Pieces = smallvec![e];
            let mut how = AllocHow::nodes_only();
            self.put(tx, &path, i, 1, pieces, &mut how)?;
        }
        Ok(())
    }

    /// Moves the extents of the leaf at the cursor down; whether there are none left.
    fn shift_left(&mut self, tx: &mut Tx<'_>, s: &mut Shift) -> Result<bool> {
        let cursor = s.cursor.unwrap_or(0);
        let Ok(at) = u32::try_from(cursor) else { return Ok(true) };
        let f = self.find(tx.ctx, tx.owner, at)?;
        let first = match f.extent {
            Some(e) if e.end() > cursor => e.lblock.0,
            _ => match u32::try_from(f.next) {
                Ok(next) => next,
                Err(_) => return Ok(true),
            },
        };
        let path = self.load(tx.ctx, tx.owner, first)?;
        let leaf = path.last().ok_or(Error::Invalid("no path"))?;
        let i = leaf.at.saturating_sub(1);
        let (raws, end) = self.moved(tx, &path, i, leaf.len, |l| l.checked_sub(s.by))?;
        self.splice(tx, &path, i, raws.len(), &raws, &mut Spare::new())?;
        s.cursor = Some(end);
        Ok(false)
    }

    /// Moves the extents of the last leaf before the cursor up; whether there are none left.
    fn shift_right(&mut self, tx: &mut Tx<'_>, s: &mut Shift) -> Result<bool> {
        let cursor = s.cursor.unwrap_or(0);
        let Some(before) = cursor.checked_sub(1) else { return Ok(true) };
        let path = self.load(tx.ctx, tx.owner, before as u32)?;
        let leaf = path.last().ok_or(Error::Invalid("no path"))?;
        let from = s.from;
        let i = self.with(tx.owner, leaf, |n| if from == 0 { 0 } else { n.position(from - 1) })?;
        if i >= leaf.at {
            return Ok(true);
        }
        let first = self.extent(tx.owner, leaf, i)?.map_or(0, |e| e.lblock.0);
        let (raws, _) = self.moved(tx, &path, i, leaf.at, |l| l.checked_add(s.by))?;
        self.splice(tx, &path, i, raws.len(), &raws, &mut Spare::new())?;
        s.cursor = Some(u64::from(first));
        Ok(false)
    }

    /// The extents `i..upto` of the leaf with their logical blocks moved, and where the last one ended.
    fn moved(
        &self,
        tx: &Tx<'_>,
        path: &Path,
        i: usize,
        upto: usize,
        to: impl Fn(u32) -> Option<u32>,
    ) -> Result<(Vec<Raw>, u64)> {
        let leaf = path.last().ok_or(Error::Invalid("no path"))?;
        self.with(tx.owner, leaf, |n| {
            let mut end = 0;
            let mut raws = Vec::with_capacity(upto.saturating_sub(i));
            for e in (i..upto).map_while(|i| n.extent(i)) {
                let lblk = to(e.lblock.0).ok_or(Error::TooBig)?;
                end = e.end();
                raws.push(Extent { lblock: LBlock(lblk), ..e }.encode());
            }
            Ok((raws, end))
        })?
    }
}
