//! A file tree, taken down to everything that ext4 keeps of it, and compared.

use rustix::fs::{lgetxattr, llistxattr};
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How much of two trees must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// Everything, inode numbers and allocated blocks too: one image read twice.
    Same,
    /// All that `rsync -aHAX` carries over: content, mode, owner, mtime to the nanosecond,
    /// xattrs, ACLs, hard links, device numbers.
    Copy,
    /// As `Copy`, but times to the second: 128-byte inodes have no room for more.
    Seconds,
    /// What `debugfs rdump` can bring out: files, folders and symlinks with mode, owner, mtime
    /// to the second, and content.
    Extracted,
}

/// One name of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub ino: u64,
    pub nlink: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: (i64, i64),
    pub mtime: (i64, i64),
    pub ctime: (i64, i64),
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// A hash of a file's bytes.
    pub content: u64,
    /// Where a symlink points.
    pub target: PathBuf,
    /// The first name, in order, of the same inode.
    pub link_of: PathBuf,
}

/// A tree by the names in it, relative to its root, which is `.`; `lost+found` is left out.
#[derive(Clone)]
pub struct Tree(pub BTreeMap<PathBuf, Entry>);

impl Tree {
    /// Reads the whole tree below `root`.
    #[track_caller]
    pub fn read(root: &Path) -> Tree {
        let mut entries = BTreeMap::new();
        let meta = std::fs::symlink_metadata(root).unwrap_or_else(|e| panic!("{root:?}: {e}"));
        entries.insert(PathBuf::from("."), entry(root, &meta));
        read_dir(root, Path::new(""), &mut entries);
        let mut first: HashMap<u64, PathBuf> = HashMap::new();
        for (path, e) in &mut entries {
            let name = first.entry(e.ino).or_insert_with(|| path.clone());
            e.link_of = name.clone();
        }
        Tree(entries)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Only the names that `keep` accepts.
    pub fn filter(mut self, keep: impl Fn(&Path) -> bool) -> Tree {
        self.0.retain(|p, _| keep(p));
        self
    }

    /// Fails the test, naming the differences, unless `self` agrees with `want`.
    #[track_caller]
    pub fn assert_matches(&self, want: &Tree, view: View, what: &str) {
        let differences = self.differences(want, view);
        assert!(
            differences.is_empty(),
            "{what}: {} differences among {} names (wanted, found):\n{}",
            differences.len(),
            want.len(),
            differences[..differences.len().min(25)].join("\n")
        );
    }

    pub fn differences(&self, want: &Tree, view: View) -> Vec<String> {
        let mut out = Vec::new();
        for (path, w) in &want.0 {
            if view == View::Extracted && !is_plain(w) {
                continue;
            }
            match self.0.get(path) {
                None => out.push(format!("{path:?}: missing")),
                Some(f) => {
                    for (field, w, f) in fields(w, view)
                        .iter()
                        .zip(fields(f, view))
                        .filter_map(|((field, w), (_, f))| (*w != f).then_some((field, w, f)))
                    {
                        out.push(format!("{path:?}: {field}: {w}, {f}"));
                    }
                }
            }
        }
        let extra = self.0.iter().filter(|(p, _)| !want.0.contains_key(*p));
        out.extend(extra.map(|(p, _)| format!("{p:?}: should not be there")));
        out
    }
}

fn kind(e: &Entry) -> u32 {
    e.mode & libc::S_IFMT
}

fn is_plain(e: &Entry) -> bool {
    matches!(kind(e), libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK)
}

/// What of an entry must agree under a view, by name.
fn fields(e: &Entry, view: View) -> Vec<(&'static str, String)> {
    let is_dir = kind(e) == libc::S_IFDIR;
    let is_link = kind(e) == libc::S_IFLNK;
    let mut f = vec![
        ("mode", format!("{:o}", e.mode)),
        ("owner", format!("{}:{}", e.uid, e.gid)),
        ("content", format!("{:x}", e.content)),
        ("target", format!("{:?}", e.target)),
    ];
    if view == View::Same || !is_dir {
        f.push(("size", e.size.to_string()));
    }
    match view {
        View::Same => {
            f.push(("mtime", format!("{:?}", e.mtime)));
            f.push(("atime", format!("{:?}", e.atime)));
            f.push(("ctime", format!("{:?}", e.ctime)));
            f.push(("inode", e.ino.to_string()));
            f.push(("links", e.nlink.to_string()));
            f.push(("blocks", e.blocks.to_string()));
        }
        View::Copy => f.push(("mtime", format!("{:?}", e.mtime))),
        View::Seconds => f.push(("mtime", e.mtime.0.to_string())),
        // debugfs sets no times on symlinks.
        View::Extracted if is_link => {}
        View::Extracted => f.push(("mtime", e.mtime.0.to_string())),
    }
    if view != View::Extracted {
        f.push(("device", e.rdev.to_string()));
        f.push(("xattrs", format!("{:?}", e.xattrs)));
        f.push(("first link", format!("{:?}", e.link_of)));
    }
    f
}

#[track_caller]
fn read_dir(root: &Path, below: &Path, out: &mut BTreeMap<PathBuf, Entry>) {
    let dir = root.join(below);
    for found in std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{dir:?}: {e}")) {
        let found = found.unwrap_or_else(|e| panic!("reading {dir:?}: {e}"));
        let name = below.join(found.file_name());
        if name == Path::new("lost+found") {
            continue;
        }
        let path = found.path();
        let meta = std::fs::symlink_metadata(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        assert_eq!(found.ino(), meta.ino(), "{path:?}: readdir and stat name two inodes");
        assert_eq!(
            found.file_type().unwrap(),
            meta.file_type(),
            "{path:?}: readdir and stat disagree on what it is"
        );
        let is_dir = meta.is_dir();
        let before = out.insert(name.clone(), entry(&path, &meta));
        assert!(before.is_none(), "{path:?}: listed twice");
        if is_dir {
            read_dir(root, &name, out);
        }
    }
}

#[track_caller]
fn entry(path: &Path, meta: &Metadata) -> Entry {
    let fail = |e: std::io::Error| -> ! { panic!("{path:?}: {e}") };
    let content = if meta.is_file() { hash_file(path).unwrap_or_else(|e| fail(e)) } else { 0 };
    let target = if meta.is_symlink() {
        std::fs::read_link(path).unwrap_or_else(|e| fail(e))
    } else {
        PathBuf::new()
    };
    Entry {
        mode: meta.mode(),
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: meta.rdev(),
        ino: meta.ino(),
        nlink: meta.nlink(),
        size: meta.size(),
        blocks: meta.blocks(),
        atime: (meta.atime(), meta.atime_nsec()),
        mtime: (meta.mtime(), meta.mtime_nsec()),
        ctime: (meta.ctime(), meta.ctime_nsec()),
        xattrs: xattrs(path).unwrap_or_else(|e| fail(e)),
        content,
        target,
        link_of: PathBuf::new(),
    }
}

/// A hash of a file's bytes, and of how many there are.
pub fn hash_file(path: &Path) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; 1 << 17];
    let mut total = 0u64;
    loop {
        // Always whole buffers, so that the hash does not depend on how reads were cut.
        let mut n = 0;
        while n < buffer.len() {
            match file.read(&mut buffer[n..])? {
                0 => break,
                more => n += more,
            }
        }
        hasher.write(&buffer[..n]);
        total += n as u64;
        if n < buffer.len() {
            break;
        }
    }
    hasher.write_u64(total);
    Ok(hasher.finish())
}

fn xattrs(path: &Path) -> std::io::Result<BTreeMap<String, Vec<u8>>> {
    let mut names = vec![0u8; 65536];
    let n = llistxattr(path, &mut names)?;
    let mut out = BTreeMap::new();
    for name in names[..n].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let c = CString::new(name).unwrap();
        let mut value = vec![0u8; 65536];
        let n = lgetxattr(path, c.as_c_str(), &mut value)?;
        value.truncate(n);
        out.insert(String::from_utf8_lossy(name).into_owned(), value);
    }
    Ok(out)
}
