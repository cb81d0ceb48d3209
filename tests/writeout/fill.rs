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

/// What write accepted on a file system that fills up is there, whatever kind of map holds it.
fn nothing_accepted_is_lost(mkfs_args: &[&str], options: &str, sparse: bool) {
    let dev = mkfs(16, mkfs_args);
    let fs = mount(dev.clone(), options);
    let mut files: Vec<(Ino, Vec<(u64, usize)>)> = Vec::new();
    // Ever smaller pieces, until not one byte more fits.
    for (n, piece) in [100_000, 20_000, 4096, 1024, 100].into_iter().enumerate() {
        let f = match fs.mknod(Cred::ROOT, Ino::ROOT, format!("f{n}").as_bytes(), 0o100644, 0, 0) {
            Ok(s) => s.ino,
            Err(Error::NoSpace) => break,
            Err(e) => panic!("{e}"),
        };
        let mut pieces = Vec::new();
        let gap = if sparse { 300 << 10 } else { 0 };
        for k in 0.. {
            let at = k * (piece + gap) as u64;
            let data: Vec<u8> = (0..piece).map(|i| (i + n) as u8 | 1).collect();
            match write(&fs, f, at, &data) {
                Ok(n) => pieces.push((at, n)),
                Err(Error::NoSpace | Error::TooBig) => break,
                Err(e) => panic!("{e}"),
            }
            assert!(pieces.len() < 1 << 20, "there is no end");
        }
        files.push((f, pieces));
    }
    let s = fs.vol.alloc.statfs();
    let kept = fs.vol.alloc.counters().pool();
    assert!(s.free <= kept + 8, "ENOSPC with {s:?}");
    fs.unmount().unwrap();
    fsck(&dev);
    let fs = mount(dev, "ro");
    for (n, (f, pieces)) in files.iter().enumerate() {
        for (at, len) in pieces {
            let want: Vec<u8> = (0..*len).map(|i| (i + n) as u8 | 1).collect();
            assert!(read(&fs, *f, *at, *len) == want, "file {n}, byte {at}");
        }
    }
    fs.unmount().unwrap();
}

#[test]
fn nothing_accepted_is_lost_in_an_indirect_map() {
    nothing_accepted_is_lost(&["-t", "ext2", "-b", "1024", "-m", "0"], "rw", false);
    nothing_accepted_is_lost(&["-t", "ext2", "-b", "1024", "-m", "0"], "rw", true);
    nothing_accepted_is_lost(&["-t", "ext3", "-b", "1024", "-J", "size=1"], "rw", true);
    nothing_accepted_is_lost(&["-t", "ext3", "-b", "4096"], "data=journal", false);
}

#[test]
fn nothing_accepted_is_lost_in_an_extent_tree() {
    nothing_accepted_is_lost(&["-b", "1024", "-J", "size=1"], "rw", false);
    nothing_accepted_is_lost(&["-b", "1024", "-J", "size=1"], "rw", true);
    nothing_accepted_is_lost(&["-b", "4096", "-O", "^has_journal"], "nodelalloc", true);
}
