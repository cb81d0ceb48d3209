//! The reference tree: real files of this machine, and of each special thing that ext4 can keep
//! at least one. The kernel's ext4 builds it once, into an image that later runs find again.

use super::mount::{Fs, Mount};
use super::{Image, Random, Scratch, run, sh, tool};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags,
    chownat, fallocate, lsetxattr, makedev, mknodat, utimensat,
};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

/// Changes with the recipe below, so that images of an older one are not used.
const RECIPE: u32 = 2;

/// Copies the image, so that it may be mounted here beside other tests, and mounts it read-only.
#[track_caller]
pub fn mount(scratch: &Scratch, files: usize) -> Mount {
    let point = scratch.join("reference");
    fs::create_dir_all(&point).unwrap();
    let options = "loop,ro,noload";
    run(tool("mount").args(["-t", "ext4", "-o", options]).arg(image(files)).arg(&point));
    Mount::adopt(Fs::Kernel, &point)
}

/// The image with `files` real files, built if it is not there.
fn image(files: usize) -> PathBuf {
    static BUILDING: LazyLock<Mutex<()>> = LazyLock::new(|| Mutex::new(()));
    let _one_at_a_time = BUILDING.lock().unwrap_or_else(|e| e.into_inner());
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = dir.join(format!("reference-{RECIPE}-{files}.img"));
    if !path.exists() {
        let unfinished = dir.join(format!("reference.{}.tmp", std::process::id()));
        build(&unfinished, files);
        fs::rename(&unfinished, &path).unwrap();
    }
    path
}

#[track_caller]
fn build(path: &Path, files: usize) {
    let image = Image::mkfs(path.into(), "4G", &["-N", &(files * 2 + 20000).to_string()]);
    let point = tempfile::tempdir().unwrap();
    run(tool("mount").args(["-o", "loop"]).arg(image.path()).arg(point.path()));
    let mount = Mount::adopt(Fs::Kernel, point.path());
    let root = mount.path();
    real_files(root, files);
    special_names(&root.join("names"));
    special_contents(&root.join("contents"));
    special_inodes(&root.join("inodes"));
    attributes(&root.join("attributes"));
    times(&root.join("times"));
    mount.umount();
    image.fsck();
}

/// The first files of this machine's own, with their folders and links.
fn real_files(root: &Path, files: usize) {
    let to = root.join("real");
    fs::create_dir(&to).unwrap();
    let script = format!(
        "find /usr/include /usr/share /usr/lib -xdev \\( -type l -o -type f -size -600k \\) \
         | LC_ALL=C sort | sed -n '1,{files}p' > {root}/list
         rsync -aHAX --files-from={root}/list / {to} 2>/dev/null
         rm {root}/list
         find {to} | wc -l",
        root = root.display(),
        to = to.display(),
    );
    let found: usize = sh(root, &script).trim().parse().unwrap();
    assert!(found >= files, "this machine has only {found} files below /usr to work with");
}

fn special_names(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for name in [
        &b"-rf"[..],
        b" leading and trailing ",
        b"new\nline",
        b"tab\tquote'\"back\\slash",
        b"\xff\xfe not utf-8 \x80",
        "snowman \u{2603}, cafe\u{301}".as_bytes(),
        &[b'x'; 255],
        &[b'y'; 254],
        b"a",
        b"...",
        b"UPPER",
        b"upper",
    ] {
        let path = dir.join(std::ffi::OsStr::from_bytes(name));
        fs::write(&path, name).unwrap();
    }
    let mut deep = dir.join("deep");
    for level in 0..60 {
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("file"), format!("level {level}")).unwrap();
        deep.push(format!("d{level}"));
    }
    let many = dir.join("many");
    fs::create_dir(&many).unwrap();
    for i in 0..1500 {
        fs::write(many.join(format!("a name of some length, number {i:05}")), []).unwrap();
    }
    for (i, len) in [1, 10, 59, 60, 61, 255, 1000].into_iter().enumerate() {
        symlink("t".repeat(len), dir.join(format!("link{i}"))).unwrap();
    }
    symlink("../contents/small", dir.join("to a file")).unwrap();
    symlink(".", dir.join("to here")).unwrap();
}

fn special_contents(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let mut random = Random::new(1);
    for size in [0, 1, 59, 60, 61, 127, 150, 160, 1023, 1024, 1025, 4095, 4096, 4097, 65535, 65537]
    {
        fs::write(dir.join(format!("size{size}")), random.bytes(size)).unwrap();
    }
    fs::write(dir.join("small"), "hello\n").unwrap();
    fs::write(dir.join("big"), random.bytes(9_000_001)).unwrap();

    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    for at in [0, 5000, 1 << 20, (7 << 20) + 1, (40 << 20) - 1] {
        sparse.write_all_at(b"island", at).unwrap();
    }
    File::create(dir.join("one hole")).unwrap().set_len((3 << 20) + 17).unwrap();
    let late = File::create(dir.join("hole then data")).unwrap();
    late.write_all_at(&random.bytes(70_000), 2_000_000).unwrap();

    let ahead = File::create(dir.join("preallocated")).unwrap();
    fallocate(&ahead, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    ahead.write_all_at(&random.bytes(10_000), 300_000).unwrap();
    let beyond = File::create(dir.join("preallocated past the end")).unwrap();
    beyond.write_all_at(b"short", 0).unwrap();
    fallocate(&beyond, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    let punched = File::create(dir.join("punched")).unwrap();
    punched.write_all_at(&random.bytes(1 << 20), 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&punched, punch, 10_000, 500_000).unwrap();

    let islands = File::create(dir.join("many extents")).unwrap();
    for i in 0..700u64 {
        islands.write_all_at(&[(i % 251) as u8 + 1; 100], i * 9000).unwrap();
        if i % 50 == 0 {
            islands.sync_data().unwrap();
        }
    }
}

fn special_inodes(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let special = [
        ("pipe", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("null", FileType::CharacterDevice, makedev(1, 3)),
        ("old block device", FileType::BlockDevice, makedev(8, 255)),
        ("new block device", FileType::BlockDevice, makedev(259, 70_000)),
    ];
    for (name, kind, device) in special {
        mknodat(CWD, dir.join(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
    }
    fs::write(dir.join("linked"), "one inode, four names").unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    for name in ["linked 2", "sub/linked 3", "sub/zz"] {
        fs::hard_link(dir.join("linked"), dir.join(name)).unwrap();
    }
    symlink("shared target", dir.join("symlink")).unwrap();
    fs::hard_link(dir.join("symlink"), dir.join("symlink again")).unwrap();
    for (name, mode) in
        [("none", 0), ("suid", 0o4755), ("sgid", 0o2755), ("sticky", 0o1666), ("all", 0o7777)]
    {
        let path = dir.join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let shared = dir.join("setgid folder");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o3770)).unwrap();
    for (i, (uid, gid)) in
        [(1, 2), (65_534, 65_535), (70_000, 80_000), (4_000_000_000, 4_294_967_290)]
            .into_iter()
            .enumerate()
    {
        let path = dir.join(format!("owned{i}"));
        fs::write(&path, "mine").unwrap();
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        chownat(CWD, &path, uid, gid, AtFlags::empty()).unwrap();
    }
}

/// Attributes stay small in sum: with 1k blocks and 128-byte inodes they share one block.
fn attributes(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        lsetxattr(path, name, value, XattrFlags::empty())
            .unwrap_or_else(|e| panic!("{path:?}: {name}: {e}"));
    };
    for i in 0..20 {
        let path = dir.join(format!("shared{i}"));
        fs::write(&path, "x").unwrap();
        for j in 0..8 {
            set(&path, &format!("user.key{j}"), &vec![b'v'; j * 8]);
        }
    }
    let all = dir.join("each namespace");
    fs::write(&all, "x").unwrap();
    set(&all, "user.empty", b"");
    set(&all, "user.binary", b"\0\xff\n");
    set(&all, "trusted.t", b"trust");
    set(&all, "security.s", b"secure");
    set(&all, "security.capability", b"\x01\x00\x00\x02\x00\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let long = dir.join("long");
    fs::write(&long, "x").unwrap();
    set(&long, &format!("user.{}", "n".repeat(250)), &[b'l'; 500]);
    let sub = dir.join("folder");
    fs::create_dir(&sub).unwrap();
    set(&sub, "user.on a folder", b"yes");
    symlink("nowhere", dir.join("symlink")).unwrap();
    set(&dir.join("symlink"), "trusted.on a symlink", b"yes");
    sh(
        dir,
        "touch acl; setfacl -m u:1:rwx,u:70000:r,g:5:rx,m::rx acl
         mkdir inherits; setfacl -m d:u:2:rwx,d:g:4:rx inherits
         touch inherits/file; mkdir inherits/folder
         setfacl -m u:9:x inherits/folder",
    );
}

/// Last of all, so that nothing else touches these times.
fn times(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for (name, sec, nsec) in [
        ("epoch", 0, 0),
        ("just before the epoch", -1, 999_999_999),
        ("1901", -2_147_483_648, 1),
        ("2038", 2_147_483_648, 123_456_789),
        ("2106", 4_294_967_296, 987_654_321),
        ("2446", 15_032_385_535, 999_999_999),
        ("now", 1_700_000_000, 500_000_000),
    ] {
        let path = dir.join(name);
        fs::write(&path, name).unwrap();
        let time = Timespec { tv_sec: sec, tv_nsec: nsec };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}
