//! What ioctl(2) asks of ext4: inode flags, generation, trimming, shutdown.

use super::Fs;
use crate::{
    error::{Error, Result},
    inode::{Inode, Share, mode},
    ondisk::{FileKind, InodeFlags, RoCompat},
    types::{Block, Ino},
    writeback::{self, Scope},
};
use std::sync::Arc;

/// The flag word of FS_IOC_GETFLAGS and SETFLAGS.
pub type FlagWord = u32;

/// The struct of FS_IOC_FSGETXATTR, less its padding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fsxattr {
    /// `FS_XFLAG_*` bits.
    pub xflags: u32,
    /// Project id.
    pub projid: u32,
}

/// The flags that `FS_XFLAG_*` bits stand for.
const XFLAGS: [(InodeFlags, u32); 7] = [
    (InodeFlags::SYNC, 0x20),
    (InodeFlags::IMMUTABLE, 0x8),
    (InodeFlags::APPEND, 0x10),
    (InodeFlags::NODUMP, 0x80),
    (InodeFlags::NOATIME, 0x40),
    (InodeFlags::PROJINHERIT, 0x200),
    (InodeFlags::DAX, 0x8000),
];

impl Fs {
    /// FS_IOC_GETFLAGS.
    pub fn get_flags(&self, ino: Ino) -> Result<FlagWord> {
        Ok((self.get(ino)?.flags() & InodeFlags::USER_VISIBLE).bits())
    }

    /// FS_IOC_SETFLAGS. The caller has checked ownership; `admin` stands for
    /// CAP_LINUX_IMMUTABLE and CAP_SYS_RESOURCE.
    pub fn set_flags(&self, admin: bool, ino: Ino, word: FlagWord) -> Result<()> {
        self.vol.writable()?;
        let i = self.get(ino)?;
        let _lock = i.io.acquire(Share::Exclusive, "setflags");
        let old = i.flags();
        let guarded = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        let new = InodeFlags::from_bits_retain(word);
        // What lsattr shows but chattr cannot change is passed back unchanged, and left alone.
        if !InodeFlags::USER_VISIBLE.contains(new) {
            return Err(Error::NotSupported);
        }
        let set = new & InodeFlags::USER_MODIFIABLE;
        let allowed = match FileKind::from_mode(i.mode()) {
            Some(FileKind::Directory) => InodeFlags::all(),
            Some(FileKind::Regular) => !InodeFlags::DIRECTORY_ONLY,
            _ => InodeFlags::NODUMP | InodeFlags::NOATIME,
        };
        if !allowed.contains(set) {
            return Err(Error::NotSupported);
        }
        let new = (old - InodeFlags::USER_MODIFIABLE) | set;
        let changed = old ^ new;
        if changed.intersects(guarded) && !admin {
            return Err(Error::Perm);
        }
        if old.contains(InodeFlags::IMMUTABLE)
            && new.contains(InodeFlags::IMMUTABLE)
            && !changed.is_empty()
        {
            return Err(Error::Perm);
        }
        if changed.intersects(InodeFlags::EXTENTS | InodeFlags::CASEFOLD) {
            return Err(Error::NotSupported);
        }
        if new.contains(InodeFlags::DAX | InodeFlags::JOURNAL_DATA) {
            return Err(Error::NotSupported);
        }
        if changed.contains(InodeFlags::JOURNAL_DATA) {
            if !admin {
                return Err(Error::Perm);
            }
            self.before_journal_switch(&i)?;
        }
        let mut h = self.vol.journal.start("setflags", 2)?;
        {
            let mut a = i.attrs_mut();
            a.rec.flags = new;
            a.rec.ctime = self.vol.now();
        }
        if changed.contains(InodeFlags::JOURNAL_DATA) && i.has_map() {
            i.map_mut()?.set_journalled(new.contains(InodeFlags::JOURNAL_DATA));
        }
        i.store(&self.vol, &mut h)?;
        self.finish(h, &[&i])
    }

    /// Nothing of the file may be in the log or in memory when it starts or stops being journalled.
    fn before_journal_switch(&self, i: &Arc<Inode>) -> Result<()> {
        if i.file_type() != mode::REG {
            return Ok(());
        }
        writeback::write_out(&self.vol, &self.wb, i, Scope::ALL)?;
        self.vol.journal.commit_all()?;
        self.vol.journal.checkpoint_all()
    }

    /// FS_IOC_FSGETXATTR.
    pub fn get_fsxattr(&self, ino: Ino) -> Result<Fsxattr> {
        let i = self.get(ino)?;
        let f = i.flags();
        let mut x = 0;
        for (flag, bit) in XFLAGS {
            if f.contains(flag) {
                x |= bit;
            }
        }
        let projid =
            if self.vol.geo.has_ro_compat(RoCompat::PROJECT) { i.attrs().rec.projid } else { 0 };
        Ok(Fsxattr { xflags: x, projid })
    }

    /// FS_IOC_FSSETXATTR: as [`Fs::set_flags`] for the flags that both ioctls know.
    pub fn set_fsxattr(&self, admin: bool, ino: Ino, x: Fsxattr) -> Result<()> {
        if x.projid != self.get_fsxattr(ino)?.projid {
            return Err(Error::NotSupported);
        }
        let mut f = self.get(ino)?.flags() & InodeFlags::USER_VISIBLE;
        for (flag, bit) in XFLAGS {
            f.set(flag, x.xflags & bit != 0);
        }
        self.set_flags(admin, ino, f.bits())
    }

    /// FS_IOC_GETVERSION.
    pub fn get_version(&self, ino: Ino) -> Result<u32> {
        Ok(self.get(ino)?.generation)
    }

    /// FITRIM: discards free ranges of at least `minlen` bytes in `start..start + len` bytes of
    /// the device; returns the bytes discarded.
    pub fn trim(&self, start: u64, len: u64, minlen: u64) -> Result<u64> {
        self.vol.writable()?;
        self.reaper.drain();
        self.vol.journal.commit_all()?;
        let bs = self.vol.geo.block_size;
        let first = Block(bs.index(start));
        let min = u32::try_from(bs.blocks_for(minlen)).unwrap_or(u32::MAX);
        let n = self.op("fitrim", self.vol.alloc.trim(first, bs.index(len), min))?;
        Ok(n << bs.log2())
    }

    /// FS_IOC_SHUTDOWN, at its harshest: nothing more reaches the device.
    pub fn shutdown(&self) {
        log::warn!("file system shut down on request");
        self.vol.shut_down();
    }
}
