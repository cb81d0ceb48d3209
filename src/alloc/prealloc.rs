//! Preallocations: blocks taken out of the buddy, free on disk, that wait for the
//! file (or, in a locality group, the small files) they were found for.
//!
//! Here is only who may look where; which of the blocks are still there is in the
//! group's `withheld`, under the group's lock.

use super::groups::PaId;
use crate::types::{Group, Ino};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const SHARDS: usize = 64;

/// One preallocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pa {
    pub id: PaId,
    /// File block that the first block is for (not used in a locality group).
    pub lstart: u32,
    pub group: Group,
    /// First block in the group.
    pub start: u32,
    pub len: u32,
}

impl Pa {
    fn covers(&self, lblk: u32) -> bool {
        lblk >= self.lstart && lblk - self.lstart < self.len
    }
}

type List = SmallVec<[Pa; 2]>;

/// The preallocations of all inodes, and the locality groups.
pub(super) struct Preallocs {
    /// Rank between 6 and 7, never two at once.
    shards: Box<[Mutex<HashMap<Ino, List>>]>,
    /// Rank between 6 and 7. One is held while its blocks are taken.
    locality: Box<[Mutex<Option<Pa>>]>,
    count: AtomicUsize,
    next_id: AtomicU64,
    sweep: AtomicUsize,
}

thread_local! {
    static SLOT: Cell<Option<usize>> = const { Cell::new(None) };
}
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(0);

impl Preallocs {
    /// With `slots` locality groups.
    pub fn new(slots: usize) -> Preallocs {
        Preallocs {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            locality: (0..slots.max(1)).map(|_| Mutex::new(None)).collect(),
            count: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            sweep: AtomicUsize::new(0),
        }
    }

    pub fn next_id(&self) -> PaId {
        self.next_id.fetch_add(1, Relaxed)
    }

    /// Inode preallocations there are.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn shard(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, List>> {
        let h = ino.0.wrapping_mul(0x9e37_79b1) >> 26;
        self.shards[h as usize % SHARDS].lock()
    }

    /// The preallocation that covers a file block.
    pub fn find(&self, ino: Ino, lblk: u32) -> Option<Pa> {
        self.shard(ino).get(&ino)?.iter().find(|p| p.covers(lblk)).copied()
    }

    /// The first file block from `lblk` on that a preallocation covers.
    pub fn next_covered(&self, ino: Ino, lblk: u32) -> Option<u32> {
        self.shard(ino).get(&ino)?.iter().map(|p| p.lstart).filter(|l| *l >= lblk).min()
    }

    pub fn add(&self, ino: Ino, pa: Pa) {
        self.shard(ino).entry(ino).or_default().push(pa);
        self.count.fetch_add(1, Relaxed);
    }

    /// Forgets a preallocation whose blocks are gone.
    pub fn remove(&self, ino: Ino, id: PaId) {
        let mut shard = self.shard(ino);
        let Some(list) = shard.get_mut(&ino) else { return };
        if let Some(i) = list.iter().position(|p| p.id == id) {
            list.swap_remove(i);
            self.count.fetch_sub(1, Relaxed);
        }
        if list.is_empty() {
            shard.remove(&ino);
        }
    }

    /// Takes an inode's preallocations away from it; their blocks are the caller's to give back.
    pub fn take(&self, ino: Ino) -> List {
        let list = self.shard(ino).remove(&ino).unwrap_or_default();
        self.count.fetch_sub(list.len(), Relaxed);
        list
    }

    /// Takes everything of one shard, another one each time.
    pub fn take_some(&self) -> Vec<Pa> {
        let i = self.sweep.fetch_add(1, Relaxed) % SHARDS;
        let taken = std::mem::take(&mut *self.shards[i].lock());
        let all: Vec<Pa> = taken.into_values().flatten().collect();
        self.count.fetch_sub(all.len(), Relaxed);
        all
    }

    /// Takes every preallocation, those of locality groups too.
    pub fn take_all(&self) -> Vec<Pa> {
        let mut all: Vec<Pa> = (0..SHARDS).flat_map(|_| self.take_some()).collect();
        all.extend(self.locality.iter().filter_map(|l| l.lock().take()));
        all
    }

    /// The locality group that goes on at block `goal` of a group, where a file grows piece by piece;
    /// else this thread's, or another that is not in use.
    pub fn locality(&self, goal: Option<(Group, u32)>) -> MutexGuard<'_, Option<Pa>> {
        if let Some(goal) = goal {
            let next = |p: &Pa| (p.group, p.start) == goal;
            let found = self.locality.iter().find_map(|l| {
                let g = l.try_lock()?;
                g.as_ref().is_some_and(next).then_some(g)
            });
            if let Some(g) = found {
                return g;
            }
        }
        let mine = SLOT.with(|s| {
            s.get().unwrap_or_else(|| {
                let n = NEXT_SLOT.fetch_add(1, Relaxed);
                s.set(Some(n));
                n
            })
        });
        let n = self.locality.len();
        for i in 0..n {
            if let Some(g) = self.locality[(mine + i) % n].try_lock() {
                return g;
            }
        }
        self.locality[mine % n].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_by_inode() {
        let p = Preallocs::new(2);
        let pa = |lstart, len| Pa { id: p.next_id(), lstart, group: Group(1), start: 5, len };
        let (a, b) = (pa(0, 4), pa(8, 8));
        p.add(Ino(12), a);
        p.add(Ino(12), b);
        p.add(Ino(13), pa(0, 1));
        assert_eq!(p.find(Ino(12), 3), Some(a));
        assert_eq!(p.find(Ino(12), 4), None);
        assert_eq!(p.find(Ino(12), 15), Some(b));
        assert_eq!(p.next_covered(Ino(12), 4), Some(8));
        p.remove(Ino(12), a.id);
        assert_eq!(p.find(Ino(12), 3), None);
        assert_eq!(p.count(), 2);
        assert_eq!(p.take(Ino(12)).as_slice(), [b]);
        assert_eq!(p.take_all().len(), 1);
        assert_eq!(p.count(), 0);
    }

    #[test]
    fn locality_groups_are_taken_side_by_side() {
        let p = Preallocs::new(2);
        let mut a = p.locality(None);
        let b = p.locality(None);
        assert!(a.is_none() && b.is_none());
        let pa = Pa { id: p.next_id(), lstart: 0, group: Group(3), start: 7, len: 5 };
        *a = Some(pa);
        drop((a, b));
        assert_eq!(*p.locality(Some((Group(3), 7))), Some(pa));
        let other = p.locality(Some((Group(3), 8)));
        assert_eq!(p.locality(Some((Group(3), 7))).is_none(), *other == Some(pa));
    }
}
