//! Where the metadata of an image is, and how each piece is checksummed: found by reading the bytes,
//! without the library's maps, so that a mutation can be given a checksum that is right.

use uext4::device::{BlockDevice, MemDevice};
use uext4::ondisk::bytes::{be32, le16, le32};
use uext4::ondisk::csum::crc32c;
use uext4::ondisk::group_desc::{block_bitmap_csum, inode_bitmap_csum};
use uext4::ondisk::{Geometry, Seal, Sealer, Superblock};
use uext4::types::{Block, Group, Ino};

/// How a piece gets its checksum.
#[derive(Clone, Copy, Debug)]
pub enum Fix {
    Seal(Seal),
    BlockBitmap(Group),
    InodeBitmap(Group),
    /// At this offset of a journal block, over the whole of it but itself.
    Journal {
        at: usize,
        len: usize,
        seed: u32,
    },
}

/// A piece of metadata.
#[derive(Clone, Debug)]
pub struct Item {
    pub what: &'static str,
    pub block: u64,
    /// The bytes of the block that are it.
    pub start: usize,
    pub len: usize,
    pub fix: Fix,
}

/// The metadata of one image.
pub struct Layout {
    pub geo: Geometry,
    pub sealer: Sealer,
    pub items: Vec<Item>,
}

const EXTENTS: u32 = 0x8_0000;
const INDEX: u32 = 0x1000;
const INLINE: u32 = 0x1000_0000;
const JOURNAL_MAGIC: u32 = 0xc03b_3998;

/// Sets bytes of a block.
pub fn set(b: &mut [u8], at: usize, bytes: &[u8]) {
    b[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Reads a block; zeros beyond the end.
pub fn read(dev: &MemDevice, geo: &Geometry, block: u64) -> Vec<u8> {
    let bs = geo.block_size.bytes();
    let mut data = vec![0; bs];
    let _ = dev.read_at(&mut data, block.saturating_mul(bs as u64));
    data
}

pub fn write(dev: &MemDevice, geo: &Geometry, block: u64, data: &[u8]) {
    dev.write_at(data, block * geo.block_size.bytes64()).unwrap();
}

/// An inode as the bytes have it.
pub struct Slot {
    pub ino: Ino,
    pub block: u64,
    pub offset: usize,
    pub raw: Vec<u8>,
}

impl Layout {
    pub fn of(dev: &MemDevice) -> Layout {
        let mut bytes = [0; 1024];
        dev.read_at(&mut bytes, 1024).unwrap();
        let sb = Superblock::parse(&bytes).unwrap();
        let geo = Geometry::new(&sb, Some(dev.size())).unwrap();
        let mut l = Layout { sealer: Sealer::new(&geo), geo, items: Vec::new() };
        let bs = l.geo.block_size.bytes();
        let (block, start) = if bs == 1024 { (1, 0) } else { (0, 1024) };
        l.add("superblock", block, start, 1024, Fix::Seal(Seal::Superblock));
        l.groups(dev);
        let orphan_file = sb.orphan_file_inum();
        let journal = sb.journal_inum();
        for slot in l.slots(dev) {
            l.inode(dev, &slot, Some(slot.ino) == orphan_file, Some(slot.ino) == journal);
        }
        l
    }

    fn add(&mut self, what: &'static str, block: u64, start: usize, len: usize, fix: Fix) {
        self.items.push(Item { what, block, start, len, fix });
    }

    fn desc(&self, dev: &MemDevice, g: u32) -> (u64, usize, Vec<u8>) {
        let (block, offset) = self.geo.desc_location(Group(g));
        (block.0, offset, read(dev, &self.geo, block.0))
    }

    /// Block bitmap, inode bitmap, inode table.
    fn places(&self, dev: &MemDevice, g: u32) -> [u64; 3] {
        let (_, o, d) = self.desc(dev, g);
        let wide = self.geo.desc_size >= 64;
        [(0, 0x20), (4, 0x24), (8, 0x28)].map(|(lo, hi)| {
            let hi = if wide { le32(&d, o + hi).unwrap() } else { 0 };
            u64::from(hi) << 32 | u64::from(le32(&d, o + lo).unwrap())
        })
    }

    fn groups(&mut self, dev: &MemDevice) {
        let bs = self.geo.block_size.bytes();
        for g in 0..self.geo.groups_count {
            let (block, offset, _) = self.desc(dev, g);
            let seal = Seal::GroupDesc { group: Group(g), offset: offset as u32 };
            let len = usize::from(self.geo.desc_size);
            self.add("group descriptor", block, offset, len, Fix::Seal(seal));
            let [blocks, inodes, _] = self.places(dev, g);
            self.add("block bitmap", blocks, 0, bs, Fix::BlockBitmap(Group(g)));
            self.add("inode bitmap", inodes, 0, bs, Fix::InodeBitmap(Group(g)));
        }
    }

    /// Every inode in use.
    pub fn slots(&self, dev: &MemDevice) -> Vec<Slot> {
        let size = usize::from(self.geo.inode_size);
        let mut out = Vec::new();
        for ino in (1..=self.geo.inodes_count).map(Ino) {
            let Some((g, index)) = self.geo.ino_location(ino) else { continue };
            let (nr, offset) = self.geo.itable_slot(index);
            let block = self.places(dev, g.0)[2] + u64::from(nr);
            let data = read(dev, &self.geo, block);
            let raw = data[offset..offset + size].to_vec();
            // Tables that mke2fs left alone hold the byte that the image was full of.
            let (mode, links) = (le16(&raw, 0).unwrap(), le16(&raw, 0x1a).unwrap());
            if mode != 0 && mode != 0xa5a5 && (links != 0 || le32(&raw, 0x14) != Some(0)) {
                out.push(Slot { ino, block, offset, raw });
            }
        }
        out
    }

    fn inode(&mut self, dev: &MemDevice, slot: &Slot, orphan_file: bool, journal: bool) {
        let raw = &slot.raw;
        let seal = Seal::Inode { ino: slot.ino, offset: slot.offset as u32 };
        let name = match (slot.ino.0, le16(raw, 0).unwrap() & 0xf000) {
            (8, _) => "inode of the journal",
            (7, _) => "inode for resizing",
            (_, 0x4000) => "inode of a directory",
            _ => "inode",
        };
        self.add(name, slot.block, slot.offset, raw.len(), Fix::Seal(seal));
        let flags = le32(raw, 0x20).unwrap();
        let seed = self.sealer.inode_seed(slot.ino, le32(raw, 0x64).unwrap());
        let kind = le16(raw, 0).unwrap() & 0xf000;
        let bs = self.geo.block_size.bytes();
        let hi = if self.geo.inode_size > 128 { le16(raw, 0x76).unwrap() } else { 0 };
        let acl = u64::from(hi) << 32 | u64::from(le32(raw, 0x68).unwrap());
        if acl != 0 {
            self.add("xattr block", acl, 0, bs, Fix::Seal(Seal::XattrBlock));
        }
        let fast = kind == 0xa000 && le32(raw, 4).unwrap() < 60;
        if flags & INLINE != 0 || fast || !matches!(kind, 0x4000 | 0x8000 | 0xa000) {
            return;
        }
        let mut data = Vec::new();
        if flags & EXTENTS != 0 {
            self.extents(dev, &raw[0x28..0x64], seed, &mut data);
        } else {
            for i in 0..15 {
                let b = u64::from(le32(raw, 0x28 + 4 * i).unwrap());
                self.indirect(dev, b, i.saturating_sub(11), &mut data);
            }
        }
        if journal {
            return self.journal(dev, &data);
        }
        for (i, b) in data.into_iter().enumerate() {
            if orphan_file {
                self.add("orphan block", b, 0, bs, Fix::Seal(Seal::OrphanBlock { seed }));
            } else if kind == 0x4000 {
                let block = read(dev, &self.geo, b);
                let hashed = flags & INDEX != 0;
                let node = uext4::dir::leaf::is_index_node(&block);
                let (what, seal) = match (hashed, i, node) {
                    (true, 0, _) => ("htree root", Seal::HtreeNode { seed }),
                    (true, _, true) => ("htree node", Seal::HtreeNode { seed }),
                    _ => ("directory block", Seal::DirLeaf { seed }),
                };
                self.add(what, b, 0, bs, Fix::Seal(seal));
            } else if kind == 0xa000 {
                self.add("symlink block", b, 0, bs, Fix::Seal(Seal::None));
            }
        }
    }

    /// The node in `node`; its blocks go to `data`.
    fn extents(&mut self, dev: &MemDevice, node: &[u8], seed: u32, data: &mut Vec<u64>) {
        let (count, depth) = (le16(node, 2).unwrap(), le16(node, 6).unwrap());
        for i in 0..usize::from(count) {
            let at = 12 + 12 * i;
            if depth > 0 {
                let hi = u64::from(le16(node, at + 8).unwrap()) << 32;
                let child = hi | u64::from(le32(node, at + 4).unwrap());
                let bs = self.geo.block_size.bytes();
                self.add("extent block", child, 0, bs, Fix::Seal(Seal::ExtentBlock { seed }));
                let bytes = read(dev, &self.geo, child);
                self.extents(dev, &bytes, seed, data);
            } else {
                let len = le16(node, at + 4).unwrap();
                let len = if len > 0x8000 { len - 0x8000 } else { len };
                let hi = u64::from(le16(node, at + 6).unwrap()) << 32;
                let first = hi | u64::from(le32(node, at + 8).unwrap());
                data.extend(first..first + u64::from(len));
            }
        }
    }

    fn indirect(&mut self, dev: &MemDevice, b: u64, level: usize, data: &mut Vec<u64>) {
        if b == 0 {
            return;
        }
        if level == 0 {
            return data.push(b);
        }
        let bs = self.geo.block_size.bytes();
        self.add("indirect block", b, 0, bs, Fix::Seal(Seal::None));
        let bytes = read(dev, &self.geo, b);
        for i in 0..bs / 4 {
            self.indirect(dev, u64::from(le32(&bytes, 4 * i).unwrap()), level - 1, data);
        }
    }

    fn journal(&mut self, dev: &MemDevice, log: &[u64]) {
        let bs = self.geo.block_size.bytes();
        let sup = read(dev, &self.geo, log[0]);
        let word = |at| be32(&sup, at).unwrap();
        // CSUM_V2 and CSUM_V3.
        let csum = word(0x28) & 0x18 != 0;
        let fix = |at, len, seed| match csum {
            true => Fix::Journal { at, len, seed },
            false => Fix::Seal(Seal::None),
        };
        self.add("journal superblock", log[0], 0, 1024, fix(0xfc, 1024, !0));
        let seed = crc32c(!0, &sup[0x30..0x40]);
        let start = word(0x1c) as usize;
        if start == 0 {
            return;
        }
        for &b in log.iter().skip(start).take(120) {
            let block = read(dev, &self.geo, b);
            if be32(&block, 0) != Some(JOURNAL_MAGIC) {
                continue;
            }
            match be32(&block, 4) {
                Some(1) => self.add("journal descriptor", b, 0, bs, fix(bs - 4, bs, seed)),
                Some(2) => self.add("journal commit", b, 0, 64, fix(0x10, bs, seed)),
                Some(5) => self.add("journal revoke", b, 0, bs, fix(bs - 4, bs, seed)),
                _ => {}
            }
        }
    }

    /// Makes the checksum of `item` right.
    pub fn repair(&self, dev: &MemDevice, item: &Item) {
        let mut data = read(dev, &self.geo, item.block);
        match item.fix {
            Fix::Seal(seal) => {
                // What has no place for a checksum any more is left without.
                let _ = self.sealer.seal(&seal, Block(item.block), &mut data);
                write(dev, &self.geo, item.block, &data);
            }
            Fix::BlockBitmap(g) => {
                let sum = block_bitmap_csum(&self.geo, &data);
                self.in_descriptor(dev, g, 0x18, 0x38, sum);
            }
            Fix::InodeBitmap(g) => {
                let sum = inode_bitmap_csum(&self.geo, &data);
                self.in_descriptor(dev, g, 0x1a, 0x3a, sum);
            }
            Fix::Journal { at, len, seed } => {
                set(&mut data, at, &[0; 4]);
                let sum = crc32c(seed, &data[..len]);
                set(&mut data, at, &sum.to_be_bytes());
                write(dev, &self.geo, item.block, &data);
            }
        }
    }

    fn in_descriptor(&self, dev: &MemDevice, g: Group, lo: usize, hi: usize, sum: u32) {
        if !self.geo.metadata_csum {
            return;
        }
        let (block, o, mut data) = self.desc(dev, g.0);
        set(&mut data, o + lo, &(sum as u16).to_le_bytes());
        if self.geo.desc_size >= 64 {
            set(&mut data, o + hi, &((sum >> 16) as u16).to_le_bytes());
        }
        let seal = Seal::GroupDesc { group: g, offset: o as u32 };
        self.sealer.seal(&seal, Block(block), &mut data).unwrap();
        write(dev, &self.geo, block, &data);
    }
}
