//! How many pieces files come in.

use super::*;

#[test]
fn two_files_appended_to_in_turn_get_one_extent_each() {
    for mode in ["dioread_nolock", "dioread_lock"] {
        let dev = mkfs(64, &["-b", "4096"]);
        let fs = mount(dev.clone(), mode);
        let files = [create(&fs, "a"), create(&fs, "b")];
        for k in 0..512u64 {
            for f in files {
                write(&fs, f, k * 4096, &[1 + f.0 as u8; 4096]).unwrap();
            }
        }
        let delayed = extents(&fs, files[0]);
        assert_eq!(delayed.len(), 1, "{delayed:?}");
        assert_eq!(delayed[0].3, "last,unknown_loc,delalloc,eof");
        assert_eq!(get(&fs, "delayed_allocation_blocks"), "1024\n");
        Fs::sync(&fs).unwrap();
        for f in files {
            let e = extents(&fs, f);
            assert_eq!(e.len(), 1, "{mode}: {e:?}");
            assert_eq!((e[0].0, e[0].1, e[0].3.as_str()), (0, 512, "last,eof"));
        }
        assert_eq!(get(&fs, "delayed_allocation_blocks"), "0\n");
        fs.unmount().unwrap();
        fsck(&dev);
    }
}

#[test]
fn a_large_file_comes_in_few_extents_whatever_the_policy() {
    let dev = mkfs(512, &["-b", "4096"]);
    // The flusher follows close behind the writer.
    let fs = mount(dev.clone(), "dirty_background_bytes=1m,dirty_bytes=16m,dirty_writeback=0.01");
    for policy in ["none", "dirty_pages", "fixed8", "extent"] {
        set(&fs, "writeback_policy", policy);
        let f = create(&fs, policy);
        fs.open(f, true).unwrap();
        let chunk = vec![7; 1 << 20];
        for k in 0..96u64 {
            write(&fs, f, k << 20, &chunk).unwrap();
        }
        Fs::sync(&fs).unwrap();
        fs.release(f);
        let e = extents(&fs, f);
        assert_eq!(e.iter().map(|e| e.1).sum::<u64>(), 96 << 8);
        // 2 GiB in 20 extents is 96 MiB in one, and the edges of groups.
        assert!(e.len() <= 4, "{policy}: {} extents: {e:?}", e.len());
    }
    fs.unmount().unwrap();
    fsck(&dev);
}

#[test]
fn files_that_are_closed_lie_side_by_side() {
    let dev = mkfs(128, &["-b", "4096"]);
    let fs = mount(dev.clone(), "");
    let free_runs = |dev: &MemDevice| -> u64 {
        let text = run(Command::new("e2freefrag").arg(fsck(dev).path()));
        let line = text.lines().find_map(|l| l.strip_prefix("Num. free extent:"));
        line.unwrap().trim().parse().unwrap()
    };
    let before = free_runs(&dev);
    for i in 0..600u64 {
        let f = create(&fs, &format!("f{i}"));
        let blocks = 1 + i * 7 % 40;
        fs.open(f, true).unwrap();
        write(&fs, f, 0, &vec![1; blocks as usize * 4096 - 100]).unwrap();
        fs.release(f);
    }
    fs.unmount().unwrap();
    // What the kernel leaves of such a load: a few runs at the edges.
    let after = free_runs(&dev);
    assert!(after <= before + 6, "{before} runs of free blocks before, {after} after");
}

#[test]
fn a_temporary_file_never_touches_the_device() {
    let dev = mkfs(64, &["-b", "4096"]);
    let fs = mount(dev.clone(), "dirty_writeback=0.01,dirty_expire=600");
    let before = get(&fs, "stats");
    let pattern: Vec<u8> =
        (0..1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let f = create(&fs, "tmp");
    fs.open(f, true).unwrap();
    write(&fs, f, 0, &pattern).unwrap();
    assert_eq!(read(&fs, f, 0, 1 << 20), pattern);
    std::thread::sleep(std::time::Duration::from_millis(200));
    fs.unlink(Ino::ROOT, b"tmp").unwrap();
    fs.release(f);
    fs.forget(f, 1);
    fs.unmount().unwrap();
    let count = |text: &str| -> u64 {
        let written = |l: &&str| l.starts_with("writeback_") && l.contains("_written ");
        let number = |l: &str| l.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap();
        text.lines().filter(written).map(number).sum()
    };
    assert_eq!(count(&get(&fs, "stats")), count(&before));
    let image = std::fs::read(fsck(&dev).path()).unwrap();
    assert!(image.chunks(4096).all(|b| *b != pattern[..4096]), "its data is on the device");
}

#[test]
fn delayed_and_unwritten_ranges_are_shown_apart() {
    let dev = mkfs(64, &["-b", "4096"]);
    let fs = mount(dev.clone(), "");
    let f = create(&fs, "f");
    write(&fs, f, 0, &[1; 8192]).unwrap();
    fs.fsync(f, false).unwrap();
    fs.fallocate(Cred::ROOT, f, 8192, 8192, 0).unwrap();
    write(&fs, f, 10 * 4096, &[2; 4096]).unwrap();
    let e = extents(&fs, f);
    let shown: Vec<_> = e.iter().map(|e| (e.0, e.1, e.3.as_str())).collect();
    assert_eq!(shown, [(0, 2, ""), (2, 2, "unwritten"), (10, 1, "last,unknown_loc,delalloc,eof")]);
    fs.unmount().unwrap();
    fsck(&dev);
}

/// A file with a piece in every other block: each is mapped and converted by itself, and all of them
/// are more than a transaction of a small journal takes.
#[test]
fn a_file_of_many_pieces_loses_none() {
    for mode in ["dioread_nolock", "dioread_lock"] {
        let dev = mkfs(48, &["-b", "1024", "-J", "size=1"]);
        let fs = mount(dev.clone(), mode);
        let f = create(&fs, "f");
        let block = |k: u64, v: u8| [(k % 251) as u8 ^ v; 1024];
        for k in (0..4000u64).step_by(2) {
            write(&fs, f, k * 1024, &block(k, 1)).unwrap();
        }
        fs.fsync(f, false).unwrap();
        for k in 0..4000u64 {
            write(&fs, f, k * 1024, &block(k, 2)).unwrap();
        }
        fs.fsync(f, false).unwrap();
        for k in 0..4000u64 {
            assert!(read(&fs, f, k * 1024, 1024) == block(k, 2), "{mode}: block {k}");
        }
        fs.unmount().unwrap();
        fsck(&dev);
    }
}

/// Each block of a journalled file is revoked as it is freed; the records of a long extent are more
/// than one step's credits pay for.
#[test]
fn a_long_journalled_file_goes_within_its_credits() {
    let dev = mkfs(64, &["-b", "1024", "-J", "size=4"]);
    let fs = mount(dev.clone(), "data=journal");
    let f = create(&fs, "f");
    fs.fallocate(Cred::ROOT, f, 0, 30 << 20, 0).unwrap();
    fs.unlink(Ino::ROOT, b"f").unwrap();
    fs.forget(f, 1);
    fs.unmount().unwrap();
    fsck(&dev);
}
