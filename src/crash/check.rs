//! One state of the disk, mounted and held against the model.

use super::model::{Inode, Model, TreeText, What};
use crate::device::{BlockDevice, FaultDevice, IoOp, MemDevice, fault::Rule};
use crate::error::{Error, Result};
use crate::fs::{Cred, Fs, ReadHow};
use crate::inode::mode;
use crate::options::MountOptions;
use crate::types::Ino;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Directories deeper than this are taken for a cycle.
const MAX_DEPTH: usize = 64;
/// What a walk reads of one file at most.
const MAX_READ: u64 = 64 << 20;

/// What is held of the contents beside what was made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// No byte that the file never held.
    NoStale,
    /// `data=writeback` with blocks entered as written: nothing of what is not yet durable.
    Nothing,
}

/// What is wrong with a state: one line for each.
pub type Wrong = Vec<String>;

/// A file found by the walk.
struct Found {
    path: String,
    stat_size: u64,
    data: Vec<u8>,
}

/// What a walk finds.
struct Walked {
    tree: String,
    files: Vec<Found>,
    /// Free blocks and blocks of what was found: constant for an image.
    blocks: u64,
    /// The same of inodes.
    inodes: u64,
}

/// Checks states of one image.
pub struct Checker {
    model: Model,
    promise: Promise,
    options: MountOptions,
    /// Of the image that the log begins with.
    blocks: u64,
    inodes: u64,
    count_space: bool,
}

fn why(what: &str, e: &Error) -> String {
    format!("{what}: {e}")
}

impl Checker {
    /// Walks the image that the log begins with and replays the log's marks on what it finds.
    ///
    /// # Errors
    /// Of mounting or walking that image.
    pub fn new(
        base: &MemDevice,
        entries: &[crate::device::reclog::Entry],
        promise: Promise,
    ) -> Result<Checker> {
        let parsed = MountOptions::parse(&["commit=600,dirty_writeback=600,dirty_expire=600"]);
        let options = parsed.map_err(|e| Error::Unmountable(e.0))?;
        let fs = Fs::mount(Arc::new(base.snapshot()), &options)?;
        let mut nodes = Vec::new();
        let walked = walk(&fs, &mut nodes);
        fs.unmount()?;
        let walked = walked?;
        let model = Model::new(nodes, entries, fs.vol.geo.block_size.bytes());
        let count_space = fs.vol.geo.cluster_ratio() == 1;
        let (blocks, inodes) = (walked.blocks, walked.inodes);
        Ok(Checker { model, promise, options, blocks, inodes, count_space })
    }

    /// The model that states are held against.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Mounts `disk` (replay, orphans), walks it, holds it against what was promised at a crash before entry
    /// `at`, unmounts it. `disk` is then a clean image.
    pub fn check(&self, disk: &Arc<MemDevice>, at: u64) -> Wrong {
        let fs = match Fs::mount(disk.clone(), &self.options) {
            Ok(fs) => fs,
            Err(e) => return vec![why("it does not mount", &e)],
        };
        let mut wrong = Vec::new();
        match walk(&fs, &mut Vec::new()) {
            Err(e) => wrong.push(why("the walk failed", &e)),
            Ok(w) => self.compare(&w, at, &mut wrong),
        }
        if let Err(e) = fs.unmount() {
            wrong.push(why("unmount", &e));
        }
        drop(fs);
        let mut state = [0; 2];
        match disk.read_at(&mut state, 1024 + 0x3a) {
            Ok(()) if state[0] & 2 != 0 => {
                wrong.push("errors were recorded in the superblock".into())
            }
            Ok(()) => {}
            Err(e) => wrong.push(why("superblock", &e)),
        }
        wrong
    }

    /// Recovery interrupted after `writes` writes, then as [`Checker::check`].
    pub fn check_interrupted(&self, disk: &Arc<MemDevice>, at: u64, writes: u64) -> Wrong {
        let faulty = Arc::new(FaultDevice::new(disk.clone()));
        faulty.add(Rule::nth(IoOp::Write, writes).then_dead());
        if let Ok(fs) = Fs::mount(faulty, &self.options) {
            fs.shutdown();
            let _ = fs.unmount();
        }
        let mut wrong = self.check(disk, at);
        for w in &mut wrong {
            w.push_str(&format!(" (a crash of the recovery at its write {writes} came between)"));
        }
        wrong
    }

    /// How what we recovered differs from what the kernel did: names, attributes, contents.
    pub fn differences(&self, ours: &Arc<MemDevice>, kernels: &Arc<MemDevice>) -> Wrong {
        let read = |disk: &Arc<MemDevice>| {
            let fs = Fs::mount(disk.clone(), &self.options)?;
            let walked = walk(&fs, &mut Vec::new());
            fs.unmount()?;
            walked
        };
        let (a, b) = match (read(ours), read(kernels)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(e), _) => return vec![why("what we recovered", &e)],
            (_, Err(e)) => return vec![why("what the kernel recovered", &e)],
        };
        let mut wrong = Wrong::new();
        let (x, y): (HashSet<&str>, HashSet<&str>) =
            (a.tree.lines().collect(), b.tree.lines().collect());
        wrong.extend(x.difference(&y).map(|l| format!("only in ours: {l}")));
        wrong.extend(y.difference(&x).map(|l| format!("only in the kernel's: {l}")));
        for (f, g) in a.files.iter().zip(&b.files) {
            if f.path == g.path && (f.stat_size != g.stat_size || f.data != g.data) {
                wrong.push(format!(
                    "{}: {} bytes, the kernel has {}, or other contents",
                    f.path, f.stat_size, g.stat_size
                ));
            }
        }
        wrong.truncate(12);
        wrong
    }

    fn compare(&self, w: &Walked, at: u64, wrong: &mut Wrong) {
        if self.count_space && (w.blocks, w.inodes) != (self.blocks, self.inodes) {
            wrong.push(format!(
                "free and used do not add up: {} blocks and {} inodes instead of {} and {}",
                w.blocks, w.inodes, self.blocks, self.inodes
            ));
        }
        if self.model.steps.is_empty() {
            return;
        }
        let bounds = self.model.bounds(at);
        // Trees at different times may look alike but be of other files.
        let mut least: Option<Wrong> = None;
        let mut tried: Option<usize> = None;
        for k in self.model.matching(&w.tree, bounds) {
            if tried.is_some_and(|t| self.model.same(t, k)) {
                continue;
            }
            tried = Some(k);
            let of = |f: &Found| {
                self.model.file_at(k, &f.path).and_then(|node| self.contents(node, k, at, f))
            };
            let found: Wrong = w.files.iter().filter_map(of).collect();
            if found.is_empty() {
                return;
            }
            if least.as_ref().is_none_or(|l| found.len() < l.len()) {
                least = Some(found);
            }
        }
        wrong.extend(least.unwrap_or_else(|| vec![self.unlike(&w.tree, bounds)]));
    }

    /// How a tree differs from the nearest that is allowed.
    fn unlike(&self, tree: &str, (low, high): (usize, usize)) -> String {
        let lines: HashSet<&str> = tree.lines().collect();
        let distance = |k: &usize| {
            let want: HashSet<&str> = self.model.tree(*k).lines().collect();
            want.symmetric_difference(&lines).count()
        };
        let k = (low..=high).min_by_key(distance).unwrap_or(low);
        let want: HashSet<&str> = self.model.tree(k).lines().collect();
        let mut diff: Vec<String> = want.difference(&lines).map(|l| format!("- {l}")).collect();
        diff.extend(lines.difference(&want).map(|l| format!("+ {l}")));
        diff.truncate(12);
        let older = (0..low).rev().find(|k| self.model.tree(*k) == tree);
        let older = older.map_or(String::new(), |k| {
            format!(" (it is the tree after {k} operations: something durable is lost)")
        });
        format!(
            "the tree is none of those after {low} to {high} operations{older}; nearest, after {k}: {}",
            diff.join("; ")
        )
    }

    /// What is wrong with the contents of a file.
    fn contents(&self, node: usize, k: usize, at: u64, f: &Found) -> Option<String> {
        let versions = self.model.versions(node, k, at);
        if versions.iter().rev().any(|v| *v.data == f.data) {
            return None;
        }
        let size = f.data.len();
        let (least, most) = versions
            .iter()
            .fold((usize::MAX, 0), |(a, b), v| (a.min(v.data.len()), b.max(v.data.len())));
        if size < least || size > most || f.stat_size != size as u64 {
            return Some(format!(
                "{}: {size} bytes ({} by stat), promised {least} to {most}",
                f.path, f.stat_size
            ));
        }
        if self.promise == Promise::Nothing && versions.len() > 1 {
            return None;
        }
        // Data that could not be written leaves a hole or an unwritten extent.
        let holes = self.model.nodes[node].loose.is_some();
        let fits = |o: usize| {
            versions.iter().any(|v| v.data.get(o) == Some(&f.data[o])) || holes && f.data[o] == 0
        };
        let first = (0..size).find(|o| !fits(*o))?;
        let count = (first..size).filter(|o| !fits(*o)).count();
        let poison = f.data[first..].iter().take(16).all(|b| *b == super::POISON);
        let zeros = f.data[first..].iter().take(16).all(|b| *b == 0);
        let what = match (poison, zeros) {
            (true, _) => "never written blocks show",
            (_, true) => "zeros",
            _ => "other bytes",
        };
        let (from, to) = (versions[0].op, versions[versions.len() - 1].op);
        let ops = if from == to {
            format!("operation {from}")
        } else {
            format!("operations {from} to {to}")
        };
        Some(format!(
            "{}: {count} bytes from {first} on ({size} in all) are none that {ops} put there: {what}",
            f.path
        ))
    }
}

/// Everything below the root, `lost+found` counted but not shown. `nodes` get the inodes as a model's.
fn walk(fs: &Fs, nodes: &mut Vec<Inode>) -> Result<Walked> {
    let s = fs.statfs();
    let mut w = Walked { tree: String::new(), files: Vec::new(), blocks: s.bfree, inodes: s.ffree };
    let mut walk = Walk {
        fs,
        seen: BTreeMap::new(),
        attr_blocks: HashSet::new(),
        all: Vec::new(),
        nodes,
        out: &mut w,
    };
    walk.visit(Ino::ROOT, String::new(), 0)?;
    let Walk { all, .. } = walk;
    w.tree = TreeText::new(all.iter().map(|(p, n)| (&**p, *n as u64, &nodes[*n]))).0;
    Ok(w)
}

struct Walk<'a> {
    fs: &'a Fs,
    seen: BTreeMap<Ino, usize>,
    attr_blocks: HashSet<u64>,
    all: Vec<(String, usize)>,
    nodes: &'a mut Vec<Inode>,
    out: &'a mut Walked,
}

impl Walk<'_> {
    fn visit(&mut self, ino: Ino, path: String, depth: usize) -> Result<usize> {
        let shown = if path.is_empty() { "/".to_string() } else { path.clone() };
        if let Some(&n) = self.seen.get(&ino) {
            if matches!(self.nodes[n].what, What::Dir(_)) {
                return Err(Error::Unmountable(format!("{shown}: a directory with two names")));
            }
            self.all.push((shown, n));
            if let Some(first) = self.all.iter().position(|a| a.1 == n)
                && let Some(f) = self.out.files.iter().position(|f| f.path == self.all[first].0)
            {
                let f = &self.out.files[f];
                let again = Found { path, stat_size: f.stat_size, data: f.data.clone() };
                self.out.files.push(again);
            }
            return Ok(n);
        }
        let named = |e: Error| Error::Unmountable(format!("{shown} (inode {ino}): {e}"));
        let st = self.fs.getattr(ino).map_err(named)?;
        let per_block = u64::from(self.fs.statfs().bsize) / 512;
        self.out.blocks += st.blocks512 / per_block;
        // A block of attributes may be that of several inodes.
        let inode = self.fs.vol.inodes.get(&self.fs.vol, ino).map_err(named)?;
        let shared = inode.attrs().rec.file_acl;
        if shared != 0 && !self.attr_blocks.insert(shared) {
            self.out.blocks -= 1;
        }
        self.out.inodes += 1;
        let n = self.nodes.len();
        self.seen.insert(ino, n);
        self.all.push((shown.clone(), n));
        let kind = match st.mode & mode::FMT {
            mode::REG => What::File,
            mode::DIR => What::Dir(BTreeMap::new()),
            mode::LNK => {
                let target = self.fs.readlink(ino).map_err(named)?;
                What::Link(String::from_utf8_lossy(&target).into_owned())
            }
            _ => What::Other,
        };
        let mut node = Inode::new(kind, st.mode & 0o7777, 0);
        for name in self.fs.listxattr(Cred::ROOT, ino).map_err(named)?.split(|b| *b == 0) {
            if !name.is_empty() {
                let value = self.fs.getxattr(ino, name).map_err(named)?;
                node.xattrs.insert(String::from_utf8_lossy(name).into_owned(), value);
            }
        }
        match node.what {
            What::File => {
                let mut data = vec![0xcc; st.size.min(MAX_READ) as usize];
                let got = self.fs.read(ino, 0, &mut data, ReadHow::BUFFERED).map_err(named)?;
                data.truncate(got);
                if let Some(v) = node.versions.first_mut() {
                    v.data = Arc::new(data.clone());
                }
                self.out.files.push(Found { path: path.clone(), stat_size: st.size, data });
                self.nodes.push(node);
            }
            What::Dir(_) => {
                self.nodes.push(node);
                self.directory(ino, &path, depth, n)?;
            }
            _ => self.nodes.push(node),
        }
        let links = self.fs.getattr(ino).map_err(named)?.nlink;
        if links == 0 {
            return Err(Error::Unmountable(format!("{shown}: has a name but no links")));
        }
        Ok(n)
    }

    fn directory(&mut self, ino: Ino, path: &str, depth: usize, n: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::Unmountable(format!("{path}: deeper than {MAX_DEPTH}")));
        }
        let mut entries: Vec<(Vec<u8>, Ino)> = Vec::new();
        self.fs.readdir(ino, 0, &mut |e| {
            entries.push((e.name.to_vec(), e.ino));
            true
        })?;
        entries.sort();
        for (name, child) in entries {
            if name == b"." || name == b".." {
                continue;
            }
            // What a directory lists must also be found by name.
            match self.fs.lookup(ino, &name)? {
                Some(s) if s.ino == child => self.fs.forget(child, 1),
                other => {
                    let got = other.map(|s| s.ino.0);
                    let name = String::from_utf8_lossy(&name);
                    let what = format!("{path}/{name}: listed as inode {child}, found as {got:?}");
                    return Err(Error::Unmountable(what));
                }
            }
            let name = String::from_utf8_lossy(&name).into_owned();
            if path.is_empty() && name == "lost+found" {
                let st = self.fs.getattr(child)?;
                self.out.blocks += st.blocks512 / (u64::from(self.fs.statfs().bsize) / 512);
                self.out.inodes += 1;
                continue;
            }
            let c = self.visit(child, format!("{path}/{name}"), depth + 1)?;
            if let What::Dir(d) = &mut self.nodes[n].what {
                d.insert(name, c);
            }
        }
        Ok(())
    }
}
