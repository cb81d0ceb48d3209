//! Everything at once on one file over a poisoned disk, in every lock mode: what was never written
//! is never read, everything that was submitted is answered, and the image is clean.

use super::{Cred, Fs, ReadHow, SetAttr, WriteHow};
use crate::{
    device::{AlignedBuf, BlockDevice, IoRequest, MemDevice},
    error::Result,
    inode::lock_mode::LockMode,
    options::{Control, MountOptions, Scope},
    types::Ino,
};
use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

const POISON: u8 = 0xa5;
const MAX: u64 = 1 << 20;

fn poisoned(mib: usize, args: &[&str]) -> Arc<MemDevice> {
    let f = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(f.path(), vec![POISON; mib << 20]).unwrap();
    let out = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-E", "nodiscard"])
        .args(args)
        .arg(f.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Arc::new(MemDevice::load(f.path()).unwrap())
}

fn fsck(dev: &MemDevice) {
    let f = tempfile::NamedTempFile::new().unwrap();
    dev.save(f.path()).unwrap();
    let out = Command::new("e2fsck").arg("-fn").arg(f.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

fn options(text: &str) -> MountOptions {
    MountOptions::parse(&[text]).unwrap()
}

fn file(fs: &Fs, name: &str) -> Ino {
    fs.mknod(Cred::ROOT, Ino::ROOT, name.as_bytes(), 0o100644, 0, 0).unwrap().ino
}

const DIRECT: WriteHow = WriteHow { direct: true, sync: false, datasync: false };

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn no_poison(b: &[u8], mode: &str, at: u64) {
    if let Some(i) = b.iter().position(|&x| x == POISON) {
        panic!("{mode}: poison at byte {}", at + i as u64);
    }
}

/// One step of one of the workers.
fn step(fs: &Fs, ino: Ino, who: u64, r: &mut Rng) {
    // Calls may meet a file that another one just made shorter; nothing here may fail otherwise.
    match who {
        0 => {
            let (off, len) = (r.below(MAX), 1 + r.below(20_000) as usize);
            let data = vec![1 + r.below(100) as u8; len];
            fs.write(Cred::ROOT, ino, off, &data, WriteHow::default()).unwrap();
        }
        1 | 2 => {
            let (off, len) = (r.below(MAX / 512) * 512, (1 + r.below(64)) as usize * 512);
            let (tx, rx) = mpsc::channel();
            let buf = AlignedBuf::for_overwrite(len);
            fs.start_read(ino, off, buf, ReadHow::DIRECT, None, move |r| {
                tx.send(r.unwrap()).unwrap()
            });
            let b = rx.recv_timeout(Duration::from_secs(20)).expect("an answer");
            no_poison(&b, "direct", off);
        }
        3 => {
            let (off, len) = (r.below(MAX / 512) * 512, (1 + r.below(64)) as usize * 512);
            let data = AlignedBuf::copy_of(&vec![1 + r.below(100) as u8; len]);
            let (tx, rx) = mpsc::channel();
            fs.start_write(Cred::ROOT, (ino, off), data, DIRECT, None, move |r| {
                tx.send(r.unwrap()).unwrap();
            });
            assert_eq!(rx.recv_timeout(Duration::from_secs(20)).expect("an answer"), len);
        }
        4 => match r.below(4) {
            0 => {
                let size = Some(r.below(MAX));
                fs.setattr(Cred::ROOT, ino, SetAttr { size, ..SetAttr::default() }).unwrap();
            }
            1 => fs.fsync(ino, false).unwrap(),
            n => {
                let (off, len) = (r.below(MAX), 1 + r.below(MAX / 4));
                // Punch or zero, both with the size kept.
                let mode = if n == 2 { 0x3 } else { 0x11 };
                fs.fallocate(Cred::ROOT, ino, off, len, mode).unwrap();
            }
        },
        _ => {
            let off = r.below(MAX);
            let mut b = vec![0; 30_000];
            let n = fs.read(ino, off, &mut b, ReadHow::BUFFERED).unwrap();
            no_poison(&b[..n], "buffered", off);
        }
    }
}

fn torture(block: &str, opts: &str, flips: bool, time: Duration) {
    let dev = poisoned(if block == "65536" { 96 } else { 24 }, &["-b", block, "-J", "size=4"]);
    let fs = Fs::mount(dev.clone(), &options(opts)).unwrap();
    let ino = file(&fs, "f");
    let stop = AtomicBool::new(false);
    let slowest = AtomicU64::new(0);
    thread::scope(|s| {
        for who in 0..6 {
            let (fs, stop, slowest) = (&fs, &stop, &slowest);
            s.spawn(move || {
                let mut r = Rng(who * 77 + 1);
                while !stop.load(SeqCst) {
                    let t = Instant::now();
                    step(fs, ino, who, &mut r);
                    slowest.fetch_max(t.elapsed().as_millis() as u64, SeqCst);
                }
            });
        }
        let end = Instant::now() + time;
        let mut n = 0;
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(30));
            if flips {
                n += 1;
                let scope = if n % 5 == 0 { Scope::Inode(ino) } else { Scope::Mount };
                let mode = LockMode::ALL[n % 3].name();
                let t = Instant::now();
                Control::set(&*fs, scope, "dioread_mode", mode).unwrap();
                assert!(t.elapsed() < Duration::from_secs(5), "a switch took {:?}", t.elapsed());
            }
        }
        stop.store(true, SeqCst);
    });
    let slow = slowest.load(SeqCst);
    assert!(slow < 10_000, "a request took {slow} ms");
    fs.unmount().unwrap();
    drop(fs);
    fsck(&dev);
}

const SHORT: Duration = Duration::from_millis(1200);

#[test]
fn no_poison_while_the_mode_flips() {
    for block in ["1024", "4096", "65536"] {
        torture(block, "", true, SHORT);
    }
    // All of it submitted rather than served in place.
    torture("4096", "disk_model=nvme", true, SHORT);
}

#[test]
fn no_poison_in_any_mode() {
    for (i, mode) in LockMode::ALL.into_iter().enumerate() {
        let block = ["4096", "1024", "4096"][i];
        torture(block, &format!("dioread_{}", mode.name()), false, SHORT);
    }
    torture("4096", "nodelalloc", false, SHORT);
}

#[test]
fn depth_without_threads_and_data_as_written() {
    let dev = poisoned(24, &["-b", "4096"]);
    let fs = Fs::mount(dev.clone(), &options("disk_model=nvme")).unwrap();
    let ino = file(&fs, "f");
    fs.write(Cred::ROOT, ino, 0, &vec![9; MAX as usize], DIRECT).unwrap();
    for mode in LockMode::ALL {
        fs.set_mount_dioread_mode(mode).unwrap();
        let (tx, rx) = mpsc::channel();
        for i in 0..256u64 {
            let tx = tx.clone();
            let data = AlignedBuf::copy_of(&[i as u8; 4096]);
            fs.start_write(Cred::ROOT, (ino, i * 4096), data, DIRECT, None, move |r| {
                tx.send(r.map(|n| assert_eq!(n, 4096))).unwrap();
            });
        }
        drop(tx);
        assert_eq!(rx.iter().map(|r| r.unwrap()).count(), 256);
        let (tx, rx) = mpsc::channel();
        for i in 0..256u64 {
            let tx = tx.clone();
            let buf = AlignedBuf::for_overwrite(4096);
            fs.start_read(ino, i * 4096, buf, ReadHow::DIRECT, None, move |r| {
                tx.send((i, r.unwrap())).unwrap()
            });
        }
        drop(tx);
        let got: Vec<_> = rx.iter().collect();
        assert_eq!(got.len(), 256);
        assert!(got.iter().all(|(i, b)| b.len() == 4096 && b.iter().all(|x| *x == *i as u8)));
    }
    let i = fs.vol.inodes.peek(ino).unwrap();
    assert_eq!(i.gate.in_flight(), 0);
    assert!(i.io.list().is_empty());
    let text = fs.vol.dio.text();
    assert!(text.contains("dio_lock_reads 256\n"), "{text}");
    drop(i);
    fs.unmount().unwrap();
}

#[test]
fn a_file_keeps_its_own_mode_and_the_rest_follow() {
    let fs = Fs::mount(poisoned(24, &[]), &options("")).unwrap();
    let (a, b) = (file(&fs, "a"), file(&fs, "b"));
    let get = |s| Control::get(&*fs, s, "dioread_mode").unwrap();
    let set = |s, v| Control::set(&*fs, s, "dioread_mode", v);
    assert_eq!(get(Scope::Mount), "nolock\n");
    set(Scope::Inode(a), "shared").unwrap();
    set(Scope::Mount, "lock").unwrap();
    assert_eq!((get(Scope::Inode(a)), get(Scope::Inode(b))), ("shared\n".into(), "lock\n".into()));
    let c = file(&fs, "c");
    assert_eq!(get(Scope::Inode(c)), "lock\n");
    fs.remount("remount,dioread_nolock").unwrap();
    assert_eq!((get(Scope::Inode(b)), get(Scope::Mount)), ("nolock\n".into(), "nolock\n".into()));
    assert!(set(Scope::Mount, "sideways").is_err());
    assert!(set(Scope::Inode(Ino::ROOT), "lock").is_err());
    fs.unmount().unwrap();
}

/// Answers submitted requests late, from other threads.
struct Late(Arc<MemDevice>);

impl BlockDevice for Late {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()> {
        self.0.read_at(buf, off)
    }
    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        self.0.write_at(buf, off)
    }
    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
    fn discard(&self, off: u64, len: u64) -> Result<()> {
        self.0.discard(off, len)
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn submit(&self, req: IoRequest) {
        let mem = self.0.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            mem.submit(req);
        });
    }
}

#[test]
fn unmount_waits_for_what_is_submitted() {
    let mem = poisoned(24, &[]);
    let dev = Arc::new(Late(mem.clone()));
    let fs = Fs::mount(dev, &options("disk_model=nvme")).unwrap();
    let ino = file(&fs, "f");
    fs.write(Cred::ROOT, ino, 0, &[9; 8192], DIRECT).unwrap();
    fs.sync().unwrap();
    let before = fs.getattr(ino).unwrap().mtime;
    let (tx, rx) = mpsc::channel();
    let told = tx.clone();
    fs.start_read(ino, 4096, AlignedBuf::for_overwrite(4096), ReadHow::DIRECT, None, move |r| {
        told.send(r.unwrap()[0]).unwrap();
    });
    thread::sleep(Duration::from_millis(20));
    fs.start_write(Cred::ROOT, (ino, 0), AlignedBuf::copy_of(&[7; 4096]), DIRECT, None, move |r| {
        assert_eq!(r.unwrap(), 4096);
        tx.send(7).unwrap();
    });
    assert!(rx.try_recv().is_err());
    fs.unmount().unwrap();
    let mut got: Vec<u8> = rx.try_iter().collect();
    got.sort_unstable();
    assert_eq!(got, [7, 9]);
    drop(fs);
    let fs = Fs::mount(mem.clone(), &options("ro")).unwrap();
    let mut b = [0; 8192];
    fs.read(ino, 0, &mut b, ReadHow::DIRECT).unwrap();
    assert_eq!((b[0], b[8191]), (7, 9));
    assert!(fs.getattr(ino).unwrap().mtime > before, "the time of the late write");
    fs.unmount().unwrap();
    drop(fs);
    fsck(&mem);
}
