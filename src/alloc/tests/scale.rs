use super::*;
use crate::device::{FileDevice, OpenHow};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

#[test]
fn sixteen_tib_opens_in_under_a_second_and_small_files_scan_one_group() {
    let dir = tempdir();
    let path = dir.path().join("image");
    // 16 TiB less one group: the largest file that a host with 4 KiB blocks can hold.
    let args = ["-q", "-F", "-t", "ext4", "-E", "nodiscard", "-O", "^has_journal"];
    let all: Vec<&str> = args.into_iter().chain([path.to_str().unwrap(), "17179738112K"]).collect();
    let (ok, text) = run("mke2fs", &all);
    assert!(ok, "{text}");
    let dev = FileDevice::open(&path, OpenHow::default()).unwrap();
    let start = Instant::now();
    let fs = Fs::open(dev, Tunables::default());
    let took = start.elapsed();
    assert_eq!(fs.geo.groups_count, 131_071);
    assert!(took < Duration::from_secs(1), "{took:?}");
    fs.alloc.tunables().set_mb_stats(true);
    for ino in 12..112 {
        fs.take(Request { size_hint: 4096, ..Request::data(Ino(ino), LBlock(0), 1) }).unwrap();
    }
    let scanned = fs.alloc.stats().groups_scanned.load(Relaxed);
    assert!(scanned < 20, "{scanned} groups");
    assert!(fs.alloc.stats().buddies_generated.load(Relaxed) < 20);
}
