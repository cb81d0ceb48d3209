//! Wrong input: one clear line on stderr, the exit code of mount(8), and an image that nobody
//! touched.

use crate::common::mount::{daemons, is_mounted};
use crate::common::{Fs, Image, Scratch, peer_is_kernel, run, tool, uext4};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;

const USAGE: i32 = 1;
const MOUNT_FAILURE: i32 = 32;

#[track_caller]
fn uext4_says(args: &[&str]) -> Output {
    tool("timeout").args(["-k", "5", "60"]).arg(uext4()).args(args).output().unwrap()
}

/// The command ends with this code and says one line in which each of `words` occurs.
#[track_caller]
fn refused(out: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "the exit code; it said: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "one line on stderr, not: {said:?}");
    assert!(out.stdout.is_empty(), "nothing on stdout");
    for word in words {
        let found = said.to_lowercase().contains(&word.to_lowercase());
        assert!(found, "{said:?} does not say {word:?}");
    }
}

/// A case with an image and a mount point at hand.
struct Bench {
    scratch: Scratch,
    image: PathBuf,
    point: PathBuf,
}

impl Bench {
    fn new(args: &[&str]) -> Bench {
        let scratch = Scratch::new();
        let image = scratch.mkfs("disk.img", "32M", args).path().to_path_buf();
        let point = scratch.join("mnt");
        fs::create_dir(&point).unwrap();
        Bench { scratch, image, point }
    }

    fn corrupt(&self, at: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(&self.image).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }

    /// `uext4 mount` with these options is refused, and the image is as it was.
    #[track_caller]
    fn refused(&self, options: &str, code: i32, words: &[&str]) {
        if peer_is_kernel() {
            return;
        }
        let before = fs::metadata(&self.image).is_ok().then(|| self.digest());
        let (image, point) = (self.image.to_str().unwrap(), self.point.to_str().unwrap());
        let out = match options {
            "" => uext4_says(&["mount", image, point]),
            options => uext4_says(&["mount", "-o", options, image, point]),
        };
        refused(&out, code, words);
        assert!(!is_mounted(&self.point), "it is mounted all the same");
        assert!(daemons(&self.image).is_empty(), "a daemon is left behind");
        assert_eq!(before, fs::metadata(&self.image).is_ok().then(|| self.digest()), "written to");
    }

    fn digest(&self) -> u64 {
        Image::existing(self.image.clone()).digest()
    }

    /// Sets a bit of a feature word in the superblock, by e2fsprogs, so that its checksum is right.
    fn set_feature_bit(&self, field: &str, bits: u32) {
        let request = format!("set_super_value {field} {bits:#x}");
        run(tool("debugfs").args(["-w", "-R", &request]).arg(&self.image));
    }
}

#[test]
fn no_such_file() {
    let mut b = Bench::new(&[]);
    b.image = b.scratch.join("absent.img");
    b.refused("", MOUNT_FAILURE, &["absent.img", "no such file"]);
}

#[test]
fn a_folder_in_place_of_an_image() {
    let mut b = Bench::new(&[]);
    b.image = b.scratch.join("folder");
    fs::create_dir(&b.image).unwrap();
    if !peer_is_kernel() {
        let out = uext4_says(&["mount", b.image.to_str().unwrap(), b.point.to_str().unwrap()]);
        refused(&out, MOUNT_FAILURE, &["folder"]);
    }
}

#[test]
fn not_ext4() {
    let b = Bench::new(&[]);
    fs::write(&b.image, vec![7; 1 << 20]).unwrap();
    b.refused("", MOUNT_FAILURE, &["disk.img", "magic"]);
}

#[test]
fn an_empty_file() {
    let b = Bench::new(&[]);
    fs::write(&b.image, []).unwrap();
    b.refused("", MOUNT_FAILURE, &["disk.img"]);
}

#[test]
fn another_file_system() {
    let b = Bench::new(&[]);
    fs::remove_file(&b.image).unwrap();
    run(tool("truncate").args(["-s", "400M"]).arg(&b.image));
    run(tool("mkfs.xfs").arg("-q").arg(&b.image));
    b.refused("", MOUNT_FAILURE, &["disk.img", "ext4"]);
}

#[test]
fn a_truncated_image() {
    let b = Bench::new(&[]);
    OpenOptions::new().write(true).open(&b.image).unwrap().set_len(9 << 20).unwrap();
    b.refused("", MOUNT_FAILURE, &["disk.img"]);
}

#[test]
fn cut_off_in_the_superblock() {
    let b = Bench::new(&[]);
    OpenOptions::new().write(true).open(&b.image).unwrap().set_len(1024 + 200).unwrap();
    b.refused("", MOUNT_FAILURE, &["disk.img"]);
}

#[test]
fn a_bad_superblock_checksum_and_its_backup() {
    let b = Bench::new(&["-b", "1024"]);
    b.corrupt(1024 + 0x78, b"broken name");
    b.refused("", MOUNT_FAILURE, &["superblock", "checksum", "sb="]);
    if peer_is_kernel() {
        return;
    }
    // 1k blocks: the first backup is block 8193.
    let image = Image::existing(b.image.clone());
    let before = b.digest();
    let mount = b.scratch.mount(Fs::Uext4, &image, "ro,sb=8193");
    assert!(mount.join("lost+found").is_dir());
    assert!(mount.log().contains("superblock at 8193 KiB (sb=)"), "{}", mount.log());
    mount.umount();
    assert_eq!(b.digest(), before, "a read-only mount wrote to the image");

    let mount = b.scratch.mount(Fs::Uext4, &image, "sb=8193");
    assert!(mount.log().contains("replaces the damaged primary"), "{}", mount.log());
    fs::write(mount.join("x"), "x").unwrap();
    mount.umount();
    image.fsck();
    let mount = b.scratch.mount(Fs::Uext4, &image, "sb=8193");
    assert!(mount.join("x").exists());
    mount.umount();
    image.fsck();
}

/// The backup is asked for in the unit of ext4(5), whatever the block size.
#[test]
fn a_lost_superblock_and_its_backup() {
    let b = Bench::new(&["-b", "4096", "-g", "1024"]);
    b.corrupt(1024, &[0; 1024]);
    b.refused("", MOUNT_FAILURE, &["disk.img", "magic"]);
    b.refused("sb=4097", MOUNT_FAILURE, &["superblock at 4097 KiB", "magic"]);
    if peer_is_kernel() {
        return;
    }
    let image = Image::existing(b.image.clone());
    b.scratch.mount(Fs::Uext4, &image, "sb=4096").umount();
    image.fsck();
}

#[test]
fn a_backup_superblock_that_is_none() {
    let b = Bench::new(&[]);
    b.refused("sb=3", MOUNT_FAILURE, &["disk.img", "magic"]);
}

#[test]
fn a_read_only_image_to_be_written() {
    let b = Bench::new(&[]);
    run(tool("chattr").arg("+i").arg(&b.image));
    let out = peer_is_kernel() || {
        b.refused("rw", MOUNT_FAILURE, &["disk.img"]);
        true
    };
    run(tool("chattr").arg("-i").arg(&b.image));
    assert!(out);
}

#[test]
fn no_mount_point() {
    let mut b = Bench::new(&[]);
    b.point = b.scratch.join("nowhere");
    b.refused("", MOUNT_FAILURE, &["nowhere", "no such file"]);
}

#[test]
fn a_mount_point_that_is_a_file() {
    let mut b = Bench::new(&[]);
    b.point = b.scratch.join("file");
    fs::write(&b.point, "x").unwrap();
    b.refused("", MOUNT_FAILURE, &["file", "not a directory"]);
}

#[test]
fn a_mount_point_with_something_in_it() {
    let b = Bench::new(&[]);
    fs::write(b.point.join("precious"), "x").unwrap();
    b.refused("", MOUNT_FAILURE, &["mnt", "not empty"]);
}

#[test]
fn unknown_options_and_values() {
    let b = Bench::new(&[]);
    b.refused("frobnicate", USAGE, &["frobnicate"]);
    b.refused("rw,frob=7", USAGE, &["frob"]);
    b.refused("data=sideways", USAGE, &["data", "sideways"]);
    b.refused("commit=soon", USAGE, &["commit", "soon"]);
    b.refused("commit=-5", USAGE, &["commit"]);
    b.refused("stripe=99999999999999999999", USAGE, &["stripe"]);
    b.refused("offset=", USAGE, &["offset"]);
}

#[test]
fn an_offset_that_is_not_in_the_file() {
    let b = Bench::new(&[]);
    b.refused("offset=1099511627776", MOUNT_FAILURE, &["disk.img"]);
    b.refused("offset=8192", MOUNT_FAILURE, &["disk.img"]);
}

#[test]
fn wrong_command_lines() {
    if peer_is_kernel() {
        return;
    }
    let b = Bench::new(&[]);
    let image = b.image.to_str().unwrap();
    let point = b.point.to_str().unwrap();
    let lines: &[&[&str]] =
        &[&["mount"], &["mount", image], &["umount"], &["mount", image, point, "more"]];
    for line in lines {
        let out = uext4_says(line);
        assert_eq!(out.status.code(), Some(USAGE), "{line:?}: {out:?}");
        assert!(!out.stderr.is_empty());
    }
    refused(&uext4_says(&["umount", point]), MOUNT_FAILURE, &["mnt", "not mounted"]);
    refused(&uext4_says(&["umount", "/nonexistent"]), MOUNT_FAILURE, &["/nonexistent"]);
}

#[test]
fn unknown_features() {
    // ext4 has never used these bits.
    let b = Bench::new(&[]);
    b.set_feature_bit("feature_incompat", 0x4000_02c2);
    b.refused("", MOUNT_FAILURE, &["disk.img", "FEATURE_I30"]);
    b.refused("ro", MOUNT_FAILURE, &["disk.img", "FEATURE_I30"]);
}

#[test]
fn an_unknown_read_only_feature_mounts_read_only() {
    if peer_is_kernel() {
        return;
    }
    let b = Bench::new(&["-O", "^metadata_csum"]);
    let word = 0x4000_006b;
    b.set_feature_bit("feature_ro_compat", word);
    let before = b.digest();
    let image = Image::existing(b.image.clone());
    let mount = b.scratch.mount(Fs::Uext4, &image, "");
    assert!(mount.join("lost+found").is_dir());
    assert!(mount.log().contains("FEATURE_R30"), "the log names the bit: {}", mount.log());
    let refused = fs::write(mount.join("x"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    mount.umount();
    assert_eq!(b.digest(), before, "a read-only mount wrote to the image");
}

/// A feature that is not there yet is named, and refused or mounted read-only.
#[track_caller]
fn not_yet(args: &[&str], name: &str) {
    if peer_is_kernel() {
        return;
    }
    let b = Bench::new(args);
    let before = b.digest();
    let (image, point) = (b.image.to_str().unwrap(), b.point.to_str().unwrap());
    let out = uext4_says(&["mount", image, point]);
    let said = String::from_utf8_lossy(&out.stderr).to_lowercase();
    assert!(said.contains(name), "{said:?} does not name {name}");
    if out.status.success() {
        assert_eq!(said.trim_end().lines().count(), 1, "one line on stderr, not: {said:?}");
        let names: Vec<_> =
            fs::read_dir(&b.point).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["lost+found"]);
        let refused = fs::write(b.point.join("x"), "x").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS), "{name} is not mounted read-only");
        let ended = uext4_says(&["umount", point]);
        assert!(ended.status.success(), "{ended:?}");
    } else {
        refused(&out, MOUNT_FAILURE, &[name]);
    }
    assert_eq!(b.digest(), before);
}

#[test]
fn quota() {
    not_yet(&["-O", "quota"], "quota");
}

#[test]
fn project() {
    not_yet(&["-O", "quota,project"], "project");
}

#[test]
fn bigalloc() {
    not_yet(&["-O", "bigalloc"], "bigalloc");
}

#[test]
fn casefold() {
    not_yet(&["-O", "casefold"], "casefold");
}

/// The feature alone changes nothing; a file that has it is another matter.
#[track_caller]
fn harmless(args: &[&str]) {
    if peer_is_kernel() {
        return;
    }
    let b = Bench::new(args);
    let image = Image::existing(b.image.clone());
    let mount = b.scratch.mount(Fs::Uext4, &image, "");
    fs::write(mount.join("x"), "x").unwrap();
    mount.umount();
    image.fsck();
}

#[test]
fn encrypt_without_encrypted_files() {
    harmless(&["-O", "encrypt"]);
}

#[test]
fn verity_without_verity_files() {
    harmless(&["-O", "verity"]);
}

/// Multi-mount protection: the sequence number in its block.
struct Mmp {
    bench: Bench,
    at: u64,
}

impl Mmp {
    const CLEAN: u32 = 0xff4d_4d50;

    /// Checksums off, so that the number can be set.
    fn new() -> Mmp {
        let bench = Bench::new(&["-b", "4096", "-O", "mmp,^metadata_csum"]);
        let block = Image::existing(bench.image.clone()).header("MMP block number");
        Mmp { bench, at: block.parse::<u64>().unwrap() * 4096 + 4 }
    }

    fn set(&self, seq: u32) {
        self.bench.corrupt(self.at, &seq.to_le_bytes());
    }

    fn seq(&self) -> u32 {
        let mut b = [0; 4];
        fs::File::open(&self.bench.image).unwrap().read_exact_at(&mut b, self.at).unwrap();
        u32::from_le_bytes(b)
    }
}

#[test]
fn mmp_is_taken_and_given_back() {
    harmless(&["-O", "mmp"]);
    if peer_is_kernel() {
        return;
    }
    let m = Mmp::new();
    let image = Image::existing(m.bench.image.clone());
    let mount = m.bench.scratch.mount(Fs::Uext4, &image, "");
    let first = m.seq();
    assert_ne!(first, Mmp::CLEAN, "mounted, and others cannot see it");
    std::thread::sleep(std::time::Duration::from_secs(7));
    assert_ne!(m.seq(), first, "it is not kept up to date");
    fs::write(mount.join("x"), "x").unwrap();
    mount.umount();
    assert_eq!(m.seq(), Mmp::CLEAN);
    image.fsck();
    m.bench.scratch.mount(Fs::Kernel, &image, "").umount();
}

#[test]
fn mmp_held_by_e2fsck() {
    let m = Mmp::new();
    m.set(0xe24d_4d50);
    m.bench.refused("", MOUNT_FAILURE, &["disk.img", "mmp", "e2fsck"]);
    m.set(0);
    m.bench.refused("", MOUNT_FAILURE, &["disk.img", "mmp"]);
}

/// Another host that has it mounted.
#[test]
fn mmp_held_by_another_host() {
    if peer_is_kernel() {
        return;
    }
    let m = Mmp::new();
    m.set(7);
    let (image, point) = (m.bench.image.to_str().unwrap(), m.bench.point.to_str().unwrap());
    let out = std::thread::scope(|s| {
        let mounting = s.spawn(|| uext4_says(&["mount", image, point]));
        let mut seq = 7;
        while !mounting.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(500));
            seq += 1;
            m.set(seq);
        }
        assert_eq!(m.seq(), seq, "somebody else's block was written");
        mounting.join().unwrap()
    });
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(MOUNT_FAILURE), "{said}");
    assert!(said.contains("mmp block: another host"), "{said}");
    assert!(!is_mounted(&m.bench.point));
    // To read is free.
    let image = Image::existing(m.bench.image.clone());
    m.bench.scratch.mount(Fs::Uext4, &image, "ro").umount();
}

/// After a crash the number stands still.
#[test]
fn mmp_left_by_a_crash() {
    if peer_is_kernel() {
        return;
    }
    let m = Mmp::new();
    let image = Image::existing(m.bench.image.clone());
    m.bench.scratch.mount(Fs::Uext4, &image, "").kill();
    assert_ne!(m.seq(), Mmp::CLEAN);
    m.bench.scratch.mount(Fs::Uext4, &image, "").umount();
    assert_eq!(m.seq(), Mmp::CLEAN);
    image.fsck();
}

#[test]
fn an_external_journal() {
    if peer_is_kernel() {
        return;
    }
    let b = Bench::new(&["-O", "^has_journal"]);
    // journal_dev: the device that holds somebody else's journal.
    let journal = b.scratch.mkfs("journal.img", "16M", &["-O", "journal_dev"]);
    let (path, point) = (journal.path().to_str().unwrap(), b.point.to_str().unwrap());
    refused(&uext4_says(&["mount", path, point]), MOUNT_FAILURE, &["journal"]);
    // A file system whose journal is elsewhere.
    b.set_feature_bit("feature_compat", 0x3c);
    b.set_feature_bit("journal_dev", 0x700);
    b.refused("", MOUNT_FAILURE, &["external journal"]);
}

#[test]
fn one_image_one_writer() {
    if peer_is_kernel() {
        return;
    }
    let b = Bench::new(&[]);
    let image = Image::existing(b.image.clone());
    let first = b.scratch.mount(Fs::Uext4, &image, "");
    let (path, point) = (b.image.to_str().unwrap(), b.point.to_str().unwrap());
    refused(&uext4_says(&["mount", path, point]), MOUNT_FAILURE, &["disk.img", "in use"]);
    fs::write(first.join("still"), "works").unwrap();
    first.umount();
    image.fsck();

    let kernel = b.scratch.mount(Fs::Kernel, &image, "");
    let device = run(tool("findmnt").args(["-no", "SOURCE"]).arg(kernel.path()));
    let out = uext4_says(&["mount", device.trim(), point]);
    refused(&out, MOUNT_FAILURE, &[device.trim(), "in use"]);
    kernel.umount();
    image.fsck();
}

#[test]
fn an_image_behind_a_loop_device_of_the_kernel() {
    let b = Bench::new(&[]);
    let image = Image::existing(b.image.clone());
    let kernel = b.scratch.mount(Fs::Kernel, &image, "");
    if !peer_is_kernel() {
        let (path, point) = (b.image.to_str().unwrap(), b.point.to_str().unwrap());
        refused(
            &uext4_says(&["mount", path, point]),
            MOUNT_FAILURE,
            &["disk.img", "mounted by the kernel"],
        );
    }
    kernel.umount();
    image.fsck();
}

/// The same bytes by two names: the image and a loop device over it.
#[test]
fn an_image_and_its_loop_device_at_once() {
    if peer_is_kernel() {
        return;
    }
    let b = Bench::new(&[]);
    let device = run(tool("losetup").args(["-f", "--show"]).arg(&b.image)).trim().to_string();
    let other = b.scratch.join("other");
    fs::create_dir(&other).unwrap();
    let (image, point) = (b.image.to_str().unwrap(), b.point.to_str().unwrap());
    for (first, second) in [(image, device.as_str()), (device.as_str(), image)] {
        let mounted = uext4_says(&["mount", first, point]);
        assert!(mounted.status.success(), "{mounted:?}");
        let out = uext4_says(&["mount", second, other.to_str().unwrap()]);
        refused(&out, MOUNT_FAILURE, &[second, "in use"]);
        assert!(uext4_says(&["umount", point]).status.success());
    }
    // Mounted by the kernel where our mount table does not show it.
    let script = format!(
        "mount {device} {point} && {} mount {image} {}",
        uext4().display(),
        other.display()
    );
    let out = tool("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    refused(&out, MOUNT_FAILURE, &["disk.img", "mounted by the kernel"]);
    let script = format!("mount {device} {point} && echo ready && read line");
    let mut elsewhere = tool("unshare")
        .args(["-m", "sh", "-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read_exact(elsewhere.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
    refused(
        &uext4_says(&["mount", image, point]),
        MOUNT_FAILURE,
        &["disk.img", "in use by the kernel"],
    );
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    run(tool("losetup").args(["-d", &device]));
    Image::existing(b.image.clone()).fsck();
}

/// Remounting for writing what was opened for reading only.
#[test]
fn a_read_only_mount_stays_so() {
    if peer_is_kernel() {
        return;
    }
    let b = Bench::new(&[]);
    let before = b.digest();
    let image = Image::existing(b.image.clone());
    let mount = b.scratch.mount(Fs::Uext4, &image, "ro");
    let point = mount.path().to_str().unwrap().to_string();
    let out = uext4_says(&["mount", "-o", "remount,rw", &point]);
    refused(&out, MOUNT_FAILURE, &["mounted read-only"]);
    assert!(fs::write(mount.join("x"), "x").is_err());
    mount.umount();
    assert_eq!(b.digest(), before);
}

/// Somebody who may not read the image, and somebody who may read but not write it.
#[test]
fn no_permission() {
    if peer_is_kernel() {
        return;
    }
    let b = Bench::new(&[]);
    let uext4 = b.scratch.join("uext4");
    fs::copy(uext4_path(), &uext4).unwrap();
    for (path, mode) in [(b.scratch.path(), 0o755), (&b.point, 0o777), (&uext4, 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for mode in [0o600, 0o644] {
        fs::set_permissions(&b.image, fs::Permissions::from_mode(mode)).unwrap();
        let before = b.digest();
        let out = tool("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "timeout", "60"])
            .arg(&uext4)
            .args(["mount", "-o", "rw"])
            .args([&b.image, &b.point])
            .output()
            .unwrap();
        refused(&out, MOUNT_FAILURE, &["disk.img", "permission denied"]);
        assert_eq!(b.digest(), before);
    }
}

fn uext4_path() -> &'static Path {
    uext4()
}

#[test]
fn version_and_help_are_no_errors() {
    if peer_is_kernel() {
        return;
    }
    for (args, word) in [
        (&["--version"][..], env!("CARGO_PKG_VERSION")),
        (&["--help"][..], "mount"),
        (&["mount", "-o", "help"][..], "dioread_nolock"),
    ] {
        let out = uext4_says(args);
        assert!(out.status.success(), "{args:?}: {out:?}");
        assert!(String::from_utf8_lossy(&out.stdout).contains(word), "{args:?}: {out:?}");
    }
}
