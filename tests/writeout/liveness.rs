//! fsync and readers beside a writer that does not stop.

use super::*;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

#[test]
fn fsync_returns_under_a_writer_that_dirties_without_pause() {
    let dev = mkfs(64, &["-b", "4096"]);
    let fs = mount(dev.clone(), "");
    let f = create(&fs, "f");
    write(&fs, f, 0, &vec![1; 8 << 20]).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (fs, stop) = (fs.clone(), stop.clone());
        thread::spawn(move || {
            let mut n = 0u64;
            while !stop.load(SeqCst) {
                write(&fs, f, (n * 7 % 2048) * 4096, &[n as u8; 4096]).unwrap();
                n += 1;
            }
            n
        })
    };
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        let t = Instant::now();
        fs.fsync(f, false).unwrap();
        longest = longest.max(t.elapsed());
    }
    stop.store(true, SeqCst);
    assert!(writer.join().unwrap() > 0);
    assert!(longest < Duration::from_secs(10), "an fsync took {longest:?}");
    fs.unmount().unwrap();
    fsck(&dev);
}

/// Each block holds its number and a version, all through.
fn stamp(block: u64, version: u64) -> Vec<u8> {
    let mut b = vec![0; 4096];
    for c in b.chunks_exact_mut(16) {
        c[..8].copy_from_slice(&block.to_le_bytes());
        c[8..].copy_from_slice(&version.to_le_bytes());
    }
    b
}

/// Old or new data, or the zeros of a hole; which version.
fn version(block: u64, b: &[u8], mode: &str) -> u64 {
    if b.iter().all(|x| *x == 0) {
        return 0;
    }
    let v = u64::from_le_bytes(b[8..16].try_into().unwrap());
    assert_eq!(b, &stamp(block, v)[..b.len()], "{mode}: block {block}");
    v
}

#[test]
fn a_reader_during_write_out_sees_old_or_new_or_zeros() {
    const BLOCKS: u64 = 512;
    for mode in ["dioread_nolock", "dioread_lock", "nodelalloc,dioread_nolock"] {
        let dev = mkfs(64, &["-b", "4096"]);
        let background = "dirty_background_bytes=64k,dirty_bytes=1m,dirty_writeback=0.01";
        let fs = mount(dev.clone(), &format!("{mode},{background}"));
        let f = create(&fs, "f");
        let newest: Arc<Vec<AtomicU64>> =
            Arc::new((0..BLOCKS).map(|_| AtomicU64::new(0)).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..2u64)
            .map(|r| {
                let (fs, stop, newest) = (fs.clone(), stop.clone(), newest.clone());
                thread::spawn(move || {
                    let mut k = r * 131;
                    while !stop.load(SeqCst) {
                        let block = k * 37 % BLOCKS;
                        let floor = newest[block as usize].load(SeqCst);
                        let mut b = vec![0xee; 4096];
                        let n = fs
                            .read(
                                f,
                                block * 4096,
                                &mut b,
                                ReadHow { direct: r == 1, noatime: false },
                            )
                            .unwrap();
                        if n > 0 {
                            let v = version(block, &b[..n], mode);
                            assert!(v >= floor, "{mode}: block {block}: {v} after {floor}");
                        }
                        k += 1;
                    }
                })
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(if full_scale() { 60 } else { 2 });
        let mut v = 0;
        while Instant::now() < end {
            v += 1;
            for block in (0..BLOCKS).filter(|b| v > 1 || b % 3 != 0) {
                write(&fs, f, block * 4096, &stamp(block, v)).unwrap();
                newest[block as usize].store(v, SeqCst);
            }
            if v % 4 == 0 {
                fs.fsync(f, true).unwrap();
            }
        }
        stop.store(true, SeqCst);
        readers.into_iter().for_each(|r| r.join().unwrap());
        fs.unmount().unwrap();
        fsck(&dev);
        let fs = mount(dev.clone(), "ro");
        for block in 0..BLOCKS {
            let b = read(&fs, f, block * 4096, 4096);
            assert_eq!(version(block, &b, mode), newest[block as usize].load(SeqCst), "{mode}");
        }
        fs.unmount().unwrap();
    }
}
