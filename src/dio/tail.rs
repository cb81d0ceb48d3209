//! The bytes after the end of a file that is about to grow.

use super::read_mapped;
use crate::{
    device::{
        AlignedBuf,
        seeded::{self, Fault},
    },
    error::{Error, Result},
    inode::{Inode, Volume},
    map::State,
    types::LBlock,
    writeback::Writeback,
};
use std::sync::Arc;

/// Makes the bytes from `size` to the end of its block zero, as a hole is: another writer of the image
/// may have left something there. The block is dirty afterwards if there was. The I/O lock is held.
pub fn zero_tail(vol: &Volume, wb: &Writeback, i: &Arc<Inode>, size: u64) -> Result<()> {
    let bs = vol.geo.block_size;
    let within = bs.within(size);
    if within == 0 || !i.has_map() || seeded::on(Fault::TailNotZeroed) {
        return Ok(());
    }
    let l = LBlock(u32::try_from(bs.index(size)).map_err(|_| Error::TooBig)?);
    if let Some(p) = i.pages.lock().get(l) {
        debug_assert!(p[within..].iter().all(|b| *b == 0));
        return Ok(());
    }
    let m = i.map()?.lookup(&vol.map_ctx(), l, 1)?;
    if m.state != State::Written {
        return Ok(());
    }
    let mut page = AlignedBuf::zeroed(bs.bytes());
    read_mapped(vol, i, u64::from(l.0) << bs.log2(), &mut page)?;
    if page[within..].iter().all(|b| *b == 0) {
        return Ok(());
    }
    page[within..].fill(0);
    wb.dirtied(bs.bytes64());
    i.pages.lock().insert(l, page, false);
    wb.mark(i);
    Ok(())
}
