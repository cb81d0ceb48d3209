//! What system calls promised: the marks of a workload, replayed on a tree in memory.
//!
//! The tree after each operation is kept as a text (names, types, links, attributes): after a crash the
//! tree must be one of those, not older than the last that was made durable. Of each file every version
//! of the contents is kept: each byte must be that of one version, not older than the last durable one.

use super::content;
use super::op::{How, Op, acl_bytes};
use crate::device::reclog::{Entry, Kind};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

/// A node of the tree: its number is its index.
pub type Node = usize;

/// What a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A regular file.
    File,
    /// A directory and its entries.
    Dir(BTreeMap<String, Node>),
    /// A symbolic link and its target.
    Link(String),
    /// Anything else.
    Other,
}

/// One version of a file's contents.
#[derive(Clone, Debug)]
pub struct Version {
    /// Operations done when it was made.
    pub op: usize,
    /// The contents.
    pub data: Arc<Vec<u8>>,
}

/// An inode, as the model has it.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Type, and entries or target.
    pub what: What,
    /// Permission bits.
    pub mode: u16,
    /// Attributes with their values.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Contents, oldest first; empty but for files.
    pub versions: Vec<Version>,
    /// Something about the contents failed: any version from this one on may show through.
    pub loose: Option<usize>,
    /// The newest version that was made durable.
    claimed: usize,
    /// Operations done after its last change of names or attributes.
    changed: usize,
    /// The same for what fdatasync vouches for.
    born: usize,
}

impl Inode {
    /// Without history.
    pub fn new(what: What, mode: u16, op: usize) -> Inode {
        let versions = match what {
            What::File => vec![Version { op, data: Arc::default() }],
            _ => Vec::new(),
        };
        let xattrs = BTreeMap::new();
        Inode { what, mode, xattrs, versions, loose: None, claimed: 0, changed: op, born: op }
    }
}

/// From entry `seq` on something is durable.
#[derive(Clone, Debug)]
struct Claim {
    seq: u64,
    /// At least so many operations on the tree.
    tree: usize,
    /// At least this version of each of these files.
    files: Vec<(Node, usize)>,
}

/// Where an operation stands in the log, and what it was.
#[derive(Clone, Debug)]
pub struct Step {
    /// The mark of its begin.
    pub begin: u64,
    /// The mark of its end, if it ended.
    pub end: Option<u64>,
    /// Whether it succeeded.
    pub ok: bool,
    /// The operation.
    pub op: Op,
}

/// See the module.
pub struct Model {
    /// Every inode there ever was.
    pub nodes: Vec<Inode>,
    /// The operations, in order.
    pub steps: Vec<Step>,
    /// The tree as text after so many operations.
    trees: Vec<Arc<str>>,
    /// Path to file after so many operations.
    files: Vec<Arc<BTreeMap<String, Node>>>,
    claims: Vec<Claim>,
    /// From so many operations on (if they happened) the file has at least this version.
    implied: Vec<(usize, Node, usize)>,
    open: BTreeMap<String, Node>,
    /// Truncated to nothing and not closed since; and what such a close began to write out, until a commit.
    emptied: HashSet<Node>,
    closed: Vec<(Node, usize)>,
    auto_da_alloc: bool,
    block: usize,
}

const ROOT: Node = 0;

impl Model {
    /// Replays the marks of `entries` on a tree that begins as `initial` (node 0 is the root).
    /// A truncation zeroes the rest of its last block, of `block` bytes, before the size moves.
    pub fn new(initial: Vec<Inode>, entries: &[Entry], block: usize) -> Model {
        let mut m = Model {
            nodes: initial,
            steps: steps(entries),
            trees: Vec::new(),
            files: Vec::new(),
            claims: Vec::new(),
            implied: Vec::new(),
            open: BTreeMap::new(),
            emptied: HashSet::new(),
            closed: Vec::new(),
            block,
            auto_da_alloc: !entries
                .iter()
                .any(|e| e.kind == Kind::Mark && e.text() == "noauto_da_alloc"),
        };
        m.keep_tree();
        for i in 0..m.steps.len() {
            let s = m.steps[i].clone();
            m.apply(i, &s);
            m.keep_tree();
        }
        m
    }

    fn keep_tree(&mut self) {
        let (text, files) = self.render();
        match self.trees.last() {
            Some(last) if **last == *text && self.files.last().is_some_and(|f| **f == files) => {
                let (t, f) = (last.clone(), self.files.last().cloned());
                self.trees.push(t);
                self.files.extend(f);
            }
            _ => {
                self.trees.push(text.into());
                self.files.push(Arc::new(files));
            }
        }
    }

    /// How many operations had begun before an entry of the log, and how many are certainly durable.
    pub fn bounds(&self, at: u64) -> (usize, usize) {
        let begun = self.steps.iter().take_while(|s| s.begin < at).count();
        let durable = self.claims.iter().filter(|c| c.seq < at).map(|c| c.tree).max();
        (durable.unwrap_or(0), begun)
    }

    /// After how many operations the tree looked like `text`, within bounds.
    pub fn matching<'m>(
        &'m self,
        text: &'m str,
        (low, high): (usize, usize),
    ) -> impl Iterator<Item = usize> + 'm {
        (low..=high.min(self.trees.len() - 1)).filter(move |k| &*self.trees[*k] == text)
    }

    /// Whether the files after so many operations are the same, and promised the same.
    pub fn same(&self, a: usize, b: usize) -> bool {
        let end = |k: usize| self.implied.iter().filter(|c| c.0 <= k).count();
        Arc::ptr_eq(&self.files[a], &self.files[b]) && end(a) == end(b)
    }

    /// The tree after so many operations.
    pub fn tree(&self, k: usize) -> &str {
        &self.trees[k.min(self.trees.len() - 1)]
    }

    /// The file at `path` after so many operations.
    pub fn file_at(&self, k: usize, path: &str) -> Option<Node> {
        self.files[k.min(self.files.len() - 1)].get(path).copied()
    }

    /// The versions that may show through of a file when the tree is that after `k` operations, and the
    /// crash came before entry `at`.
    pub fn versions(&self, node: Node, k: usize, at: u64) -> &[Version] {
        let i = &self.nodes[node];
        let (_, begun) = self.bounds(at);
        let claimed = self.claims.iter().filter(|c| c.seq < at).flat_map(|c| &c.files);
        let claimed = claimed.filter(|f| f.0 == node).map(|f| f.1);
        let implied = self.implied.iter().filter(|c| c.0 <= k && c.1 == node).map(|c| c.2);
        let low = claimed.chain(implied).max().unwrap_or(0);
        let low = low.min(i.loose.unwrap_or(low));
        let high = i.versions.iter().take_while(|v| v.op <= begun).count().max(1);
        &i.versions[low.min(high - 1)..high]
    }

    fn resolve(&self, path: &str) -> Option<Node> {
        if let Some(open) = path.strip_prefix('@') {
            return self.open.get(open).copied();
        }
        let mut at = ROOT;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            let What::Dir(d) = &self.nodes[at].what else { return None };
            at = *d.get(name)?;
        }
        Some(at)
    }

    fn parent<'p>(&self, path: &'p str) -> Option<(Node, &'p str)> {
        let (dir, name) = path.rsplit_once('/')?;
        Some((self.resolve(dir)?, name))
    }

    fn entries(&mut self, dir: Node) -> Option<&mut BTreeMap<String, Node>> {
        match &mut self.nodes[dir].what {
            What::Dir(d) => Some(d),
            _ => None,
        }
    }

    fn add(&mut self, path: &str, node: Node, op: usize) -> Option<()> {
        let (dir, name) = self.parent(path)?;
        self.entries(dir)?.insert(name.to_string(), node);
        self.nodes[dir].changed = op;
        self.nodes[node].changed = op;
        Some(())
    }

    fn take(&mut self, path: &str, op: usize) -> Option<Node> {
        let (dir, name) = self.parent(path)?;
        let node = self.entries(dir)?.remove(name)?;
        self.nodes[dir].changed = op;
        self.nodes[node].changed = op;
        Some(node)
    }

    fn make(&mut self, path: &str, what: What, mode: u16, op: usize) -> Option<()> {
        self.nodes.push(Inode::new(what, mode, op));
        self.add(path, self.nodes.len() - 1, op)
    }

    /// A new version of a file, made from the last by `f`.
    fn version(
        &mut self,
        path: &str,
        op: usize,
        ok: bool,
        f: impl FnOnce(&mut Vec<u8>),
    ) -> Option<()> {
        let node = self.resolve(path)?;
        let i = &mut self.nodes[node];
        let mut data = (*i.versions.last()?.data).clone();
        f(&mut data);
        if !ok {
            // As far as it got.
            let last = i.versions.len() - 1;
            i.loose.get_or_insert(last);
            let old = &i.versions.last()?.data;
            let mut back = (**old).clone();
            std::mem::swap(&mut back, &mut data);
            i.versions.push(Version { op, data: Arc::new(back) });
        }
        i.versions.push(Version { op, data: Arc::new(data) });
        Some(())
    }

    fn claim(&mut self, s: &Step, tree: usize, files: Vec<(Node, usize)>) {
        for &(node, version) in &files {
            let i = &mut self.nodes[node];
            if s.ok {
                i.claimed = version;
            } else {
                // What was not durable before may be lost, and its caller knows.
                i.loose.get_or_insert(i.claimed);
            }
        }
        if let Some(seq) = s.end.filter(|_| s.ok) {
            self.claims.push(Claim { seq, tree, files });
        }
    }

    fn synced(&mut self, s: &Step, path: &str, data_only: bool) -> Option<()> {
        let node = self.resolve(path)?;
        let i = &self.nodes[node];
        let tree = if data_only { i.born } else { i.changed };
        let files = match i.versions.len() {
            0 => Vec::new(),
            n => vec![(node, n - 1)],
        };
        self.claim(s, tree, files);
        Some(())
    }

    fn apply(&mut self, index: usize, s: &Step) -> Option<()> {
        let done = index + 1;
        match &s.op {
            Op::Write { path, off, len, how } => {
                let (from, n) = (*off as usize, *len as usize);
                self.version(path, done, s.ok, |d| {
                    if d.len() < from + n {
                        d.resize(from + n, 0);
                    }
                    d[from..from + n].copy_from_slice(&content::bytes(index, from as u64, n));
                })?;
                if *how == How::Sync {
                    self.synced(s, path, false)?;
                }
            }
            Op::Truncate { path, size } => {
                let (at, block) = (*size as usize, self.block);
                let stop = at.next_multiple_of(block);
                self.version(path, done, s.ok, |d| {
                    let stop = stop.min(d.len());
                    d[at.min(stop)..stop].fill(0);
                })?;
                self.version(path, done, s.ok, |d| d.resize(*size as usize, 0))?;
                if *size == 0 {
                    self.emptied.insert(self.resolve(path)?);
                }
            }
            Op::Falloc { path, off, len, mode } => {
                let (a, b) = (*off as usize, (*off + *len) as usize);
                let keep = mode & 1 != 0;
                self.version(path, done, s.ok, |d| {
                    let grow = !keep && mode & 0x28 == 0 && b > d.len();
                    if mode & 0x12 != 0 {
                        let end = b.min(d.len());
                        d[a.min(end)..end].fill(0);
                    }
                    if grow {
                        d.resize(b, 0);
                    }
                    if mode & 0x08 != 0 {
                        d.drain(a.min(d.len())..b.min(d.len()));
                    }
                    if mode & 0x20 != 0 && a <= d.len() {
                        d.splice(a..a, std::iter::repeat_n(0, b - a));
                    }
                })?;
            }
            Op::Fsync { path } => self.synced(s, path, false)?,
            Op::Fdatasync { path } => self.synced(s, path, true)?,
            Op::Sync => {
                let newest = |(n, i): (Node, &Inode)| Some((n, i.versions.len().checked_sub(1)?));
                let files = self.nodes.iter().enumerate().filter_map(newest).collect();
                self.claim(s, index, files);
            }
            Op::Commit => {
                let files = std::mem::take(&mut self.closed);
                self.claim(s, index, files);
            }
            Op::Open { path } => {
                let node = self.resolve(path)?;
                self.open.insert(path.clone(), node);
            }
            Op::Close { path } => {
                // `auto_da_alloc`: a file truncated to nothing is written out when it is closed.
                let node = self.open.remove(path)?;
                if self.emptied.remove(&node) && self.auto_da_alloc && s.ok {
                    self.closed.push((node, self.nodes[node].versions.len().checked_sub(1)?));
                }
            }
            Op::Writeout { path } if !s.ok => {
                let node = self.resolve(path)?;
                self.claim(s, 0, vec![(node, 0)]);
            }
            Op::Checkpoint | Op::Sleep { .. } | Op::Writeout { .. } => {}
            _ if !s.ok => {}
            op => self.rename_and_such(op, done)?,
        }
        Some(())
    }

    fn rename_and_such(&mut self, op: &Op, done: usize) -> Option<()> {
        match op {
            Op::Create { path } => self.make(path, What::File, 0o644, done)?,
            Op::Mkdir { path } => self.make(path, What::Dir(BTreeMap::new()), 0o755, done)?,
            Op::Symlink { path, target } => {
                self.make(path, What::Link(target.clone()), 0o777, done)?;
            }
            Op::Link { old, new } => {
                let node = self.resolve(old)?;
                self.add(new, node, done)?;
            }
            Op::Unlink { path } | Op::Rmdir { path } => {
                self.take(path, done)?;
            }
            Op::Rename { old, new } => {
                let target = self.resolve(new);
                if target.is_some() && target == self.resolve(old) {
                    return Some(());
                }
                let node = self.take(old, done)?;
                let replaced = target.is_some_and(|t| self.nodes[t].what == What::File);
                if replaced && self.auto_da_alloc && !self.nodes[node].versions.is_empty() {
                    self.implied.push((done, node, self.nodes[node].versions.len() - 1));
                }
                if let Some(t) = target {
                    self.nodes[t].changed = done;
                }
                self.add(new, node, done)?;
            }
            Op::Exchange { old, new } if old == new => {}
            Op::Exchange { old, new } => {
                let (a, b) = (self.take(old, done)?, self.take(new, done)?);
                self.add(old, b, done)?;
                self.add(new, a, done)?;
            }
            Op::SetXattr { path, name, len } => {
                let node = self.resolve(path)?;
                let value = content::bytes(done - 1, 0, *len as usize);
                self.nodes[node].xattrs.insert(name.clone(), value);
                self.nodes[node].changed = done;
            }
            Op::RemoveXattr { path, name } => {
                let node = self.resolve(path)?;
                self.nodes[node].xattrs.remove(name);
                self.nodes[node].changed = done;
            }
            Op::SetAcl { path, users } => {
                let node = self.resolve(path)?;
                let i = &mut self.nodes[node];
                i.mode = (i.mode & !0o777) | 0o644;
                i.changed = done;
                match users {
                    0 => i.xattrs.remove(ACL),
                    n => i.xattrs.insert(ACL.into(), acl_bytes(*n)),
                };
            }
            Op::Chmod { path, mode } => {
                let node = self.resolve(path)?;
                let i = &mut self.nodes[node];
                i.mode = *mode;
                i.changed = done;
            }
            _ => {}
        }
        Some(())
    }

    fn render(&self) -> (String, BTreeMap<String, Node>) {
        let mut all = Vec::new();
        self.list(ROOT, String::new(), &mut all);
        let mut files = BTreeMap::new();
        let tree = TreeText::new(all.iter().map(|(path, n)| {
            let i = &self.nodes[*n];
            if i.what == What::File {
                files.insert(path.clone(), *n);
            }
            (path.as_str(), *n as u64, i)
        }));
        (tree.0, files)
    }

    fn list(&self, at: Node, path: String, out: &mut Vec<(String, Node)>) {
        let shown = if path.is_empty() { "/".to_string() } else { path.clone() };
        out.push((shown, at));
        if let What::Dir(d) = &self.nodes[at].what {
            for (name, n) in d {
                self.list(*n, format!("{path}/{name}"), out);
            }
        }
    }
}

/// The attribute that holds an access list.
pub const ACL: &str = "system.posix_acl_access";

/// A tree as text, one line for each path in the order of the paths: so that two trees are the same exactly
/// if their texts are.
pub struct TreeText(pub String);

impl TreeText {
    /// From paths, numbers that tell inodes apart, and inodes.
    pub fn new<'a>(all: impl Iterator<Item = (&'a str, u64, &'a Inode)>) -> TreeText {
        let all: BTreeMap<&str, (u64, &Inode)> = all.map(|(p, n, i)| (p, (n, i))).collect();
        let mut first: BTreeMap<u64, (&str, u32)> = BTreeMap::new();
        for (path, (n, _)) in &all {
            first.entry(*n).or_insert((path, 0)).1 += 1;
        }
        let mut text = String::new();
        for (path, (n, i)) in &all {
            let (kind, links) = match &i.what {
                What::File => ("f", first[n].1),
                What::Link(_) => ("l", first[n].1),
                What::Other => ("?", first[n].1),
                What::Dir(d) => {
                    let sub = d.iter().filter(|(name, _)| {
                        let below = format!("{}/{name}", path.trim_end_matches('/'));
                        all.get(&*below).is_some_and(|c| matches!(c.1.what, What::Dir(_)))
                    });
                    ("d", 2 + sub.count() as u32)
                }
            };
            let _ = write!(text, "{path} {kind} {:o} links {links}", i.mode);
            if first[n].0 != *path {
                let _ = write!(text, " = {}", first[n].0);
            }
            if let What::Link(target) = &i.what {
                let _ = write!(text, " -> {target}");
            }
            for (name, value) in &i.xattrs {
                let _ = write!(text, " {name}={}:{:08x}", value.len(), crc32c::crc32c(value));
            }
            text.push('\n');
        }
        TreeText(text)
    }
}

/// The operations that the marks tell of: `begin N OP`, `end N ok` or `end N ERROR`.
fn steps(entries: &[Entry]) -> Vec<Step> {
    let mut out: Vec<Step> = Vec::new();
    for e in entries.iter().filter(|e| e.kind == Kind::Mark) {
        let text = e.text();
        let mut w = text.splitn(3, ' ');
        match (w.next(), w.next(), w.next()) {
            (Some("begin"), Some(_), Some(op)) => {
                if let Some(op) = Op::parse(op) {
                    out.push(Step { begin: e.seq, end: None, ok: true, op });
                }
            }
            (Some("end"), Some(n), Some(result)) => {
                if let Some(s) = n.parse::<usize>().ok().and_then(|n| out.get_mut(n)) {
                    s.end = Some(e.seq);
                    s.ok = result == "ok";
                }
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> Vec<Entry> {
        let mark = |(i, l): (usize, &&str)| Entry {
            seq: i as u64,
            kind: Kind::Mark,
            offset: 0,
            len: l.len() as u64,
            tag: "".into(),
            data: l.as_bytes().to_vec(),
        };
        lines.iter().enumerate().map(mark).collect()
    }

    fn root() -> Vec<Inode> {
        vec![Inode::new(What::Dir(BTreeMap::new()), 0o755, 0)]
    }

    #[test]
    fn fsync_makes_names_and_data_durable() {
        let m = Model::new(
            root(),
            &log(&[
                "begin 0 create /a",
                "end 0 ok",
                "begin 1 write /a 0 10",
                "end 1 ok",
                "begin 2 create /b",
                "end 2 ok",
                "begin 3 fsync /a",
                "end 3 ok",
                "begin 4 rename /b /a",
            ]),
            1024,
        );
        assert_eq!(m.bounds(7), (0, 4));
        assert_eq!(m.bounds(9), (1, 5));
        let a = m.file_at(3, "/a").unwrap();
        assert_eq!(m.versions(a, 3, 9).len(), 1);
        assert_eq!(m.versions(a, 3, 9)[0].data.len(), 10);
        assert_eq!(m.versions(a, 3, 7).len(), 2);
        assert!(m.matching(m.tree(5), (1, 5)).any(|k| k == 5));
        assert!(m.tree(5).contains("/a f 644 links 1\n") && !m.tree(5).contains("/b"));
        assert_eq!(m.matching("/ d 755 links 2\n", (0, 5)).next(), Some(0));
        assert_eq!(m.matching("/ d 755 links 2\n", (1, 5)).next(), None);
    }

    #[test]
    fn a_replacing_rename_brings_its_data() {
        let lines = [
            "begin 0 create /a",
            "end 0 ok",
            "begin 1 create /b",
            "end 1 ok",
            "begin 2 write /b 0 5",
            "end 2 ok",
            "begin 3 rename /b /a",
            "end 3 ok",
        ];
        let m = Model::new(root(), &log(&lines), 1024);
        let b = m.file_at(4, "/a").unwrap();
        assert_eq!(m.versions(b, 4, 8).len(), 1);
        assert_eq!(m.versions(b, 3, 8).len(), 2);
    }

    #[test]
    fn what_failed_may_show_in_part() {
        let m = Model::new(
            root(),
            &log(&["begin 0 create /a", "end 0 ok", "begin 1 write /a 0 9", "end 1 x"]),
            1024,
        );
        assert_eq!(m.nodes[1].loose, Some(0));
        assert_eq!(m.versions(1, 1, 4).len(), 3);
    }
}
