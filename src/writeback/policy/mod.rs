//! How many pages a background pass over an inode may take. Each policy is a pure
//! function in a file of its own; `flusher` asks, [`super::stats`] counts what came of it.
//!
//! What a pass is given, `nr_to_write`, a policy may raise but not lower; the raised budget ends with
//! the pass. fsync and every other write-out that somebody waits for has no budget.
//!
//! Pages here are blocks of the file system; `nr_to_write` is in pages of 4 KiB, as in the kernel,
//! and converted before a policy sees it.

mod dirty_pages;
mod extent;
mod fixed8;
mod none;

use crate::options::PolicyName;

/// No limit: the kernel's `LONG_MAX`.
pub const UNLIMITED: u64 = u64::MAX;

/// What a pass is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Pages the pass was given; [`UNLIMITED`] for all.
    pub nr_to_write: u64,
    /// `max_writeback_mb_bump` in pages: nothing is raised above it.
    pub cap: u64,
    /// The pass covers the whole file.
    pub whole: bool,
    /// The pass goes on where the one before ended, and wraps.
    pub cyclic: bool,
}

/// The inode's dirty pages from the index at which the pass starts.
pub trait Dirty {
    /// Contiguous dirty pages from the index on, `max` at most.
    fn contiguous(&self, max: u64) -> u64;
    /// Of these, those from the index on that are delayed or unwritten, counted page by page.
    fn count_unmapped(&self, max: u64) -> u64;
}

/// A write-out policy.
pub trait Policy: Sync {
    /// How many pages the pass may take.
    fn budget(&self, ask: &Ask, dirty: &dyn Dirty) -> u64;
}

/// The policy of that name.
pub fn by_name(name: PolicyName) -> &'static dyn Policy {
    match name {
        PolicyName::None => &none::None,
        PolicyName::DirtyPages => &dirty_pages::DirtyPages,
        PolicyName::Fixed8 => &fixed8::Fixed8,
        PolicyName::Extent => &extent::Extent,
    }
}

/// Every name, in the order of [`index`].
pub const NAMES: [PolicyName; 4] =
    [PolicyName::None, PolicyName::DirtyPages, PolicyName::Fixed8, PolicyName::Extent];

/// The place of a policy in [`NAMES`].
pub fn index(name: PolicyName) -> usize {
    match name {
        PolicyName::None => 0,
        PolicyName::DirtyPages => 1,
        PolicyName::Fixed8 => 2,
        PolicyName::Extent => 3,
    }
}

impl Ask {
    /// `nr_to_write` raised to `desired`, up to the cap; never lowered.
    fn raised(&self, desired: u64) -> u64 {
        self.nr_to_write.max(desired.min(self.cap))
    }

    /// `nr_to_write` times eight; an unlimited one stays as it is.
    fn eightfold(&self) -> u64 {
        self.nr_to_write.saturating_mul(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Pages from the index on, and how often they were counted.
    struct Pages {
        contiguous: u64,
        unmapped: u64,
        counted: Cell<u64>,
    }

    fn pages(contiguous: u64, unmapped: u64) -> Pages {
        Pages { contiguous, unmapped, counted: Cell::new(0) }
    }

    impl Dirty for Pages {
        fn contiguous(&self, max: u64) -> u64 {
            self.contiguous.min(max)
        }
        fn count_unmapped(&self, max: u64) -> u64 {
            let n = self.unmapped.min(max);
            self.counted.set(self.counted.get() + n);
            n
        }
    }

    /// A background pass, with the kernel's numbers of 2010.
    const ASK: Ask = Ask { nr_to_write: 1024, cap: 32768, whole: true, cyclic: true };

    fn budget(name: PolicyName, ask: Ask, p: &Pages) -> u64 {
        by_name(name).budget(&ask, p)
    }

    #[test]
    fn none_takes_what_it_is_given() {
        let p = pages(100_000, 100_000);
        assert_eq!(budget(PolicyName::None, ASK, &p), 1024);
        assert_eq!(budget(PolicyName::None, Ask { nr_to_write: UNLIMITED, ..ASK }, &p), UNLIMITED);
    }

    #[test]
    fn fixed8_is_eight_times_that_up_to_the_cap() {
        let p = pages(10, 10);
        assert_eq!(budget(PolicyName::Fixed8, ASK, &p), 8192);
        assert_eq!(budget(PolicyName::Fixed8, Ask { cap: 5000, ..ASK }, &p), 5000);
        // The cap limits the raise, not what was given.
        assert_eq!(budget(PolicyName::Fixed8, Ask { cap: 100, ..ASK }, &p), 1024);
        let all = Ask { nr_to_write: UNLIMITED, ..ASK };
        assert_eq!(budget(PolicyName::Fixed8, all, &p), UNLIMITED);
        assert_eq!(p.counted.get(), 0);
    }

    #[test]
    fn dirty_pages_counts_unless_the_pass_is_whole_and_not_cyclic() {
        let p = pages(9000, 3000);
        assert_eq!(budget(PolicyName::DirtyPages, ASK, &p), 3000);
        assert_eq!(p.counted.get(), 3000);
        let p = pages(9000, 3000);
        assert_eq!(budget(PolicyName::DirtyPages, Ask { cyclic: false, ..ASK }, &p), 8192);
        assert_eq!(p.counted.get(), 0);
        let part = Ask { cyclic: false, whole: false, ..ASK };
        assert_eq!(budget(PolicyName::DirtyPages, part, &p), 3000);
    }

    #[test]
    fn dirty_pages_asks_for_less_than_fixed8_close_behind_the_writer() {
        let p = pages(1500, 1500);
        let few = budget(PolicyName::DirtyPages, ASK, &p);
        assert_eq!(few, 1500);
        assert!(few < budget(PolicyName::Fixed8, ASK, &p));
        // What is mapped already is not counted, and ends the count.
        assert_eq!(budget(PolicyName::DirtyPages, ASK, &pages(9000, 0)), 1024);
    }

    #[test]
    fn counting_stops_at_the_cap() {
        let p = pages(1 << 30, 1 << 30);
        assert_eq!(budget(PolicyName::DirtyPages, ASK, &p), 32768);
        assert_eq!(p.counted.get(), 32768);
    }

    #[test]
    fn an_unlimited_pass_is_neither_multiplied_nor_counted() {
        let all = Ask { nr_to_write: UNLIMITED, ..ASK };
        for name in NAMES {
            let p = pages(9000, 9000);
            assert_eq!(budget(name, all, &p), UNLIMITED, "{name}");
            assert_eq!(p.counted.get(), 0, "{name}");
            assert_eq!(budget(name, Ask { cyclic: false, ..all }, &p), UNLIMITED, "{name}");
        }
    }

    #[test]
    fn extent_takes_the_range_up_to_the_cap() {
        let p = pages(20_000, 0);
        assert_eq!(budget(PolicyName::Extent, ASK, &p), 20_000);
        assert_eq!(budget(PolicyName::Extent, ASK, &pages(1 << 30, 0)), 32768);
        assert_eq!(budget(PolicyName::Extent, ASK, &pages(3, 0)), 1024);
        assert_eq!(p.counted.get(), 0);
    }

    #[test]
    fn names_and_places_agree() {
        for (i, name) in NAMES.into_iter().enumerate() {
            assert_eq!(index(name), i);
        }
    }
}
