//! Inodes that must be finished after a crash: unlinked but still open, or
//! truncated halfway. On disk they are a list threaded through `i_dtime` from
//! `s_last_orphan`, or slots of the orphan file where the feature is on and a
//! slot is free.
//!
//! Lock rank 6.5: taken inside a handle, after any map lock.

use super::{Inode, Volume, meta_block};
use crate::device::seeded::{self, Fault};
use crate::{
    cache::{Buffer, InoMap},
    error::{Corrupt, Error, Result},
    journal::Handle,
    ondisk::{Seal, orphan_file},
    types::{Ino, LBlock},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

/// Credits for adding or removing one orphan: its slot, a neighbour's slot or the superblock, an
/// orphan-file block.
pub const ORPHAN_CREDITS: u32 = 4;

/// Byte offset of `i_dtime` in a slot.
const I_DTIME: usize = 0x14;

/// Where an orphan is noted on disk.
#[derive(Clone, Copy)]
enum Place {
    /// On the list, with this age; the list runs from the youngest to the oldest.
    List(u64),
    /// In a slot of the orphan file.
    File { block: usize, slot: usize },
}

struct FileBlock {
    buf: Arc<Buffer>,
    seal: Seal,
    /// No slot below this one is free.
    hint: usize,
}

#[derive(Default)]
struct State {
    age: u64,
    list: BTreeMap<u64, Arc<Inode>>,
    place: InoMap<Place>,
    file: Vec<FileBlock>,
    /// Numbers found at mount: they may be loaded although they have no links.
    found: Vec<Ino>,
}

/// The orphans of a volume.
#[derive(Default)]
pub struct Orphans {
    state: Mutex<State>,
}

impl Orphans {
    /// Whether an inode without links is known to wait for its end.
    pub fn knows(&self, ino: Ino) -> bool {
        let s = self.state.lock();
        s.place.contains_key(&ino) || s.found.contains(&ino)
    }

    /// Numbers found at mount that may be loaded though they have no links.
    pub fn set_found(&self, inos: Vec<Ino>) {
        self.state.lock().found = inos;
    }

    /// Uses the orphan file `inode` from now on. Its blocks are read here once.
    pub fn use_file(&self, vol: &Volume, inode: &Inode) -> Result<()> {
        let blocks = vol.geo.block_size.blocks_for(inode.size());
        let mut file = Vec::new();
        for l in 0..blocks.min(orphan_file::MAX_BLOCKS) {
            let seal = Seal::OrphanBlock { seed: inode.csum_seed(vol) };
            let buf = meta_block(vol, inode, LBlock(l as u32), &seal)?
                .ok_or_else(|| inode.corrupt("hole in the orphan file"))?;
            file.push(FileBlock { buf, seal, hint: 0 });
        }
        self.state.lock().file = file;
        Ok(())
    }

    /// Inode numbers noted in the orphan file, with their places registered so that
    /// [`Orphans::remove`] clears them.
    pub fn scan_file(&self, vol: &Volume) -> Vec<Ino> {
        let mut s = self.state.lock();
        let mut found = Vec::new();
        for (block, fb) in s.file.iter().enumerate() {
            fb.buf.read(|b| {
                for slot in 0..orphan_file::slots(vol.geo.block_size) {
                    let n = orphan_file::get(b, slot);
                    if n != 0 {
                        found.push((Ino(n), Place::File { block, slot }));
                    }
                }
            });
        }
        for &(ino, place) in &found {
            s.place.insert(ino, place);
        }
        found.into_iter().map(|(i, _)| i).collect()
    }

    /// Registers the members of the on-disk list, youngest first, as read at mount.
    pub fn adopt_list(&self, inodes: &[Arc<Inode>]) {
        let mut s = self.state.lock();
        for (i, inode) in inodes.iter().enumerate().rev() {
            s.age += 1;
            let age = s.age;
            let next = inodes.get(i + 1).map_or(0, |n| n.ino.0);
            inode.orphan_next.store(next, Ordering::Release);
            inode.is_orphan.store(true, Ordering::Release);
            s.list.insert(age, inode.clone());
            s.place.insert(inode.ino, Place::List(age));
        }
    }

    /// Notes `inode` in this handle, if it is not noted yet. The caller stores the inode afterwards.
    pub fn add(&self, vol: &Volume, h: &mut Handle, inode: &Arc<Inode>) -> Result<()> {
        let mut s = self.state.lock();
        if s.place.contains_key(&inode.ino) || seeded::on(Fault::NoOrphan) {
            return Ok(());
        }
        if let Some(place) = take_slot(&mut s, vol, h, inode.ino)? {
            s.place.insert(inode.ino, place);
            return Ok(());
        }
        let head = s.list.last_key_value().map_or(0, |(_, i)| i.ino.0);
        inode.orphan_next.store(head, Ordering::Release);
        inode.is_orphan.store(true, Ordering::Release);
        vol.set_last_orphan(h, Some(inode.ino))?;
        s.age += 1;
        let age = s.age;
        s.list.insert(age, inode.clone());
        s.place.insert(inode.ino, Place::List(age));
        Ok(())
    }

    /// As [`Orphans::remove`] at the end of a truncation: an inode that has no links (any more) stays.
    pub fn remove_linked(&self, vol: &Volume, h: &mut Handle, inode: &Inode) -> Result<()> {
        let s = self.state.lock();
        // An unlink drops the count first and then comes here: one of the two sees the other.
        if inode.nlink() == 0 {
            return Ok(());
        }
        self.remove_from(s, vol, h, inode)
    }

    /// Takes `inode` off in this handle, if it is noted. The caller stores the inode afterwards.
    pub fn remove(&self, vol: &Volume, h: &mut Handle, inode: &Inode) -> Result<()> {
        self.remove_from(self.state.lock(), vol, h, inode)
    }

    fn remove_from(
        &self,
        mut s: MutexGuard<'_, State>,
        vol: &Volume,
        h: &mut Handle,
        inode: &Inode,
    ) -> Result<()> {
        let Some(place) = s.place.remove(&inode.ino) else { return Ok(()) };
        match place {
            Place::File { block, slot } => {
                let fb = s.file.get_mut(block).ok_or(Corrupt::new("orphan file block"))?;
                fb.hint = fb.hint.min(slot);
                h.modify(&fb.buf, &fb.seal, |b| orphan_file::set(b, slot, 0))?;
            }
            Place::List(age) => {
                s.list.remove(&age);
                let next = inode.orphan_next.load(Ordering::Acquire);
                match s.list.range(age..).next() {
                    None => {
                        let next = Some(Ino(next)).filter(|i| i.0 != 0);
                        vol.set_last_orphan(h, next)?;
                    }
                    Some((_, younger)) => {
                        younger.orphan_next.store(next, Ordering::Release);
                        set_dtime(vol, h, younger, next)?;
                    }
                }
                inode.is_orphan.store(false, Ordering::Release);
                inode.orphan_next.store(0, Ordering::Release);
                inode.attrs_mut().rec.dtime = 0;
            }
        }
        Ok(())
    }

    /// How many are unlinked and closed: they only wait for the kernel to forget their number.
    pub fn closed(&self, vol: &Volume) -> u64 {
        let inos: Vec<Ino> = self.state.lock().place.keys().copied().collect();
        let ended = |i: &Arc<Inode>| i.nlink() == 0 && i.opens.load(Ordering::Acquire) == 0;
        inos.into_iter().filter_map(|ino| vol.inodes.peek(ino)).filter(ended).count() as u64
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.state.lock().place.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn take_slot(s: &mut State, vol: &Volume, h: &mut Handle, ino: Ino) -> Result<Option<Place>> {
    let slots = orphan_file::slots(vol.geo.block_size);
    for (block, fb) in s.file.iter_mut().enumerate() {
        if fb.hint >= slots {
            continue;
        }
        let free = fb.buf.read(|b| (fb.hint..slots).find(|&i| orphan_file::get(b, i) == 0));
        fb.hint = free.map_or(slots, |f| f + 1);
        if let Some(slot) = free {
            h.modify(&fb.buf, &fb.seal, |b| orphan_file::set(b, slot, ino.0))?;
            return Ok(Some(Place::File { block, slot }));
        }
    }
    Ok(None)
}

/// Changes only `i_dtime` in the slot of another inode on the list.
fn set_dtime(vol: &Volume, h: &mut Handle, inode: &Inode, next: u32) -> Result<()> {
    let at = vol.slot(inode.ino)?;
    let buf = vol.cache.read(at.block, &Seal::None)?;
    let seal = vol.slot_seal(inode.ino, at);
    h.modify(&buf, &seal, |b| {
        let o = at.offset + I_DTIME;
        match b.get_mut(o..o + 4) {
            Some(f) => {
                f.copy_from_slice(&next.to_le_bytes());
                Ok(())
            }
            None => Err(Error::from(Corrupt::new("inode slot").ino(inode.ino))),
        }
    })?
}
