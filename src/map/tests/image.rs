//! A real image in memory with one empty file, whose map the tests change.

use crate::alloc::{Allocator, Tunables};
use crate::cache::{BufferCache, SuperBuf};
use crate::device::{BlockDevice, MemDevice};
use crate::error::Result;
use crate::journal::{Handle, Journal, JournalOptions};
use crate::map::node::Node;
use crate::map::{FileMap, MapCtx, Mapping, Progress, State};
use crate::ondisk::{Geometry, InodeRecord, Seal, Sealer, Superblock};
use crate::types::{Block, Ino, LBlock};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// The file `/f`: the first inode that is not reserved, after `lost+found`.
const FILE: Ino = Ino(12);

pub struct Image {
    pub dir: TempDir,
    pub dev: Arc<MemDevice>,
    pub geo: Arc<Geometry>,
    pub cache: Arc<BufferCache>,
    pub journal: Arc<Journal>,
    pub alloc: Arc<Allocator>,
    pub sb: SuperBuf,
    pub rec: InodeRecord,
    /// Restartable operations are asked to commit all the time.
    pub hurry: bool,
}

fn children(n: Node<'_>) -> Vec<Block> {
    (0..n.len()).map(|i| n.child(i).unwrap()).collect()
}

fn run(cmd: &mut Command) -> (i32, String) {
    let out = cmd.output().unwrap();
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&out.stderr));
    (out.status.code().unwrap(), text)
}

fn debugfs(image: &Path, write: bool, command: &str) -> String {
    let mut c = Command::new("debugfs");
    if write {
        c.arg("-w");
    }
    let (code, text) = run(c.arg("-R").arg(command).arg(image));
    assert_eq!(code, 0, "debugfs {command}: {text}");
    text
}

impl Image {
    /// What mkfs.ext4 makes with these arguments, `mib` MiB large, plus the file.
    pub fn new(mib: u64, args: &[&str]) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        std::fs::File::create(&path).unwrap().set_len(mib << 20).unwrap();
        let (code, text) = run(Command::new("mkfs.ext4").arg("-qF").args(args).arg(&path));
        assert_eq!(code, 0, "mkfs.ext4: {text}");
        debugfs(&path, true, "write /dev/null f");
        Image::open(dir, MemDevice::load(&path).unwrap())
    }

    fn open(dir: TempDir, dev: MemDevice) -> Image {
        let dev = Arc::new(dev);
        let mut b = [0; 1024];
        dev.read_at(&mut b, 1024).unwrap();
        let sb = Superblock::parse(&b).unwrap();
        let geo = Arc::new(Geometry::new(&sb, Some(dev.size())).unwrap());
        let sealer = Arc::new(Sealer::new(&geo));
        let shared: Arc<dyn BlockDevice> = Arc::clone(&dev) as _;
        let cache = Arc::new(BufferCache::new(shared, Arc::clone(&geo), sealer, 16 << 20));
        let opts =
            JournalOptions { commit_interval: Duration::from_secs(3600), ..Default::default() };
        let journal = Journal::none(Arc::clone(&cache), opts);
        let alloc = Allocator::open(
            Arc::clone(&geo),
            Arc::clone(&cache),
            &journal,
            &sb,
            Tunables::default(),
        )
        .unwrap();
        let sb = SuperBuf::load(&cache).unwrap();
        let (block, off) = slot(&geo, &alloc);
        let rec = cache
            .read(block, &Seal::None)
            .unwrap()
            .read(|b| InodeRecord::parse(&geo, FILE, &b[off..]))
            .unwrap();
        Image { dir, dev, geo, cache, journal, alloc, sb, rec, hurry: false }
    }

    /// The same device, opened anew, after `f` had its way with it.
    pub fn reopen(self, f: impl FnOnce(&MemDevice)) -> Image {
        self.journal.close().unwrap();
        let dev = self.dev.snapshot();
        f(&dev);
        Image::open(self.dir, dev)
    }

    /// The blocks of an extent tree.
    pub fn nodes(&self, map: &FileMap) -> Vec<Block> {
        let mut found = Vec::new();
        let mut level = match Node::root(map.i_block()) {
            Ok(n) if n.depth() > 0 => children(n),
            _ => Vec::new(),
        };
        while let Some(&first) = level.first() {
            found.extend(&level);
            let depth = self.cache.read(first, &Seal::None).unwrap().read(|b| b[6]);
            if depth == 0 {
                break;
            }
            level = level
                .iter()
                .flat_map(|b| {
                    let buf = self.cache.read(*b, &Seal::None).unwrap();
                    buf.read(|b| {
                        let first = u32::from_le_bytes(b[12..16].try_into().unwrap());
                        Node::block(b, depth.into(), first).map(children).unwrap()
                    })
                })
                .collect();
        }
        found
    }

    pub fn ctx(&self) -> MapCtx<'_> {
        MapCtx::new(&self.geo, &self.cache, &self.alloc)
    }

    pub fn map(&self) -> FileMap {
        FileMap::from_inode(&self.geo, FILE, &self.rec).unwrap()
    }

    /// Runs `f` in a handle of exactly so many credits and checks that they were enough.
    pub fn with<R>(&self, credits: u32, f: impl FnOnce(&MapCtx<'_>, &mut Handle) -> R) -> R {
        let mut h = self.journal.start("test", credits + 1).unwrap();
        let r = f(&self.ctx(), &mut h);
        assert!(h.credits() >= 1, "{credits} credits were not enough");
        r
    }

    /// Runs a restartable operation to its end, each step in a transaction of its own.
    pub fn steps(
        &self,
        map: &mut FileMap,
        mut f: impl FnMut(&mut FileMap, &MapCtx<'_>, &mut Handle) -> Result<Progress>,
    ) -> Result<()> {
        loop {
            let r = self.with(map.credits_for_remove(), |c, h| {
                if self.hurry {
                    self.journal.request_commit(h.tid());
                }
                f(map, c, h)
            })?;
            if r == Progress::Done {
                return Ok(());
            }
        }
    }

    /// Writes the inode, with a size that covers what is mapped.
    pub fn store(&mut self, map: &FileMap) {
        let mut end = 0;
        map.for_each(&self.ctx(), LBlock(0), u64::MAX, &mut |m| {
            end = m.end();
            true
        })
        .unwrap();
        self.rec.size = end << self.geo.block_size.log2();
        self.rec.i_block = *map.i_block();
        self.rec.blocks = map.blocks512();
        let (block, off) = slot(&self.geo, &self.alloc);
        let buf = self.cache.read(block, &Seal::None).unwrap();
        let mut h = self.journal.start("test", 2).unwrap();
        let seal = Seal::Inode { ino: FILE, offset: off as u32 };
        h.modify(&buf, &seal, |b| self.rec.encode(&self.geo, &mut b[off..])).unwrap().unwrap();
        self.alloc.store_totals(&mut h, &self.sb).unwrap();
        h.stop().unwrap();
    }

    /// Stores the inode, commits, and has e2fsck look at the image: exit code 0 and nothing said of the
    /// file. Answers what debugfs lists of the file's leaves.
    pub fn check(&mut self, map: &FileMap) -> Vec<Mapping> {
        self.store(map);
        self.journal.commit_all().unwrap();
        let path = self.dir.path().join("check");
        self.dev.save(&path).unwrap();
        let (code, text) = run(Command::new("e2fsck").arg("-fn").arg(&path));
        if code != 0 {
            let tree = debugfs(&path, false, "ex f");
            panic!("e2fsck exits {code}:\n{text}\n{tree}");
        }
        // A tree with room in its leaves is in order; one that could be shorter was not tidied.
        let said = text.replace("could be narrower.  Optimize? no", "");
        assert!(!said.contains("? no"), "{text}");
        debugfs_leaves(&path)
    }
}

fn slot(geo: &Geometry, alloc: &Allocator) -> (Block, usize) {
    let (g, i) = geo.ino_location(FILE).unwrap();
    let (block, off) = geo.itable_slot(i);
    (alloc.inode_table(g).unwrap().plus(block.into()), off)
}

/// `debugfs -R "ex -l f"`: lines such as ` 1/ 1   2/ 10    17 -    20   8200 - 8203      4 Uninit`.
fn debugfs_leaves(image: &Path) -> Vec<Mapping> {
    let text = debugfs(image, false, "ex -l f");
    let mut found = Vec::new();
    for line in text.lines().skip(1) {
        let clean = line.replace(['/', '-'], " ");
        let mut words = clean.split_whitespace();
        let nums: Vec<u64> = words.by_ref().take(9).map_while(|w| w.parse().ok()).collect();
        if let [level, depth, _, _, lblk, _, pblk, _, len] = nums[..]
            && level == depth
        {
            let state =
                if words.next() == Some("Uninit") { State::Unwritten } else { State::Written };
            found.push(Mapping {
                lblk: LBlock(lblk as u32),
                len: len as u32,
                pblk: Block(pblk),
                state,
            });
        }
    }
    found
}

/// Everything that is mapped, as the lookups tell it.
pub fn listing(image: &Image, map: &FileMap) -> Vec<Mapping> {
    let mut all = Vec::new();
    map.for_each(&image.ctx(), LBlock(0), u64::MAX, &mut |m| {
        all.push(m);
        true
    })
    .unwrap();
    all
}
