//! mmap and cached readers beside direct I/O.

use super::aligned::direct;
use crate::common::{Fs, Scratch, scaled};
use std::{
    fs::File,
    os::{fd::AsRawFd, unix::fs::FileExt},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

struct Map(*mut libc::c_void, usize);

impl Map {
    fn new(f: &File, len: usize) -> Map {
        let (prot, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, how, f.as_raw_fd(), 0) };
        assert_ne!(p, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Map(p, len)
    }

    fn get(&self, at: usize) -> u8 {
        assert!(at < self.1);
        // SAFETY: inside the mapping, which lives as long as `self`; volatile, as others change it.
        unsafe { self.0.cast::<u8>().add(at).read_volatile() }
    }

    fn set(&self, at: usize, value: u8) {
        assert!(at < self.1);
        // SAFETY: as in `get`.
        unsafe { self.0.cast::<u8>().add(at).write_volatile(value) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: nothing refers into the mapping any more.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

#[test]
fn each_sees_what_the_other_wrote() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", &[]);
    for options in ["", "dioread_lock", "disk_model=nvme"] {
        let mount = scratch.mount(Fs::Uext4, &image, options);
        let f = direct(&mount.join("f"));
        f.write_all_at(&[1; 65536], 0).unwrap();
        // Mapped from the direct file itself, and from a cached one.
        let cached = File::options().read(true).write(true).open(mount.join("f")).unwrap();
        for (n, file) in [&f, &cached].into_iter().enumerate() {
            let map = Map::new(file, 65536);
            for round in 0..20u8 {
                let (byte, at) = (2 + round * 2 + n as u8 * 50, usize::from(round) * 3000);
                f.write_all_at(&[byte; 4096], (at / 512 * 512) as u64).unwrap();
                assert_eq!(map.get(at), byte, "{options}: a mapping beside a direct write");
                map.set(at, byte + 1);
                let mut b = [0; 512];
                f.read_exact_at(&mut b, (at / 512 * 512) as u64).unwrap();
                assert_eq!(b[at % 512], byte + 1, "{options}: a direct read beside a mapping");
            }
        }
        drop((f, cached));
        mount.umount();
        image.fsck();
    }
}

/// A cached reader that is reading while a direct write is under way must not leave old data in the
/// kernel's cache.
#[test]
fn nothing_old_stays_cached_after_a_direct_write() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", &[]);
    for options in ["disk_model=nvme", ""] {
        let mount = scratch.mount(Fs::Uext4, &image, options);
        let path = mount.join("f");
        let f = direct(&path);
        f.write_all_at(&[0; 4096], 0).unwrap();
        let (stop, newest) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let r = File::open(&path).unwrap();
                    let mut b = [0; 8];
                    while !stop.load(SeqCst) {
                        let floor = newest.load(SeqCst);
                        r.read_exact_at(&mut b, 1000).unwrap();
                        let got = u64::from_le_bytes(b);
                        assert!(got >= floor, "{options}: {got} is read after {floor} was written");
                    }
                });
            }
            let end = Instant::now() + Duration::from_secs(scaled(3, 60));
            let mut n = 0u64;
            while Instant::now() < end {
                n += 1;
                let block: Vec<u8> = n.to_le_bytes().repeat(512);
                f.write_all_at(&block, 0).unwrap();
                newest.store(n, SeqCst);
            }
            stop.store(true, SeqCst);
            assert!(n > 50, "{n} writes");
        });
        drop(f);
        mount.umount();
    }
    image.fsck();
}
