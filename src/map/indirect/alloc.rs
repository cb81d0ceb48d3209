//! New blocks of an indirect map.

use super::{DIRECT, IndirectMap, limit, per_block, pointer, read, run_length, set_pointer, spot};
use crate::cache::Buffer;
use crate::error::{Error, Result};
use crate::map::tx::{AllocHow, Tx};
use crate::map::{Enter, Mapping, State};
use crate::ondisk::Seal;
use crate::types::{Block, LBlock};
use smallvec::SmallVec;
use std::sync::Arc;

impl IndirectMap {
    /// See [`crate::map::FileMap::allocate`]. The run stays within one block of pointers.
    pub fn allocate(
        &mut self,
        tx: &mut Tx<'_>,
        lblk: u32,
        len: u32,
        mut how: AllocHow<'_>,
    ) -> Result<Mapping> {
        if how.enter != Enter::Written {
            return Err(Error::NotSupported);
        }
        let per = per_block(tx.ctx.geo);
        let Some(spot) = spot(per, lblk).filter(|_| u64::from(lblk) < limit(per)) else {
            return Err(Error::TooBig);
        };
        let len = u64::from(len.max(1)).min(limit(per) - u64::from(lblk)) as u32;

        // The blocks of pointers that are there, and how long the hole is in the last one.
        let mut have: SmallVec<[Arc<Buffer>; 3]> = SmallVec::new();
        let mut ptr = pointer(&self.root, spot.slot as u32);
        let mut room = if spot.levels == 0 {
            run_length(&self.root[..DIRECT as usize * 4], spot.slot as u32, len)
        } else {
            per - spot.index[spot.levels - 1]
        };
        for level in 0..spot.levels {
            if ptr == 0 {
                break;
            }
            let buf = read(tx.ctx, tx.owner, Block(u64::from(ptr)))?;
            let i = spot.index[level];
            ptr = buf.read(|b| {
                if level + 1 == spot.levels {
                    room = run_length(b, i, len);
                }
                pointer(b, i)
            });
            have.push(buf);
        }
        if ptr != 0 {
            return Err(Error::Invalid("block is mapped already"));
        }

        let mut goal = self.goal(tx.ctx, tx.owner, lblk)?;
        let mut nodes: SmallVec<[Block; 3]> = SmallVec::new();
        for _ in have.len()..spot.levels {
            match tx.alloc_node(goal, &mut how) {
                Ok(b) => {
                    nodes.push(b);
                    goal = Some(b.plus(1));
                }
                Err(e) => return Err(tx.undo(&[], &nodes, e)),
            }
        }
        let run = match tx.alloc_data(LBlock(lblk), len.min(room), goal, &mut how) {
            Ok(run) => run,
            Err(e) => return Err(tx.undo(&[], &nodes, e)),
        };
        let last = run.start.plus(u64::from(run.len));
        let fits = |b: &Block| b.0 <= u64::from(u32::MAX);
        if !fits(&last) || !nodes.iter().all(fits) {
            return Err(tx.undo(&[run], &nodes, Error::NoSpace));
        }

        // New blocks from the lowest up, each with the pointer to what is below it.
        let (mut to, mut count) = (run.start.0 as u32, run.len);
        let fill = |b: &mut [u8], i: u32, to: u32, count: u32| {
            for k in 0..count {
                set_pointer(b, i + k, to + k);
            }
        };
        for (level, block) in (have.len()..spot.levels).zip(&nodes).rev() {
            tx.h.create(*block, &Seal::None, |b| fill(b, spot.index[level], to, count))?;
            (to, count) = (block.0 as u32, 1);
        }
        match have.last() {
            Some(buf) => {
                let i = spot.index[have.len() - 1];
                tx.h.modify(buf, &Seal::None, |b| fill(b, i, to, count))?;
            }
            None => fill(&mut self.root, spot.slot as u32, to, count),
        }
        Ok(Mapping { lblk: LBlock(lblk), len: run.len, pblk: run.start, state: State::Written })
    }
}
