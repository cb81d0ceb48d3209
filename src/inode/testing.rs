//! Volumes on images made by mkfs.ext4, in memory, for the tests of this room and those above; and the
//! outside programs that judge them.

use super::{Inode, InodeTable, NewInode, Volume, mode, new_inode, orphan::Orphans};
use crate::{
    alloc::{Allocator, Tunables},
    cache::{BufferCache, HashIndex, SuperBuf},
    device::{BlockDevice, MemDevice},
    journal::{Handle, Journal, JournalOptions},
    ondisk::{Geometry, SUPERBLOCK_SIZE, Sealer, Superblock},
    options::MountOptions,
    types::Ino,
};
use parking_lot::Mutex;
use std::{
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    },
};
use tempfile::NamedTempFile;

/// A volume and the memory it lies in. Its journal, if it has one, is not used.
pub struct TestVolume {
    pub vol: Arc<Volume>,
    pub dev: Arc<MemDevice>,
}

/// What mkfs.ext4 makes with these arguments, `mib` MiB large, and opens.
pub fn mkfs(mib: u64, args: &[&str]) -> TestVolume {
    let f = NamedTempFile::new().unwrap();
    f.as_file().set_len(mib << 20).unwrap();
    run("mkfs.ext4", &[&["-qF"], args].concat(), f.path());
    open(Arc::new(MemDevice::load(f.path()).unwrap()))
}

/// Opens an image.
pub fn open(mem: Arc<MemDevice>) -> TestVolume {
    let dev: Arc<dyn BlockDevice> = mem.clone();
    let mut b = [0; SUPERBLOCK_SIZE];
    dev.read_at(&mut b, 1024).unwrap();
    let sb = Superblock::parse(&b).unwrap();
    let geo = Arc::new(Geometry::new(&sb, Some(dev.size())).unwrap());
    let sealer = Arc::new(Sealer::new(&geo));
    let cache = Arc::new(BufferCache::new(dev.clone(), geo.clone(), sealer, 16 << 20));
    let journal = Journal::none(cache.clone(), JournalOptions::default());
    let alloc =
        Allocator::open(geo.clone(), cache.clone(), &journal, &sb, Tunables::default()).unwrap();
    let vol = Arc::new(Volume {
        sb: SuperBuf::load(&cache).unwrap(),
        geo,
        dev,
        cache,
        journal,
        alloc,
        conf: MountOptions::default().into(),
        dio: super::lock_mode::DioState::new(super::lock_mode::LockMode::Nolock),
        inodes: InodeTable::new(1 << 16),
        orphans: Orphans::default(),
        xattr_blocks: HashIndex::default(),
        ea_inodes: HashIndex::default(),
        frozen: AtomicBool::new(false),
        shut_down: AtomicBool::new(false),
        noted: Mutex::new(None),
        generation: AtomicU32::new(0x1234_5678),
    });
    TestVolume { vol, dev: mem }
}

impl TestVolume {
    pub fn root(&self) -> Arc<Inode> {
        self.vol.inodes.get(&self.vol, Ino::ROOT).unwrap()
    }

    pub fn start(&self) -> Handle {
        self.vol.journal.start("test", 200).unwrap()
    }

    /// A new inode that no directory names yet.
    pub fn new_inode(&self, h: &mut Handle, parent: &Inode, mode: u16) -> Arc<Inode> {
        let nlink = if mode & mode::FMT == mode::DIR { 2 } else { 1 };
        let new = NewInode { parent, mode, uid: 0, gid: 0, rdev: 0, nlink };
        new_inode(&self.vol, h, &new).unwrap()
    }

    pub fn set_links(&self, h: &mut Handle, i: &Inode, n: u16) {
        i.attrs_mut().rec.links_count = n;
        i.store(&self.vol, h).unwrap();
    }

    /// Writes everything home and gives the image, as a file.
    pub fn close(self) -> NamedTempFile {
        let mut h = self.start();
        self.vol.alloc.store_totals(&mut h, &self.vol.sb).unwrap();
        h.stop().unwrap();
        self.vol.journal.close().unwrap();
        let f = NamedTempFile::new().unwrap();
        self.dev.save(f.path()).unwrap();
        f
    }

    /// [`TestVolume::close`], and e2fsck must have nothing to say.
    pub fn close_clean(self) -> NamedTempFile {
        let f = self.close();
        fsck(f.path());
        f
    }
}

/// e2fsck -fn must find the image clean.
pub fn fsck(image: &Path) {
    run("e2fsck", &["-fn"], image);
}

/// What debugfs prints for a request.
pub fn debugfs(image: &Path, request: &str) -> String {
    run("debugfs", &["-R", request], image)
}

/// Runs a program on the image; it must succeed.
pub fn run(program: &str, args: &[&str], image: &Path) -> String {
    let out = Command::new(program).args(args).arg(image).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?}: {said}{complaint}");
    said
}

/// Runs a shell script in the root of the image as the kernel's ext4 mounts it (needs root), and
/// returns what it prints.
pub fn in_kernel(image: &Path, options: &str, script: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let sh = |script: &str| {
        let out = Command::new("bash").arg("-c").arg(script).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{script}: {said}{}", String::from_utf8_lossy(&out.stderr));
        said
    };
    let (image, mnt) = (image.display(), dir.path().display());
    sh(&format!("mount -t ext4 -o loop,{options} {image} {mnt}"));
    let said = sh(&format!("cd {mnt} || exit 1\n{script}\nr=$?; cd /; umount {mnt}; exit $r"));
    drop(dir);
    said
}
