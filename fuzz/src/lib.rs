//! What is fuzzed: each target is a function of bytes that may do anything but panic, hang or take memory
//! without bound. `fuzz_targets/` hands them to libFuzzer; `tests/fuzz` of the main crate runs them over
//! the seeds and for a short while on random bytes.

#[path = "../../tests/hostile/image.rs"]
pub mod image;
#[path = "../../tests/hostile/layout.rs"]
pub mod layout;
#[path = "../../tests/hostile/trial.rs"]
pub mod trial;

use layout::{Item, Layout};
use std::sync::{Arc, LazyLock};
use uext4::cache::BufferCache;
use uext4::device::{BlockDevice, MemDevice};
use uext4::dir::{index, leaf};
use uext4::map::{FileMap, Look};
use uext4::ondisk::csum::crc32c;
use uext4::ondisk::{Geometry, bytes};
use uext4::ondisk::{
    GroupDesc, InodeRecord, SUPERBLOCK_SIZE, Seal, Superblock, dirent, inline, orphan_file, xattr,
};
use uext4::types::{Block, Group, Ino, LBlock};
use uext4::xattr::acl_format::Acl;

/// A target's name and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("superblock", superblock),
    ("group_desc", group_desc),
    ("inode", inode),
    ("extent_tree", extent_tree),
    ("dirent", dirent_block),
    ("htree", htree),
    ("xattr", xattr_block),
    ("journal", journal),
    ("image_walk", image_walk),
    ("image_write", image_write),
];

/// An image and where its metadata is.
pub struct Base {
    pub dev: MemDevice,
    pub layout: Layout,
}

/// One for each of [`image::SPECS`].
pub static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let base = |spec| {
        let dev = image::build(spec);
        Base { layout: Layout::of(&dev), dev }
    };
    image::SPECS.iter().map(base).collect()
});

impl Base {
    /// The first item of a kind.
    pub fn item(&self, what: &str) -> Option<&Item> {
        self.layout.items.iter().find(|i| i.what == what)
    }

    /// The bytes of an item.
    pub fn bytes(&self, item: &Item) -> Vec<u8> {
        let block = layout::read(&self.dev, &self.layout.geo, item.block);
        block[item.start..item.start + item.len].to_vec()
    }
}

fn padded(data: &[u8], len: usize) -> Vec<u8> {
    let mut b = data.to_vec();
    b.resize(len, 0);
    b
}

/// The rest after a first byte, which chooses among the images.
fn chosen(data: &[u8]) -> Option<(&'static Base, &[u8])> {
    let (first, rest) = data.split_first()?;
    Some((&BASES[usize::from(*first) % BASES.len()], rest))
}

pub fn superblock(data: &[u8]) {
    let mut raw: [u8; SUPERBLOCK_SIZE] = padded(data, SUPERBLOCK_SIZE).try_into().expect("length");
    let sum = crc32c(!0, &raw[..0x3fc]);
    raw[0x3fc..].copy_from_slice(&sum.to_le_bytes());
    let Ok(sb) = Superblock::parse(&raw) else { return };
    let _ = sb.encode();
    let _ = (sb.error_records(), sb.labels().0.len(), sb.free_blocks_count());
    let Ok(geo) = Geometry::new(&sb, Some(64 << 20)) else { return };
    for g in [0, 1, 2, 3, 5, 7, geo.groups_count - 1].map(Group) {
        if g.0 < geo.groups_count {
            let _ = (geo.desc_location(g), geo.base_meta_blocks(g), geo.has_super(g));
            let _ = (geo.clusters_in_group(g), geo.group_first_block(g));
        }
    }
    for ino in [1, 2, 11, geo.inodes_count, u32::MAX].map(Ino) {
        let _ = geo.ino_location(ino).map(|(_, i)| geo.itable_slot(i));
    }
    let _ = (geo.max_extent_file_size(), geo.max_indirect_file_size(), geo.itable_blocks());
}

pub fn group_desc(data: &[u8]) {
    let Some((base, rest)) = chosen(data) else { return };
    let l = &base.layout;
    let mut block = padded(rest, l.geo.block_size.bytes());
    let seal = Seal::GroupDesc { group: Group(0), offset: 0 };
    let _ = l.sealer.seal(&seal, Block(2), &mut block);
    let size = usize::from(l.geo.desc_size);
    if let Ok(desc) = GroupDesc::parse(&l.geo, Group(0), &block[..size]) {
        let _ = desc.write(&l.geo, &mut block[..size]);
        let _ = desc.verify_block_bitmap(&l.geo, Group(0), rest);
        let _ = desc.verify_inode_bitmap(&l.geo, Group(0), rest);
    }
}

pub fn inode(data: &[u8]) {
    let Some((base, rest)) = chosen(data) else { return };
    let geo = &base.layout.geo;
    let mut raw = padded(rest, usize::from(geo.inode_size));
    let Ok(rec) = InodeRecord::parse(geo, Ino(20), &raw) else { return };
    let _ = (rec.kind(), rec.is_fast_symlink(geo), rec.rdev());
    let body = raw.get(rec.ibody_range(geo)).unwrap_or_default().to_vec();
    let _ = (inline::tail(&body).is_ok(), inline::capacity(&body));
    let mut stored = body.clone();
    let _ = inline::set_tail(&mut stored, Some(&body[..body.len() / 4]));
    let _ = FileMap::from_inode(geo, Ino(20), &rec);
    let _ = rec.encode(geo, &mut raw);
}

/// The first 60 bytes are the root, the rest the blocks that a file's nodes are in, one after another.
pub fn extent_tree(data: &[u8]) {
    let Some((base, rest)) = chosen(data) else { return };
    let geo = &base.layout.geo;
    let (root, rest) = rest.split_at(rest.len().min(60));
    let flags = if base.item("extent block").is_some() { 0x8_0000u32 } else { 0 };
    let mut raw = vec![0; usize::from(geo.inode_size)];
    raw[..2].copy_from_slice(&0x81a4u16.to_le_bytes());
    raw[0x1a] = 1;
    raw[0x20..0x24].copy_from_slice(&flags.to_le_bytes());
    raw[0x28..0x28 + root.len()].copy_from_slice(root);
    if raw.len() > 128 {
        raw[0x80] = 32;
    }
    let Ok(rec) = InodeRecord::parse(geo, Ino(20), &raw) else { return };
    let Ok(map) = FileMap::from_inode(geo, Ino(20), &rec) else { return };
    let dev = base.dev.snapshot();
    let seed = base.layout.sealer.inode_seed(Ino(20), 0);
    let bs = geo.block_size.bytes();
    for (i, piece) in rest.chunks(bs).take(8).enumerate() {
        let mut block = padded(piece, bs);
        let at = NODES + i as u64;
        let _ = base.layout.sealer.seal(&Seal::ExtentBlock { seed }, Block(at), &mut block);
        let _ = dev.write_at(&block, at * bs as u64);
    }
    let (shared, sealer) = (Arc::new(geo.clone()), Arc::new(base.layout.sealer));
    let cache = BufferCache::new(Arc::new(dev), shared, sealer, 1 << 20);
    let look = Look { geo, cache: &cache, guard: None };
    for lblk in [0, 1, 11, 12, 300, 70_000, 1 << 20, u32::MAX - 1].map(LBlock) {
        let _ = map.lookup(&look, lblk, 1000);
        let _ = map.next_data(&look, lblk);
        let _ = map.next_hole(&look, lblk);
        let _ = map.goal(&look, lblk);
    }
    let mut seen = 0;
    let _ = map.for_each(&look, LBlock(0), u64::MAX, &mut |_| {
        seen += 1;
        seen < 5000
    });
}

/// Where the blocks of [`extent_tree`] lie.
pub const NODES: u64 = 3000;

pub fn dirent_block(data: &[u8]) {
    let Some((base, rest)) = chosen(data) else { return };
    let fmt = leaf::Format::new(&base.layout.geo);
    let mut block = padded(rest, fmt.block);
    let area = fmt.of(&block).to_vec();
    let mut names = Vec::new();
    for r in fmt.records(&area) {
        let Ok(r) = r else { break };
        let _ = fmt.named_ino(&r);
        names.push((r.off, r.name.to_vec()));
    }
    for (off, name) in names.iter().take(20) {
        let _ = fmt.find(&area, name);
        let mut copy = area.clone();
        let _ = fmt.set_ino(&mut copy, *off, Ino(13), 1);
        let _ = fmt.remove(&mut copy, *off);
        let _ = fmt.compact(&mut copy);
    }
    let _ = fmt.find(&area, b"no such name");
    if let Ok(Some(off)) = fmt.room(&area, 20) {
        let _ = fmt.put(fmt.of_mut(&mut block), off, b"a name of 20 bytes..", Ino(13), 1);
    }
    let offsets: Vec<usize> = names.iter().map(|n| n.0).collect();
    let (mut to, mut from) = (area.clone(), area.clone());
    let _ = fmt.copy_out(&area, &offsets, &mut to);
    let _ = fmt.cut(&mut from, &offsets);
    let _ = orphan_file::check(&block);
    let _ = dirent::decode_rec_len(bytes::le16(&block, 4).unwrap_or(0), block.len());
}

pub fn htree(data: &[u8]) {
    let Some((base, rest)) = chosen(data) else { return };
    let fmt = leaf::Format::new(&base.layout.geo);
    let mut block = padded(rest, fmt.block);
    let seal = Seal::HtreeNode { seed: 7 };
    let _ = base.layout.sealer.seal(&seal, Block(9), &mut block);
    let _ = base.layout.sealer.verify(&seal, Block(9), &block);
    let tables = [index::root(&fmt, &block, 3).map(|r| r.1), index::node(&fmt, &block)];
    for mut table in tables.into_iter().flatten() {
        for hash in [0, 2, 0x4000_0000, u32::MAX] {
            let at = table.search(&block, hash);
            let _ = (table.hash(&block, at), table.block(&block, at));
            let mut copy = block.clone();
            if !table.is_full() {
                let _ = table.insert_after(&mut copy, at, hash, 5);
            }
        }
        table.truncate(&mut block, 1);
    }
}

pub fn xattr_block(data: &[u8]) {
    for first in [0, 32] {
        if let Ok(entries) = xattr::parse(data, first) {
            let _ = xattr::free(data.len(), first, &entries);
            let _ = xattr::value_start(data.len(), &entries);
            for e in &entries {
                let _ = (e.key(), e.size(), e.matches_inode_hash(5));
                if let xattr::Value::Here(v) = e.value {
                    let _ = xattr::Entry::block_hash(e.name, v);
                    let _ = Acl::from_disk(v).map(|a| (a.equivalent_mode(), a.to_xattr()));
                }
            }
            let mut copy = data.to_vec();
            let _ = xattr::write(&mut copy, first, &entries);
        }
    }
    let _ = Acl::from_xattr(data).map(|a| a.map(|a| a.check()));
    let _ = Acl::from_disk(data).map(|a| a.to_disk());
}

/// Only items whose kind begins with `only` are changed.
fn patched(data: &[u8], only: &str) -> Option<MemDevice> {
    let (base, mut rest) = chosen(data)?;
    let items: Vec<&Item> = base.layout.items.iter().filter(|i| i.what.starts_with(only)).collect();
    if items.is_empty() {
        return None;
    }
    let dev = base.dev.snapshot();
    while let [a, b, c, d, len, more @ ..] = rest {
        let item = items[usize::from(u16::from_le_bytes([*a, *b])) % items.len()];
        let at = usize::from(u16::from_le_bytes([*c, *d])) % item.len;
        let n = usize::from(len % 16 + 1).min(more.len()).min(item.len - at);
        let mut block = layout::read(&dev, &base.layout.geo, item.block);
        block[item.start + at..item.start + at + n].copy_from_slice(&more[..n]);
        layout::write(&dev, &base.layout.geo, item.block, &block);
        base.layout.repair(&dev, item);
        rest = &more[n..];
    }
    Some(dev)
}

/// Recovery of a log that lies.
pub fn journal(data: &[u8]) {
    if let Some(dev) = patched(data, "journal")
        && let Ok(fs) = image::mount(Arc::new(dev))
    {
        let _ = fs.unmount();
    }
}

pub fn image_walk(data: &[u8]) {
    if let Some(dev) = patched(data, "")
        && let Ok(fs) = image::mount(Arc::new(dev))
    {
        trial::walk(&fs);
        let _ = fs.unmount();
    }
}

pub fn image_write(data: &[u8]) {
    if let Some(dev) = patched(data, "") {
        trial::attack(Arc::new(dev), None);
    }
}

/// Honest inputs for a target, from the images.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let kinds: &[&str] = match target {
        "superblock" => &["superblock"],
        "group_desc" => &["group descriptor"],
        "inode" => &["inode", "inode of a directory", "inode of the journal"],
        "dirent" => &["directory block", "orphan block"],
        "htree" => &["htree root", "htree node"],
        "xattr" => &["xattr block"],
        _ => &[],
    };
    let chooses = !matches!(target, "superblock" | "xattr");
    let mut out = Vec::new();
    for (i, base) in BASES.iter().enumerate() {
        for item in kinds.iter().filter_map(|k| base.item(k)) {
            let mut bytes = if chooses { vec![i as u8] } else { Vec::new() };
            bytes.extend(base.bytes(item));
            out.push(bytes);
        }
        match target {
            "extent_tree" => {
                let (node, what) = match base.item("extent block") {
                    Some(_) => (vec![0x0a, 0xf3, 1, 0, 4, 0, 1, 0, 0, 0, 0, 0], "extent block"),
                    None => (vec![0; 48], "indirect block"),
                };
                let mut root = node;
                root.extend([0; 4]);
                root.extend((NODES as u32).to_le_bytes());
                root.resize(60, 0);
                let mut bytes = vec![i as u8];
                bytes.extend(root);
                bytes.extend(base.item(what).map(|it| base.bytes(it)).unwrap_or_default());
                out.push(bytes);
            }
            "journal" | "image_walk" | "image_write" => {
                out.push(vec![i as u8]);
                out.push(vec![i as u8, 3, 0, 4, 0, 3, 1, 0, 0, 0, 9, 0, 20, 0, 1, 0xff, 0xff]);
            }
            _ => {}
        }
    }
    out.sort();
    out.dedup();
    out
}
