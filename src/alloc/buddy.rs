//! The buddy of one group: which blocks may be handed out now, and the free
//! chunks of every power of two. Pure: built from a bitmap, changed by ranges,
//! asked for runs; no I/O, no locks.
//!
//! A free chunk of order `k` is `2^k` aligned free blocks that are not part of a
//! free chunk of order `k + 1`. Blocks whose free is not committed yet, and
//! blocks that a preallocation holds, are "used" here though free on disk.

use std::ops::Range;

/// Orders a buddy may have: 64 KiB blocks have 0..=17.
pub const MAX_ORDERS: usize = 18;

/// A run of blocks inside a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// First block, from the start of the group.
    pub start: u32,
    /// Number of blocks.
    pub len: u32,
}

impl Extent {
    /// One past the last block.
    pub fn end(self) -> u32 {
        self.start.saturating_add(self.len)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Buddy {
    /// Blocks in the group.
    size: u32,
    /// Highest order kept.
    max_order: u32,
    /// Level 0: one bit a block, 1 = used (padding too). Level `k` >= 1: one bit
    /// a chunk, 1 = a free chunk of exactly that order.
    words: Box<[u64]>,
    /// Where each level begins in `words`.
    level: [u32; MAX_ORDERS + 1],
    /// Free chunks of each order.
    counters: [u32; MAX_ORDERS],
    free: u32,
    /// No block below it is free.
    first: u32,
    /// Maximal runs of free blocks.
    fragments: u32,
}

impl Buddy {
    /// A buddy of `size` blocks whose chunks go up to order `max_order`, from an
    /// on-disk bitmap (bits past its end count as used).
    pub fn new(size: u32, max_order: u32, bitmap: &[u8]) -> Buddy {
        let max_order = max_order.min(MAX_ORDERS as u32 - 1);
        let mut level = [0u32; MAX_ORDERS + 1];
        let mut at = 0;
        for k in 0..=max_order {
            level[k as usize] = at;
            at += (size >> k).max(1).div_ceil(64);
        }
        for l in &mut level[max_order as usize + 1..] {
            *l = at;
        }
        let mut words = vec![0u64; at as usize].into_boxed_slice();
        let used_words = size.div_ceil(64) as usize;
        for (i, w) in words.iter_mut().take(used_words).enumerate() {
            let mut bytes = [0xffu8; 8];
            if let Some(src) = bitmap.get(i * 8..) {
                let n = src.len().min(8);
                bytes[..n].copy_from_slice(&src[..n]);
            }
            *w = u64::from_le_bytes(bytes);
        }
        if !size.is_multiple_of(64) {
            words[used_words - 1] |= u64::MAX << (size % 64);
        }
        let mut b = Buddy {
            size,
            max_order,
            words,
            level,
            counters: [0; MAX_ORDERS],
            free: 0,
            first: 0,
            fragments: 0,
        };
        let mut at = 0;
        while let Some(e) = b.next_free(at) {
            b.free += e.len;
            b.fragments += 1;
            b.add_chunks(e.start, e.end());
            at = e.end();
        }
        b
    }

    /// Bytes of memory a buddy of this shape takes, about.
    pub fn bytes(size: u32, max_order: u32) -> usize {
        (size as usize / 8) * if max_order == 0 { 1 } else { 2 } + 256
    }

    /// Blocks in the group.
    pub fn size(&self) -> u32 {
        self.size
    }
    /// Free blocks.
    pub fn free(&self) -> u32 {
        self.free
    }
    /// Maximal runs of free blocks.
    pub fn fragments(&self) -> u32 {
        self.fragments
    }
    /// Free chunks of each order, up to the highest.
    pub fn counters(&self) -> &[u32] {
        &self.counters[..=self.max_order as usize]
    }
    /// The largest order with a free chunk.
    pub fn largest_order(&self) -> Option<u32> {
        (0..=self.max_order).rev().find(|k| self.counters[*k as usize] > 0)
    }

    /// Whether `block` is used; blocks outside the group are.
    pub fn is_used(&self, block: u32) -> bool {
        block >= self.size || self.words[(block / 64) as usize] >> (block % 64) & 1 != 0
    }

    /// First block in `from..to` with the given state; `to` (at most the group's end) if none.
    fn find(&self, from: u32, to: u32, used: bool) -> u32 {
        let to = to.min(self.size);
        let mut n = from;
        while n < to {
            let base = n & !63;
            let mut w = self.words[(base / 64) as usize];
            if !used {
                w = !w;
            }
            w &= u64::MAX << (n - base);
            if w != 0 {
                return (base + w.trailing_zeros()).min(to);
            }
            n = base + 64;
        }
        to
    }

    /// The first run of free blocks at or after `from`, cut at `from`.
    pub fn next_free(&self, from: u32) -> Option<Extent> {
        let start = self.find(from.max(self.first), self.size, false);
        if start >= self.size {
            return None;
        }
        Some(Extent { start, len: self.find(start, self.size, true) - start })
    }

    /// The free run that begins at `block`, at most `max` blocks of it; length 0 if it is used.
    pub fn free_at(&self, block: u32, max: u32) -> Extent {
        if self.is_used(block) {
            return Extent { start: block, len: 0 };
        }
        let to = block.saturating_add(max);
        Extent { start: block, len: self.find(block, to, true) - block }
    }

    /// The first free chunk of `order` exactly, searched from chunk number `from_block >> order`, then from 0.
    pub fn chunk(&self, order: u32, from_block: u32) -> Option<u32> {
        if order > self.max_order || self.counters[order as usize] == 0 {
            return None;
        }
        let chunks = self.size >> order;
        let from = (from_block >> order).min(chunks);
        self.chunk_in(order, from..chunks).or_else(|| self.chunk_in(order, 0..from))
    }

    fn chunk_in(&self, order: u32, range: Range<u32>) -> Option<u32> {
        let base = self.level[order as usize] as usize;
        let mut n = range.start;
        while n < range.end {
            let at = n & !63;
            let mut w = self.words[base + (at / 64) as usize];
            if order == 0 {
                // A single: free while its buddy is not.
                let f = !w;
                let swapped = (f >> 1 & 0x5555_5555_5555_5555) | (f << 1 & 0xaaaa_aaaa_aaaa_aaaa);
                w = f & !swapped;
                if self.max_order == 0 {
                    w = f;
                }
            }
            w &= u64::MAX << (n - at);
            if w != 0 {
                let c = at + w.trailing_zeros();
                return (c < range.end).then_some(c << order);
            }
            n = at + 64;
        }
        None
    }

    /// Marks a run used. It must be free and inside the group: else nothing changes
    /// and the first offending block is the error.
    pub fn mark_used(&mut self, run: Extent) -> Result<(), u32> {
        let end = self.check(run, false)?;
        if run.len == 0 {
            return Ok(());
        }
        let before = run.start > 0 && !self.is_used(run.start - 1);
        let after = !self.is_used(end);
        // Take away every chunk that overlaps; give back what sticks out.
        let mut at = run.start;
        while at < end {
            let (order, chunk) = self.order_of(at);
            self.counters[order as usize] -= 1;
            if order > 0 {
                self.set_level(order, chunk >> order, false);
            }
            let chunk_end = chunk + (1 << order);
            self.fill(at.max(chunk), chunk_end.min(end), true);
            if chunk < run.start {
                self.fill(chunk, run.start, true);
                self.add_chunks(chunk, run.start);
            }
            if chunk_end > end {
                self.fill(end, chunk_end, true);
                self.add_chunks(end, chunk_end);
            }
            at = chunk_end;
        }
        self.free -= run.len;
        if run.start == self.first {
            self.first = end;
        }
        match (before, after) {
            (true, true) => self.fragments += 1,
            (false, false) => self.fragments -= 1,
            _ => {}
        }
        Ok(())
    }

    /// Marks a run free. It must be used and inside the group: else nothing changes
    /// and the first offending block is the error.
    pub fn mark_free(&mut self, run: Extent) -> Result<(), u32> {
        let end = self.check(run, true)?;
        if run.len == 0 {
            return Ok(());
        }
        let before = run.start > 0 && !self.is_used(run.start - 1);
        let after = !self.is_used(end);
        self.add_chunks(run.start, end);
        self.free += run.len;
        self.first = self.first.min(run.start);
        match (before, after) {
            (true, true) => self.fragments -= 1,
            (false, false) => self.fragments += 1,
            _ => {}
        }
        Ok(())
    }

    /// Marks used whatever of the run is free (a rebuild masks pending frees and
    /// preallocations with it). Answers how many blocks changed.
    pub fn mask(&mut self, run: Extent) -> u32 {
        let mut changed = 0;
        let end = run.end().min(self.size);
        let mut at = run.start;
        while at < end {
            let start = self.find(at, end, false);
            if start >= end {
                break;
            }
            let stop = self.find(start, end, true);
            if self.mark_used(Extent { start, len: stop - start }).is_ok() {
                changed += stop - start;
            }
            at = stop;
        }
        changed
    }

    /// The end of the run if it lies inside and every block is in state `used`.
    fn check(&self, run: Extent, used: bool) -> Result<u32, u32> {
        match run.start.checked_add(run.len).filter(|e| *e <= self.size) {
            None => Err(run.start.max(self.size)),
            Some(end) => {
                let bad = self.find(run.start, end, !used);
                if bad < end { Err(bad) } else { Ok(end) }
            }
        }
    }

    /// Order and first block of the free chunk that holds the free block `b`.
    fn order_of(&self, b: u32) -> (u32, u32) {
        for k in 1..=self.max_order {
            if self.test_level(k, b >> k) {
                return (k, b >> k << k);
            }
        }
        (0, b)
    }

    fn test_level(&self, order: u32, chunk: u32) -> bool {
        let base = self.level[order as usize] as usize;
        chunk < self.size >> order
            && self.words[base + (chunk / 64) as usize] >> (chunk % 64) & 1 != 0
    }

    fn set_level(&mut self, order: u32, chunk: u32, on: bool) {
        let base = self.level[order as usize] as usize;
        let w = &mut self.words[base + (chunk / 64) as usize];
        if on {
            *w |= 1 << (chunk % 64);
        } else {
            *w &= !(1 << (chunk % 64));
        }
    }

    fn fill(&mut self, from: u32, to: u32, used: bool) {
        let mut n = from;
        while n < to {
            let upto = to.min((n & !63) + 64);
            let width = upto - n;
            let mask = (u64::MAX >> (64 - width)) << (n % 64);
            let w = &mut self.words[(n / 64) as usize];
            if used {
                *w |= mask;
            } else {
                *w &= !mask;
            }
            n = upto;
        }
    }

    /// Makes `from..to` free, aligned chunk by aligned chunk, merging upwards.
    fn add_chunks(&mut self, from: u32, to: u32) {
        self.fill(from, to, true);
        let mut at = from;
        while at < to {
            let fit = (to - at).ilog2();
            let mut order = at.trailing_zeros().min(fit).min(self.max_order);
            let mut chunk = at >> order;
            self.fill(at, at + (1 << order), false);
            at += 1 << order;
            while order < self.max_order {
                let other = chunk ^ 1;
                let mergeable =
                    if order == 0 { !self.is_used(other) } else { self.test_level(order, other) };
                if !mergeable {
                    break;
                }
                self.counters[order as usize] -= 1;
                if order > 0 {
                    self.set_level(order, other, false);
                }
                chunk >>= 1;
                order += 1;
            }
            self.counters[order as usize] += 1;
            if order > 0 {
                self.set_level(order, chunk, true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The model: a vector of booleans, true = used.
    fn check_against(b: &Buddy, used: &[bool], max_order: u32) {
        let size = used.len() as u32;
        assert_eq!(b.free() as usize, used.iter().filter(|u| !**u).count());
        let mut frags = 0;
        for i in 0..used.len() {
            if !used[i] && (i == 0 || used[i - 1]) {
                frags += 1;
            }
            assert_eq!(b.is_used(i as u32), used[i], "block {i}");
        }
        assert_eq!(b.fragments(), frags);
        let whole = |k: u32, c: u32| {
            let (s, e) = ((c << k) as usize, ((c + 1) << k) as usize);
            e <= used.len() && used[s..e].iter().all(|u| !u)
        };
        let mut counters = vec![0; max_order as usize + 1];
        for k in 0..=max_order {
            let mut first = None;
            for c in 0..(size >> k) {
                if whole(k, c) && (k == max_order || !whole(k + 1, c >> 1)) {
                    counters[k as usize] += 1;
                    first.get_or_insert(c << k);
                }
            }
            assert_eq!(b.chunk(k, 0), first, "first chunk of order {k}");
        }
        assert_eq!(b.counters(), &counters[..]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
        #[test]
        fn agrees_with_a_naive_bitmap(
            size in 1u32..400,
            max_order in 0u32..10,
            init in proptest::collection::vec(any::<u8>(), 0..50),
            ops in proptest::collection::vec((any::<bool>(), 0u32..420, 0u32..130), 0..60),
        ) {
            let mut used: Vec<bool> =
                (0..size).map(|n| crate::alloc::bitmap::test(&init, n)).collect();
            let mut b = Buddy::new(size, max_order, &init);
            check_against(&b, &used, max_order);
            for (free, start, len) in ops {
                let run = Extent { start, len };
                let range = start..start + len;
                let inside = range.end <= size;
                let fits = inside && range.clone().all(|i| used[i as usize] == free);
                let r = if free { b.mark_free(run) } else { b.mark_used(run) };
                prop_assert_eq!(r.is_ok(), fits);
                if fits {
                    for i in range {
                        used[i as usize] = !free;
                    }
                }
                check_against(&b, &used, max_order);
            }
            // A rebuild from the bitmap it stands for is the same buddy.
            let mut raw = vec![0u8; size.div_ceil(8) as usize];
            for (i, u) in used.iter().enumerate() {
                raw[i / 8] |= u8::from(*u) << (i % 8);
            }
            let again = Buddy::new(size, max_order, &raw);
            prop_assert_eq!(&again.words, &b.words);
            let first = used.iter().position(|u| !u).map(|i| i as u32);
            prop_assert_eq!(b.next_free(0).map(|e| e.start), first);
        }

        #[test]
        fn mask_is_idempotent_and_counts(
            init in proptest::collection::vec(any::<u8>(), 32),
            start in 0u32..300, len in 0u32..300,
        ) {
            let mut b = Buddy::new(256, 8, &init);
            let free = b.free();
            let n = b.mask(Extent { start, len });
            prop_assert_eq!(free - b.free(), n);
            prop_assert_eq!(b.mask(Extent { start, len }), 0);
            for i in start..(start + len) {
                prop_assert!(b.is_used(i));
            }
        }
    }
}
