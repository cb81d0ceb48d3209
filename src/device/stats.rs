//! How many requests of which size reach the device.

use super::{BlockDevice, IoPayload, IoRequest};
use crate::error::Result;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of the size histogram: bucket `i` counts requests of at least `512 << i` bytes and less
/// than twice that; the first also smaller ones, the last also larger ones (16 MiB and up).
pub const BUCKETS: usize = 16;

/// Counters of one kind of request.
#[derive(Default, Debug)]
pub struct Counter {
    requests: AtomicU64,
    bytes: AtomicU64,
    sizes: [AtomicU64; BUCKETS],
}

/// A copy of a [`Counter`] at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Requests.
    pub requests: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Histogram of sizes: see [`BUCKETS`].
    pub sizes: [u64; BUCKETS],
}

fn bucket(len: u64) -> usize {
    ((len >> 9).max(1).ilog2() as usize).min(BUCKETS - 1)
}

impl Counter {
    fn add(&self, len: u64) {
        self.requests.fetch_add(1, Relaxed);
        self.bytes.fetch_add(len, Relaxed);
        self.sizes[bucket(len)].fetch_add(1, Relaxed);
    }

    /// The counters now.
    pub fn get(&self) -> Count {
        let mut sizes = [0; BUCKETS];
        for (to, from) in sizes.iter_mut().zip(&self.sizes) {
            *to = from.load(Relaxed);
        }
        Count { requests: self.requests.load(Relaxed), bytes: self.bytes.load(Relaxed), sizes }
    }
}

/// Counters of a device, counted when a request is made.
#[derive(Default, Debug)]
pub struct DeviceStats {
    /// Reads.
    pub reads: Counter,
    /// Writes, FUA writes included.
    pub writes: Counter,
    /// FUA writes; no sizes.
    pub fua: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
    /// Discards.
    pub discards: Counter,
}

/// Wraps a device and counts.
pub struct Counted {
    inner: Arc<dyn BlockDevice>,
    stats: Arc<DeviceStats>,
}

impl Counted {
    /// Over `inner`; counters at 0.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Counted {
        Counted { inner, stats: Arc::default() }
    }

    /// The counters, to keep.
    pub fn stats(&self) -> Arc<DeviceStats> {
        Arc::clone(&self.stats)
    }
}

impl BlockDevice for Counted {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()> {
        self.stats.reads.add(buf.len() as u64);
        self.inner.read_at(buf, off)
    }
    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        self.stats.writes.add(buf.len() as u64);
        self.inner.write_at(buf, off)
    }
    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], off: u64) -> Result<()> {
        self.stats.reads.add(bufs.iter().map(|b| b.len() as u64).sum());
        self.inner.read_vectored_at(bufs, off)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], off: u64) -> Result<()> {
        self.stats.writes.add(bufs.iter().map(|b| b.len() as u64).sum());
        self.inner.write_vectored_at(bufs, off)
    }
    fn write_vectored_fua(&self, bufs: &[IoSlice<'_>], off: u64) -> Result<()> {
        self.stats.writes.add(bufs.iter().map(|b| b.len() as u64).sum());
        self.stats.fua.fetch_add(1, Relaxed);
        self.inner.write_vectored_fua(bufs, off)
    }
    fn flush(&self) -> Result<()> {
        self.stats.flushes.fetch_add(1, Relaxed);
        self.inner.flush()
    }
    fn write_fua(&self, buf: &[u8], off: u64) -> Result<()> {
        self.stats.writes.add(buf.len() as u64);
        self.stats.fua.fetch_add(1, Relaxed);
        self.inner.write_fua(buf, off)
    }
    fn discard(&self, off: u64, len: u64) -> Result<()> {
        self.stats.discards.add(len);
        self.inner.discard(off, len)
    }
    fn write_zeroes(&self, off: u64, len: u64) -> Result<()> {
        self.stats.writes.add(len);
        self.inner.write_zeroes(off, len)
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn logical_block_size(&self) -> u32 {
        self.inner.logical_block_size()
    }
    fn uncache(&self, off: u64, len: u64) {
        self.inner.uncache(off, len);
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn submit(&self, req: IoRequest) {
        match &req.payload {
            IoPayload::Read(_) => self.stats.reads.add(req.payload.len()),
            IoPayload::Write { fua, .. } => {
                self.stats.writes.add(req.payload.len());
                self.stats.fua.fetch_add(u64::from(*fua), Relaxed);
            }
            IoPayload::Flush => {
                self.stats.flushes.fetch_add(1, Relaxed);
            }
        }
        self.inner.submit(req);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{AlignedBuf, MemDevice};

    #[test]
    fn buckets() {
        for (len, b) in
            [(0, 0), (512, 0), (1023, 0), (1024, 1), (4096, 3), (1 << 20, 11), (1 << 40, 15)]
        {
            assert_eq!(bucket(len), b, "{len}");
        }
    }

    #[test]
    fn counts_both_ways_in() {
        let d = Counted::new(Arc::new(MemDevice::new(1 << 20)));
        d.write_at(&[0; 4096], 0).unwrap();
        d.write_fua(&[0; 512], 0).unwrap();
        d.flush().unwrap();
        d.discard(0, 8192).unwrap();
        d.submit(IoRequest::read(AlignedBuf::zeroed(65536), 0, |r| r.result.unwrap()));
        let s = d.stats();
        let w = s.writes.get();
        assert_eq!((w.requests, w.bytes, w.sizes[0], w.sizes[3]), (2, 4608, 1, 1));
        assert_eq!((s.fua.load(Relaxed), s.flushes.load(Relaxed)), (1, 1));
        assert_eq!((s.reads.get().sizes[7], s.discards.get().bytes), (1, 8192));
    }
}
