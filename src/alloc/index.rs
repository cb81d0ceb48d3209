//! Which groups may have what is asked for, found without visiting the others.
//!
//! For each class `k` a bit set over the groups says "this group's value is at
//! least `2^k`", with a summary bit for every 64 groups. A search costs a few
//! words, however many groups are full. Lock-free; a reader may see a group a
//! moment late, so what it finds is a hint to be checked under the group's lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The groups of one class, one bit each.
struct Set {
    bits: Box<[AtomicU64]>,
    /// One bit for each word of `bits` that is not 0.
    summary: Box<[AtomicU64]>,
}

/// See the module.
pub struct OrderIndex {
    groups: u32,
    /// By class.
    sets: Box<[Set]>,
}

fn zeroed(n: u32) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

impl OrderIndex {
    /// For `groups` groups and classes `0..classes`; every group starts with nothing.
    pub fn new(groups: u32, classes: u32) -> OrderIndex {
        let words = groups.div_ceil(64);
        let set = |_| Set { bits: zeroed(words), summary: zeroed(words.div_ceil(64)) };
        let sets = (0..classes).map(set).collect();
        OrderIndex { groups, sets }
    }

    /// Records that a group's class went from `old` to `new` (`None`: nothing there).
    /// Called under that group's lock.
    pub fn change(&self, group: u32, old: Option<u32>, new: Option<u32>) {
        let (old, new) = (old.map_or(0, |k| k + 1), new.map_or(0, |k| k + 1));
        let (word, bit) = ((group / 64) as usize, 1u64 << (group % 64));
        let (sword, sbit) = (word / 64, 1u64 << (word % 64));
        for Set { bits, summary } in self.sets.iter().take(new as usize).skip(old as usize) {
            bits[word].fetch_or(bit, Relaxed);
            summary[sword].fetch_or(sbit, Relaxed);
        }
        for Set { bits, summary } in self.sets.iter().take(old as usize).skip(new as usize) {
            let left = bits[word].fetch_and(!bit, Relaxed) & !bit;
            if left == 0 {
                summary[sword].fetch_and(!sbit, Relaxed);
                // A neighbour may have set its bit in between.
                if bits[word].load(Relaxed) != 0 {
                    summary[sword].fetch_or(sbit, Relaxed);
                }
            }
        }
    }

    /// The first group in `from..to` whose class is at least `class`.
    pub fn next(&self, class: u32, from: u32, to: u32) -> Option<u32> {
        let to = to.min(self.groups);
        if from >= to {
            return None;
        }
        let Set { bits, summary } = self.sets.get((class as usize).min(self.sets.len() - 1))?;
        let mut word = (from / 64) as usize;
        let mut mask = u64::MAX << (from % 64);
        loop {
            let w = bits.get(word)?.load(Relaxed) & mask;
            if w != 0 {
                let g = word as u32 * 64 + w.trailing_zeros();
                return (g < to).then_some(g);
            }
            mask = u64::MAX;
            word += 1;
            // Skip by the summary to the next word with a bit.
            let mut sword = word / 64;
            let mut smask = u64::MAX.checked_shl((word % 64) as u32).unwrap_or(0);
            word = loop {
                let s = summary.get(sword)?.load(Relaxed) & smask;
                if s != 0 {
                    break sword * 64 + s.trailing_zeros() as usize;
                }
                smask = u64::MAX;
                sword += 1;
                if sword as u64 * 4096 >= u64::from(to) {
                    return None;
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn next_agrees_with_a_scan(
            groups in 1u32..10_000,
            sets in proptest::collection::vec((0u32..10_000, proptest::option::of(0u32..6)), 0..30),
            queries in proptest::collection::vec((0u32..6, 0u32..10_000, 0u32..10_000), 1..20),
        ) {
            let ix = OrderIndex::new(groups, 6);
            let mut model = vec![None; groups as usize];
            for (g, class) in sets {
                let g = g % groups;
                ix.change(g, model[g as usize], class);
                model[g as usize] = class;
            }
            for (class, from, to) in queries {
                let naive = (from..to.min(groups))
                    .find(|g| model[*g as usize].is_some_and(|c| c >= class));
                prop_assert_eq!(ix.next(class, from, to), naive);
            }
        }
    }
}
