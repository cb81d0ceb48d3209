//! Changes of state: unwritten blocks that were written, written ones that are to read as zeros.

use super::{ExtentTree, Pieces, push_whole};
use crate::error::{Error, Result};
use crate::map::Progress;
use crate::map::node::cut;
use crate::map::tx::{AllocHow, Tx};
use crate::ondisk::extent::Extent;
use smallvec::smallvec;

/// What happened at the start of a range.
enum Turned {
    /// Everything before this block is as asked.
    Upto(u64),
    /// Nothing is mapped before this block.
    Hole(u64),
}

impl ExtentTree {
    /// See [`crate::map::FileMap::convert`].
    pub fn convert(&mut self, tx: &mut Tx<'_>, lblk: u32, len: u32) -> Result<()> {
        let mut at = u64::from(lblk);
        let end = at + u64::from(len);
        self.in_flight.remove(at, end);
        while at < end {
            at = match self.turn(tx, at, end, false)? {
                Turned::Upto(next) => next,
                Turned::Hole(_) => return Err(Error::Invalid("conversion of a hole")),
            };
            // The range was mapped in one call, and so is in one leaf, unless a split came between.
            if at < end {
                let need = self.convert_credits();
                tx.h.ensure(need)?;
            }
        }
        if self.depth > 0 && tx.h.ensure(2 + u32::from(self.depth))? {
            self.collapse(tx)?;
        }
        Ok(())
    }

    /// See [`crate::map::FileMap::not_written`].
    pub fn not_written(&mut self, lblk: u32, len: u32) {
        self.in_flight.remove(u64::from(lblk), u64::from(lblk) + u64::from(len));
    }

    /// See [`crate::map::FileMap::to_unwritten`].
    pub fn unwrite(&mut self, tx: &mut Tx<'_>, lblk: u32, len: u32) -> Result<Progress> {
        let mut at = u64::from(lblk);
        let end = at + u64::from(len);
        while at < end {
            if !tx.h.ensure(self.split_credits())? {
                return Ok(Progress::More);
            }
            at = match self.turn(tx, at, end, true)? {
                Turned::Upto(next) | Turned::Hole(next) => next,
            };
        }
        Ok(Progress::Done)
    }

    /// Brings the extent at `at`, as far as it lies before `end`, into the state asked for.
    fn turn(&mut self, tx: &mut Tx<'_>, at: u64, end: u64, unwritten: bool) -> Result<Turned> {
        let Ok(lblk) = u32::try_from(at) else { return Ok(Turned::Hole(end)) };
        let found = self.find(tx.ctx, tx.owner, lblk)?;
        match found.extent {
            Some(e) if e.end() > at => {
                if e.unwritten == unwritten {
                    return Ok(Turned::Upto(e.end()));
                }
            }
            _ => return Ok(Turned::Hole(found.next.min(end))),
        }
        let path = self.load(tx.ctx, tx.owner, lblk)?;
        let leaf = path.last().ok_or(Error::Invalid("no path"))?;
        let i = leaf.at.saturating_sub(1);
        let Some(e) = self.extent(tx.owner, leaf, i)? else { return Ok(Turned::Hole(end)) };
        let Some(mid) = cut(&e, at, end) else { return Ok(Turned::Hole(end)) };
        let mut pieces: Pieces = smallvec![];
        pieces.extend(cut(&e, 0, at));
        push_whole(&mut pieces, Extent { unwritten, ..mid });
        pieces.extend(cut(&e, mid.end(), u64::MAX));
        let mut how = AllocHow::nodes_only();
        self.put(tx, &path, i, 1, pieces, &mut how)?;
        Ok(Turned::Upto(mid.end()))
    }
}
