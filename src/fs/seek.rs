//! lseek's SEEK_DATA and SEEK_HOLE, and bmap.

use super::{Fs, inline};
use crate::{
    error::{Error, Result},
    map::State,
    types::{Ino, LBlock},
    writeback::{self, Scope},
};

impl Fs {
    /// The start of data (or, with `hole`, of a hole) at or after `off`; the end of
    /// the file is a hole. Unwritten blocks are holes; dirty data is data.
    pub fn seek(&self, ino: Ino, off: u64, hole: bool) -> Result<u64> {
        let i = self.file(ino)?;
        let _held = inline::hold(&i);
        let size = i.size();
        if off >= size {
            return Err(Error::NoOffset);
        }
        if !i.has_map() {
            return Ok(if hole { size } else { off });
        }
        let bs = self.vol.geo.block_size;
        let end = bs.blocks_for(size);
        let mut at = bs.index(off);
        while at < end {
            let lblk = LBlock(u32::try_from(at).map_err(|_| Error::TooBig)?);
            let page = i.pages.lock().range(lblk, end).next().map(|(l, _)| u64::from(l.0));
            // Unwritten or hole up to the next page; a page is data.
            let (is_data, next) = if page == Some(at) {
                (true, at + 1)
            } else {
                let stop = page.unwrap_or(end).min(end);
                let want = u32::try_from(stop - at).unwrap_or(u32::MAX);
                let m = self.op("lseek", i.map()?.lookup(&self.vol.map_ctx(), lblk, want))?;
                (m.state == State::Written, at + u64::from(m.len.max(1)))
            };
            if is_data != hole {
                return Ok((at << bs.log2()).max(off));
            }
            at = next;
        }
        if hole { Ok(size) } else { Err(Error::NoOffset) }
    }

    /// The device block of a file block (FIBMAP), 0 for a hole.
    pub fn bmap(&self, ino: Ino, index: u64) -> Result<u64> {
        let i = self.file(ino)?;
        let _held = inline::hold(&i);
        if !i.has_map() {
            return Ok(0);
        }
        writeback::write_out(&self.vol, &self.wb, &i, Scope::ALL)?;
        let lblk = LBlock(u32::try_from(index).map_err(|_| Error::TooBig)?);
        let m = self.op("bmap", i.map()?.lookup(&self.vol.map_ctx(), lblk, 1))?;
        Ok(if m.state == State::Hole { 0 } else { m.pblk.0 })
    }
}
