//! Files whose data lies in the inode (`inline_data`): 60 bytes of `i_block`, the
//! rest in the attribute `system.data`. They are read where they are; the first
//! write moves them to blocks.

use crate::{
    alloc::Kind,
    device::AlignedBuf,
    error::{Error, Result},
    inode::{Inode, Share, Volume},
    map::{AllocHow, Enter, FileMap},
    ondisk::{self, InodeFlags},
    options::DataMode,
    types::LBlock,
};
use std::sync::Arc;

/// All of the data.
pub(super) fn read_all(i: &Inode) -> Result<Vec<u8>> {
    let size = i.size() as usize;
    let mut v = i.attrs().rec.i_block.to_vec();
    if size > v.len() {
        let a = i.attrs();
        v.extend_from_slice(ondisk::inline::tail(&a.ibody)?.unwrap_or_default());
    }
    if size > v.len() {
        return Err(i.corrupt("size of inline data"));
    }
    v.truncate(size);
    Ok(v)
}

/// Reads into `buf` from byte `off`.
pub(super) fn read(i: &Inode, off: u64, buf: &mut [u8]) -> Result<usize> {
    let all = read_all(i)?;
    let from = (off.min(all.len() as u64)) as usize;
    let n = buf.len().min(all.len() - from);
    buf[..n].copy_from_slice(&all[from..from + n]);
    Ok(n)
}

/// Moves the data to a block of its own. Does nothing if it is there already.
pub(super) fn to_blocks(vol: &Volume, i: &Arc<Inode>) -> Result<()> {
    let _lock = i.io.acquire(Share::Exclusive, "inline data to blocks");
    if i.has_map() {
        return Ok(());
    }
    if !i.flags().contains(InodeFlags::INLINE_DATA) {
        return Err(Error::Invalid("inode has no data"));
    }
    let data = read_all(i)?;
    let closed = i.gate.close();
    let mut h = vol.journal.start("inline_data", 16)?;
    let mut rec = i.attrs().rec.clone();
    rec.flags.remove(InodeFlags::INLINE_DATA);
    FileMap::init_block(&vol.geo, &mut rec);
    let mut map = FileMap::from_inode(&vol.geo, i.ino, &rec)?;
    if vol.conf.data == DataMode::Journal {
        map.set_journalled(true);
    }
    if !data.is_empty() {
        let how = AllocHow::new(Enter::Written, Kind::Data);
        let m = map.allocate(&vol.map_ctx(), &mut h, LBlock(0), 1, how)?;
        let mut block = AlignedBuf::zeroed(vol.geo.block_size.bytes());
        block
            .get_mut(..data.len())
            .ok_or_else(|| i.corrupt("size of inline data"))?
            .copy_from_slice(&data);
        // On the device before the transaction that points to it can commit.
        vol.dev.write_at(&block, vol.geo.block_size.offset(m.pblk))?;
    }
    {
        let _x = i.xattr.write();
        let mut a = i.attrs_mut();
        ondisk::inline::set_tail(&mut a.ibody, None)?;
        a.rec.flags = rec.flags;
    }
    i.set_map(Some(map));
    i.store(vol, &mut h)?;
    drop(closed);
    h.stop()
}

/// Sets the size of a file with inline data: to zero in place, else by way of a block.
pub(super) fn truncate(vol: &Volume, i: &Arc<Inode>, size: u64) -> Result<()> {
    if size == i.size() {
        return Ok(());
    }
    to_blocks(vol, i)
}
