//! `mount -o remount` and `uext4 ctl` on a live mount.

use super::{MODES, counter, ctl, fio::Fio};
use crate::common::{Fs, Mount, Scratch, run, uext4};
use std::{os::unix::fs::FileExt, path::Path, process::Command, time::Duration};

fn remount(mount: &Mount, options: &str) {
    run(Command::new(uext4())
        .args(["mount", "-o", &format!("remount,{options}")])
        .arg(mount.path()));
}

#[track_caller]
fn shows(path: &Path, name: &str, value: &str) {
    assert_eq!(ctl(path, name).trim(), value, "{name}");
}

#[test]
fn the_lock_mode_of_the_mount_and_of_a_file() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", &[]);
    let mount = scratch.mount(Fs::Uext4, &image, "dioread_shared");
    let (own, other) = (mount.join("own"), mount.join("other"));
    for f in [&own, &other] {
        Fio::new(f).with("rw=write size=64k name=x").run();
    }
    shows(mount.path(), "dioread_mode", "shared");
    ctl(&own, "dioread_mode=lock");
    for mode in MODES {
        remount(&mount, &format!("dioread_{mode}"));
        shows(mount.path(), "dioread_mode", mode);
        shows(&other, "dioread_mode", mode);
        shows(&own, "dioread_mode", "lock");
        let count = |m: &str| counter(&mount, &format!("dio_{m}_reads"));
        let before = (count(mode), count("lock"));
        Fio::new(&other).with("rw=randread bs=4k size=64k name=x").run();
        assert_eq!(count(mode) - before.0, 16, "{mode}");
        let lock = count("lock");
        Fio::new(&own).with("rw=randread bs=4k size=64k name=x").run();
        assert_eq!(count("lock") - lock, 16, "the file's own mode");
    }
    assert!(ctl(mount.path(), "options").contains("dioread_nolock"));
    mount.umount();
    image.fsck();
}

#[test]
fn nodelalloc_and_ext2_files_are_shared_whatever_is_asked() {
    for (mkfs, options) in
        [(&[][..], "nodelalloc"), (&["-t", "ext2"][..], ""), (&[], "data=journal")]
    {
        let scratch = Scratch::new();
        let image = scratch.mkfs("img", "64M", mkfs);
        let mount = scratch.mount(Fs::Uext4, &image, options);
        let f = mount.join("f");
        Fio::new(&f).with("rw=randrw size=256k bs=4k verify=crc32c name=x").run();
        for mode in MODES {
            ctl(mount.path(), &format!("dioread_mode={mode}"));
            shows(&f, "dioread_mode", "shared");
        }
        mount.umount();
        image.fsck();
    }
}

#[test]
fn barrier_reaches_the_journal_at_once() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", &[]);
    let mount = scratch.mount(Fs::Uext4, &image, "");
    let flushes_of = |n: u64| {
        let f = std::fs::File::create(mount.join(format!("f{n}"))).unwrap();
        f.write_all_at(&[1; 4096], 0).unwrap();
        let before = counter(&mount, "device_flushes");
        f.sync_all().unwrap();
        counter(&mount, "device_flushes") - before
    };
    assert!(flushes_of(1) > 0);
    remount(&mount, "nobarrier");
    assert_eq!(flushes_of(2), 0, "flushes after nobarrier");
    remount(&mount, "barrier,data_err=abort,max_batch_time=20000,min_batch_time=100,commit=7");
    assert!(flushes_of(3) > 0, "no flush after barrier");
    let options = ctl(mount.path(), "options");
    for o in ["data_err=abort", "max_batch_time=20000", "min_batch_time=100", "commit=7"] {
        assert!(options.contains(o), "{o} is not in {options}");
    }
    mount.umount();
    image.fsck();
}

/// A request that takes long is logged once, and `locks` shows it while it lasts.
#[test]
fn the_watchdog_tells_of_a_slow_request() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", &[]);
    let mount = scratch.mount(Fs::Uext4, &image, "");
    Fio::new(&mount.join("f")).with("rw=write size=4m bs=1m name=x").run();
    mount.umount();
    // In the foreground, where the log goes to standard error; a disk twenty times slower than life.
    let point = scratch.join("slow");
    std::fs::create_dir_all(&point).unwrap();
    let log = std::fs::File::create(point.with_extension("log")).unwrap();
    let mut daemon = Command::new(uext4())
        .args(["mount", "-f", "-o", "disk_model=hdd,disk_scale=0.05,dioread_lock"])
        .arg(image.path())
        .arg(&point)
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    for _ in 0..600 {
        if crate::common::mount::is_mounted(&point) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let mount = Mount::adopt(Fs::Uext4, &point);
    ctl(mount.path(), "watchdog=0.1");
    let writers = Fio::new(&mount.join("f"))
        .with("rw=randwrite bs=4k size=4m norandommap number_ios=3 numjobs=2 name=x")
        .start();
    let mut seen = String::new();
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(50));
        let locks = ctl(mount.path(), "locks");
        if locks.contains("held Exclusive direct write") && locks.contains("waiting Exclusive") {
            seen = locks;
        }
    }
    assert!(seen.contains("request - direct write"), "`locks` shows no request: {seen}");
    assert!({ writers }.wait().unwrap().success());
    let text = mount.log();
    assert!(text.contains("direct write on inode"), "{text}");
    assert!(text.contains("it waits for the I/O lock (Exclusive), held by direct write"), "{text}");
    let lines: Vec<_> = text.lines().filter(|l| l.contains("not done after")).collect();
    assert!(lines.len() <= 12, "six requests, told of once each: {lines:#?}");
    ctl(mount.path(), "watchdog=0");
    mount.umount();
    assert!(daemon.wait().unwrap().success());
}
