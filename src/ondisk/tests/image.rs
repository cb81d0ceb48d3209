//! An image made by mke2fs, and a walk over all of its metadata.

use crate::ondisk::extent::{EXT_ENTRY, Extent, ExtentHeader, ExtentIdx};
use crate::ondisk::seal::htree_count;
use crate::ondisk::*;
use crate::types::{Block, Group, Ino};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Image {
    pub path: PathBuf,
    pub file: File,
    pub sb: Superblock,
    pub geo: Geometry,
    pub sealer: Sealer,
    _dir: tempfile::TempDir,
}

/// Runs a tool of e2fsprogs and returns what it printed; the exit code must be one of `ok`.
pub fn run(tool: &str, args: &[&str], ok: &[i32]) -> String {
    let out = Command::new(tool).args(args).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output();
    let out = out.unwrap_or_else(|e| panic!("{tool}: {e}"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(ok.contains(&out.status.code().unwrap()), "{tool} {args:?}: {text}{err}");
    text
}

/// A tree with many names, a large directory, xattrs, links, a hole and devices.
fn fill(dir: &Path) {
    use std::os::unix::fs::symlink;
    let big = dir.join("many");
    std::fs::create_dir(&big).unwrap();
    for i in 0..700 {
        std::fs::write(big.join(format!("a file with a fairly long name {i}")), b"x").unwrap();
    }
    std::fs::write(dir.join("empty"), b"").unwrap();
    std::fs::write(dir.join("small"), b"inline?").unwrap();
    std::fs::write(dir.join("large"), vec![7; 300_000]).unwrap();
    std::fs::hard_link(dir.join("small"), dir.join("small2")).unwrap();
    symlink("short", dir.join("fast")).unwrap();
    symlink("x".repeat(200), dir.join("slow")).unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    for i in 0..40u64 {
        sparse.write_all_at(&[1; 5000], i * 70_000).unwrap();
    }
    let set = |name: &str, value: &str, file: &str| {
        let path = dir.join(file);
        run("setfattr", &["-n", name, "-v", value, path.to_str().unwrap()], &[0]);
    };
    set("user.short", "value", "small");
    set("user.long", &"v".repeat(300), "small");
    set("user.other", &"w".repeat(77), "small");
    set("user.ümlaut", "x", "empty");
}

impl Image {
    /// Makes an image of `mib` MiB with these arguments to mke2fs, full of files.
    pub fn new(mib: u64, args: &str) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        fill(&tree);
        File::create(&path).unwrap().set_len(mib << 20).unwrap();
        let p = path.to_str().unwrap();
        let mut all = vec!["-q", "-F", "-d", tree.to_str().unwrap()];
        all.extend(args.split_whitespace());
        all.push(p);
        run("mke2fs", &all, &[0]);
        // -D: index the large directory.
        run("e2fsck", &["-fyD", p], &[0, 1]);
        std::fs::remove_dir_all(&tree).unwrap();
        Image::open(path, dir)
    }

    fn open(path: PathBuf, dir: tempfile::TempDir) -> Image {
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut bytes = [0; 1024];
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        let sb = Superblock::parse(&bytes).unwrap();
        let geo = Geometry::new(&sb, Some(file.metadata().unwrap().len())).unwrap();
        let sealer = Sealer::new(&geo);
        Image { path, file, sb, geo, sealer, _dir: dir }
    }

    pub fn read(&self, b: Block) -> Vec<u8> {
        let mut v = vec![0; self.geo.block_size.bytes()];
        self.file.read_exact_at(&mut v, self.geo.block_size.offset(b)).unwrap();
        v
    }

    pub fn groups(&self) -> impl Iterator<Item = Group> {
        (0..self.geo.groups_count).map(Group)
    }

    pub fn desc(&self, g: Group) -> GroupDesc {
        let (b, off) = self.geo.desc_location(g);
        GroupDesc::parse(&self.geo, g, &self.read(b)[off..]).unwrap()
    }

    /// Checks a seal, then that breaking and making it gives the same bytes back.
    pub fn check_seal(&self, seal: Seal, b: Block) {
        let data = self.read(b);
        self.sealer.verify(&seal, b, &data).unwrap_or_else(|e| panic!("{seal:?}: {e}"));
        let mut again = data.clone();
        self.sealer.seal(&seal, b, &mut again).unwrap();
        assert!(again == data, "{seal:?} of block {b} is not stable");
    }

    /// Block and offset of an inode's slot.
    pub fn slot(&self, ino: Ino) -> (Block, usize) {
        let (g, index) = self.geo.ino_location(ino).unwrap();
        let (nr, off) = self.geo.itable_slot(index);
        (self.desc(g).inode_table.plus(u64::from(nr)), off)
    }

    pub fn inode(&self, ino: Ino) -> InodeRecord {
        let (b, off) = self.slot(ino);
        InodeRecord::parse(&self.geo, ino, &self.read(b)[off..]).unwrap()
    }

    /// The inodes in use.
    pub fn inodes(&self) -> Vec<Ino> {
        let mut all = Vec::new();
        for g in self.groups() {
            let d = self.desc(g);
            if d.flags.contains(GroupFlags::INODE_UNINIT) {
                continue;
            }
            let bitmap = self.read(d.inode_bitmap);
            for i in 0..self.geo.inodes_per_group {
                if bitmap[(i / 8) as usize] >> (i % 8) & 1 == 1 {
                    all.push(self.geo.ino_at(g, i).unwrap());
                }
            }
        }
        all
    }

    /// The device blocks of an extent-mapped inode in file order (0 for holes are
    /// left out), every node checked.
    pub fn extent_blocks(&self, ino: Ino, rec: &InodeRecord) -> Vec<(u32, Block)> {
        let mut out = Vec::new();
        self.walk(&rec.i_block, self.sealer.inode_seed(ino, rec.generation), &mut out);
        out
    }

    fn walk(&self, node: &[u8], seed: u32, out: &mut Vec<(u32, Block)>) {
        let h = ExtentHeader::read(node).unwrap();
        let mut again = node.to_vec();
        assert!(h.write(&mut again) && again == node);
        for entry in node.as_chunks::<EXT_ENTRY>().0.iter().skip(1).take(h.entries.into()) {
            if h.depth == 0 {
                let e = Extent::decode(*entry);
                assert_eq!(e.encode(), *entry);
                assert!(self.geo.is_valid_block(e.block, u64::from(e.len)));
                out.extend((0..e.len).map(|i| (e.lblock.0 + i, e.block.plus(u64::from(i)))));
            } else {
                let idx = ExtentIdx::decode(*entry);
                self.check_seal(Seal::ExtentBlock { seed }, idx.child);
                self.walk(&self.read(idx.child), seed, out);
            }
        }
    }

    /// The used entries of a directory block: inode and name.
    fn names(&self, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut out = Vec::new();
        let mut at = 0;
        while at < data.len() {
            let ino = bytes::le32(data, at).unwrap();
            let len = dirent::decode_rec_len(bytes::le16(data, at + 4).unwrap(), data.len());
            let n = usize::from(data[at + 6]);
            assert!(len >= 12 && len.is_multiple_of(4) && at + len <= data.len() && n + 8 <= len);
            if ino != 0 {
                out.push((ino, data[at + 8..at + 8 + n].to_vec()));
            }
            at += len;
        }
        out
    }

    /// Hash and block of each entry of an index block.
    fn index(data: &[u8]) -> Vec<(u32, u32)> {
        let (limit, count, at) = htree_count(data).unwrap();
        assert!(count > 0 && count <= limit);
        let word = |at| bytes::le32(data, at).unwrap();
        let entry = |i: usize| (if i == 0 { 0 } else { word(at + 8 * i) }, word(at + 8 * i + 4));
        (0..usize::from(count)).map(entry).collect()
    }

    /// Checks every block of an extent-mapped directory; returns its names.
    pub fn check_dir(&self, ino: Ino, rec: &InodeRecord) -> Vec<Vec<u8>> {
        let seed = self.sealer.inode_seed(ino, rec.generation);
        let blocks = self.extent_blocks(ino, rec);
        let mut index = Vec::new();
        if rec.flags.contains(InodeFlags::INDEX) {
            let root = self.read(blocks[0].1);
            self.check_seal(Seal::HtreeNode { seed }, blocks[0].1);
            index.push(0);
            let mut entries = Image::index(&root);
            for _ in 0..root[30] {
                index.extend(entries.iter().map(|e| e.1));
                let below = entries.iter().flat_map(|e| {
                    let b = blocks[e.1 as usize].1;
                    self.check_seal(Seal::HtreeNode { seed }, b);
                    Image::index(&self.read(b))
                });
                entries = below.collect();
            }
            let (geo, version) = (&self.geo, root[28]);
            let hash = hash::NameHash::new(version, geo.hash_unsigned, geo.hash_seed).unwrap();
            self.check_hashes(&blocks, &entries, hash);
        }
        let mut names = Vec::new();
        for (l, b) in blocks {
            if !index.contains(&l) {
                self.check_seal(Seal::DirLeaf { seed }, b);
                names.extend(self.names(&self.read(b)).into_iter().map(|n| n.1));
            }
        }
        names
    }

    /// Every name of a leaf has a hash that belongs there.
    fn check_hashes(&self, blocks: &[(u32, Block)], leaves: &[(u32, u32)], h: hash::NameHash) {
        assert!(leaves.len() > 1);
        for (i, &(first, leaf)) in leaves.iter().enumerate() {
            let next = leaves.get(i + 1).map_or(u32::MAX, |e| e.0);
            for (_, name) in self.names(&self.read(blocks[leaf as usize].1)) {
                let (major, _) = h.hash(&name);
                let name = String::from_utf8_lossy(&name);
                let fits = major >= first & !1 && major <= next;
                assert!(fits, "{name}: {major:#x} in {first:#x}..{next:#x}");
            }
        }
    }
}
