//! The lock mode of direct I/O, per inode, and what follows from it.

use super::{Inode, Share, Volume};
use crate::{ondisk::InodeFlags, options::DioreadMode};
use std::sync::atomic::Ordering;

/// How direct I/O on an inode locks, and how buffered write-out enters new blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Direct reads take the I/O lock exclusively, as ext4 of 2.6.33 did.
    Lock,
    /// Direct reads share the I/O lock (4.9 to 5.5).
    Shared,
    /// Direct reads take no lock; new blocks are unwritten until their data is down.
    Nolock,
}

impl LockMode {
    /// What a direct read takes.
    pub fn read_share(self) -> Option<Share> {
        match self {
            LockMode::Lock => Some(Share::Exclusive),
            LockMode::Shared => Some(Share::Shared),
            LockMode::Nolock => None,
        }
    }

    /// What a direct write takes that overwrites written blocks, aligned to blocks.
    pub fn overwrite_share(self) -> Share {
        match self {
            LockMode::Lock => Share::Exclusive,
            LockMode::Shared | LockMode::Nolock => Share::Shared,
        }
    }

    /// Whether buffered write-out enters new blocks as unwritten.
    pub fn enters_unwritten(self) -> bool {
        self == LockMode::Nolock
    }
}

/// The mode of the mount or of this inode, less what the inode cannot do: without
/// extents, with `nodelalloc` or journalled data it is `shared`, as in ext4.
pub fn effective(vol: &Volume, inode: &Inode) -> LockMode {
    let asked = match inode.dio_mode.load(Ordering::Acquire) {
        1 => LockMode::Lock,
        2 => LockMode::Shared,
        3 => LockMode::Nolock,
        _ => match vol.conf.dioread {
            DioreadMode::Lock => LockMode::Lock,
            DioreadMode::Shared => LockMode::Shared,
            DioreadMode::Nolock => LockMode::Nolock,
        },
    };
    let able = inode.flags().contains(InodeFlags::EXTENTS)
        && vol.conf.delalloc
        && !vol.journals_data(inode);
    if able { asked } else { LockMode::Shared }
}
