//! Free, dirty (reserved) and withheld clusters, and the token of a reservation.
//!
//! `avail` = free - dirty is what admission looks at. Turning a reservation into
//! blocks leaves it alone, so that it is exact without a lock: nobody is refused
//! for what another thread is in the middle of.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// How deep a claim may dig.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// Leaves the root reserve and the pool alone.
    Normal,
    /// May use the blocks reserved for root (`s_r_blocks_count`).
    Root,
    /// May use ext4's reserved pool too: write-out's own map blocks.
    Pool,
}

/// The counters of one file system, in clusters.
#[derive(Debug)]
pub struct Counters {
    /// Free on disk: pending frees and preallocated blocks included.
    free: AtomicI64,
    /// Reserved for delayed allocation.
    dirty: AtomicI64,
    /// free - dirty
    avail: AtomicI64,
    /// Reserved for root.
    root_reserve: AtomicU64,
    /// The pool (`s_resv_clusters`).
    pool: AtomicU64,
}

/// Most the reserved pool takes: the smaller of 2 % and 4096 clusters.
pub fn default_pool(total_clusters: u64) -> u64 {
    (total_clusters / 50).min(4096)
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Counters {
    /// `free` clusters, of which `root_reserve` are for root and `pool` for write-out.
    pub fn new(free: u64, root_reserve: u64, pool: u64) -> Counters {
        Counters {
            free: AtomicI64::new(signed(free)),
            dirty: AtomicI64::new(0),
            avail: AtomicI64::new(signed(free)),
            root_reserve: AtomicU64::new(root_reserve),
            pool: AtomicU64::new(pool),
        }
    }

    /// Free clusters, reserved ones included.
    pub fn free(&self) -> u64 {
        self.free.load(Relaxed).max(0) as u64
    }
    /// Reserved (dirty) clusters.
    pub fn dirty(&self) -> u64 {
        self.dirty.load(Relaxed).max(0) as u64
    }
    /// Free clusters that nobody reserved.
    pub fn avail(&self) -> u64 {
        self.avail.load(Relaxed).max(0) as u64
    }
    /// Clusters reserved for root.
    pub fn root_reserve(&self) -> u64 {
        self.root_reserve.load(Relaxed)
    }
    /// Clusters of the reserved pool.
    pub fn pool(&self) -> u64 {
        self.pool.load(Relaxed)
    }
    /// Changes the reserved pool (`reserved_clusters`).
    pub fn set_pool(&self, n: u64) {
        self.pool.store(n, Relaxed);
    }

    /// Takes `n` clusters out of `avail`, if that leaves what `right` may not touch.
    #[must_use]
    pub fn claim(&self, n: u64, right: Right) -> bool {
        let keep = match right {
            Right::Normal => self.root_reserve().saturating_add(self.pool()),
            Right::Root => self.pool(),
            Right::Pool => 0,
        };
        let (n, keep) = (signed(n), signed(keep));
        self.avail
            .fetch_update(Relaxed, Relaxed, |a| {
                a.checked_sub(n).filter(|left| n == 0 || *left >= keep)
            })
            .is_ok()
    }
    /// Gives back what [`Counters::claim`] took.
    pub fn unclaim(&self, n: u64) {
        self.avail.fetch_add(signed(n), Relaxed);
    }
    /// Claimed clusters (or, with [`Counters::spend`], reserved ones) became used blocks.
    pub fn used(&self, n: u64) {
        self.free.fetch_sub(signed(n), Relaxed);
    }
    /// Blocks were freed (in a transaction that may not have committed).
    pub fn freed(&self, n: u64) {
        self.free.fetch_add(signed(n), Relaxed);
        self.avail.fetch_add(signed(n), Relaxed);
    }
    /// Free clusters turned out to lie in a group that cannot be used.
    pub fn lost(&self, n: u64) {
        self.free.fetch_sub(signed(n), Relaxed);
        self.avail.fetch_sub(signed(n), Relaxed);
    }
    fn spend(&self, n: u64) {
        self.dirty.fetch_sub(signed(n), Relaxed);
    }

    /// Reserves `data + meta` clusters, or nothing.
    pub fn reserve(self: &Arc<Self>, data: u64, meta: u64, right: Right) -> Option<Reservation> {
        let n = data.checked_add(meta)?;
        self.claim(n, right).then(|| {
            self.dirty.fetch_add(signed(n), Relaxed);
            Reservation { counters: Arc::clone(self), data, meta }
        })
    }
}

/// Clusters promised to a writer whose blocks are not chosen yet. It cannot be
/// copied or forgotten: allocation spends it, and what is left when it is dropped
/// (or released) returns to the free clusters.
#[must_use = "dropping a reservation gives the space back"]
pub struct Reservation {
    counters: Arc<Counters>,
    data: u64,
    meta: u64,
}

impl Reservation {
    /// Data clusters left in it.
    pub fn data(&self) -> u64 {
        self.data
    }
    /// Clusters left in it for map blocks.
    pub fn meta(&self) -> u64 {
        self.meta
    }
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.data == 0 && self.meta == 0
    }
    /// Takes at most so much out, as a token of its own.
    pub fn split(&mut self, data: u64, meta: u64) -> Reservation {
        let (data, meta) = (data.min(self.data), meta.min(self.meta));
        self.data -= data;
        self.meta -= meta;
        Reservation { counters: Arc::clone(&self.counters), data, meta }
    }
    /// Puts another token of the same file system into this one.
    pub fn absorb(&mut self, mut other: Reservation) {
        debug_assert!(Arc::ptr_eq(&self.counters, &other.counters));
        self.data += std::mem::take(&mut other.data);
        self.meta += std::mem::take(&mut other.meta);
    }
    /// Gives everything back, as dropping it does.
    pub fn release(self) {}

    /// `n` data (or map) clusters of it became used blocks; `n` is at most what is left.
    pub(super) fn spend(&mut self, n: u64, meta: bool) {
        let part = if meta { &mut self.meta } else { &mut self.data };
        debug_assert!(n <= *part);
        let n = n.min(*part);
        *part -= n;
        self.counters.spend(n);
        self.counters.used(n);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let n = self.data + self.meta;
        if n != 0 {
            self.counters.spend(n);
            self.counters.unclaim(n);
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation({} data, {} map)", self.data, self.meta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Arc<Counters> {
        Arc::new(Counters::new(100, 5, 2))
    }

    #[test]
    fn each_right_stops_where_it_must() {
        let c = counters();
        assert!(!c.claim(94, Right::Normal));
        assert!(c.claim(93, Right::Normal));
        assert!(!c.claim(1, Right::Normal));
        assert!(!c.claim(6, Right::Root));
        assert!(c.claim(5, Right::Root));
        assert!(!c.claim(1, Right::Root));
        assert!(c.claim(2, Right::Pool));
        assert!(!c.claim(1, Right::Pool));
        assert!(c.claim(0, Right::Normal));
        assert_eq!((c.avail(), c.free()), (0, 100));
    }

    #[test]
    fn a_reservation_returns_or_is_spent_never_both() {
        let c = counters();
        let mut r = c.reserve(50, 3, Right::Normal).unwrap();
        assert!(c.reserve(41, 0, Right::Normal).is_none());
        assert_eq!((c.dirty(), c.avail()), (53, 47));
        r.spend(20, false);
        assert_eq!((c.dirty(), c.free(), c.avail()), (33, 80, 47));
        let part = r.split(10, 9);
        assert_eq!((part.data(), part.meta(), r.data(), r.meta()), (10, 3, 20, 0));
        r.absorb(part);
        r.release();
        assert_eq!((c.dirty(), c.free(), c.avail()), (0, 80, 80));
        assert!(c.reserve(u64::MAX, 1, Right::Pool).is_none());
        assert!(c.reserve(u64::MAX, 0, Right::Pool).is_none());
    }

    #[test]
    fn threads_never_overcommit() {
        let c = Arc::new(Counters::new(1000, 0, 0));
        let got: u64 = std::thread::scope(|s| {
            let hs: Vec<_> = (0..4)
                .map(|_| {
                    s.spawn(|| {
                        let mut n = 0;
                        for _ in 0..2000 {
                            if let Some(mut r) = c.reserve(1, 0, Right::Normal) {
                                r.spend(1, false);
                                n += 1;
                            }
                        }
                        n
                    })
                })
                .collect();
            hs.into_iter().map(|h| h.join().unwrap()).sum()
        });
        assert_eq!(got, 1000);
        assert_eq!((c.free(), c.dirty(), c.avail()), (0, 0, 0));
    }
}
