//! Trees of a certain shape.

use super::image::{Image, listing};
use crate::map::{AllocHow, Enter, FileMap, Kind, Mapping, Progress, State};
use crate::types::{Block, LBlock};

fn alloc(image: &Image, map: &mut FileMap, lblk: u32, len: u32, enter: Enter) -> Mapping {
    let how = AllocHow::new(enter, Kind::Metadata);
    let credits = map.credits_for_alloc();
    image.with(credits, |c, h| map.allocate(c, h, LBlock(lblk), len, how)).unwrap()
}

fn convert(image: &Image, map: &mut FileMap, lblk: u32, len: u32) {
    let credits = map.credits_for_convert();
    image.with(credits, |c, h| map.convert(c, h, LBlock(lblk), len)).unwrap();
}

fn root_entries(map: &FileMap) -> u8 {
    map.i_block()[2]
}

#[test]
fn three_levels_grow_and_shrink() {
    let mut image = Image::new(64, &["-b", "1024", "-O", "^has_journal"]);
    image.hurry = true;
    let mut map = image.map();
    const N: u32 = 30_000;
    for i in 0..N {
        alloc(&image, &mut map, 2 * i, 1, Enter::Written);
    }
    assert_eq!(map.depth(), 3);
    let nodes = image.nodes(&map).len();
    assert!(nodes <= 30_000 / 84 + 10, "{nodes} nodes: appending must leave full ones");
    let all = listing(&image, &map);
    assert_eq!(all.len(), N as usize);
    assert_eq!(image.check(&map), all);

    // Half of the extents go, ten in a row of twenty.
    for i in (0..N).step_by(20) {
        image
            .steps(&mut map, |m, c, h| m.remove(c, h, LBlock(2 * i), u64::from(2 * i + 20)))
            .unwrap();
    }
    assert_eq!(listing(&image, &map).len(), N as usize / 2);
    let left = image.check(&map);
    assert_eq!(left, listing(&image, &map));

    // The end goes, in steps that commit in between.
    image.steps(&mut map, |m, c, h| m.remove(c, h, LBlock(2000), u64::MAX)).unwrap();
    assert!(map.depth() <= 2, "depth {}", map.depth());
    assert_eq!(image.check(&map), listing(&image, &map));
    image.steps(&mut map, |m, c, h| m.remove(c, h, LBlock(27), u64::MAX)).unwrap();
    assert_eq!((map.depth(), listing(&image, &map).len()), (0, 4));
    image.steps(&mut map, |m, c, h| m.remove(c, h, LBlock(0), u64::MAX)).unwrap();
    assert_eq!((map.depth(), map.blocks512()), (0, 0));
    image.check(&map);
}

#[test]
fn descending_and_random_insertion() {
    let mut image = Image::new(16, &["-b", "1024"]);
    let mut map = image.map();
    for i in (0..1000).rev() {
        alloc(&image, &mut map, 4 * i, 1, Enter::Written);
    }
    let nodes = image.nodes(&map).len();
    assert!(nodes <= 1000 / 84 + 4, "{nodes} nodes: descending must leave full ones");
    // 7 generates all residues modulo 1000 that are needed: every place once, in a scattered order.
    for i in 0..1000 {
        alloc(&image, &mut map, 4 * (i * 7 % 1000) + 2, 1, Enter::Unwritten);
    }
    let all = listing(&image, &map);
    assert_eq!(all.len(), 2000);
    assert!(all.iter().zip(0..).all(|(m, i)| m.lblk == LBlock(2 * i)));
    assert_eq!(image.check(&map), all);
}

#[test]
fn in_flight_extents_stay_apart_until_converted() {
    let mut image = Image::new(16, &["-b", "4096"]);
    let mut map = image.map();
    let a = alloc(&image, &mut map, 0, 10, Enter::InFlight);
    let b = alloc(&image, &mut map, 10, 10, Enter::InFlight);
    assert_eq!(b.pblk, a.pblk.plus(10), "contiguous, or this test shows nothing");
    assert_eq!(root_entries(&map), 2);
    let c = alloc(&image, &mut map, 20, 20, Enter::Unwritten);
    assert_eq!(c.pblk, b.pblk.plus(10));
    assert_eq!(root_entries(&map), 3);

    // The middle of an extent that is nobody's is isolated.
    let how = AllocHow::new(Enter::InFlight, Kind::Data);
    let credits = map.credits_for_alloc();
    let m = image.with(credits, |c, h| map.split_at(c, h, LBlock(25), 5, how)).unwrap();
    assert_eq!((m.len, m.pblk, m.state), (5, c.pblk.plus(5), State::Unwritten));
    assert_eq!((map.depth(), listing(&image, &map).len()), (1, 5));

    let blocks = map.blocks512();
    convert(&image, &mut map, 10, 10);
    convert(&image, &mut map, 25, 5);
    assert_eq!(map.blocks512(), blocks);
    convert(&image, &mut map, 0, 10);
    let all = listing(&image, &map);
    let got: Vec<_> = all.iter().map(|m| (m.lblk.0, m.len, m.state)).collect();
    use State::{Unwritten, Written};
    assert_eq!(got, [(0, 20, Written), (20, 5, Unwritten), (25, 5, Written), (30, 10, Unwritten)]);
    // Four extents fit the inode again.
    assert_eq!((map.depth(), map.blocks512()), (0, 40 * 8));
    assert_eq!(image.check(&map), all);
}

#[test]
fn a_failed_write_leaves_the_range_to_be_joined() {
    let image = Image::new(16, &["-b", "4096"]);
    let mut map = image.map();
    alloc(&image, &mut map, 0, 4, Enter::InFlight);
    map.not_written(LBlock(0), 4);
    alloc(&image, &mut map, 4, 4, Enter::Unwritten);
    assert_eq!(root_entries(&map), 1);
}

#[test]
fn conversion_of_a_full_leaf_allocates_nothing() {
    let mut image = Image::new(16, &["-b", "1024"]);
    let mut map = image.map();
    let n = 84;
    for i in 0..n {
        alloc(&image, &mut map, i, 1, Enter::InFlight);
    }
    assert_eq!((map.depth(), image.nodes(&map).len()), (1, 1));
    let blocks = map.blocks512();
    for i in (0..n).map(|i| i * 5 % n) {
        convert(&image, &mut map, i, 1);
        assert!(map.blocks512() <= blocks);
    }
    let all = listing(&image, &map);
    assert!(all.len() <= 2 && map.depth() == 0, "{all:?}");
    assert_eq!(image.check(&map), all);
}

#[test]
fn an_unwritten_extent_is_one_block_shorter_at_most() {
    let mut image = Image::new(300, &["-b", "4096", "-O", "^has_journal"]);
    let mut map = image.map();
    let mut at = 0;
    while at < 40_000 {
        at += alloc(&image, &mut map, at, 40_000 - at, Enter::Written).len;
    }
    let longest = listing(&image, &map).iter().map(|m| m.len).max();
    assert!(longest <= Some(32_768));
    image.steps(&mut map, |m, c, h| m.to_unwritten(c, h, LBlock(0), 40_000)).unwrap();
    let all = listing(&image, &map);
    assert!(all.iter().all(|m| m.state == State::Unwritten && m.len <= 32_767));
    assert_eq!(all.iter().map(|m| m.len).sum::<u32>(), 40_000);
    assert_eq!(image.check(&map), all);
}

#[test]
fn goals_follow_the_neighbours() {
    let image = Image::new(16, &["-b", "4096"]);
    let mut map = image.map();
    assert_eq!(map.goal(&image.ctx(), LBlock(5)).unwrap(), None);
    let m = alloc(&image, &mut map, 100, 4, Enter::Written);
    let goal = |l| map.goal(&image.ctx(), LBlock(l)).unwrap();
    assert_eq!(goal(104), Some(m.pblk.plus(4)));
    assert_eq!(goal(110), Some(m.pblk.plus(10)));
    assert_eq!(goal(98), Some(Block(m.pblk.0 - 2)));
}

#[test]
fn the_limits_of_a_file() {
    let image = Image::new(16, &["-b", "4096"]);
    let mut map = image.map();
    let last = u32::MAX - 1;
    alloc(&image, &mut map, last, 5, Enter::Written);
    assert_eq!(map.lookup(&image.ctx(), LBlock(last), 9).unwrap().len, 1);
    let m = map.lookup(&image.ctx(), LBlock(0), u32::MAX).unwrap();
    assert_eq!((m.state, m.len), (State::Hole, last));
    assert_eq!(map.next_data(&image.ctx(), LBlock(0)).unwrap(), Some(LBlock(last)));
    assert_eq!(map.next_hole(&image.ctx(), LBlock(last)).unwrap(), LBlock(u32::MAX));
    let how = AllocHow::new(Enter::Written, Kind::Data);
    let r = image.with(20, |c, h| map.allocate(c, h, LBlock(u32::MAX), 1, how));
    assert!(matches!(r, Err(crate::error::Error::TooBig)), "{r:?}");
    let r = image.with(40, |c, h| map.shift(c, h, &mut crate::map::Shift::right(LBlock(0), 1)));
    assert!(matches!(r, Err(crate::error::Error::TooBig)), "{r:?}");
    let r = image.with(60, |c, h| map.remove(c, h, LBlock(0), u64::MAX));
    assert_eq!(r.unwrap(), Progress::Done);
    assert_eq!(map.lookup(&image.ctx(), LBlock(0), 1).unwrap().state, State::Hole);
}
