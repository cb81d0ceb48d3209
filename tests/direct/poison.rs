//! Everything at once on one file of a poisoned disk, in this process: what was never written is never read.

use std::{
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use uext4::{
    device::{AlignedBuf, MemDevice},
    fs::{Cred, Fs, ReadHow, SetAttr, WriteHow},
    options::{Control, MountOptions, Scope},
    types::Ino,
};

/// In every free block of the image at the start.
pub const POISON: u8 = 0xa5;
const MAX: u64 = 1 << 20;
const DIRECT: WriteHow = WriteHow { direct: true, sync: false, datasync: false };

/// A disk full of poison, formatted.
pub fn poisoned(mib: usize, args: &[&str]) -> Arc<MemDevice> {
    let f = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(f.path(), vec![POISON; mib << 20]).unwrap();
    let mut c = Command::new("mke2fs");
    c.args(["-q", "-F", "-t", "ext4", "-E", "nodiscard"]).args(args).arg(f.path());
    crate::common::run(&mut c);
    Arc::new(MemDevice::load(f.path()).unwrap())
}

struct Storm<'a> {
    fs: &'a Arc<Fs>,
    files: [Ino; 2],
    stop: AtomicBool,
    slowest: AtomicU64,
    found: Mutex<Option<String>>,
}

impl Storm<'_> {
    fn look(&self, how: &str, off: u64, bytes: &[u8]) {
        if let Some(i) = bytes.iter().position(|b| *b == POISON) {
            let what = format!("a {how} read finds poison at byte {}", off + i as u64);
            self.found.lock().unwrap().get_or_insert(what);
            self.stop.store(true, SeqCst);
        }
    }

    fn run(&self, who: u64) {
        let mut random = crate::common::Random::new(who);
        while !self.stop.load(SeqCst) {
            let t = Instant::now();
            self.step(who, &mut |n| random.next() % n);
            self.slowest.fetch_max(t.elapsed().as_millis() as u64, SeqCst);
        }
    }

    fn step(&self, who: u64, r: &mut dyn FnMut(u64) -> u64) {
        let (fs, ino) = (self.fs, self.files[r(2) as usize]);
        let (sector, sectors) = (r(MAX / 512) * 512, (1 + r(64)) as usize * 512);
        match who {
            0 | 1 => {
                let data = vec![1 + r(100) as u8; 1 + r(20_000) as usize];
                // The disk is small: it may be full.
                let _ = fs.write(Cred::ROOT, ino, r(MAX), &data, WriteHow::default());
            }
            2..=4 => {
                let (tx, rx) = mpsc::channel();
                let buf = AlignedBuf::for_overwrite(sectors);
                fs.start_read(ino, sector, buf, ReadHow::DIRECT, None, move |b| {
                    tx.send(b.unwrap()).unwrap()
                });
                self.look("direct", sector, &rx.recv_timeout(Duration::from_secs(30)).unwrap());
            }
            5 => {
                let data = AlignedBuf::copy_of(&vec![1 + r(100) as u8; sectors]);
                let (tx, rx) = mpsc::channel();
                fs.start_write(Cred::ROOT, (ino, sector), data, DIRECT, None, move |n| {
                    tx.send(n.is_ok()).unwrap();
                });
                rx.recv_timeout(Duration::from_secs(30)).unwrap();
            }
            6 => match r(5) {
                0 | 1 => {
                    let size = Some(r(MAX));
                    fs.setattr(Cred::ROOT, ino, SetAttr { size, ..SetAttr::default() }).unwrap();
                }
                2 => fs.fsync(ino, false).unwrap(),
                n => {
                    // Punch or zero, both with the size kept.
                    let mode = if n == 3 { 0x3 } else { 0x11 };
                    let _ = fs.fallocate(Cred::ROOT, ino, r(MAX), 1 + r(MAX / 4), mode);
                }
            },
            _ => {
                let off = r(MAX);
                let mut b = vec![0; 30_000];
                let n = fs.read(ino, off, &mut b, ReadHow::BUFFERED).unwrap();
                self.look("buffered", off, &b[..n]);
            }
        }
    }
}

/// Runs it; with `flips` the mode changes all the time. `Err`: poison was read, or a request took long.
pub fn storm(block: &str, options: &str, flips: bool, time: Duration) -> Result<(), String> {
    let dev = poisoned(if block == "65536" { 96 } else { 16 }, &["-b", block, "-J", "size=4"]);
    let fs = Fs::mount(dev.clone(), &MountOptions::parse(&[options]).unwrap()).unwrap();
    let files = ["a", "b"]
        .map(|name| fs.mknod(Cred::ROOT, Ino::ROOT, name.as_bytes(), 0o100644, 0, 0).unwrap().ino);
    let storm = Storm {
        fs: &fs,
        files,
        stop: AtomicBool::new(false),
        slowest: AtomicU64::new(0),
        found: Mutex::new(None),
    };
    let mut slow_switch = Duration::ZERO;
    thread::scope(|s| {
        for who in 0..8 {
            let storm = &storm;
            s.spawn(move || storm.run(who));
        }
        let (end, mut n) = (Instant::now() + time, 0);
        while Instant::now() < end && !storm.stop.load(SeqCst) {
            thread::sleep(Duration::from_millis(30));
            if flips {
                n += 1;
                let scope = if n % 5 == 0 { Scope::Inode(files[0]) } else { Scope::Mount };
                let t = Instant::now();
                Control::set(&*fs, scope, "dioread_mode", super::MODES[n % 3]).unwrap();
                slow_switch = slow_switch.max(t.elapsed());
            }
        }
        storm.stop.store(true, SeqCst);
    });
    if let Some(what) = storm.found.into_inner().unwrap() {
        return Err(what);
    }
    let slow = storm.slowest.into_inner();
    fs.unmount().unwrap();
    drop(fs);
    let f = tempfile::NamedTempFile::new().unwrap();
    dev.save(f.path()).unwrap();
    crate::common::run(Command::new("e2fsck").arg("-fn").arg(f.path()));
    println!("{block} {options}: slowest request {slow} ms, slowest switch {slow_switch:?}");
    if slow > 5000 {
        return Err(format!("a request took {slow} ms"));
    }
    Ok(())
}
