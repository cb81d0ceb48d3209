//! Truncate, punch, zero and fallocate against direct requests in flight: no block that a request targets
//! is handed to another file, and nobody waits for ever.

use super::aligned::direct;
use crate::common::{Fs, Random, Scratch, scaled};
use rustix::fs::{FallocateFlags, fallocate};
use std::{
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::{Duration, Instant},
};

const MAX: u64 = 4 << 20;

/// Two files that take each other's blocks; each holds only its own byte, or zeros.
fn storm(options: &str) {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "24M", &["-m", "0", "-J", "size=4"]);
    let mount = scratch.mount(Fs::Uext4, &image, options);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for (name, byte) in [("a", 0x11u8), ("b", 0x22)] {
            let path = mount.join(name);
            drop(direct(&path));
            for who in 0..5u64 {
                let (path, stop) = (path.clone(), &stop);
                s.spawn(move || {
                    let f = direct(&path);
                    let mut random = Random::new(who * 2 + u64::from(byte));
                    let mut slowest = Duration::ZERO;
                    while !stop.load(SeqCst) {
                        let off = random.next() % (MAX / 512) * 512;
                        let len = (1 + random.next() % 128) * 512;
                        let t = Instant::now();
                        match who {
                            0 | 1 => {
                                // The image is small on purpose.
                                let _ = f.write_at(&vec![byte; len as usize], off);
                            }
                            2 => {
                                let mut b = vec![0; len as usize];
                                let n = f.read_at(&mut b, off).unwrap();
                                let bad = b[..n].iter().find(|x| **x != byte && **x != 0);
                                assert_eq!(bad, None, "{path:?}");
                            }
                            3 => f.set_len(random.next() % MAX).unwrap(),
                            _ => {
                                let how = match random.next() % 3 {
                                    0 => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                                    1 => FallocateFlags::ZERO_RANGE,
                                    _ => FallocateFlags::empty(),
                                };
                                let _ = fallocate(&f, how, off, len * 8);
                            }
                        }
                        slowest = slowest.max(t.elapsed());
                    }
                    assert!(slowest < Duration::from_secs(5), "a request took {slowest:?}");
                });
            }
        }
        std::thread::sleep(Duration::from_secs(scaled(4, 120)));
        stop.store(true, SeqCst);
    });
    mount.umount();
    image.fsck();
    let mount = scratch.mount(Fs::Uext4, &image, "ro");
    for (name, byte) in [("a", 0x11u8), ("b", 0x22)] {
        let got = std::fs::read(mount.join(name)).unwrap();
        assert!(got.iter().all(|x| *x == byte || *x == 0), "{name} holds what it never wrote");
    }
    mount.umount();
}

#[test]
fn served_in_place() {
    storm("");
}

#[test]
fn submitted() {
    storm("disk_model=nvme");
}

#[test]
fn submitted_in_mode_shared() {
    storm("disk_model=ssd,disk_scale=5,dioread_shared");
}

#[test]
fn in_mode_lock() {
    storm("dioread_lock");
}
