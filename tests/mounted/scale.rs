//! Large directories, deep extent trees, many links, full file systems.

use crate::common::workload::{self, Synced};
use crate::common::{Fs, Image, Scratch, Tree, peer_is_kernel, scaled, sh};
use std::fs;
use std::os::unix::fs::MetadataExt;

#[track_caller]
fn many_names(args: &[&str]) {
    let scratch = Scratch::new();
    let n = scaled(20_000, 300_000);
    let inodes = (n + 2000).to_string();
    let image = scratch.mkfs("img", scaled("256M", "2G"), &[args, &["-N", &inodes]].concat());
    let mount = scratch.mount(Fs::Uext4, &image, "");
    let synced = Synced::default();
    workload::names(mount.path(), n, &synced).unwrap();
    synced.check(mount.path());
    let live = fs::read_dir(mount.join("names")).unwrap().count();
    mount.umount();
    image.fsck();

    let mount = scratch.mount(Fs::Uext4, &image, "");
    assert_eq!(fs::read_dir(mount.join("names")).unwrap().count(), live);
    mount.umount();
    let mount = scratch.mount(Fs::Kernel, &image, "");
    let found = Tree::read(&mount.join("names"));
    assert_eq!(found.len(), live + 1, "names that the kernel finds, and the folder");
    mount.umount();

    let mount = scratch.mount(Fs::Uext4, &image, "");
    fs::remove_dir_all(mount.join("names")).unwrap();
    mount.umount();
    image.fsck();
}

#[test]
fn many_names_in_1k() {
    // An index of two levels is full before that, the kernel's too.
    many_names(scaled(&["-b", "1024"], &["-b", "1024", "-O", "large_dir"]));
}

#[test]
fn many_names_in_4k() {
    many_names(&["-b", "4096"]);
}

#[test]
fn many_names_without_an_index() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "128M", &["-O", "^dir_index"]);
    let mount = scratch.mount(Fs::Uext4, &image, "");
    workload::names(mount.path(), 2000, &Synced::default()).unwrap();
    mount.umount();
    image.fsck();
}

/// The depth of a file's extent tree, as debugfs tells it.
fn depth(image: &Image, file: &str) -> u32 {
    let text = image.debugfs(&format!("ex {file}"));
    let line = text.lines().nth(1).unwrap_or_default();
    let depth = line.split('/').nth(1).and_then(|d| d.split_whitespace().next()?.parse().ok());
    depth.unwrap_or_else(|| panic!("debugfs shows no depth:\n{text}"))
}

#[track_caller]
fn many_extents(block: u64, quick: u64, args: &[&str], want_depth: u32) {
    if peer_is_kernel() && block > 4096 {
        return;
    }
    let scratch = Scratch::new();
    let size = args.iter().position(|a| *a == "-b").map_or("4096", |i| args[i + 1]);
    assert_eq!(size, block.to_string());
    let n = scaled(quick, 20_000);
    let image = scratch.mkfs("img", if block > 4096 { "5G" } else { "512M" }, args);
    let mount = scratch.mount(Fs::Uext4, &image, "");
    let synced = Synced::default();
    workload::extents(mount.path(), n, block, &synced).unwrap();
    synced.check(mount.path());
    mount.umount();
    image.fsck();
    if !args.contains(&"^extent,^64bit") {
        assert!(depth(&image, "/extents") >= want_depth, "the tree is too flat to prove anything");
    }
    let ours = scratch.read(Fs::Uext4, &image);
    if block <= 4096 {
        let theirs = scratch.read(Fs::Kernel, &image);
        ours.assert_matches(&theirs, crate::common::View::Same, "many extents");
    }
    let mount = scratch.mount(Fs::Uext4, &image, "");
    sh(mount.path(), "truncate -s 100000 extents; sync; rm extents*");
    mount.umount();
    image.fsck();
}

#[test]
fn many_extents_in_1k() {
    many_extents(1024, 9000, &["-b", "1024"], 2);
}

#[test]
fn many_extents_in_4k() {
    many_extents(4096, 4000, &["-b", "4096"], 2);
}

#[test]
fn many_extents_in_64k() {
    many_extents(65536, 300, &["-b", "65536"], 1);
}

#[test]
fn many_holes_in_an_indirect_map() {
    many_extents(1024, 9000, &["-b", "1024", "-O", "^extent,^64bit"], 0);
}

/// Past 65,000 subfolders a directory's link count reads 1; the kernel makes the first ones in
/// the quick run, so that uext4 crosses the line in both.
#[test]
fn more_subfolders_than_links() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "512M", &["-b", "1024", "-N", "72000"]);
    let synced = Synced::default();
    let theirs = scaled(64_900, 0);
    let ours = scaled(300, 70_000);
    let mount = scratch.mount(Fs::Kernel, &image, "");
    workload::folders(mount.path(), 0, theirs, &synced).unwrap();
    mount.umount();
    let mount = scratch.mount(Fs::Uext4, &image, "");
    workload::folders(mount.path(), theirs, ours, &synced).unwrap();
    synced.check(mount.path());
    let dir = mount.join("folders");
    assert_eq!(fs::metadata(&dir).unwrap().nlink(), 1);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), theirs + ours);
    mount.umount();
    image.fsck();
    let mount = scratch.mount(Fs::Uext4, &image, "");
    for i in theirs + ours - 250..theirs + ours {
        let _ = fs::remove_file(mount.join(format!("folders/d{i}/synced")));
        fs::remove_dir(mount.join(format!("folders/d{i}"))).unwrap();
    }
    assert_eq!(fs::metadata(mount.join("folders")).unwrap().nlink(), 1, "it stays at 1");
    mount.umount();
    image.fsck();
}

/// Without dir_nlink the count is a limit.
#[test]
fn a_directory_refuses_too_many_links() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "512M", &["-b", "1024", "-N", "72000", "-O", "^dir_nlink"]);
    let mount = scratch.mount(Fs::Kernel, &image, "");
    workload::folders(mount.path(), 0, 64_990, &Synced::default()).unwrap();
    mount.umount();
    let mount = scratch.mount(Fs::Uext4, &image, "");
    let refused = workload::folders(mount.path(), 64_990, 100, &Synced::default());
    assert_eq!(refused.map_err(|e| e.raw_os_error()), Err(Some(libc::EMLINK)));
    assert_eq!(fs::metadata(mount.join("folders")).unwrap().nlink(), 65_000);
    mount.umount();
    image.fsck();
}

#[track_caller]
fn full_and_empty(args: &[&str]) {
    if peer_is_kernel() && args.contains(&"65536") {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", args);
    let mut free = None;
    for round in 0..scaled(4, 100) {
        let mount = scratch.mount(Fs::Uext4, &image, "");
        let count = workload::fill(mount.path(), round).unwrap();
        assert!(count > 3, "full after {count} files");
        let full = rustix::fs::statvfs(mount.path()).unwrap();
        assert!(
            full.f_bfree * full.f_frsize < 4 << 20,
            "ENOSPC with {} of {} blocks of {} free",
            full.f_bfree,
            full.f_blocks,
            full.f_frsize
        );
        if round % 2 == 0 {
            mount.umount();
            image.fsck();
            let mount = scratch.mount(Fs::Uext4, &image, "");
            fs::remove_dir_all(mount.join("fill")).unwrap();
            mount.umount();
        } else {
            fs::remove_dir_all(mount.join("fill")).unwrap();
            workload::fill(mount.path(), round + 1000).unwrap();
            fs::remove_dir_all(mount.join("fill")).unwrap();
            mount.umount();
        }
        image.fsck();
        let now = image.header("Free blocks");
        assert_eq!(*free.get_or_insert_with(|| now.clone()), now, "blocks lost in round {round}");
    }
}

#[test]
fn full_and_empty_in_1k() {
    full_and_empty(&["-b", "1024", "-m", "0"]);
}

#[test]
fn full_and_empty_in_4k() {
    full_and_empty(&["-b", "4096"]);
}

#[test]
fn full_and_empty_in_64k() {
    full_and_empty(&["-b", "65536", "-m", "0"]);
}

#[test]
fn full_and_empty_without_extents() {
    full_and_empty(&["-t", "ext2", "-b", "1024"]);
}

#[test]
fn full_and_empty_without_a_journal() {
    full_and_empty(&["-O", "^has_journal"]);
}
