//! Trees that are not what they say: an error, never a panic, a hang or a wild write.

use super::image::Image;
use crate::device::BlockDevice;
use crate::error::Error;
use crate::map::{AllocHow, Enter, FileMap, Kind, Shift};
use crate::types::{Block, LBlock};
use proptest::prelude::*;

/// An image whose file has a tree of two levels, and the blocks of the tree.
fn image(args: &[&str]) -> (Image, Vec<Block>) {
    let mut image = Image::new(8, args);
    let mut map = image.map();
    for i in 0..400 {
        let enter = if i % 3 == 0 { Enter::Unwritten } else { Enter::Written };
        let how = AllocHow::new(enter, Kind::Metadata);
        let credits = map.credits_for_alloc();
        image.with(credits, |c, h| map.allocate(c, h, LBlock(2 * i), 1, how)).unwrap();
    }
    assert_eq!(map.depth(), 2);
    image.store(&map);
    let nodes = image.nodes(&map);
    (image, nodes)
}

/// Uses the map in every way; what fails must fail with a proper error.
fn use_it(image: &Image, map: &mut FileMap) {
    let ctx = image.ctx();
    // A group whose blocks were freed twice is out of use: then there is no space.
    let fine = |e: Error| {
        assert!(matches!(e, Error::Corrupt(_) | Error::Invalid(_) | Error::NoSpace), "{e:?}");
        assert!(!e.to_string().contains("unforeseen"), "{e}");
    };
    let mut n = 0;
    let mut last = 0;
    map.for_each(&ctx, LBlock(0), u64::MAX, &mut |m| {
        assert!(u64::from(m.lblk.0) >= last, "went backwards");
        last = m.end();
        n += 1;
        n < 10_000
    })
    .unwrap_or_else(fine);
    for l in (0..900).step_by(13) {
        map.lookup(&ctx, LBlock(l), 10).map(drop).unwrap_or_else(fine);
        map.goal(&ctx, LBlock(l)).map(drop).unwrap_or_else(fine);
        map.next_data(&ctx, LBlock(l)).map(drop).unwrap_or_else(fine);
    }
    for l in [1, 401, 799, 5000] {
        let how = AllocHow::new(Enter::InFlight, Kind::Data);
        image.with(200, |c, h| {
            map.allocate(c, h, LBlock(l), 3, how).map(drop).unwrap_or_else(fine);
            map.convert(c, h, LBlock(l), 1).unwrap_or_else(fine);
            map.to_unwritten(c, h, LBlock(l), 40).map(drop).unwrap_or_else(fine);
        });
    }
    let mut s = Shift::right(LBlock(300), 10);
    image.with(200, |c, h| map.shift(c, h, &mut s).map(drop).unwrap_or_else(fine));
    for (from, end) in [(390, 410), (100, 600), (0, u64::MAX)] {
        for _ in 0..100 {
            let r = image.with(100, |c, h| map.remove(c, h, LBlock(from), end));
            match r {
                Ok(crate::map::Progress::More) => {}
                Ok(crate::map::Progress::Done) => break,
                Err(e) => {
                    fine(e);
                    break;
                }
            }
        }
    }
}

#[test]
fn a_broken_checksum_is_refused() {
    let (image, nodes) = image(&["-b", "1024"]);
    assert_eq!(nodes.len(), 1 + 400usize.div_ceil(84));
    let at = nodes[2];
    let image = image.reopen(|dev| {
        let mut b = [0; 1024];
        dev.read_at(&mut b, at.0 * 1024).unwrap();
        b[12 + 8] ^= 1;
        dev.write_at(&b, at.0 * 1024).unwrap();
    });
    let map = image.map();
    let r = map.for_each(&image.ctx(), LBlock(0), u64::MAX, &mut |_| true);
    let Err(Error::Corrupt(c)) = r else { panic!("{r:?}") };
    assert!(c.checksum && c.block == Some(at) && c.ino.is_some(), "{c:?}");
}

#[test]
fn a_node_that_is_its_own_child_is_refused() {
    let (image, nodes) = image(&["-b", "1024", "-O", "^metadata_csum"]);
    let image = image.reopen(|dev| {
        let mut b = [0; 1024];
        dev.read_at(&mut b, nodes[0].0 * 1024).unwrap();
        b[16..20].copy_from_slice(&(nodes[0].0 as u32).to_le_bytes());
        dev.write_at(&b, nodes[0].0 * 1024).unwrap();
    });
    let map = image.map();
    let r = map.lookup(&image.ctx(), LBlock(0), 1);
    let Err(Error::Corrupt(c)) = r else { panic!("{r:?}") };
    assert_eq!((c.what, c.block), ("extent node depth", Some(nodes[0])));
}

#[test]
fn an_extent_over_the_inode_table_is_refused() {
    let (image, nodes) = image(&["-b", "1024", "-O", "^metadata_csum"]);
    let table = image.alloc.inode_table(crate::types::Group(0)).unwrap();
    let image = image.reopen(|dev| {
        let mut b = [0; 1024];
        dev.read_at(&mut b, nodes[1].0 * 1024).unwrap();
        b[20..24].copy_from_slice(&(table.0 as u32).to_le_bytes());
        dev.write_at(&b, nodes[1].0 * 1024).unwrap();
    });
    let r = image.map().lookup(&image.ctx(), LBlock(0), 1);
    assert!(matches!(r, Err(Error::Corrupt(_))), "{r:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 50, ..Default::default() })]

    #[test]
    fn any_bytes_changed(
        changes in proptest::collection::vec((0usize..6, 0usize..1024, any::<u8>()), 1..6),
        near_headers: bool,
    ) {
        let (image, nodes) = image(&["-b", "1024", "-O", "^metadata_csum"]);
        let mut image = image.reopen(|dev| {
            for (n, off, to) in &changes {
                let off = if near_headers { off % 40 } else { *off };
                let at = nodes[n % nodes.len()].0 * 1024 + off as u64;
                dev.write_at(&[*to], at).unwrap();
            }
        });
        let mut map = image.map();
        use_it(&image, &mut map);
        // And in the root.
        for (_, off, to) in &changes {
            image.rec.i_block[off % 60] = *to;
        }
        match FileMap::from_inode(&image.geo, crate::types::Ino(12), &image.rec) {
            Ok(mut map) => use_it(&image, &mut map),
            Err(e) => prop_assert!(matches!(e, Error::Corrupt(_))),
        }
    }

    #[test]
    fn any_pointers_changed(
        changes in proptest::collection::vec((0usize..15, 0u32..9000), 1..6),
        deep in proptest::collection::vec((0usize..256, 0u32..9000), 1..6),
    ) {
        let image = Image::new(8, &["-b", "1024", "-t", "ext2", "-O", "^extents"]);
        let mut map = image.map();
        for i in [0, 11, 12, 200, 300, 70_000] {
            let how = AllocHow::new(Enter::Written, Kind::Metadata);
            image.with(12, |c, h| map.allocate(c, h, LBlock(i), 2, how)).unwrap();
        }
        let mut image = image;
        image.store(&map);
        let ind = |i: usize| u32::from_le_bytes(map.i_block()[4 * i..4 * i + 4].try_into().unwrap());
        let at = u64::from(ind(12)) * 1024;
        let dind = u64::from(ind(13)) * 1024;
        let mut image = image.reopen(|dev| {
            for (i, to) in &deep {
                dev.write_at(&to.to_le_bytes(), at + 4 * *i as u64).unwrap();
                dev.write_at(&to.to_le_bytes(), dind + 4 * *i as u64).unwrap();
            }
        });
        for (i, to) in changes {
            image.rec.i_block[4 * i..4 * i + 4].copy_from_slice(&to.to_le_bytes());
        }
        let mut map = image.map();
        let ctx = image.ctx();
        let fine = |e: Error| {
            assert!(matches!(e, Error::Corrupt(_) | Error::Invalid(_) | Error::NoSpace), "{e:?}");
        };
        for l in (0..70_100).step_by(97) {
            map.lookup(&ctx, LBlock(l), 10).map(drop).unwrap_or_else(fine);
        }
        for l in [5, 100, 400, 66_000] {
            let how = AllocHow::new(Enter::Written, Kind::Data);
            image.with(12, |c, h| map.allocate(c, h, LBlock(l), 3, how)).map(drop).unwrap_or_else(fine);
        }
        for from in [300, 0] {
            for _ in 0..200 {
                let r = image.with(40, |c, h| map.remove(c, h, LBlock(from), u64::MAX));
                match r {
                    Ok(crate::map::Progress::More) => {}
                    Ok(crate::map::Progress::Done) => break,
                    Err(e) => {
                        fine(e);
                        break;
                    }
                }
            }
        }
    }
}
