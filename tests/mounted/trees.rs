//! A real tree goes in through uext4 and comes out of the kernel's ext4 the same, and the other
//! way round, for each kind of file system that mke2fs can make.

use crate::common::{
    Fs, Image, Scratch, Tree, View, peer_is_kernel, reference, run, scaled, sh, tool,
};
use std::path::Path;

/// One line of the feature table.
struct Line {
    mkfs: &'static [&'static str],
    /// How exactly a copied tree agrees with the original.
    view: View,
    /// Whether the kernel can mount it (it wants blocks no larger than a page).
    kernel: bool,
}

const PLAIN: Line = Line { mkfs: &[], view: View::Copy, kernel: true };

/// How many real files go into the default file system, and into each of the others.
fn files(line: &Line) -> usize {
    if line.mkfs.is_empty() { scaled(4000, 20_000) } else { scaled(800, 20_000) }
}

/// 128-byte inodes hold neither nanoseconds nor the years past 2038.
fn comparable(tree: Tree, line: &Line) -> Tree {
    if line.view == View::Seconds { tree.filter(|p| !p.starts_with("times")) } else { tree }
}

#[track_caller]
fn copy(from: &Path, to: &Path) {
    let source = format!("{}/", from.display());
    // The window: without it rsync leaves times be that agree to the second.
    run(tool("rsync")
        .args(["-aHAX", "--modify-window=-1", "--exclude=/lost+found", &source])
        .arg(to));
}

#[track_caller]
fn check(line: Line) {
    if peer_is_kernel() && !line.kernel {
        return;
    }
    let scratch = Scratch::new();
    let original = reference::mount(&scratch, files(&line));
    let want = comparable(Tree::read(original.path()), &line);
    assert!(want.len() > files(&line));

    written_by_uext4(&scratch, &line, original.path(), &want);
    if line.kernel {
        written_by_the_kernel(&scratch, &line, original.path(), &want);
    } else {
        written_by_mke2fs(&scratch, &line, original.path(), &want);
    }
}

#[track_caller]
fn written_by_uext4(scratch: &Scratch, line: &Line, original: &Path, want: &Tree) {
    let image = scratch.mkfs("ours.img", scaled("1G", "4G"), line.mkfs);
    let mount = scratch.mount(Fs::Uext4, &image, "");
    copy(original, mount.path());
    let live = comparable(Tree::read(mount.path()), line);
    live.assert_matches(want, line.view, "just copied");
    mount.umount();
    image.fsck();
    assert!(!image.needs_recovery(), "the journal is not empty after umount");

    let ours = scratch.read(Fs::Uext4, &image);
    if line.kernel {
        let theirs = scratch.read(Fs::Kernel, &image);
        comparable(theirs.clone(), line).assert_matches(want, line.view, "read by the kernel");
        ours.assert_matches(&theirs, View::Same, "what uext4 reads of what the kernel reads");
    } else {
        comparable(ours, line).assert_matches(want, line.view, "read again");
        extracted(scratch, &image, want);
    }
    remove_half(scratch, &image);
}

/// debugfs is the oracle where the kernel cannot mount.
#[track_caller]
fn extracted(scratch: &Scratch, image: &Image, want: &Tree) {
    let out = scratch.join("extracted");
    std::fs::create_dir(&out).unwrap();
    for folder in ["real", "contents"] {
        image.debugfs(&format!("rdump /{folder} {}", out.display()));
        let got = Tree::read(&out.join(folder));
        let mut want = want.clone().filter(|p| p.starts_with(folder));
        let at_root = |p: &Path| match p.strip_prefix(folder).unwrap() {
            p if p.as_os_str().is_empty() => Path::new(".").to_path_buf(),
            p => p.to_path_buf(),
        };
        want.0 = want.0.into_iter().map(|(p, e)| (at_root(&p), e)).collect();
        got.assert_matches(&want, View::Extracted, "extracted by debugfs");
    }
    std::fs::remove_dir_all(out).unwrap();
}

#[track_caller]
fn written_by_the_kernel(scratch: &Scratch, line: &Line, original: &Path, want: &Tree) {
    let image = scratch.mkfs("theirs.img", scaled("1G", "4G"), line.mkfs);
    let mount = scratch.mount(Fs::Kernel, &image, "");
    copy(original, mount.path());
    mount.umount();
    let theirs = scratch.read(Fs::Kernel, &image);
    let before = image.digest();
    let ours = scratch.read(Fs::Uext4, &image);
    assert_eq!(image.digest(), before, "a read-only mount wrote to the image");
    ours.assert_matches(&theirs, View::Same, "what uext4 reads of what the kernel wrote");
    comparable(ours, line).assert_matches(want, line.view, "the kernel's copy");
    remove_half(scratch, &image);
}

/// `mke2fs -d` fills what the kernel cannot mount.
#[track_caller]
fn written_by_mke2fs(scratch: &Scratch, line: &Line, original: &Path, want: &Tree) {
    let from = scratch.join("from");
    std::fs::create_dir(&from).unwrap();
    copy(&original.join("contents"), &from);
    let args = [line.mkfs, &["-d", from.to_str().unwrap()]].concat();
    let image = scratch.mkfs("theirs.img", "1G", &args);
    let ours = scratch.read(Fs::Uext4, &image);
    let mut want = want.clone().filter(|p| p.starts_with("contents"));
    want.0 = want
        .0
        .into_iter()
        .filter_map(|(p, e)| Some((p.strip_prefix("contents").ok()?.to_path_buf(), e)))
        .filter(|(p, _)| !p.as_os_str().is_empty())
        .collect();
    let ours = ours.filter(|p| p != Path::new("."));
    ours.assert_matches(&want, View::Extracted, "what uext4 reads of what mke2fs wrote");
    remove_half(scratch, &image);
}

/// Removes part of a full file system and adds to the rest: both must leave it clean.
#[track_caller]
fn remove_half(scratch: &Scratch, image: &Image) {
    let mount = scratch.mount(Fs::Uext4, image, "");
    sh(
        mount.path(),
        "rm -rf real/usr/share names inodes attributes contents/many* contents/big
         for i in $(seq 200); do mkdir -p new/$i; echo $i > new/$i/file; done
         cat contents/* new/*/* > new/all 2>/dev/null || true
         mv new renamed",
    );
    let ours = Tree::read(mount.path());
    mount.umount();
    image.fsck();
    let again = scratch.read(Fs::Uext4, image);
    again.assert_matches(&ours, View::Copy, "after removals and a new mount");
}

macro_rules! lines {
    ($($name:ident $mkfs:expr $(, $field:ident: $value:expr)*;)*) => { $(
        #[test]
        fn $name() {
            check(Line { mkfs: &$mkfs $(, $field: $value)*, ..PLAIN });
        }
    )* };
}

lines! {
    defaults [];
    blocks_of_1k ["-b", "1024"];
    blocks_of_2k ["-b", "2048"];
    blocks_of_8k ["-b", "8192"], kernel: false;
    blocks_of_64k ["-b", "65536"], kernel: false;
    no_journal ["-O", "^has_journal"];
    ext2 ["-t", "ext2"];
    ext3 ["-t", "ext3"];
    ext2_of_1k_with_small_inodes ["-t", "ext2", "-b", "1024", "-I", "128"], view: View::Seconds;
    checksum_seed ["-O", "metadata_csum_seed"];
    orphan_file ["-O", "orphan_file"];
    no_checksums ["-O", "^metadata_csum"];
    descriptor_checksums ["-O", "^metadata_csum,uninit_bg"];
    no_64bit ["-O", "^64bit"];
    meta_bg ["-O", "meta_bg,^resize_inode"];
    no_resize_inode ["-O", "^resize_inode"];
    sparse_super2 ["-O", "sparse_super2,^resize_inode"];
    no_flex_bg ["-O", "^flex_bg"];
    no_extents ["-O", "^extent,^64bit"];
    no_dir_index ["-O", "^dir_index"];
    no_filetype ["-O", "^filetype,^metadata_csum,^dir_index"];
    no_huge_file ["-O", "^huge_file,^extra_isize,^dir_nlink"];
    large_dir ["-O", "large_dir", "-b", "1024"];
    ea_inode ["-O", "ea_inode"];
    inline_data ["-O", "inline_data"];
    inline_data_in_large_inodes ["-O", "inline_data", "-I", "1024"];
    inodes_of_128 ["-I", "128"], view: View::Seconds;
    inodes_of_512 ["-I", "512"];
    inodes_of_1024_in_1k ["-I", "1024", "-b", "1024"];
    fast_commit ["-O", "fast_commit"];
}
