//! Where things are: the numbers of a file system that do not change while it is mounted.

use super::features::{Compat, Features, Incompat, RoCompat};
use super::superblock::{SuperFlags, Superblock};
use crate::error::{Corrupt, Error, Result};
use crate::types::{Block, BlockSize, Group, Ino};

/// Immutable facts of a file system, from a checked superblock. All arithmetic
/// here stays inside its types because [`Superblock::parse`] bounded the terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes in a block.
    pub block_size: BlockSize,
    /// log2 of the blocks in a cluster: 0 unless `bigalloc`.
    pub cluster_bits: u32,
    /// Blocks in the file system, counting from block 0.
    pub blocks_count: u64,
    /// Block that group 0 starts at: 1 with 1 KiB blocks (without bigalloc), else 0.
    pub first_data_block: u32,
    /// Blocks in a group; the last group may be shorter.
    pub blocks_per_group: u32,
    /// Clusters in a group: the bits of a block bitmap.
    pub clusters_per_group: u32,
    /// Inodes in a group: the bits of an inode bitmap.
    pub inodes_per_group: u32,
    /// Block groups.
    pub groups_count: u32,
    /// Bytes in an inode.
    pub inode_size: u16,
    /// Bytes in a group descriptor: 32, or at least 64 with `64bit`.
    pub desc_size: u16,
    /// Inodes in the file system; valid numbers are 1 to this.
    pub inodes_count: u32,
    /// The first inode that is not reserved.
    pub first_ino: u32,
    /// Blocks reserved behind the descriptor table for growing it.
    pub reserved_gdt_blocks: u16,
    /// With `meta_bg`: the first meta block group whose descriptors are spread out.
    pub first_meta_bg: u32,
    /// With `sparse_super2`: the groups that hold backups (0: none).
    pub backup_bgs: [u32; 2],
    /// Groups in a flex group, a power of two; 1 without `flex_bg`.
    pub flex_bg_size: u32,
    /// Seed of all metadata checksums.
    pub csum_seed: u32,
    /// Metadata carries CRC-32C checksums.
    pub metadata_csum: bool,
    /// Group descriptors carry CRC-16 checksums (`uninit_bg` without `metadata_csum`).
    pub gdt_csum: bool,
    /// `s_hash_seed`
    pub hash_seed: [u32; 4],
    /// `s_def_hash_version`: 0 legacy, 1 half_md4, 2 tea.
    pub def_hash_version: u8,
    /// Directory hashes treat name bytes as unsigned.
    pub hash_unsigned: bool,
    /// Features at mount. `RECOVER` and the like change; take those from the superblock.
    pub features: Features,
    /// `s_uuid`
    pub uuid: [u8; 16],
    /// `s_min_extra_isize` and `s_want_extra_isize`.
    pub extra_isize: (u16, u16),
    /// `s_raid_stride` and `s_raid_stripe_width`, in blocks.
    pub raid: (u16, u32),
}

impl Geometry {
    /// From a checked superblock. `device_bytes` is the size of the device where it is known.
    ///
    /// # Errors
    /// `Unmountable` if the file system is larger than the device.
    pub fn new(sb: &Superblock, device_bytes: Option<u64>) -> Result<Geometry> {
        let raw = sb.raw();
        let features = sb.features();
        let block_size = sb.block_size();
        if let Some(bytes) = device_bytes {
            let have = bytes >> block_size.log2();
            if have < sb.blocks_count() {
                return Err(Error::Unmountable(format!(
                    "bad geometry: the file system has {} blocks of {} bytes, the device only {have}",
                    sb.blocks_count(),
                    block_size.bytes()
                )));
            }
        }
        let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
        let metadata_csum = sb.metadata_csum();
        let flex = features.incompat.contains(Incompat::FLEX_BG);
        let blocks_per_group = raw.s_blocks_per_group.get();
        let geo = Geometry {
            block_size,
            cluster_bits: sb.cluster_bits(),
            blocks_count: sb.blocks_count(),
            first_data_block: raw.s_first_data_block.get(),
            blocks_per_group,
            clusters_per_group: if bigalloc {
                raw.s_clusters_per_group.get()
            } else {
                blocks_per_group
            },
            inodes_per_group: raw.s_inodes_per_group.get(),
            groups_count: sb.groups_count(),
            inode_size: sb.inode_size(),
            desc_size: sb.desc_size(),
            inodes_count: raw.s_inodes_count.get(),
            first_ino: sb.first_ino().0,
            reserved_gdt_blocks: raw.s_reserved_gdt_blocks.get(),
            first_meta_bg: raw.s_first_meta_bg.get(),
            backup_bgs: [raw.s_backup_bgs[0].get(), raw.s_backup_bgs[1].get()],
            // As in the kernel, an exponent out of range means no flex groups.
            flex_bg_size: match raw.s_log_groups_per_flex {
                log @ 1..=31 if flex => 1 << log,
                _ => 1,
            },
            csum_seed: sb.csum_seed(),
            metadata_csum,
            gdt_csum: !metadata_csum && features.ro_compat.contains(RoCompat::GDT_CSUM),
            hash_seed: raw.s_hash_seed.map(|w| w.get()),
            def_hash_version: raw.s_def_hash_version,
            hash_unsigned: sb.flags().contains(SuperFlags::UNSIGNED_HASH),
            features,
            uuid: raw.s_uuid,
            extra_isize: (raw.s_min_extra_isize.get(), raw.s_want_extra_isize.get()),
            raid: (raw.s_raid_stride.get(), raw.s_raid_stripe_width.get()),
        };
        let (last, _) = geo.desc_location(Group(geo.groups_count - 1));
        if !geo.is_valid_block(last, 1) {
            return Err(Corrupt::new("group descriptors past the end").block(last).into());
        }
        Ok(geo)
    }

    /// Whether a compat feature is on.
    pub fn has_compat(&self, f: Compat) -> bool {
        self.features.compat.contains(f)
    }
    /// Whether an incompat feature is on.
    pub fn has_incompat(&self, f: Incompat) -> bool {
        self.features.incompat.contains(f)
    }
    /// Whether a ro_compat feature is on.
    pub fn has_ro_compat(&self, f: RoCompat) -> bool {
        self.features.ro_compat.contains(f)
    }
    /// Blocks in a cluster: 1 unless `bigalloc`.
    pub fn cluster_ratio(&self) -> u32 {
        1 << self.cluster_bits
    }
    /// The block that the primary superblock lies in.
    pub fn superblock_block(&self) -> Block {
        Block(u64::from(self.block_size.bytes() == 1024))
    }

    /// Whether `len` blocks from `b` are all inside the file system. Length 0 is not valid.
    pub fn is_valid_block(&self, b: Block, len: u64) -> bool {
        len > 0
            && b.0 >= u64::from(self.first_data_block)
            && b.0.checked_add(len).is_some_and(|end| end <= self.blocks_count)
    }
    /// Whether `ino` numbers an inode of this file system.
    pub fn is_valid_ino(&self, ino: Ino) -> bool {
        (1..=self.inodes_count).contains(&ino.0)
    }
    /// Whether `ino` may be named in a directory: the root, or not reserved.
    pub fn is_user_ino(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || (self.first_ino..=self.inodes_count).contains(&ino.0)
    }

    /// The group of a block, and its bit in that group's bitmap (in clusters).
    pub fn group_of_block(&self, b: Block) -> Option<(Group, u32)> {
        if !self.is_valid_block(b, 1) {
            return None;
        }
        let rel = b.0 - u64::from(self.first_data_block);
        let group = rel / u64::from(self.blocks_per_group);
        let bit = (rel % u64::from(self.blocks_per_group)) >> self.cluster_bits;
        Some((Group(group as u32), bit as u32))
    }
    /// The first block of a group.
    pub fn group_first_block(&self, g: Group) -> Block {
        let off = u64::from(g.0) * u64::from(self.blocks_per_group);
        Block(u64::from(self.first_data_block) + off)
    }
    /// Blocks in a group: fewer in the last one; 0 past it.
    pub fn blocks_in_group(&self, g: Group) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_first_block(g).0);
        left.min(u64::from(self.blocks_per_group)) as u32
    }
    /// Clusters in a group, a partial last one counted.
    pub fn clusters_in_group(&self, g: Group) -> u32 {
        self.blocks_in_group(g).div_ceil(self.cluster_ratio())
    }

    /// The group of an inode, and its index in that group's bitmap and table.
    pub fn ino_location(&self, ino: Ino) -> Option<(Group, u32)> {
        self.is_valid_ino(ino).then(|| {
            let i = ino.0 - 1;
            (Group(i / self.inodes_per_group), i % self.inodes_per_group)
        })
    }
    /// The inode at `index` of a group's table.
    pub fn ino_at(&self, g: Group, index: u32) -> Option<Ino> {
        if index >= self.inodes_per_group || g.0 >= self.groups_count {
            return None;
        }
        Some(Ino(g.0 * self.inodes_per_group + index + 1))
    }
    /// Inodes in a block of the inode table.
    pub fn inodes_per_block(&self) -> u32 {
        (self.block_size.bytes() / usize::from(self.inode_size)) as u32
    }
    /// Blocks in the inode table of one group.
    pub fn itable_blocks(&self) -> u32 {
        self.inodes_per_group.div_ceil(self.inodes_per_block())
    }
    /// Block within a group's inode table, and byte offset in it, of the inode at `index`.
    pub fn itable_slot(&self, index: u32) -> (u32, usize) {
        let per_block = self.inodes_per_block();
        let off = (index % per_block) as usize * usize::from(self.inode_size);
        (index / per_block, off)
    }

    /// Group descriptors in a block.
    pub fn descs_per_block(&self) -> u32 {
        (self.block_size.bytes() / usize::from(self.desc_size)) as u32
    }
    /// Blocks in the descriptor table.
    pub fn desc_blocks(&self) -> u32 {
        self.groups_count.div_ceil(self.descs_per_block())
    }
    /// The block of the primary descriptor table that describes group `g`, and
    /// the byte offset of its descriptor.
    pub fn desc_location(&self, g: Group) -> (Block, usize) {
        let per_block = self.descs_per_block();
        let nr = g.0 / per_block;
        let off = (g.0 % per_block) as usize * usize::from(self.desc_size);
        (self.desc_block(nr), off)
    }
    /// Block `nr` of the primary descriptor table.
    pub fn desc_block(&self, nr: u32) -> Block {
        if !self.has_incompat(Incompat::META_BG) || nr < self.first_meta_bg {
            return self.superblock_block().plus(u64::from(nr) + 1);
        }
        let g = Group(nr.saturating_mul(self.descs_per_block()));
        let mut skip = u64::from(self.has_super(g));
        if nr == 0 && self.block_size.bytes() == 1024 && self.first_data_block == 0 {
            skip += 1;
        }
        self.group_first_block(g).plus(skip)
    }

    /// Whether a group begins with a copy of the superblock.
    pub fn has_super(&self, g: Group) -> bool {
        if g.0 == 0 {
            return true;
        }
        if self.has_compat(Compat::SPARSE_SUPER2) {
            return self.backup_bgs.contains(&g.0);
        }
        if g.0 == 1 || !self.has_ro_compat(RoCompat::SPARSE_SUPER) {
            return true;
        }
        g.0 & 1 == 1 && [3, 5, 7].iter().any(|&base| is_power_of(g.0, base))
    }
    /// Blocks of the descriptor table, or of a copy of it, in a group.
    pub fn desc_blocks_in_group(&self, g: Group) -> u32 {
        let meta_bg = self.has_incompat(Incompat::META_BG);
        let per_block = self.descs_per_block();
        if meta_bg && g.0 / per_block >= self.first_meta_bg {
            let in_meta = g.0 % per_block;
            return u32::from(in_meta <= 1 || in_meta == per_block - 1);
        }
        match (self.has_super(g), meta_bg) {
            (false, _) => 0,
            (true, true) => self.first_meta_bg,
            (true, false) => self.desc_blocks(),
        }
    }
    /// Blocks at the start of a group taken by the superblock, the descriptor
    /// table and what is reserved behind it.
    pub fn base_meta_blocks(&self, g: Group) -> u32 {
        let has_super = self.has_super(g);
        let mut n = u32::from(has_super) + self.desc_blocks_in_group(g);
        let spread = self.has_incompat(Incompat::META_BG)
            && g.0 / self.descs_per_block() >= self.first_meta_bg;
        if has_super && !spread {
            n += u32::from(self.reserved_gdt_blocks);
        }
        if g.0 == 0 && self.superblock_block().0 > u64::from(self.first_data_block) {
            n += 1;
        }
        n
    }

    /// Logical blocks a file can have: 2^32 - 1, so that a count fits 32 bits.
    pub fn max_file_blocks(&self) -> u64 {
        u64::from(u32::MAX)
    }
    /// Largest size in bytes of an extent-mapped file.
    pub fn max_extent_file_size(&self) -> u64 {
        let mut blocks = self.max_file_blocks();
        if !self.has_ro_compat(RoCompat::HUGE_FILE) {
            blocks = blocks.min(self.max_i_blocks_in_blocks());
        }
        blocks << self.block_size.log2()
    }
    /// Largest size in bytes of a file with an indirect map.
    pub fn max_indirect_file_size(&self) -> u64 {
        let per_block = self.block_size.bytes64() / 4;
        let data_limit = 12 + per_block + per_block.pow(2) + per_block.pow(3);
        let total_limit = if self.has_ro_compat(RoCompat::HUGE_FILE) {
            (1 << 48) - 1
        } else {
            self.max_i_blocks_in_blocks()
        };
        // The largest data size whose blocks, maps included, can still be counted.
        let (mut lo, mut hi) = (0, data_limit.min(self.max_file_blocks()));
        while lo < hi {
            let mid = lo + (hi - lo).div_ceil(2);
            if mid + indirect_map_blocks(mid, per_block) <= total_limit {
                lo = mid;
            } else {
                hi = mid - 1;
            }
        }
        lo << self.block_size.log2()
    }

    /// What 32 bits of 512-byte units can count, in blocks.
    fn max_i_blocks_in_blocks(&self) -> u64 {
        u64::from(u32::MAX) >> (self.block_size.log2() - 9)
    }
}

/// Blocks of an indirect map for `data` blocks without holes.
fn indirect_map_blocks(data: u64, per_block: u64) -> u64 {
    let mut left = data.saturating_sub(12);
    let mut n = 0;
    if left > 0 {
        n += 1;
        left = left.saturating_sub(per_block);
    }
    if left > 0 {
        let here = left.min(per_block * per_block);
        n += 1 + here.div_ceil(per_block);
        left -= here;
    }
    if left > 0 {
        n += 1 + left.div_ceil(per_block * per_block) + left.div_ceil(per_block);
    }
    n
}

fn is_power_of(n: u32, base: u32) -> bool {
    let mut n = n;
    while n > 1 && n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ondisk::superblock_raw::RawSuperblock;
    use zerocopy::{FromZeros, IntoBytes};

    /// The raw superblock of a small file system without checksums, for parsers that need a geometry.
    pub fn sample_raw() -> RawSuperblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.s_magic.set(0xef53);
        raw.s_rev_level.set(1);
        raw.s_inode_size.set(256);
        raw.s_first_ino.set(11);
        raw.s_log_block_size.set(2);
        raw.s_log_cluster_size.set(2);
        raw.s_blocks_per_group.set(32768);
        raw.s_clusters_per_group.set(32768);
        raw.s_inodes_per_group.set(8192);
        raw.s_inodes_count.set(2 * 8192);
        raw.s_blocks_count_lo.set(40000);
        raw.s_feature_incompat.set((Incompat::FILETYPE | Incompat::EXTENTS).bits());
        raw.s_feature_ro_compat.set((RoCompat::SPARSE_SUPER | RoCompat::HUGE_FILE).bits());
        raw
    }

    pub fn sample() -> Geometry {
        let mut bytes = [0; 1024];
        bytes.copy_from_slice(sample_raw().as_bytes());
        Geometry::new(&Superblock::parse(&bytes).unwrap(), None).unwrap()
    }

    #[test]
    fn places() {
        let g = sample();
        assert_eq!(g.groups_count, 2);
        assert_eq!(g.blocks_in_group(Group(1)), 40000 - 32768);
        assert_eq!(g.blocks_in_group(Group(2)), 0);
        assert_eq!(g.group_of_block(Block(32769)), Some((Group(1), 1)));
        assert_eq!(g.group_of_block(Block(40000)), None);
        assert_eq!(g.ino_location(Ino(8193)), Some((Group(1), 0)));
        assert_eq!(g.ino_at(Group(1), 0), Some(Ino(8193)));
        assert_eq!(g.ino_location(Ino(0)), None);
        assert_eq!(g.ino_location(Ino(16385)), None);
        assert_eq!(g.itable_slot(17), (1, 256));
        assert!(!g.is_valid_block(Block(u64::MAX), 2));
        assert!(!g.is_valid_block(Block(39999), 2));
        assert!(g.is_valid_block(Block(39999), 1));
    }

    #[test]
    fn file_size_limits() {
        let g = sample();
        assert_eq!(g.max_extent_file_size(), 0xffff_ffff << 12);
        // 12 + 1024 + 1024^2 + 1024^3 blocks of 4 KiB.
        assert_eq!(g.max_indirect_file_size(), 1_074_791_436 << 12);
        let mut small = g.clone();
        small.features.ro_compat.remove(RoCompat::HUGE_FILE);
        assert_eq!(small.max_extent_file_size(), 536_870_911 << 12);
        assert!(small.max_indirect_file_size() < 536_870_911 << 12);
    }
}
