//! What can be seen and turned while the mount lives.

use super::*;
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use uext4::options::TraceNext;

/// Names that can be set, each with values to go through.
const VALUES: &[(&str, &[&str])] = &[
    ("writeback_policy", &["none", "dirty_pages", "fixed8", "extent"]),
    ("nr_to_write", &["1", "64", "100000", "1024"]),
    ("max_writeback_mb_bump", &["1", "4096", "128"]),
    ("dirty_bytes", &["64k", "1g", "8m"]),
    ("dirty_background_bytes", &["0", "100m", "1m"]),
    ("dirty_expire", &["0.1", "100", "1"]),
    ("dirty_writeback", &["0.01", "0", "0.1"]),
    ("mb_group_prealloc", &["1", "4096", "512"]),
    ("mb_max_request", &["1", "32768", "2048"]),
    ("mb_max_to_scan", &["1", "10000", "200"]),
    ("mb_min_to_scan", &["1", "10000", "10"]),
    ("mb_order2_req", &["0", "10", "2"]),
    ("mb_stream_req", &["0", "10000", "16"]),
    ("stripe", &["0", "7", "256", "0"]),
    ("mb_stats", &["1", "0"]),
    ("dioread_mode", &["lock", "shared", "nolock"]),
    ("watchdog", &["0", "1", "120"]),
    ("trace", &["on", "ext4_da_* json", "off"]),
];

#[test]
fn every_tunable_turns_while_writers_run() {
    let dev = mkfs(96, &["-b", "4096"]);
    let fs = mount(dev.clone(), "");
    let settable: Vec<_> = fs.names().iter().filter(|n| n.writable).map(|n| n.name).collect();
    for name in &settable {
        assert!(VALUES.iter().any(|v| v.0 == *name), "{name} has no values here");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3u64)
        .map(|w| {
            let (fs, stop) = (fs.clone(), stop.clone());
            let f = create(&fs, &format!("w{w}"));
            thread::spawn(move || {
                let mut n = 0u64;
                while !stop.load(SeqCst) {
                    let at = (n * 13 + w) % 1500 * 4096;
                    write(&fs, f, at, &[n as u8; 12288]).unwrap();
                    if n.is_multiple_of(50) {
                        fs.fsync(f, true).unwrap();
                    }
                    if n.is_multiple_of(500) {
                        let s = uext4::fs::SetAttr { size: Some(0), ..Default::default() };
                        fs.setattr(Cred::ROOT, f, s).unwrap();
                    }
                    n += 1;
                }
                n
            })
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(if full_scale() { 120 } else { 3 });
    for round in 0.. {
        if Instant::now() > end {
            break;
        }
        for (name, values) in VALUES {
            for v in *values {
                set(&fs, name, v);
                get(&fs, name);
            }
        }
        let remounts =
            ["noatime,commit=1", "relatime,commit=5,writeback_policy=fixed8", "sync", "async"];
        Control::remount(&*fs, remounts[round % remounts.len()]).unwrap();
        for n in fs.names() {
            get(&fs, n.name);
        }
    }
    stop.store(true, SeqCst);
    for w in writers {
        assert!(w.join().unwrap() > 0);
    }
    fs.unmount().unwrap();
    fsck(&dev);
}

#[test]
fn what_is_set_is_what_is_shown() {
    let dev = mkfs(32, &["-b", "4096"]);
    let fs = mount(dev.clone(), "writeback_policy=none,mb_max_request=100");
    assert_eq!(get(&fs, "writeback_policy"), "none\n");
    assert_eq!(get(&fs, "mb_max_request"), "100\n");
    set(&fs, "nr_to_write", "77");
    set(&fs, "dirty_expire", "0.5");
    let options = get(&fs, "options");
    for line in
        ["nr_to_write=77", "writeback_policy=none", "mb_max_request=100", "dirty_expire=0.5"]
    {
        assert!(options.lines().any(|l| l == line), "{line} in {options}");
    }
    Control::remount(&*fs, "writeback_policy=extent,stripe=16,noatime").unwrap();
    assert_eq!(get(&fs, "writeback_policy"), "extent\n");
    assert_eq!(get(&fs, "nr_to_write"), "77\n");
    assert_eq!(get(&fs, "stripe"), "16\n");
    assert!(get(&fs, "options").lines().any(|l| l == "noatime"));

    let f = create(&fs, "f");
    let of = |name: &str| Control::get(&*fs, Scope::Inode(f), name).unwrap();
    let turn = |v: &str| Control::set(&*fs, Scope::Inode(f), "writeback_policy", v);
    turn("dirty_pages").unwrap();
    assert_eq!(of("writeback_policy"), "dirty_pages\n");
    set(&fs, "writeback_policy", "fixed8");
    assert_eq!(of("writeback_policy"), "dirty_pages\n");
    turn("default").unwrap();
    assert_eq!(of("writeback_policy"), "fixed8\n");
    assert!(turn("fast").unwrap_err().message.contains("must be one of none, dirty_pages"));

    let refused = |name: &str, v: &str| Control::set(&*fs, Scope::Mount, name, v).unwrap_err();
    assert_eq!(refused("nr_to_write", "0").errno, libc::EINVAL);
    assert_eq!(refused("mb_groups", "1").errno, libc::EACCES);
    assert_eq!(refused("nonsense", "1").errno, libc::ENOENT);
    let e = Control::remount(&*fs, "noatime,data=journal").unwrap_err();
    assert!(e.message.contains("cannot be changed while mounted"), "{}", e.message);
    fs.unmount().unwrap();
    fsck(&dev);
}

#[test]
fn what_was_written_in_a_life_is_kept() {
    let dev = mkfs(32, &["-b", "4096"]);
    let fs = mount(dev.clone(), "");
    let before: u64 = get(&fs, "lifetime_write_kbytes").trim().parse().unwrap();
    let f = create(&fs, "f");
    write(&fs, f, 0, &vec![1; 4 << 20]).unwrap();
    fs.fsync(f, false).unwrap();
    let session: u64 = get(&fs, "session_write_kbytes").trim().parse().unwrap();
    assert!((4096..8192).contains(&session), "{session}");
    fs.unmount().unwrap();
    fsck(&dev);
    let fs = mount(dev.clone(), "ro");
    let after: u64 = get(&fs, "lifetime_write_kbytes").trim().parse().unwrap();
    assert!(after >= before + 4096, "{before} {after}");
    fs.unmount().unwrap();
}

#[test]
fn a_write_becomes_a_reservation_an_extent_a_transaction_and_a_commit() {
    let dev = mkfs(32, &["-b", "4096"]);
    let fs = mount(dev.clone(), "dirty_writeback=0");
    let f = create(&fs, "traced");
    let g = create(&fs, "other");
    let mut all = Control::trace(&*fs, "").unwrap();
    let mut one = Control::trace(&*fs, "path=/traced json ext4_da_* ext4_mballoc_alloc").unwrap();
    for i in [f, g] {
        write(&fs, i, 0, &[1; 16384]).unwrap();
        fs.fsync(i, false).unwrap();
    }
    let lines = |t: &mut Box<dyn uext4::options::TraceStream>| {
        let mut v = Vec::new();
        while let TraceNext::Line(l) = t.next(Duration::from_millis(50)) {
            v.push(l);
        }
        v
    };
    let json = lines(&mut one);
    assert!(json.iter().all(|l| l.contains(&format!("\"ino\":{}", f.0))), "{json:?}");
    let mut at = 0;
    for event in [
        "ext4_da_write_begin",
        "ext4_da_reserve_space",
        "ext4_da_writepages",
        "ext4_mballoc_alloc",
        "ext4_da_write_pages_extent",
        "ext4_da_writepages_result",
    ] {
        let named = format!("\"event\":\"{event}\"");
        let found = json[at..].iter().position(|l| l.contains(&named));
        at += found.unwrap_or_else(|| panic!("{event} after line {at} of {json:#?}"));
    }
    let text = lines(&mut all);
    for event in
        ["ext4_sync_file_enter", "jbd2_start_commit", "jbd2_end_commit", "ext4_sync_file_exit"]
    {
        assert!(text.iter().any(|l| l.contains(&format!(" {event}: "))), "{event} in {text:#?}");
    }
    let e = Control::trace(&*fs, "path=/nowhere").err().unwrap();
    assert!(e.message.contains("path=/nowhere"), "{}", e.message);
    fs.unmount().unwrap();
    drop(all);
    // Other tests of this process may still be telling.
    let end = Instant::now() + Duration::from_secs(60);
    while one.next(Duration::from_secs(5)) != TraceNext::End {
        assert!(Instant::now() < end, "the trace does not end with the mount");
    }
}
