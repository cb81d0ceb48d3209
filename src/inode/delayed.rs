//! The blocks reserved for dirty pages that have no place yet, and for the map blocks they may need.

use super::{Inode, Volume};
use crate::{
    alloc::Reservation,
    error::{Error, Result},
    types::LBlock,
};

/// What an inode has reserved.
#[derive(Default)]
pub struct Delayed {
    token: Option<Reservation>,
    /// The part of an indirect map that the last map blocks were reserved for.
    part: Option<u32>,
}

impl Delayed {
    fn absorb(&mut self, r: Reservation) {
        match self.token.as_mut() {
            Some(m) => m.absorb(r),
            None => self.token = Some(r),
        }
    }

    /// Without pages that wait for a block there is no map block to wait for either.
    fn tidy(&mut self) {
        if self.token.as_ref().is_none_or(|t| t.data() == 0) {
            *self = Delayed::default();
        }
    }
}

impl Inode {
    /// Reserves a block for each of `holes` pages within `first..stop` that have none, and what the map
    /// may need for them. An extent tree has the reserved pool for that; an indirect map must not meet
    /// a full file system at write-out. No lock of rank 6 or above is held.
    ///
    /// # Errors
    /// `NoSpace`; `Corrupt`, `Io`.
    pub fn reserve(
        &self,
        vol: &Volume,
        first: u64,
        stop: u64,
        holes: u64,
        root_ok: bool,
    ) -> Result<()> {
        let at = |b| u32::try_from(b).map(LBlock).map_err(|_| Error::TooBig);
        let (first, last) = (at(first)?, at(stop.saturating_sub(1))?);
        loop {
            let had = self.delayed.lock().part;
            let (nodes, part) = self.map()?.missing_nodes(&vol.map_ctx(), first, last, had)?;
            let r = vol.alloc.reserve(holes, nodes, root_ok)?;
            let mut mine = self.delayed.lock();
            // A write-out may have taken what was reserved for that part.
            if mine.part == had {
                mine.absorb(r);
                mine.part = part;
                return Ok(());
            }
        }
    }

    /// Takes `blocks` out of the inode's reservation, to give back.
    pub fn take_reservation(&self, blocks: u32) -> Option<Reservation> {
        let mut mine = self.delayed.lock();
        let part = mine.token.as_mut().map(|m| m.split(u64::from(blocks), 0));
        mine.tidy();
        part
    }

    /// Takes `blocks` out of the inode's reservation to write them out, and all that is reserved for its
    /// map; [`Inode::return_reservation`] gets what is left.
    pub fn take_to_write(&self, blocks: u32) -> Option<Reservation> {
        let mut mine = self.delayed.lock();
        let part = mine.token.as_mut().map(|m| m.split(u64::from(blocks), u64::MAX));
        mine.part = None;
        mine.tidy();
        part
    }

    /// What a write-out did not need: the map blocks stay reserved while pages wait for their blocks.
    pub fn return_reservation(&self, mut r: Reservation) {
        let mut mine = self.delayed.lock();
        if mine.token.as_ref().is_some_and(|t| t.data() > 0) {
            mine.absorb(r.split(0, u64::MAX));
        }
    }
}
