//! An ext4 image in memory.

use crate::cache::BufferCache;
use crate::device::{BlockDevice, MemDevice};
use crate::ondisk::{Geometry, Sealer, Superblock};
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
