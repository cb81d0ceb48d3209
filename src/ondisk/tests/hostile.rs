//! No bytes make a parser panic, hang or leave its bounds.

use super::super::geometry::tests::{sample, sample_raw};
use crate::ondisk::jbd2::JournalSuper;
use crate::ondisk::*;
use crate::types::{Block, Group, Ino};
use proptest::prelude::*;
use zerocopy::IntoBytes;

/// Bytes of the superblock that its parser and the geometry compute with.
const FIELDS: [usize; 24] = [
    0, 1, 3, 4, 7, 0x14, 0x18, 0x1c, 0x20, 0x22, 0x24, 0x28, 0x2a, 0x4c, 0x54, 0x58, 0x59, 0x60,
    0x64, 0xce, 0xfe, 0x104, 0x150, 0x174,
];

fn all_seals(offset: u32) -> [Seal; 10] {
    [
        Seal::None,
        Seal::Superblock,
        Seal::GroupDesc { group: Group(1), offset },
        Seal::Inode { ino: Ino(12), offset },
        Seal::ExtentBlock { seed: 1 },
        Seal::DirLeaf { seed: 1 },
        Seal::HtreeNode { seed: 1 },
        Seal::XattrBlock,
        Seal::OrphanBlock { seed: 1 },
        Seal::Mmp,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever superblock is accepted can be computed with.
    #[test]
    fn superblocks(changes in proptest::collection::vec((0usize..24, any::<u8>()), 1..4),
                   features in any::<[u16; 3]>(), keep: bool) {
        let mut raw = sample_raw();
        if !keep {
            raw.s_feature_compat.set(features[0].into());
            raw.s_feature_incompat.set(u32::from(features[1]) & !8);
            raw.s_feature_ro_compat.set(u32::from(features[2]) & !0x400);
            raw.s_desc_size.set(64);
            raw.s_journal_inum.set(8);
            raw.s_orphan_file_inum.set(12);
        }
        let mut bytes = [0; 1024];
        bytes.copy_from_slice(raw.as_bytes());
        for (field, v) in changes {
            bytes[FIELDS[field]] = v;
        }
        let Ok(sb) = Superblock::parse(&bytes) else { return Ok(()) };
        prop_assert_eq!(sb.encode(), bytes);
        let Ok(geo) = Geometry::new(&sb, None) else { return Ok(()) };
        for g in [0, 1, 2, 3, 7, 9, geo.groups_count / 2, geo.groups_count - 1, u32::MAX] {
            let g = Group(g);
            let _ = (geo.has_super(g), geo.desc_location(g), geo.clusters_in_group(g));
            let _ = (geo.group_first_block(g), geo.base_meta_blocks(g));
        }
        for ino in [1, 2, geo.inodes_count, u32::MAX] {
            if let Some((g, i)) = geo.ino_location(Ino(ino)) {
                prop_assert_eq!(geo.ino_at(g, i), Some(Ino(ino)));
                prop_assert!(geo.itable_slot(i).0 < geo.itable_blocks());
            }
        }
        let last = Block(geo.blocks_count - 1);
        let (g, bit) = geo.group_of_block(last).unwrap();
        prop_assert!(g.0 < geo.groups_count && bit < geo.clusters_in_group(g));
        prop_assert!(geo.max_extent_file_size() > 0 && geo.max_indirect_file_size() > 0);
        prop_assert!(geo.block_size.offset(last) < i64::MAX as u64);
    }

    #[test]
    fn random_superblocks(mut bytes in proptest::collection::vec(any::<u8>(), 1024)) {
        bytes[0x38..0x3a].copy_from_slice(&0xef53u16.to_le_bytes());
        let _ = Superblock::parse(bytes.as_slice().try_into().unwrap());
    }

    #[test]
    fn descriptors_and_inodes(bytes in proptest::collection::vec(any::<u8>(), 0..300), extra: u8) {
        let geo = sample();
        let _ = GroupDesc::parse(&geo, Group(0), &bytes);
        let mut bytes = bytes;
        if let Some(b) = bytes.get_mut(0x80..0x82) {
            b.copy_from_slice(&[extra, 0]);
        }
        if let Some(b) = bytes.get_mut(0x68..0x6c) {
            b.fill(0);
        }
        if let Ok(rec) = InodeRecord::parse(&geo, Ino(12), &bytes) {
            let r = rec.ibody_range(&geo);
            prop_assert!(r.start <= r.end && r.end <= 256);
            let mut again = bytes.clone();
            if rec.encode(&geo, &mut again).is_ok() {
                prop_assert_eq!(InodeRecord::parse(&geo, Ino(12), &again).unwrap().i_block, rec.i_block);
            }
            let _ = (rec.is_fast_symlink(&geo), rec.rdev());
        }
    }

    #[test]
    fn seals(mut bytes in proptest::collection::vec(any::<u8>(), 0..1200), offset in 0u32..1300) {
        let mut geo = sample();
        for (metadata, gdt) in [(true, false), (false, true)] {
            geo.metadata_csum = metadata;
            geo.gdt_csum = gdt;
            let sealer = Sealer::new(&geo);
            for seal in all_seals(offset) {
                if sealer.seal(&seal, Block(5), &mut bytes).is_ok() {
                    prop_assert!(sealer.verify(&seal, Block(5), &bytes).is_ok());
                }
            }
        }
    }

    #[test]
    fn journal_superblocks(mut bytes in proptest::collection::vec(any::<u8>(), 1000..1100),
                           features in 0u8..64, len in 0u32..3000) {
        let bs = sample().block_size;
        bytes[..12].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4, 0, 0, 0, 0]);
        bytes[12..16].copy_from_slice(&4096u32.to_be_bytes());
        bytes[16..20].copy_from_slice(&len.to_be_bytes());
        bytes[20..24].copy_from_slice(&1u32.to_be_bytes());
        bytes[28..48].fill(0);
        bytes[0x2b] = features & !0x18;
        if let Ok(js) = JournalSuper::parse(&bytes, bs, 2500) {
            prop_assert!(js.first() < js.log_end() && js.log_end() <= 2500);
            prop_assert_eq!(&js.encode()[..], &bytes[..1024]);
        }
        let _ = mmp::RawMmp::parse(&bytes);
    }
}
