//! Blocks of an inode that are metadata: directory blocks, long symlinks, the orphan file.

use super::{Inode, Volume};
use crate::{
    alloc::Kind,
    cache::Buffer,
    error::{Corrupt, Error, Result},
    journal::Handle,
    map::{AllocHow, Enter, State},
    ondisk::Seal,
    types::{Block, LBlock},
};
use std::sync::Arc;

/// The buffer of logical block `lblk`, checked against `seal`; `None` for a hole.
pub fn meta_block(
    vol: &Volume,
    inode: &Inode,
    lblk: LBlock,
    seal: &Seal,
) -> Result<Option<Arc<Buffer>>> {
    let m = inode.map()?.lookup(&vol.map_ctx(), lblk, 1)?;
    match m.state {
        State::Hole => Ok(None),
        State::Unwritten => {
            Err(Corrupt::new("metadata in an unwritten extent").ino(inode.ino).into())
        }
        State::Written => vol.cache.read(m.pblk, seal).map(Some),
    }
}

/// Reads ahead `count` blocks from `lblk`, as far as they are contiguous on the device.
pub fn prefetch_meta(vol: &Volume, inode: &Inode, lblk: LBlock, count: u32) -> Result<()> {
    let m = inode.map()?.lookup(&vol.map_ctx(), lblk, count)?;
    if m.state == State::Written {
        vol.cache.prefetch(m.pblk, m.len.min(count));
    }
    Ok(())
}

/// Adds one block at the end of a directory or symlink: maps it, moves the size (in memory and on
/// the next store). The caller fills the block with `Handle::create` and stores the inode.
pub fn append_meta_block(vol: &Volume, h: &mut Handle, inode: &Inode) -> Result<(LBlock, Block)> {
    let bs = vol.geo.block_size;
    let next = bs.blocks_for(inode.size());
    let lblk = LBlock(u32::try_from(next).map_err(|_| Error::TooBig)?);
    let how = AllocHow { root_ok: true, ..AllocHow::new(Enter::Written, Kind::Directory) };
    let m = {
        let mut map = inode.map_mut()?;
        if map.lookup(&vol.map_ctx(), lblk, 1)?.state != State::Hole {
            return Err(inode.corrupt("directory or symlink with a block beyond its size"));
        }
        map.allocate(&vol.map_ctx(), h, lblk, 1, how)?
    };
    let mut a = inode.attrs_mut();
    a.size = (next + 1) << bs.log2();
    a.rec.size = a.size;
    Ok((lblk, m.pblk))
}
