//! Nobody else writes to an image that is open, and an image that somebody else uses is not opened.
//! Needs root, loop devices and mkfs.ext4.

use std::path::{Path, PathBuf};
use std::process::Command;
use uext4::device::{Backing, BlockDevice, FileDevice, OpenHow};
use uext4::error::Error;

fn run(cmd: &str, args: &[&str]) -> String {
    let out = Command::new(cmd).args(args).output().unwrap_or_else(|e| panic!("{cmd}: {e}"));
    assert!(out.status.success(), "{cmd} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// A small ext4 image on a loop device, perhaps mounted by the kernel; undone when dropped.
struct Looped {
    dir: tempfile::TempDir,
    dev: String,
}

impl Looped {
    fn new() -> Looped {
        let dir = tempfile::tempdir().unwrap();
        let img = dir.path().join("img");
        std::fs::File::create(&img).unwrap().set_len(16 << 20).unwrap();
        let img = img.to_str().unwrap();
        run("mkfs.ext4", &["-q", "-F", img]);
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        let dev = run("losetup", &["--find", "--show", img]);
        Looped { dir, dev }
    }

    fn img(&self) -> PathBuf {
        self.dir.path().join("img")
    }

    fn mnt(&self) -> String {
        self.dir.path().join("mnt").to_str().unwrap().to_owned()
    }

    fn mount(&self, how: &str) {
        run("mount", &["-t", "ext4", "-o", how, &self.dev, &self.mnt()]);
    }

    fn umount(&self) {
        run("umount", &[&self.mnt()]);
    }
}

impl Drop for Looped {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-q").arg(self.mnt()).status());
        drop(Command::new("losetup").args(["-d", &self.dev]).status());
    }
}

fn open(path: impl AsRef<Path>, read_only: bool) -> Result<FileDevice, Error> {
    FileDevice::open(path, OpenHow { read_only, ..OpenHow::default() })
}

fn refused(r: Result<FileDevice, Error>, words: &str) {
    match r {
        Err(Error::InUse(m)) if m.contains(words) => {}
        Err(e) => panic!("refused, but not for {words:?}: {e}"),
        Ok(_) => panic!("not refused, though {words:?}"),
    }
}

#[test]
fn image_mounted_by_the_kernel() {
    let l = Looped::new();
    drop(open(l.img(), false).expect("attached only: free"));
    l.mount("rw");
    refused(open(l.img(), false), "mounted by the kernel on ");
    refused(open(l.img(), true), "mounted by the kernel on ");
    refused(open(&l.dev, false), "in use by the kernel");
    refused(open(&l.dev, true), "mounted by the kernel on ");
    l.umount();
    l.mount("ro");
    drop(open(l.img(), true).expect("both only read"));
    drop(open(&l.dev, true).expect("both only read"));
    refused(open(l.img(), false), "mounted by the kernel on ");
    l.umount();
    drop(open(l.img(), false).expect("free again"));
}

#[test]
fn kernel_cannot_mount_what_we_have() {
    let l = Looped::new();
    let d = open(&l.dev, false).unwrap();
    let mount = Command::new("mount").args(["-t", "ext4", &l.dev, &l.mnt()]).output().unwrap();
    assert!(!mount.status.success(), "the kernel mounted a device that is ours");
    refused(open(&l.dev, false), "in use");
    refused(open(l.img(), false), "another uext4");
    drop(d);
    let d = open(l.img(), false).unwrap();
    refused(open(&l.dev, false), "the file behind it");
    drop(d);
    drop(open(&l.dev, false).expect("free again"));
}

#[test]
fn block_device_reads_writes_and_discards() {
    let l = Looped::new();
    for backing in [Backing::Buffered, Backing::Direct] {
        let d = FileDevice::open(&l.dev, OpenHow { backing, ..OpenHow::default() }).unwrap();
        assert_eq!((d.size(), d.logical_block_size()), (16 << 20, 512));
        let text: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
        d.write_at(&text, 1_000_001).unwrap();
        let mut got = vec![0; 10_000];
        d.read_at(&mut got, 1_000_001).unwrap();
        assert_eq!(got, text);
        d.flush().unwrap();
        d.write_zeroes(1 << 20, 8192).unwrap();
        d.read_at(&mut got[..8192], 1 << 20).unwrap();
        assert_eq!(got[..8192], [0; 8192]);
        d.discard(2 << 20, 1 << 20).unwrap();
        assert!(d.write_at(&text, (16 << 20) - 9_999).is_err());
    }
}
