//! The data of one file that is not on the device yet: dirty pages and pages
//! whose write is in flight. Clean data is not kept: the kernel has its own
//! page cache in front of us.
//!
//! A page is one file-system block. Its bytes are an `Arc`: a write-out holds
//! its own reference, so a page under I/O never changes; a writer that comes
//! meanwhile gets a copy. Passive: who writes what when is decided in `writeback`.

use crate::{device::AlignedBuf, types::LBlock};
use std::{collections::BTreeMap, sync::Arc, time::Instant};

/// One block of data on its way to the device.
#[derive(Debug)]
pub struct Page {
    buf: Arc<AlignedBuf>,
    /// Differs from what is on the device or in flight to it.
    dirty: bool,
    /// A write of an earlier or the present content is in flight, or its
    /// conversion to written is not done.
    writing: bool,
    /// The block had no place on the device when it became dirty: it holds one
    /// reserved block of the inode's reservation.
    reserved: bool,
    /// When it became dirty, in the order of the file's writes.
    seq: u64,
}

/// A contiguous run of pages taken for writing.
#[derive(Debug, Default)]
pub struct Taken {
    /// Its first block.
    pub first: LBlock,
    /// The bytes, one buffer a block.
    pub bufs: Vec<Arc<AlignedBuf>>,
    /// How many of the pages held a reserved block, now the taker's to spend or give back.
    pub reserved: u32,
    /// Bytes that the file had before the pages were taken, for the taker to note: what came later
    /// is not among them for certain.
    pub size: u64,
}

impl Taken {
    /// Blocks in the run.
    pub fn len(&self) -> u32 {
        self.bufs.len() as u32
    }
    /// Nothing was taken.
    pub fn is_empty(&self) -> bool {
        self.bufs.is_empty()
    }
    /// The block after the last.
    pub fn end(&self) -> u64 {
        u64::from(self.first.0) + self.bufs.len() as u64
    }
}

/// Dirty and in-flight pages of a file, by block.
#[derive(Debug, Default)]
pub struct FilePages {
    pages: BTreeMap<u32, Page>,
    dirty: u32,
    writing: u32,
    reserved: u64,
    seq: u64,
    since: Option<Instant>,
}

impl FilePages {
    /// No page at all.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Pages held, dirty or in flight.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Dirty pages.
    pub fn dirty(&self) -> u32 {
        self.dirty
    }

    /// Blocks that hold a reservation (delayed allocation).
    pub fn reserved_blocks(&self) -> u64 {
        self.reserved
    }

    /// When the oldest dirty page became dirty.
    pub fn dirty_since(&self) -> Option<Instant> {
        self.since
    }

    /// What is dirty now became so at `t` or later.
    pub fn is_younger_than(&mut self, t: Instant) {
        if let Some(s) = &mut self.since {
            *s = (*s).max(t);
        }
    }

    /// The number of the latest write; pages dirtied up to here have `seq` at most this.
    pub fn now(&self) -> u64 {
        self.seq
    }

    /// The bytes of block `l`, if it is here.
    pub fn get(&self, l: LBlock) -> Option<&Arc<AlignedBuf>> {
        self.pages.get(&l.0).map(|p| &p.buf)
    }

    /// Every page in `from..end`, for a reader.
    pub fn range(
        &self,
        from: LBlock,
        end: u64,
    ) -> impl Iterator<Item = (LBlock, &Arc<AlignedBuf>)> {
        self.pages
            .range(from.0..)
            .take_while(move |(l, _)| u64::from(**l) < end)
            .map(|(l, p)| (LBlock(*l), &p.buf))
    }

    /// The bytes of block `l` to change, marked dirty. A page in flight is copied first.
    /// `None` if it is not here: see [`FilePages::insert`].
    pub fn get_mut(&mut self, l: LBlock) -> Option<&mut AlignedBuf> {
        let p = self.pages.get_mut(&l.0)?;
        if !p.dirty {
            self.seq += 1;
            p.dirty = true;
            p.seq = self.seq;
            self.dirty += 1;
            self.since.get_or_insert_with(Instant::now);
        }
        Some(Arc::make_mut(&mut p.buf))
    }

    /// Adds many dirty pages: block, bytes, whether a reserved block comes with it.
    pub fn insert_all(&mut self, pages: Vec<(LBlock, AlignedBuf, bool)>) {
        for (l, buf, reserved) in pages {
            self.insert(l, buf, reserved);
        }
    }

    /// Adds a dirty page. `reserved`: a reserved block comes with it. The page must not be here.
    pub fn insert(&mut self, l: LBlock, buf: AlignedBuf, reserved: bool) {
        self.seq += 1;
        let page =
            Page { buf: Arc::new(buf), dirty: true, writing: false, reserved, seq: self.seq };
        let old = self.pages.insert(l.0, page);
        debug_assert!(old.is_none(), "page {l} was here already");
        self.dirty += 1;
        self.reserved += u64::from(reserved);
        self.since.get_or_insert_with(Instant::now);
    }

    /// The lowest dirty page at or after `from` that became dirty no later than `upto`.
    pub fn next_dirty(&self, from: LBlock, upto: u64) -> Option<LBlock> {
        self.pages.range(from.0..).find(|(_, p)| p.dirty && p.seq <= upto).map(|(l, _)| LBlock(*l))
    }

    /// Takes up to `max` contiguous dirty pages from the first one at or after `from` that can
    /// be taken: their dirty marks go, they count as in flight. A page already in flight is
    /// not taken and ends the run.
    pub fn take(&mut self, from: LBlock, end: u64, max: usize) -> Taken {
        let mut t = Taken::default();
        for (&l, p) in self.pages.range_mut(from.0..) {
            if u64::from(l) >= end || t.bufs.len() >= max {
                break;
            }
            let fits = p.dirty && !p.writing;
            if t.bufs.is_empty() {
                if !fits {
                    continue;
                }
                t.first = LBlock(l);
            } else if !fits || u64::from(l) != t.end() {
                break;
            }
            p.dirty = false;
            p.writing = true;
            t.reserved += u32::from(p.reserved);
            p.reserved = false;
            t.bufs.push(p.buf.clone());
        }
        self.dirty -= t.len();
        self.writing += t.len();
        self.reserved -= u64::from(t.reserved);
        self.refresh_since();
        t
    }

    fn refresh_since(&mut self) {
        if self.dirty == 0 {
            self.since = None;
        }
    }

    /// Puts back pages whose write did not start, with their reservations.
    pub fn untake(&mut self, first: LBlock, len: u32, reserved: bool) {
        for l in first.0..first.0 + len {
            if let Some(p) = self.pages.get_mut(&l) {
                p.writing = false;
                self.writing -= 1;
                if !p.dirty {
                    p.dirty = true;
                    self.dirty += 1;
                }
                if reserved && !p.reserved {
                    p.reserved = true;
                    self.reserved += 1;
                }
            }
        }
        self.since.get_or_insert_with(Instant::now);
    }

    /// The write of these pages is over and the map says so. Pages not dirtied
    /// again are dropped; returns how many.
    pub fn written(&mut self, first: LBlock, len: u32) -> u32 {
        let mut dropped = 0;
        for l in first.0..first.0.saturating_add(len) {
            let Some(p) = self.pages.get_mut(&l) else { continue };
            p.writing = false;
            self.writing -= 1;
            if !p.dirty {
                self.pages.remove(&l);
                dropped += 1;
            }
        }
        dropped
    }

    /// Drops dirty pages of `from..end` unwritten (truncate, punch). None may be in flight.
    /// Returns (pages dropped, reserved blocks that the caller now gives back).
    pub fn drop_range(&mut self, from: LBlock, end: u64) -> (u32, u32) {
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        let gone: Vec<u32> = self
            .pages
            .range(from.0..)
            .take_while(|(l, _)| **l < end || end == u32::MAX)
            .map(|(l, _)| *l)
            .collect();
        let mut reserved = 0;
        for l in &gone {
            if let Some(p) = self.pages.remove(l) {
                debug_assert!(!p.writing, "page {l} dropped in flight");
                self.dirty -= u32::from(p.dirty);
                reserved += u32::from(p.reserved);
            }
        }
        self.reserved -= u64::from(reserved);
        self.refresh_since();
        (gone.len() as u32, reserved)
    }

    /// Whether any page of `from..end` is in flight.
    pub fn writing_in(&self, from: LBlock, end: u64) -> bool {
        self.writing > 0
            && self
                .pages
                .range(from.0..)
                .take_while(|(l, _)| u64::from(**l) < end)
                .any(|(_, p)| p.writing)
    }

    /// Whether any page of `from..end` is dirty or in flight.
    pub fn any_in(&self, from: LBlock, end: u64) -> bool {
        self.pages.range(from.0..).next().is_some_and(|(l, _)| u64::from(*l) < end)
    }

    /// The lowest block at or after `from` that is dirty or in flight.
    pub fn lowest_unwritten(&self, from: LBlock) -> Option<LBlock> {
        self.pages.range(from.0..).next().map(|(l, _)| LBlock(*l))
    }

    /// The lowest dirty block at or after `from`.
    pub fn lowest_dirty(&self, from: LBlock) -> Option<LBlock> {
        self.pages.range(from.0..).find(|(_, p)| p.dirty).map(|(l, _)| LBlock(*l))
    }

    /// How many dirty pages follow each other from `from`, counted up to `max`.
    pub fn contiguous_dirty(&self, from: LBlock, max: usize) -> usize {
        self.contiguous(from, max, |p| p.dirty)
    }

    /// How many dirty pages without a place on the device follow each other from `from`, counted up to
    /// `max`.
    pub fn contiguous_delayed(&self, from: LBlock, max: usize) -> usize {
        self.contiguous(from, max, |p| p.dirty && p.reserved)
    }

    fn contiguous(&self, from: LBlock, max: usize, counts: impl Fn(&Page) -> bool) -> usize {
        let pages = (u64::from(from.0)..).zip(self.pages.range(from.0..));
        pages.take(max).take_while(|(want, (l, p))| *want == u64::from(**l) && counts(p)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> AlignedBuf {
        let mut b = AlignedBuf::zeroed(1024);
        b.fill(byte);
        b
    }

    #[test]
    fn a_page_in_flight_is_copied_for_a_writer() {
        let mut p = FilePages::default();
        p.insert(LBlock(3), page(1), true);
        p.insert(LBlock(4), page(2), false);
        let t = p.take(LBlock(0), u64::MAX, 10);
        assert_eq!((t.first, t.len(), t.reserved), (LBlock(3), 2, 1));
        assert_eq!((p.dirty(), p.reserved_blocks()), (0, 0));
        if let Some(b) = p.get_mut(LBlock(3)) {
            b[0] = 9;
        }
        assert_eq!(t.bufs[0][0], 1);
        assert_eq!(p.get(LBlock(3)).map(|b| b[0]), Some(9));
        // Dirtied again: stays, and may not be taken while the first write is in flight.
        assert!(p.take(LBlock(0), u64::MAX, 10).is_empty());
        assert_eq!(p.written(LBlock(3), 2), 1);
        assert_eq!((p.len(), p.dirty()), (1, 1));
        assert_eq!(p.take(LBlock(0), u64::MAX, 10).first, LBlock(3));
    }

    #[test]
    fn runs_end_at_gaps_and_budgets() {
        let mut p = FilePages::default();
        for l in [0, 1, 2, 5, 6] {
            p.insert(LBlock(l), page(0), true);
        }
        assert_eq!(p.contiguous_dirty(LBlock(0), 100), 3);
        assert_eq!(p.take(LBlock(0), u64::MAX, 2).len(), 2);
        assert_eq!(p.take(LBlock(0), u64::MAX, 9).first, LBlock(2));
        let t = p.take(LBlock(0), 6, 9);
        assert_eq!((t.first, t.len()), (LBlock(5), 1));
        assert_eq!(p.lowest_unwritten(LBlock(3)), Some(LBlock(5)));
        assert_eq!(p.lowest_dirty(LBlock(3)), Some(LBlock(6)));
        assert_eq!(p.drop_range(LBlock(6), u64::MAX), (1, 1));
    }
}
