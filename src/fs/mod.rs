//! One mounted file system: mount, unmount, and each operation on inode numbers
//! and byte ranges. Nothing here knows FUSE: tests, the lab and the crash
//! explorer drive it in-process; `fuse` adapts it to the kernel.
//!
//! Every operation that changes something is one journal handle where it can
//! be, so that a crash leaves it done or not done. Locks of rank 1 to 3 are
//! taken here, in the order of `docs/architecture.md`.

mod control;
mod copy;
mod direct;
#[cfg(test)]
mod direct_tests;
mod falloc;
mod fast_commit;
mod inline;
mod io;
mod ioctl;
mod mmp;
mod mount;
mod namei;
mod readdir;
mod reap;
mod recover;
mod rename;
mod requests;
mod seek;
mod setattr;
mod stat;
mod superblocks;
mod symlink;
mod watchdog;
mod xattrs;

pub use crate::dio::Grant;
pub use direct::Wait;
pub use falloc::FallocMode;
pub use io::{ReadHow, WriteHow};
pub use ioctl::{FlagWord, Fsxattr};
pub use readdir::DirEntry;
pub use rename::RenameFlags;
pub use requests::{Request, RequestLine, Requests};
pub use setattr::{SetAttr, SetTime};
pub use stat::{Stat, StatFs};

use crate::{
    device::DeviceStats,
    error::{Error, Result},
    inode::{Inode, Volume},
    ondisk::InodeFlags,
    options::Atime,
    types::Ino,
    writeback::Writeback,
};
use parking_lot::Mutex;
use std::sync::{Arc, atomic::Ordering};

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cred {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

impl Cred {
    /// The superuser.
    pub const ROOT: Cred = Cred { uid: 0, gid: 0 };

    /// Whether this is the superuser or its group is `gid`: supplementary groups are not known here.
    pub(crate) fn in_group(self, gid: u32) -> bool {
        self.uid == 0 || self.gid == gid
    }
}

/// One mounted file system.
pub struct Fs {
    /// The rooms below.
    pub vol: Arc<Volume>,
    /// Write-back of the volume.
    pub wb: Arc<Writeback>,
    /// Held while a rename moves between directories. Rank 1.
    rename_lock: Mutex<()>,
    reaper: reap::Reaper,
    /// What the device was asked for since the mount.
    io: Arc<DeviceStats>,
    /// `s_kbytes_written` at the mount.
    kbytes_before: u64,
    /// What `trace` in the control directory collects.
    tracing: Mutex<Option<crate::trace::Reader>>,
    /// Keeps other hosts away, with `mmp`; until the journal is closed.
    mmp: Mutex<Option<mmp::Mmp>>,
    /// How fast the device answers direct requests.
    pace: crate::dio::Pace,
    /// Requests submitted and not answered yet.
    submitted: crate::inode::IoGate,
    watchdog: watchdog::Watchdog,
    /// What has not been answered yet.
    pub requests: Arc<requests::Requests>,
}

impl Fs {
    /// The inode `ino` of a request: unknown and unused numbers are `ESTALE`.
    pub(crate) fn get(&self, ino: Ino) -> Result<Arc<Inode>> {
        let special = ino.0 == 0 || (ino != Ino::ROOT && !self.vol.geo.is_user_ino(ino));
        if special {
            return Err(Error::Stale);
        }
        self.op("iget", self.vol.inodes.get(&self.vol, ino))
    }

    /// Passes a result on; a corruption in it is recorded and `errors=` followed.
    fn op<T>(&self, what: &'static str, r: Result<T>) -> Result<T> {
        self.vol.check(what, r)
    }

    /// The right to the reserved blocks.
    fn may_use_reserve(&self, c: Cred) -> bool {
        self.vol.may_use_reserve(c.uid, c.gid)
    }

    /// Whether a read now moves `atime`, by the mount options.
    pub fn atime_due(&self, i: &Inode) -> bool {
        let c = &self.vol.conf;
        if self.vol.writable().is_err() || (c.nodiratime && i.is_dir()) {
            return false;
        }
        let a = i.attrs();
        if a.rec.flags.contains(InodeFlags::NOATIME) {
            return false;
        }
        match c.atime {
            Atime::Noatime => false,
            Atime::Strictatime => true,
            Atime::Relatime => {
                let t = &a.rec;
                let old = self.vol.now().sec.saturating_sub(t.atime.sec) >= 24 * 3600;
                old || t.atime <= t.mtime || t.atime <= t.ctime
            }
        }
    }

    /// Why the mount is read-only though it was not asked to be.
    pub fn why_read_only(&self) -> String {
        let f = self.vol.geo.features.check().read_only;
        if f.is_empty() {
            "the device is read-only: mounted read-only".into()
        } else {
            format!("feature(s) {} cannot be written: mounted read-only", f.join(", "))
        }
    }

    /// The write-out errors of an inode so far: a new open file has seen them.
    pub fn errors_seen(&self, i: &Inode) -> u64 {
        i.wb_errors.load(Ordering::Acquire)
    }

    /// Runs `f`; on ENOSPC makes what is on its way to being free available and tries again.
    /// The caller holds no lock.
    fn retry_space<T>(&self, mut f: impl FnMut() -> Result<T>) -> Result<T> {
        let mut tries = 0;
        loop {
            match f() {
                Err(Error::NoSpace) if tries < 3 && self.reclaim()? => tries += 1,
                r => return r,
            }
        }
    }

    /// Finishes unlinked files, writes delayed blocks out, gives preallocations back and commits.
    /// Whether that may have made room.
    fn reclaim(&self) -> Result<bool> {
        let before = self.vol.alloc.statfs();
        self.reaper.drain();
        let mut written = false;
        for i in self.wb.dirty_inodes() {
            if i.pages.lock().reserved_blocks() > 0 {
                written = true;
                // A failure is kept in that inode for its own fsync.
                let _ = self.write_out(&i);
            }
        }
        let gained = self.vol.alloc.reclaim(&self.vol.journal)?;
        let after = self.vol.alloc.statfs();
        Ok(written || gained || after.free > before.free || after.ffree > before.ffree)
    }

    /// `EPERM` for an append-only file that is opened to write anywhere in it.
    pub fn may_open(&self, ino: Ino, write: bool, append: bool) -> Result<()> {
        if write && !append && self.get(ino)?.flags().contains(InodeFlags::APPEND) {
            return Err(Error::Perm);
        }
        Ok(())
    }

    /// Counts an open of the kernel.
    pub fn open(&self, ino: Ino, write: bool) -> Result<Arc<Inode>> {
        self.vol.alive()?;
        let i = self.get(ino)?;
        if write {
            self.vol.writable()?;
            self.may_write(&i)?;
        }
        i.opens.fetch_add(1, Ordering::AcqRel);
        Ok(i)
    }

    /// Whether [`Fs::release`] will write data out.
    pub fn release_may_wait(&self, ino: Ino) -> bool {
        self.vol.inodes.peek(ino).is_some_and(|i| i.da_alloc_close.load(Ordering::Acquire))
    }

    /// A handle is closed. What replaced the contents of a file that was cut to nothing is written out
    /// (`auto_da_alloc`); the last close of an unlinked file frees it.
    pub fn release(&self, ino: Ino) {
        let Some(i) = self.vol.inodes.peek(ino) else { return };
        if i.da_alloc_close.swap(false, Ordering::AcqRel) && i.nlink() != 0 {
            // A failure is logged and kept for the next fsync.
            let _ = self.write_out(&i);
        }
        let was = i.opens.fetch_sub(1, Ordering::AcqRel);
        if was == 1 {
            self.closed(&i);
        }
    }

    /// The kernel forgets `n` look-ups.
    pub fn forget(&self, ino: Ino, n: u64) {
        if self.vol.inodes.forget(ino, n)
            && let Some(i) = self.vol.inodes.peek(ino)
        {
            self.maybe_reap(&i);
        }
    }
}
