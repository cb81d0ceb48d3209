//! The extent status cache: the last few ranges of a file that a lookup found,
//! so that a hot file is read without walking its tree.

use super::{Mapping, State};
use crate::types::{Block, LBlock};

const SLOTS: usize = 8;

#[derive(Clone, Copy)]
struct Range {
    start: u32,
    end: u64,
    pblk: u64,
    state: State,
}

/// See the module. A fixed few ranges; the oldest goes.
pub(super) struct StatusCache {
    slots: [Range; SLOTS],
    next: usize,
}

impl StatusCache {
    pub fn new() -> StatusCache {
        let none = Range { start: 0, end: 0, pblk: 0, state: State::Hole };
        StatusCache { slots: [none; SLOTS], next: 0 }
    }

    /// What is known from `lblk` on, `max` blocks at most.
    pub fn get(&self, lblk: u32, max: u32) -> Option<Mapping> {
        let at = u64::from(lblk);
        let r = self.slots.iter().find(|r| u64::from(r.start) <= at && at < r.end)?;
        let pblk = match r.state {
            State::Hole => 0,
            _ => r.pblk + (at - u64::from(r.start)),
        };
        Some(Mapping {
            lblk: LBlock(lblk),
            len: (r.end - at).min(u64::from(max)) as u32,
            pblk: Block(pblk),
            state: r.state,
        })
    }

    /// Remembers that `start..end` is one range, at `pblk` if it is not a hole.
    pub fn put(&mut self, start: u32, end: u64, pblk: u64, state: State) {
        self.slots[self.next] = Range { start, end, pblk, state };
        self.next = (self.next + 1) % SLOTS;
    }

    /// Forgets everything: the map changed.
    pub fn clear(&mut self) {
        for s in &mut self.slots {
            s.end = 0;
        }
    }
}
