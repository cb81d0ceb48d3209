//! What a file maps while it is replayed, and sets of blocks. Pure.

use crate::{ondisk::extent::Extent, types::LBlock};
use std::collections::BTreeMap;

/// The map of a touched file: its data, by the first block.
#[derive(Default)]
pub(super) struct Ranges(pub(super) BTreeMap<u32, Extent>);

impl Ranges {
    /// Takes `from..end` out.
    pub(super) fn cut(&mut self, from: u64, end: u64) {
        let hit: Vec<Extent> = self
            .0
            .range(..u32::try_from(end).unwrap_or(u32::MAX))
            .rev()
            .map(|(_, e)| *e)
            .take_while(|e| e.end() > from)
            .collect();
        for e in hit {
            let start = u64::from(e.lblock.0);
            self.0.remove(&e.lblock.0);
            if start < from {
                self.0.insert(e.lblock.0, Extent { len: (from - start) as u32, ..e });
            }
            if e.end() > end {
                let skip = end - start;
                let lblock = LBlock(end as u32);
                let len = e.len - skip as u32;
                self.0.insert(lblock.0, Extent { lblock, len, block: e.block.plus(skip), ..e });
            }
        }
    }

    /// Enters an extent in place of what was there.
    pub(super) fn set(&mut self, e: Extent) {
        self.cut(u64::from(e.lblock.0), e.end());
        self.0.insert(e.lblock.0, e);
    }
}

/// The blocks of the device, as start and end.
pub(super) fn blocks_of(e: &Extent) -> (u64, u64) {
    (e.block.0, e.block.0.saturating_add(u64::from(e.len)))
}

/// Sorted, and without overlaps.
pub(super) fn merged(mut runs: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    runs.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(runs.len());
    for (start, end) in runs {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

/// What of `runs` is not in `taken`; both merged.
pub(super) fn without(runs: Vec<(u64, u64)>, taken: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    for (mut start, end) in runs {
        let first = taken.partition_point(|t| t.1 <= start);
        for t in taken.iter().skip(first).take_while(|t| t.0 < end) {
            if t.0 > start {
                out.push((start, t.0));
            }
            start = start.max(t.1);
        }
        if start < end {
            out.push((start, end));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Block;

    fn extent(lblk: u32, len: u32, block: u64) -> Extent {
        Extent { lblock: LBlock(lblk), len, block: Block(block), unwritten: false }
    }

    #[test]
    fn ranges_replace_and_cut() {
        let mut r = Ranges::default();
        r.set(extent(10, 10, 100));
        r.set(extent(13, 2, 500));
        let all =
            |r: &Ranges| r.0.values().map(|e| (e.lblock.0, e.len, e.block.0)).collect::<Vec<_>>();
        assert_eq!(all(&r), [(10, 3, 100), (13, 2, 500), (15, 5, 105)]);
        r.cut(12, 16);
        assert_eq!(all(&r), [(10, 2, 100), (16, 4, 106)]);
        r.cut(0, u64::MAX);
        assert!(r.0.is_empty());
    }

    #[test]
    fn what_is_left_of_runs() {
        let had = merged(vec![(5, 10), (0, 3), (8, 20), (30, 40)]);
        assert_eq!(had, [(0, 3), (5, 20), (30, 40)]);
        let used = merged(vec![(6, 7), (9, 12), (19, 35)]);
        assert_eq!(without(had, &used), [(0, 3), (5, 6), (7, 9), (12, 19), (35, 40)]);
    }
}
