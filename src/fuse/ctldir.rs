//! The control directory, `.uext4` in the root: `cat` shows a tunable, `echo`
//! sets it. Not listed by readdir of the root. Inode numbers from 2^32 up, where ext4 has none.

use crate::{
    error::{Error, Result},
    fs::Fs,
    options::{Control, ControlName, Scope},
    types::Ino,
};
use fuser::{FileAttr, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

const BASE: u64 = 1 << 32;

/// The directory and the snapshots of its open files.
pub struct CtlDir {
    name: Vec<u8>,
    control: Arc<dyn Control>,
    names: Vec<ControlName>,
    owner: (u32, u32),
    open: Mutex<HashMap<u64, Arc<str>>>,
    next: AtomicU64,
    made: SystemTime,
}

impl CtlDir {
    /// Serves `control` under `name`, owned by `owner` (uid, gid), who mounted.
    pub fn new(name: &str, control: Arc<dyn Control>, owner: (u32, u32)) -> CtlDir {
        let names = control.names();
        CtlDir {
            name: name.as_bytes().to_vec(),
            control,
            names,
            owner,
            open: Mutex::default(),
            next: AtomicU64::new(1),
            made: SystemTime::now(),
        }
    }

    /// Whether a node id is one of ours.
    pub fn owns(&self, node: INodeNo) -> bool {
        node.0 >= BASE
    }

    /// Our answer to a lookup; `None` if the name is not ours. A real file of the
    /// directory's name in the image wins.
    pub fn lookup(&self, fs: &Fs, parent: INodeNo, name: &OsStr) -> Option<Result<FileAttr>> {
        if parent == INodeNo::ROOT {
            if name.as_bytes() != self.name {
                return None;
            }
            return match fs.lookup(Ino::ROOT, name.as_bytes()) {
                Ok(Some(s)) => {
                    fs.forget(s.ino, 1);
                    log::warn!(
                        "the image has a \"{}\" of its own: no control directory (see ctldir=)",
                        String::from_utf8_lossy(&self.name)
                    );
                    None
                }
                _ => Some(self.getattr(INodeNo(BASE))),
            };
        }
        if !self.owns(parent) {
            return None;
        }
        let found = self.names.iter().position(|n| n.name.as_bytes() == name.as_bytes());
        Some(found.ok_or(Error::NotFound).and_then(|i| self.getattr(INodeNo(BASE + 1 + i as u64))))
    }

    fn entry(&self, node: INodeNo) -> Result<&ControlName> {
        let i = node.0.checked_sub(BASE + 1).ok_or(Error::IsDir)?;
        usize::try_from(i).ok().and_then(|i| self.names.get(i)).ok_or(Error::Stale)
    }

    /// The attributes of the directory or a file in it.
    pub fn getattr(&self, node: INodeNo) -> Result<FileAttr> {
        let dir = node.0 == BASE;
        let perm = if dir {
            0o755
        } else if self.entry(node)?.writable {
            0o644
        } else {
            0o444
        };
        Ok(FileAttr {
            ino: node,
            size: 0,
            blocks: 0,
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            crtime: self.made,
            kind: if dir { FileType::Directory } else { FileType::RegularFile },
            perm,
            nlink: if dir { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Opens a file: its contents are those of now until it is closed.
    pub fn open(&self, node: INodeNo) -> Result<u64> {
        let e = self.entry(node)?;
        let text = self.control.get(Scope::Mount, e.name).unwrap_or_default();
        let fh = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(fh, text.into());
        Ok(fh)
    }

    /// Closes it.
    pub fn release(&self, fh: u64) {
        self.open.lock().remove(&fh);
    }

    /// Reads from the snapshot.
    pub fn read(&self, fh: u64, off: u64, size: u32) -> Result<Vec<u8>> {
        let text = self.open.lock().get(&fh).cloned().ok_or(Error::Stale)?;
        let b = text.as_bytes();
        let from = usize::try_from(off).unwrap_or(usize::MAX).min(b.len());
        let to = from.saturating_add(size as usize).min(b.len());
        Ok(b[from..to].to_vec())
    }

    /// Sets the tunable.
    pub fn write(&self, node: INodeNo, _fh: u64, data: &[u8]) -> Result<()> {
        let e = self.entry(node)?;
        let text = std::str::from_utf8(data).map_err(|_| Error::Invalid("not text"))?;
        self.control.set(Scope::Mount, e.name, text.trim()).map_err(|e| {
            log::warn!("control directory: {e}");
            Error::Invalid("value")
        })
    }

    /// The directory's entries from `offset` on: node id, position behind it, kind, name.
    fn entries(&self, offset: u64) -> impl Iterator<Item = (INodeNo, u64, FileType, &str)> {
        let dots = [(".", FileType::Directory), ("..", FileType::Directory)];
        let files = self.names.iter().map(|n| (n.name, FileType::RegularFile));
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        dots.into_iter().chain(files).enumerate().skip(skip).map(|(i, (name, kind))| {
            let ino = INodeNo(if i < 2 { BASE } else { BASE + i as u64 - 1 });
            (ino, i as u64 + 1, kind, name)
        })
    }

    /// Lists the directory.
    pub fn readdir(&self, offset: u64, reply: &mut ReplyDirectory) -> Result<()> {
        for (ino, next, kind, name) in self.entries(offset) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        Ok(())
    }

    /// Lists the directory with attributes.
    pub fn readdirplus(&self, offset: u64, reply: &mut ReplyDirectoryPlus) -> Result<()> {
        for (ino, next, _, name) in self.entries(offset) {
            let a = self.getattr(ino)?;
            if reply.add(ino, next, name, &Duration::ZERO, &a, Generation(0)) {
                break;
            }
        }
        Ok(())
    }
}
