//! Delayed allocation and write-out, driven in-process on images made by mkfs.ext4.
//!
//! `UEXT4_TEST_SCALE=full` runs the fill test at its full size.

mod control;
mod extents;
mod faults;
mod fill;
mod inline;
mod liveness;

use std::{process::Command, sync::Arc};
use tempfile::NamedTempFile;
use uext4::{
    device::{BlockDevice, MemDevice},
    fs::{Cred, Fs, ReadHow, WriteHow},
    options::{Control, MountOptions, Scope},
    types::Ino,
};

const POISON: u8 = 0xa5;

/// An image of `mib` MiB whose free blocks are full of [`POISON`].
fn mkfs(mib: usize, args: &[&str]) -> Arc<MemDevice> {
    let f = NamedTempFile::new().unwrap();
    std::fs::write(f.path(), vec![POISON; mib << 20]).unwrap();
    run(Command::new("mkfs.ext4").args(["-qF", "-E", "nodiscard"]).args(args).arg(f.path()));
    Arc::new(MemDevice::load(f.path()).unwrap())
}

/// Runs a program, which must succeed, and returns what it prints.
fn run(c: &mut Command) -> String {
    let out = c.output().unwrap_or_else(|e| panic!("{c:?}: {e}"));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{c:?}: {said}{}", String::from_utf8_lossy(&out.stderr));
    said
}

fn mount(dev: Arc<dyn BlockDevice>, options: &str) -> Arc<Fs> {
    let o = MountOptions::parse(&[options]).unwrap();
    Fs::mount(dev, &o).unwrap_or_else(|e| panic!("mount: {e}"))
}

/// e2fsck must find nothing; returns the image.
fn fsck(dev: &MemDevice) -> NamedTempFile {
    let f = NamedTempFile::new().unwrap();
    dev.save(f.path()).unwrap();
    run(Command::new("e2fsck").arg("-fn").arg(f.path()));
    f
}

fn create(fs: &Fs, name: &str) -> Ino {
    fs.mknod(Cred::ROOT, Ino::ROOT, name.as_bytes(), 0o100644, 0, 0).unwrap().ino
}

fn write(fs: &Fs, ino: Ino, off: u64, data: &[u8]) -> uext4::error::Result<usize> {
    fs.write(Cred::ROOT, ino, off, data, WriteHow::default())
}

fn read(fs: &Fs, ino: Ino, off: u64, len: usize) -> Vec<u8> {
    let mut b = vec![0xee; len];
    let n = fs.read(ino, off, &mut b, ReadHow::BUFFERED).unwrap();
    b.truncate(n);
    b
}

fn get(fs: &Fs, name: &str) -> String {
    Control::get(fs, Scope::Mount, name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn set(fs: &Fs, name: &str, value: &str) {
    Control::set(fs, Scope::Mount, name, value).unwrap_or_else(|e| panic!("{name}={value}: {e}"));
}

/// The extents of a file: (block, length, place, flags).
fn extents(fs: &Fs, ino: Ino) -> Vec<(u64, u64, u64, String)> {
    let text = Control::get(fs, Scope::Inode(ino), "extents").unwrap();
    let number = |w: Option<&str>| w.unwrap().parse().unwrap();
    text.lines()
        .skip(1)
        .map(|l| {
            let mut w = l.split(' ');
            let e = (number(w.next()), number(w.next()), number(w.next()));
            (e.0, e.1, e.2, w.next().unwrap_or_default().to_string())
        })
        .collect()
}

fn full_scale() -> bool {
    std::env::var("UEXT4_TEST_SCALE").is_ok_and(|s| s == "full")
}
