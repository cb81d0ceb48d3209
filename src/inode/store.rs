//! An inode's way to and from its slot.

use super::{Attrs, Inode, IoGate, IoLock, SlotAt, Volume, mode};
use crate::{
    cache::pages::FilePages,
    device::seeded::{self, Fault},
    error::{Corrupt, Error, Result},
    journal::Handle,
    map::FileMap,
    ondisk::{Geometry, InodeFlags, InodeRecord, Seal},
    options::DataMode,
    types::{BlockSize, Ino},
};
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// What is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    /// The first record of a slot: whatever was in it before is gone.
    New,
    /// Something that fdatasync waits for.
    Data,
    /// Nothing that fdatasync waits for.
    Times,
}

/// Whether `i_block` is a map of blocks, by type and flags.
fn maps_blocks(geo: &Geometry, rec: &InodeRecord) -> bool {
    if rec.flags.contains(InodeFlags::INLINE_DATA) {
        return false;
    }
    match rec.mode & mode::FMT {
        mode::REG | mode::DIR => true,
        mode::LNK => !rec.is_fast_symlink(geo),
        _ => false,
    }
}

impl Inode {
    /// Puts a record into memory, unlisted: the table or a creation makes it known.
    pub(super) fn from_record(
        vol: &Volume,
        ino: Ino,
        rec: InodeRecord,
        ibody: Vec<u8>,
    ) -> Result<Inode> {
        let map = if maps_blocks(&vol.geo, &rec) {
            let mut map = FileMap::from_inode(&vol.geo, ino, &rec)?;
            if vol.conf.data == DataMode::Journal {
                map.set_journalled(true);
            }
            Some(map)
        } else {
            None
        };
        let tid = vol.journal.running_tid().0;
        Ok(Inode {
            ino,
            generation: rec.generation,
            dir: RwLock::new(()),
            io: IoLock::default(),
            gate: IoGate::default(),
            xattr: RwLock::new(()),
            map: RwLock::new(map),
            attrs: RwLock::new(Attrs { size: rec.size, rec, ibody, dirty: false }),
            wb: Mutex::new(()),
            pages: Mutex::new(FilePages::default()),
            pages_idle: Condvar::new(),
            delayed: Mutex::default(),
            opens: AtomicU32::new(0),
            sync_tid: AtomicU32::new(tid),
            datasync_tid: AtomicU32::new(tid),
            orphan_next: AtomicU32::new(0),
            is_orphan: AtomicBool::new(false),
            dio_mode: super::lock_mode::ModeCell::new(vol.dio.default_mode()),
            wb_policy: AtomicU8::new(0),
            wb_index: AtomicU32::new(0),
            wb_errors: AtomicU64::new(0),
            wb_listed: AtomicBool::new(false),
            may_inline: AtomicBool::new(false),
            da_alloc_close: AtomicBool::new(false),
            cap_removed: AtomicBool::new(false),
            told_blocks: AtomicU64::new(u64::MAX),
            freed: AtomicBool::new(false),
        })
    }

    /// Reads the slot of `ino`. A slot that is not in use is [`Error::Stale`].
    pub(super) fn load(vol: &Volume, ino: Ino) -> Result<Inode> {
        let at = vol.slot(ino)?;
        let buf = vol.cache.read(at.block, &Seal::None)?;
        let end = at.offset + usize::from(vol.geo.inode_size);
        let (mut rec, mut ibody) = buf.read(|b| -> Result<_> {
            let slot = b.get(at.offset..end).ok_or(Corrupt::new("inode slot").ino(ino))?;
            if slot.iter().all(|&x| x == 0) {
                return Err(Error::Stale);
            }
            let rec = InodeRecord::parse(&vol.geo, ino, slot)?;
            vol.cache.sealer().verify(&vol.slot_seal(ino, at), at.block, b)?;
            let body = slot.get(rec.ibody_range(&vol.geo)).unwrap_or_default().to_vec();
            Ok((rec, body))
        })?;
        if rec.links_count == 0 && (rec.mode == 0 || rec.dtime != 0) && !vol.orphans.knows(ino) {
            return Err(Error::Stale);
        }
        if vol.writable().is_ok() && !rec.expand_extra_isize(&vol.geo, &mut ibody)? {
            log::debug!("inode {ino}: its attributes leave no room for the newer fields");
        }
        Inode::from_record(vol, ino, rec, ibody)
    }

    /// Writes the inode's slot in this handle (1 credit). `i_size` goes to disk as
    /// `i_disksize` (INVARIANT: never ahead of the data).
    pub fn store(&self, vol: &Volume, h: &mut Handle) -> Result<()> {
        self.store_at(vol, h, vol.slot(self.ino)?, Store::Data)
    }

    /// As [`Inode::store`], for changes that fdatasync need not wait for.
    pub fn store_times(&self, vol: &Volume, h: &mut Handle) -> Result<()> {
        self.store_at(vol, h, vol.slot(self.ino)?, Store::Times)
    }

    pub(super) fn store_at(
        &self,
        vol: &Volume,
        h: &mut Handle,
        at: SlotAt,
        what: Store,
    ) -> Result<()> {
        let buf = vol.cache.read(at.block, &Seal::None)?;
        let seal = vol.slot_seal(self.ino, at);
        let map = self.map.read();
        let mut attrs = self.attrs.write();
        if let Some(m) = map.as_ref() {
            attrs.rec.i_block = *m.i_block();
            attrs.rec.blocks = m.blocks512();
        }
        let end = at.offset + usize::from(vol.geo.inode_size);
        h.modify(&buf, &seal, |b| -> Result<()> {
            // The slot may be another file's by now.
            if self.freed.load(Ordering::Acquire) {
                return Ok(());
            }
            let slot = b.get_mut(at.offset..end).ok_or(Corrupt::new("inode slot").ino(self.ino))?;
            if what == Store::New {
                slot.fill(0);
            }
            // Read with the slot locked: the removal of a neighbour changes it there too.
            if self.is_orphan.load(Ordering::Acquire) {
                attrs.rec.dtime = self.orphan_next.load(Ordering::Acquire);
            }
            attrs.rec.encode(&vol.geo, slot)?;
            if let Some(body) = slot.get_mut(attrs.rec.ibody_range(&vol.geo))
                && body.len() == attrs.ibody.len()
            {
                body.copy_from_slice(&attrs.ibody);
            }
            Ok(())
        })??;
        attrs.dirty = false;
        drop(attrs);
        self.note_change(h.tid(), what != Store::Times && !seeded::on(Fault::FdatasyncForgotten));
        Ok(())
    }

    /// Adds to (or takes from) `i_blocks`, in 512-byte units: blocks that are not mapped, as
    /// those of attributes.
    pub fn add_blocks512(&self, delta: i64) {
        let mut map = self.map.write();
        match map.as_mut() {
            Some(m) => m.add_blocks512(delta),
            None => {
                let mut a = self.attrs.write();
                a.rec.blocks = a.rec.blocks.saturating_add_signed(delta);
            }
        }
    }

    /// `st_blocks`: in 512-byte units, delayed blocks included.
    pub fn stat_blocks512(&self, bs: BlockSize) -> u64 {
        let delayed = self.pages.lock().reserved_blocks();
        self.blocks512() + delayed * (bs.bytes64() / 512)
    }

    /// `i_blocks` in 512-byte units.
    pub fn blocks512(&self) -> u64 {
        match self.map.read().as_ref() {
            Some(m) => m.blocks512(),
            None => self.attrs.read().rec.blocks,
        }
    }

    /// Whether this is a symlink whose target is inside the inode.
    pub fn is_fast_symlink(&self, vol: &Volume) -> bool {
        self.attrs().rec.is_fast_symlink(&vol.geo)
    }
}
