//! Direct writes. Blocks that are not written yet are allocated unwritten and
//! converted when the data is down, in every lock mode; the size moves after that.

use super::{
    Grant,
    lock::{self, Dir},
    read,
    tail::zero_tail,
};
use crate::{
    alloc::Kind,
    device::{
        AlignedBuf,
        seeded::{self, Fault},
    },
    error::{Error, Result},
    inode::{Inode, Pass, Share, Ticket, Volume, lock_mode},
    map::{AllocHow, Enter, Mapping, State},
    types::LBlock,
    writeback::{self, Scope, Writeback},
};
use smallvec::SmallVec;
use std::sync::{Arc, atomic::Ordering};

/// Writes `data` at `off`, both multiples of the device's logical block (else
/// `EINVAL`), and returns when it is on the device and in the map. `root_ok`: the writer may use the
/// reserved blocks. `held`: the lock, if the caller has it for this write.
/// `Ok(None)`: this file needs the page cache (indirect map with holes in the range); the
/// caller writes buffered and then writes out.
pub fn write_direct(
    vol: &Volume,
    wb: &Writeback,
    inode: &Arc<Inode>,
    off: u64,
    data: &[u8],
    root_ok: bool,
    held: &mut Option<Grant>,
) -> Result<Option<usize>> {
    let unit = u64::from(vol.dev.logical_block_size());
    if !off.is_multiple_of(unit) || !(data.len() as u64).is_multiple_of(unit) {
        return Err(Error::Invalid("direct write not aligned to the device's blocks"));
    }
    if data.is_empty() {
        return Ok(Some(0));
    }
    let end = off.checked_add(data.len() as u64).ok_or(Error::TooBig)?;
    if let Some(w) = admit_overwrite(vol, wb, inode, off, end, held)? {
        write_pieces(vol, &w.pieces, off, data)?;
        return Ok(Some(data.len()));
    }
    let mode = lock_mode::effective(vol, inode);
    let given = held.take().and_then(|g| g.take(vol, inode, Share::Exclusive));
    let lock = given.unwrap_or_else(|| lock::take(vol, inode, mode, Share::Exclusive, Dir::Write));
    read::flush_range(vol, wb, inode, off, data.len())?;
    let _pass = inode.gate.enter();
    vol.dio.of(mode).writes.fetch_add(1, Ordering::Relaxed);
    if let Some(pieces) = written_pieces(vol, inode, off, end)? {
        write_pieces(vol, &pieces, off, data)?;
        return Ok(Some(data.len()));
    }
    if !inode.map()?.is_extents() {
        return Ok(None);
    }
    if end > inode.attrs().rec.size {
        if off > inode.size() {
            zero_tail(vol, wb, inode, inode.size())?;
        }
        // The size may pass no dirty data below it.
        writeback::write_out(vol, wb, inode, Scope::ALL)?;
    }
    vol.dio.of(mode).conversions.fetch_add(1, Ordering::Relaxed);
    let blocks = prepare(vol, inode, off, end, root_ok)?;
    // With a reader let in at the worst moment.
    if seeded::on(Fault::DirectBeforeData) {
        finish(vol, inode, &blocks, end)?;
        vol.journal.commit_all()?;
    }
    write_new(vol, inode, &blocks, off, data)?;
    finish(vol, inode, &blocks, end)?;
    drop(lock);
    Ok(Some(data.len()))
}

/// Whether all the bytes lie in written blocks before the end of the file.
pub fn overwrites(vol: &Volume, inode: &Inode, off: u64, len: usize) -> Result<bool> {
    let end = off.checked_add(len as u64).ok_or(Error::TooBig)?;
    Ok(written_pieces(vol, inode, off, end)?.is_some())
}

/// A direct write to blocks that are all written, with its locks.
pub(super) struct Overwrite {
    pub pieces: Pieces,
    /// Held until the write completes.
    pub hold: (Ticket, Pass),
}

/// Locks, flushes, counts and maps a write if it changes neither map nor size: then it shares the
/// lock where the mode lets it. `None`: it has to allocate, convert or extend.
pub(super) fn admit_overwrite(
    vol: &Volume,
    wb: &Writeback,
    inode: &Arc<Inode>,
    off: u64,
    end: u64,
    held: &mut Option<Grant>,
) -> Result<Option<Overwrite>> {
    loop {
        if written_pieces(vol, inode, off, end)?.is_none() {
            return Ok(None);
        }
        let mode = lock_mode::effective(vol, inode);
        let share = mode.overwrite_share();
        let given = held.take().and_then(|g| g.take(vol, inode, share));
        let ticket = given.unwrap_or_else(|| lock::take(vol, inode, mode, share, Dir::Write));
        if lock_mode::effective(vol, inode) != mode {
            continue;
        }
        read::flush_range(vol, wb, inode, off, (end - off) as usize)?;
        let pass = inode.gate.enter();
        // The map may have changed while we waited.
        let Some(pieces) = written_pieces(vol, inode, off, end)? else { return Ok(None) };
        vol.dio.of(mode).writes.fetch_add(1, Ordering::Relaxed);
        return Ok(Some(Overwrite { pieces, hold: (ticket, pass) }));
    }
}

pub(super) type Pieces = SmallVec<[Mapping; 4]>;

/// Where the bytes are, if all of them lie in written blocks before the end of the file.
pub(super) fn written_pieces(
    vol: &Volume,
    inode: &Inode,
    off: u64,
    end: u64,
) -> Result<Option<Pieces>> {
    let bs = vol.geo.block_size;
    let mut v = Pieces::new();
    if end > inode.size() {
        return Ok(None);
    }
    let ctx = vol.map_ctx();
    let map = inode.map()?;
    let mut at = bs.index(off);
    let stop = bs.blocks_for(end);
    while at < stop {
        let lblk = LBlock(u32::try_from(at).map_err(|_| Error::TooBig)?);
        let m = map.lookup(&ctx, lblk, (stop - at) as u32)?;
        if m.state != State::Written {
            return Ok(None);
        }
        at += u64::from(m.len);
        v.push(m);
    }
    Ok(Some(v))
}

/// Writes the bytes into blocks that are all written: just the sectors.
fn write_pieces(vol: &Volume, pieces: &Pieces, off: u64, data: &[u8]) -> Result<()> {
    for m in pieces {
        let (part, disk) = place(vol, m, off, data.len());
        vol.dev.write_at(&data[part], disk)?;
    }
    Ok(())
}

/// The part of a request of `len` bytes at `off` that lies in a mapping, and its place on the device.
pub(super) fn place(
    vol: &Volume,
    m: &Mapping,
    off: u64,
    len: usize,
) -> (std::ops::Range<usize>, u64) {
    let (start, stop) = span(vol, m);
    let (a, b) = (start.max(off), stop.min(off + len as u64));
    let part = (a - off) as usize..(b - off) as usize;
    (part, vol.geo.block_size.offset(m.pblk) + (a - start))
}

/// The bytes of the file that a mapping covers.
fn span(vol: &Volume, m: &Mapping) -> (u64, u64) {
    let bs = vol.geo.block_size;
    let start = u64::from(m.lblk.0) << bs.log2();
    (start, start + (u64::from(m.len) << bs.log2()))
}

/// Maps every block of the range; what was a hole becomes unwritten, and what is
/// unwritten is split, so that the conversion needs no block.
fn prepare(vol: &Volume, inode: &Arc<Inode>, off: u64, end: u64, root_ok: bool) -> Result<Pieces> {
    let bs = vol.geo.block_size;
    let ctx = vol.map_ctx();
    let (mut at, stop) = (bs.index(off), bs.blocks_for(end));
    if stop > vol.geo.max_file_blocks() {
        return Err(Error::TooBig);
    }
    let credits = inode.map()?.credits_for_alloc() + 1;
    let mut h = vol.journal.start("direct_IO", credits)?;
    let mut v = Pieces::new();
    while at < stop {
        if !h.ensure(credits)? {
            inode.store(vol, &mut h)?;
            h.restart(credits)?;
        }
        let lblk = LBlock(u32::try_from(at).map_err(|_| Error::TooBig)?);
        let mut map = inode.map_mut()?;
        let mut m = map.lookup(&ctx, lblk, (stop - at) as u32)?;
        let how = AllocHow {
            size_hint: end.max(inode.size()),
            root_ok,
            ..AllocHow::new(Enter::InFlight, Kind::Data)
        };
        match m.state {
            State::Written => {}
            State::Unwritten => m = map.split_at(&ctx, &mut h, lblk, m.len, how)?,
            State::Hole => m = map.allocate(&ctx, &mut h, lblk, m.len, how)?,
        }
        at += u64::from(m.len);
        v.push(m);
    }
    inode.store(vol, &mut h)?;
    h.stop()?;
    Ok(v)
}

/// Writes into a mix of written and new blocks. What a new block's caller did not give is
/// zeroed in the same request.
fn write_new(vol: &Volume, inode: &Inode, pieces: &Pieces, off: u64, data: &[u8]) -> Result<()> {
    let bs = vol.geo.block_size;
    let end = off + data.len() as u64;
    for m in pieces {
        let (start, stop) = span(vol, m);
        let (a, b) = (start.max(off), stop.min(end));
        let bytes = &data[(a - off) as usize..(b - off) as usize];
        if m.state == State::Written && end <= inode.size() {
            vol.dev.write_at(bytes, bs.offset(m.pblk) + (a - start))?;
            continue;
        }
        // Whole blocks: the head and the tail that are not given are zero, but for what a
        // written block holds before the end of the file.
        let first = a & !(bs.bytes64() - 1);
        let last = b.div_ceil(bs.bytes64()) << bs.log2();
        let disk = bs.offset(m.pblk) + (first - start);
        if first == a && last == b {
            vol.dev.write_at(bytes, disk)?;
            continue;
        }
        let mut buf = AlignedBuf::zeroed((last - first) as usize);
        if m.state == State::Written {
            vol.dev.read_at(&mut buf, disk)?;
            let keep = inode.size().saturating_sub(first).min(last - first) as usize;
            buf[keep..].fill(0);
        }
        buf[(a - first) as usize..(b - first) as usize].copy_from_slice(bytes);
        vol.dev.write_at(&buf, disk)?;
    }
    Ok(())
}

/// The data is down: unwritten blocks turn written, the size moves.
fn finish(vol: &Volume, inode: &Arc<Inode>, pieces: &Pieces, end: u64) -> Result<()> {
    let credits = inode.map()?.credits_for_convert() + 1;
    let mut h = vol.journal.start("direct_IO_end", credits)?;
    let ctx = vol.map_ctx();
    for m in pieces.iter().filter(|m| m.state == State::Unwritten) {
        if !h.ensure(credits)? {
            // What is converted so far commits with a size that covers it.
            grow(inode, end.min(u64::from(m.lblk.0) << vol.geo.block_size.log2()));
            inode.store(vol, &mut h)?;
            h.restart(credits)?;
        }
        inode.map_mut()?.convert(&ctx, &mut h, m.lblk, m.len)?;
    }
    grow(inode, end);
    inode.store(vol, &mut h)?;
    h.stop()
}

/// Both sizes are at least `end` from now on. Inside a handle.
fn grow(inode: &Inode, end: u64) {
    let mut a = inode.attrs_mut();
    a.size = a.size.max(end);
    a.rec.size = a.rec.size.max(end);
}
