//! What might be shared, by the hash of its contents: attribute blocks, and inodes that hold an
//! attribute's value (ext4's mbcache).
//!
//! The index only remembers candidates; whoever finds one compares the contents. Whoever frees one
//! removes it first, under the same lock as whoever takes another reference checks that it is
//! still listed: so nothing is shared that is being freed.

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::fmt;

/// Candidates of one hash: more are not remembered.
const PER_HASH: usize = 16;

/// Candidates of one hash.
pub type Candidates = SmallVec<[u64; 4]>;

/// A bounded multimap from hash to number (of a block or inode). Its lock is held for look-ups and
/// changes in memory only. Rank 5.7.
pub struct HashIndex {
    inner: Mutex<Inner>,
}

/// The index, locked.
pub struct LockedIndex<'a>(MutexGuard<'a, Inner>);

struct Inner {
    map: HashMap<u32, Candidates>,
    /// Oldest first; what is no longer in the map is skipped.
    order: VecDeque<(u32, u64)>,
    capacity: usize,
}

impl HashIndex {
    /// An index that remembers at most `capacity` numbers.
    pub fn new(capacity: usize) -> HashIndex {
        let inner = Inner { map: HashMap::new(), order: VecDeque::new(), capacity };
        HashIndex { inner: Mutex::new(inner) }
    }

    /// Locks it.
    pub fn lock(&self) -> LockedIndex<'_> {
        LockedIndex(self.inner.lock())
    }

    /// Remembers a number unless somebody else holds the lock.
    pub fn note(&self, hash: u32, number: u64) {
        if let Some(inner) = self.inner.try_lock() {
            LockedIndex(inner).insert(hash, number);
        }
    }
}

impl Default for HashIndex {
    /// Large enough for the attributes of a busy tree, at most about a megabyte.
    fn default() -> HashIndex {
        HashIndex::new(16384)
    }
}

impl LockedIndex<'_> {
    /// What may have contents of this hash.
    pub fn find(&self, hash: u32) -> Candidates {
        self.0.map.get(&hash).cloned().unwrap_or_default()
    }

    /// Whether the number is still listed under the hash.
    pub fn contains(&self, hash: u32, number: u64) -> bool {
        self.0.map.get(&hash).is_some_and(|c| c.contains(&number))
    }

    /// Lists a number.
    pub fn insert(&mut self, hash: u32, number: u64) {
        let inner = &mut *self.0;
        let c = inner.map.entry(hash).or_default();
        if c.contains(&number) || c.len() >= PER_HASH {
            return;
        }
        c.push(number);
        inner.order.push_back((hash, number));
        while inner.order.len() > inner.capacity {
            let Some((hash, number)) = inner.order.pop_front() else { break };
            inner.remove(hash, number);
        }
    }

    /// No longer lists a number.
    pub fn remove(&mut self, hash: u32, number: u64) {
        self.0.remove(hash, number);
    }
}

impl Inner {
    fn remove(&mut self, hash: u32, number: u64) {
        if let Some(c) = self.map.get_mut(&hash) {
            c.retain(|n| *n != number);
            if c.is_empty() {
                self.map.remove(&hash);
            }
        }
    }
}

impl fmt::Debug for HashIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashIndex")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_and_forgetful() {
        let x = HashIndex::new(3);
        x.note(1, 10);
        x.note(1, 11);
        x.note(1, 10);
        assert_eq!(x.lock().find(1).as_slice(), &[10, 11]);
        x.lock().remove(1, 10);
        assert!(!x.lock().contains(1, 10));
        x.note(2, 20);
        x.note(3, 30);
        x.note(4, 40);
        let l = x.lock();
        assert!(l.find(1).is_empty(), "the oldest went");
        assert_eq!(l.find(4).as_slice(), &[40]);
        assert!(l.0.map.len() <= 3 && l.0.order.len() <= 3);
    }
}
