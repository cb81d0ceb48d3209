use super::*;
use crate::alloc::Kind;
use crate::error::Error;
use crate::types::{Block, Group};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

/// Numbers without pattern, the same each time.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as u32 % n.max(1)
    }
}

/// Which blocks are taken, to catch one handed out twice.
#[derive(Default)]
struct Owned(BTreeMap<u64, u32>);

impl Owned {
    fn add(&mut self, r: Run) {
        let before = self.0.range(..=r.start.0).next_back();
        assert!(before.is_none_or(|(s, l)| s + u64::from(*l) <= r.start.0), "{r:?} overlaps");
        let after = self.0.range(r.start.0..).next();
        assert!(after.is_none_or(|(s, _)| *s >= r.end().0), "{r:?} overlaps");
        self.0.insert(r.start.0, r.len);
    }
    fn blocks(&self) -> u64 {
        self.0.values().map(|l| u64::from(*l)).sum()
    }
    fn take_random(&mut self, rng: &mut Rng) -> Option<Run> {
        let n = rng.below(self.0.len() as u32) as usize;
        let (start, len) = self.0.iter().nth(n).map(|(s, l)| (*s, *l))?;
        self.0.remove(&start);
        Some(Run { start: Block(start), len })
    }
}

#[test]
fn random_use_then_all_free_is_clean_on_every_layout() {
    for (i, args) in LAYOUTS.iter().enumerate() {
        let size = if args.contains(&"65536") { "512M" } else { "48M" };
        let fs = Fs::new(args, size);
        // A small buddy cache, so that buddies are evicted and built again.
        fs.alloc.tunables().set_buddy_cache_bytes(1);
        let before = fs.alloc.statfs();
        let mut rng = Rng(0x1234_5678_9abc + i as u64);
        let mut owned = Owned::default();
        for step in 0..2000u32 {
            let ino = 12 + rng.below(40);
            match rng.below(10) {
                0..=5 => {
                    let most = if rng.below(8) == 0 { 600 } else { 12 };
                    let len = 1 + rng.below(most);
                    let lblk = rng.below(3) * rng.below(2000);
                    let req = Request {
                        size_hint: u64::from(lblk + len) << fs.geo.block_size.log2(),
                        goal: (rng.below(3) == 0)
                            .then(|| Block(u64::from(rng.below(fs.geo.blocks_count as u32)))),
                        kind: [Kind::Data, Kind::Metadata, Kind::Directory][rng.below(3) as usize],
                        prealloc: rng.below(2) == 0,
                        root_ok: rng.below(2) == 0,
                        ..Request::data(Ino(ino), LBlock(lblk), len)
                    };
                    match fs.take(req) {
                        Ok(r) => {
                            assert!(r.len >= 1 && r.len <= len);
                            owned.add(r);
                        }
                        Err(Error::NoSpace) => {
                            fs.alloc.reclaim(&fs.journal).unwrap();
                        }
                        Err(e) => panic!("step {step}: {e}"),
                    }
                }
                6..=8 => {
                    if let Some(r) = owned.take_random(&mut rng) {
                        fs.give(r);
                    }
                }
                _ => match rng.below(3) {
                    0 => fs.commit(),
                    1 => fs.alloc.discard_prealloc(Ino(ino)),
                    _ => drop(fs.alloc.group_info(Group(rng.below(fs.geo.groups_count)))),
                },
            }
        }
        let now = fs.alloc.statfs();
        assert_eq!(before.free - now.free, owned.blocks(), "{args:?}");
        for (start, len) in &owned.0 {
            assert!(fs.alloc.is_used(Run { start: Block(*start), len: *len }).unwrap());
        }
        while let Some(r) = owned.take_random(&mut rng) {
            fs.give(r);
        }
        fs.alloc.reclaim(&fs.journal).unwrap();
        assert_eq!(fs.alloc.withheld_blocks(), (0, 0));
        assert_eq!(fs.alloc.statfs(), before, "{args:?}");
        fs.fsck();
    }
}

#[test]
fn what_is_allocated_shows_in_bitmap_descriptor_and_superblock() {
    let fs = Fs::new(&["-b", "1024"], "48M");
    let free = fs.alloc.statfs().free;
    let last = fs.geo.groups_count - 1;
    // The last group was never used: its bitmap is made.
    let goal = fs.geo.group_first_block(Group(last)).plus(2000);
    let r = fs.take(Request::metadata(Ino(12), Some(goal))).unwrap();
    assert_eq!(r, Run { start: goal, len: 1 });
    let text = dumpe2fs(&fs.close());
    assert!(text.contains(&format!("Free blocks:              {}\n", free - 1)), "{text}");
    let part = text.split(&format!("Group {last}:")).nth(1).unwrap();
    assert!(part.contains(&format!("-{}, {}-", goal.0 - 1, goal.0 + 1)), "{part}");
    assert!(!part.contains("BLOCK_UNINIT"), "{part}");
}

#[test]
fn freed_blocks_wait_for_the_commit() {
    let fs = Fs::new(&["-b", "1024"], "8M");
    let r = fs.take(Request { len: 4, ..Request::metadata(Ino(12), Some(Block(4000))) }).unwrap();
    assert_eq!(r.start, Block(4000));
    // Allocated and freed in the same transaction: it waits too.
    fs.give(r);
    assert_eq!(fs.alloc.withheld_blocks(), (0, 4));
    let again = fs.take(Request::metadata(Ino(12), Some(Block(4000)))).unwrap();
    assert!(!(4000..4004).contains(&again.start.0), "{again:?}");
    fs.give(again);
    fs.commit();
    assert!(!fs.alloc.has_pending_frees());
    let r = fs.take(Request::metadata(Ino(12), Some(Block(4000)))).unwrap();
    assert_eq!(r.start, Block(4000));
    fs.give(r);
    fs.commit();
    fs.fsck();
}

#[test]
fn a_rebuilt_buddy_withholds_pending_and_held_blocks() {
    let fs = Fs::new(&["-b", "1024", "-O", "^flex_bg"], "200M");
    let fill = |g: u32| drop(fs.alloc.group_info(Group(g)).unwrap());
    let held = fs.take_data(12, 64, 40).unwrap();
    let (pa, _) = fs.alloc.withheld_blocks();
    assert_eq!(pa, 24, "64 to 128 is the window");
    let gone = fs.take_data(13, 0, 50).unwrap();
    fs.alloc.discard_prealloc(Ino(13));
    fs.give(gone);
    let g = fs.geo.group_of_block(held.start).unwrap().0;
    let before = fs.alloc.group_info(g).unwrap();
    fs.alloc.tunables().set_buddy_cache_bytes(0);
    (0..fs.geo.groups_count).for_each(fill);
    (0..fs.geo.groups_count).for_each(fill);
    fs.alloc.tunables().set_mb_stats(true);
    let built = fs.alloc.stats().buddies_generated.load(Relaxed);
    assert_eq!(fs.alloc.group_info(g).unwrap(), before);
    assert!(fs.alloc.stats().buddies_generated.load(Relaxed) > built, "it was evicted");
    let next = fs.take_data(12, 104, 1).unwrap();
    assert_eq!(next.start, held.end());
}

#[test]
fn double_free_and_metadata_are_refused() {
    let fs = Fs::new(&["-b", "1024"], "32M");
    let flags = FreeFlags::default();
    let r = fs.take_data(12, 0, 8).unwrap();
    fs.alloc.discard_all_preallocs();
    let mut h = fs.handle();
    let beyond = Run { start: Block(fs.geo.blocks_count - 1), len: 2 };
    for bad in [beyond, Run { start: Block(0), len: 1 }, Run { start: Block(5), len: 0 }] {
        let e = fs.alloc.free(&mut h, bad, flags).unwrap_err();
        assert!(matches!(e, Error::Corrupt(c) if c.block == Some(bad.start)));
    }
    let table = fs.alloc.inode_table(Group(1)).unwrap();
    let e = fs.alloc.free(&mut h, Run { start: table, len: 1 }, flags).unwrap_err();
    assert!(matches!(e, Error::Corrupt(c) if c.block == Some(table)));
    fs.alloc.protect(&[Run { start: Block(9000), len: 10 }]).unwrap();
    let journal = Run { start: Block(8995), len: 10 };
    let e = fs.alloc.free(&mut h, journal, flags).unwrap_err();
    assert!(matches!(e, Error::Corrupt(c) if c.block == Some(Block(9000))));
    let tail = Run { start: r.start.plus(4), len: 4 };
    fs.alloc.free(&mut h, tail, flags).unwrap();
    // Freeing the whole run frees its tail twice: nothing changes, and the group is out of use.
    let free = fs.alloc.counters().free();
    let e = fs.alloc.free(&mut h, r, flags).unwrap_err();
    let Error::Corrupt(c) = e else { panic!("{e}") };
    let (g, _) = fs.geo.group_of_block(r.start).unwrap();
    assert_eq!((c.block, c.group), (Some(tail.start), Some(g)));
    assert!(fs.alloc.counters().free() < free);
    assert_eq!(fs.alloc.group_info(g).unwrap(), None);
    let other = fs.alloc.alloc(&mut h, Request::metadata(Ino(12), Some(r.start))).unwrap();
    assert_ne!(fs.geo.group_of_block(other.start).unwrap().0, g);
}

#[test]
fn a_bad_bitmap_excludes_its_group_only() {
    let dev = mke2fs(&["-b", "1024", "-O", "^flex_bg"], "32M");
    let probe = Fs::open(dev.snapshot(), Tunables::default());
    let uninit = crate::ondisk::GroupFlags::BLOCK_UNINIT;
    let desc = |g| probe.alloc.group_desc(g).unwrap();
    let bad = (1..4).map(Group).find(|g| !desc(*g).flags.contains(uninit)).unwrap();
    let desc = desc(bad);
    dev.write_at(&[0xaa; 16], probe.geo.block_size.offset(desc.block_bitmap) + 300).unwrap();
    let fs = Fs::open(dev, Tunables::default());
    let errors = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let sink = Arc::clone(&errors);
    fs.alloc.set_error_sink(Box::new(move |e| sink.lock().push(e.to_string())));
    let goal = fs.geo.group_first_block(bad).plus(6000);
    let r = fs.take(Request::metadata(Ino(12), Some(goal))).unwrap();
    assert_ne!(fs.geo.group_of_block(r.start).unwrap().0, bad);
    assert_eq!(errors.lock().len(), 1);
    assert!(errors.lock()[0].contains("block bitmap"), "{:?}", errors.lock());
    assert!(errors.lock()[0].contains(&format!("group {bad}")), "{:?}", errors.lock());
}

#[test]
fn overlapping_or_outlying_tables_do_not_open() {
    let dev = mke2fs(&["-b", "1024", "-O", "^metadata_csum,^uninit_bg"], "32M");
    // bg_inode_bitmap_lo of group 1 becomes the block bitmap of group 0, or a block past the end.
    for (value, what) in [(None, "overlap"), (Some(40_000u32), "inode bitmap location")] {
        let bad = dev.snapshot();
        let mut first = [0; 4];
        bad.read_at(&mut first, 2048).unwrap();
        let v = value.map_or(first, u32::to_le_bytes);
        let geo = Fs::open(dev.snapshot(), Tunables::default()).geo;
        bad.write_at(&v, 2048 + u64::from(geo.desc_size) + 4).unwrap();
        let e = Fs::try_open(bad, Tunables::default()).err().unwrap();
        assert!(matches!(&e, Error::Corrupt(_)), "{e}");
        assert!(e.to_string().contains(what), "{e}");
    }
}

/// Appends block by block to several files in turn; how many runs each consists of.
fn append_in_turn(fs: &Fs, files: u32, blocks: u32) -> Vec<usize> {
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); files as usize];
    for lblk in 0..blocks {
        for f in 0..files {
            let list = &mut runs[f as usize];
            let req = Request {
                goal: list.last().map(|r: &Run| r.end()),
                size_hint: u64::from(lblk + 1) << fs.geo.block_size.log2(),
                ..Request::data(Ino(12 + f), LBlock(lblk), 1)
            };
            let r = fs.take(req).unwrap();
            match list.last_mut() {
                Some(last) if last.end() == r.start => last.len += r.len,
                _ => list.push(r),
            }
        }
    }
    runs.iter().map(Vec::len).collect()
}

#[test]
fn files_that_grow_in_turn_have_few_extents() {
    let fs = Fs::new(&["-b", "4096"], "256M");
    for n in append_in_turn(&fs, 2, 512) {
        assert!(n <= 11, "{n} extents");
    }
    let fs = Fs::new(&["-b", "4096"], "256M");
    for n in append_in_turn(&fs, 8, 512) {
        assert!(n <= 11, "{n} extents");
    }
}

#[test]
fn a_large_file_is_a_few_large_runs() {
    let fs = Fs::new(&["-b", "4096"], "512M");
    let (mut at, mut goal, mut runs) = (0, None, 0);
    while at < 80_000 {
        let req = Request {
            goal,
            size_hint: 80_000 << 12,
            delalloc: true,
            ..Request::data(Ino(12), LBlock(at), 80_000 - at)
        };
        let r = fs.take(req).unwrap();
        runs += usize::from(goal != Some(r.start));
        goal = Some(r.end());
        at += r.len;
    }
    assert!(runs <= 8, "{runs} extents");
}

#[test]
fn small_files_are_packed() {
    let fs = Fs::new(&["-b", "4096"], "256M");
    let mut runs = Vec::new();
    for ino in 12..112 {
        let req = Request { size_hint: 3 << 12, ..Request::data(Ino(ino), LBlock(0), 3) };
        runs.push(fs.take(req).unwrap());
    }
    let breaks = runs.windows(2).filter(|w| w[0].end() != w[1].start).count();
    assert!(runs.iter().all(|r| r.len == 3));
    assert!(breaks <= 1, "{breaks}");
}

#[test]
fn stripes_are_honoured() {
    let fs = Fs::new(&["-b", "4096"], "256M");
    fs.alloc.tunables().set_stripe(24);
    let req = Request {
        size_hint: 240 << 12,
        prealloc: false,
        goal: Some(Block(5001)),
        ..Request::data(Ino(12), LBlock(0), 240)
    };
    // The goal is free and large enough, so it wins over the stripe.
    assert_eq!(fs.take(req).unwrap().start, Block(5001));
    let req = Request {
        size_hint: 240 << 12,
        prealloc: false,
        goal: Some(Block(5001)),
        ..Request::data(Ino(13), LBlock(0), 240)
    };
    let r = fs.take(req).unwrap();
    assert_eq!(r.start.0 % 24, 0, "{r:?}");
    assert_eq!(r.len, 240);
}

#[test]
fn trim_discards_what_is_free_and_nothing_else() {
    let fs = Fs::new(&["-b", "1024"], "32M");
    let r = fs.take_data(12, 0, 100).unwrap();
    fs.alloc.discard_all_preallocs();
    let bs = fs.geo.block_size;
    let mark = vec![0x5a; bs.bytes() * r.len as usize];
    fs.dev.write_at(&mark, bs.offset(r.start)).unwrap();
    let gone = fs.take_data(13, 0, 100).unwrap();
    fs.alloc.discard_all_preallocs();
    fs.dev.write_at(&mark, bs.offset(gone.start)).unwrap();
    fs.give(gone);
    // Not committed: not free yet.
    let free = fs.alloc.counters().free();
    let n = fs.alloc.trim(Block(0), u64::MAX, 1).unwrap();
    assert_eq!(n, free - 100);
    let mut back = mark.clone();
    fs.dev.read_at(&mut back, bs.offset(gone.start)).unwrap();
    assert_eq!(back, mark);
    fs.commit();
    // Only the group that got something back is gone through again.
    let again = fs.alloc.trim(Block(0), u64::MAX, 1).unwrap();
    assert!((100..=8192).contains(&again), "{again}");
    fs.dev.read_at(&mut back, bs.offset(gone.start)).unwrap();
    assert!(back.iter().all(|b| *b == 0));
    assert_eq!(fs.alloc.trim(Block(0), u64::MAX, 1).unwrap(), 0);
    fs.dev.read_at(&mut back, bs.offset(r.start)).unwrap();
    assert_eq!(back, mark);
    assert_eq!(fs.alloc.withheld_blocks(), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]
    #[test]
    fn threads_never_share_a_block(seed in 1u64..u64::MAX) {
        let fs = Fs::new(&["-b", "1024"], "24M");
        fs.alloc.tunables().set_buddy_cache_bytes(1);
        let before = fs.alloc.statfs();
        let owned = parking_lot::Mutex::new(Owned::default());
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let (fs, owned) = (&fs, &owned);
                s.spawn(move || {
                    let mut rng = Rng(seed ^ (t << 40));
                    for i in 0..400 {
                        let len = 1 + rng.below(60);
                        if rng.below(3) < 2 {
                            let ino = 12 + t as u32 * 10 + rng.below(5);
                            match fs.take_data(ino, i * 64, len) {
                                Ok(r) => owned.lock().add(r),
                                Err(Error::NoSpace) => drop(fs.alloc.reclaim(&fs.journal)),
                                Err(e) => panic!("{e}"),
                            }
                        } else {
                            let r = owned.lock().take_random(&mut rng);
                            if let Some(r) = r {
                                fs.give(r);
                            }
                        }
                        if rng.below(50) == 0 {
                            fs.commit();
                        }
                    }
                });
            }
        });
        let mut rng = Rng(seed);
        let mut owned = owned.into_inner();
        while let Some(r) = owned.take_random(&mut rng) {
            fs.give(r);
        }
        fs.alloc.reclaim(&fs.journal).unwrap();
        prop_assert_eq!(fs.alloc.statfs(), before);
        fs.fsck();
    }
}

#[test]
fn discard_happens_at_commit_and_before_reuse() {
    let fs = Fs::new(&["-b", "1024"], "16M");
    fs.alloc.tunables().set_discard(true);
    let r = fs.take_data(12, 0, 100).unwrap();
    fs.alloc.discard_all_preallocs();
    let bs = fs.geo.block_size;
    let mark = vec![0x5a; bs.bytes() * r.len as usize];
    fs.dev.write_at(&mark, bs.offset(r.start)).unwrap();
    let mut back = mark.clone();
    fs.give(r);
    fs.dev.read_at(&mut back, bs.offset(r.start)).unwrap();
    assert_eq!(back, mark);
    fs.commit();
    fs.dev.read_at(&mut back, bs.offset(r.start)).unwrap();
    assert!(back.iter().all(|b| *b == 0));
}

#[test]
fn the_overhead_is_what_dumpe2fs_says() {
    for args in LAYOUTS {
        let size = if args.contains(&"65536") { "512M" } else { "48M" };
        let dev = mke2fs(args, size);
        let text = dumpe2fs(&dev);
        let number = |label: &str| -> Option<u64> {
            let line = text.lines().find(|l| l.starts_with(label))?;
            line.split(':').nth(1)?.trim().parse().ok()
        };
        let fs = Fs::open(dev, Tunables::default());
        let journal = number("Total journal blocks").unwrap_or(0);
        let want = number("Overhead clusters").expect("Overhead clusters");
        assert_eq!(fs.alloc.statfs().overhead + journal, want, "{args:?}");
    }
}

#[test]
fn a_small_file_grows_in_one_piece_beside_others() {
    let fs = Fs::new(&["-b", "4096"], "64M");
    let grow = |ino: u32, lblk: u32, goal: Option<Block>| {
        let size_hint = u64::from(lblk + 1) << 12;
        fs.take(Request { goal, size_hint, ..Request::data(Ino(ino), LBlock(lblk), 1) })
            .unwrap()
            .start
    };
    let mut last = grow(12, 0, None);
    for lblk in 1..16 {
        let next = grow(12, lblk, Some(last.plus(1)));
        assert_eq!(next, last.plus(1), "block {lblk}");
        last = next;
    }
    // Another small file comes in between: the first goes on elsewhere, once.
    let mut mine = grow(13, 0, None);
    let other = grow(14, 0, None);
    assert_eq!(other, mine.plus(1));
    let mut jumps = 0;
    for lblk in 1..16 {
        let next = grow(13, lblk, Some(mine.plus(1)));
        jumps += u32::from(next != mine.plus(1));
        mine = next;
    }
    assert!(jumps <= 3, "{jumps}");
}
