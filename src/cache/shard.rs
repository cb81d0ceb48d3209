//! One shard of the buffer cache: the map from block to buffer, and CLOCK over it.

use super::Buffer;
use crate::types::{Block, Ino};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Multiplicative hash of a block or inode number.
#[derive(Default, Clone, Copy)]
pub(crate) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

/// A map keyed by block number.
pub(crate) type BlockMap<V> = HashMap<u64, V, BuildHasherDefault<BlockHasher>>;

/// A map keyed by inode number.
pub(crate) type InoMap<V> = HashMap<Ino, V, BuildHasherDefault<BlockHasher>>;
/// A set of inode numbers.
pub(crate) type InoSet = HashSet<Ino, BuildHasherDefault<BlockHasher>>;

enum Slot {
    /// Somebody is reading it in; the shard's condition variable tells when that ends.
    Loading,
    Ready {
        buf: Arc<Buffer>,
        at: usize,
    },
}

#[derive(Default)]
pub(super) struct Map {
    slots: BlockMap<Slot>,
    /// The blocks of the ready slots, in CLOCK's order.
    ring: Vec<u64>,
    hand: usize,
}

/// What a look at a block found.
pub(super) enum Found {
    Buffer(Arc<Buffer>),
    /// Not there: the slot is now the caller's to fill ([`Shard::fill`]) or to give up.
    Claimed,
}

#[derive(Default)]
pub(super) struct Shard {
    /// Rank 8.
    map: Mutex<Map>,
    loaded: Condvar,
}

/// Ready slots looked at per insertion, at most: bounds the time an insertion takes when most of
/// the cache is pinned.
const CLOCK_STEPS: usize = 64;

impl Map {
    fn insert(&mut self, buf: Arc<Buffer>) {
        let at = self.ring.len();
        self.ring.push(buf.block().0);
        self.slots.insert(buf.block().0, Slot::Ready { buf, at });
    }

    fn remove(&mut self, block: u64) -> Option<Arc<Buffer>> {
        match self.slots.remove(&block) {
            Some(Slot::Ready { buf, at }) => {
                self.ring.swap_remove(at);
                if let Some(moved) = self.ring.get(at)
                    && let Some(Slot::Ready { at: a, .. }) = self.slots.get_mut(moved)
                {
                    *a = at;
                }
                Some(buf)
            }
            _ => None,
        }
    }

    /// Evicts until at most `limit` buffers are left or the steps are used up.
    fn shrink(&mut self, limit: usize, mut steps: usize) {
        while self.ring.len() > limit && steps > 0 {
            steps -= 1;
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let block = self.ring[self.hand];
            let evict = match self.slots.get(&block) {
                // Nobody can take a new reference: that needs the shard's lock.
                Some(Slot::Ready { buf, .. }) => {
                    Arc::strong_count(buf) == 1 && !buf.referenced.swap(false, Relaxed)
                }
                _ => false,
            };
            if evict {
                self.remove(block);
            } else {
                self.hand += 1;
            }
        }
    }
}

impl Shard {
    /// The buffer if it is there (waits for one that is being read in); else claims the slot.
    pub fn find_or_claim(&self, block: Block) -> Found {
        let mut m = self.map.lock();
        loop {
            match m.slots.get(&block.0) {
                Some(Slot::Ready { buf, .. }) => {
                    buf.referenced.store(true, Relaxed);
                    return Found::Buffer(Arc::clone(buf));
                }
                Some(Slot::Loading) => self.loaded.wait(&mut m),
                None => {
                    m.slots.insert(block.0, Slot::Loading);
                    return Found::Claimed;
                }
            }
        }
    }

    /// Claims the slot if the block is neither there nor being read in.
    pub fn try_claim(&self, block: Block) -> bool {
        let mut m = self.map.lock();
        let vacant = !m.slots.contains_key(&block.0);
        if vacant {
            m.slots.insert(block.0, Slot::Loading);
        }
        vacant
    }

    /// The buffer if it is there and read in.
    pub fn peek(&self, block: Block) -> Option<Arc<Buffer>> {
        match self.map.lock().slots.get(&block.0) {
            Some(Slot::Ready { buf, .. }) => Some(Arc::clone(buf)),
            _ => None,
        }
    }

    /// Ends a claim: with the buffer, or with nothing if it could not be read.
    pub fn fill(&self, block: Block, buf: Option<Arc<Buffer>>, limit: usize) {
        let mut m = self.map.lock();
        m.slots.remove(&block.0);
        if let Some(buf) = buf {
            m.shrink(limit.saturating_sub(1), CLOCK_STEPS);
            m.insert(buf);
        }
        drop(m);
        self.loaded.notify_all();
    }

    /// Takes the block out; waits first if it is being read in.
    pub fn remove(&self, block: Block) -> Option<Arc<Buffer>> {
        let mut m = self.lock_loaded(block);
        m.remove(block.0)
    }

    /// Takes out what nobody holds.
    pub fn evict(&self, limit: usize) {
        let mut m = self.map.lock();
        let steps = m.ring.len().saturating_mul(2);
        m.shrink(limit, steps);
    }

    pub fn len(&self) -> usize {
        self.map.lock().ring.len()
    }

    fn lock_loaded(&self, block: Block) -> MutexGuard<'_, Map> {
        let mut m = self.map.lock();
        while let Some(Slot::Loading) = m.slots.get(&block.0) {
            self.loaded.wait(&mut m);
        }
        m
    }
}
