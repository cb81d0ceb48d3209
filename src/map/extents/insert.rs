//! New blocks: allocation into a hole, and the isolation of blocks that are about to be written.

use super::{ExtentTree, Pieces, near};
use crate::error::{Error, Result};
use crate::map::node::cut;
use crate::map::tx::{AllocHow, Tx};
use crate::map::{Enter, MAX_LBLK, Mapping, State};
use crate::ondisk::extent::Extent;
use crate::types::{Block, LBlock};
use smallvec::smallvec;

impl ExtentTree {
    /// See [`crate::map::FileMap::allocate`].
    pub fn allocate(
        &mut self,
        tx: &mut Tx<'_>,
        lblk: u32,
        len: u32,
        mut how: AllocHow<'_>,
    ) -> Result<Mapping> {
        if lblk == MAX_LBLK {
            return Err(Error::TooBig);
        }
        let start = u64::from(lblk);
        let path = self.load(tx.ctx, tx.owner, lblk)?;
        let Some(leaf) = path.last() else { return Err(Error::Invalid("no path")) };
        let before = match leaf.at.checked_sub(1) {
            Some(i) => self.extent(tx.owner, leaf, i)?,
            None => None,
        };
        if before.is_some_and(|e| e.end() > start) {
            return Err(Error::Invalid("block is mapped already"));
        }
        let found = self.find(tx.ctx, tx.owner, lblk)?;
        let hole = found.next.min(u64::from(MAX_LBLK)) - start;
        let unwritten = how.enter != Enter::Written;
        let len = len.max(1).min(Extent::max_len(unwritten));
        let len = u64::from(len).min(hole) as u32;
        let goal = match &before {
            Some(e) => Some(near(e, lblk)),
            None => self.goal(tx.ctx, tx.owner, lblk)?,
        };
        let run = tx.alloc_data(LBlock(lblk), len, goal, &mut how)?;
        let e = Extent { lblock: LBlock(lblk), len: run.len.min(len), block: run.start, unwritten };
        if how.enter == Enter::InFlight {
            self.in_flight.add(start, e.end());
        }
        let (at, pieces): (usize, Pieces) = (leaf.at, smallvec![e]);
        if let Err(err) = self.put(tx, &path, at, 0, pieces, &mut how) {
            self.in_flight.remove(start, e.end());
            return Err(tx.undo(&[run], &[], err));
        }
        Ok(Mapping {
            lblk: LBlock(lblk),
            len: e.len,
            pblk: e.block,
            state: if unwritten { State::Unwritten } else { State::Written },
        })
    }

    /// See [`crate::map::FileMap::attach`].
    pub fn attach(&mut self, tx: &mut Tx<'_>, mut e: Extent) -> Result<()> {
        let end = e.end();
        if e.len == 0 || end > u64::from(MAX_LBLK) {
            return Err(Error::TooBig);
        }
        while u64::from(e.lblock.0) < end {
            let len = e.len.min(Extent::max_len(e.unwritten));
            let hole = self.lookup(tx.ctx, tx.owner, e.lblock.0)?;
            if hole.state != State::Hole || hole.end() < u64::from(e.lblock.0) + u64::from(len) {
                return Err(Error::Invalid("block is mapped already"));
            }
            let path = self.load(tx.ctx, tx.owner, e.lblock.0)?;
            let Some(leaf) = path.last() else { return Err(Error::Invalid("no path")) };
            let (at, pieces): (usize, Pieces) = (leaf.at, smallvec![Extent { len, ..e }]);
            self.put(tx, &path, at, 0, pieces, &mut AllocHow::nodes_only())?;
            tx.count(u64::from(len), true);
            e.lblock = LBlock(e.lblock.0.saturating_add(len));
            e.block = e.block.plus(u64::from(len));
            e.len -= len;
        }
        Ok(())
    }

    /// See [`crate::map::FileMap::split_at`].
    pub fn split_at(
        &mut self,
        tx: &mut Tx<'_>,
        lblk: u32,
        len: u32,
        mut how: AllocHow<'_>,
    ) -> Result<Mapping> {
        let len = len.max(1);
        let path = self.load(tx.ctx, tx.owner, lblk)?;
        let end = u64::from(lblk) + u64::from(len);
        if let Some(leaf) = path.last()
            && let Some(i) = leaf.at.checked_sub(1)
            && let Some(e) = self.extent(tx.owner, leaf, i)?
            && let Some(mid) = cut(&e, u64::from(lblk), end)
        {
            let state = if mid.unwritten { State::Unwritten } else { State::Written };
            if mid.unwritten {
                self.isolate(tx, &path, i, &e, &mid, &mut how)?;
            }
            return Ok(Mapping { lblk: mid.lblock, len: mid.len, pblk: mid.block, state });
        }
        let whole = self.lookup(tx.ctx, tx.owner, lblk)?;
        let left = whole.end() - u64::from(lblk);
        let len = left.min(u64::from(len)) as u32;
        Ok(Mapping { lblk: LBlock(lblk), len, pblk: Block(0), state: State::Hole })
    }

    /// Splits extent `i` so that `mid` is one of its own, and marks it in flight.
    fn isolate(
        &mut self,
        tx: &mut Tx<'_>,
        path: &super::walk::Path,
        i: usize,
        e: &Extent,
        mid: &Extent,
        how: &mut AllocHow<'_>,
    ) -> Result<()> {
        let start = u64::from(mid.lblock.0);
        self.in_flight.add(start, mid.end());
        if mid == e {
            return Ok(());
        }
        let mut pieces: Pieces = smallvec![];
        pieces.extend(cut(e, 0, start));
        pieces.push(*mid);
        pieces.extend(cut(e, mid.end(), u64::MAX));
        let r = self.put(tx, path, i, 1, pieces, how);
        if r.is_err() {
            self.in_flight.remove(start, mid.end());
        }
        r
    }
}
