//! Directories on images of mkfs.ext4, judged by e2fsck, debugfs and the kernel's ext4.

use super::*;
use crate::inode::{
    mode,
    testing::{TestVolume, debugfs, fsck, in_kernel, mkfs},
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

const FILE: u16 = mode::REG | 0o644;
const DIR: u16 = mode::DIR | 0o755;

/// A directory entered in the root.
fn new_dir(t: &TestVolume, name: &[u8]) -> Arc<Inode> {
    let root = t.root();
    let mut h = t.start();
    let d = t.new_inode(&mut h, &root, DIR);
    init(&t.vol, &mut h, &d, Ino::ROOT).unwrap();
    insert(&t.vol, &mut h, &root, name, d.ino, FileKind::Directory).unwrap();
    let n = root.attrs().rec.links_count + 1;
    t.set_links(&mut h, &root, n);
    h.stop().unwrap();
    d
}

/// Lists with at most `per_call` entries a call.
fn list(t: &TestVolume, d: &Inode, per_call: usize) -> Vec<(Vec<u8>, Ino)> {
    let (mut pos, mut all) = (0, Vec::new());
    loop {
        let mut n = 0;
        read(&t.vol, d, pos, &mut |name, e, next| {
            if n == per_call {
                return false;
            }
            assert!(next > pos, "position {next} after {pos}");
            (n, pos) = (n + 1, next);
            all.push((name.to_vec(), e.ino));
            true
        })
        .unwrap();
        if n == 0 {
            return all;
        }
    }
}

fn name(i: u32) -> Vec<u8> {
    format!("name-{i:0>width$}", width = 4 + (i % 37) as usize).into_bytes()
}

/// Enters `range` as hard links of one file.
fn enter(t: &TestVolume, d: &Inode, file: &Inode, range: std::ops::Range<u32>) {
    for i in range.clone() {
        let mut h = t.start();
        insert(&t.vol, &mut h, d, &name(i), file.ino, FileKind::Regular).unwrap();
        h.stop().unwrap();
    }
    let mut h = t.start();
    let n = file.attrs().rec.links_count + range.len() as u16;
    t.set_links(&mut h, file, n);
    h.stop().unwrap();
}

fn drop_names(t: &TestVolume, d: &Inode, file: &Inode, which: impl Iterator<Item = u32>) {
    let mut n = 0;
    for i in which {
        let mut h = t.start();
        assert_eq!(remove(&t.vol, &mut h, d, &name(i)).unwrap(), file.ino);
        h.stop().unwrap();
        n += 1;
    }
    let mut h = t.start();
    let left = file.attrs().rec.links_count - n;
    t.set_links(&mut h, file, left);
    h.stop().unwrap();
}

/// A file with the one name `file` in the root.
fn new_file(t: &TestVolume) -> Arc<Inode> {
    let root = t.root();
    let mut h = t.start();
    let f = t.new_inode(&mut h, &root, FILE);
    insert(&t.vol, &mut h, &root, b"file", f.ino, FileKind::Regular).unwrap();
    h.stop().unwrap();
    f
}

fn grow_and_shrink(mkfs_args: &[&str], names: u32, index: bool) {
    let t = mkfs(32, mkfs_args);
    let (d, f) = (new_dir(&t, b"d"), new_file(&t));
    assert!(is_empty(&t.vol, &d).unwrap());
    enter(&t, &d, &f, 0..names);
    assert_eq!(d.flags().contains(InodeFlags::INDEX), index);
    for i in 0..names {
        let e = lookup(&t.vol, &d, &name(i)).unwrap().unwrap();
        assert_eq!(e.ino, f.ino);
        let typed = t.vol.geo.has_incompat(Incompat::FILETYPE);
        assert_eq!(e.kind, typed.then_some(FileKind::Regular));
    }
    assert_eq!(lookup(&t.vol, &d, b"absent").unwrap(), None);
    assert_eq!(lookup(&t.vol, &d, b"..").unwrap().unwrap().ino, Ino::ROOT);
    assert_eq!(lookup(&t.vol, &d, b".").unwrap().unwrap().ino, d.ino);
    assert!(!is_empty(&t.vol, &d).unwrap());
    let all: BTreeSet<_> = list(&t, &d, 7).into_iter().map(|e| e.0).collect();
    assert_eq!(all.len(), names as usize + 2);
    drop_names(&t, &d, &f, (0..names).filter(|i| i % 2 == 1));
    enter(&t, &d, &f, names..names + 50);
    let got: Vec<_> = list(&t, &d, 100);
    assert_eq!(got.len(), names as usize / 2 + 50 + 2);
    drop_names(&t, &d, &f, (0..names).filter(|i| i % 2 == 0).chain(names..names + 50));
    assert!(is_empty(&t.vol, &d).unwrap());
    enter(&t, &d, &f, 0..names / 2);
    t.close_clean();
}

#[test]
fn grows_into_a_tree_and_is_reused() {
    grow_and_shrink(&["-b", "1024"], 1200, true);
}

#[test]
fn block_sizes_and_features() {
    grow_and_shrink(&["-b", "4096"], 1200, true);
    grow_and_shrink(&["-b", "65536", "-O", "^has_journal"], 5000, true);
    grow_and_shrink(&["-b", "1024", "-O", "^metadata_csum"], 900, true);
    grow_and_shrink(&["-b", "1024", "-O", "^dir_index"], 300, false);
    grow_and_shrink(&["-b", "1024", "-O", "^filetype,^metadata_csum"], 900, true);
    grow_and_shrink(&["-b", "1024", "-t", "ext2"], 300, true);
    grow_and_shrink(&["-b", "1024", "-O", "inline_data"], 900, true);
}

#[test]
fn order_and_contents_are_the_kernels() {
    for (args, n) in [
        (&["-b", "1024"][..], 3000),
        (&["-b", "4096"][..], 3000),
        (&["-b", "4096", "-O", "inline_data"][..], 4),
        (&["-b", "4096"][..], 30),
        (&["-b", "1024", "-O", "^dir_index"][..], 200),
    ] {
        let t = mkfs(32, args);
        let (d, f) = (new_dir(&t, b"d"), new_file(&t));
        enter(&t, &d, &f, 0..n);
        let ours: Vec<String> =
            list(&t, &d, 20).into_iter().map(|e| String::from_utf8(e.0).unwrap()).collect();
        let image = t.close_clean();
        let theirs = in_kernel(image.path(), "ro", "ls -U -a d");
        let theirs: Vec<&str> = theirs.lines().collect();
        assert_eq!(ours, theirs, "{args:?}");
    }
}

#[test]
fn kernel_goes_on_where_we_stopped_and_we_where_it_did() {
    let t = mkfs(32, &["-b", "1024"]);
    let (d, f) = (new_dir(&t, b"d"), new_file(&t));
    enter(&t, &d, &f, 0..2000);
    let image = t.close_clean();
    in_kernel(
        image.path(),
        "rw",
        "cd d; for i in $(seq 2000); do echo k$i; done | xargs touch; ls | grep -v k | head -700 | xargs rm",
    );
    fsck(image.path());
    let mem = crate::device::MemDevice::load(image.path()).unwrap();
    let t = crate::inode::testing::open(Arc::new(mem));
    let d = t.vol.inodes.get(&t.vol, d.ino).unwrap();
    let f = t.vol.inodes.get(&t.vol, f.ino).unwrap();
    assert_eq!(list(&t, &d, 64).len(), 2000 + 2000 - 700 + 2);
    assert!(lookup(&t.vol, &d, b"k1234").unwrap().is_some());
    enter(&t, &d, &f, 3000..4000);
    let image = t.close_clean();
    assert_eq!(in_kernel(image.path(), "ro", "ls d | wc -l").trim(), "4300");
}

#[test]
fn two_level_tree() {
    // 1 KiB blocks: a root of 123 entries fills after some 123 * 9 names of 60 bytes.
    let t = mkfs(64, &["-b", "1024"]);
    let (d, f) = (new_dir(&t, b"d"), new_file(&t));
    enter(&t, &d, &f, 0..9000);
    let image = {
        for i in (0..9000).step_by(97) {
            assert!(lookup(&t.vol, &d, &name(i)).unwrap().is_some());
        }
        assert_eq!(list(&t, &d, 1000).len(), 9002);
        t.close_clean()
    };
    let dump = debugfs(image.path(), "htree_dump d");
    assert!(dump.contains("Indirect levels: 1"), "{dump}");
    let count = in_kernel(image.path(), "ro", "ls d | wc -l; stat d/name-*8999 >/dev/null");
    assert_eq!(count.trim(), "9000");
}

#[test]
fn index_full_at_its_greatest_height() {
    // Without large_dir a tree of 1 KiB blocks holds at most 123 * 126 leaves; make it full by
    // giving every leaf room for one name only.
    let t = mkfs(64, &["-b", "1024", "-N", "2048"]);
    let (d, f) = (new_dir(&t, b"d"), new_file(&t));
    let long = |i: u32| format!("{i:0>255}").into_bytes();
    let mut entered = 0;
    let err = loop {
        let mut h = t.start();
        match insert(&t.vol, &mut h, &d, &long(entered), f.ino, FileKind::Regular) {
            Ok(()) => entered += 1,
            Err(e) => break e,
        }
        h.stop().unwrap();
    };
    assert!(matches!(err, Error::NoSpace), "{err}");
    assert!(entered > 15000, "{entered}");
    for i in [0, 1, entered / 2, entered - 1] {
        assert!(lookup(&t.vol, &d, &long(i)).unwrap().is_some());
    }
    let mut h = t.start();
    t.set_links(&mut h, &f, 1 + entered as u16);
    h.stop().unwrap();
    t.close_clean();
}

#[test]
fn removing_while_listing_misses_nothing() {
    for args in [&["-b", "1024"][..], &["-b", "1024", "-O", "^dir_index"][..]] {
        let t = mkfs(32, args);
        let (d, f) = (new_dir(&t, b"d"), new_file(&t));
        enter(&t, &d, &f, 0..500);
        let (mut pos, mut seen) = (0, 0);
        loop {
            let mut batch = Vec::new();
            read(&t.vol, &d, pos, &mut |name, _, next| {
                if batch.len() == 10 {
                    return false;
                }
                pos = next;
                batch.push(name.to_vec());
                true
            })
            .unwrap();
            if batch.is_empty() {
                break;
            }
            for n in batch.iter().filter(|n| n.starts_with(b"name")) {
                let mut h = t.start();
                remove(&t.vol, &mut h, &d, n).unwrap();
                h.stop().unwrap();
                seen += 1;
            }
        }
        assert_eq!(seen, 500);
        assert!(is_empty(&t.vol, &d).unwrap());
        let mut h = t.start();
        t.set_links(&mut h, &f, 1);
        h.stop().unwrap();
        t.close_clean();
    }
}

#[test]
fn entering_while_listing_shows_what_was_there_once() {
    let t = mkfs(32, &["-b", "1024"]);
    let (d, f) = (new_dir(&t, b"d"), new_file(&t));
    enter(&t, &d, &f, 0..300);
    let (mut pos, mut seen, mut next_new) = (0, BTreeMap::new(), 1000);
    loop {
        let mut n = 0;
        read(&t.vol, &d, pos, &mut |name, _, next| {
            if n == 10 {
                return false;
            }
            (n, pos) = (n + 1, next);
            *seen.entry(name.to_vec()).or_insert(0) += 1;
            true
        })
        .unwrap();
        if n == 0 {
            break;
        }
        enter(&t, &d, &f, next_new..next_new + 20);
        next_new += 20;
    }
    for i in 0..300 {
        assert_eq!(seen.get(&name(i)), Some(&1));
    }
    assert!(seen.values().all(|&n| n == 1));
    t.close_clean();
}

#[test]
fn replace_and_move() {
    for args in [&["-b", "1024"][..], &["-b", "4096", "-O", "inline_data"][..]] {
        let t = mkfs(32, args);
        let (a, b) = (new_dir(&t, b"a"), new_dir(&t, b"b"));
        let f = new_file(&t);
        let root = t.root();
        let mut h = t.start();
        let g = t.new_inode(&mut h, &root, FILE);
        insert(&t.vol, &mut h, &a, b"x", f.ino, FileKind::Regular).unwrap();
        let again = insert(&t.vol, &mut h, &a, b"x", g.ino, FileKind::Regular);
        assert!(matches!(again, Err(Error::Exists)));
        let old = replace(&t.vol, &mut h, &a, b"x", g.ino, FileKind::Regular).unwrap();
        assert_eq!(old.ino, f.ino);
        assert_eq!(lookup(&t.vol, &a, b"x").unwrap().unwrap().ino, g.ino);
        // b moves into a.
        remove(&t.vol, &mut h, &root, b"b").unwrap();
        insert(&t.vol, &mut h, &a, b"b", b.ino, FileKind::Directory).unwrap();
        set_parent(&t.vol, &mut h, &b, a.ino).unwrap();
        assert_eq!(parent(&t.vol, &b).unwrap(), a.ino);
        let n = root.attrs().rec.links_count;
        t.set_links(&mut h, &root, n - 1);
        t.set_links(&mut h, &a, 3);
        for bad in [&b""[..], b".", b"..", b"a/b"] {
            assert!(insert(&t.vol, &mut h, &a, bad, f.ino, FileKind::Regular).is_err());
            assert!(remove(&t.vol, &mut h, &a, bad).is_err());
        }
        let long = [b'x'; 256];
        assert!(matches!(lookup(&t.vol, &a, &long), Err(Error::NameTooLong)));
        assert!(matches!(remove(&t.vol, &mut h, &a, b"no"), Err(Error::NotFound)));
        h.stop().unwrap();
        t.close_clean();
    }
}

#[test]
fn inline_directory_grows_to_a_block() {
    let t = mkfs(32, &["-b", "4096", "-O", "inline_data"]);
    let (d, f) = (new_dir(&t, b"d"), new_file(&t));
    assert!(d.flags().contains(InodeFlags::INLINE_DATA));
    let mut n = 0;
    while d.flags().contains(InodeFlags::INLINE_DATA) {
        let before = list(&t, &d, 3).len();
        assert_eq!(before, n as usize + 2);
        enter(&t, &d, &f, n..n + 1);
        n += 1;
    }
    assert!(n > 3, "{n} names");
    assert_eq!(list(&t, &d, 3).len(), n as usize + 2);
    enter(&t, &d, &f, n..n + 10);
    assert_eq!(parent(&t.vol, &d).unwrap(), Ino::ROOT);
    t.close_clean();
}

#[test]
fn damaged_blocks_are_errors() {
    let t = mkfs(32, &["-b", "1024", "-O", "^metadata_csum"]);
    let (d, f) = (new_dir(&t, b"d"), new_file(&t));
    enter(&t, &d, &f, 0..200);
    let dd = Dir::new(&t.vol, &d).unwrap();
    // A name that points at inode 1.
    let found = find::find(&dd, &name(7)).unwrap().unwrap();
    let mut h = t.start();
    h.modify(&found.buf, &found.seal, |b| {
        b[found.off..found.off + 4].copy_from_slice(&[1, 0, 0, 0])
    })
    .unwrap();
    assert!(matches!(lookup(&t.vol, &d, &name(7)), Err(Error::Corrupt(_))));
    let listed = read(&t.vol, &d, 0, &mut |_, _, _| true);
    assert!(matches!(listed, Err(Error::Corrupt(_))));
    // A root that is not one: names are found by reading all leaves.
    let root = dd.block(0, &dd.index_seal()).unwrap();
    h.modify(&root, &dd.index_seal(), |b| b[28] = 9).unwrap();
    assert!(lookup(&t.vol, &d, &name(8)).unwrap().is_some());
    assert_eq!(lookup(&t.vol, &d, b"absent").unwrap(), None);
    // Entering gives the tree up.
    insert(&t.vol, &mut h, &d, b"new", f.ino, FileKind::Regular).unwrap();
    assert!(!d.flags().contains(InodeFlags::INDEX));
    assert!(lookup(&t.vol, &d, b"new").unwrap().is_some());
    h.stop().unwrap();
}

#[test]
fn an_index_that_leads_in_circles_ends() {
    let t = mkfs(32, &["-b", "1024", "-O", "^metadata_csum"]);
    let (d, f) = (new_dir(&t, b"d"), new_file(&t));
    enter(&t, &d, &f, 0..200);
    let dd = Dir::new(&t.vol, &d).unwrap();
    let root = dd.block(0, &dd.index_seal()).unwrap();
    let mut h = t.start();
    // All entries the same block, hashes with the low bit set.
    h.modify(&root, &dd.index_seal(), |b| {
        let n = u16::from_le_bytes([b[34], b[35]]) as usize;
        for i in 1..n {
            b[32 + i * 8] |= 1;
            b[36 + i * 8..40 + i * 8].copy_from_slice(&[1, 0, 0, 0]);
        }
    })
    .unwrap();
    let mut n = 0;
    let _ = read(&t.vol, &d, 0, &mut |_, _, _| {
        n += 1;
        n < 10_000
    });
    assert!(n < 10_000);
    // The root again as its own child.
    h.modify(&root, &dd.index_seal(), |b| b[36..40].copy_from_slice(&[0, 0, 0, 0])).unwrap();
    let _ = lookup(&t.vol, &d, &name(3));
    h.stop().unwrap();
}

#[derive(Debug, Clone)]
enum Op {
    Insert(u16),
    Remove(u16),
    Replace(u16),
    List(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0u16..400).prop_map(Op::Insert),
        4 => (0u16..400).prop_map(Op::Remove),
        1 => (0u16..400).prop_map(Op::Replace),
        1 => (1usize..50).prop_map(Op::List),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn like_a_map(ops in proptest::collection::vec(op(), 1..600), features in 0usize..5) {
        let args = [
            &["-b", "1024"][..],
            &["-b", "1024", "-O", "^metadata_csum"],
            &["-b", "1024", "-O", "^dir_index"],
            &["-b", "1024", "-O", "inline_data"],
            &["-b", "2048", "-O", "large_dir,^filetype,^metadata_csum"],
        ][features];
        let t = mkfs(16, args);
        let (d, f) = (new_dir(&t, b"d"), new_file(&t));
        let root = t.root();
        let mut h = t.start();
        let g = t.new_inode(&mut h, &root, FILE);
        insert(&t.vol, &mut h, &root, b"g", g.ino, FileKind::Regular).unwrap();
        h.stop().unwrap();
        let mut model: BTreeMap<Vec<u8>, Ino> = BTreeMap::new();
        for op in ops {
            let mut h = t.start();
            match op {
                Op::Insert(i) => {
                    let n = name(i.into());
                    if let Entry::Vacant(slot) = model.entry(n) {
                        insert(&t.vol, &mut h, &d, slot.key(), f.ino, FileKind::Regular).unwrap();
                        slot.insert(f.ino);
                    }
                }
                Op::Remove(i) => {
                    let n = name(i.into());
                    match remove(&t.vol, &mut h, &d, &n) {
                        Ok(ino) => prop_assert_eq!(model.remove(&n), Some(ino)),
                        Err(Error::NotFound) => prop_assert!(!model.contains_key(&n)),
                        Err(e) => panic!("{e}"),
                    }
                }
                Op::Replace(i) => {
                    let n = name(i.into());
                    if let Some(old) = model.get_mut(&n) {
                        let was = replace(&t.vol, &mut h, &d, &n, g.ino, FileKind::Regular).unwrap();
                        prop_assert_eq!(was.ino, *old);
                        *old = g.ino;
                    }
                }
                Op::List(per_call) => {
                    let mut got: BTreeMap<_, _> = list(&t, &d, per_call).into_iter().collect();
                    got.remove(&b"."[..]);
                    got.remove(&b".."[..]);
                    prop_assert_eq!(&got, &model);
                }
            }
            h.stop().unwrap();
        }
        prop_assert_eq!(is_empty(&t.vol, &d).unwrap(), model.is_empty());
        for (n, ino) in &model {
            prop_assert_eq!(lookup(&t.vol, &d, n).unwrap().map(|e| e.ino), Some(*ino));
        }
        let mut h = t.start();
        let count = |i: &Inode| 1 + model.values().filter(|&&ino| ino == i.ino).count() as u16;
        t.set_links(&mut h, &f, count(&f));
        t.set_links(&mut h, &g, count(&g));
        h.stop().unwrap();
        t.close_clean();
    }
}
