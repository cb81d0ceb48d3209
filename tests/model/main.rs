//! Random operations on a file system in memory, against a model of what they do: after
//! each remount everything is read back and compared, and `e2fsck -fn` must have nothing to say.
//!
//! `UEXT4_TEST_SCALE=full` runs many more.

use proptest::prelude::*;
use std::{collections::BTreeMap, process::Command, sync::Arc};
use uext4::{
    device::MemDevice,
    error::Error,
    fs::{Cred, Fs, ReadHow, SetAttr, WriteHow},
    options::MountOptions,
    types::Ino,
};

const NAMES: [&str; 6] = ["a", "b", "c", "a-longer-name", "z", "q.txt"];
const MAX: u64 = 300_000;

#[derive(Debug, Clone)]
enum Op {
    Create(usize, usize),
    Write { f: usize, off: u64, len: usize, byte: u8, direct: bool },
    Truncate(usize, u64),
    Punch(usize, u64, u64),
    Zero(usize, u64, u64),
    Allocate(usize, u64, u64),
    Collapse(usize, u64, u64),
    Insert(usize, u64, u64),
    Unlink(usize, usize),
    Rename(usize, usize, usize, usize),
    Link(usize, usize, usize),
    Attr(usize, usize, usize),
    Fsync(usize),
    Sync,
    Remount,
}

fn op() -> impl Strategy<Value = Op> {
    let d = 0..3usize;
    let n = 0..NAMES.len();
    let f = 0..64usize;
    let off = prop_oneof![0..20_000u64, (0..60u64).prop_map(|b| b * 4096), 0..MAX];
    let len = prop_oneof![1..5000u64, (1..20u64).prop_map(|b| b * 4096)];
    prop_oneof![
        4 => (d.clone(), n.clone()).prop_map(|(d, n)| Op::Create(d, n)),
        8 => (f.clone(), off.clone(), 1..20_000usize, any::<u8>(), any::<bool>())
            .prop_map(|(f, off, len, byte, direct)| Op::Write { f, off, len, byte, direct }),
        3 => (f.clone(), 0..150u64, 1..100usize, any::<u8>())
            .prop_map(|(f, off, len, byte)| Op::Write { f, off, len, byte, direct: false }),
        1 => (f.clone(), 0..150u64).prop_map(|(f, s)| Op::Truncate(f, s)),
        3 => (f.clone(), off.clone()).prop_map(|(f, s)| Op::Truncate(f, s)),
        2 => (f.clone(), off.clone(), len.clone()).prop_map(|(f, o, l)| Op::Punch(f, o, l)),
        2 => (f.clone(), off.clone(), len.clone()).prop_map(|(f, o, l)| Op::Zero(f, o, l)),
        1 => (f.clone(), off.clone(), len.clone()).prop_map(|(f, o, l)| Op::Allocate(f, o, l)),
        1 => (f.clone(), 0..20u64, 1..8u64).prop_map(|(f, o, l)| Op::Collapse(f, o, l)),
        1 => (f.clone(), 0..20u64, 1..8u64).prop_map(|(f, o, l)| Op::Insert(f, o, l)),
        2 => (d.clone(), n.clone()).prop_map(|(d, n)| Op::Unlink(d, n)),
        2 => (d.clone(), n.clone(), d.clone(), n.clone())
            .prop_map(|(a, b, c, e)| Op::Rename(a, b, c, e)),
        1 => (f.clone(), d, n).prop_map(|(f, d, n)| Op::Link(f, d, n)),
        1 => (f.clone(), 0..4usize, prop_oneof![0..40usize, 0..3000usize])
            .prop_map(|(f, k, l)| Op::Attr(f, k, l)),
        1 => f.prop_map(Op::Fsync),
        1 => Just(Op::Sync),
        1 => Just(Op::Remount),
    ]
}

#[derive(Default, Clone)]
struct File {
    data: Vec<u8>,
    attrs: BTreeMap<usize, usize>,
}

/// The file system and what it should hold. Files are numbered by their inode.
struct World {
    dev: Arc<MemDevice>,
    options: String,
    fs: Arc<Fs>,
    dirs: [Ino; 3],
    names: BTreeMap<(usize, usize), Ino>,
    files: BTreeMap<Ino, File>,
    extents: bool,
    block: u64,
}

fn mount(dev: &Arc<MemDevice>, options: &str) -> Arc<Fs> {
    let o = MountOptions::parse(&[options]).unwrap();
    Fs::mount(dev.clone(), &o).unwrap_or_else(|e| panic!("mount: {e}"))
}

impl World {
    fn new(mkfs: &[&str], options: &str) -> World {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        std::fs::File::create(&path).unwrap().set_len(48 << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-qF"]).args(mkfs).arg(&path).status();
        assert!(made.expect("mkfs.ext4 is needed").success());
        let dev = Arc::new(MemDevice::load(&path).unwrap());
        let fs = mount(&dev, options);
        let mut dirs = [Ino::ROOT; 3];
        for (i, name) in ["d1", "d2"].iter().enumerate() {
            dirs[i + 1] = fs.mkdir(Cred::ROOT, Ino::ROOT, name.as_bytes(), 0o755, 0).unwrap().ino;
        }
        World {
            dev,
            options: options.into(),
            block: fs.vol.geo.block_size.bytes64(),
            extents: !mkfs.iter().any(|a| a.contains("^extent")),
            fs,
            dirs,
            names: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    fn pick(&self, f: usize) -> Option<Ino> {
        let n = self.files.len().max(1);
        self.files.keys().nth(f % n).copied()
    }

    // The call comes between the look-up and the insertion.
    #[allow(clippy::map_entry)]
    fn apply(&mut self, op: &Op) {
        let fs = self.fs.clone();
        match *op {
            Op::Create(d, n) => {
                let r = fs.mknod(Cred::ROOT, self.dirs[d], NAMES[n].as_bytes(), 0o100644, 0, 0);
                match (self.names.contains_key(&(d, n)), r) {
                    (true, Err(Error::Exists)) => {}
                    (false, Ok(s)) => {
                        self.names.insert((d, n), s.ino);
                        self.files.insert(s.ino, File::default());
                    }
                    (had, r) => panic!("create: had {had}, got {:?}", r.map(|s| s.ino)),
                }
            }
            Op::Write { f, off, len, byte, direct } => {
                let Some(ino) = self.pick(f) else { return };
                let (off, len) =
                    if direct { (off & !511, (len & !511).max(512)) } else { (off, len) };
                let data: Vec<u8> = (0..len).map(|i| byte.wrapping_add(i as u8)).collect();
                let how = WriteHow { direct, ..WriteHow::default() };
                assert_eq!(fs.write(Cred::ROOT, ino, off, &data, how).unwrap(), len);
                let m = &mut self.files.get_mut(&ino).unwrap().data;
                let end = off as usize + len;
                if m.len() < end {
                    m.resize(end, 0);
                }
                m[off as usize..end].copy_from_slice(&data);
            }
            Op::Truncate(f, size) => {
                let Some(ino) = self.pick(f) else { return };
                let s = SetAttr { size: Some(size), ..SetAttr::default() };
                fs.setattr(Cred::ROOT, ino, s).unwrap();
                self.files.get_mut(&ino).unwrap().data.resize(size as usize, 0);
            }
            Op::Punch(f, off, len) => {
                let Some(ino) = self.pick(f) else { return };
                fs.fallocate(Cred::ROOT, ino, off, len, 3).unwrap();
                self.zero(ino, off, len);
            }
            Op::Zero(f, off, len) | Op::Allocate(f, off, len) => {
                let Some(ino) = self.pick(f) else { return };
                let zero = matches!(op, Op::Zero(..));
                let r = fs.fallocate(Cred::ROOT, ino, off, len, if zero { 0x10 } else { 0 });
                if !self.extents {
                    assert!(matches!(r, Err(Error::NotSupported)));
                    return;
                }
                r.unwrap();
                if zero {
                    self.zero(ino, off, len);
                }
                let m = &mut self.files.get_mut(&ino).unwrap().data;
                if m.len() < (off + len) as usize {
                    m.resize((off + len) as usize, 0);
                }
            }
            Op::Collapse(f, off, len) => {
                let Some(ino) = self.pick(f) else { return };
                let (off, len) = (off * self.block, len * self.block);
                let r = fs.fallocate(Cred::ROOT, ino, off, len, 8);
                let m = &mut self.files.get_mut(&ino).unwrap().data;
                if !self.extents || off + len >= m.len() as u64 {
                    assert!(r.is_err());
                } else {
                    r.unwrap();
                    m.drain(off as usize..(off + len) as usize);
                }
            }
            Op::Insert(f, off, len) => {
                let Some(ino) = self.pick(f) else { return };
                let (off, len) = (off * self.block, len * self.block);
                let r = fs.fallocate(Cred::ROOT, ino, off, len, 0x20);
                let m = &mut self.files.get_mut(&ino).unwrap().data;
                if !self.extents || off >= m.len() as u64 {
                    assert!(r.is_err());
                } else {
                    r.unwrap();
                    m.splice(off as usize..off as usize, std::iter::repeat_n(0, len as usize));
                }
            }
            Op::Unlink(d, n) => {
                let r = fs.unlink(self.dirs[d], NAMES[n].as_bytes());
                match self.names.remove(&(d, n)) {
                    None => assert!(matches!(r, Err(Error::NotFound))),
                    Some(ino) => {
                        r.unwrap();
                        self.gone(ino);
                    }
                }
            }
            Op::Rename(a, b, c, e) => {
                let r = fs.rename(
                    Cred::ROOT,
                    self.dirs[a],
                    NAMES[b].as_bytes(),
                    self.dirs[c],
                    NAMES[e].as_bytes(),
                    0,
                );
                let Some(&ino) = self.names.get(&(a, b)) else {
                    assert!(matches!(r, Err(Error::NotFound)));
                    return;
                };
                r.unwrap();
                let old = self.names.get(&(c, e)).copied();
                // Two names of one file: nothing happens.
                if old == Some(ino) {
                    return;
                }
                self.names.remove(&(a, b));
                self.names.insert((c, e), ino);
                if let Some(old) = old {
                    self.gone(old);
                }
            }
            Op::Link(f, d, n) => {
                let Some(ino) = self.pick(f) else { return };
                let r = fs.link(ino, self.dirs[d], NAMES[n].as_bytes());
                if self.names.contains_key(&(d, n)) {
                    assert!(matches!(r, Err(Error::Exists)));
                } else {
                    r.unwrap();
                    self.names.insert((d, n), ino);
                }
            }
            Op::Attr(f, k, len) => {
                let Some(ino) = self.pick(f) else { return };
                let name = format!("user.{k}");
                match fs.setxattr(Cred::ROOT, ino, name.as_bytes(), &vec![k as u8; len], 0) {
                    Ok(()) => {
                        self.files.get_mut(&ino).unwrap().attrs.insert(k, len);
                    }
                    // One block holds no more.
                    Err(Error::NoSpace) => {}
                    Err(e) => panic!("setxattr: {e}"),
                }
            }
            Op::Fsync(f) => {
                if let Some(ino) = self.pick(f) {
                    fs.fsync(ino, f % 2 == 0).unwrap();
                }
            }
            Op::Sync => fs.sync().unwrap(),
            Op::Remount => self.remount(),
        }
    }

    fn zero(&mut self, ino: Ino, off: u64, len: u64) {
        let m = &mut self.files.get_mut(&ino).unwrap().data;
        let end = ((off + len) as usize).min(m.len());
        if (off as usize) < end {
            m[off as usize..end].fill(0);
        }
    }

    /// A name of `ino` went; without any the file is gone, and the kernel forgets it.
    fn gone(&mut self, ino: Ino) {
        if !self.names.values().any(|i| *i == ino) {
            self.files.remove(&ino);
            self.fs.forget(ino, u64::MAX);
        }
    }

    fn remount(&mut self) {
        self.fs.unmount().unwrap();
        self.fs = mount(&self.dev, &self.options);
        self.compare();
    }

    fn compare(&self) {
        for (&(d, n), &ino) in &self.names {
            let s = self.fs.lookup(self.dirs[d], NAMES[n].as_bytes()).unwrap().unwrap();
            assert_eq!(s.ino, ino);
            let f = &self.files[&ino];
            assert_eq!(s.size, f.data.len() as u64);
            let links = self.names.values().filter(|i| **i == ino).count();
            assert_eq!(s.nlink as usize, links);
            let mut got = vec![0xAA; f.data.len() + 10];
            let len = self.fs.read(ino, 0, &mut got, ReadHow::BUFFERED).unwrap();
            assert_eq!(len, f.data.len());
            if let Some(at) = (0..len).find(|&i| got[i] != f.data[i]) {
                panic!("inode {ino}: byte {at} is {}, should be {}", got[at], f.data[at]);
            }
            for (k, len) in &f.attrs {
                let v = self.fs.getxattr(ino, format!("user.{k}").as_bytes()).unwrap();
                assert_eq!(v, vec![*k as u8; *len]);
            }
        }
        for d in 0..3 {
            let mut seen = 0;
            self.fs
                .readdir(self.dirs[d], 0, &mut |e| {
                    let ours = NAMES.iter().position(|n| n.as_bytes() == e.name);
                    if let Some(n) = ours {
                        assert_eq!(self.names.get(&(d, n)), Some(&e.ino));
                        seen += 1;
                    }
                    true
                })
                .unwrap();
            assert_eq!(seen, self.names.keys().filter(|k| k.0 == d).count());
        }
    }

    fn end(mut self) {
        self.compare();
        self.remount();
        self.fs.unmount().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        self.dev.save(&path).unwrap();
        let out = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    }
}

fn cases(quick: u32) -> ProptestConfig {
    let full = std::env::var("UEXT4_TEST_SCALE").is_ok_and(|s| s == "full");
    ProptestConfig {
        cases: if full { quick * 100 } else { quick },
        max_shrink_iters: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

macro_rules! model {
    ($name:ident, $mkfs:expr, $options:expr) => {
        proptest! {
            #![proptest_config(cases(12))]
            #[test]
            fn $name(ops in prop::collection::vec(op(), 1..120)) {
                let mut w = World::new(&$mkfs, $options);
                for op in &ops {
                    w.apply(op);
                }
                w.end();
            }
        }
    };
}

model!(defaults, ["-b", "4096"], "dioread_nolock");
model!(ordered_1k, ["-b", "1024"], "dioread_lock");
model!(blocks_of_64k, ["-b", "65536"], "dioread_nolock");
model!(no_journal, ["-b", "4096", "-O", "^has_journal"], "dioread_shared");
model!(indirect, ["-b", "1024", "-O", "^extent,^64bit"], "rw");
model!(inline_data, ["-b", "4096", "-O", "inline_data"], "rw");
model!(
    inline_data_in_large_inodes,
    ["-b", "1024", "-O", "inline_data,ea_inode", "-I", "1024"],
    "rw"
);
model!(journalled_inline_data, ["-b", "4096", "-O", "inline_data"], "data=journal");
model!(journalled_data, ["-b", "1024"], "data=journal");
model!(no_delalloc, ["-b", "2048"], "nodelalloc");

/// The number of a file that died with dirty data goes to a new file, whose data counts too.
#[test]
fn a_number_used_again_is_written_out() {
    let mut w = World::new(&["-b", "4096"], "rw");
    for round in 0..8 {
        w.apply(&Op::Create(0, 0));
        w.apply(&Op::Write { f: 0, off: 0, len: 5000, byte: round, direct: false });
        w.apply(&Op::Unlink(0, 0));
        // The dead file is freed by a thread of its own; statfs waits for it.
        w.fs.statfs();
    }
    w.apply(&Op::Create(0, 0));
    w.apply(&Op::Write { f: 0, off: 0, len: 5000, byte: 9, direct: false });
    w.end();
}
