//! Making an image, and running a workload on it with the recorder below.

use super::POISON;
use super::content;
use super::model::ACL;
use super::op::{How, Op, acl_bytes};
use crate::device::fault::{Counts, Rule};
use crate::device::{BlockDevice, FaultDevice, MemDevice, Recorder};
use crate::error::{Error, Result};
use crate::fs::{Cred, Fs, SetAttr, WriteHow};
use crate::options::{DataMode, MountOptions};
use crate::types::Ino;
use crate::writeback::{self, Scope};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// What `mke2fs` is to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSpec {
    /// Bytes.
    pub size: u64,
    /// Arguments, such as `-b 1024 -O ^64bit`.
    pub mkfs: String,
}

impl Default for ImageSpec {
    fn default() -> ImageSpec {
        ImageSpec { size: 16 << 20, mkfs: "-b 1024 -J size=1".into() }
    }
}

/// How a workload is run.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Setup {
    /// The image.
    pub image: ImageSpec,
    /// Mount options beside those that keep timers from interfering.
    pub options: String,
}

/// A finished recording.
pub struct Recorded {
    /// The image before.
    pub image: MemDevice,
    /// The log.
    pub log: PathBuf,
    /// What [`super::Promise`] holds for it.
    pub promise: super::Promise,
    /// Operations that failed, with why.
    pub failed: Vec<String>,
}

fn other(e: impl std::fmt::Display) -> io::Error {
    io::Error::other(e.to_string())
}

/// Runs mke2fs on a file full of [`POISON`], so that what was never written shows.
///
/// # Errors
/// Of the file, or what mke2fs says.
pub fn make_image(spec: &ImageSpec, scratch: &Path) -> io::Result<MemDevice> {
    let path = scratch.join(format!("image-{}", std::process::id()));
    std::fs::write(&path, vec![POISON; spec.size as usize])?;
    let out = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"])
        .args(spec.mkfs.split_whitespace())
        .arg(&path)
        .stdin(Stdio::null())
        .output()?;
    if !out.status.success() {
        return Err(other(format!("mke2fs: {}", String::from_utf8_lossy(&out.stderr).trim())));
    }
    let dev = MemDevice::load(&path);
    std::fs::remove_file(&path)?;
    dev
}

/// Runs `ops` on the image and records them into a log in `scratch`.
///
/// # Errors
/// Of making the image, mounting, the log. Operations that fail are part of the workload.
pub fn record(setup: &Setup, ops: &[Op], scratch: &Path) -> io::Result<Recorded> {
    let image = make_image(&setup.image, scratch)?;
    record_on(image, setup, ops, scratch)
}

fn record_on(image: MemDevice, setup: &Setup, ops: &[Op], scratch: &Path) -> io::Result<Recorded> {
    let log = scratch.join(format!("log-{}", std::process::id()));
    let rec = Arc::new(Recorder::create(Arc::new(image.snapshot()), &log)?);
    let played = play(&rec, setup, ops)?;
    played.ended.map_err(other)?;
    Ok(Recorded { image, log, promise: played.promise, failed: played.failed })
}

/// Runs several workloads at once, each in a thread of its own and below a directory of its own (`/t0`,
/// `/t1`, ...). There are no marks: what is checked is the file system, not what was promised.
///
/// # Errors
/// As [`record`].
pub fn record_threads(setup: &Setup, all: &[Vec<Op>], scratch: &Path) -> io::Result<Recorded> {
    let image = make_image(&setup.image, scratch)?;
    let log = scratch.join(format!("log-{}", std::process::id()));
    let rec = Arc::new(Recorder::create(Arc::new(image.snapshot()), &log)?);
    let options = MountOptions::parse(&[&setup.options]).map_err(|e| other(e.0))?;
    let fs = Fs::mount(rec.clone(), &options).map_err(other)?;
    let mut tops = Vec::new();
    for i in 0..all.len() {
        let name = format!("t{i}");
        let s = fs.mkdir(Cred::ROOT, Ino::ROOT, name.as_bytes(), 0o755, 0).map_err(other)?;
        tops.push(s.ino);
    }
    std::thread::scope(|s| {
        for (ops, top) in all.iter().zip(&tops) {
            let fs = &fs;
            s.spawn(move || {
                let mut run = Run { fs, top: *top, open: BTreeMap::new() };
                for (i, op) in ops.iter().enumerate() {
                    // What fails is part of the workload.
                    let _ = run.step(i, op);
                }
            });
        }
    });
    fs.unmount().map_err(other)?;
    rec.sync()?;
    Ok(Recorded { image, log, promise: super::Promise::NoStale, failed: Vec::new() })
}

/// A run on a device that fails.
pub struct Faulty {
    /// The image before.
    pub image: MemDevice,
    /// What is on the device in the end.
    pub disk: MemDevice,
    /// The log of what was asked of the device, failures included.
    pub log: PathBuf,
    /// What [`super::Promise`] holds for it.
    pub promise: super::Promise,
    /// Every error that a caller saw: of mounting, operations, unmounting.
    pub errors: Vec<String>,
    /// The requests that reached the device, and how many of them failed.
    pub counts: Counts,
}

/// Runs `ops` on `image` over a device that fails by `rules`.
///
/// # Errors
/// Of the log. What the device fails is part of the result.
pub fn record_faulty(
    image: &MemDevice,
    rules: &[Rule],
    setup: &Setup,
    ops: &[Op],
    scratch: &Path,
) -> io::Result<Faulty> {
    let log = scratch.join(format!("faulty-{}", std::process::id()));
    let disk = Arc::new(image.snapshot());
    let faulty = Arc::new(FaultDevice::new(disk.clone()));
    rules.iter().for_each(|r| faulty.add(r.clone()));
    let rec = Arc::new(Recorder::create(faulty.clone(), &log)?);
    let (promise, errors) = match play(&rec, setup, ops) {
        Ok(p) => {
            let ended = p.ended.err().map(|e| format!("unmount: {e}"));
            (p.promise, p.failed.into_iter().chain(ended).collect())
        }
        Err(e) => (super::Promise::NoStale, vec![format!("mount: {e}")]),
    };
    rec.sync()?;
    let (image, disk) = (image.snapshot(), disk.snapshot());
    Ok(Faulty { image, disk, log, promise, errors, counts: faulty.counts() })
}

struct Played {
    promise: super::Promise,
    failed: Vec<String>,
    /// How unmounting went.
    ended: Result<()>,
}

fn play(rec: &Arc<Recorder>, setup: &Setup, ops: &[Op]) -> io::Result<Played> {
    let quiet = "commit=600,dirty_writeback=600,dirty_expire=600";
    let options = MountOptions::parse(&[quiet, &setup.options]).map_err(|e| other(e.0))?;
    let fs = Fs::mount(rec.clone(), &options).map_err(other)?;
    if !fs.vol.conf.auto_da_alloc
        || !fs.vol.conf.delalloc
        || fs.vol.conf.data == DataMode::Writeback
    {
        rec.mark("noauto_da_alloc");
    }
    let promise = match fs.vol.conf.data {
        // The commit block does not wait for the data below it.
        _ if fs.vol.conf.journal_async_commit => super::Promise::Nothing,
        DataMode::Writeback
            if fs.vol.conf.dioread.as_str() != "nolock" || !fs.vol.conf.delalloc =>
        {
            super::Promise::Nothing
        }
        _ => super::Promise::NoStale,
    };
    let mut run = Run { fs: &fs, top: Ino::ROOT, open: BTreeMap::new() };
    let mut failed = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        rec.mark(&format!("begin {i} {op}"));
        let r = run.step(i, op);
        match &r {
            Ok(()) => rec.mark(&format!("end {i} ok")),
            Err(e) => {
                rec.mark(&format!("end {i} {e}"));
                failed.push(format!("{i} {op}: {e}"));
            }
        }
    }
    let ended = fs.unmount();
    rec.mark("unmounted");
    rec.sync()?;
    Ok(Played { promise, failed, ended })
}

struct Run<'a> {
    fs: &'a Fs,
    /// Where paths begin.
    top: Ino,
    open: BTreeMap<String, Ino>,
}

impl Run<'_> {
    /// The inode at a path; its look-up is forgotten at once.
    fn find(&self, path: &str) -> Result<Ino> {
        if let Some(open) = path.strip_prefix('@') {
            return self.open.get(open).copied().ok_or(Error::NotFound);
        }
        let mut at = self.top;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            let s = self.fs.lookup(at, name.as_bytes())?.ok_or(Error::NotFound)?;
            self.fs.forget(s.ino, 1);
            at = s.ino;
        }
        Ok(at)
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(Ino, &'p [u8])> {
        let (dir, name) = path.rsplit_once('/').ok_or(Error::Invalid("path"))?;
        Ok((self.find(dir)?, name.as_bytes()))
    }

    fn step(&mut self, index: usize, op: &Op) -> Result<()> {
        let (fs, root) = (self.fs, Cred::ROOT);
        match op {
            Op::Create { path } => {
                let (d, n) = self.parent(path)?;
                let s = fs.mknod(root, d, n, 0o100644, 0, 0)?;
                fs.forget(s.ino, 1);
            }
            Op::Mkdir { path } => {
                let (d, n) = self.parent(path)?;
                let s = fs.mkdir(root, d, n, 0o755, 0)?;
                fs.forget(s.ino, 1);
            }
            Op::Symlink { path, target } => {
                let (d, n) = self.parent(path)?;
                let s = fs.symlink(root, d, n, target.as_bytes())?;
                fs.forget(s.ino, 1);
            }
            Op::Link { old, new } => {
                let (d, n) = self.parent(new)?;
                let ino = self.find(old)?;
                fs.link(ino, d, n)?;
                fs.forget(ino, 1);
            }
            Op::Unlink { path } => {
                let (d, n) = self.parent(path)?;
                fs.unlink(d, n)?;
            }
            Op::Rmdir { path } => {
                let (d, n) = self.parent(path)?;
                fs.rmdir(d, n)?;
            }
            Op::Rename { old, new } | Op::Exchange { old, new } => {
                let ((d, n), (to, name)) = (self.parent(old)?, self.parent(new)?);
                let flags = if matches!(op, Op::Exchange { .. }) { 2 } else { 0 };
                fs.rename(root, d, n, to, name, flags)?;
            }
            Op::Write { path, off, len, how } => {
                let ino = self.find(path)?;
                let data = content::bytes(index, *off, *len as usize);
                let how = WriteHow {
                    direct: *how == How::Direct,
                    sync: *how == How::Sync,
                    ..WriteHow::default()
                };
                let mut at = 0;
                while at < data.len() {
                    at += fs.write(root, ino, off + at as u64, &data[at..], how)?;
                }
            }
            Op::Truncate { path, size } => {
                let ino = self.find(path)?;
                fs.setattr(root, ino, SetAttr { size: Some(*size), ..SetAttr::default() })?;
            }
            Op::Chmod { path, mode } => {
                let ino = self.find(path)?;
                fs.setattr(root, ino, SetAttr { mode: Some(*mode), ..SetAttr::default() })?;
            }
            Op::Falloc { path, off, len, mode } => {
                fs.fallocate(Cred::ROOT, self.find(path)?, *off, *len, *mode)?;
            }
            Op::Fsync { path } => fs.fsync(self.find(path)?, false)?,
            Op::Fdatasync { path } => fs.fsync(self.find(path)?, true)?,
            Op::Sync => fs.sync()?,
            Op::SetXattr { path, name, len } => {
                let value = content::bytes(index, 0, *len as usize);
                fs.setxattr(root, self.find(path)?, name.as_bytes(), &value, 0)?;
            }
            Op::RemoveXattr { path, name } => fs.removexattr(self.find(path)?, name.as_bytes())?,
            Op::SetAcl { path, users } => {
                fs.setxattr(root, self.find(path)?, ACL.as_bytes(), &acl_bytes(*users), 0)?;
            }
            Op::Open { path } => {
                let ino = self.find(path)?;
                fs.open(ino, true)?;
                self.open.insert(path.clone(), ino);
            }
            Op::Close { path } => {
                let ino = self.open.remove(path).ok_or(Error::NotFound)?;
                fs.release(ino);
            }
            Op::Writeout { path } => {
                let i = fs.vol.inodes.get(&fs.vol, self.find(path)?)?;
                writeback::write_out(&fs.vol, &fs.wb, &i, Scope::ALL)?;
            }
            Op::Commit => fs.vol.journal.commit_all()?,
            Op::Checkpoint => fs.vol.journal.checkpoint_all()?,
            Op::Sleep { ms } => std::thread::sleep(Duration::from_millis(*ms)),
        }
        Ok(())
    }
}

/// Contents of a device as a file.
pub(super) fn save(dev: &MemDevice, path: &Path) -> io::Result<()> {
    debug_assert!(dev.size() > 0);
    dev.save(path)
}
