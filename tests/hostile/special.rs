//! Images that nobody gets by chance: cycles, overlaps, huge counts.

use super::layout::{Fix, Item, Layout, Slot, read, set, write};
use uext4::device::{BlockDevice, MemDevice};
use uext4::ondisk::Seal;
use uext4::ondisk::bytes::{be32, le16, le32};

/// A lie, and how to tell it; `make` answers false where the image has nothing to tell it with.
pub struct Case {
    pub name: &'static str,
    pub make: fn(&MemDevice, &Layout) -> bool,
    /// It may be believed: nothing contradicts it.
    pub harmless: bool,
}

const fn case(name: &'static str, make: fn(&MemDevice, &Layout) -> bool) -> Case {
    Case { name, make, harmless: false }
}

const fn harmless(name: &'static str, make: fn(&MemDevice, &Layout) -> bool) -> Case {
    Case { name, make, harmless: true }
}

pub const CASES: &[Case] = &[
    case("an extent block that is its own child", extent_cycle),
    case("a root whose two children are one block", extent_twins),
    case("an indirect block that points to itself", indirect_cycle),
    case("extents that overlap in the file", extent_overlap),
    harmless("two files with the same blocks", shared_blocks),
    case("a file over the inode table", file_over_inodes),
    case("a file over the journal's map", over_the_journal),
    case("extent counts beyond the block", extent_counts),
    case("a directory in itself", directory_in_itself),
    harmless("a directory that is its own parent", own_parent),
    case("a directory of an enormous size", |d, l| directory_size(d, l, 1 << 40)),
    case("a file of an enormous size", file_size),
    case("record lengths of zero", zero_records),
    case("an htree that points to its root", htree_cycle),
    case("htree counts beyond the block", htree_counts),
    case("orphans in a circle", orphan_circle),
    case("an orphan that is the root", |d, l| last_orphan(d, l, 2)),
    case("an orphan that is the journal", |d, l| last_orphan(d, l, 8)),
    case("a journal of one block over and over", journal_folded),
    case("a journal that lies over its own inode", journal_over_inode),
    case("a journal of enormous length", journal_length),
    case("a log that begins nowhere", journal_start),
    case("group descriptors in each other's place", descriptors_swapped),
    case("an inode table over the superblock", table_over_super),
    harmless("more free blocks than there are", free_counts),
    case("more inodes than fit", |d, l| super_field(d, l, 0, 0xffff_fff0)),
    case("more blocks than the device", |d, l| super_field(d, l, 4, 0x7fff_ffff)),
    case("blocks of 2 to the 40th", |d, l| super_field(d, l, 24, 30)),
    case("no blocks in a group", |d, l| super_field(d, l, 32, 0)),
    case("a group of 4 billion inodes", |d, l| super_field(d, l, 40, u32::MAX)),
    case("an xattr value beyond the block", xattr_value),
    harmless("xattr entries without end", xattr_entries),
];

fn find<'l>(l: &'l Layout, what: &str) -> Option<&'l Item> {
    l.items.iter().find(|i| i.what == what)
}

/// Changes the bytes of an item and makes its checksum right.
fn edit(dev: &MemDevice, l: &Layout, item: &Item, f: impl FnOnce(&mut [u8])) -> bool {
    let mut block = read(dev, &l.geo, item.block);
    f(&mut block[item.start..item.start + item.len]);
    write(dev, &l.geo, item.block, &block);
    l.repair(dev, item);
    true
}

fn edit_inode(dev: &MemDevice, l: &Layout, s: &Slot, f: impl FnOnce(&mut [u8])) -> bool {
    let seal = Seal::Inode { ino: s.ino, offset: s.offset as u32 };
    let item =
        Item { what: "", block: s.block, start: s.offset, len: s.raw.len(), fix: Fix::Seal(seal) };
    edit(dev, l, &item, f)
}

fn slot(dev: &MemDevice, l: &Layout, wanted: impl Fn(&Slot) -> bool) -> Option<Slot> {
    l.slots(dev).into_iter().find(wanted)
}

fn mode(s: &Slot) -> u16 {
    le16(&s.raw, 0).unwrap() & 0xf000
}

fn flags(s: &Slot) -> u32 {
    le32(&s.raw, 0x20).unwrap()
}

fn has_extents(s: &Slot) -> bool {
    flags(s) & 0x8_0000 != 0
}

/// A regular file with a linear root of extents, at least `n` of them.
fn flat_file(dev: &MemDevice, l: &Layout, n: u16) -> Option<Slot> {
    slot(dev, l, |s| {
        s.ino.0 > 11
            && mode(s) == 0x8000
            && has_extents(s)
            && le16(&s.raw, 0x28 + 6) == Some(0)
            && le16(&s.raw, 0x28 + 2) >= Some(n)
            && le32(&s.raw, 0x28 + 12 + 8) != Some(0)
    })
}

fn deep_file(dev: &MemDevice, l: &Layout) -> Option<Slot> {
    slot(dev, l, |s| has_extents(s) && le16(&s.raw, 0x28 + 6) == Some(1))
}

fn extent_cycle(dev: &MemDevice, l: &Layout) -> bool {
    let Some(item) = find(l, "extent block") else { return false };
    edit(dev, l, item, |b| {
        set(b, 2, &1u16.to_le_bytes());
        set(b, 6, &1u16.to_le_bytes());
        set(b, 12 + 4, &(item.block as u32).to_le_bytes());
        set(b, 12 + 8, &[0; 4]);
    })
}

fn extent_twins(dev: &MemDevice, l: &Layout) -> bool {
    let Some(s) = deep_file(dev, l) else { return false };
    edit_inode(dev, l, &s, |b| {
        set(b, 0x28 + 2, &2u16.to_le_bytes());
        let first: [u8; 12] = b[0x34..0x40].try_into().unwrap();
        set(b, 0x40, &first);
        set(b, 0x40, &40u32.to_le_bytes());
    })
}

fn indirect_cycle(dev: &MemDevice, l: &Layout) -> bool {
    let items: Vec<&Item> = l.items.iter().filter(|i| i.what == "indirect block").collect();
    for item in &items {
        edit(dev, l, item, |b| {
            for i in 0..b.len() / 4 {
                set(b, 4 * i, &(item.block as u32).to_le_bytes());
            }
        });
    }
    !items.is_empty()
}

fn extent_overlap(dev: &MemDevice, l: &Layout) -> bool {
    let Some(item) = find(l, "extent block") else { return false };
    edit(dev, l, item, |b| {
        // The first reaches over the second.
        set(b, 12 + 4, &200u16.to_le_bytes());
    })
}

fn shared_blocks(dev: &MemDevice, l: &Layout) -> bool {
    let Some(a) = flat_file(dev, l, 1) else { return false };
    let b = slot(dev, l, |s| {
        s.ino > a.ino && mode(s) == 0x8000 && has_extents(s) && le16(&s.raw, 0x2a) >= Some(1)
    });
    let Some(b) = b else { return false };
    edit_inode(dev, l, &b, |raw| set(raw, 0x28, &a.raw[0x28..0x64]))
}

fn point_file_at(dev: &MemDevice, l: &Layout, block: u64) -> bool {
    let Some(s) = flat_file(dev, l, 1) else { return false };
    edit_inode(dev, l, &s, |b| {
        set(b, 0x28 + 12 + 4, &1u16.to_le_bytes());
        set(b, 0x28 + 12 + 6, &0u16.to_le_bytes());
        set(b, 0x28 + 12 + 8, &(block as u32).to_le_bytes());
    })
}

fn file_over_inodes(dev: &MemDevice, l: &Layout) -> bool {
    find(l, "inode").is_some_and(|i| point_file_at(dev, l, i.block))
}

fn over_the_journal(dev: &MemDevice, l: &Layout) -> bool {
    find(l, "journal superblock").is_some_and(|i| point_file_at(dev, l, i.block))
}

fn extent_counts(dev: &MemDevice, l: &Layout) -> bool {
    let Some(item) = find(l, "extent block") else { return false };
    edit(dev, l, item, |b| set(b, 2, &[0xff; 4]))
}

fn directory_in_itself(dev: &MemDevice, l: &Layout) -> bool {
    let Some(item) = find(l, "directory block") else { return false };
    let mut done = false;
    edit(dev, l, item, |b| {
        // The third name of the root names the root.
        let mut at = 0;
        for n in 0..6 {
            let len = usize::from(le16(b, at + 4).unwrap());
            if n == 2 || len == 0 {
                set(b, at, &2u32.to_le_bytes());
                done = len != 0;
                break;
            }
            at += len;
        }
    });
    done
}

fn own_parent(dev: &MemDevice, l: &Layout) -> bool {
    let mut done = false;
    for item in l.items.iter().filter(|i| i.what == "directory block") {
        edit(dev, l, item, |b| {
            let own = le32(b, 0).unwrap();
            if own != 2 && b.get(8) == Some(&b'.') && le16(b, 4) == Some(12) {
                set(b, 12, &own.to_le_bytes());
                done = true;
            }
        });
    }
    done
}

fn set_size(b: &mut [u8], size: u64) {
    set(b, 4, &(size as u32).to_le_bytes());
    set(b, 0x6c, &((size >> 32) as u32).to_le_bytes());
}

fn directory_size(dev: &MemDevice, l: &Layout, size: u64) -> bool {
    let s = slot(dev, l, |s| mode(s) == 0x4000 && flags(s) & 0x1000_1000 == 0 && s.ino.0 == 2);
    s.is_some_and(|s| edit_inode(dev, l, &s, |b| set_size(b, size)))
}

fn file_size(dev: &MemDevice, l: &Layout) -> bool {
    let Some(s) = flat_file(dev, l, 1) else { return false };
    edit_inode(dev, l, &s, |b| set_size(b, u64::MAX >> 1))
}

fn zero_records(dev: &MemDevice, l: &Layout) -> bool {
    let Some(item) = find(l, "directory block") else { return false };
    edit(dev, l, item, |b| set(b, 12 + 4, &[0; 2]))
}

fn htree_cycle(dev: &MemDevice, l: &Layout) -> bool {
    let Some(item) = find(l, "htree root") else { return false };
    edit(dev, l, item, |b| {
        let count = usize::from(le16(b, 34).unwrap());
        for i in 0..count {
            set(b, 32 + 8 * i + 4, &0u32.to_le_bytes());
        }
    })
}

fn htree_counts(dev: &MemDevice, l: &Layout) -> bool {
    let Some(item) = find(l, "htree root") else { return false };
    edit(dev, l, item, |b| set(b, 32, &[0xff; 4]))
}

fn last_orphan(dev: &MemDevice, l: &Layout, ino: u32) -> bool {
    super_field(dev, l, 0xe8, ino)
}

fn orphan_circle(dev: &MemDevice, l: &Layout) -> bool {
    let files: Vec<Slot> =
        l.slots(dev).into_iter().filter(|s| s.ino.0 > 11 && mode(s) == 0x8000).take(3).collect();
    let [a, b, c] = &files[..] else { return false };
    for (s, next) in [(a, b), (b, c), (c, a)] {
        edit_inode(dev, l, s, |raw| {
            set(raw, 0x14, &next.ino.0.to_le_bytes());
            set(raw, 0x1a, &[0; 2]);
        });
    }
    last_orphan(dev, l, a.ino.0)
}

fn journal_slot(dev: &MemDevice, l: &Layout) -> Option<Slot> {
    slot(dev, l, |s| s.ino.0 == 8 && has_extents(s))
}

fn journal_folded(dev: &MemDevice, l: &Layout) -> bool {
    let Some(s) = journal_slot(dev, l) else { return false };
    edit_inode(dev, l, &s, |b| {
        // Four extents on the same blocks.
        let first: [u8; 12] = b[0x34..0x40].try_into().unwrap();
        let len = le16(&first, 4).unwrap() / 4;
        set(b, 0x2a, &4u16.to_le_bytes());
        for i in 0..4 {
            let at = 0x34 + 12 * i;
            set(b, at, &first);
            set(b, at, &(i as u32 * u32::from(len)).to_le_bytes());
            set(b, at + 4, &len.to_le_bytes());
        }
    })
}

fn journal_over_inode(dev: &MemDevice, l: &Layout) -> bool {
    let Some(s) = journal_slot(dev, l) else { return false };
    let block = read(dev, &l.geo, find(l, "journal superblock").unwrap().block);
    // The journal's superblock is where its inode should be.
    edit_inode(dev, l, &s, |b| set(b, 0x34 + 8, &(s.block as u32).to_le_bytes()));
    !block.is_empty()
}

fn journal_super(dev: &MemDevice, l: &Layout, at: usize, value: u32) -> bool {
    let Some(item) = find(l, "journal superblock") else { return false };
    edit(dev, l, item, |b| set(b, at, &value.to_be_bytes()))
}

fn journal_length(dev: &MemDevice, l: &Layout) -> bool {
    journal_super(dev, l, 0x10, u32::MAX)
}

fn journal_start(dev: &MemDevice, l: &Layout) -> bool {
    let dirty = find(l, "journal superblock")
        .is_some_and(|i| be32(&read(dev, &l.geo, i.block), 0x1c) != Some(0));
    dirty && journal_super(dev, l, 0x1c, 0x7fff_fff0)
}

fn descriptors_swapped(dev: &MemDevice, l: &Layout) -> bool {
    let all: Vec<&Item> = l.items.iter().filter(|i| i.what == "group descriptor").collect();
    let [a, b, ..] = &all[..] else { return false };
    let (x, y) = (read(dev, &l.geo, a.block), read(dev, &l.geo, b.block));
    let (x, y) = (x[a.start..a.start + a.len].to_vec(), y[b.start..b.start + b.len].to_vec());
    edit(dev, l, a, |d| d.copy_from_slice(&y)) && edit(dev, l, b, |d| d.copy_from_slice(&x))
}

fn table_over_super(dev: &MemDevice, l: &Layout) -> bool {
    let Some(item) = find(l, "group descriptor") else { return false };
    edit(dev, l, item, |d| set(d, 8, &l.geo.first_data_block.to_le_bytes()))
}

fn free_counts(dev: &MemDevice, l: &Layout) -> bool {
    let Some(item) = find(l, "group descriptor") else { return false };
    edit(dev, l, item, |d| set(d, 12, &[0xff; 4]))
}

fn super_field(dev: &MemDevice, l: &Layout, at: usize, value: u32) -> bool {
    assert!(dev.size() > 2048);
    find(l, "superblock")
        .is_some_and(|item| edit(dev, l, item, |b| set(b, at, &value.to_le_bytes())))
}

fn xattr_value(dev: &MemDevice, l: &Layout) -> bool {
    let Some(item) = find(l, "xattr block") else { return false };
    edit(dev, l, item, |b| {
        set(b, 32 + 2, &0xfff0u16.to_le_bytes());
        set(b, 32 + 8, &u32::MAX.to_le_bytes());
    })
}

fn xattr_entries(dev: &MemDevice, l: &Layout) -> bool {
    let Some(item) = find(l, "xattr block") else { return false };
    edit(dev, l, item, |b| b[32..].fill(1))
}
