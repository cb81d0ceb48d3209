//! The inodes in memory, by number. One [`Inode`] object per number at a time.
//!
//! The kernel's lookup counts live beside the objects, so that an inode the
//! kernel merely remembers need not be kept. An object is dropped only if
//! nobody holds it, it has no dirty data or times, and it is not an orphan.

use super::{Inode, Volume};
use crate::{
    cache::{InoMap, InoSet},
    error::{Error, Result},
    types::Ino,
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

const SHARDS: usize = 64;

#[derive(Default)]
struct Shard {
    live: InoMap<Arc<Inode>>,
    /// Eviction order: oldest insertion first, with a second chance for what is in use.
    order: VecDeque<Ino>,
    /// Numbers that a thread is reading from disk right now.
    loading: InoSet,
    /// Lookup counts of the kernel.
    lookups: InoMap<u64>,
}

#[derive(Default)]
struct Slot {
    shard: Mutex<Shard>,
    loaded: Condvar,
}

/// All inodes in memory. Its locks are leaves, held for a hash look-up.
pub struct InodeTable {
    shards: Vec<Slot>,
    per_shard: usize,
}

impl InodeTable {
    /// A table that keeps about `capacity` unused inodes.
    pub fn new(capacity: usize) -> InodeTable {
        InodeTable {
            shards: (0..SHARDS).map(|_| Slot::default()).collect(),
            per_shard: (capacity / SHARDS).max(16),
        }
    }

    fn slot(&self, ino: Ino) -> &Slot {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// The inode `ino`, read from disk if need be. [`Error::Stale`] if it is not in use.
    pub fn get(&self, vol: &Volume, ino: Ino) -> Result<Arc<Inode>> {
        let slot = self.slot(ino);
        let mut s = slot.shard.lock();
        loop {
            if let Some(i) = s.live.get(&ino) {
                if i.freed.load(Ordering::Acquire) {
                    return Err(Error::Stale);
                }
                return Ok(i.clone());
            }
            if s.loading.insert(ino) {
                break;
            }
            slot.loaded.wait(&mut s);
        }
        drop(s);
        let loaded = Inode::load(vol, ino).map(Arc::new);
        let mut s = slot.shard.lock();
        s.loading.remove(&ino);
        slot.loaded.notify_all();
        if let Some(newer) = s.live.get(&ino) {
            return Ok(newer.clone());
        }
        let loaded = loaded?;
        s.live.insert(ino, loaded.clone());
        s.order.push_back(ino);
        self.evict(&mut s);
        Ok(loaded)
    }

    /// The inode if it is in memory.
    pub fn peek(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.slot(ino).shard.lock().live.get(&ino).cloned()
    }

    /// Makes a new inode known.
    pub fn insert(&self, inode: Arc<Inode>) {
        let mut s = self.slot(inode.ino).shard.lock();
        s.order.push_back(inode.ino);
        s.live.insert(inode.ino, inode);
        self.evict(&mut s);
    }

    /// Forgets the object of an inode whose number is free again.
    pub fn remove(&self, ino: Ino) {
        self.slot(ino).shard.lock().live.remove(&ino);
    }

    /// The kernel looked `ino` up once more.
    pub fn add_lookup(&self, ino: Ino) {
        *self.slot(ino).shard.lock().lookups.entry(ino).or_insert(0) += 1;
    }

    /// The kernel forgets `n` look-ups; true if none is left.
    pub fn forget(&self, ino: Ino, n: u64) -> bool {
        let mut s = self.slot(ino).shard.lock();
        match s.lookups.get_mut(&ino) {
            Some(c) if *c > n => {
                *c -= n;
                false
            }
            _ => {
                s.lookups.remove(&ino);
                true
            }
        }
    }

    /// Look-ups the kernel still holds.
    pub fn lookups(&self, ino: Ino) -> u64 {
        self.slot(ino).shard.lock().lookups.get(&ino).copied().unwrap_or(0)
    }

    /// Every inode in memory, for sync and unmount.
    pub fn all(&self) -> Vec<Arc<Inode>> {
        let mut v = Vec::new();
        for s in &self.shards {
            v.extend(s.shard.lock().live.values().cloned());
        }
        v
    }

    /// Forgets every look-up: the kernel is gone.
    pub fn forget_all(&self) {
        for s in &self.shards {
            s.shard.lock().lookups.clear();
        }
    }

    fn evict(&self, s: &mut Shard) {
        let mut tries = 8;
        while s.order.len() > self.per_shard && tries > 0 {
            tries -= 1;
            let Some(ino) = s.order.pop_front() else { break };
            let keep = match s.live.get(&ino) {
                None => false,
                Some(i) => Arc::strong_count(i) > 1 || !i.is_idle(),
            };
            if keep {
                s.order.push_back(ino);
            } else {
                s.live.remove(&ino);
            }
        }
    }
}

impl Inode {
    /// Nothing in memory that is not on disk or in the journal, and nothing set for it alone.
    fn is_idle(&self) -> bool {
        !self.attrs().dirty
            && self.wb_policy.load(Ordering::Acquire) == 0
            && !self.dio_mode.pinned()
            && self.opens.load(Ordering::Acquire) == 0
            && !self.is_orphan.load(Ordering::Acquire)
            && self.pages.lock().is_empty()
    }
}
