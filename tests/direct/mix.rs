//! Direct, buffered, mapped I/O, truncate, punch, fsync and mode switches on the same few files, from
//! sixteen processes: no request takes longer than five seconds, what is read was written there.

use super::{MODES, aligned::direct, ctl};
use crate::common::{Fs, Image, Random, Scratch, run, scaled, tool};
use rustix::fs::{FallocateFlags, fallocate};
use std::{
    fs::File,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

const FILES: u64 = 3;
const MAX: u64 = 2 << 20;
const LIMIT: Duration = Duration::from_secs(5);
const WORKER: &str = "UEXT4_TEST_MIX";
const ROLES: [&str; 8] = ["dread", "dwrite", "read", "write", "map", "truncate", "punch", "fsync"];

/// Each eight bytes say of which file and place they are; the rest is the writer's.
fn word(file: u64, at: u64, version: u64) -> [u8; 8] {
    ((file + 1) << 56 | (at / 8) << 24 | (version & 0xff_ffff)).to_le_bytes()
}

fn filled(file: u64, off: u64, len: u64, version: u64) -> Vec<u8> {
    (0..len / 8).flat_map(|i| word(file, off + i * 8, version)).collect()
}

#[track_caller]
fn check(file: u64, off: u64, bytes: &[u8], how: &str) {
    for (i, w) in bytes.chunks_exact(8).enumerate() {
        let at = off + i as u64 * 8;
        let got = u64::from_le_bytes(w.try_into().unwrap());
        let want = u64::from_le_bytes(word(file, at, 0));
        assert!(got == 0 || got >> 24 == want >> 24, "{how}: file {file} at {at}: {got:#018x}");
    }
}

struct Worker {
    dir: PathBuf,
    random: Random,
    /// Path, direct, cached.
    files: Vec<(File, File)>,
}

impl Worker {
    fn new(dir: &Path, seed: u64) -> Worker {
        let open = |n| {
            let path = dir.join(format!("f{n}"));
            (direct(&path), File::options().read(true).write(true).open(&path).unwrap())
        };
        Worker { dir: dir.into(), random: Random::new(seed), files: (0..FILES).map(open).collect() }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next() % n
    }

    fn step(&mut self, role: &str) {
        let n = self.below(FILES);
        let (off, len) = (self.below(MAX / 512) * 512, (1 + self.below(64)) * 512);
        let version = self.below(1 << 24);
        let size = self.below(MAX / 8) * 8;
        let (direct, cached) = &self.files[n as usize];
        let mut b = vec![0; len as usize];
        match role {
            "dread" => {
                let got = direct.read_at(&mut b, off).unwrap();
                check(n, off, &b[..got], role);
            }
            "read" => {
                let got = cached.read_at(&mut b, off).unwrap();
                check(n, off, &b[..got], role);
            }
            "dwrite" => direct.write_all_at(&filled(n, off, len, version), off).unwrap(),
            "write" => cached.write_all_at(&filled(n, off, len, version), off).unwrap(),
            "map" => map(n, cached, off / 4096 * 4096, version),
            "truncate" => cached.set_len(size).unwrap(),
            "punch" => {
                let keep = FallocateFlags::KEEP_SIZE;
                let how = match version % 3 {
                    0 => FallocateFlags::PUNCH_HOLE | keep,
                    1 => FallocateFlags::ZERO_RANGE | keep,
                    _ => keep,
                };
                fallocate(cached, how, off, len).unwrap();
            }
            "fsync" => cached.sync_all().unwrap(),
            "switch" => {
                let mode = MODES[version as usize % 3];
                let file = self.dir.join(format!("f{n}"));
                let what = if version.is_multiple_of(4) { &file } else { &self.dir };
                ctl(what, &format!("dioread_mode={mode}"));
            }
            _ => panic!("{role}"),
        }
    }
}

/// Reads and changes one page through a mapping, if the file has it. Another may truncate it meanwhile:
/// the copies go through process_vm_*, which answers EFAULT where a touch would be SIGBUS.
fn map(n: u64, f: &File, off: u64, version: u64) {
    let (prot, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, at a place that the kernel chooses.
    let p = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, prot, how, f.as_raw_fd(), off as libc::off_t)
    };
    assert_ne!(p, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
    let mut page = filled(n, off, 4096, version);
    let mut copied = vec![0u8; 4096];
    let far = libc::iovec { iov_base: p, iov_len: 4096 };
    // SAFETY: the buffers are ours and live; the mapping is reached by the kernel alone.
    let got = unsafe {
        let me = libc::getpid();
        let near = libc::iovec { iov_base: copied.as_mut_ptr().cast(), iov_len: 4096 };
        let got = libc::process_vm_readv(me, &near, 1, &far, 1, 0);
        let near = libc::iovec { iov_base: page.as_mut_ptr().cast(), iov_len: 4096 };
        libc::process_vm_writev(me, &near, 1, &far, 1, 0);
        libc::munmap(p, 4096);
        got
    };
    if got > 0 {
        check(n, off, &copied[..got as usize / 8 * 8], "map");
    }
}

/// One process: its role, folder, seed and seconds are in the environment.
#[test]
#[ignore = "one of the processes of sixteen_processes"]
fn worker() {
    let Ok(job) = std::env::var(WORKER) else { return };
    let words: Vec<&str> = job.split(' ').collect();
    let [role, dir, seed, seconds] = words[..] else { panic!("{job}") };
    let mut w = Worker::new(Path::new(dir), seed.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds.parse().unwrap());
    let (mut steps, mut slowest) = (0u64, Duration::ZERO);
    while Instant::now() < end {
        let t = Instant::now();
        w.step(role);
        slowest = slowest.max(t.elapsed());
        steps += 1;
        if role == "switch" {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    println!("WORKER {role} steps {steps} slowest {}", slowest.as_millis());
}

#[test]
fn sixteen_processes() {
    for options in ["", "disk_model=nvme,disk_scale=2"] {
        let scratch = Scratch::alone();
        let path = scratch.join("img");
        std::fs::write(&path, vec![0xa5; 128 << 20]).unwrap();
        run(tool("mkfs.ext4").args(["-q", "-F", "-E", "nodiscard"]).arg(&path));
        let image = Image::existing(path);
        let options = format!("{options}{}watchdog=5", if options.is_empty() { "" } else { "," });
        let mount = scratch.mount(Fs::Uext4, &image, &options);
        for n in 0..FILES {
            std::fs::write(mount.join(format!("f{n}")), filled(n, 0, MAX, 0)).unwrap();
        }
        let seconds = scaled(10, 600);
        let start = |seed: usize| {
            let role = if seed == 15 { "switch" } else { ROLES[seed % 8] };
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "mix::worker", "--ignored", "--nocapture", "--test-threads=1"])
                .env(WORKER, format!("{role} {} {seed} {seconds}", mount.path().display()))
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        };
        let children: Vec<_> = (0..16).map(start).collect();
        let mut wrong = Vec::new();
        for child in children {
            let out = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            let line = said.lines().find_map(|l| l.split_once("WORKER ").map(|w| w.1));
            println!("{}", line.unwrap_or(&said));
            let ms = line.and_then(|l| l.rsplit(' ').next()).and_then(|n| n.parse().ok());
            if !out.status.success() {
                wrong.push(format!("{said}{}", String::from_utf8_lossy(&out.stderr)));
            }
            match ms.map(Duration::from_millis) {
                Some(t) if t < LIMIT => {}
                t => wrong.push(format!("a request took {t:?}: {said}")),
            }
        }
        let late = mount.log().lines().filter(|l| l.contains("not done")).count();
        assert!(wrong.is_empty() && late == 0, "{late} late; {wrong:#?}");
        mount.umount();
        image.fsck();
        let mount = scratch.mount(Fs::Uext4, &image, "ro");
        for n in 0..FILES {
            check(n, 0, &std::fs::read(mount.join(format!("f{n}"))).unwrap(), "at the end");
        }
        mount.umount();
    }
}
