//! The mode flipped every second under full load: reads speed up and stop in step, and every block that
//! was written is what is read.

use super::{ctl, fio::Fio};
use crate::common::{Fs, Scratch, scaled};
use std::time::{Duration, Instant};

#[test]
fn reads_follow_the_mode_and_the_data_is_right() {
    let scratch = Scratch::alone();
    let image = scratch.mkfs("img", "1G", &["-E", "lazy_itable_init=0"]);
    let verify = "bs=16k verify=crc32c verify_fatal=1";
    // Blocks that carry their checksum, laid out without the model.
    let mount = scratch.mount(Fs::Uext4, &image, "");
    // One file for both: the lock is the inode's.
    let file = mount.join("file");
    let fio = Fio::new(&file).with(verify);
    fio.with("size=256m rw=write do_verify=0 end_fsync=1 name=layout").run();
    mount.umount();
    let mount = scratch.mount(Fs::Uext4, &image, "disk_model=raid10-14,disk_scale=2");
    let seconds: u64 = scaled(8, 60);
    let log = scratch.join("log");
    let child = Fio::new(&file)
        .with(verify)
        .with(&format!("ioengine=psync time_based runtime={seconds} norandommap randrepeat=0"))
        .with(&format!("numjobs=4 log_avg_msec=250 write_bw_log={}", log.display()))
        .with("name=readers rw=randread size=128m offset=0")
        .with("name=writers rw=randwrite size=128m offset=128m do_verify=0")
        .start();
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    for second in 0..seconds {
        let mode = if second % 2 == 0 { "lock" } else { "nolock" };
        let t = Instant::now();
        ctl(mount.path(), &format!("dioread_mode={mode}"));
        slowest = slowest.max(t.elapsed());
        let next = Duration::from_secs(second + 1);
        std::thread::sleep(next.saturating_sub(start.elapsed()));
    }
    let status = { child }.wait().unwrap();
    assert!(status.success(), "fio: {status}");
    assert!(slowest < Duration::from_secs(1), "a switch took {slowest:?}");
    // Jobs 1 to 4 read, 5 to 8 write; a line of the log: milliseconds, KiB/s, direction, ...
    let mut series = vec![[0.0f64; 2]; seconds as usize * 4 + 8];
    for job in 1..=8 {
        let path = format!("{}_bw.{job}.log", log.display());
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let w: Vec<u64> = line.split(", ").take(3).map(|w| w.trim().parse().unwrap()).collect();
            let slot = (w[0] / 250) as usize;
            if let Some(s) = series.get_mut(slot) {
                s[w[2] as usize] += w[1] as f64 / 1024.0;
            }
        }
    }
    println!("seconds  mode     read MiB/s  write MiB/s");
    let (mut locked, mut free) = (Vec::new(), Vec::new());
    for (i, [r, w]) in series.iter().enumerate().take(seconds as usize * 4).skip(4) {
        let lock = (i / 4) % 2 == 0;
        println!(
            "{:7.2}  {:7} {r:11.2} {w:12.2}",
            i as f64 / 4.0,
            if lock { "lock" } else { "nolock" }
        );
        // The quarter in which the switch happens belongs to neither.
        if i % 4 > 1 {
            if lock { &mut locked } else { &mut free }.push(*r);
        }
    }
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
    let (locked, free) = (mean(&locked), mean(&free));
    println!("mean of reads: {locked:.2} MiB/s under lock, {free:.2} under nolock");
    assert!(free > 5.0 * locked, "reads do not follow the mode: {locked:.2} and {free:.2}");
    // Everything, from start to end.
    Fio::new(&file).with(verify).with("rw=read size=256m name=check").run();
    mount.umount();
    image.fsck();
}
