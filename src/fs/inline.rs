//! Files whose data lies in the inode (`inline_data`): 60 bytes of `i_block`, the rest in the attribute
//! `system.data`. As in the kernel a new file starts there with its first write, and moves to blocks when
//! it grows out of the inode, is extended by truncate, or is to have its blocks changed.

use crate::{
    alloc::Kind,
    device::AlignedBuf,
    error::{Error, Result},
    inode::{Attrs, Inode, Share, Ticket, Volume},
    map::{AllocHow, Enter, FileMap},
    ondisk::{
        InodeFlags,
        inline::{self as format, INLINE_MIN},
    },
    options::DataMode,
    types::LBlock,
};
use std::sync::{Arc, atomic::Ordering};

/// Whether the data lies in the inode now.
fn is_inline(a: &Attrs) -> bool {
    a.rec.flags.contains(InodeFlags::INLINE_DATA)
}

fn read_attrs(i: &Inode, a: &Attrs) -> Result<Vec<u8>> {
    let mut v = a.rec.i_block.to_vec();
    let tail = if a.size > INLINE_MIN as u64 { format::tail(&a.ibody)? } else { None };
    v.extend_from_slice(tail.unwrap_or_default());
    let size = usize::try_from(a.size).ok().filter(|n| *n <= v.len());
    v.truncate(size.ok_or_else(|| i.corrupt("size of inline data"))?);
    Ok(v)
}

/// All of the data.
pub(super) fn read_all(i: &Inode) -> Result<Vec<u8>> {
    read_attrs(i, &i.attrs())
}

/// Reads into `buf` from byte `off`; `None` if the data has moved to blocks meanwhile.
pub(super) fn read(i: &Inode, off: u64, buf: &mut [u8]) -> Result<Option<usize>> {
    let a = i.attrs();
    if !is_inline(&a) {
        return Ok(None);
    }
    let all = read_attrs(i, &a)?;
    let rest = usize::try_from(off).ok().and_then(|from| all.get(from..)).unwrap_or_default();
    let n = buf.len().min(rest.len());
    if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
        to.copy_from_slice(from);
    }
    Ok(Some(n))
}

/// Puts all of the data into the inode; `false`, and nothing changed, if it has no room.
fn put(a: &mut Attrs, data: &[u8]) -> Result<bool> {
    // Without room for a tail the kernel keeps nothing in the inode.
    let room = format::capacity(&a.ibody)?.filter(|n| *n > 0).map(|n| INLINE_MIN + n);
    if room.is_none_or(|n| data.len() > n) {
        return Ok(false);
    }
    let (head, tail) = data.split_at(data.len().min(INLINE_MIN));
    if !format::set_tail(&mut a.ibody, Some(tail))? {
        return Ok(false);
    }
    a.rec.i_block = [0; INLINE_MIN];
    a.rec.i_block.iter_mut().zip(head).for_each(|(to, from)| *to = *from);
    a.rec.flags.insert(InodeFlags::INLINE_DATA);
    a.rec.flags.remove(InodeFlags::EXTENTS);
    a.size = data.len() as u64;
    a.rec.size = a.size;
    Ok(true)
}

/// Whether the file is new: nothing was ever written to it.
fn is_fresh(vol: &Volume, i: &Inode) -> Result<bool> {
    if !i.pages.lock().is_empty() {
        return Ok(false);
    }
    let mut empty = i.attrs().rec.clone();
    FileMap::init_block(&vol.geo, &mut empty);
    Ok(*i.map()?.i_block() == empty.i_block)
}

/// Keeps a file from turning inline while it is looked at by its map; nothing for most files.
pub(super) fn hold(i: &Inode) -> Option<Ticket> {
    i.may_inline.load(Ordering::Acquire).then(|| i.io.acquire(Share::Shared, "read"))
}

/// Writes to a file with inline data, or to one that may begin with them (not by a `direct` write).
/// `false`, and nothing changed, if the file's data belongs in blocks, now or after this write.
pub(super) fn write(
    vol: &Volume,
    i: &Arc<Inode>,
    off: u64,
    data: &[u8],
    direct: bool,
) -> Result<bool> {
    if i.has_map() && !i.may_inline.load(Ordering::Acquire) {
        return Ok(false);
    }
    let _lock = i.io.acquire(Share::Exclusive, "write");
    let done = if direct && i.has_map() { Ok(false) } else { write_locked(vol, i, off, data) };
    if i.has_map() {
        i.may_inline.store(false, Ordering::Release);
    }
    done
}

fn write_locked(vol: &Volume, i: &Arc<Inode>, off: u64, data: &[u8]) -> Result<bool> {
    let mapped = i.has_map();
    if mapped && !(i.may_inline.load(Ordering::Acquire) && is_fresh(vol, i)?) {
        return Ok(false);
    }
    // No inode is larger than a block, and none of them holds more data than it has bytes.
    let size = i.size();
    let end = off.saturating_add(data.len() as u64);
    if end.max(size) > u64::from(vol.geo.inode_size) {
        return Ok(false);
    }
    let (off, end) = (off as usize, end as usize);
    let mut all = if mapped { vec![0; size as usize] } else { read_all(i)? };
    all.resize(all.len().max(end), 0);
    if let Some(to) = all.get_mut(off..end) {
        to.copy_from_slice(data);
    }
    let mut h = vol.journal.start("inline_data", 3)?;
    {
        let _x = i.xattr.write();
        let mut a = i.attrs_mut();
        if !put(&mut a, &all)? {
            return Ok(false);
        }
        let now = vol.now();
        a.rec.mtime = now;
        a.rec.ctime = now;
    }
    if mapped {
        // What attributes count (their block, their own inodes) stays with the record.
        let blocks = i.blocks512();
        i.set_map(None);
        i.attrs_mut().rec.blocks = blocks;
    }
    i.store(vol, &mut h)?;
    h.stop()?;
    Ok(true)
}

/// Moves the data to a block of its own, if they are inline; they never are again.
pub(super) fn to_blocks(vol: &Volume, i: &Arc<Inode>) -> Result<()> {
    if i.has_map() && !i.may_inline.load(Ordering::Acquire) {
        return Ok(());
    }
    let _lock = i.io.acquire(Share::Exclusive, "inline data to blocks");
    to_blocks_locked(vol, i)
}

fn to_blocks_locked(vol: &Volume, i: &Arc<Inode>) -> Result<()> {
    if i.has_map() {
        i.may_inline.store(false, Ordering::Release);
        return Ok(());
    }
    if !i.flags().contains(InodeFlags::INLINE_DATA) {
        return Err(Error::Invalid("inode has no data"));
    }
    let data = read_all(i)?;
    // Nobody reads the block before it is written.
    let _closed = i.gate.close();
    let mut h = vol.journal.start("inline_data", 16)?;
    let mut rec = i.attrs().rec.clone();
    rec.flags.remove(InodeFlags::INLINE_DATA);
    FileMap::init_block(&vol.geo, &mut rec);
    let mut map = FileMap::from_inode(&vol.geo, i.ino, &rec)?;
    if vol.conf.data == DataMode::Journal {
        map.set_journalled(true);
    }
    let mut place = None;
    if !data.is_empty() {
        let mut block = AlignedBuf::zeroed(vol.geo.block_size.bytes());
        block
            .get_mut(..data.len())
            .ok_or_else(|| i.corrupt("size of inline data"))?
            .copy_from_slice(&data);
        let how = AllocHow::new(Enter::Written, Kind::Data);
        let m = map.allocate(&vol.map_ctx(), &mut h, LBlock(0), 1, how)?;
        place = Some((m.pblk, block));
    }
    {
        let _x = i.xattr.write();
        let mut a = i.attrs_mut();
        format::set_tail(&mut a.ibody, None)?;
        a.rec.flags = rec.flags;
    }
    i.set_map(Some(map));
    i.may_inline.store(false, Ordering::Release);
    i.store(vol, &mut h)?;
    match place {
        None => h.stop(),
        Some((at, block)) if vol.journals_data(i) => {
            h.journal_data(at, Arc::new(block))?;
            h.stop()
        }
        Some((at, block)) => {
            // On the device before the transaction that points to it can commit.
            let token = h.attach();
            h.stop()?;
            let written = vol.dev.write_at(&block, vol.geo.block_size.offset(at));
            match &written {
                Ok(()) => token.done(),
                Err(e) => token.fail(e),
            }
            written
        }
    }
}

/// Sets the size of a file with inline data: in place if it shrinks, else by way of a block, as the
/// kernel does. Whether all is done. The I/O lock is held.
pub(super) fn truncate(vol: &Volume, i: &Arc<Inode>, size: u64) -> Result<bool> {
    if i.has_map() {
        return Ok(false);
    }
    if size > i.size() {
        to_blocks_locked(vol, i)?;
        return Ok(false);
    }
    let mut all = read_all(i)?;
    all.truncate(size as usize);
    let mut h = vol.journal.start("truncate", 3)?;
    {
        let _x = i.xattr.write();
        let mut a = i.attrs_mut();
        if !put(&mut a, &all)? {
            // Not even what was there fits by the rules of now.
            drop(a);
            drop(_x);
            h.stop()?;
            to_blocks_locked(vol, i)?;
            return Ok(false);
        }
        let now = vol.now();
        a.rec.mtime = now;
        a.rec.ctime = now;
    }
    i.store(vol, &mut h)?;
    h.stop()?;
    Ok(true)
}
