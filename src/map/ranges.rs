//! A small set of ranges of logical blocks.

use smallvec::SmallVec;

/// Sorted, disjoint, not touching.
#[derive(Default)]
pub(super) struct Ranges(SmallVec<[(u64, u64); 2]>);

impl Ranges {
    /// Adds `start..end`.
    pub fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = self.0.partition_point(|r| r.1 < start);
        let last = self.0.partition_point(|r| r.0 <= end);
        let (mut s, mut e) = (start, end);
        for r in self.0.drain(first..last) {
            s = s.min(r.0);
            e = e.max(r.1);
        }
        self.0.insert(first, (s, e));
    }

    /// Takes `start..end` out.
    pub fn remove(&mut self, start: u64, end: u64) {
        if !self.overlaps(start, end) {
            return;
        }
        let first = self.0.partition_point(|r| r.1 <= start);
        let last = self.0.partition_point(|r| r.0 < end);
        let mut left = None;
        let mut right = None;
        for r in self.0.drain(first..last) {
            if r.0 < start {
                left = Some((r.0, start));
            }
            if r.1 > end {
                right = Some((end, r.1));
            }
        }
        self.0.insert_many(first, left.into_iter().chain(right));
    }

    /// Whether any block of `start..end` is in the set.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        let first = self.0.partition_point(|r| r.1 <= start);
        start < end && self.0.get(first).is_some_and(|r| r.0 < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn like_a_set(ops in proptest::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 0..40)) {
            let mut r = Ranges::default();
            let mut model = [false; 100];
            for (add, start, len) in ops {
                let end = start + len;
                if add { r.add(start, end) } else { r.remove(start, end) }
                model[start as usize..end as usize].fill(add);
                prop_assert!(r.0.windows(2).all(|w| w[0].1 < w[1].0), "{:?}", r.0);
                for i in 0..100 {
                    prop_assert_eq!(r.overlaps(i, i + 1), model[i as usize]);
                }
            }
        }
    }
}
