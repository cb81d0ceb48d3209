//! setattr: chmod, chown, utimens, truncate.

use super::{Cred, Fs, Stat, io, reap};
use crate::device::seeded::{self, Fault};
use crate::{
    error::{Error, Result},
    inode::{Inode, Share, mode, orphan::ORPHAN_CREDITS, truncate},
    ondisk::{InodeFlags, Timestamp},
    trace,
    types::{Ino, LBlock},
    writeback::{self, Scope},
    xattr,
};
use std::sync::{Arc, atomic::Ordering};

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The time at which it is set.
    Now,
    /// This one.
    At(Timestamp),
}

/// What setattr changes; `None` stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// Last change of the inode; the kernel sends it with FUSE's write-back cache only.
    pub ctime: Option<Timestamp>,
    /// Set-id bits and capabilities go with a change of size.
    pub kill_priv: bool,
}

impl Fs {
    /// Changes attributes.
    pub fn setattr(&self, cred: Cred, ino: Ino, s: SetAttr) -> Result<Stat> {
        self.vol.writable()?;
        let i = self.get(ino)?;
        let f = i.flags();
        let touches = s.mode.is_some() || s.uid.is_some() || s.gid.is_some();
        if f.contains(InodeFlags::IMMUTABLE) && (touches || s.size.is_some()) {
            return Err(Error::Perm);
        }
        if f.contains(InodeFlags::APPEND) && (touches || s.size.is_some()) {
            return Err(Error::Perm);
        }
        // An append-only file may be touched as a whole.
        let times = s.atime.is_some() || s.mtime.is_some();
        let touch = (s.atime, s.mtime) == (Some(SetTime::Now), Some(SetTime::Now));
        if times && f.contains(InodeFlags::IMMUTABLE)
            || times && !touch && f.contains(InodeFlags::APPEND)
        {
            return Err(Error::Perm);
        }
        if let Some(size) = s.size {
            self.truncate(cred, &i, size, s.kill_priv)?;
        }
        if touches
            || s.size.is_none()
            || s.atime.is_some()
            || s.mtime.is_some()
            || s.ctime.is_some()
        {
            self.set_fields(cred, &i, &s)?;
        }
        Ok(Stat::of(self, &i))
    }

    /// Changes all but the size. Where nothing is to be set this is a chown(2) to nobody new, or the
    /// kernel taking privileges away before it changes the contents.
    fn set_fields(&self, cred: Cred, i: &Arc<Inode>, s: &SetAttr) -> Result<()> {
        let times = s.atime.is_some() || s.mtime.is_some() || s.ctime.is_some();
        let owner = s.uid.is_some() || s.gid.is_some();
        let nothing = !owner && s.mode.is_none() && !times;
        let (mut lost, mut cap) = (0, false);
        if (owner || nothing) && !i.is_dir() {
            cap = self.has_capability(i)?;
            // The superuser's writes take away capabilities only.
            let write = nothing && i.cap_removed.swap(false, Ordering::AcqRel);
            if !(write && cred.uid == 0) {
                lost = io::privileges(cred, i);
            }
        }
        let acl = s.mode.is_some() && self.vol.conf.acl && i.file_type() != mode::LNK;
        let credits = 2 + if acl || cap { xattr::set_credits(&self.vol, 0) } else { 0 };
        let mut h = self.vol.journal.start("setattr", credits)?;
        if cap {
            xattr::remove(&self.vol, &mut h, i, b"security.capability")?;
        }
        let now = self.vol.now();
        let has_extra = i.attrs().rec.extra_isize >= 32 - 4;
        {
            let mut a = i.attrs_mut();
            if let Some(m) = s.mode {
                a.rec.mode = (a.rec.mode & mode::FMT) | (m & 0o7777);
            }
            if let Some(u) = s.uid {
                a.rec.uid = u;
            }
            if let Some(g) = s.gid {
                a.rec.gid = g;
            }
            if s.mode.is_none() {
                a.rec.mode &= !lost;
            }
            let at = |t: SetTime| match t {
                SetTime::Now => now,
                SetTime::At(t) => t.clamp(has_extra),
            };
            if let Some(t) = s.atime {
                a.rec.atime = at(t);
            }
            if let Some(t) = s.mtime {
                a.rec.mtime = at(t);
            }
            a.rec.ctime = s.ctime.unwrap_or(now);
        }
        if acl {
            xattr::acl::chmod(&self.vol, &mut h, i)?;
        }
        i.store_times(&self.vol, &mut h)?;
        self.finish(h, &[i])
    }

    /// Sets the size. What is cut off is zero if the file grows again, on disk too.
    pub(super) fn truncate(
        &self,
        cred: Cred,
        i: &Arc<Inode>,
        size: u64,
        kill_priv: bool,
    ) -> Result<()> {
        match i.file_type() {
            mode::REG => {}
            mode::DIR => return Err(Error::IsDir),
            _ => return Err(Error::Invalid("truncate of a special file")),
        }
        self.may_write(i)?;
        if size > self.max_size(i) {
            return Err(Error::TooBig);
        }
        if kill_priv {
            self.kill_priv(cred, i)?;
        }
        trace::event!(TruncateEnter, i.ino, size: size, blocks: i.blocks512());
        let r = self.retry_space(|| {
            let _lock = i.io.acquire(Share::Exclusive, "truncate");
            if !i.has_map() && super::inline::truncate(&self.vol, i, size)? {
                return Ok(());
            }
            if size > i.size() { self.grow(i, size) } else { self.shrink(i, size) }
        });
        trace::event!(TruncateExit, i.ino, size: size, ret: trace::ret(&r));
        if size == 0
            && r.is_ok()
            && self.vol.conf.auto_da_alloc
            && !seeded::on(Fault::CloseWithoutData)
        {
            i.da_alloc_close.store(true, Ordering::Release);
        }
        self.op("truncate", r)
    }

    fn grow(&self, i: &Arc<Inode>, size: u64) -> Result<()> {
        self.zero_tail(i, i.size())?;
        writeback::write_out(&self.vol, &self.wb, i, Scope::ALL)?;
        let mut h = self.vol.journal.start("truncate", 2)?;
        self.set_size(i, size);
        i.store(&self.vol, &mut h)?;
        self.finish(h, &[i])
    }

    fn set_size(&self, i: &Inode, size: u64) {
        let now = self.vol.now();
        let mut a = i.attrs_mut();
        a.size = size;
        a.rec.size = size;
        a.rec.mtime = now;
        a.rec.ctime = now;
    }

    fn shrink(&self, i: &Arc<Inode>, size: u64) -> Result<()> {
        let vol = &self.vol;
        let bs = vol.geo.block_size;
        let from = LBlock(u32::try_from(bs.blocks_for(size)).map_err(|_| Error::TooBig)?);
        let closed = i.gate.close();
        let one = i.wb.lock();
        reap::drop_pages(vol, &self.wb, i, from, u64::MAX);
        // The tail of the last block is zeroed on the device before the size commits.
        let within = bs.within(size);
        let mut size_follows = false;
        if within != 0 && size < i.size() && !seeded::on(Fault::TailNotZeroed) {
            let l = LBlock(from.0 - 1);
            let start = u64::from(l.0) << bs.log2();
            let had = {
                let mut p = i.pages.lock();
                p.get_mut(l).map(|b| b[within..].fill(0)).is_some()
            };
            if !had {
                self.zero_on_device(i, start, within, bs.bytes())?;
            } else {
                size_follows = true;
            }
        }
        if size_follows || i.attrs().rec.size < size {
            {
                let mut a = i.attrs_mut();
                a.size = size;
            }
            writeback::write_out_locked(vol, &self.wb, i, Scope::ALL)?;
        }
        drop(one);
        vol.alloc.discard_prealloc(i.ino);
        let mut h = vol.journal.start("truncate", truncate::remove_credits(i) + ORPHAN_CREDITS)?;
        self.set_size(i, size);
        vol.orphans.add(vol, &mut h, i)?;
        i.store(vol, &mut h)?;
        truncate::remove_blocks(vol, &mut h, i, from, u64::MAX)?;
        if !h.ensure(ORPHAN_CREDITS + 2)? {
            h.restart(ORPHAN_CREDITS + 2)?;
        }
        vol.orphans.remove_linked(vol, &mut h, i)?;
        i.store(vol, &mut h)?;
        drop(closed);
        self.finish(h, &[i])
    }

    /// Zeroes bytes `from..to` of the block at byte `start` on the device, if it is written.
    /// The gate is closed, and no page of the block is dirty.
    pub(super) fn zero_on_device(
        &self,
        i: &Arc<Inode>,
        start: u64,
        from: usize,
        to: usize,
    ) -> Result<()> {
        let vol = &self.vol;
        let bs = vol.geo.block_size;
        let l = LBlock(u32::try_from(bs.index(start)).map_err(|_| Error::TooBig)?);
        let m = i.map()?.lookup(&vol.map_ctx(), l, 1)?;
        if m.state != crate::map::State::Written {
            return Ok(());
        }
        let mut page = crate::device::AlignedBuf::zeroed(bs.bytes());
        crate::dio::read_mapped(vol, i, start, &mut page)?;
        if page[from..to].iter().all(|b| *b == 0) {
            return Ok(());
        }
        page[from..to].fill(0);
        if vol.journals_data(i) {
            let mut h = vol.journal.start("zero", 2)?;
            h.journal_data(m.pblk, Arc::new(page))?;
            return h.stop();
        }
        vol.dev.write_at(&page, bs.offset(m.pblk))
    }
}
