//! One image mounted, walked, written, unmounted: whatever its bytes say.

use super::image::mount;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use uext4::device::MemDevice;
use uext4::error::{Error, Result};
use uext4::fs::{Cred, Fs, ReadHow, SetAttr, WriteHow};
use uext4::types::Ino;

const MAX_DEPTH: usize = 24;
const MAX_ENTRIES: usize = 3000;
const MAX_READ: u64 = 256 << 10;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The mount was refused.
    Refused,
    /// Mounted; something said that it is corrupt or cannot be done.
    Error,
    /// Mounted, and everything was read as it was before.
    Same,
    /// Mounted, no error: what the bytes now say was read.
    Changed,
}

/// What was found, and the first error.
pub struct Walked {
    pub digest: u64,
    pub error: Option<String>,
    files: Vec<(Ino, u64)>,
    dirs: Vec<Ino>,
    names: Vec<(Ino, Vec<u8>, bool)>,
}

impl Walked {
    fn note<T>(&mut self, what: &str, r: Result<T>) -> Option<T> {
        match r {
            Ok(v) => Some(v),
            Err(e) => {
                self.error.get_or_insert_with(|| format!("{what}: {e}"));
                None
            }
        }
    }
}

/// Reads all there is: names, attributes, contents, extended attributes.
pub fn walk(fs: &Fs) -> Walked {
    let mut w =
        Walked { digest: 0, error: None, files: Vec::new(), dirs: Vec::new(), names: Vec::new() };
    let mut hash = DefaultHasher::new();
    let mut seen = BTreeMap::new();
    visit(fs, &mut w, &mut hash, Ino::ROOT, 0, &mut seen);
    let s = fs.statfs();
    (s.bsize, s.blocks).hash(&mut hash);
    w.digest = hash.finish();
    w
}

fn visit(
    fs: &Fs,
    w: &mut Walked,
    hash: &mut DefaultHasher,
    ino: Ino,
    depth: usize,
    seen: &mut BTreeMap<Ino, ()>,
) {
    if depth > MAX_DEPTH || seen.len() > MAX_ENTRIES || seen.insert(ino, ()).is_some() {
        ino.0.hash(hash);
        return;
    }
    let Some(st) = w.note("getattr", fs.getattr(ino)) else { return };
    (st.mode, st.size, st.nlink, st.uid, st.gid, st.rdev).hash(hash);
    let names = w.note("listxattr", fs.listxattr(Cred::ROOT, ino)).unwrap_or_default();
    for name in names.split(|b| *b == 0).filter(|n| !n.is_empty()) {
        (name, w.note("getxattr", fs.getxattr(ino, name))).hash(hash);
    }
    match st.mode & 0o170000 {
        0o100000 => {
            let mut buf = vec![0; st.size.min(MAX_READ) as usize];
            let ends = [0, st.size.saturating_sub(buf.len() as u64) & !4095];
            for at in ends {
                if let Some(n) = w.note(
                    "read",
                    fs.read(ino, at, &mut buf, ReadHow { direct: at != 0, noatime: false }),
                ) {
                    buf[..n].hash(hash);
                }
            }
            let mut at = 0;
            for turn in 0..40 {
                let r = fs.seek(ino, at, turn % 2 == 1);
                match r {
                    Ok(to) => at = to.max(at),
                    Err(Error::NoOffset) => break,
                    Err(e) => {
                        w.note("seek", Err::<(), _>(e));
                        break;
                    }
                }
            }
            let _ = fs.bmap(ino, 3);
            w.files.push((ino, st.size));
        }
        0o040000 => {
            w.dirs.push(ino);
            let mut list: Vec<(Vec<u8>, Ino)> = Vec::new();
            let r = fs.readdir(ino, 0, &mut |e| {
                list.push((e.name.to_vec(), e.ino));
                list.len() < MAX_ENTRIES
            });
            w.note("readdir", r);
            list.sort();
            for (name, child) in list {
                name.hash(hash);
                if name == b"." || name == b".." {
                    let _ = fs.lookup(ino, &name).map(|s| s.map(|s| fs.forget(s.ino, 1)));
                    continue;
                }
                match w.note("lookup", fs.lookup(ino, &name)) {
                    Some(Some(s)) => {
                        let is_dir = s.mode & 0o170000 == 0o040000;
                        w.names.push((ino, name, is_dir));
                        visit(fs, w, hash, s.ino, depth + 1, seen);
                        fs.forget(s.ino, 1);
                    }
                    Some(None) => {
                        w.note("lookup", Err::<(), _>(Error::NotFound));
                        visit(fs, w, hash, child, depth + 1, seen);
                    }
                    None => {}
                }
            }
        }
        0o120000 => w.note("readlink", fs.readlink(ino)).hash(hash),
        _ => {}
    }
}

/// Changes everything that was found, in every way.
pub fn change(fs: &Fs, w: &mut Walked) {
    let root = Cred::ROOT;
    let data = vec![0x5a; 3000];
    let how = WriteHow::default();
    let direct = WriteHow { direct: true, ..how };
    for (ino, size) in w.files.clone().into_iter().take(24) {
        w.note("write", fs.write(root, ino, 10, &data, how).map(drop));
        if size < 1 << 30 {
            w.note("append", fs.write(root, ino, size, &data, how).map(drop));
        }
        w.note("direct write", fs.write(root, ino, 4096, &data[..1024], direct).map(drop));
        let _ = fs.fallocate(Cred::ROOT, ino, size / 3, 5000, 3);
        let _ = fs.fallocate(Cred::ROOT, ino, 0, 4096, 8);
        let half = SetAttr { size: Some(size / 2), mode: Some(0o640), ..SetAttr::default() };
        w.note("truncate", fs.setattr(root, ino, half).map(drop));
        w.note("setxattr", fs.setxattr(root, ino, b"user.new", &data[..100], 0));
        w.note("fsync", fs.fsync(ino, false));
    }
    let dirs = w.dirs.clone();
    for (i, &dir) in dirs.iter().take(10).enumerate() {
        for n in 0..6 {
            let name = format!("a-new-name-in-this-directory-{n}");
            let made = fs.mknod(root, dir, name.as_bytes(), 0o100644, 0, 0);
            if let Some(s) = w.note("create", made) {
                fs.forget(s.ino, 1);
            }
        }
        if let Some(s) = w.note("mkdir", fs.mkdir(root, dir, b"new-dir", 0o755, 0)) {
            fs.forget(s.ino, 1);
        }
        let other = dirs[(i + 1) % dirs.len()];
        let name = b"a-new-name-in-this-directory-0";
        w.note("rename", fs.rename(root, dir, name, other, b"moved", 0));
        w.note("rename", fs.rename(root, dir, b"new-dir", other, b"moved-dir", 0));
    }
    let _ = fs.sync();
    for (dir, name, is_dir) in w.names.clone().into_iter().take(60) {
        let r = if is_dir { fs.rmdir(dir, &name) } else { fs.unlink(dir, &name) };
        match r {
            Err(Error::NotEmpty) => {
                // Directories go where others are: into each other, if the bytes say so.
                let to = dirs.last().copied().unwrap_or(Ino::ROOT);
                let _ = fs.rename(root, dir, &name, to, b"deeper", 0);
            }
            r => drop(w.note("remove", r)),
        }
    }
    w.note("sync", fs.sync());
}

/// Mounts `dev`, walks it, changes it, unmounts it. `whole` is the digest of the image as it was.
pub fn attack(dev: Arc<MemDevice>, whole: Option<u64>) -> (Outcome, String) {
    let fs = match mount(dev) {
        Ok(fs) => fs,
        Err(e) => return (Outcome::Refused, e.to_string()),
    };
    let mut w = walk(&fs);
    let same = whole.is_some_and(|d| d == w.digest) && w.error.is_none();
    change(&fs, &mut w);
    let ended = fs.unmount();
    w.note("unmount", ended);
    match w.error {
        Some(e) => (Outcome::Error, e),
        None if same => (Outcome::Same, String::new()),
        None => (Outcome::Changed, String::new()),
    }
}
