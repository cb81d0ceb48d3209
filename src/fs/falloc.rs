//! fallocate(2): allocate, punch, zero, collapse, insert.

use super::{Cred, Fs, reap};
use crate::{
    alloc::Kind,
    error::{Error, Result},
    inode::{Inode, Share, truncate},
    map::{AllocHow, Enter, Progress, Shift, State},
    trace,
    types::{Ino, LBlock},
    writeback::{self, Scope},
};
use std::sync::Arc;

bitflags::bitflags! {
    /// Mode bits of fallocate(2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FallocMode: u32 {
        /// Blocks may lie past the end of the file; the size stays.
        const KEEP_SIZE = 0x01;
        /// Free the range.
        const PUNCH_HOLE = 0x02;
        /// Cut the range out.
        const COLLAPSE_RANGE = 0x08;
        /// Zero the range, keeping its blocks.
        const ZERO_RANGE = 0x10;
        /// Make room in front of the offset.
        const INSERT_RANGE = 0x20;
    }
}

impl Fs {
    /// fallocate(2) on `off..off + len`.
    pub fn fallocate(&self, cred: Cred, ino: Ino, off: u64, len: u64, mode: u32) -> Result<()> {
        self.vol.writable()?;
        let mode = FallocMode::from_bits(mode).ok_or(Error::NotSupported)?;
        let i = self.file(ino)?;
        self.may_write(&i)?;
        if len == 0 {
            return Err(Error::Invalid("length of 0"));
        }
        let end = off.checked_add(len).ok_or(Error::TooBig)?;
        if end > self.max_size(&i) {
            return Err(Error::TooBig);
        }
        let moved = self.retry_space(|| super::inline::to_blocks(&self.vol, &i));
        self.op("fallocate", moved)?;
        let extents = i.map()?.is_extents();
        let keep = mode.contains(FallocMode::KEEP_SIZE);
        let what = mode - FallocMode::KEEP_SIZE;
        if !extents && what != FallocMode::PUNCH_HOLE {
            return Err(Error::NotSupported);
        }
        trace::event!(FallocateEnter, i.ino, offset: off, len: len, mode: mode.bits());
        let _lock = i.io.acquire(Share::Exclusive, "fallocate");
        let root_ok = self.may_use_reserve(cred);
        let r = if what.is_empty() {
            self.retry_space(|| self.allocate(&i, off, end, keep, root_ok))
        } else if what == FallocMode::PUNCH_HOLE {
            if !keep {
                return Err(Error::NotSupported);
            }
            self.retry_space(|| self.punch(&i, off, end))
        } else if what == FallocMode::ZERO_RANGE {
            self.retry_space(|| self.zero_range(&i, off, end, keep, root_ok))
        } else if what == FallocMode::COLLAPSE_RANGE && !keep {
            self.collapse(&i, off, len)
        } else if what == FallocMode::INSERT_RANGE && !keep {
            self.insert(&i, off, len)
        } else {
            return Err(Error::NotSupported);
        };
        trace::event!(FallocateExit, i.ino, pos: off, len: len, ret: trace::ret(&r));
        self.op("fallocate", r)
    }

    /// Allocates what is not there as unwritten; then moves the size.
    fn allocate(
        &self,
        i: &Arc<Inode>,
        off: u64,
        end: u64,
        keep: bool,
        root_ok: bool,
    ) -> Result<()> {
        let bs = self.vol.geo.block_size;
        if end > i.size() && !keep {
            self.zero_tail(i, i.size())?;
            writeback::write_out(&self.vol, &self.wb, i, Scope::ALL)?;
        }
        let mut at = bs.index(off);
        let filled = self.fill_holes(i, &mut at, bs.blocks_for(end), end, root_ok);
        // Where the space ends, so does the file.
        let reached = if filled.is_ok() { end } else { end.min(at << bs.log2()) };
        let mut h = self.vol.journal.start("fallocate", 2)?;
        self.size_to(i, if keep { 0 } else { reached });
        i.store(&self.vol, &mut h)?;
        self.finish(h, &[i])?;
        filled
    }

    /// Times, and a larger size if `end` is past the present one. Inside a handle.
    fn size_to(&self, i: &Inode, end: u64) {
        let now = self.vol.now();
        let mut a = i.attrs_mut();
        if end > a.size {
            a.size = end;
            a.rec.size = end;
        }
        a.rec.mtime = now;
        a.rec.ctime = now;
    }

    /// Unwritten blocks for every hole of `at..stop`; `at` moves as far as there is space. The I/O lock
    /// is held.
    fn fill_holes(
        &self,
        i: &Arc<Inode>,
        at: &mut u64,
        stop: u64,
        size_hint: u64,
        root_ok: bool,
    ) -> Result<()> {
        let vol = &self.vol;
        let ctx = vol.map_ctx();
        // A page that waits would find its block unwritten instead of reserved: written out first.
        let from = lblk(*at)?;
        if i.pages.lock().any_in(from, stop) {
            writeback::write_out(vol, &self.wb, i, Scope::range(from, stop))?;
        }
        let credits = i.map()?.credits_for_alloc() + 1;
        let mut h = vol.journal.start("fallocate", credits)?;
        let mut result = Ok(());
        while *at < stop {
            if !h.ensure(credits)? {
                i.store(vol, &mut h)?;
                h.restart(credits)?;
            }
            let lblk = lblk(*at)?;
            let want = u32::try_from(stop - *at).unwrap_or(u32::MAX);
            let mut map = i.map_mut()?;
            let mut m = map.lookup(&ctx, lblk, want)?;
            if m.state == State::Hole {
                let new = AllocHow::new(Enter::Unwritten, Kind::Data);
                let how = AllocHow { size_hint, root_ok, ..new };
                match map.allocate(&ctx, &mut h, lblk, m.len.min(2048), how) {
                    Ok(got) => m = got,
                    Err(e) => {
                        result = Err(e);
                        break;
                    }
                }
            }
            *at += u64::from(m.len.max(1));
        }
        i.store(vol, &mut h)?;
        h.stop()?;
        result
    }

    /// Frees whole blocks of the range, zeroes the parts of blocks at its ends.
    fn punch(&self, i: &Arc<Inode>, off: u64, end: u64) -> Result<()> {
        let vol = &self.vol;
        let bs = vol.geo.block_size;
        let size = i.size();
        if off >= size {
            let mut h = vol.journal.start("punch_hole", 2)?;
            self.size_to(i, 0);
            i.store(vol, &mut h)?;
            return self.finish(h, &[i]);
        }
        // The rest of the last block goes with it.
        let end = if end >= size { bs.blocks_for(size) << bs.log2() } else { end };
        let closed = i.gate.close();
        self.zero_edges(i, off, end)?;
        let (from, stop) = (bs.blocks_for(off), bs.index(end));
        vol.alloc.discard_prealloc(i.ino);
        let mut h = vol.journal.start("punch_hole", truncate::remove_credits(i) + 2)?;
        if from < stop {
            reap::drop_pages(vol, &self.wb, i, lblk(from)?, stop);
            truncate::remove_blocks(vol, &mut h, i, lblk(from)?, stop)?;
        }
        self.size_to(i, 0);
        // What was dropped no longer holds the size on disk back.
        let disk = lblk(bs.index(i.attrs().rec.size))?;
        let low = i.pages.lock().lowest_unwritten(disk);
        {
            let mut a = i.attrs_mut();
            let reached = low.map_or(a.size, |l| a.size.min(u64::from(l.0) << bs.log2()));
            a.rec.size = a.rec.size.max(reached);
        }
        i.store(vol, &mut h)?;
        drop(closed);
        self.finish(h, &[i])
    }

    /// Zeroes the parts of `off..end` that are not whole blocks, in the page or on the device. The gate
    /// is closed.
    fn zero_edges(&self, i: &Arc<Inode>, off: u64, end: u64) -> Result<()> {
        let bs = self.vol.geo.block_size;
        let (a, z) = (bs.index(off), bs.index(end));
        if bs.within(off) != 0 || a == z {
            let to = if a == z { bs.within(end) } else { bs.bytes() };
            self.zero_part(i, a, bs.within(off), to)?;
        }
        if a != z && bs.within(end) != 0 {
            self.zero_part(i, z, 0, bs.within(end))?;
        }
        Ok(())
    }

    /// Zeroes bytes `from..to` of a block. What the device has is zero there before this returns; what
    /// it does not have yet follows with its page.
    fn zero_part(&self, i: &Arc<Inode>, block: u64, from: usize, to: usize) -> Result<()> {
        let (vol, l) = (&self.vol, lblk(block)?);
        let in_page = i.pages.lock().get_mut(l).map(|p| p[from..to].fill(0)).is_some();
        if !in_page {
            return self.zero_on_device(i, block << vol.geo.block_size.log2(), from, to);
        }
        if i.map()?.lookup(&vol.map_ctx(), l, 1)?.state == State::Written {
            writeback::write_out(vol, &self.wb, i, Scope::range(l, block + 1))?;
        }
        Ok(())
    }

    /// Whole blocks turn unwritten (holes are allocated), the ends are zeroed.
    fn zero_range(
        &self,
        i: &Arc<Inode>,
        off: u64,
        end: u64,
        keep: bool,
        root_ok: bool,
    ) -> Result<()> {
        let vol = &self.vol;
        let bs = vol.geo.block_size;
        if end > i.size() {
            self.zero_tail(i, i.size())?;
        }
        writeback::write_out(vol, &self.wb, i, Scope::ALL)?;
        let closed = i.gate.close();
        self.zero_edges(i, off, end)?;
        self.fill_holes(i, &mut bs.index(off), bs.blocks_for(end), end, root_ok)?;
        let (mut at, stop) = (bs.blocks_for(off), bs.index(end));
        let credits = i.map()?.credits_for_alloc() + 1;
        let mut h = vol.journal.start("zero_range", credits)?;
        while at < stop {
            if !h.ensure(credits)? {
                i.store(vol, &mut h)?;
                h.restart(credits)?;
            }
            let n = (stop - at).min(2048) as u32;
            truncate::to_unwritten(vol, &mut h, i, lblk(at)?, n, credits)?;
            at += u64::from(n);
        }
        self.size_to(i, if keep { 0 } else { end });
        i.store(vol, &mut h)?;
        drop(closed);
        self.finish(h, &[i])
    }

    fn collapse(&self, i: &Arc<Inode>, off: u64, len: u64) -> Result<()> {
        let bs = self.vol.geo.block_size;
        if bs.within(off) != 0 || bs.within(len) != 0 {
            return Err(Error::Invalid("collapse range not aligned to blocks"));
        }
        if off + len >= i.size() {
            return Err(Error::Invalid("collapse range reaches the end of the file"));
        }
        self.shift(i, off, len, true)
    }

    fn insert(&self, i: &Arc<Inode>, off: u64, len: u64) -> Result<()> {
        let bs = self.vol.geo.block_size;
        if bs.within(off) != 0 || bs.within(len) != 0 {
            return Err(Error::Invalid("insert range not aligned to blocks"));
        }
        if off >= i.size() {
            return Err(Error::Invalid("insert range at or past the end of the file"));
        }
        if i.size().checked_add(len).is_none_or(|s| s > self.max_size(i)) {
            return Err(Error::TooBig);
        }
        self.shift(i, off, len, false)
    }

    /// Moves everything behind `off` (collapse: behind the range) by `len` bytes. On an error in the
    /// middle the map is valid but partly moved, as in the kernel.
    fn shift(&self, i: &Arc<Inode>, off: u64, len: u64, left: bool) -> Result<()> {
        let vol = &self.vol;
        let bs = vol.geo.block_size;
        writeback::write_out(vol, &self.wb, i, Scope::ALL)?;
        let closed = i.gate.close();
        vol.alloc.discard_prealloc(i.ino);
        let (at, by) = (lblk(bs.index(off))?, lblk(bs.index(len))?.0);
        let mut h = vol.journal.start("shift_range", truncate::remove_credits(i) + 2)?;
        if left {
            truncate::remove_blocks(vol, &mut h, i, at, u64::from(at.0) + u64::from(by))?;
        }
        let mut s = if left { Shift::left(LBlock(at.0 + by), by) } else { Shift::right(at, by) };
        loop {
            let p = i.map_mut()?.shift(&vol.map_ctx(), &mut h, &mut s)?;
            i.store(vol, &mut h)?;
            match p {
                Progress::Done => break,
                Progress::More => h.restart(truncate::remove_credits(i) + 2)?,
            }
        }
        {
            let now = vol.now();
            let mut a = i.attrs_mut();
            a.size = if left { a.size - len } else { a.size + len };
            a.rec.size = a.size;
            a.rec.mtime = now;
            a.rec.ctime = now;
        }
        i.store(vol, &mut h)?;
        drop(closed);
        self.finish(h, &[i])
    }
}

fn lblk(n: u64) -> Result<LBlock> {
    u32::try_from(n).map(LBlock).map_err(|_| Error::TooBig)
}
