//! The inode in memory: its locks, attributes and map; the inode table; the
//! orphan list; truncation.
//!
//! `dir`, `xattr`, `writeback`, `dio` and `fs` work on [`Inode`]s that they get
//! from [`Volume::inodes`]. An inode's slot on disk is written by
//! [`Inode::store`] and nowhere else.
//!
//! Locks of an inode, by rank (see `docs/architecture.md`): [`Inode::dir`] 2,
//! [`Inode::io`] 3, then a journal handle (5), [`Inode::xattr`] 5.5,
//! [`Inode::map`] 6, the orphan list 6.5, [`Inode::attrs`] 7.5 (held for a few
//! instructions, never across I/O or the start of a handle).

mod delayed;
pub mod gate;
pub mod io_lock;
pub mod lock_mode;
mod lifecycle;
mod meta;
pub mod orphan;
mod store;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod truncate;
pub mod volume;

pub use gate::{IoGate, Pass};
pub use io_lock::{IoLock, Share, Ticket};
pub use lifecycle::{NewInode, free_inode, new_inode, undo_new};
pub use meta::{append_meta_block, meta_block, prefetch_meta};
pub use table::InodeTable;
pub use volume::{SlotAt, Volume};

use delayed::Delayed;

use crate::{
    cache::pages::FilePages,
    error::{Corrupt, Error, Result},
    map::FileMap,
    ondisk::{InodeFlags, InodeRecord, Timestamp},
    types::{Ino, Tid},
};
use parking_lot::{
    Condvar, MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// File type bits of `i_mode`.
pub mod mode {
    /// Mask of the type bits.
    pub const FMT: u16 = 0o170000;
    /// Regular file.
    pub const REG: u16 = 0o100000;
    /// Directory.
    pub const DIR: u16 = 0o040000;
    /// Symbolic link.
    pub const LNK: u16 = 0o120000;
    /// Character device.
    pub const CHR: u16 = 0o020000;
    /// Block device.
    pub const BLK: u16 = 0o060000;
    /// FIFO.
    pub const FIFO: u16 = 0o010000;
    /// Socket.
    pub const SOCK: u16 = 0o140000;
    /// Set-user-id.
    pub const SUID: u16 = 0o4000;
    /// Set-group-id.
    pub const SGID: u16 = 0o2000;
    /// Sticky.
    pub const SVTX: u16 = 0o1000;
}

/// What the slot of an inode says besides its map.
#[derive(Debug, Clone)]
pub struct Attrs {
    /// The record as it goes to the slot, but for `size` (see [`Attrs::size`]) and,
    /// where the inode has a [`FileMap`], `i_block` and `blocks`.
    /// `rec.size` is ext4's `i_disksize`: it never runs ahead of the data on disk.
    pub rec: InodeRecord,
    /// `i_size`, in bytes: what stat and read see. At least `rec.size` but for a
    /// truncate in progress.
    pub size: u64,
    /// The in-inode extended attribute area, from the end of the extra fields to the end of
    /// the slot, with its magic; empty in 128-byte inodes. Owned by the `xattr` room.
    pub ibody: Vec<u8>,
    /// Changed in memory (times) since the last [`Inode::store`].
    pub dirty: bool,
}

/// One inode in memory.
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// Its generation (`i_generation`), part of every checksum seed.
    pub generation: u32,
    /// Contents of a directory. Rank 2: parent before child, then by number.
    pub dir: RwLock<()>,
    /// Reads and writes of a file. Rank 3.
    pub io: IoLock,
    /// Requests in flight; closed while blocks are taken away.
    pub gate: IoGate,
    /// The attribute area. Rank 5.5.
    pub xattr: RwLock<()>,
    map: RwLock<Option<FileMap>>,
    attrs: RwLock<Attrs>,
    /// Write-out of this inode, one at a time. Rank 4.
    pub wb: Mutex<()>,
    /// Dirty and in-flight data. Rank 8: held for the look-up, never across I/O.
    pub pages: Mutex<FilePages>,
    /// Signalled, under `pages`, when pages are no longer in flight.
    pub pages_idle: Condvar,
    /// Blocks reserved for pages that have no place yet. Leaf.
    pub(super) delayed: Mutex<Delayed>,
    /// Open handles of the kernel; the last close of an unlinked inode frees its blocks.
    pub opens: AtomicU32,
    /// Transaction of the last change (fsync), and of the last one that fdatasync needs.
    sync_tid: AtomicU32,
    datasync_tid: AtomicU32,
    /// Next inode of the on-disk orphan list while on it (stored in `i_dtime`).
    pub(crate) orphan_next: AtomicU32,
    /// On the orphan list or in the orphan file.
    pub(crate) is_orphan: AtomicBool,
    /// Lock mode of direct reads; see `dio`.
    pub dio_mode: lock_mode::ModeCell,
    /// Write-out policy override; see `writeback`.
    pub wb_policy: AtomicU8,
    /// Where the next background write-out goes on (the kernel's `writeback_index`).
    pub wb_index: AtomicU32,
    /// A write-out of this inode failed: counts failures, so that every open handle reports once.
    pub wb_errors: AtomicU64,
    /// On the list of inodes to write out. Of this object: its number may be another file's soon.
    pub wb_listed: AtomicBool,
    /// A new file with the feature `inline_data`: its first write may stay in the inode.
    pub may_inline: AtomicBool,
    /// Cut to nothing: the next close writes out what came since (`auto_da_alloc`).
    pub da_alloc_close: AtomicBool,
    /// `security.capability` was just removed: the kernel does that before it takes away set-id bits.
    pub cap_removed: AtomicBool,
    /// `st_blocks` as last reported, [`u64::MAX`] before: the kernel keeps it.
    pub told_blocks: AtomicU64,
    /// Set once the blocks of an unlinked inode are gone and its number is free again.
    pub(crate) freed: AtomicBool,
}

impl Inode {
    /// Attributes, shared.
    pub fn attrs(&self) -> RwLockReadGuard<'_, Attrs> {
        self.attrs.read()
    }

    /// Attributes, to change. What changes what is on disk happens inside a
    /// handle and ends with [`Inode::store`].
    pub fn attrs_mut(&self) -> RwLockWriteGuard<'_, Attrs> {
        self.attrs.write()
    }

    /// The map of file blocks, shared. Rank 6. `Err` for inodes without one
    /// (devices, fast symlinks, inline data).
    pub fn map(&self) -> Result<MappedRwLockReadGuard<'_, FileMap>> {
        RwLockReadGuard::try_map(self.map.read(), Option::as_ref)
            .map_err(|_| Error::Invalid("inode has no block map"))
    }

    /// The map of file blocks, to change, inside a handle.
    pub fn map_mut(&self) -> Result<MappedRwLockWriteGuard<'_, FileMap>> {
        RwLockWriteGuard::try_map(self.map.write(), Option::as_mut)
            .map_err(|_| Error::Invalid("inode has no block map"))
    }

    /// Whether the inode maps blocks at all.
    pub fn has_map(&self) -> bool {
        self.map.read().is_some()
    }

    /// Replaces the map: when inline data moves to a block, or back on truncation.
    pub fn set_map(&self, map: Option<FileMap>) {
        *self.map.write() = map;
    }

    /// `i_mode`.
    pub fn mode(&self) -> u16 {
        self.attrs().rec.mode
    }

    /// The file type bits of the mode, one of [`mode`]'s constants.
    pub fn file_type(&self) -> u16 {
        self.mode() & mode::FMT
    }

    /// A directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == mode::DIR
    }

    /// A regular file.
    pub fn is_reg(&self) -> bool {
        self.file_type() == mode::REG
    }

    /// `i_flags`.
    pub fn flags(&self) -> InodeFlags {
        self.attrs().rec.flags
    }

    /// `i_size` in bytes.
    pub fn size(&self) -> u64 {
        self.attrs().size
    }

    /// Link count.
    pub fn nlink(&self) -> u32 {
        u32::from(self.attrs().rec.links_count)
    }

    /// Notes that a handle of this transaction changed the inode: fsync commits
    /// it, and fdatasync too if `data` (size, map or anything needed to read the data back).
    pub fn note_change(&self, tid: Tid, data: bool) {
        self.sync_tid.store(tid.0, Ordering::Release);
        if data {
            self.datasync_tid.store(tid.0, Ordering::Release);
        }
    }

    /// The transaction an fsync (or fdatasync) has to wait for.
    pub fn sync_tid(&self, datasync: bool) -> Tid {
        Tid(if datasync { &self.datasync_tid } else { &self.sync_tid }.load(Ordering::Acquire))
    }

    /// A corruption error that names this inode.
    pub fn corrupt(&self, what: &'static str) -> Error {
        Corrupt::new(what).ino(self.ino).into()
    }

    /// The seed of the checksums of this inode's own metadata blocks.
    pub fn csum_seed(&self, vol: &Volume) -> u32 {
        vol.cache.sealer().inode_seed(self.ino, self.generation)
    }

    /// Whether the size, link count and times are to be set to now where asked; stored later.
    pub fn touch(&self, atime: Option<Timestamp>, mtime: Option<Timestamp>) {
        let mut a = self.attrs_mut();
        if let Some(t) = atime {
            a.rec.atime = t;
        }
        if let Some(t) = mtime {
            a.rec.mtime = t;
            a.rec.ctime = t;
        }
        a.dirty = true;
    }
}
