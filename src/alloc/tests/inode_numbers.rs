use super::*;
use crate::error::Error;
use crate::types::Group;
use std::collections::HashSet;

fn new_inode(fs: &Fs, parent: u32, dir: bool, top: bool) -> Ino {
    fs.alloc.alloc_inode(&mut fs.handle(), Ino(parent), dir, top).unwrap()
}

#[test]
fn every_inode_once_then_all_back_on_every_layout() {
    for args in LAYOUTS {
        let size = if args.contains(&"65536") { "256M" } else { "24M" };
        let fs = Fs::new(args, size);
        let before = fs.alloc.statfs();
        let mut seen = HashSet::new();
        let mut parent = 2;
        while let Ok(ino) =
            fs.alloc.alloc_inode(&mut fs.handle(), Ino(parent), seen.len() % 7 == 0, parent == 2)
        {
            assert!(ino.0 >= fs.geo.first_ino && ino.0 <= fs.geo.inodes_count);
            assert!(seen.insert((ino, seen.len() % 7 == 0)), "{ino:?} twice");
            assert!(fs.alloc.inode_is_allocated(ino).unwrap());
            assert!(!fs.alloc.inode_slot_is_fresh(ino));
            parent = if seen.len() % 50 == 0 { 2 } else { ino.0 };
        }
        assert_eq!(fs.alloc.statfs().ffree, 0, "{args:?}");
        assert_eq!(seen.iter().map(|s| s.0).collect::<HashSet<_>>().len(), before.ffree as usize);
        for (ino, dir) in seen {
            fs.alloc.free_inode(&mut fs.handle(), ino, dir).unwrap();
        }
        assert_eq!(fs.alloc.statfs(), before);
        fs.fsck();
    }
}

#[test]
fn the_first_inode_of_a_group_makes_bitmaps_and_table_block() {
    let dev = mke2fs(&["-b", "1024", "-O", "^flex_bg"], "64M");
    let g = Group(5);
    let probe = Fs::open(dev.snapshot(), Tunables::default());
    let bs = probe.geo.block_size;
    let table = probe.alloc.inode_table(g).unwrap();
    // What lies in the never used table must not be read.
    dev.write_at(&vec![0xee; bs.bytes() * 4], bs.offset(table)).unwrap();
    let fs = Fs::open(dev, Tunables::default());
    let parent = fs.geo.ino_at(g, 0).unwrap();
    assert!(fs.alloc.inode_slot_is_fresh(parent));
    let ino = new_inode(&fs, parent.0, false, false);
    assert_eq!(ino, parent);
    let desc = fs.alloc.group_desc(g).unwrap();
    assert_eq!(desc.itable_unused, fs.geo.inodes_per_group - 1);
    let flags = crate::ondisk::GroupFlags::INODE_UNINIT | crate::ondisk::GroupFlags::BLOCK_UNINIT;
    assert!(!desc.flags.intersects(flags));
    fs.commit();
    let mut block = vec![1; bs.bytes()];
    fs.dev.read_at(&mut block, bs.offset(table)).unwrap();
    assert!(block.iter().all(|b| *b == 0));
    fs.alloc.free_inode(&mut fs.handle(), ino, false).unwrap();
    fs.fsck();
}

#[test]
fn held_numbers_and_reserved_ones_are_not_given_out() {
    let fs = Fs::new(&["-b", "4096"], "64M");
    let a = new_inode(&fs, 2, false, false);
    fs.alloc.free_inode(&mut fs.handle(), a, false).unwrap();
    fs.alloc.hold_inode(a);
    let b = new_inode(&fs, 2, false, false);
    assert_ne!(a, b);
    fs.alloc.unhold_inode(a);
    assert_eq!(new_inode(&fs, 2, false, false), a);
    for bad in [0, 2, fs.geo.inodes_count + 1] {
        let e = fs.alloc.free_inode(&mut fs.handle(), Ino(bad), false).unwrap_err();
        assert!(matches!(e, Error::Corrupt(c) if c.ino == Some(Ino(bad))));
    }
    let e = fs.alloc.free_inode(&mut fs.handle(), Ino(b.0 + 1), false).unwrap_err();
    assert!(matches!(e, Error::Corrupt(c) if c.ino == Some(Ino(b.0 + 1))));
}

#[test]
fn top_level_directories_are_spread_and_children_stay() {
    let fs = Fs::new(&["-b", "1024", "-O", "^flex_bg"], "256M");
    let group = |i: Ino| fs.geo.ino_location(i).unwrap().0;
    let tops: Vec<Ino> = (0..8).map(|_| new_inode(&fs, 2, true, true)).collect();
    let groups: HashSet<Group> = tops.iter().map(|i| group(*i)).collect();
    assert!(groups.len() >= 7, "{groups:?}");
    for t in tops {
        assert_eq!(group(new_inode(&fs, t.0, false, false)), group(t));
        assert_eq!(group(new_inode(&fs, t.0, true, false)), group(t));
    }
}
