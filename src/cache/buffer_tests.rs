//! Tests of the buffer cache.

use super::{Buffer, BufferCache, SuperBuf};
use crate::device::{BlockDevice, MemDevice};
use crate::error::{Error, Result};
use crate::ondisk::{Geometry, Seal, Sealer, Superblock};
use crate::types::Block;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// A slow device that counts its reads.
struct Counting {
    dev: MemDevice,
    reads: AtomicU32,
}

impl BlockDevice for Counting {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()> {
        self.reads.fetch_add(1, SeqCst);
        std::thread::sleep(Duration::from_millis(2));
        self.dev.read_at(buf, off)
    }
    fn read_vectored_at(&self, bufs: &mut [std::io::IoSliceMut<'_>], off: u64) -> Result<()> {
        self.reads.fetch_add(1, SeqCst);
        self.dev.read_vectored_at(bufs, off)
    }
    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        self.dev.write_at(buf, off)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn size(&self) -> u64 {
        self.dev.size()
    }
}

fn cache(capacity: usize) -> (Arc<Counting>, Arc<BufferCache>) {
    let f = tempfile::NamedTempFile::new().unwrap();
    f.as_file().set_len(16 << 20).unwrap();
    let args = ["-qF", "-b", "1024", "-O", "metadata_csum"];
    assert!(Command::new("mkfs.ext4").args(args).arg(f.path()).status().unwrap().success());
    let dev = MemDevice::load(f.path()).unwrap();
    let mut sb = [0; 1024];
    dev.read_at(&mut sb, 1024).unwrap();
    let sb = Superblock::parse(&sb).unwrap();
    let geo = Arc::new(Geometry::new(&sb, None).unwrap());
    let sealer = Arc::new(Sealer::new(&geo));
    let dev = Arc::new(Counting { dev, reads: AtomicU32::new(0) });
    (dev.clone(), Arc::new(BufferCache::new(dev, geo, sealer, capacity)))
}

#[test]
fn one_thread_reads_and_all_get_the_same_buffer() {
    let (dev, cache) = cache(1 << 20);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let cache = Arc::clone(&cache);
            std::thread::spawn(move || cache.read(Block(5000), &Seal::None).unwrap())
        })
        .collect();
    let bufs: Vec<Arc<Buffer>> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(dev.reads.load(SeqCst), 1);
    assert!(bufs.iter().all(|b| Arc::ptr_eq(b, &bufs[0])));
}

#[test]
fn a_broken_seal_is_an_error_every_time_and_a_good_one_is_checked_once() {
    let (_, cache) = cache(1 << 20);
    let sb = SuperBuf::load(&cache).unwrap();
    assert_eq!(sb.read(|b| b[0x38..0x3a].to_vec()), [0x53, 0xef]);
    assert!(sb.buf.is_verified(&Seal::Superblock));
    for _ in 0..2 {
        let e = cache.read(Block(1), &Seal::XattrBlock).unwrap_err();
        assert!(matches!(e, Error::Corrupt(c) if c.checksum && c.block == Some(Block(1))));
    }
    let leaf = Seal::ExtentBlock { seed: 1 };
    let free = cache.create(Block(5000)).unwrap();
    free.set_verified(&leaf);
    assert!(cache.read(Block(5000), &leaf).is_ok());
    assert!(!free.is_verified(&Seal::ExtentBlock { seed: 2 }), "another owner's seed");
}

#[test]
fn blocks_outside_the_file_system_are_refused() {
    let (dev, cache) = cache(1 << 20);
    for b in [0, 16384, u64::MAX] {
        assert!(matches!(cache.read(Block(b), &Seal::None), Err(Error::Corrupt(_))), "{b}");
        assert!(cache.create(Block(b)).is_err());
    }
    cache.prefetch(Block(16380), 5);
    assert_eq!((dev.reads.load(SeqCst), cache.len()), (0, 0));
}

#[test]
fn pinned_buffers_stay_and_the_rest_is_bounded() {
    let (_, cache) = cache(256 << 10);
    let pinned: Vec<_> = (4000..4300).map(|b| cache.read(Block(b), &Seal::None).unwrap()).collect();
    for first in (5000..15000).step_by(250) {
        cache.prefetch(Block(first), 250);
    }
    assert!(cache.len() <= 300 + 4 * 256, "{}", cache.len());
    for b in &pinned {
        assert!(Arc::ptr_eq(b, &cache.peek(b.block()).unwrap()));
    }
    drop(pinned);
    cache.drop_clean();
    assert_eq!(cache.len(), 0);
}

#[test]
fn prefetch_reads_runs_and_leaves_what_is_there() {
    let (dev, cache) = cache(4 << 20);
    let there = cache.read(Block(5010), &Seal::None).unwrap();
    there.change(|b| b.fill(7));
    dev.reads.store(0, SeqCst);
    cache.prefetch(Block(5000), 40);
    assert_eq!(dev.reads.load(SeqCst), 2, "one read on either side of what was there");
    for b in 5000..5040 {
        cache.read(Block(b), &Seal::None).unwrap();
    }
    assert_eq!(dev.reads.load(SeqCst), 2);
    assert_eq!(cache.read(Block(5010), &Seal::None).unwrap().read(|b| b[0]), 7);
}

#[test]
fn a_snapshot_keeps_its_bytes() {
    let (_, cache) = cache(1 << 20);
    let b = cache.create(Block(5000)).unwrap();
    let before = b.data();
    b.change(|d| d.fill(1));
    assert_eq!((before[0], b.read(|d| d[0])), (0, 1));
    cache.forget(Block(5000));
    assert!(cache.peek(Block(5000)).is_none());
}
