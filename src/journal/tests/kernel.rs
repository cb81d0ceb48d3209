//! The kernel's journal and ours: what it logged we replay as it does, what we logged it replays.

use super::image::{fsck, open_log, recover, superblock};
use crate::device::{BlockDevice, MemDevice};
use crate::journal::JournalOptions;
use crate::ondisk::Seal;
use crate::types::Block;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn run(cmd: &str, args: &[&str]) -> String {
    let out = Command::new(cmd).args(args).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{cmd} {args:?}: {said}");
    said
}

/// A mounted image; unmounted when dropped.
struct Mounted {
    dir: tempfile::TempDir,
    /// Not mount's own loop device: that one is read-only under a read-only mount, and the kernel
    /// then refuses to replay.
    loop_device: String,
}

impl Mounted {
    fn new(image: &Path, opts: &str) -> Mounted {
        let dir = tempfile::tempdir().unwrap();
        let said = run("losetup", &["--find", "--show", image.to_str().unwrap()]);
        let m = Mounted { dir, loop_device: said.trim().to_string() };
        run("mount", &["-t", "ext4", "-o", opts, &m.loop_device, m.dir.path().to_str().unwrap()]);
        m
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// FS_IOC_SHUTDOWN with EXT4_GOING_FLAGS_LOGFLUSH: the log is written, nothing goes home.
    fn shut_down(&self) {
        let program = "import fcntl,os,struct,sys; \
            fcntl.ioctl(os.open(sys.argv[1],0), 0x8004587d, struct.pack('I',1))";
        run("python3", &["-c", program, self.dir.path().to_str().unwrap()]);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.dir.path()).output();
        run("losetup", &["--detach", &self.loop_device]);
    }
}

fn mkfs_file(mib: u64, args: &[&str]) -> tempfile::NamedTempFile {
    let f = tempfile::NamedTempFile::new().unwrap();
    f.as_file().set_len(mib << 20).unwrap();
    let mut all = vec!["-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    all.extend(args);
    all.push(f.path().to_str().unwrap());
    run("mkfs.ext4", &all);
    f
}

/// Blocks that differ, but for the superblocks of file system and journal.
fn differing(a: &MemDevice, b: &MemDevice) -> Vec<u64> {
    let bs = superblock(a).block_size();
    let journal = super::image::log_map(Arc::new(a.snapshot())).locate(0).unwrap().0.0;
    let (mut x, mut y) = (vec![0; bs.bytes()], vec![0; bs.bytes()]);
    let skip = [1024 / bs.bytes64(), journal];
    (0..superblock(a).blocks_count())
        .filter(|n| !skip.contains(n))
        .filter(|n| {
            a.read_at(&mut x, n * bs.bytes64()).unwrap();
            b.read_at(&mut y, n * bs.bytes64()).unwrap();
            x != y
        })
        .collect()
}

#[test]
fn we_replay_what_the_kernel_logged_as_it_does() {
    for args in [
        &["-b", "1024", "-J", "size=1"][..],
        &["-b", "4096"],
        &["-b", "4096", "-O", "^metadata_csum,^64bit"],
        &["-b", "1024", "-O", "^metadata_csum", "-J", "size=1"],
        &["-b", "4096", "-O", "fast_commit"],
    ] {
        let image = mkfs_file(32, args);
        {
            let m = Mounted::new(image.path(), "data=ordered");
            for i in 0..60 {
                std::fs::create_dir(m.path(&format!("d{i}"))).unwrap();
                std::fs::write(m.path(&format!("d{i}/file")), vec![i as u8; 3000 + i * 100])
                    .unwrap();
            }
            run("sync", &["-f", m.path(".").to_str().unwrap()]);
            for i in (0..60).step_by(2) {
                std::fs::remove_dir_all(m.path(&format!("d{i}"))).unwrap();
            }
            run("sync", &["-f", m.path(".").to_str().unwrap()]);
            // Directory blocks just freed become file data.
            std::fs::write(m.path("big"), vec![0xc0; 1 << 20]).unwrap();
            m.shut_down();
        }
        let ours = Arc::new(MemDevice::load(image.path()).unwrap());
        assert!(superblock(&*ours).needs_recovery());
        let r = recover(ours.clone()).unwrap();
        assert!(r.transactions >= 2 && r.blocks > 10, "{args:?}: {r:?}");
        drop(Mounted::new(image.path(), "ro"));
        let kernel = MemDevice::load(image.path()).unwrap();
        assert_eq!(differing(&ours, &kernel), [0u64; 0], "{args:?}");
        let (code, said) = fsck(&ours, &["-fy"]);
        // The kernel logs the superblock's totals rarely, and counts them again at mount.
        let fixes = said.matches("? yes").count();
        let totals = said.matches("Free blocks count wrong (").count()
            + said.matches("Free inodes count wrong (").count();
        assert!(code <= 1 && fixes == totals, "{args:?}: {said}");
    }
}

#[test]
fn the_kernel_replays_what_we_logged() {
    for args in [
        &["-b", "1024", "-J", "size=1"][..],
        &["-b", "4096"],
        &["-b", "4096", "-O", "^metadata_csum,^64bit"],
        &["-b", "4096", "-O", "^metadata_csum"],
    ] {
        for async_commit in [false, true] {
            let image = mkfs_file(32, args);
            let dev = Arc::new(MemDevice::load(image.path()).unwrap());
            let bs = superblock(&*dev).block_size().bytes64();
            let free = superblock(&*dev).blocks_count() * 3 / 4;
            let opts = JournalOptions { async_commit, ..JournalOptions::default() };
            let (j, _) = open_log(dev.clone(), opts);
            for i in 0..30u32 {
                let mut h = j.start("fill", 120).unwrap();
                for b in 0..100u64 {
                    let block = Block(free + (b + u64::from(i) * 10) % 150);
                    h.create(block, &Seal::None, |d| {
                        // Some begin with the magic.
                        let v = if b % 5 == 0 { 0xc03b_3998 } else { i + 1 };
                        d.chunks_exact_mut(4).for_each(|c| c.copy_from_slice(&v.to_be_bytes()));
                    })
                    .unwrap();
                }
                if i == 28 {
                    for b in 0..20 {
                        h.forget(Block(free + b)).unwrap();
                    }
                }
                drop(h);
                j.commit_all().unwrap();
            }
            dev.write_at(&vec![9; 3 * bs as usize], (free + 5) * bs).unwrap();
            j.set_emergency_stop();
            dev.save(image.path()).unwrap();
            drop(Mounted::new(image.path(), "ro"));
            let kernel = MemDevice::load(image.path()).unwrap();
            recover(dev.clone()).unwrap();
            assert_eq!(differing(&dev, &kernel), [0u64; 0], "{args:?}");
            let (code, said) = fsck(&kernel, &["-fn"]);
            assert_eq!(code, 0, "{args:?}: {said}");
        }
    }
}
