//! `i_flags`, by ext4's names.

// Each bit is `EXT4_<name>_FL`.
#![allow(missing_docs)]

use super::inode::FileKind;

bitflags::bitflags! {
    /// `i_flags` (`EXT4_*_FL`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct InodeFlags: u32 {
        const SECRM = 0x1;
        const UNRM = 0x2;
        const COMPR = 0x4;
        const SYNC = 0x8;
        const IMMUTABLE = 0x10;
        const APPEND = 0x20;
        const NODUMP = 0x40;
        const NOATIME = 0x80;
        const DIRTY = 0x100;
        const COMPRBLK = 0x200;
        const NOCOMPR = 0x400;
        const ENCRYPT = 0x800;
        const INDEX = 0x1000;
        const IMAGIC = 0x2000;
        const JOURNAL_DATA = 0x4000;
        const NOTAIL = 0x8000;
        const DIRSYNC = 0x1_0000;
        const TOPDIR = 0x2_0000;
        const HUGE_FILE = 0x4_0000;
        const EXTENTS = 0x8_0000;
        const VERITY = 0x10_0000;
        const EA_INODE = 0x20_0000;
        const EOFBLOCKS = 0x40_0000;
        const SNAPFILE = 0x0100_0000;
        const DAX = 0x0200_0000;
        const SNAPFILE_DELETED = 0x0400_0000;
        const SNAPFILE_SHRUNK = 0x0800_0000;
        const INLINE_DATA = 0x1000_0000;
        const PROJINHERIT = 0x2000_0000;
        const CASEFOLD = 0x4000_0000;
        const RESERVED = 0x8000_0000;
    }
}

impl InodeFlags {
    /// `EXT4_FL_USER_VISIBLE`: what `lsattr` shows.
    pub const USER_VISIBLE: InodeFlags = InodeFlags::from_bits_retain(0x725b_dfff);
    /// `EXT4_FL_USER_MODIFIABLE`: what `chattr` may change.
    pub const USER_MODIFIABLE: InodeFlags = InodeFlags::from_bits_retain(0x624b_c0ff);
    /// `EXT4_FL_INHERITED`: what a new inode takes from its directory.
    pub const INHERITED: InodeFlags = InodeFlags::SECRM
        .union(InodeFlags::UNRM)
        .union(InodeFlags::COMPR)
        .union(InodeFlags::SYNC)
        .union(InodeFlags::NODUMP)
        .union(InodeFlags::NOATIME)
        .union(InodeFlags::NOCOMPR)
        .union(InodeFlags::JOURNAL_DATA)
        .union(InodeFlags::NOTAIL)
        .union(InodeFlags::DIRSYNC)
        .union(InodeFlags::PROJINHERIT)
        .union(InodeFlags::CASEFOLD)
        .union(InodeFlags::DAX);
    /// `EXT4_REG_FLMASK` complement: never set on regular files.
    pub const DIRECTORY_ONLY: InodeFlags = InodeFlags::DIRSYNC
        .union(InodeFlags::TOPDIR)
        .union(InodeFlags::CASEFOLD)
        .union(InodeFlags::PROJINHERIT);

    /// The flags of [`Self::INHERITED`] that suit the kind of a new inode.
    pub fn inherit(self, kind: FileKind) -> InodeFlags {
        let f = self & InodeFlags::INHERITED;
        match kind {
            FileKind::Directory => f,
            FileKind::Regular => f - InodeFlags::DIRECTORY_ONLY,
            _ => f & (InodeFlags::NODUMP | InodeFlags::NOATIME),
        }
    }
}
