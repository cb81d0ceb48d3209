//! An ext4 image in memory.

use crate::cache::BufferCache;
use crate::device::{BlockDevice, MemDevice};
use crate::journal::{Journal, JournalOptions, LogExtent, LogMap, Opened, Recovered, open};
use crate::ondisk::{Geometry, Sealer, Superblock};
use crate::types::{Block, Group};
use std::process::Command;
use std::sync::Arc;

/// What mkfs.ext4 makes with these arguments, `mib` MiB large.
pub fn mkfs(mib: u64, args: &[&str]) -> MemDevice {
    let f = tempfile::NamedTempFile::new().unwrap();
    f.as_file().set_len(mib << 20).unwrap();
    let out = Command::new("mkfs.ext4").arg("-qF").args(args).arg(f.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    MemDevice::load(f.path()).unwrap()
}

/// The checked superblock.
pub fn superblock(dev: &dyn BlockDevice) -> Superblock {
    let mut b = [0; 1024];
    dev.read_at(&mut b, 1024).unwrap();
    Superblock::parse(&b).unwrap()
}

/// A cache over a device.
pub fn cache(dev: Arc<dyn BlockDevice>) -> Arc<BufferCache> {
    let geo = Arc::new(Geometry::new(&superblock(&*dev), Some(dev.size())).unwrap());
    let sealer = Arc::new(Sealer::new(&geo));
    Arc::new(BufferCache::new(dev, geo, sealer, 8 << 20))
}

/// Runs e2fsck on a copy of the image: its exit code and what it said.
pub fn fsck(dev: &MemDevice, args: &[&str]) -> (i32, String) {
    let f = tempfile::NamedTempFile::new().unwrap();
    dev.save(f.path()).unwrap();
    let out = Command::new("e2fsck").args(args).arg(f.path()).output().unwrap();
    (out.status.code().unwrap(), String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The journal of an image whose inode 8 has its extents in the inode.
pub fn log_map(dev: Arc<dyn BlockDevice>) -> LogMap {
    let sb = superblock(&*dev);
    let geo = Geometry::new(&sb, None).unwrap();
    let (desc, offset) = geo.desc_location(Group(0));
    let word = |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap());
    let half = |b: &[u8], at: usize| u16::from_le_bytes(b[at..at + 2].try_into().unwrap());
    let mut b = vec![0; geo.block_size.bytes()];
    dev.read_at(&mut b, geo.block_size.offset(desc)).unwrap();
    let table = Block(u64::from(word(&b, offset + 8)));
    let mut inode = vec![0; usize::from(geo.inode_size)];
    let at = geo.block_size.offset(table) + 7 * u64::from(geo.inode_size);
    dev.read_at(&mut inode, at).unwrap();
    let map = &inode[40..100];
    assert_eq!((half(map, 0), half(map, 6)), (0xf30a, 0), "journal inode with a leaf root");
    let extents = (0..usize::from(half(map, 2)))
        .map(|i| {
            let e = &map[12 + 12 * i..];
            let start = u64::from(half(e, 6)) << 32 | u64::from(word(e, 8));
            LogExtent { log: word(e, 0), len: u32::from(half(e, 4)), start: Block(start) }
        })
        .collect();
    LogMap::new(dev, geo.block_size, extents).unwrap()
}

/// Opens the journal for writing, replaying it first if need be.
pub fn open_log(
    dev: Arc<dyn BlockDevice>,
    opts: JournalOptions,
) -> (Arc<Journal>, Option<Recovered>) {
    let sb = superblock(&*dev);
    let geo = Geometry::new(&sb, Some(dev.size())).unwrap();
    let (clean, recovered) = match open(log_map(Arc::clone(&dev)), sb.needs_recovery()).unwrap() {
        Opened::Clean(c) => (c, None),
        Opened::NeedsRecovery(d) => {
            let r = d.recover(&geo, &*dev).unwrap();
            let recovered = r.recovered;
            (r.finish().unwrap(), Some(recovered))
        }
    };
    (clean.start(cache(dev), opts).unwrap(), recovered)
}

/// Replays the journal if it needs it, and leaves it at that.
pub fn recover(dev: Arc<dyn BlockDevice>) -> Option<Recovered> {
    let sb = superblock(&*dev);
    let geo = Geometry::new(&sb, Some(dev.size())).unwrap();
    match open(log_map(Arc::clone(&dev)), sb.needs_recovery()).unwrap() {
        Opened::Clean(_) => None,
        Opened::NeedsRecovery(d) => {
            let r = d.recover(&geo, &*dev).unwrap();
            let recovered = r.recovered;
            r.finish().unwrap();
            Some(recovered)
        }
    }
}

/// The first four bytes of a block.
pub fn first_bytes(dev: &dyn BlockDevice, bs: u64, block: Block) -> [u8; 4] {
    let mut b = [0; 4];
    dev.read_at(&mut b, block.0 * bs).unwrap();
    b
}
