//! Images of many feature sets: parsed, checked against dumpe2fs, written back byte for byte.

use super::image::{Image, run};
use crate::ondisk::jbd2::JournalSuper;
use crate::ondisk::*;
use crate::types::{Block, Group, Ino};
use std::os::unix::fs::FileExt;

/// Everything that can be checked without knowing which features are on.
fn check(mib: u64, args: &str) -> Image {
    let image = Image::new(mib, args);
    superblock(&image);
    descriptors(&image);
    bitmaps(&image);
    inodes(&image);
    journal(&image);
    layout(&image);
    image
}

fn superblock(image: &Image) {
    let mut bytes = [0; 1024];
    image.file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
    assert!(image.sb.encode() == bytes, "superblock round trip");
    image.check_seal(Seal::Superblock, image.geo.superblock_block());
    let head = run("dumpe2fs", &["-h", image.path.to_str().unwrap()], &[0]);
    let field = |name: &str| {
        let line = head.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        line[name.len()..].trim().to_owned()
    };
    let features = field("Filesystem features:").replace("(none)", "");
    assert_eq!(features, image.sb.features().to_string());
    assert_eq!(field("Block count:"), image.geo.blocks_count.to_string());
    assert_eq!(field("Inode count:"), image.geo.inodes_count.to_string());
    assert_eq!(field("Inode size:"), image.geo.inode_size.to_string());
    assert_eq!(field("Free inodes:"), image.sb.free_inodes_count().to_string());
    assert_eq!(field("Reserved block count:"), image.sb.r_blocks_count().to_string());
}

fn descriptors(image: &Image) {
    let geo = &image.geo;
    for g in image.groups() {
        let (b, off) = geo.desc_location(g);
        image.check_seal(Seal::GroupDesc { group: g, offset: off as u32 }, b);
        let data = image.read(b);
        let desc = image.desc(g);
        let mut again = data.clone();
        desc.write(geo, &mut again[off..]).unwrap();
        assert!(again == data, "descriptor round trip");
        // A change of one slot leaves the others alone.
        let seal = Seal::GroupDesc { group: g, offset: off as u32 };
        GroupDesc { used_dirs: 77, ..desc }.write(geo, &mut again[off..]).unwrap();
        image.sealer.seal(&seal, b, &mut again).unwrap();
        let end = off + usize::from(geo.desc_size);
        assert!(again[..off] == data[..off] && again[end..] == data[end..]);
        assert!(again[off..end] != data[off..end]);
        image.sealer.verify(&seal, b, &again).unwrap();
        again[off + 4] ^= 1;
        let summed = geo.metadata_csum || geo.gdt_csum;
        assert_eq!(image.sealer.verify(&seal, b, &again).is_err(), summed);
    }
}

fn bitmaps(image: &Image) {
    let geo = &image.geo;
    let mut free = 0;
    for g in image.groups() {
        let d = image.desc(g);
        free += u64::from(d.free_clusters);
        if !d.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let bitmap = image.read(d.block_bitmap);
            d.verify_block_bitmap(geo, g, &bitmap).unwrap();
            let used = |i: u32| bitmap[(i / 8) as usize] >> (i % 8) & 1 == 1;
            let n = (0..geo.clusters_in_group(g)).filter(|&i| !used(i)).count();
            assert_eq!(n, d.free_clusters as usize, "{g:?}");
        }
        if !d.flags.contains(GroupFlags::INODE_UNINIT) {
            d.verify_inode_bitmap(geo, g, &image.read(d.inode_bitmap)).unwrap();
        }
    }
    assert_eq!(free << geo.cluster_bits, image.sb.free_blocks_count());
}

fn inodes(image: &Image) {
    let geo = &image.geo;
    let mut names = 0;
    for ino in image.inodes() {
        let (b, off) = image.slot(ino);
        let data = image.read(b);
        let rec = InodeRecord::parse(geo, ino, &data[off..]).unwrap();
        if rec.kind().is_none() {
            continue; // Reserved and never used.
        }
        image.check_seal(Seal::Inode { ino, offset: off as u32 }, b);
        let mut again = data.clone();
        rec.encode(geo, &mut again[off..]).unwrap();
        assert!(again == data, "round trip of inode {ino}");
        if rec.file_acl != 0 {
            image.check_seal(Seal::XattrBlock, Block(rec.file_acl));
        }
        if rec.flags.contains(InodeFlags::EXTENTS) && !rec.is_fast_symlink(geo) {
            if rec.kind() == Some(FileKind::Directory) {
                names += image.check_dir(ino, &rec).len();
            } else {
                image.extent_blocks(ino, &rec);
            }
        }
    }
    if geo.has_incompat(Incompat::EXTENTS) {
        assert!(names > 700);
    }
}

fn journal(image: &Image) {
    let Some(ino) = image.sb.journal_inum() else { return };
    let rec = image.inode(ino);
    let bs = image.geo.block_size;
    let first = match image.extent_blocks_or_direct(ino, &rec) {
        Some(b) => image.read(b),
        None => return,
    };
    let js = JournalSuper::parse(&first, bs, bs.blocks_for(rec.size)).unwrap();
    assert_eq!(&js.encode()[..], &first[..1024]);
    assert_eq!(js.start(), 0);
    assert!(js.first() < js.log_end());
}

impl Image {
    fn extent_blocks_or_direct(&self, ino: Ino, rec: &InodeRecord) -> Option<Block> {
        if rec.flags.contains(InodeFlags::EXTENTS) {
            return self.extent_blocks(ino, rec).first().map(|b| b.1);
        }
        bytes::le32(&rec.i_block, 0).map(|b| Block(u64::from(b)))
    }
}

/// Where dumpe2fs says groups, superblocks and descriptors are.
fn layout(image: &Image) {
    let geo = &image.geo;
    let text = run("dumpe2fs", &[image.path.to_str().unwrap()], &[0]);
    let mut seen = 0;
    for part in text.split("\nGroup ").skip(1) {
        let Ok(g) = part.split(':').next().unwrap().parse() else { continue };
        let g = Group(g);
        let range = |key: &str| -> Option<(u64, u64)> {
            let at = part.find(key)? + key.len();
            let word: String =
                part[at..].chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
            let (a, b) = word.split_once('-').unwrap_or((&word, &word));
            Some((a.parse().unwrap(), b.parse().unwrap()))
        };
        let count = |r: Option<(u64, u64)>| r.map_or(0, |(a, b)| b - a + 1);
        let (first, last) = range("(Blocks ").unwrap();
        assert_eq!(geo.group_first_block(g), Block(first));
        assert_eq!(u64::from(geo.blocks_in_group(g)), last - first + 1);
        assert_eq!(geo.has_super(g), part.contains("superblock at"), "{g:?}");
        let descs = range("Group descriptor at ").or(range("Group descriptors at "));
        assert_eq!(u64::from(geo.desc_blocks_in_group(g)), count(descs), "{g:?}");
        let reserved = count(range("Reserved GDT blocks at "));
        let boot = u64::from(g.0 == 0 && geo.superblock_block().0 > geo.first_data_block.into());
        let sum = u64::from(geo.has_super(g)) + count(descs) + reserved + boot;
        assert_eq!(u64::from(geo.base_meta_blocks(g)), sum, "{g:?}");
        let table = range("Inode table at ").unwrap();
        assert_eq!(count(Some(table)), u64::from(geo.itable_blocks()));
        assert_eq!(image.desc(g).inode_table, Block(table.0));
        seen += 1;
    }
    assert_eq!(seen, geo.groups_count);
}

#[test]
fn defaults() {
    let image = check(64, "-t ext4 -b 4096 -O metadata_csum,64bit");
    assert!(image.geo.metadata_csum && image.geo.desc_size == 64);
    assert_eq!(image.sb.features().check(), FeatureCheck::default());
    let root = image.inode(Ino::ROOT);
    assert_eq!(root.kind(), Some(FileKind::Directory));
    assert_eq!(root.extra_isize, inode_raw::EXTRA_ISIZE);
}

#[test]
fn small_blocks_many_groups() {
    check(40, "-t ext4 -b 1024 -g 1024");
    check(64, "-t ext4 -b 2048");
}

#[test]
fn large_blocks() {
    check(512, "-t ext4 -b 65536");
    check(512, "-t ext4 -b 16384 -O ^64bit");
}

#[test]
fn checksums_off_and_old() {
    let image = check(64, "-t ext4 -O ^metadata_csum,uninit_bg");
    assert!(image.geo.gdt_csum && !image.geo.metadata_csum);
    let image = check(64, "-t ext4 -O ^metadata_csum,uninit_bg,^64bit");
    assert_eq!(image.geo.desc_size, 32);
    check(64, "-t ext4 -O ^metadata_csum,^uninit_bg");
    check(64, "-t ext4 -O metadata_csum,^64bit -I 128");
}

#[test]
fn ext2_and_ext3() {
    let image = check(64, "-t ext2");
    assert!(image.sb.journal_inum().is_none());
    check(64, "-t ext2 -I 128 -b 1024 -O none");
    check(64, "-t ext3");
}

#[test]
fn block_group_layouts() {
    check(64, "-t ext4 -b 1024 -g 1024 -O meta_bg,^resize_inode");
    check(64, "-t ext4 -b 1024 -O meta_bg,^resize_inode,^flex_bg");
    check(64, "-t ext4 -b 1024 -O sparse_super2");
    check(64, "-t ext4 -b 1024 -O ^sparse_super,^resize_inode,^flex_bg");
    check(64, "-t ext4 -E packed_meta_blocks=1");
}

#[test]
fn bigalloc() {
    let image = check(128, "-t ext4 -b 4096 -O bigalloc -C 65536");
    assert_eq!(image.geo.cluster_bits, 4);
    assert_eq!(image.sb.features().check().read_only, ["bigalloc"]);
    check(128, "-t ext4 -O bigalloc -b 1024 -C 8192");
}

#[test]
fn seed_quota_and_others() {
    let image = check(64, "-t ext4 -O metadata_csum_seed,quota,project,ea_inode,large_dir,verity");
    assert_eq!(image.sb.features().check().read_only, ["quota", "project"]);
    let seed = image.geo.csum_seed;
    run("tune2fs", &["-U", "clear", image.path.to_str().unwrap()], &[0]);
    let mut bytes = [0; 1024];
    image.file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
    assert_eq!(Superblock::parse(&bytes).unwrap().csum_seed(), seed);
}

#[test]
fn inline_data() {
    let image = check(64, "-t ext4 -O inline_data");
    let inline = |i: &Ino| image.inode(*i).flags.contains(InodeFlags::INLINE_DATA);
    assert!(image.inodes().iter().any(inline));
}

#[test]
fn orphan_file_blocks() {
    let image = check(64, "-t ext4 -O orphan_file");
    let ino = image.sb.orphan_file_inum().unwrap();
    let rec = image.inode(ino);
    let seed = image.sealer.inode_seed(ino, rec.generation);
    let blocks = image.extent_blocks(ino, &rec);
    assert!(!blocks.is_empty() && blocks.len() as u64 <= orphan_file::MAX_BLOCKS);
    for (_, b) in blocks {
        image.check_seal(Seal::OrphanBlock { seed }, b);
        orphan_file::check(&image.read(b)).unwrap();
    }
}

#[test]
fn mmp_block() {
    let image = check(64, "-t ext4 -O mmp,metadata_csum");
    let b = image.sb.mmp_block().unwrap();
    image.check_seal(Seal::Mmp, b);
    let m = mmp::RawMmp::parse(&image.read(b)).unwrap();
    assert_eq!(m.state().unwrap(), mmp::MmpState::Clean);
}

#[test]
fn fast_commit_journal() {
    let image = check(64, "-t ext4 -O fast_commit");
    let rec = image.inode(Ino::JOURNAL);
    let first = image.read(image.extent_blocks(Ino::JOURNAL, &rec)[0].1);
    let bs = image.geo.block_size;
    let js = JournalSuper::parse(&first, bs, bs.blocks_for(rec.size)).unwrap();
    let len = js.maxlen();
    assert!(js.log_end() <= len);
    if let Some((from, to)) = js.fc_area() {
        assert_eq!((from, to), (js.log_end() + 1, len));
    }
}

/// What is changed here is read back by debugfs, and e2fsck has nothing to say.
#[test]
fn changes_are_read_by_debugfs() {
    let image = Image::new(64, "-t ext4 -O metadata_csum");
    let mut sb = image.sb.clone();
    sb.set_mnt_count(5);
    sb.set_mtime(0x1_0000_0000 + 86_400);
    sb.set_last_mounted(b"/somewhere");
    sb.set_kbytes_written(1234);
    image.file.write_all_at(&sb.encode(), SUPERBLOCK_OFFSET).unwrap();

    let find = |i: &&Ino| {
        let r = image.inode(**i);
        r.kind() == Some(FileKind::Regular) && r.size == 300_000
    };
    let ino = *image.inodes().iter().find(find).unwrap();
    let (b, off) = image.slot(ino);
    let mut data = image.read(b);
    let mut rec = image.inode(ino);
    rec.uid = 0x1_2345;
    rec.mtime = Timestamp { sec: 0x2_0000_0000, nsec: 123_456_789 };
    rec.atime = Timestamp { sec: -5, nsec: 7 };
    rec.crtime = Timestamp { sec: 1, nsec: 0 };
    rec.generation = 99;
    rec.encode(&image.geo, &mut data[off..]).unwrap();
    image.sealer.seal(&Seal::Inode { ino, offset: off as u32 }, b, &mut data).unwrap();
    image.file.write_all_at(&data, image.geo.block_size.offset(b)).unwrap();
    assert_eq!(image.inode(ino), rec);

    let path = image.path.to_str().unwrap();
    let text = run("debugfs", &["-R", &format!("stat <{ino}>"), path], &[0]);
    assert!(text.contains("User: 74565"), "{text}");
    assert!(text.contains("Generation: 99"), "{text}");
    assert!(text.contains("mtime: 0x00000000:1d6f3456"), "{text}");
    assert!(text.contains("atime: 0xfffffffb:0000001c"), "{text}");
    let head = run("dumpe2fs", &["-h", path], &[0]);
    assert!(head.contains("Lifetime writes:          1234 kB"), "{head}");
    assert!(head.contains("Last mounted on:          /somewhere"), "{head}");
    run("e2fsck", &["-fn", path], &[0]);
}

/// The error record is where dumpe2fs looks for it.
#[test]
fn error_records() {
    let image = Image::new(16, "-t ext4 -O metadata_csum");
    let mut sb = image.sb.clone();
    assert_eq!(sb.error_records(), None);
    let first = superblock::ErrorRecord {
        time: 1_700_000_000,
        ino: 12,
        block: 345,
        line: 678,
        func: "ext4_lookup".into(),
        errcode: superblock::errcode(libc::EUCLEAN),
    };
    let last = superblock::ErrorRecord { func: "y".repeat(40), ino: 13, ..first.clone() };
    sb.record_error(&first);
    sb.record_error(&last);
    let kept = superblock::ErrorRecord { func: "y".repeat(32), ..last };
    assert_eq!(sb.error_records(), Some((first, kept)));
    image.file.write_all_at(&sb.encode(), SUPERBLOCK_OFFSET).unwrap();
    let head = run("dumpe2fs", &["-h", image.path.to_str().unwrap()], &[0]);
    for want in [
        "FS Error count:           2",
        "ext4_lookup",
        "First error line #:       678",
        "First error err:          EFSCORRUPTED",
        "First error inode #:      12",
        "Last error inode #:       13",
        "First error block #:      345",
    ] {
        assert!(head.contains(want), "{want}: {head}");
    }
    assert!(head.contains("clean with errors"), "{head}");
}

#[test]
fn extra_isize_grows_where_the_attributes_let_it() {
    use crate::ondisk::{InodeRecord, Timestamp, inline, xattr};
    let image = Image::new(16, "-I 256");
    let geo = &image.geo;
    let grown = |value: usize| {
        let mut rec = InodeRecord::new(geo, 0o100644, 0, 0, Timestamp::default());
        let want = rec.extra_isize;
        rec.extra_isize = 4;
        let mut body = vec![0; rec.ibody_range(geo).len()];
        let bytes = vec![7; value];
        let e = xattr::Entry { index: 1, name: b"a", value: xattr::Value::Here(&bytes), hash: 0 };
        assert!(inline::store(&mut body, &[e]));
        let before = body.clone();
        let done = rec.expand_extra_isize(geo, &mut body).unwrap();
        assert_eq!(body.len(), rec.ibody_range(geo).len());
        let at = xattr::parse(&body[4..], 0).unwrap();
        assert_eq!(at[0].value, xattr::Value::Here(&bytes));
        assert_eq!(done, rec.extra_isize == want);
        assert!(done || body == before);
        done
    };
    assert!(grown(40));
    assert!(!grown(88));
}
