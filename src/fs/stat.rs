//! What stat(2) and statfs(2) report.

use super::Fs;
use crate::{
    error::Result,
    inode::{Inode, mode},
    ondisk::{InodeFlags, Timestamp},
    types::Ino,
};
use std::sync::atomic::Ordering;

/// The attributes of an inode, as stat(2) and statx(2) show them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    /// Inode number.
    pub ino: Ino,
    /// Generation.
    pub generation: u32,
    /// Type and permissions.
    pub mode: u16,
    /// Links; 1 for a directory with more than 65,000.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, in Linux's stat encoding.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Space used, in 512-byte units, delayed blocks included.
    pub blocks512: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation; the epoch in 128-byte inodes.
    pub crtime: Timestamp,
}

/// What statfs(2) reports; sizes in blocks of `bsize` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes.
    pub bsize: u32,
    /// Blocks, less the overhead unless `minixdf`.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for unprivileged users.
    pub bavail: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
}

impl Stat {
    /// The attributes of `inode` now.
    pub fn of(fs: &Fs, inode: &Inode) -> Stat {
        let blocks512 = inode.stat_blocks512(fs.vol.geo.block_size);
        inode.told_blocks.store(blocks512, Ordering::Release);
        let a = inode.attrs();
        // As the kernel does, so that nobody takes the file for a hole.
        let regular = a.rec.mode & mode::FMT == mode::REG;
        let inline = regular && a.rec.flags.contains(InodeFlags::INLINE_DATA);
        let blocks512 = blocks512 + if inline { a.size.div_ceil(512) } else { 0 };
        let rdev = match a.rec.mode & mode::FMT {
            mode::CHR | mode::BLK => a.rec.rdev().map_or(0, |(x, y)| libc::makedev(x, y) as u32),
            _ => 0,
        };
        Stat {
            ino: inode.ino,
            generation: inode.generation,
            mode: a.rec.mode,
            nlink: u32::from(a.rec.links_count),
            uid: a.rec.uid,
            gid: a.rec.gid,
            rdev,
            size: a.size,
            blocks512,
            atime: a.rec.atime,
            mtime: a.rec.mtime,
            ctime: a.rec.ctime,
            crtime: a.rec.crtime,
        }
    }
}

impl Fs {
    /// Whether `st_blocks` is no longer what it was last reported to be.
    pub fn blocks_moved(&self, ino: Ino) -> bool {
        let Some(i) = self.vol.inodes.peek(ino) else { return false };
        let told = i.told_blocks.load(Ordering::Acquire);
        told != u64::MAX && told != i.stat_blocks512(self.vol.geo.block_size)
    }

    /// getattr.
    pub fn getattr(&self, ino: Ino) -> Result<Stat> {
        Ok(Stat::of(self, &*self.get(ino)?))
    }

    /// statfs. What is unlinked and closed counts as free, though the kernel may not have forgotten
    /// its inode yet.
    pub fn statfs(&self) -> StatFs {
        self.reaper.drain();
        let ended = self.vol.orphans.closed(&self.vol);
        let c = self.vol.alloc.statfs();
        StatFs {
            bsize: self.vol.geo.block_size.bytes() as u32,
            blocks: c.blocks,
            bfree: c.free,
            bavail: c.avail,
            files: c.files,
            ffree: c.ffree + ended,
        }
    }
}
