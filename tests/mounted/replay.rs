//! A journal that one of the two left behind, replayed by both: they must agree on every byte,
//! on every orphan and on every free block.

use crate::common::mount::{self, Shutdown};
use crate::common::{Fs, Image, Mount, Random, Scratch, Tree, View, peer_is_kernel, sh, tool};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Names, attributes, orphans open and truncated: all in the log, little of it at home.
fn dirty(root: &Path) -> Vec<File> {
    let mut random = Random::new(5);
    for i in 0..300 {
        fs::write(root.join(format!("file{i}")), random.bytes(i * 40)).unwrap();
    }
    sh(
        root,
        "mkdir -p a/b/c d
         for i in $(seq 100); do echo $i > a/b/f$i; ln a/b/f$i d/l$i; done
         setfattr -n user.x -v y file1 file2 file3; setfacl -m u:5:rw file4
         ln -s somewhere s; ln -s $(printf 'x%.0s' $(seq 300)) long; mknod p p
         rm a/b/f1*; mv a/b/c d/moved; mv file9 a/renamed; mv file8 file7
         chmod 600 file5; chown 7:8 file6; truncate -s 100 file20; truncate -s 1M file21
         fallocate -l 300k pre && fallocate -p -o 4096 -l 8192 pre || true
         seq 20000 > big; sync; seq 5 > big; rmdir d/moved",
    );
    // Open and unlinked when the lights go out.
    let mut open = Vec::new();
    for i in 0..30u64 {
        let path = root.join(format!("orphan{i}"));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(&random.bytes(3000 * i as usize), 4096 * i).unwrap();
        if i % 3 != 0 {
            file.sync_all().unwrap();
        }
        fs::remove_file(&path).unwrap();
        open.push(file);
    }
    let dir = File::open(root).unwrap();
    fs::write(root.join("last"), "last").unwrap();
    File::open(root.join("last")).unwrap().sync_all().unwrap();
    dir.sync_all().unwrap();
    open
}

/// Both replay their copy; then both images are clean and hold the same.
#[track_caller]
fn both_replay(scratch: &Scratch, image: &Image) {
    both_replay_but(scratch, image, |_| true, false);
}

#[track_caller]
fn both_replay_but(scratch: &Scratch, image: &Image, compared: fn(&Path) -> bool, mend: bool) {
    assert!(image.needs_recovery(), "there is nothing to replay");
    let (ours, theirs) = (image.copy("ours"), image.copy("theirs"));

    // Read-only first: shows the replayed state, and writes nothing.
    if !peer_is_kernel() {
        let before = ours.digest();
        let peek = scratch.mount(Fs::Uext4, &ours, "ro");
        assert_eq!(fs::read_to_string(peek.join("last")).unwrap(), "last");
        peek.umount();
        assert_eq!(ours.digest(), before, "a read-only mount of a dirty image wrote to it");
    }

    scratch.mount(Fs::Uext4, &ours, "").umount();
    scratch.mount(Fs::Kernel, &theirs, "").umount();
    ours.fsck();
    if mend {
        let _ = tool("e2fsck").arg("-fy").arg(theirs.path()).output().unwrap();
    }
    theirs.fsck();
    assert!(!ours.needs_recovery());
    for field in ["Free blocks", "Free inodes"] {
        assert_eq!(ours.header(field), theirs.header(field), "{field}");
    }
    let read = |fs, image| scratch.read(fs, image).filter(compared);
    let (a, b) = (read(Fs::Kernel, &ours), read(Fs::Kernel, &theirs));
    a.assert_matches(&b, View::Same, "replayed by uext4, against replayed by the kernel");
    let c = read(Fs::Uext4, &theirs);
    c.assert_matches(&b, View::Same, "read by uext4, against read by the kernel");
}

#[track_caller]
fn left_by_the_kernel(args: &[&str], how: Shutdown) {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", args);
    let mount = scratch.mount(Fs::Kernel, &image, "");
    let open = dirty(mount.path());
    mount::shutdown(mount.path(), how);
    drop(open);
    mount.umount();
    both_replay(&scratch, &image);
}

#[track_caller]
fn left_by_uext4(args: &[&str], options: &str, end: fn(Mount)) {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", args);
    let mount = scratch.mount(Fs::Uext4, &image, options);
    let open = dirty(mount.path());
    end(mount);
    drop(open);
    both_replay(&scratch, &image);
}

macro_rules! kinds {
    ($($name:ident $mkfs:expr;)*) => { $( mod $name {
        use super::*;

        #[test]
        fn left_by_the_kernel_with_its_log() {
            left_by_the_kernel(&$mkfs, Shutdown::LogFlush);
        }

        #[test]
        fn left_by_the_kernel_at_once() {
            left_by_the_kernel(&$mkfs, Shutdown::NoFlush);
        }

        #[test]
        fn left_by_a_killed_daemon() {
            left_by_uext4(&$mkfs, "", Mount::kill);
        }
    } )* };
}

kinds! {
    defaults [];
    blocks_of_1k ["-b", "1024"];
    orphan_file ["-O", "orphan_file"];
    no_checksums ["-O", "^metadata_csum"];
    no_64bit_no_checksums ["-O", "^64bit,^metadata_csum"];
    ext3 ["-t", "ext3"];
    small_journal ["-J", "size=1", "-b", "1024"];
    inline_data ["-O", "inline_data,ea_inode"];
}

#[test]
fn data_journal_left_by_a_killed_daemon() {
    left_by_uext4(&[], "data=journal", Mount::kill);
}

#[test]
fn left_by_the_shutdown_ioctl_of_uext4() {
    left_by_uext4(&[], "", |mount| {
        mount::shutdown(mount.path(), Shutdown::NoFlush);
        let refused = fs::write(mount.join("after"), "x").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EIO), "a write after the shutdown");
        let refused = fs::read(mount.join("last")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EIO), "a read after the shutdown");
        let refused = File::open(mount.path()).and_then(|d| d.sync_all()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EIO), "an fsync after the shutdown");
        let refused = fs::set_permissions(mount.join("last"), PermissionsExt::from_mode(0o600));
        assert_eq!(
            refused.unwrap_err().raw_os_error(),
            Some(libc::EIO),
            "chmod after the shutdown"
        );
        mount.kill();
    });
}

/// What the kernel journalled as fast commits is replayed too.
#[test]
fn fast_commits_left_by_the_kernel() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "128M", &["-O", "fast_commit"]);
    let mount = scratch.mount(Fs::Kernel, &image, "");
    let root = mount.path();
    let open = dirty(root);
    for i in 0..50 {
        let path = root.join(format!("fast{i}"));
        fs::write(&path, vec![i as u8; 500 * i]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        if i % 3 == 0 {
            fs::rename(&path, root.join(format!("fast-renamed{i}"))).unwrap();
        }
        if i % 5 == 0 {
            fs::hard_link(root.join("last"), root.join(format!("fast-link{i}"))).unwrap();
        }
        if i % 7 == 0 {
            fs::remove_file(root.join(format!("file{}", 100 + i))).unwrap();
        }
    }
    let appended = OpenOptions::new().append(true).open(root.join("big")).unwrap();
    std::io::Write::write_all(&mut &appended, &[b'z'; 100_000]).unwrap();
    appended.sync_all().unwrap();
    mount::shutdown(root, Shutdown::NoFlush);
    drop(open);
    drop(appended);
    mount.umount();
    // A fast commit holds no times of folders: replay makes them new. And the kernel's replay does not
    // count the block by which a folder grows: e2fsck mends that.
    both_replay_but(&scratch, &image, |p| p != Path::new("."), true);
}

/// A log that has gone round several times.
#[test]
fn a_wrapped_log() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", &["-J", "size=4"]);
    let mount = scratch.mount(Fs::Kernel, &image, "commit=1");
    sh(
        mount.path(),
        "for r in $(seq 30); do mkdir d$r; for i in $(seq 60); do echo $i > d$r/$i; done
         sync; [ $r -lt 6 ] || rm -r d$((r - 5)); done",
    );
    let open = dirty(mount.path());
    mount::shutdown(mount.path(), Shutdown::LogFlush);
    drop(open);
    mount.umount();
    both_replay(&scratch, &image);
}

/// Each kind of change that the kernel logs as a fast commit, by itself: after the replay everything is
/// as the kernel last showed it, and clean (which the kernel's own replay of the folders is not).
#[test]
fn fast_commits_of_each_kind() {
    if peer_is_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.mkfs("kinds", "64M", &["-b", "4096", "-O", "fast_commit"]);
    let before = {
        let mount = scratch.mount(Fs::Kernel, &image, "");
        sh(
            mount.path(),
            "mkdir d e; for i in $(seq 20); do echo $i > d/$i; done; seq 200000 > big; sync",
        );
        mount.umount();
        image.copy("before")
    };
    for change in [
        "mkdir nd",
        "mkdir nd; echo a > nd/f; ln nd/f nd/g; mkdir nd/nd; sync nd/f",
        "rmdir e",
        "mv d/5 d/6; mv d/7 e/7; rm d/8; ln d/9 e/9",
        "truncate -s 10000 big",
        "truncate -s 0 big; echo new >> big; sync big",
        "fallocate -p -o 8192 -l 40960 big; sync big",
        "for i in $(seq 0 2 400); do printf $i | dd of=many bs=4096 seek=$i conv=notrunc status=none; done
         sync many",
        "rm big; seq 100000 > big2; sync big2",
        "fallocate -l 2M pre; sync pre; printf x | dd of=pre bs=4096 seek=10 conv=notrunc; sync pre",
    ] {
        let image = before.copy("kinds");
        let mount = scratch.mount(Fs::Kernel, &image, "");
        sh(mount.path(), change);
        fs::write(mount.join("d/20"), "last").unwrap();
        let last = File::open(mount.join("d/20")).unwrap();
        last.sync_all().unwrap();
        drop(last);
        let want = shape(Tree::read(mount.path()));
        mount::shutdown(mount.path(), Shutdown::NoFlush);
        mount.umount();
        let peek = scratch.mount(Fs::Uext4, &image, "ro");
        assert_eq!(shape(Tree::read(peek.path())), want, "{change}: read-only");
        peek.umount();
        scratch.mount(Fs::Uext4, &image, "").umount();
        image.fsck();
        assert_eq!(shape(scratch.read(Fs::Kernel, &image)), want, "{change}");
    }
}

/// What is there, without times and blocks.
fn shape(tree: Tree) -> Vec<String> {
    let line = |(p, e): (PathBuf, crate::common::tree::Entry)| {
        format!("{} {:o} {} {} {:x}", p.display(), e.mode, e.nlink, e.size, e.content)
    };
    tree.0.into_iter().map(line).collect()
}

/// An image with fast commits that the kernel left, and where their area lies in it.
fn with_fast_commits(scratch: &Scratch) -> (Image, u64, usize) {
    let image = scratch.mkfs("fc", "64M", &["-b", "4096", "-O", "fast_commit"]);
    let mount = scratch.mount(Fs::Kernel, &image, "");
    let root = mount.path();
    fs::write(root.join("last"), "last").unwrap();
    sh(root, "mkdir d; for i in $(seq 20); do echo $i > d/$i; done; sync");
    for i in 1..12 {
        let path = root.join(format!("d/new{i}"));
        fs::write(&path, vec![i as u8; 5000 * i]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        fs::rename(root.join(format!("d/{i}")), root.join(format!("renamed{i}"))).unwrap();
        fs::remove_file(root.join(format!("d/{}", i + 12))).ok();
    }
    mount::shutdown(root, Shutdown::NoFlush);
    mount.umount();
    let block = |n: u32| {
        let text = image.debugfs(&format!("bmap <8> {n}"));
        text.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    let mut head = [0; 256];
    let file = File::open(image.path()).unwrap();
    file.read_exact_at(&mut head, block(0) * 4096).unwrap();
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    let blocks = if word(0x54) == 0 { 256 } else { word(0x54) };
    let first = block(word(0x10) - blocks + 1);
    (image, first * 4096, 16 * 4096)
}

/// Records that are torn or garbled end the replay; ones that lie under a right checksum are refused,
/// or do what they say: no panic, no hang.
#[test]
fn garbled_fast_commits() {
    if peer_is_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let (image, at, len) = with_fast_commits(&scratch);
    let mut area = vec![0; len];
    File::open(image.path()).unwrap().read_exact_at(&mut area, at).unwrap();
    let records = records(&area);
    assert!(records.len() > 30, "{} records: the kernel left no fast commits", records.len());
    let mut random = Random::new(11);
    let attempt = |area: &[u8], must_mount: bool| {
        let copy = image.copy("garbled");
        let file = OpenOptions::new().write(true).open(copy.path()).unwrap();
        file.write_all_at(area, at).unwrap();
        let point = scratch.join("garbled.mnt");
        let _ = fs::create_dir(&point);
        match Mount::attempt(Fs::Uext4, copy.path(), &point, "") {
            Ok(mount) => {
                // Walked, whatever is in it.
                sh(mount.path(), "find . -exec stat {} + >/dev/null 2>&1 || true");
                mount.umount();
                if must_mount {
                    copy.fsck();
                }
            }
            Err(said) => {
                assert!(!must_mount, "{said}");
                assert!(said.contains("exit status: 32"), "{said}");
                assert_eq!(said.trim_end().lines().count(), 1, "{said}");
            }
        }
    };
    // Torn: nothing from some byte on; old bytes of another area.
    for _ in 0..6 {
        let mut torn = area.clone();
        torn[random.below(len as u64) as usize..].fill(0);
        attempt(&torn, true);
        let mut flipped = area.clone();
        let (from, size) = records[random.below(records.len() as u64) as usize];
        flipped[from + random.below(size as u64) as usize] ^= 1 << random.below(8);
        attempt(&flipped, true);
    }
    // Lies: a byte of a record changed, and its checksum made right.
    for _ in 0..30 {
        let mut lying = area.clone();
        let (from, size) = records[random.below(records.len() as u64) as usize];
        if size <= 4 || lying[from] >= 8 {
            continue;
        }
        lying[from + 4 + random.below(size as u64 - 4) as usize] = random.below(256) as u8;
        seal(&mut lying);
        attempt(&lying, false);
    }
}

/// Where the records of an area begin, and their bytes.
fn records(area: &[u8]) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    for block in (0..area.len()).step_by(4096) {
        let mut at = block;
        while at + 4 <= block + 4096 {
            let half = |i: usize| u16::from_le_bytes([area[i], area[i + 1]]);
            let size = 4 + half(at + 2) as usize;
            if !(1..=9).contains(&half(at)) || at + size > block + 4096 {
                return out;
            }
            out.push((at, size));
            at += size;
        }
    }
    out
}

/// Makes the checksums of all tails right.
fn seal(area: &mut [u8]) {
    let raw = |crc: u32, b: &[u8]| !crc32c::crc32c_append(!crc, b);
    let mut sum = 0;
    for (at, size) in records(area) {
        if area[at] == 8 {
            sum = raw(sum, &area[at..at + 8]);
            area[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
            sum = 0;
        } else {
            sum = raw(sum, &area[at..at + size]);
        }
    }
}
