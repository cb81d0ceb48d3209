//! One mounted volume: the rooms below `inode`, tied together for the rooms above.

use super::{Inode, InodeTable, mode, orphan::Orphans};
use crate::{
    alloc::Allocator,
    cache::{BufferCache, HashIndex, SuperBuf},
    device::BlockDevice,
    error::{Corrupt, Error, Result},
    journal::{Handle, Journal},
    map::MapCtx,
    ondisk::{
        Geometry, InodeFlags, SUPERBLOCK_SIZE, Seal, Superblock, Timestamp,
        superblock::{ErrorRecord, errcode},
    },
    options::{DataMode, ErrorsMode, LiveOptions},
    types::{Block, Ino},
};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

/// Where an inode's slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotAt {
    /// The block of the inode table.
    pub block: Block,
    /// Byte offset of the slot in it.
    pub offset: usize,
}

/// The lower rooms of one mounted file system.
pub struct Volume {
    /// Facts that do not change while mounted.
    pub geo: Arc<Geometry>,
    /// The device.
    pub dev: Arc<dyn BlockDevice>,
    /// Metadata blocks.
    pub cache: Arc<BufferCache>,
    /// The journal, or what stands for it where there is none.
    pub journal: Arc<Journal>,
    /// Blocks and inodes.
    pub alloc: Arc<Allocator>,
    /// The superblock's buffer.
    pub sb: SuperBuf,
    /// Mount options.
    pub conf: LiveOptions,
    /// The lock mode of direct I/O, and its counters.
    pub dio: super::lock_mode::DioState,
    /// Inodes in memory.
    pub inodes: InodeTable,
    /// Unlinked or half-truncated inodes to finish after a crash.
    pub orphans: Orphans,
    /// Attribute blocks that may be shared, by `h_hash`.
    pub xattr_blocks: HashIndex,
    /// Inodes that hold an attribute's value, by the value's checksum.
    pub ea_inodes: HashIndex,
    /// A write to it would be refused: after an error, or a shutdown.
    pub(crate) frozen: AtomicBool,
    /// FS_IOC_SHUTDOWN was called.
    pub(crate) shut_down: AtomicBool,
    /// The last error found, until it is in the superblock. Leaf.
    pub(crate) noted: Mutex<Option<ErrorRecord>>,
    /// The generation that the next new inode gets.
    pub(crate) generation: AtomicU32,
}

impl Volume {
    /// What the `map` room needs.
    pub fn map_ctx(&self) -> MapCtx<'_> {
        MapCtx::new(&self.geo, &self.cache, &self.alloc)
    }

    /// `Err(Shutdown)` after FS_IOC_SHUTDOWN: files can neither be opened nor read any more, as in the
    /// kernel.
    pub fn alive(&self) -> Result<()> {
        if self.shut_down.load(Ordering::Acquire) { Err(Error::Shutdown) } else { Ok(()) }
    }

    /// `Err(ReadOnly)` or `Err(Shutdown)` if the volume takes no changes.
    pub fn writable(&self) -> Result<()> {
        self.alive()?;
        if self.conf.read_only || self.frozen.load(Ordering::Acquire) {
            return Err(Error::ReadOnly);
        }
        Ok(())
    }

    /// Where the slot of `ino` lies on the device.
    pub fn slot(&self, ino: Ino) -> Result<SlotAt> {
        let bad = || Error::from(Corrupt::new("inode number out of range").ino(ino));
        let (group, index) = self.geo.ino_location(ino).ok_or_else(bad)?;
        let (nth, offset) = self.geo.itable_slot(index);
        let table = self.alloc.inode_table(group)?;
        Ok(SlotAt { block: table.plus(u64::from(nth)), offset })
    }

    /// The seal of an inode's slot.
    pub fn slot_seal(&self, ino: Ino, at: SlotAt) -> Seal {
        Seal::Inode { ino, offset: at.offset as u32 }
    }

    /// Whether the data of this file goes through the journal.
    pub fn journals_data(&self, inode: &Inode) -> bool {
        let a = inode.attrs();
        a.rec.mode & mode::FMT == mode::REG
            && self.journal.has_log()
            && (self.conf.data == DataMode::Journal
                || a.rec.flags.contains(InodeFlags::JOURNAL_DATA))
    }

    /// Changes the superblock in this handle (1 credit).
    pub fn change_super(&self, h: &mut Handle, f: impl FnOnce(&mut Superblock)) -> Result<()> {
        h.modify(&self.sb.buf, &Seal::Superblock, |b| {
            let bytes = self.sb.slice_mut(b);
            let raw: &mut [u8; SUPERBLOCK_SIZE] =
                bytes.try_into().map_err(|_| Corrupt::new("superblock buffer"))?;
            let mut s = Superblock::parse(raw)?;
            f(&mut s);
            *raw = s.encode();
            Ok(())
        })?
    }

    /// Sets the head of the orphan list in this handle (1 credit): a field changed in place, for it
    /// happens twice for each unlinked file.
    pub(crate) fn set_last_orphan(&self, h: &mut Handle, ino: Option<Ino>) -> Result<()> {
        h.modify(&self.sb.buf, &Seal::Superblock, |b| {
            let head = Superblock::last_orphan_field(self.sb.slice_mut(b));
            let head = head.ok_or(Corrupt::new("superblock buffer"))?;
            *head = ino.map_or(0, |i| i.0).to_le_bytes();
            Ok(())
        })?
    }

    /// The time now, as it is stored: to the nanosecond, in 128-byte inodes to the second.
    pub fn now(&self) -> Timestamp {
        Timestamp::now().clamp(self.geo.inode_size > 128)
    }

    /// A generation for a new inode.
    pub fn next_generation(&self) -> u32 {
        self.generation.fetch_add(0x9e37_79b9, Ordering::Relaxed)
    }

    /// Whether this user may use the blocks reserved for root: root, `resuid`, `resgid`.
    pub fn may_use_reserve(&self, uid: u32, gid: u32) -> bool {
        uid == 0
            || self.conf.resuid == Some(uid)
            || self.conf.resgid.is_some_and(|g| g != 0 && g == gid)
    }

    /// Writes a noted error to the superblock. Called with nothing locked.
    pub fn flush_noted(&self) {
        let Some(record) = self.noted.lock().take() else { return };
        let written = self.journal.start("note_error", 1).and_then(|mut h| {
            self.change_super(&mut h, |s| s.record_error(&record))?;
            h.stop()
        });
        if let Err(e) = written {
            log::error!("recording an error in the superblock failed: {e}");
        }
    }

    /// A write of file data failed: to be recorded in the superblock. Whoever waits is told by other
    /// ways; `errors=` is about contradictions and is not followed.
    pub fn note_io_error(&self, op: &'static str, ino: Ino, block: Block, e: &Error) {
        if !self.conf.read_only {
            *self.noted.lock() = Some(self.record(op, ino.0, block.0, e));
        }
    }

    fn record(&self, op: &'static str, ino: u32, block: u64, e: &Error) -> ErrorRecord {
        ErrorRecord {
            time: u64::try_from(self.now().sec).unwrap_or(0),
            ino,
            block,
            func: op.into(),
            line: 0,
            errcode: errcode(e.errno()),
        }
    }

    /// Passes a result on; a corruption in it is recorded and `errors=` followed.
    pub fn check<T>(&self, op: &'static str, r: Result<T>) -> Result<T> {
        if let Err(Error::Corrupt(c)) = &r {
            self.report(op, c);
        }
        r
    }

    /// A contradiction was found: log it, record it in the superblock, follow `errors=`.
    pub fn report(&self, op: &'static str, c: &Corrupt) {
        log::error!("{op}: {c}");
        if self.conf.read_only {
            return;
        }
        match self.conf.errors.unwrap_or(ErrorsMode::Continue) {
            ErrorsMode::Continue => {
                let (ino, block) = (c.ino.map_or(0, |i| i.0), c.block.map_or(0, |b| b.0));
                let record = self.record(op, ino, block, &Error::Corrupt(c.clone()));
                *self.noted.lock() = Some(record);
            }
            ErrorsMode::RemountRo => {
                if !self.frozen.swap(true, Ordering::AcqRel) {
                    log::error!("{op}: remounting read-only (errors=remount-ro)");
                    self.journal.abort(&Error::Corrupt(c.clone()));
                }
            }
            ErrorsMode::Panic => {
                log::error!("{op}: stopping (errors=panic)");
                std::process::abort();
            }
        }
    }
}
