//! Logs that lie: recovery ends, with a result or an error, and writes nothing where it must not.

use super::image::{log_map, mkfs, open_log, superblock};
use crate::device::{BlockDevice, MemDevice};
use crate::journal::{JournalOptions, Opened, open};
use crate::ondisk::jbd2::JournalSuper;
use crate::ondisk::{Geometry, Seal};
use crate::types::Block;
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

/// A dirty image without checksums, with 1 KiB blocks, and one with.
static DIRTY: LazyLock<[MemDevice; 2]> =
    LazyLock::new(|| [dirty("^metadata_csum"), dirty("metadata_csum")]);

fn dirty(feature: &str) -> MemDevice {
    let dev = Arc::new(mkfs(8, &["-b", "1024", "-J", "size=1", "-O", feature]));
    let (j, _) = open_log(dev.clone(), JournalOptions::default());
    for i in 0..5 {
        let mut h = j.start("fill", 20).unwrap();
        for b in 0..15 {
            h.create(Block(6000 + b), &Seal::None, |d| d.fill(i)).unwrap();
        }
        h.forget(Block(6100 + u64::from(i))).unwrap();
        drop(h);
        j.commit_all().unwrap();
    }
    j.set_emergency_stop();
    dev.snapshot()
}

/// Replays; what it must never write to is compared afterwards.
fn attack(dev: MemDevice) {
    let before = dev.snapshot();
    let dev: Arc<MemDevice> = Arc::new(dev);
    let geo = Geometry::new(&superblock(&*dev), Some(dev.size())).unwrap();
    let map = log_map(dev.clone());
    let Ok(Opened::NeedsRecovery(d)) = open(map.clone(), true) else { return };
    let ok = d.recover(&geo, &*dev).is_ok();
    let bs = geo.block_size.bytes();
    let (mut a, mut b) = (vec![0; bs], vec![0; bs]);
    for block in 0..geo.blocks_count {
        let home = Block(block);
        if map.holds(home) || !ok {
            before.read_at(&mut a, block * bs as u64).unwrap();
            dev.read_at(&mut b, block * bs as u64).unwrap();
            assert!(a == b, "block {block} changed");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn flipped_bytes(csum: bool, flips in proptest::collection::vec((0u32..120, 0usize..1024, any::<u8>()), 1..8)) {
        let dev = DIRTY[usize::from(csum)].snapshot();
        let map = log_map(Arc::new(dev.snapshot()));
        for (index, at, value) in flips {
            let (home, _) = map.locate(index).unwrap();
            dev.write_at(&[value], home.0 * 1024 + at as u64).unwrap();
        }
        attack(dev);
    }

    #[test]
    fn header_fields(csum: bool, index in 1u32..100, word in 0usize..12, value: u32) {
        let dev = DIRTY[usize::from(csum)].snapshot();
        let map = log_map(Arc::new(dev.snapshot()));
        let (home, _) = map.locate(index).unwrap();
        dev.write_at(&value.to_be_bytes(), home.0 * 1024 + 4 * word as u64).unwrap();
        attack(dev);
    }
}

#[test]
fn tags_that_reach_outside_stop_the_replay_before_it_writes() {
    for target in [0u32, 8192, u32::MAX] {
        let dev = DIRTY[0].snapshot();
        let map = log_map(Arc::new(dev.snapshot()));
        // The first block of the log is a revoke block, the second a descriptor: its first tag.
        let (home, _) = map.locate(2).unwrap();
        let mut block = [0; 1024];
        dev.read_at(&mut block, home.0 * 1024).unwrap();
        assert_eq!(block[..8], [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1]);
        dev.write_at(&target.to_be_bytes(), home.0 * 1024 + 12).unwrap();
        let dev = Arc::new(dev);
        let geo = Geometry::new(&superblock(&*dev), None).unwrap();
        let Ok(Opened::NeedsRecovery(d)) = open(log_map(dev.clone()), true) else { panic!() };
        assert!(d.recover(&geo, &*dev).is_err(), "{target}");
        let mut b = [0; 1024];
        dev.read_at(&mut b, 6001 * 1024).unwrap();
        assert_eq!(b, [0; 1024], "nothing was replayed");
    }
}

#[test]
fn a_tag_into_the_journal_is_refused() {
    let dev = DIRTY[0].snapshot();
    let map = log_map(Arc::new(dev.snapshot()));
    let (home, _) = map.locate(2).unwrap();
    let own = map.locate(500).unwrap().0.0 as u32;
    dev.write_at(&own.to_be_bytes(), home.0 * 1024 + 12).unwrap();
    let dev = Arc::new(dev);
    let geo = Geometry::new(&superblock(&*dev), None).unwrap();
    let Ok(Opened::NeedsRecovery(d)) = open(log_map(dev.clone()), true) else { panic!() };
    assert!(d.recover(&geo, &*dev).is_err());
}

#[test]
fn a_broken_commit_in_the_middle_is_an_error_and_at_the_end_is_the_end() {
    let find = |dev: &MemDevice, n: usize| {
        let map = log_map(Arc::new(dev.snapshot()));
        let mut seen = 0;
        for i in 1..map.len() {
            let b = map.read(i).unwrap();
            if b[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2] {
                seen += 1;
                if seen == n {
                    return map.locate(i).unwrap().0.0;
                }
            }
        }
        panic!("no commit {n}");
    };
    for (n, ok) in [(2, false), (5, true)] {
        let dev = DIRTY[1].snapshot();
        dev.write_at(&[1], find(&dev, n) * 1024 + 600).unwrap();
        let dev = Arc::new(dev);
        let geo = Geometry::new(&superblock(&*dev), None).unwrap();
        let Ok(Opened::NeedsRecovery(d)) = open(log_map(dev.clone()), true) else { panic!() };
        let r = d.recover(&geo, &*dev);
        assert_eq!(r.is_ok(), ok, "commit {n}");
        if let Ok(r) = r {
            assert_eq!(r.recovered.transactions, 4);
            let next = r.recovered.highest.next().next();
            r.finish().unwrap();
            let map = log_map(dev.clone());
            let sb =
                JournalSuper::parse(&map.read(0).unwrap(), map.block_size(), u64::MAX).unwrap();
            assert_eq!((sb.start(), sb.sequence()), (0, next));
        }
    }
}

#[test]
fn a_read_only_mount_replays_into_memory() {
    let dev = Arc::new(DIRTY[1].snapshot());
    let before = dev.snapshot();
    let geo = Geometry::new(&superblock(&*dev), None).unwrap();
    let Ok(Opened::NeedsRecovery(d)) = open(log_map(dev.clone()), true) else { panic!() };
    let overlay = crate::device::overlay::Overlay::new(dev.clone(), 1 << 20);
    let r = d.recover_into(&geo, &overlay).unwrap();
    assert_eq!((r.transactions, r.blocks), (5, 15));
    let mut b = [0; 1024];
    overlay.read_at(&mut b, 6003 * 1024).unwrap();
    assert_eq!(b, [4; 1024]);
    let (mut a, mut b) = (vec![0; 8 << 20], vec![0; 8 << 20]);
    before.read_at(&mut a, 0).unwrap();
    dev.read_at(&mut b, 0).unwrap();
    assert!(a == b, "the device changed");
}
