//! Full, empty, full again: no space is lost and none is refused that is there.

use super::*;
use uext4::error::Error;

/// Blocks that may stay free on a full file system: map blocks that were kept back.
const SLACK: u64 = 64;

fn fill(fs: &Arc<Fs>, writers: usize, piece: usize, round: usize) -> Vec<Ino> {
    let threads: Vec<_> = (0..writers)
        .map(|w| {
            let fs = fs.clone();
            let f = create(&fs, &format!("r{round}w{w}"));
            let t = std::thread::spawn(move || {
                let data = vec![1 + w as u8; piece];
                for at in (0u64..).step_by(piece) {
                    match write(&fs, f, at, &data) {
                        Ok(n) => assert_eq!(n, piece),
                        Err(Error::NoSpace) => return,
                        Err(e) => panic!("writer {w}: {e}"),
                    }
                }
            });
            (f, t)
        })
        .collect();
    threads
        .into_iter()
        .map(|(f, t)| {
            t.join().unwrap();
            f
        })
        .collect()
}

fn rounds(mib: usize, block: &str, writers: usize, rounds: usize) {
    let dev = mkfs(mib, &["-b", block, "-J", "size=4"]);
    for round in 0..rounds {
        let fs = mount(dev.clone(), "dirty_bytes=4m,dirty_background_bytes=1m");
        let files = fill(&fs, writers, 32 << 10, round);
        Fs::sync(&fs).unwrap();
        let s = fs.vol.alloc.statfs();
        let piece = (32 << 10) / fs.vol.geo.block_size.bytes64();
        // What write-out keeps for its own map blocks nobody else gets, as in ext4.
        let kept = fs.vol.alloc.counters().pool();
        assert!(s.free <= kept + SLACK + piece, "block {block}, round {round}: ENOSPC with {s:?}");
        assert_eq!(s.dirty, 0, "block {block}, round {round}: reserved blocks leaked");
        for (w, _) in files.iter().enumerate() {
            fs.unlink(Ino::ROOT, format!("r{round}w{w}").as_bytes()).unwrap();
        }
        for f in files {
            fs.forget(f, 1);
        }
        fs.unmount().unwrap();
        let image = fsck(&dev);
        let super_block = run(Command::new("dumpe2fs").arg("-h").arg(image.path()));
        let free = super_block.lines().find_map(|l| l.strip_prefix("Free blocks:")).unwrap();
        let fs = mount(dev.clone(), "");
        let now = fs.vol.alloc.statfs().free;
        assert_eq!(free.trim().parse::<u64>().unwrap(), now, "block {block}, round {round}");
        fs.unmount().unwrap();
    }
}

#[test]
fn every_block_size_fills_to_the_brim_again_and_again() {
    let (mib, writers, n) = if full_scale() { (240, 16, 50) } else { (24, 8, 2) };
    for block in ["1024", "2048", "4096"] {
        rounds(mib, block, writers, n);
    }
    rounds(if full_scale() { 240 } else { 96 }, "65536", writers, n);
}
