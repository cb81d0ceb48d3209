//! Reading what the map says, past every cache.

use super::lock::{self, Dir, Grant};
use crate::{
    error::{Error, Result},
    inode::{
        Inode, Pass, Ticket, Volume,
        lock_mode::{self, LockMode},
    },
    map::State,
    types::LBlock,
    writeback::{self, Scope, Writeback},
};
use smallvec::SmallVec;
use std::sync::{Arc, atomic::Ordering};

/// A direct read: dirty pages of the range go out first, then the device is read under the
/// inode's lock mode. `off` and the length are multiples of the device's logical
/// block, else `EINVAL`. Returns the bytes read: fewer at the end of the file.
pub fn read_direct(
    vol: &Volume,
    wb: &Writeback,
    inode: &Arc<Inode>,
    off: u64,
    buf: &mut [u8],
    held: Option<Grant>,
) -> Result<usize> {
    let r = admit(vol, wb, inode, off, buf.len(), held)?;
    for p in &r.pieces {
        let out = &mut buf[p.at..p.at + p.len];
        match p.disk {
            Some(d) => vol.dev.read_at(out, d)?,
            None => out.fill(0),
        }
    }
    Ok(r.len)
}

/// A part of a read: where in the buffer, and where on the device, if there.
pub(super) struct Piece {
    pub at: usize,
    pub len: usize,
    pub disk: Option<u64>,
}

/// A direct read that has its locks and knows where its bytes are.
pub(super) struct Admitted {
    /// Bytes before the end of the file.
    pub len: usize,
    pub pieces: SmallVec<[Piece; 2]>,
    /// Held until the read completes.
    pub hold: (Option<Ticket>, Pass),
}

/// Locks (unless it has the lock already), flushes, counts and maps a direct read.
pub(super) fn admit(
    vol: &Volume,
    wb: &Writeback,
    inode: &Arc<Inode>,
    off: u64,
    len: usize,
    mut held: Option<Grant>,
) -> Result<Admitted> {
    let unit = u64::from(vol.dev.logical_block_size());
    if !off.is_multiple_of(unit) || !(len as u64).is_multiple_of(unit) {
        return Err(Error::Invalid("direct read not aligned to the device's blocks"));
    }
    loop {
        let mode = lock_mode::effective(vol, inode);
        let given = held.take();
        let mut ticket = mode.read_share().map(|s| {
            let given = given.and_then(|g| g.take(vol, inode, s));
            given.unwrap_or_else(|| lock::take(vol, inode, mode, s, Dir::Read))
        });
        flush_range(vol, wb, inode, off, len)?;
        let pass = inode.gate.enter();
        if lock_mode::effective(vol, inode) != mode {
            continue;
        }
        let len = clip(inode, off, len);
        let pieces = plan(vol, inode, off, len)?;
        if mode == LockMode::Lock {
            // Counted by the gate from here on, so that its blocks stay its own.
            ticket = None;
        }
        vol.dio.of(mode).reads.fetch_add(1, Ordering::Relaxed);
        return Ok(Admitted { len, pieces, hold: (ticket, pass) });
    }
}

/// Where `len` bytes from `off` are.
fn plan(vol: &Volume, inode: &Inode, off: u64, len: usize) -> Result<SmallVec<[Piece; 2]>> {
    let bs = vol.geo.block_size;
    let ctx = vol.map_ctx();
    let mut out: SmallVec<[Piece; 2]> = SmallVec::new();
    if len == 0 {
        return Ok(out);
    }
    let map = inode.map()?;
    let mut at = 0;
    while at < len {
        let pos = off + at as u64;
        let within = bs.within(pos);
        let lblk = LBlock(u32::try_from(bs.index(pos)).map_err(|_| Error::TooBig)?);
        let want = u32::try_from(bs.blocks_for((within + len - at) as u64)).unwrap_or(u32::MAX);
        let m = map.lookup(&ctx, lblk, want)?;
        let n = ((m.len as usize) << bs.log2()).saturating_sub(within).min(len - at);
        if n == 0 {
            return Err(inode.corrupt("empty mapping"));
        }
        let disk = (m.state == State::Written).then(|| bs.offset(m.pblk) + within as u64);
        out.push(Piece { at, len: n, disk });
        at += n;
    }
    Ok(out)
}

/// Bytes of a request that lie before the end of the file.
pub(super) fn clip(inode: &Inode, off: u64, len: usize) -> usize {
    inode.size().saturating_sub(off).min(len as u64) as usize
}

/// Writes out what is dirty in a range of bytes.
pub(super) fn flush_range(
    vol: &Volume,
    wb: &Writeback,
    inode: &Arc<Inode>,
    off: u64,
    len: usize,
) -> Result<()> {
    let bs = vol.geo.block_size;
    let from = LBlock(u32::try_from(bs.index(off)).unwrap_or(u32::MAX));
    let end = bs.blocks_for(off.saturating_add(len as u64));
    if inode.pages.lock().any_in(from, end) {
        writeback::write_out(vol, wb, inode, Scope::range(from, end))?;
    }
    Ok(())
}

/// Fills `buf` from byte `off` with what the map and the device say: zeros for holes and
/// unwritten blocks. The caller has passed the inode's gate. `off + buf.len()` may pass the
/// end of the file by less than a block.
pub fn read_mapped(vol: &Volume, inode: &Inode, off: u64, buf: &mut [u8]) -> Result<()> {
    let bs = vol.geo.block_size;
    let ctx = vol.map_ctx();
    let journalled = vol.journals_data(inode);
    let mut done = 0;
    while done < buf.len() {
        let pos = off + done as u64;
        let within = bs.within(pos);
        let lblk = LBlock(u32::try_from(bs.index(pos)).map_err(|_| Error::TooBig)?);
        let want = bs.blocks_for((within + buf.len() - done) as u64);
        let want = u32::try_from(want).unwrap_or(u32::MAX);
        let m = inode.map()?.lookup(&ctx, lblk, want)?;
        let n = ((m.len as usize) << bs.log2()).saturating_sub(within).min(buf.len() - done);
        if n == 0 {
            return Err(inode.corrupt("empty mapping"));
        }
        let out = &mut buf[done..done + n];
        match m.state {
            State::Hole | State::Unwritten => out.fill(0),
            State::Written if journalled => {
                for (i, part) in BlockParts::new(bs.bytes(), within, n).enumerate() {
                    let block = m.pblk.plus(i as u64);
                    let at = part.0 + i * bs.bytes() - within;
                    let out = &mut out[at..at + part.1 - part.0];
                    match vol.journal.pending_data(block) {
                        Some(d) => out.copy_from_slice(&d[part.0..part.1]),
                        None => vol.dev.read_at(out, bs.offset(block) + part.0 as u64)?,
                    }
                }
            }
            State::Written => vol.dev.read_at(out, bs.offset(m.pblk) + within as u64)?,
        }
        done += n;
    }
    Ok(())
}

/// The byte ranges of consecutive blocks that `len` bytes from `within` touch.
struct BlockParts {
    bs: usize,
    at: usize,
    end: usize,
}

impl BlockParts {
    fn new(bs: usize, within: usize, len: usize) -> BlockParts {
        BlockParts { bs, at: within, end: within + len }
    }
}

impl Iterator for BlockParts {
    type Item = (usize, usize);
    fn next(&mut self) -> Option<(usize, usize)> {
        if self.at >= self.end {
            return None;
        }
        let base = self.at / self.bs * self.bs;
        let to = (base + self.bs).min(self.end);
        let part = (self.at - base, to - base);
        self.at = to;
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::BlockParts;

    #[test]
    fn parts_cover_the_range() {
        let v: Vec<_> = BlockParts::new(1024, 1000, 1100).collect();
        assert_eq!(v, [(1000, 1024), (0, 1024), (0, 52)]);
    }
}
