//! The allocator on images made by mke2fs, judged by e2fsck and dumpe2fs.

mod blocks;
mod inode_numbers;
mod reserve;
mod scale;

use super::{Allocator, FreeFlags, Request, Run, Tunables};
use crate::cache::{BufferCache, SuperBuf};
use crate::device::{BlockDevice, MemDevice};
use crate::journal::{Journal, JournalOptions};
use crate::ondisk::{Geometry, SUPERBLOCK_OFFSET, Sealer, Superblock};
use crate::types::{Ino, LBlock};
use std::process::Command;
use std::sync::Arc;

/// A file system in memory, opened down to the allocator.
struct Fs<D = MemDevice> {
    dev: Arc<D>,
    geo: Arc<Geometry>,
    cache: Arc<BufferCache>,
    journal: Arc<Journal>,
    alloc: Arc<Allocator>,
}

/// Runs a program; its output and whether it succeeded.
fn run(program: &str, args: &[&str]) -> (bool, String) {
    let out = Command::new(program).args(args).output().expect(program);
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    (out.status.success(), text.into_owned())
}

/// A directory in memory if there is one: mke2fs and e2fsck wait for the disk.
fn tempdir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn mke2fs(args: &[&str], size: &str) -> MemDevice {
    let dir = tempdir();
    let path = dir.path().join("image");
    let name = path.to_str().unwrap();
    let all: Vec<&str> = ["-q", "-F", "-t", "ext4"]
        .into_iter()
        .chain(args.iter().copied())
        .chain([name, size])
        .collect();
    let (ok, text) = run("mke2fs", &all);
    assert!(ok, "{text}");
    MemDevice::load(&path).unwrap()
}

impl Fs {
    fn new(args: &[&str], size: &str) -> Fs {
        Fs::open(mke2fs(args, size), Tunables::default())
    }

    /// Writes the totals, closes, and answers the image.
    fn close(self) -> MemDevice {
        let sb = SuperBuf::load(&self.cache).unwrap();
        self.alloc.store_totals(&mut self.handle(), &sb).unwrap();
        self.journal.close().unwrap();
        self.dev.snapshot()
    }

    /// Closes and lets e2fsck look: the image must be without fault.
    fn fsck(self) -> MemDevice {
        let dev = self.close();
        let (ok, text) = e2fsck(&dev);
        assert!(ok, "{text}");
        dev
    }
}

impl<D: BlockDevice + 'static> Fs<D> {
    fn open(dev: D, tunables: Tunables) -> Fs<D> {
        Fs::try_open(dev, tunables).unwrap()
    }

    fn try_open(dev: D, tunables: Tunables) -> crate::error::Result<Fs<D>> {
        let dev = Arc::new(dev);
        let mut bytes = [0; 1024];
        dev.read_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        let sb = Superblock::parse(&bytes).unwrap();
        let geo = Arc::new(Geometry::new(&sb, Some(dev.size())).unwrap());
        let sealer = Arc::new(Sealer::new(&geo));
        let cache = Arc::new(BufferCache::new(
            Arc::clone(&dev) as Arc<_>,
            Arc::clone(&geo),
            sealer,
            16 << 20,
        ));
        let journal = Journal::none(Arc::clone(&cache), JournalOptions::default());
        let alloc = Allocator::open(Arc::clone(&geo), Arc::clone(&cache), &journal, &sb, tunables)?;
        Ok(Fs { dev, geo, cache, journal, alloc })
    }

    fn handle(&self) -> crate::journal::Handle {
        self.journal.start("test", 64).unwrap()
    }

    fn commit(&self) {
        self.journal.commit_all().unwrap();
    }

    fn take(&self, req: Request<'_>) -> crate::error::Result<Run> {
        let mut h = self.handle();
        self.alloc.alloc(&mut h, req)
    }

    fn take_data(&self, ino: u32, lblk: u32, len: u32) -> crate::error::Result<Run> {
        self.take(Request::data(Ino(ino), LBlock(lblk), len))
    }

    fn give(&self, run: Run) {
        let mut h = self.handle();
        self.alloc.free(&mut h, run, FreeFlags::default()).unwrap();
    }
}

fn e2fsck(dev: &MemDevice) -> (bool, String) {
    let dir = tempdir();
    let path = dir.path().join("image");
    dev.save(&path).unwrap();
    run("e2fsck", &["-f", "-n", path.to_str().unwrap()])
}

fn dumpe2fs(dev: &MemDevice) -> String {
    let dir = tempdir();
    let path = dir.path().join("image");
    dev.save(&path).unwrap();
    let (ok, text) = run("dumpe2fs", &[path.to_str().unwrap()]);
    assert!(ok, "{text}");
    text
}

/// mke2fs options for every layout that differs for the allocator.
const LAYOUTS: &[&[&str]] = &[
    &[],
    &["-b", "1024"],
    &["-b", "1024", "-g", "1024", "-O", "^flex_bg,^resize_inode"],
    &["-b", "2048", "-O", "^metadata_csum,uninit_bg"],
    &["-b", "4096", "-O", "^has_journal,^64bit", "-N", "64"],
    &["-b", "1024", "-O", "meta_bg,^resize_inode"],
    &["-b", "1024", "-O", "^metadata_csum,^uninit_bg,^flex_bg"],
    &["-b", "65536"],
];
