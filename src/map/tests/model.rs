//! Random operations against a model, then e2fsck and debugfs.

use super::image::{Image, listing};
use crate::error::Error;
use crate::map::{AllocHow, Enter, FileMap, Kind, Shift, State};
use crate::types::LBlock;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Logical blocks that the operations concern.
const SPACE: u32 = 3000;

#[derive(Clone, Debug)]
enum Op {
    Alloc {
        lblk: u32,
        len: u32,
        enter: u8,
    },
    /// Isolates, and then converts or gives up.
    Write {
        lblk: u32,
        len: u32,
        fails: bool,
    },
    Convert {
        lblk: u32,
        len: u32,
    },
    Zero {
        lblk: u32,
        len: u32,
    },
    Punch {
        lblk: u32,
        len: u32,
    },
    Truncate {
        lblk: u32,
    },
    Collapse {
        lblk: u32,
        len: u32,
    },
    Insert {
        lblk: u32,
        len: u32,
    },
    /// Every other block, so that the tree gets many entries.
    Comb {
        lblk: u32,
        count: u32,
        enter: u8,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let at = 0..SPACE;
    let len = prop_oneof![1u32..4, 1u32..40, 1u32..600];
    prop_oneof![
        4 => (at.clone(), len.clone(), 0..3u8).prop_map(|(lblk, len, enter)| Op::Alloc { lblk, len, enter }),
        3 => (at.clone(), len.clone(), any::<bool>()).prop_map(|(lblk, len, fails)| Op::Write { lblk, len, fails }),
        2 => (at.clone(), len.clone()).prop_map(|(lblk, len)| Op::Convert { lblk, len }),
        2 => (at.clone(), len.clone()).prop_map(|(lblk, len)| Op::Zero { lblk, len }),
        3 => (at.clone(), len.clone()).prop_map(|(lblk, len)| Op::Punch { lblk, len }),
        1 => at.clone().prop_map(|lblk| Op::Truncate { lblk }),
        1 => (at.clone(), len.clone()).prop_map(|(lblk, len)| Op::Collapse { lblk, len }),
        1 => (at.clone(), len.clone()).prop_map(|(lblk, len)| Op::Insert { lblk, len }),
        3 => (at, 1u32..400, 0..3u8).prop_map(|(lblk, count, enter)| Op::Comb { lblk, count, enter }),
    ]
}

/// Block of the file to block of the device, and whether it is written.
type Model = BTreeMap<u32, (u64, bool)>;

struct World {
    image: Image,
    map: FileMap,
    model: Model,
    extents: bool,
}

impl World {
    fn new(mib: u64, args: &[&str]) -> World {
        let image = Image::new(mib, args);
        let map = image.map();
        let extents = map.is_extents();
        World { image, map, model: Model::new(), extents }
    }

    fn enter(&self, n: u8) -> Enter {
        match n {
            _ if !self.extents => Enter::Written,
            0 => Enter::Written,
            1 => Enter::Unwritten,
            _ => Enter::InFlight,
        }
    }

    fn alloc(&mut self, lblk: u32, len: u32, enter: Enter) {
        let credits = self.map.credits_for_alloc();
        let how = AllocHow::new(enter, Kind::Metadata);
        let blocks = self.map.blocks512();
        let r = self.image.with(credits, |c, h| self.map.allocate(c, h, LBlock(lblk), len, how));
        match r {
            Ok(m) => {
                assert_eq!(m.lblk, LBlock(lblk));
                assert!(m.len >= 1 && m.len <= len);
                for i in 0..m.len {
                    let old = self
                        .model
                        .insert(lblk + i, (m.pblk.0 + u64::from(i), m.state == State::Written));
                    assert_eq!(old, None);
                }
            }
            Err(Error::Invalid(_)) => assert!(self.model.contains_key(&lblk)),
            Err(Error::NoSpace) => assert_eq!(self.map.blocks512(), blocks),
            Err(e) => panic!("{e}"),
        }
    }

    fn convert(&mut self, lblk: u32, len: u32) {
        let credits = self.map.credits_for_convert();
        self.image.with(credits, |c, h| self.map.convert(c, h, LBlock(lblk), len)).unwrap();
        for (_, v) in self.model.range_mut(lblk..lblk + len) {
            v.1 = true;
        }
    }

    fn apply(&mut self, op: &Op) {
        let ext = self.extents;
        match *op {
            Op::Alloc { lblk, len, enter } => self.alloc(lblk, len, self.enter(enter)),
            Op::Comb { lblk, count, enter } => {
                for i in 0..count {
                    self.alloc(lblk + 2 * i, 1, self.enter(enter));
                }
            }
            Op::Write { lblk, len, fails } => {
                let credits = self.map.credits_for_alloc();
                let how = AllocHow::new(Enter::InFlight, Kind::Data);
                let m = self
                    .image
                    .with(credits, |c, h| self.map.split_at(c, h, LBlock(lblk), len, how))
                    .unwrap();
                let known = self.model.get(&lblk).map(|v| v.1);
                let state = match known {
                    None => State::Hole,
                    Some(false) => State::Unwritten,
                    Some(true) => State::Written,
                };
                assert_eq!((m.lblk, m.state), (LBlock(lblk), state));
                if fails {
                    self.map.not_written(m.lblk, m.len);
                } else if m.state == State::Unwritten {
                    let blocks = self.map.blocks512();
                    self.convert(lblk, m.len);
                    assert!(self.map.blocks512() <= blocks, "a conversion allocated");
                }
            }
            Op::Convert { lblk, len } => {
                let len =
                    (0..len).take_while(|i| self.model.contains_key(&(lblk + i))).count() as u32;
                if len == 0 || !ext {
                    return;
                }
                // Not isolated before, so it may split.
                let credits = 4 * self.map.credits_for_remove();
                self.image.with(credits, |c, h| self.map.convert(c, h, LBlock(lblk), len)).unwrap();
                for (_, v) in self.model.range_mut(lblk..lblk + len) {
                    v.1 = true;
                }
            }
            Op::Zero { lblk, len } => {
                if !ext {
                    return;
                }
                self.image
                    .steps(&mut self.map, |m, c, h| m.to_unwritten(c, h, LBlock(lblk), len))
                    .unwrap();
                for (_, v) in self.model.range_mut(lblk..lblk + len) {
                    v.1 = false;
                }
            }
            Op::Punch { lblk, len } => self.remove(lblk, u64::from(lblk + len)),
            Op::Truncate { lblk } => self.remove(lblk, u64::MAX),
            Op::Collapse { lblk, len } => {
                if !ext {
                    return;
                }
                self.remove(lblk, u64::from(lblk + len));
                let mut s = Shift::left(LBlock(lblk + len), len);
                self.image.steps(&mut self.map, |m, c, h| m.shift(c, h, &mut s)).unwrap();
                let tail = self.model.split_off(&lblk);
                self.model.extend(tail.into_iter().map(|(l, v)| (l - len, v)));
            }
            Op::Insert { lblk, len } => {
                if !ext {
                    return;
                }
                let mut s = Shift::right(LBlock(lblk), len);
                self.image.steps(&mut self.map, |m, c, h| m.shift(c, h, &mut s)).unwrap();
                let tail = self.model.split_off(&lblk);
                self.model.extend(tail.into_iter().map(|(l, v)| (l + len, v)));
            }
        }
    }

    fn remove(&mut self, from: u32, end: u64) {
        self.image.steps(&mut self.map, |m, c, h| m.remove(c, h, LBlock(from), end)).unwrap();
        self.model.retain(|l, _| *l < from || u64::from(*l) >= end);
    }

    /// Every lookup agrees with the model, one block at a time and in runs.
    fn compare(&self) {
        let mut got = Model::new();
        for m in listing(&self.image, &self.map) {
            for i in 0..m.len {
                got.insert(m.lblk.0 + i, (m.pblk.0 + u64::from(i), m.state == State::Written));
            }
        }
        assert_eq!(got, self.model);
        let ctx = self.image.ctx();
        for l in (0..SPACE).step_by(37) {
            let m = self.map.lookup(&ctx, LBlock(l), 5).unwrap();
            assert!(m.lblk == LBlock(l) && (1..=5).contains(&m.len), "{m:?}");
            for i in 0..m.len {
                let want = self.model.get(&(l + i));
                assert_eq!(want.is_none(), m.state == State::Hole, "{m:?} {want:?}");
            }
            let data = self.model.range(l..).find(|(_, v)| v.1).map(|(l, _)| LBlock(*l));
            assert_eq!(self.map.next_data(&ctx, LBlock(l)).unwrap(), data);
            let hole = (l..).find(|l| self.model.get(l).is_none_or(|v| !v.1)).unwrap();
            assert_eq!(self.map.next_hole(&ctx, LBlock(l)).unwrap(), LBlock(hole));
        }
    }

    fn finish(mut self) {
        self.compare();
        let leaves = self.image.check(&self.map);
        if self.extents {
            assert_eq!(leaves, listing(&self.image, &self.map));
        }
        // The same from the disk.
        self.image = self.image.reopen(|_| ());
        self.map = self.image.map();
        self.compare();
        self.remove(0, u64::MAX);
        assert_eq!((self.map.blocks512(), self.map.depth()), (0, if self.extents { 0 } else { 3 }));
        self.image.check(&self.map);
    }
}

fn run(mib: u64, args: &[&str], ops: &[Op]) {
    let mut w = World::new(mib, args);
    w.image.hurry = ops.len() % 2 == 1;
    for (i, op) in ops.iter().enumerate() {
        w.apply(op);
        if i % 4 == 0 {
            w.compare();
        }
    }
    w.finish();
}

fn ops(max: usize) -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 1..max)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, max_shrink_iters: 100, ..Default::default() })]

    #[test]
    fn extents_in_1k_blocks(ops in ops(40)) {
        run(16, &["-b", "1024"], &ops);
    }

    #[test]
    fn extents_in_4k_blocks(ops in ops(40)) {
        run(32, &["-b", "4096"], &ops);
    }

    #[test]
    fn extents_in_small_groups_without_checksums(ops in ops(40)) {
        run(16, &["-b", "1024", "-g", "512", "-O", "^metadata_csum,^resize_inode"], &ops);
    }

    #[test]
    fn indirect_in_1k_blocks(ops in ops(40)) {
        run(16, &["-b", "1024", "-O", "^extents,^64bit", "-t", "ext3"], &ops);
    }

    #[test]
    fn a_full_file_system(ops in ops(60)) {
        run(4, &["-b", "1024", "-O", "^has_journal,^resize_inode", "-N", "16"], &ops);
    }
}
