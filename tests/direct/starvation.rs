//! Random direct reads beside random direct writes of one file on the model of a RAID10 of fourteen
//! disks: in mode `lock` the reads all but stop, in mode `nolock` both get what the array gives.

use super::{MODES, ctl, fio::Fio, written_file};
use crate::common::{Fs, Mount, Scratch, full, scaled};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use uext4::device::{AlignedBuf, BlockDevice, MemDevice, ModelDevice, model::presets};

const FILE: u64 = 512 << 20;
/// As much faster than life as this machine's processors allow for 2 x 32 clients.
const DISK_SCALE: f64 = 2.0;

/// What the array alone gives that many readers and writers, in MB/s.
fn raw(size: u64, at: u64, block: u64, clients: usize, time: Duration) -> (f64, f64) {
    let mem = Arc::new(MemDevice::new(size));
    let spec = presets::by_name("raid10-14").unwrap();
    let dev = ModelDevice::new(mem, spec, DISK_SCALE, 1);
    let bytes = [AtomicU64::new(0), AtomicU64::new(0)];
    let end = Instant::now() + time;
    std::thread::scope(|s| {
        for n in 0..2 * clients {
            let (dev, bytes) = (&dev, &bytes);
            s.spawn(move || {
                let mut random = crate::common::Random::new(n as u64);
                let mut buf = AlignedBuf::zeroed(block as usize);
                while Instant::now() < end {
                    let off = at + random.next() % (FILE / block) * block;
                    match n % 2 {
                        0 => dev.read_at(&mut buf, off).unwrap(),
                        _ => dev.write_at(&buf, off).unwrap(),
                    }
                    bytes[n % 2].fetch_add(block, Relaxed);
                }
            });
        }
    });
    let rate = |b: &AtomicU64| b.load(Relaxed) as f64 / 1e6 / time.as_secs_f64();
    (rate(&bytes[0]), rate(&bytes[1]))
}

fn both(mount: &Mount, block: u64, clients: usize, time: Duration) -> (f64, f64) {
    let s = Fio::new(&mount.join("file"))
        .with(&format!(
            "ioengine=psync bs={block} numjobs={clients} time_based runtime={} size={FILE} \
             norandommap randrepeat=0 ramp_time=1",
            time.as_secs()
        ))
        .with("name=readers rw=randread name=writers rw=randwrite")
        .run();
    (s.read, s.write)
}

#[test]
fn readers_starve_in_mode_lock_and_get_what_the_array_gives_in_nolock() {
    let scratch = Scratch::alone();
    let image = scratch.mkfs("img", "2G", &["-E", "lazy_itable_init=0"]);
    let options = format!("disk_model=raid10-14,disk_scale={DISK_SCALE}");
    // Laid out without the model, which is slow.
    let mount = scratch.mount(Fs::Uext4, &image, "");
    written_file(&mount, "file", FILE);
    mount.umount();
    let at = image.debugfs("blocks file").split_whitespace().next().unwrap().parse::<u64>();
    let (at, size) = (at.unwrap() * 4096, 2 << 30);
    let mount = scratch.mount(Fs::Uext4, &image, &options);
    let time = Duration::from_secs(scaled(4, 10));
    let blocks: &[u64] = if full() { &[4, 16, 64, 256, 1024] } else { &[4, 64] };
    let clients: &[usize] = if full() { &[1, 4, 32] } else { &[4] };
    println!(
        "block clients |  raw read write | lock read write | shared read write | nolock read write"
    );
    let mut wrong = Vec::new();
    for block in blocks {
        for n in clients {
            let raw = raw(size, at, block << 10, *n, time);
            // The modes one after the other in each line: what else the machine does meets them all.
            let got = MODES.map(|mode| {
                ctl(mount.path(), &format!("dioread_mode={mode}"));
                both(&mount, block << 10, *n, time)
            });
            let show = |(r, w): (f64, f64)| format!("{r:7.2} {w:7.2}");
            println!(
                "{block:4}k {n:7} | {} | {} | {} | {}",
                show(raw),
                show(got[0]),
                show(got[1]),
                show(got[2])
            );
            let [lock, _, nolock] = got;
            // One reader beside one writer who thinks between requests gets some turns in any mode.
            if lock.0 > 0.1 * lock.1 || lock.0 > 0.15 * nolock.0 {
                wrong.push(format!("{block}k {n}: lock reads {:.2} of {:.2}", lock.0, nolock.0));
            }
            let least = if full() { 0.85 } else { 0.6 };
            if nolock.0 < least * raw.0 || nolock.1 < least * raw.1 {
                wrong.push(format!("{block}k {n}: nolock {nolock:.2?} of raw {raw:.2?}"));
            }
        }
    }
    mount.umount();
    image.fsck();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
