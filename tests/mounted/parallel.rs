//! Many at once.

use crate::common::workload::{self, Synced};
use crate::common::{Fs, Scratch, peer_is_kernel, scaled};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One share of the work: files, folders and renames in a folder of its own.
fn share(root: &Path, worker: usize, files: usize) {
    let dir = root.join(format!("w{worker}"));
    fs::create_dir(&dir).unwrap();
    let data = vec![worker as u8; 6000];
    for i in 0..files {
        let sub = dir.join(format!("s{}", i / 50));
        if i % 50 == 0 {
            fs::create_dir(&sub).unwrap();
        }
        let path = sub.join(format!("f{i}"));
        File::create_new(&path).unwrap().write_all_at(&data, 0).unwrap();
        let renamed = sub.join(format!("r{i}"));
        fs::rename(&path, &renamed).unwrap();
        assert_eq!(fs::read(&renamed).unwrap(), data);
        if i % 4 == 0 {
            fs::remove_file(&renamed).unwrap();
        }
    }
}

#[test]
fn eight_threads_are_faster_than_one() {
    if peer_is_kernel() {
        return;
    }
    let scratch = Scratch::alone();
    let total = scaled(4000, 40_000);
    let timed = |threads: usize, round: usize| -> Duration {
        let image = scratch.mkfs(&format!("img{threads}-{round}"), "1G", &[]);
        let mount = scratch.mount(Fs::Uext4, &image, "");
        let started = Instant::now();
        std::thread::scope(|scope| {
            for worker in 0..threads {
                let root = mount.path();
                scope.spawn(move || share(root, worker, total / threads));
            }
        });
        let took = started.elapsed();
        mount.umount();
        image.fsck();
        took
    };
    // Interleaved, and the best of each: what else the machine does must not decide.
    let (mut one, mut eight) = (Duration::MAX, Duration::MAX);
    for round in 0..3 {
        one = one.min(timed(1, round));
        eight = eight.min(timed(8, round));
    }
    eprintln!("one thread {one:?}, eight threads {eight:?}");
    assert!(eight < one, "eight threads take {eight:?}, one takes {one:?}");
}

/// Eight threads on the same few folders and names; no request may take seconds.
#[test]
fn churn_on_common_ground() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "256M", &[]);
    let mount = scratch.mount(Fs::Uext4, &image, "");
    let stop = AtomicBool::new(false);
    let worst = std::thread::scope(|scope| {
        for seed in 0..6 {
            let (root, stop) = (mount.path(), &stop);
            scope.spawn(move || rename_back_and_forth(root, seed, stop));
        }
        for seed in 20..22 {
            let (root, stop) = (mount.path(), &stop);
            scope.spawn(move || bounded_churn(root, seed, stop));
        }
        // One more that only looks.
        let until = Instant::now() + Duration::from_secs(scaled(8, 600));
        let mut worst = Duration::ZERO;
        while Instant::now() < until {
            let started = Instant::now();
            let _ = fs::metadata(mount.join("common/a"));
            let _ = fs::read_dir(mount.path()).unwrap().count();
            worst = worst.max(started.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::SeqCst);
        worst
    });
    mount.umount();
    image.fsck();
    assert!(worst < Duration::from_secs(5), "a stat and a readdir took {worst:?}");
}

fn rename_back_and_forth(root: &Path, seed: usize, stop: &AtomicBool) {
    let _ = fs::create_dir(root.join("common"));
    let _ = fs::create_dir(root.join("other"));
    let names = ["a", "b", "c"];
    let (one, two) = (names[seed % 3], names[(seed + 1) % 3]);
    while !stop.load(Ordering::SeqCst) {
        let from = root.join("common").join(one);
        let to = root.join("other").join(two);
        // Any of these may lose the race for the name; none may break anything.
        let _ = fs::write(&from, seed.to_string());
        let _ = fs::rename(&from, &to);
        let _ = fs::hard_link(&to, &from);
        let _ = fs::rename(root.join("other"), root.join("moved"));
        let _ = fs::rename(root.join("moved"), root.join("other"));
        let _ = fs::remove_file(&to);
    }
}

fn bounded_churn(root: &Path, seed: u64, stop: &AtomicBool) {
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let dir = root.join(format!("own{seed}"));
        fs::create_dir(&dir).unwrap();
        workload::names(&dir, 200, &Synced::default()).unwrap();
        workload::extents(&dir, 100, 4096, &Synced::default()).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
    assert!(round > 0);
}
