//! Files that begin in the inode (`inline_data`) and leave it, with readers at their heels.

use super::{create, fsck, mkfs, mount, read, run, write};
use std::{process::Command, sync::atomic::AtomicBool, sync::atomic::Ordering::SeqCst};
use uext4::{
    device::MemDevice,
    fs::{Cred, Fs, SetAttr},
    types::Ino,
};

fn truncate(fs: &Fs, ino: Ino, size: u64) {
    fs.setattr(Cred::ROOT, ino, SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

/// Byte `i` of every file.
fn byte(i: usize) -> u8 {
    (i % 251) as u8 + 1
}

/// A reader sees some of what was written, in its place, and nothing else.
#[test]
fn readers_follow_a_file_out_of_its_inode() {
    let dev = mkfs(16, &["-b", "1024", "-O", "inline_data"]);
    let fs = mount(dev.clone(), "rw");
    let all: Vec<u8> = (0..3000).map(byte).collect();
    for round in 0..60 {
        let ino = create(&fs, &format!("f{round}"));
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            for direct in [false, true] {
                let (fs, done, all) = (&fs, &done, &all);
                s.spawn(move || {
                    let mut b = vec![0xee; 3072];
                    while !done.load(SeqCst) {
                        let n = fs
                            .read(ino, 0, &mut b, uext4::fs::ReadHow { direct, noatime: false })
                            .unwrap();
                        // A direct read may miss what comes into memory while it runs.
                        let ok = |i: &usize| b[*i] == all[*i] || direct && b[*i] == 0;
                        assert_eq!((0..n).find(|i| !ok(i)), None, "round {round}, {n} bytes");
                        let _ = fs.seek(ino, 0, true);
                        let _ = fs.bmap(ino, 0);
                    }
                });
            }
            for (from, to) in [(0, 10), (10, 70), (70, 128), (128, 1000), (1000, 3000)] {
                if from != 70 || round % 2 == 0 {
                    write(&fs, ino, from as u64, &all[from..to]).unwrap();
                } else {
                    truncate(&fs, ino, 40);
                    write(&fs, ino, 40, &all[40..to]).unwrap();
                }
            }
            if round % 3 == 0 {
                truncate(&fs, ino, 50);
                assert_eq!(read(&fs, ino, 0, 100)[..50], all[..50]);
                write(&fs, ino, 50, &all[50..]).unwrap();
            }
            done.store(true, SeqCst);
        });
        assert!(read(&fs, ino, 0, 3000) == all, "round {round}");
    }
    fs.unmount().unwrap();
    fsck(&dev);
}

/// Two writers, one of which outgrows the inode.
#[test]
fn two_writers() {
    let dev = mkfs(16, &["-O", "inline_data"]);
    let fs = mount(dev.clone(), "rw");
    for round in 0..60 {
        let ino = create(&fs, &format!("f{round}"));
        std::thread::scope(|s| {
            s.spawn(|| (0..100).for_each(|i| _ = write(&fs, ino, i, &[byte(i as usize)]).unwrap()));
            s.spawn(|| write(&fs, ino, 100, &(100..900).map(byte).collect::<Vec<_>>()).unwrap());
        });
        assert_eq!(read(&fs, ino, 0, 900), (0..900).map(byte).collect::<Vec<_>>());
    }
    fs.unmount().unwrap();
    fsck(&dev);
}

/// What mke2fs puts into inodes, long symbolic links among it, is read and can be changed.
#[test]
fn filled_by_mke2fs() {
    let from = tempfile::tempdir().unwrap();
    let target = "t".repeat(100);
    std::os::unix::fs::symlink(&target, from.path().join("link")).unwrap();
    std::fs::write(from.path().join("small"), (0..120).map(byte).collect::<Vec<_>>()).unwrap();
    std::fs::create_dir(from.path().join("dir")).unwrap();
    std::fs::write(from.path().join("dir/x"), "x").unwrap();
    let dev = mkfs(16, &["-O", "inline_data", "-d", from.path().to_str().unwrap()]);
    let image = fsck(&dev);
    let stat = |name: &str| {
        run(Command::new("debugfs").args(["-R", &format!("stat {name}")]).arg(image.path()))
    };
    for name in ["link", "small", "dir"] {
        assert!(stat(name).contains("Flags: 0x10000000"), "{name}: mke2fs did not inline it");
    }
    let fs = mount(dev.clone(), "rw");
    let look = |dir, name: &[u8]| fs.lookup(dir, name).unwrap().unwrap();
    let link = look(Ino::ROOT, b"link");
    assert_eq!(fs.readlink(link.ino).unwrap(), target.as_bytes());
    let small = look(Ino::ROOT, b"small");
    assert_eq!(small.blocks512, 1);
    assert_eq!(read(&fs, small.ino, 0, 120), (0..120).map(byte).collect::<Vec<_>>());
    write(&fs, small.ino, 120, &(120..500).map(byte).collect::<Vec<_>>()).unwrap();
    let dir = look(Ino::ROOT, b"dir").ino;
    assert_eq!(read(&fs, look(dir, b"x").ino, 0, 1), b"x");
    for i in 0..50 {
        fs.mknod(Cred::ROOT, dir, format!("more{i}").as_bytes(), 0o100644, 0, 0).unwrap();
    }
    fs.unlink(Ino::ROOT, b"link").unwrap();
    fs.unmount().unwrap();
    fsck(&dev);
    let fs = mount(dev, "ro");
    assert_eq!(read(&fs, small.ino, 0, 500), (0..500).map(byte).collect::<Vec<_>>());
}

/// A full file system: what does not fit stays where it was.
#[test]
fn no_space_to_leave_the_inode() {
    let dev: std::sync::Arc<MemDevice> = mkfs(8, &["-b", "1024", "-O", "inline_data", "-m", "0"]);
    let fs = mount(dev.clone(), "rw");
    let small: Vec<Ino> = (0..20).map(|i| create(&fs, &format!("small{i}"))).collect();
    for ino in &small {
        write(&fs, *ino, 0, &[7; 100]).unwrap();
    }
    let fill = create(&fs, "fill");
    let mut at = 0;
    while write(&fs, fill, at, &[1; 1024]).is_ok() {
        at += 1024;
    }
    let mut failed = 0;
    for ino in &small {
        if write(&fs, *ino, 100, &[8; 400]).is_err() {
            failed += 1;
            assert_eq!(read(&fs, *ino, 0, 100), [7; 100]);
            write(&fs, *ino, 0, &[9; 20]).unwrap();
        }
    }
    assert!(failed > 0, "all of it fitted");
    fs.unmount().unwrap();
    fsck(&dev);
}
