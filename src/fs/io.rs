//! Reading and writing files, fsync.

use super::{Cred, Fs};
use crate::device::seeded::{self, Fault};
use crate::{
    device::AlignedBuf,
    dio,
    error::{Error, Result},
    inode::{Inode, Share, mode},
    map::State,
    ondisk::InodeFlags,
    trace,
    types::{Ino, LBlock},
    writeback::{self, Scope},
    xattr,
};
use smallvec::SmallVec;
use std::sync::{Arc, atomic::Ordering};

/// How a read is to be done.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadHow {
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// The time of access stays (O_NOATIME).
    pub noatime: bool,
}

impl ReadHow {
    /// A read past the page cache.
    pub const DIRECT: ReadHow = ReadHow { direct: true, noatime: false };
    /// A read that looks at what is dirty and at the device.
    pub const BUFFERED: ReadHow = ReadHow { direct: false, noatime: false };
}

/// How a write is to be done.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteHow {
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// On the device before the reply (O_SYNC); data only with `datasync`.
    pub sync: bool,
    /// O_DSYNC.
    pub datasync: bool,
}

impl Fs {
    /// The regular file `ino`.
    pub(super) fn file(&self, ino: Ino) -> Result<Arc<Inode>> {
        let i = self.get(ino)?;
        match i.file_type() {
            mode::REG => Ok(i),
            mode::DIR => Err(Error::IsDir),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// Reads into `buf` from byte `off`; returns the bytes read, fewer only at the end.
    pub fn read(&self, ino: Ino, off: u64, buf: &mut [u8], how: ReadHow) -> Result<usize> {
        self.read_held(ino, off, buf, how, None)
    }

    /// [`Fs::read`] by one who may have the I/O lock.
    pub(super) fn read_held(
        &self,
        ino: Ino,
        off: u64,
        buf: &mut [u8],
        how: ReadHow,
        lock: Option<dio::Grant>,
    ) -> Result<usize> {
        self.vol.alive()?;
        let i = self.file(ino)?;
        if i.flags().contains(InodeFlags::ENCRYPT) {
            return Err(Error::NoKey);
        }
        if !how.noatime {
            self.accessed(&i);
        }
        let held = super::inline::hold(&i);
        if !i.has_map()
            && let Some(n) = self.op("read", super::inline::read(&i, off, buf))?
        {
            return Ok(n);
        }
        if how.direct && held.is_none() && !self.vol.journals_data(&i) {
            trace::event!(DirectIoEnter, ino, pos: off, len: buf.len(), rw: 0u32);
            let len = buf.len();
            let r = self.op("read", dio::read_direct(&self.vol, &self.wb, &i, off, buf, lock));
            trace::event!(DirectIoExit, ino, pos: off, len: len, rw: 0u32, ret: trace::ret(&r));
            return r;
        }
        self.op("read", self.read_buffered(&i, off, buf))
    }

    fn read_buffered(&self, i: &Inode, off: u64, buf: &mut [u8]) -> Result<usize> {
        let _pass = i.gate.enter();
        let n = i.size().saturating_sub(off).min(buf.len() as u64) as usize;
        if n == 0 {
            return Ok(0);
        }
        let buf = &mut buf[..n];
        let bs = self.vol.geo.block_size;
        let from = LBlock(u32::try_from(bs.index(off)).map_err(|_| Error::TooBig)?);
        let end = bs.blocks_for(off + n as u64);
        // Pages first, then the map: a page leaves only after the map says written.
        let pages: SmallVec<[(LBlock, Arc<AlignedBuf>); 4]> =
            i.pages.lock().range(from, end).map(|(l, b)| (l, b.clone())).collect();
        let mut at = off;
        let stop = off + n as u64;
        for (l, page) in &pages {
            let start = u64::from(l.0) << bs.log2();
            if at < start {
                let gap = &mut buf[(at - off) as usize..(start - off) as usize];
                dio::read_mapped(&self.vol, i, at, gap)?;
                at = start;
            }
            let to = (start + bs.bytes64()).min(stop);
            let src = &page[(at - start) as usize..(to - start) as usize];
            buf[(at - off) as usize..(to - off) as usize].copy_from_slice(src);
            at = to;
        }
        if at < stop {
            dio::read_mapped(&self.vol, i, at, &mut buf[(at - off) as usize..])?;
        }
        Ok(n)
    }

    /// Writes `data` at byte `off`; returns the bytes written.
    pub fn write(
        &self,
        cred: Cred,
        ino: Ino,
        off: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Result<usize> {
        self.write_held(cred, ino, off, data, how, None)
    }

    /// [`Fs::write`] by one who may have the I/O lock.
    pub(super) fn write_held(
        &self,
        cred: Cred,
        ino: Ino,
        off: u64,
        data: &[u8],
        how: WriteHow,
        mut lock: Option<dio::Grant>,
    ) -> Result<usize> {
        self.vol.writable()?;
        let i = self.file(ino)?;
        self.may_write(&i)?;
        let room = self.max_size(&i).saturating_sub(off);
        if room == 0 && !data.is_empty() {
            return Err(Error::TooBig);
        }
        // As much as fits, as write(2) has it.
        let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if !self.past_cache(&i) {
            lock = None;
        }
        let mut n = None;
        if self.op("write", super::inline::write(&self.vol, &i, off, data, how.direct))? {
            n = Some(data.len());
        } else {
            let moved = self.retry_space(|| super::inline::to_blocks(&self.vol, &i));
            self.op("write", moved)?;
        }
        if n.is_none() && how.direct && !self.vol.journals_data(&i) {
            trace::event!(DirectIoEnter, ino, pos: off, len: data.len(), rw: 1u32);
            let root_ok = self.may_use_reserve(cred);
            let r = self.retry_space(|| {
                dio::write_direct(&self.vol, &self.wb, &i, off, data, root_ok, &mut lock)
            });
            trace::event!(DirectIoExit, ino, pos: off, len: data.len(), rw: 1u32, ret: trace::ret(&r));
            n = self.op("write", r)?;
            if n.is_some() {
                self.modified(&i);
            }
        }
        drop(lock);
        let n = match n {
            Some(n) => n,
            None => {
                let n = self.op("write", self.write_buffered(cred, &i, off, data))?;
                if how.direct || !self.vol.conf.delalloc || self.vol.journals_data(&i) {
                    self.write_out(&i)?;
                }
                n
            }
        };
        let f = i.flags();
        if how.sync || how.datasync || self.vol.conf.sync || f.contains(InodeFlags::SYNC) {
            self.fsync_inode(&i, !how.sync && how.datasync)?;
        }
        Ok(n)
    }

    /// Refuses writes to files whose flags forbid them.
    pub(super) fn may_write(&self, i: &Inode) -> Result<()> {
        let f = i.flags();
        if f.contains(InodeFlags::ENCRYPT) {
            return Err(Error::NoKey);
        }
        if f.intersects(InodeFlags::IMMUTABLE | InodeFlags::VERITY) {
            return Err(Error::Perm);
        }
        Ok(())
    }

    /// The largest size of this file, in bytes.
    pub(super) fn max_size(&self, i: &Inode) -> u64 {
        if i.flags().contains(InodeFlags::EXTENTS) || !i.has_map() {
            self.vol.geo.max_extent_file_size()
        } else {
            self.vol.geo.max_indirect_file_size()
        }
    }

    fn write_buffered(&self, cred: Cred, i: &Arc<Inode>, off: u64, data: &[u8]) -> Result<usize> {
        self.wb.throttle();
        let root_ok = self.may_use_reserve(cred);
        self.retry_space(|| {
            let _lock = i.io.acquire(Share::Exclusive, "write");
            self.dirty_pages(i, off, data, root_ok)
        })?;
        Ok(data.len())
    }

    /// Copies the bytes into pages, reserving blocks for those that have none. The I/O
    /// lock is held. The size moves as far as the copy got.
    fn dirty_pages(&self, i: &Arc<Inode>, off: u64, data: &[u8], root_ok: bool) -> Result<()> {
        trace::event!(DaWriteBegin, i.ino, pos: off, len: data.len(), flags: 0u32);
        let bs = self.vol.geo.block_size;
        let end = off + data.len() as u64;
        let size = i.size();
        if off > size {
            self.zero_tail(i, size)?;
        }
        let first = bs.index(off);
        let stop = bs.blocks_for(end);
        // Pages first, then the map: a hole without a page stays one while we hold the I/O
        // lock; a block with a page may lose it to a write-out and is looked up again below.
        let present: SmallVec<[u32; 8]> =
            i.pages.lock().range(LBlock(first as u32), stop).map(|(l, _)| l.0).collect();
        let mut states: SmallVec<[(u64, State); 8]> = SmallVec::new();
        let mut at = first;
        while at < stop {
            let m = self.state_of(i, at, stop)?;
            at += u64::from(m.1);
            states.push((at, m.0));
        }
        let mut k = 0;
        let mut state_at = |b: u64| {
            while states[k].0 <= b {
                k += 1;
            }
            states[k].1
        };
        let holes = (first..stop)
            .filter(|b| state_at(*b) == State::Hole && present.binary_search(&(*b as u32)).is_err())
            .count() as u32;
        if holes > 0 {
            i.reserve(&self.vol, first, stop, u64::from(holes), root_ok)?;
            trace::event!(DaReserveSpace, i.ino, md_needed: 0u32, reserved_data_blocks: holes);
        }
        let mut used = 0;
        let mut k = 0;
        let whole_blocks = bs.within(off) == 0 && bs.within(end) == 0;
        let stream = present.is_empty() && whole_blocks;
        if stream {
            // Nobody else makes pages while we hold the I/O lock: all of them enter at once.
            let mut k = 0;
            let blocks = (first..stop).zip(data.chunks_exact(bs.bytes()));
            let pages: Vec<_> = blocks
                .map(|(b, bytes)| {
                    while states[k].0 <= b {
                        k += 1;
                    }
                    let hole = states[k].1 == State::Hole;
                    (LBlock(b as u32), AlignedBuf::copy_of(bytes), hole)
                })
                .collect();
            used = holes;
            self.wb.dirtied(data.len() as u64);
            i.pages.lock().insert_all(pages);
        }
        let rest = if stream { stop..stop } else { first..stop };
        let result: Result<()> = rest.into_iter().try_for_each(|b| {
            while states[k].0 <= b {
                k += 1;
            }
            let start = b << bs.log2();
            let (a, z) = (off.max(start), end.min(start + bs.bytes64()));
            let src = &data[(a - off) as usize..(z - off) as usize];
            let (pa, pz) = ((a - start) as usize, (z - start) as usize);
            let l = LBlock(b as u32);
            if let Some(p) = i.pages.lock().get_mut(l) {
                p[pa..pz].copy_from_slice(src);
                return Ok(());
            }
            let (mut state, mut extra) = (states[k].1, false);
            if present.binary_search(&l.0).is_ok() {
                state = self.state_of(i, b, b + 1)?.0;
                if state == State::Hole {
                    i.reserve(&self.vol, b, b + 1, 1, root_ok)?;
                    extra = true;
                }
            }
            let whole = src.len() == bs.bytes() || (pa == 0 && z >= size.max(end));
            let mut page = if src.len() == bs.bytes() {
                AlignedBuf::for_overwrite(bs.bytes())
            } else {
                AlignedBuf::zeroed(bs.bytes())
            };
            if state == State::Written && !whole {
                dio::read_mapped(&self.vol, i, start, &mut page)?;
                let keep = size.saturating_sub(start).min(bs.bytes64()) as usize;
                page[keep..].fill(0);
            }
            page[pa..pz].copy_from_slice(src);
            let reserved = state == State::Hole;
            used += u32::from(reserved && !extra);
            // Counted first: from then on the flusher may write it, and count it off.
            self.wb.dirtied(bs.bytes64());
            i.pages.lock().insert(l, page, reserved);
            Ok(())
        });
        if used < holes {
            drop(i.take_reservation(holes - used));
        }
        result?;
        {
            let mut a = i.attrs_mut();
            a.size = a.size.max(end);
            if seeded::on(Fault::SizeBeforeData) {
                a.rec.size = a.size;
            }
            let now = self.vol.now();
            a.rec.mtime = now;
            a.rec.ctime = now;
            a.dirty = true;
        }
        self.wb.mark(i);
        trace::event!(DaWriteEnd, i.ino, pos: off, len: data.len(), copied: data.len());
        Ok(())
    }

    /// The state of block `b` and how many blocks from it share it, up to `stop`.
    fn state_of(&self, i: &Inode, b: u64, stop: u64) -> Result<(State, u32)> {
        let lblk = LBlock(u32::try_from(b).map_err(|_| Error::TooBig)?);
        let m = i.map()?.lookup(&self.vol.map_ctx(), lblk, (stop - b) as u32)?;
        Ok((m.state, m.len))
    }

    /// See [`dio::zero_tail`].
    pub(super) fn zero_tail(&self, i: &Arc<Inode>, size: u64) -> Result<()> {
        dio::zero_tail(&self.vol, &self.wb, i, size)
    }

    /// Data changed past the page cache: times.
    fn modified(&self, i: &Arc<Inode>) {
        let now = self.vol.now();
        i.touch(None, Some(now));
        self.wb.mark(i);
    }

    /// A read: `atime`, as the mount options say; stored later.
    pub(super) fn accessed(&self, i: &Arc<Inode>) {
        if self.atime_due(i) {
            i.touch(Some(self.vol.now()), None);
            self.wb.mark(i);
        }
    }

    /// Writes out the dirty data of `i` and waits for it.
    pub(super) fn write_out(&self, i: &Arc<Inode>) -> Result<()> {
        let r = writeback::write_out(&self.vol, &self.wb, i, Scope::ALL);
        self.op("writepages", r).map(|_| ())
    }

    /// fsync or fdatasync: data, map, size and (fsync) attributes are on the device on return.
    pub fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.vol.alive()?;
        let i = self.get(ino)?;
        if self.vol.conf.read_only {
            return Ok(());
        }
        self.fsync_inode(&i, datasync)
    }

    pub(super) fn fsync_inode(&self, i: &Arc<Inode>, datasync: bool) -> Result<()> {
        trace::event!(SyncFileEnter, i.ino, datasync: datasync);
        let r = self.write_and_commit(i, datasync);
        trace::event!(SyncFileExit, i.ino, ret: trace::ret(&r));
        r
    }

    fn write_and_commit(&self, i: &Arc<Inode>, datasync: bool) -> Result<()> {
        self.write_out(i)?;
        if !datasync && i.attrs().dirty {
            let mut h = self.vol.journal.start("fsync", 2)?;
            i.store_times(&self.vol, &mut h)?;
            h.stop()?;
        }
        if seeded::on(Fault::FsyncWithoutCommit) {
            return Ok(());
        }
        self.vol.journal.wait_commit_flush(i.sync_tid(datasync))
    }

    /// Writes everything out and commits: sync(2), unmount.
    pub fn sync(&self) -> Result<()> {
        self.vol.alive()?;
        if self.vol.writable().is_err() {
            return Ok(());
        }
        trace::event!(SyncFs, -, wait: true);
        let mut first = Ok(());
        // Every inode, not those listed: the flusher may have one in hand.
        for i in self.vol.inodes.all() {
            first = first.and(self.write_out(&i));
            if i.attrs().dirty {
                let stored = self.vol.journal.start("sync", 2).and_then(|mut h| {
                    i.store_times(&self.vol, &mut h)?;
                    h.stop()
                });
                first = first.and(stored);
            }
        }
        first.and(self.vol.journal.commit_all())
    }

    /// A write-out error of this inode that the holder of `seen` has not been told of yet.
    pub fn take_error(&self, ino: Ino, seen: &mut u64) -> Result<()> {
        let Some(i) = self.vol.inodes.peek(ino) else { return Ok(()) };
        let now = i.wb_errors.load(Ordering::Acquire);
        if now != *seen {
            *seen = now;
            return Err(Error::Io {
                op: "write-out",
                offset: 0,
                source: std::io::Error::from_raw_os_error(libc::EIO),
            });
        }
        Ok(())
    }

    /// Whether the file carries capabilities.
    pub(super) fn has_capability(&self, i: &Inode) -> Result<bool> {
        match xattr::get(&self.vol, i, b"security.capability") {
            Ok(_) => Ok(true),
            Err(Error::NoData) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Drops set-id bits and file capabilities, as a write by an unprivileged user does. True if there
    /// were any.
    pub fn kill_privileges(&self, cred: Cred, ino: Ino) -> Result<bool> {
        self.vol.writable()?;
        self.kill_priv(cred, &*self.file(ino)?)
    }

    pub(super) fn kill_priv(&self, cred: Cred, i: &Inode) -> Result<bool> {
        let has_cap = self.has_capability(i)?;
        let bits = privileges(cred, i);
        if bits == 0 && !has_cap {
            return Ok(false);
        }
        let credits = xattr::set_credits(&self.vol, 0) + 2;
        let mut h = self.vol.journal.start("remove_privs", credits)?;
        if has_cap {
            xattr::remove(&self.vol, &mut h, i, b"security.capability")?;
        }
        {
            let mut a = i.attrs_mut();
            a.rec.mode &= !bits;
            a.rec.ctime = self.vol.now();
        }
        i.store(&self.vol, &mut h)?;
        h.stop()?;
        Ok(true)
    }
}

/// The set-id bits that an inode loses when `cred` changes its contents or owner. Set-group-id without
/// group execution stays for the members of the group.
pub(super) fn privileges(cred: Cred, i: &Inode) -> u16 {
    let a = i.attrs();
    let m = a.rec.mode;
    let group = m & 0o010 != 0 || !cred.in_group(a.rec.gid);
    m & if group { mode::SUID | mode::SGID } else { mode::SUID }
}
