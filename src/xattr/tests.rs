//! Attributes on images of mkfs.ext4, judged by e2fsck, debugfs and the kernel's ext4.

use super::*;
use crate::{
    dir,
    inode::{
        mode,
        testing::{TestVolume, debugfs, fsck, in_kernel, mkfs, open},
    },
    types::Ino,
};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc};

const FILE: u16 = mode::REG | 0o644;

fn file(t: &TestVolume, name: &str) -> Arc<Inode> {
    let root = t.root();
    let mut h = t.start();
    let f = t.new_inode(&mut h, &root, FILE);
    dir::insert(&t.vol, &mut h, &root, name.as_bytes(), f.ino, FileKind::Regular).unwrap();
    h.stop().unwrap();
    f
}

fn put_attr(t: &TestVolume, f: &Inode, name: &str, value: &[u8]) -> Result<()> {
    let mut h = t.start();
    let r = set(&t.vol, &mut h, f, name.as_bytes(), value, SetMode::Any);
    h.stop().unwrap();
    r
}

fn drop_attr(t: &TestVolume, f: &Inode, name: &str) -> Result<()> {
    let mut h = t.start();
    let r = remove(&t.vol, &mut h, f, name.as_bytes());
    h.stop().unwrap();
    r
}

fn get_attr(t: &TestVolume, f: &Inode, name: &str) -> Vec<u8> {
    get(&t.vol, f, name.as_bytes()).unwrap()
}

fn names(t: &TestVolume, f: &Inode) -> Vec<String> {
    let mut v: Vec<String> = list(&t.vol, f, true)
        .unwrap()
        .split(|&b| b == 0)
        .filter(|n| !n.is_empty())
        .map(|n| String::from_utf8(n.to_vec()).unwrap())
        .collect();
    v.sort();
    v
}

/// Frees the inode with all it has.
fn unlink(t: &TestVolume, f: &Arc<Inode>, name: &str) {
    let root = t.root();
    let mut h = t.start();
    dir::remove(&t.vol, &mut h, &root, name.as_bytes()).unwrap();
    release_all(&t.vol, &mut h, f).unwrap();
    crate::inode::undo_new(&t.vol, &mut h, f).unwrap();
    h.stop().unwrap();
}

fn sectors(f: &Inode) -> u64 {
    f.blocks512()
}

#[test]
fn errors_and_limits() {
    let t = mkfs(16, &["-b", "4096"]);
    let f = file(&t, "a");
    let mut h = t.start();
    let mut try_set = |n: &str, len: usize, m| {
        set(&t.vol, &mut h, &f, n.as_bytes(), &vec![b'z'; len], m).err().map(|e| e.errno())
    };
    assert_eq!(try_set("user.x", 40, SetMode::Replace), Some(libc::ENODATA));
    assert_eq!(try_set("user.x", 40, SetMode::Any), None);
    assert_eq!(try_set("user.x", 40, SetMode::Create), Some(libc::EEXIST));
    assert_eq!(try_set("user.x", 40, SetMode::Replace), None);
    assert_eq!(try_set("user.", 1, SetMode::Any), Some(libc::EINVAL));
    assert_eq!(try_set("bogus.x", 1, SetMode::Any), Some(libc::EOPNOTSUPP));
    assert_eq!(try_set("system.data", 1, SetMode::Any), Some(libc::EOPNOTSUPP));
    assert_eq!(try_set(&format!("user.{}", "n".repeat(250)), 1, SetMode::Any), None);
    let long = format!("user.{}", "n".repeat(251));
    assert_eq!(try_set(&long, 1, SetMode::Any), Some(libc::ERANGE));
    assert_eq!(try_set("user.big", 3000, SetMode::Any), None);
    assert_eq!(try_set("user.big", 4000, SetMode::Any), Some(libc::ENOSPC));
    assert_eq!(try_set("user.big", 70000, SetMode::Any), Some(libc::E2BIG));
    h.stop().unwrap();
    assert_eq!(get_attr(&t, &f, "user.big"), vec![b'z'; 3000]);
    assert_eq!(drop_attr(&t, &f, "user.nope").unwrap_err().errno(), libc::ENODATA);
    assert_eq!(get(&t.vol, &f, b"user.nope").unwrap_err().errno(), libc::ENODATA);
    assert_eq!(sectors(&f), 8);
    let image = t.close_clean();
    let seen = in_kernel(
        image.path(),
        "ro",
        "getfattr --absolute-names -m - a | sort | head -3; getfattr --only-values -n user.big a | wc -c; stat -c %b a",
    );
    assert!(seen.contains("user.big") && seen.ends_with("3000\n8\n"), "{seen}");
}

#[test]
fn equal_attributes_share_a_block() {
    let t = mkfs(16, &["-b", "4096"]);
    let files: Vec<_> = (0..20).map(|i| file(&t, &format!("f{i}"))).collect();
    let free = t.vol.alloc.statfs().free;
    for f in &files {
        for j in 1..20 {
            put_attr(&t, f, &format!("user.k{j}"), &vec![b'v'; j * 5]).unwrap();
        }
    }
    let blocks: std::collections::BTreeSet<u64> =
        files.iter().map(|f| f.attrs().rec.file_acl).collect();
    assert_eq!(blocks.len(), 1);
    assert!(files.iter().all(|f| sectors(f) == 8));
    t.vol.journal.commit_all().unwrap();
    assert_eq!(t.vol.alloc.statfs().free, free - 1);
    // One goes its own way; the rest still share.
    put_attr(&t, &files[3], "user.k7", b"other").unwrap();
    assert_ne!(files[3].attrs().rec.file_acl, files[4].attrs().rec.file_acl);
    assert_eq!(get_attr(&t, &files[4], "user.k7"), vec![b'v'; 35]);
    drop_attr(&t, &files[5], "user.k9").unwrap();
    put_attr(&t, &files[5], "user.k9", &[b'v'; 45]).unwrap();
    for i in [0, 3, 7] {
        unlink(&t, &files[i], &format!("f{i}"));
    }
    for j in 1..20 {
        drop_attr(&t, &files[1], &format!("user.k{j}")).unwrap();
    }
    assert_eq!((files[1].attrs().rec.file_acl, sectors(&files[1])), (0, 0));
    assert!(names(&t, &files[1]).is_empty());
    let image = t.close_clean();
    let seen = in_kernel(
        image.path(),
        "ro",
        "getfattr -d -m user f2 | grep -c k; getfattr -d -m user f19 | grep -c k",
    );
    assert_eq!(seen, "19\n19\n");
}

#[test]
fn values_in_inodes_of_their_own() {
    let t = mkfs(32, &["-b", "4096", "-O", "ea_inode"]);
    let free = t.vol.alloc.statfs();
    let files: Vec<_> = (0..3).map(|i| file(&t, &format!("f{i}"))).collect();
    for f in &files {
        put_attr(&t, f, "user.big", &[b'y'; 9000]).unwrap();
        put_attr(&t, f, "user.small", b"s").unwrap();
    }
    let one = t.vol.alloc.statfs();
    assert_eq!(free.ffree - one.ffree, 4, "three files and one shared value");
    assert_eq!(sectors(&files[0]), 24);
    put_attr(&t, &files[1], "user.big", &[b'w'; 65536]).unwrap();
    assert_eq!(sectors(&files[1]), 128);
    assert_eq!(get_attr(&t, &files[0], "user.big"), vec![b'y'; 9000]);
    assert_eq!(get_attr(&t, &files[1], "user.big"), vec![b'w'; 65536]);
    // Many, so that entries go to a block.
    for j in 0..30 {
        put_attr(&t, &files[2], &format!("user.other-{j}"), &vec![j as u8; 5000]).unwrap();
    }
    assert_ne!(files[2].attrs().rec.file_acl, 0);
    assert_eq!(get_attr(&t, &files[2], "user.other-17"), vec![17; 5000]);
    let image = t.close_clean();
    let want = in_kernel(
        image.path(),
        "ro",
        "for f in f0 f1 f2; do stat -c %b $f; getfattr -d -m - $f | md5sum; done",
    );
    let t = open(Arc::new(crate::device::MemDevice::load(image.path()).unwrap()));
    let f = |i: usize| t.vol.inodes.get(&t.vol, files[i].ino).unwrap();
    let blocks: Vec<u64> = want.lines().step_by(2).map(|l| l.parse().unwrap()).collect();
    assert_eq!(blocks, [sectors(&f(0)), sectors(&f(1)), sectors(&f(2))]);
    for i in 0..3 {
        unlink(&t, &f(i), &format!("f{i}"));
    }
    t.vol.journal.commit_all().unwrap();
    let end = t.vol.alloc.statfs();
    assert_eq!((end.ffree, end.free), (free.ffree, free.free));
    t.close_clean();
}

#[test]
fn kernel_goes_on_with_ours_and_we_with_its() {
    for extra in ["ea_inode", "^metadata_csum", "inline_data"] {
        let t = mkfs(32, &["-b", "1024", "-O", extra]);
        let f = file(&t, "f");
        put_attr(&t, &f, "user.ours", &[b'o'; 300]).unwrap();
        put_attr(&t, &f, "trusted.t", b"1").unwrap();
        let ino = f.ino;
        let image = t.close_clean();
        let script = "touch g k; for x in f g k; do setfattr -n user.theirs -v $(printf 't%.0s' $(seq 400)) $x; \
             setfattr -n security.s -v abc $x; done; setfattr -x trusted.t f; \
             [ $(getfattr --only-values -n user.ours f | wc -c) = 300 ] || exit 1; stat -c %i g";
        let g = in_kernel(image.path(), "rw", script).trim().parse().unwrap();
        fsck(image.path());
        let t = open(Arc::new(crate::device::MemDevice::load(image.path()).unwrap()));
        let f = t.vol.inodes.get(&t.vol, ino).unwrap();
        let g = t.vol.inodes.get(&t.vol, Ino(g)).unwrap();
        assert_eq!(names(&t, &f), ["security.s", "user.ours", "user.theirs"]);
        assert_eq!(get_attr(&t, &g, "user.theirs"), vec![b't'; 400]);
        put_attr(&t, &g, "user.theirs", &[b'u'; 401]).unwrap();
        put_attr(&t, &f, "user.new", &[b'n'; 90]).unwrap();
        t.close_clean();
    }
}

#[test]
fn inline_data_survives() {
    let t = mkfs(16, &["-b", "4096", "-O", "inline_data"]);
    let f = file(&t, "f");
    {
        let mut a = f.attrs_mut();
        assert_eq!(inline::set_tail(&mut a.ibody, Some(&[7; 40])), Ok(true));
    }
    put_attr(&t, &f, "user.a", &[b'a'; 20]).unwrap();
    put_attr(&t, &f, "user.b", &[b'b'; 200]).unwrap();
    drop_attr(&t, &f, "user.a").unwrap();
    assert_eq!(names(&t, &f), ["user.b"]);
    assert_eq!(inline::tail(&f.attrs().ibody), Ok(Some(&[7; 40][..])));
}

#[test]
fn access_lists_and_modes() {
    let t = mkfs(16, &["-b", "4096"]);
    let f = file(&t, "f");
    // setfacl -m u:1:rwx,g:5:r f
    let value =
        b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x07\0\x01\0\0\0\x04\0\x04\0\xff\xff\xff\xff\
        \x08\0\x04\0\x05\0\0\0\x10\0\x07\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";
    put_attr(&t, &f, "system.posix_acl_access", value).unwrap();
    assert_eq!(f.mode() & 0o777, 0o674);
    assert_eq!(get_attr(&t, &f, "system.posix_acl_access"), value);
    let mut h = t.start();
    f.attrs_mut().rec.mode = FILE & !0o777 | 0o640;
    acl::chmod(&t.vol, &mut h, &f).unwrap();
    h.stop().unwrap();
    let image_acl = get_attr(&t, &f, "system.posix_acl_access");
    assert_eq!(image_acl[38], 4, "the mask follows the mode");
    // A list that says no more than a mode is not stored.
    let plain = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x04\0\x05\0\xff\xff\xff\xff\x20\0\x01\0\xff\xff\xff\xff";
    let g = file(&t, "g");
    put_attr(&t, &g, "system.posix_acl_access", plain).unwrap();
    assert_eq!((g.mode() & 0o777, names(&t, &g).len()), (0o651, 0));
    assert_eq!(
        put_attr(&t, &g, "system.posix_acl_default", value).unwrap_err().errno(),
        libc::EACCES
    );
    drop_attr(&t, &g, "system.posix_acl_access").unwrap();
    let root = t.root();
    put_attr(&t, &root, "system.posix_acl_default", value).unwrap();
    let from = acl::inherit(&t.vol, &root, mode::DIR | 0o777, 0o077).unwrap();
    let mut h = t.start();
    let d = t.new_inode(&mut h, &root, from.mode);
    acl::apply(&t.vol, &mut h, &d, &from).unwrap();
    dir::init(&t.vol, &mut h, &d, Ino::ROOT).unwrap();
    dir::insert(&t.vol, &mut h, &root, b"d", d.ino, FileKind::Directory).unwrap();
    let n = root.attrs().rec.links_count + 1;
    t.set_links(&mut h, &root, n);
    h.stop().unwrap();
    let image = t.close_clean();
    let seen = in_kernel(image.path(), "ro", "getfacl -np f d g; stat -c %a d");
    let want = in_kernel(
        image.path(),
        "rw",
        "cd lost+found; touch f g; mkdir e; setfacl -m u:1:rwx,g:5:r f; chmod 640 f; chmod 651 g; \
         setfacl -d -m u::rw,u:1:rwx,g::r,g:5:r,m::rwx,o::r e; (umask 077; mkdir e/d); mv e/d d; \
         getfacl -np f d g; stat -c %a d",
    );
    assert_eq!(seen, want);
}

type Model = BTreeMap<String, Vec<u8>>;

#[derive(Debug, Clone)]
enum Op {
    Set(u8, u8, usize, u8),
    Remove(u8, u8),
    Unlink(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![6 => 0usize..60, 3 => 60usize..900, 1 => 900usize..20000];
    prop_oneof![
        10 => (0u8..6, 0u8..9, len, 0u8..3).prop_map(|(f, n, l, v)| Op::Set(f, n, l, v)),
        4 => (0u8..6, 0u8..9).prop_map(|(f, n)| Op::Remove(f, n)),
        1 => (0u8..6).prop_map(Op::Unlink),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn like_maps(ops in proptest::collection::vec(op(), 1..150), features in 0usize..5) {
        let args = [
            &["-b", "4096"][..],
            &["-b", "1024", "-O", "ea_inode"],
            &["-b", "4096", "-O", "ea_inode", "-I", "512"],
            &["-b", "1024", "-O", "^metadata_csum", "-I", "128"],
            &["-b", "2048", "-O", "ea_inode,^metadata_csum"],
        ][features];
        let t = mkfs(24, args);
        let key = |n: u8| format!("{}.{}", ["user", "trusted", "security"][n as usize % 3], "n".repeat(1 + n as usize * 5));
        let mut files: BTreeMap<u8, (Arc<Inode>, Model)> = BTreeMap::new();
        let before = t.vol.alloc.statfs();
        for op in ops {
            match op {
                Op::Set(i, n, len, v) => {
                    let (f, model) = files
                        .entry(i)
                        .or_insert_with(|| (file(&t, &i.to_string()), Model::new()));
                    match put_attr(&t, f, &key(n), &vec![v; len]) {
                        Ok(()) => {
                            model.insert(key(n), vec![v; len]);
                        }
                        Err(Error::NoSpace) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
                Op::Remove(i, n) => {
                    let Some((f, model)) = files.get_mut(&i) else { continue };
                    let was = model.remove(&key(n)).is_some();
                    match drop_attr(&t, f, &key(n)) {
                        Ok(()) => prop_assert!(was),
                        Err(Error::NoData) => prop_assert!(!was),
                        Err(e) => panic!("{e}"),
                    }
                }
                Op::Unlink(i) => {
                    if let Some((f, _)) = files.remove(&i) {
                        unlink(&t, &f, &i.to_string());
                    }
                }
            }
            for (f, model) in files.values() {
                let want: Vec<_> = model.keys().cloned().collect();
                prop_assert_eq!(names(&t, f), want);
            }
        }
        for (f, model) in files.values() {
            for (n, v) in model {
                prop_assert_eq!(&get_attr(&t, f, n), v);
            }
        }
        let image = t.close_clean();
        let t = open(Arc::new(crate::device::MemDevice::load(image.path()).unwrap()));
        for (i, (f, model)) in &files {
            let f = t.vol.inodes.get(&t.vol, f.ino).unwrap();
            for (n, v) in model {
                prop_assert_eq!(&get_attr(&t, &f, n), v);
            }
            unlink(&t, &f, &i.to_string());
        }
        t.vol.journal.commit_all().unwrap();
        let after = t.vol.alloc.statfs();
        prop_assert_eq!((after.ffree, after.free), (before.ffree, before.free));
        t.close_clean();
    }
}

#[test]
fn hostile_images() {
    let t = mkfs(16, &["-b", "1024", "-O", "^metadata_csum,ea_inode"]);
    let f = file(&t, "f");
    put_attr(&t, &f, "user.long", &[1; 600]).unwrap();
    let block = Block(f.attrs().rec.file_acl);
    let buf = t.vol.cache.read(block, &Seal::XattrBlock).unwrap();
    let mut h = t.start();
    let good = buf.data();
    for (at, v) in [(0, 1u8), (8, 2), (4, 0), (35, 255), (40, 255), (36, 2), (36, 12)] {
        h.modify(&buf, &Seal::XattrBlock, |b| b[at] = v).unwrap();
        let r = get(&t.vol, &f, b"user.long");
        assert!(matches!(r, Err(Error::Corrupt(_))), "byte {at}: {r:?}");
        h.modify(&buf, &Seal::XattrBlock, |b| b.copy_from_slice(&good)).unwrap();
    }
    h.stop().unwrap();
    assert!(debugfs(t.close().path(), "ea_list f").contains("user.long"));
}
