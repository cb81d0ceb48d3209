//! Group descriptors, and the checksums of the bitmaps that they hold.

use super::csum::crc32c;
use super::geometry::Geometry;
use crate::error::{Corrupt, Result};
use crate::types::{Block, Group};
use std::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `struct ext4_group_desc`, 64 bytes; the second half exists with `64bit` only.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawGroupDesc {
    pub bg_block_bitmap_lo: U32,
    pub bg_inode_bitmap_lo: U32,
    pub bg_inode_table_lo: U32,
    pub bg_free_blocks_count_lo: U16,
    pub bg_free_inodes_count_lo: U16,
    pub bg_used_dirs_count_lo: U16,
    pub bg_flags: U16,
    pub bg_exclude_bitmap_lo: U32,
    pub bg_block_bitmap_csum_lo: U16,
    pub bg_inode_bitmap_csum_lo: U16,
    pub bg_itable_unused_lo: U16,
    pub bg_checksum: U16,
    pub bg_block_bitmap_hi: U32,
    pub bg_inode_bitmap_hi: U32,
    pub bg_inode_table_hi: U32,
    pub bg_free_blocks_count_hi: U16,
    pub bg_free_inodes_count_hi: U16,
    pub bg_used_dirs_count_hi: U16,
    pub bg_itable_unused_hi: U16,
    pub bg_exclude_bitmap_hi: U32,
    pub bg_block_bitmap_csum_hi: U16,
    pub bg_inode_bitmap_csum_hi: U16,
    pub bg_reserved: U32,
}

/// Byte offset of `bg_checksum` in a descriptor.
pub const BG_CHECKSUM_OFFSET: usize = offset_of!(RawGroupDesc, bg_checksum);

const _: () = {
    assert!(size_of::<RawGroupDesc>() == 64);
    assert!(offset_of!(RawGroupDesc, bg_flags) == 0x12);
    assert!(offset_of!(RawGroupDesc, bg_itable_unused_lo) == 0x1c);
    assert!(BG_CHECKSUM_OFFSET == 0x1e);
    assert!(offset_of!(RawGroupDesc, bg_block_bitmap_hi) == 0x20);
    assert!(offset_of!(RawGroupDesc, bg_block_bitmap_csum_hi) == 0x38);
};

bitflags::bitflags! {
    /// `bg_flags`; they mean something with `uninit_bg` or `metadata_csum` only.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and table are not initialised.
        const INODE_UNINIT = 1;
        /// The block bitmap is not initialised.
        const BLOCK_UNINIT = 2;
        /// The inode table is zeroed up to its end.
        const INODE_ZEROED = 4;
    }
}

/// A checked group descriptor: its block numbers are inside the file system
/// and its counts inside the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDesc {
    /// The block bitmap.
    pub block_bitmap: Block,
    /// The inode bitmap.
    pub inode_bitmap: Block,
    /// First block of the inode table.
    pub inode_table: Block,
    /// Free clusters (blocks, without `bigalloc`).
    pub free_clusters: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub used_dirs: u32,
    /// Inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// `bg_flags`. Without descriptor checksums they are read as `INODE_ZEROED` alone.
    pub flags: GroupFlags,
    /// Checksum of the block bitmap; the upper half is 0 with 32-byte descriptors.
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap; the upper half is 0 with 32-byte descriptors.
    pub inode_bitmap_csum: u32,
}

fn join16(lo: U16, hi: U16) -> u32 {
    u32::from(hi.get()) << 16 | u32::from(lo.get())
}

fn join32(lo: U32, hi: U32) -> Block {
    Block(u64::from(hi.get()) << 32 | u64::from(lo.get()))
}

impl GroupDesc {
    /// Parses the descriptor of group `g` from its slot (`desc_size` bytes or more).
    /// The checksum is [`super::seal`]'s affair.
    ///
    /// # Errors
    /// `Corrupt` if a bitmap or table lies outside the file system, or a count outside the group.
    pub fn parse(geo: &Geometry, g: Group, bytes: &[u8]) -> Result<GroupDesc> {
        let mut raw = RawGroupDesc::default();
        let n = usize::from(geo.desc_size).min(64);
        let slot = bytes.get(..n).ok_or_else(|| Corrupt::new("group descriptor size").group(g))?;
        raw.as_mut_bytes().iter_mut().zip(slot).for_each(|(d, s)| *d = *s);
        let summed = geo.metadata_csum || geo.gdt_csum;
        let desc = GroupDesc {
            block_bitmap: join32(raw.bg_block_bitmap_lo, raw.bg_block_bitmap_hi),
            inode_bitmap: join32(raw.bg_inode_bitmap_lo, raw.bg_inode_bitmap_hi),
            inode_table: join32(raw.bg_inode_table_lo, raw.bg_inode_table_hi),
            free_clusters: join16(raw.bg_free_blocks_count_lo, raw.bg_free_blocks_count_hi),
            free_inodes: join16(raw.bg_free_inodes_count_lo, raw.bg_free_inodes_count_hi),
            used_dirs: join16(raw.bg_used_dirs_count_lo, raw.bg_used_dirs_count_hi),
            itable_unused: if summed {
                join16(raw.bg_itable_unused_lo, raw.bg_itable_unused_hi)
            } else {
                0
            },
            flags: if summed {
                GroupFlags::from_bits_retain(raw.bg_flags.get())
            } else {
                GroupFlags::INODE_ZEROED
            },
            block_bitmap_csum: join16(raw.bg_block_bitmap_csum_lo, raw.bg_block_bitmap_csum_hi),
            inode_bitmap_csum: join16(raw.bg_inode_bitmap_csum_lo, raw.bg_inode_bitmap_csum_hi),
        };
        desc.check(geo, g)?;
        Ok(desc)
    }

    fn check(&self, geo: &Geometry, g: Group) -> Result<()> {
        let in_place = |b: Block, len: u64| {
            if geo.has_incompat(super::features::Incompat::FLEX_BG) {
                return geo.is_valid_block(b, len);
            }
            let first = geo.group_first_block(g).0;
            let end = first + u64::from(geo.blocks_in_group(g));
            b.0 >= first && b.0.checked_add(len).is_some_and(|e| e <= end)
        };
        let itable = u64::from(geo.itable_blocks());
        for (b, len, what) in [
            (self.block_bitmap, 1, "block bitmap location"),
            (self.inode_bitmap, 1, "inode bitmap location"),
            (self.inode_table, itable, "inode table location"),
        ] {
            if !in_place(b, len) || b <= geo.superblock_block() {
                return Err(Corrupt::new(what).group(g).block(b).into());
            }
        }
        for (n, max, what) in [
            (self.free_clusters, geo.clusters_in_group(g), "free blocks count"),
            (self.free_inodes, geo.inodes_per_group, "free inodes count"),
            (self.used_dirs, geo.inodes_per_group, "used directories count"),
            (self.itable_unused, geo.inodes_per_group, "unused inodes count"),
        ] {
            if n > max {
                return Err(Corrupt::new(what).group(g).value(u64::from(n)).into());
            }
        }
        Ok(())
    }

    /// Writes the fields that change (counts, flags, bitmap checksums) and the
    /// locations into a slot; everything else keeps its bytes. The slot must be
    /// sealed afterwards.
    ///
    /// # Errors
    /// `Corrupt` if the slot is shorter than a descriptor.
    pub fn write(&self, geo: &Geometry, bytes: &mut [u8]) -> Result<()> {
        let mut raw = RawGroupDesc::default();
        let n = usize::from(geo.desc_size).min(64);
        let slot = bytes.get_mut(..n).ok_or(Corrupt::new("group descriptor size"))?;
        raw.as_mut_bytes().iter_mut().zip(&*slot).for_each(|(d, s)| *d = *s);
        raw.bg_block_bitmap_lo.set(self.block_bitmap.0 as u32);
        raw.bg_block_bitmap_hi.set((self.block_bitmap.0 >> 32) as u32);
        raw.bg_inode_bitmap_lo.set(self.inode_bitmap.0 as u32);
        raw.bg_inode_bitmap_hi.set((self.inode_bitmap.0 >> 32) as u32);
        raw.bg_inode_table_lo.set(self.inode_table.0 as u32);
        raw.bg_inode_table_hi.set((self.inode_table.0 >> 32) as u32);
        raw.bg_free_blocks_count_lo.set(self.free_clusters as u16);
        raw.bg_free_blocks_count_hi.set((self.free_clusters >> 16) as u16);
        raw.bg_free_inodes_count_lo.set(self.free_inodes as u16);
        raw.bg_free_inodes_count_hi.set((self.free_inodes >> 16) as u16);
        raw.bg_used_dirs_count_lo.set(self.used_dirs as u16);
        raw.bg_used_dirs_count_hi.set((self.used_dirs >> 16) as u16);
        if geo.metadata_csum || geo.gdt_csum {
            raw.bg_itable_unused_lo.set(self.itable_unused as u16);
            raw.bg_itable_unused_hi.set((self.itable_unused >> 16) as u16);
            raw.bg_flags.set(self.flags.bits());
        }
        if geo.metadata_csum {
            raw.bg_block_bitmap_csum_lo.set(self.block_bitmap_csum as u16);
            raw.bg_block_bitmap_csum_hi.set((self.block_bitmap_csum >> 16) as u16);
            raw.bg_inode_bitmap_csum_lo.set(self.inode_bitmap_csum as u16);
            raw.bg_inode_bitmap_csum_hi.set((self.inode_bitmap_csum >> 16) as u16);
        }
        slot.iter_mut().zip(raw.as_bytes()).for_each(|(d, s)| *d = *s);
        Ok(())
    }

    /// Checks a block bitmap against the descriptor (`Ok` without `metadata_csum`).
    ///
    /// # Errors
    /// `Corrupt` (checksum).
    pub fn verify_block_bitmap(&self, geo: &Geometry, g: Group, bitmap: &[u8]) -> Result<()> {
        let sum = block_bitmap_csum(geo, bitmap);
        let what = "block bitmap";
        verify_bitmap(geo, g, self.block_bitmap, self.block_bitmap_csum, sum, what)
    }

    /// Checks an inode bitmap against the descriptor (`Ok` without `metadata_csum`).
    ///
    /// # Errors
    /// `Corrupt` (checksum).
    pub fn verify_inode_bitmap(&self, geo: &Geometry, g: Group, bitmap: &[u8]) -> Result<()> {
        let sum = inode_bitmap_csum(geo, bitmap);
        let what = "inode bitmap";
        verify_bitmap(geo, g, self.inode_bitmap, self.inode_bitmap_csum, sum, what)
    }
}

fn verify_bitmap(
    geo: &Geometry,
    g: Group,
    b: Block,
    stored: u32,
    sum: u32,
    what: &'static str,
) -> Result<()> {
    if !geo.metadata_csum || stored == sum {
        return Ok(());
    }
    Err(Corrupt::checksum(what).group(g).block(b).value(u64::from(stored)).into())
}

/// Checksum of a block bitmap, over `clusters_per_group / 8` bytes; as many bits
/// of it as the descriptor holds. For [`GroupDesc::block_bitmap_csum`].
pub fn block_bitmap_csum(geo: &Geometry, bitmap: &[u8]) -> u32 {
    bitmap_csum(geo, bitmap, geo.clusters_per_group)
}

/// Checksum of an inode bitmap, over `inodes_per_group / 8` bytes; as many bits
/// of it as the descriptor holds. For [`GroupDesc::inode_bitmap_csum`].
pub fn inode_bitmap_csum(geo: &Geometry, bitmap: &[u8]) -> u32 {
    bitmap_csum(geo, bitmap, geo.inodes_per_group)
}

fn bitmap_csum(geo: &Geometry, bitmap: &[u8], bits: u32) -> u32 {
    let n = (bits / 8) as usize;
    let sum = crc32c(geo.csum_seed, bitmap.get(..n).unwrap_or(bitmap));
    if geo.desc_size >= 64 { sum } else { sum & 0xffff }
}
