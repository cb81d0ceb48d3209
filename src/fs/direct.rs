//! Direct requests whose completion answers, and whether a request may wait.

use super::{Cred, Fs, ReadHow, WriteHow};
use crate::{
    device::AlignedBuf,
    dio::{self, Dir, Grant},
    error::{Error, Result},
    inode::{Inode, Share, lock_mode},
    ondisk::InodeFlags,
    trace,
    types::{Ino, LBlock},
};
use std::sync::Arc;

/// What a request may have to wait for before it can be served.
pub enum Wait {
    /// Nothing: it is served where it arrives.
    Nothing,
    /// Something that takes a thread.
    Thread,
    /// The I/O lock of this inode, which takes none: see [`Fs::lock_then`].
    Lock(Arc<Inode>, Share, Dir),
}

impl Fs {
    /// Reads up to `buf.len()` bytes at `off` and calls `done` with them, cut at the end of the file:
    /// before this returns, or from a thread of the device's engine. `done` must not block. `held`:
    /// from [`Fs::lock_then`].
    pub fn start_read(
        &self,
        ino: Ino,
        off: u64,
        mut buf: AlignedBuf,
        how: ReadHow,
        held: Option<Grant>,
        done: impl FnOnce(Result<AlignedBuf>) + Send + 'static,
    ) {
        if how.direct
            && self.submits()
            && let Ok(i) = self.file(ino)
            && self.past_cache(&i)
        {
            if !how.noatime {
                self.accessed(&i);
            }
            let (vol, len) = (self.vol.clone(), buf.len());
            trace::event!(DirectIoEnter, ino, pos: off, len: len, rw: 0u32);
            let pass = self.submitted.enter();
            let done = move |r| {
                trace::event!(DirectIoExit, ino, pos: off, len: len, rw: 0u32, ret: trace::ret(&r));
                done(vol.check("read", r));
                drop(pass);
            };
            return dio::start_read(&self.vol, &self.wb, &i, off, buf, held, done);
        }
        let len = buf.len();
        let go = || self.read_held(ino, off, &mut buf, how, held);
        let r = if how.direct { self.pace.timed(len, go) } else { go() };
        done(r.map(|n| {
            buf.truncate(n);
            buf
        }));
    }

    /// Writes at a byte of a file and calls `done` with the bytes written, as [`Fs::start_read`] does.
    /// Only direct overwrites are submitted.
    pub fn start_write(
        &self,
        cred: Cred,
        (ino, off): (Ino, u64),
        data: AlignedBuf,
        how: WriteHow,
        mut held: Option<Grant>,
        done: impl FnOnce(Result<usize>) + Send + 'static,
    ) {
        if !how.direct || how.sync || how.datasync || !self.submits() {
            return done(self.write_here(cred, ino, off, &data, how, held));
        }
        let (i, admitted) = match self.admit_overwrite(ino, off, data.len(), &mut held) {
            Ok((i, Some(a))) => (i, a),
            Ok((_, None)) => return done(self.write_held(cred, ino, off, &data, how, held)),
            Err(e) => return done(Err(e)),
        };
        let (vol, wb, inode) = (self.vol.clone(), self.wb.clone(), i.clone());
        let (len, pass) = (data.len(), self.submitted.enter());
        trace::event!(DirectIoEnter, ino, pos: off, len: len, rw: 1u32);
        dio::start_overwrite(&self.vol, &i, off, &Arc::new(data), admitted, move |r| {
            trace::event!(DirectIoExit, ino, pos: off, len: len, rw: 1u32, ret: trace::ret(&r));
            if r.is_ok() {
                inode.touch(None, Some(vol.now()));
                wb.mark(&inode);
            }
            done(vol.check("write", r));
            drop(pass);
        });
    }

    /// As [`Fs::write`], noting how long the device takes.
    pub fn write_here(
        &self,
        cred: Cred,
        ino: Ino,
        off: u64,
        data: &[u8],
        how: WriteHow,
        held: Option<Grant>,
    ) -> Result<usize> {
        let go = || self.write_held(cred, ino, off, data, how, held);
        if how.direct && !how.sync && !how.datasync {
            self.pace.timed(data.len(), go)
        } else {
            go()
        }
    }

    /// The file, and the write to it if that can be submitted.
    fn admit_overwrite(
        &self,
        ino: Ino,
        off: u64,
        len: usize,
        held: &mut Option<Grant>,
    ) -> Result<(Arc<Inode>, Option<dio::Admitted>)> {
        self.vol.writable()?;
        let i = self.file(ino)?;
        self.may_write(&i)?;
        if !self.past_cache(&i) || self.vol.conf.sync || i.flags().contains(InodeFlags::SYNC) {
            return Ok((i, None));
        }
        let r = dio::admit_overwrite(&self.vol, &self.wb, &i, off, len, held);
        Ok((i, self.op("write", r)?))
    }

    /// Whether direct requests are submitted to the engine, or else served where they arrive.
    pub fn submits(&self) -> bool {
        self.modelled() || self.pace.submit()
    }

    fn modelled(&self) -> bool {
        self.vol.conf.disk_model.as_deref().is_some_and(|m| m != "none")
    }

    /// Whether direct requests of this file go past the page cache.
    pub(super) fn past_cache(&self, i: &Inode) -> bool {
        i.has_map() && !self.vol.journals_data(i) && !i.flags().contains(InodeFlags::ENCRYPT)
    }

    /// What a read may have to wait for.
    pub fn read_wait(&self, ino: Ino, off: u64, len: usize, direct: bool) -> Wait {
        let Some(i) = self.vol.inodes.peek(ino) else { return Wait::Nothing };
        if i.gate.is_closed() || (!direct && self.modelled()) {
            return Wait::Thread;
        }
        if !direct || !self.past_cache(&i) {
            return Wait::Nothing;
        }
        match lock_mode::effective(&self.vol, &i).read_share() {
            Some(s) if i.io.would_wait(s) => Wait::Lock(i, s, Dir::Read),
            _ if self.dirty_in(&i, off, len) => Wait::Thread,
            _ => Wait::Nothing,
        }
    }

    /// What a write may have to wait for: a lock, space, dirty memory, the device.
    pub fn write_wait(&self, ino: Ino, off: u64, len: usize, how: WriteHow) -> Wait {
        if self.vol.conf.sync || how.sync || how.datasync {
            return Wait::Thread;
        }
        let Some(i) = self.vol.inodes.peek(ino) else { return Wait::Nothing };
        if how.direct && self.past_cache(&i) {
            let over = dio::overwrites(&self.vol, &i, off, len).unwrap_or(false);
            let share = self.write_share(&i, over);
            return if i.io.would_wait(share) {
                Wait::Lock(i, share, Dir::Write)
            } else if !over
                || i.gate.is_closed()
                || i.flags().contains(InodeFlags::SYNC)
                || self.dirty_in(&i, off, len)
            {
                Wait::Thread
            } else {
                Wait::Nothing
            };
        }
        let waits = how.direct
            || self.modelled()
            || self.wb.is_over_limit()
            || !self.vol.conf.delalloc
            || i.io.would_wait(Share::Exclusive);
        if waits { Wait::Thread } else { Wait::Nothing }
    }

    fn write_share(&self, i: &Inode, overwrites: bool) -> Share {
        match overwrites {
            true => lock_mode::effective(&self.vol, i).overwrite_share(),
            false => Share::Exclusive,
        }
    }

    /// Whether the lock that a request waited for is still the one that it needs: then it waits for no
    /// other.
    pub fn fits(&self, i: &Inode, dir: Dir, off: u64, len: usize, held: &Grant) -> bool {
        let share = match dir {
            Dir::Read => lock_mode::effective(&self.vol, i).read_share(),
            Dir::Write => {
                let over = dio::overwrites(&self.vol, i, off, len).unwrap_or(false);
                Some(self.write_share(i, over))
            }
        };
        share.is_some_and(|s| held.fits(&self.vol, i, s))
    }

    /// Waits for a lock without a thread: `then` gets it, here or from whoever releases it, and must
    /// not block.
    pub fn lock_then(
        &self,
        inode: &Arc<Inode>,
        share: Share,
        dir: Dir,
        then: impl FnOnce(Grant) + Send + 'static,
    ) {
        dio::take_then(&self.vol, inode, share, dir, then);
    }

    fn dirty_in(&self, i: &Inode, off: u64, len: usize) -> bool {
        let bs = self.vol.geo.block_size;
        let p = i.pages.lock();
        !p.is_empty()
            && p.any_in(
                LBlock(u32::try_from(bs.index(off)).unwrap_or(u32::MAX)),
                bs.blocks_for(off.saturating_add(len as u64)),
            )
    }

    /// Puts a file into a lock mode of its own.
    pub fn set_dioread_mode(&self, ino: Ino, mode: lock_mode::LockMode) -> Result<()> {
        let i = self.get(ino)?;
        if !i.is_reg() {
            return Err(Error::Invalid("dioread_mode of something that is not a regular file"));
        }
        self.op("dioread_mode", dio::switch(&self.vol, &self.wb, &i, mode, true))
    }

    /// Puts the mount into a lock mode: all but the files that have one of their own.
    pub fn set_mount_dioread_mode(&self, mode: lock_mode::LockMode) -> Result<()> {
        self.op("dioread_mode", dio::switch_mount(&self.vol, &self.wb, mode))
    }
}
