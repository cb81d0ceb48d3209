//! Checksums of metadata: every one is made and checked here, by the kind of
//! block and its seed.

use super::bytes::{le16, le32, put};
use super::csum::{crc16, crc32c};
use super::geometry::Geometry;
use super::group_desc::BG_CHECKSUM_OFFSET;
use super::inode_raw::{
    GOOD_OLD_INODE_SIZE, I_CHECKSUM_HI_OFFSET, I_CHECKSUM_LO_OFFSET, I_EXTRA_ISIZE_OFFSET,
    I_GENERATION_OFFSET,
};
use crate::error::{Corrupt, Result};
use crate::types::{Block, Group, Ino};

/// How a metadata block, or one slot of it, is checksummed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seal {
    /// No checksum in the block: bitmaps (theirs is in the descriptor),
    /// indirect blocks, symlink blocks.
    None,
    /// The superblock, inside the block that holds it.
    Superblock,
    /// The descriptor of one group, at a byte offset of its block. Slot only.
    GroupDesc {
        /// The group described.
        group: Group,
        /// Byte offset in the block.
        offset: u32,
    },
    /// One inode at a byte offset of its inode-table block. Slot only.
    Inode {
        /// The inode.
        ino: Ino,
        /// Byte offset in the block.
        offset: u32,
    },
    /// A block of an extent tree.
    ExtentBlock {
        /// [`Sealer::inode_seed`] of the owner.
        seed: u32,
    },
    /// A linear directory block, leaf of a hashed directory included.
    DirLeaf {
        /// [`Sealer::inode_seed`] of the directory.
        seed: u32,
    },
    /// The root or a node of a hashed directory.
    HtreeNode {
        /// [`Sealer::inode_seed`] of the directory.
        seed: u32,
    },
    /// A block of extended attributes; its own number is part of the sum.
    XattrBlock,
    /// A block of the orphan file; its own number is part of the sum.
    OrphanBlock {
        /// [`Sealer::inode_seed`] of the orphan file.
        seed: u32,
    },
    /// The multi-mount protection block.
    Mmp,
}

impl Seal {
    /// Whether it covers one slot of the block only, so that a block may carry several.
    pub fn is_slot(&self) -> bool {
        matches!(self, Seal::GroupDesc { .. } | Seal::Inode { .. })
    }
}

/// Makes and checks checksums for one file system. `Copy`, cheap, immutable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealer {
    metadata_csum: bool,
    gdt_csum: bool,
    csum_seed: u32,
    uuid: [u8; 16],
    block_bytes: usize,
    inode_size: usize,
    desc_size: usize,
}

impl Sealer {
    /// For the file system that `geo` describes.
    pub fn new(geo: &Geometry) -> Sealer {
        Sealer {
            metadata_csum: geo.metadata_csum,
            gdt_csum: geo.gdt_csum,
            csum_seed: geo.csum_seed,
            uuid: geo.uuid,
            block_bytes: geo.block_size.bytes(),
            inode_size: usize::from(geo.inode_size),
            desc_size: usize::from(geo.desc_size),
        }
    }

    /// Whether metadata carries CRC-32C checksums.
    pub fn metadata_csum(&self) -> bool {
        self.metadata_csum
    }

    /// The seed for everything an inode owns.
    pub fn inode_seed(&self, ino: Ino, generation: u32) -> u32 {
        let seed = crc32c(self.csum_seed, &ino.0.to_le_bytes());
        crc32c(seed, &generation.to_le_bytes())
    }

    /// Checks the checksum that `seal` describes in `block`, whose contents are `data`.
    ///
    /// # Errors
    /// `Corrupt` with `checksum` set if it differs; without, if the block has
    /// no place for a checksum where its kind must have one.
    pub fn verify(&self, seal: &Seal, block: Block, data: &[u8]) -> Result<()> {
        let Some(at) = self.locate(seal, block, data)? else { return Ok(()) };
        let sum = self.compute(seal, block, data, &at);
        let stored = at.load(data);
        if stored == sum {
            return Ok(());
        }
        Err(self
            .blame(seal, Corrupt::checksum(name(seal)))
            .block(block)
            .value(stored.into())
            .into())
    }

    /// Writes the checksum that `seal` describes into `data`. Slot kinds touch their slot only.
    ///
    /// # Errors
    /// `Corrupt` if the block has no place for a checksum where its kind must have one.
    pub fn seal(&self, seal: &Seal, block: Block, data: &mut [u8]) -> Result<()> {
        let Some(at) = self.locate(seal, block, data)? else { return Ok(()) };
        let sum = self.compute(seal, block, data, &at);
        at.store(data, sum);
        Ok(())
    }

    /// Where the checksum is and what it covers; `None` if there is none.
    fn locate(&self, seal: &Seal, block: Block, data: &[u8]) -> Result<Option<Place>> {
        let wanted = match seal {
            Seal::None => false,
            Seal::GroupDesc { .. } => self.metadata_csum || self.gdt_csum,
            _ => self.metadata_csum,
        };
        if !wanted {
            return Ok(None);
        }
        let bs = data.len();
        let none = |what| self.blame(seal, Corrupt::new(what)).block(block);
        let place = match *seal {
            Seal::None => return Ok(None),
            Seal::Superblock => {
                let start = if block.0 == 0 && bs > 1024 { 1024 } else { 0 };
                Place { start, end: start + 0x3fc, lo: start + 0x3fc, width: Width::Full }
            }
            Seal::GroupDesc { offset, .. } => {
                let start = offset as usize;
                let lo = start + BG_CHECKSUM_OFFSET;
                Place { start, end: start + self.desc_size, lo, width: Width::Low }
            }
            Seal::Inode { offset, .. } => {
                let start = offset as usize;
                let extra = if self.inode_size > GOOD_OLD_INODE_SIZE {
                    le16(data, start + I_EXTRA_ISIZE_OFFSET).unwrap_or(0)
                } else {
                    0
                };
                let lo = start + I_CHECKSUM_LO_OFFSET;
                let width = if extra >= 4 {
                    Width::Split(start + I_CHECKSUM_HI_OFFSET)
                } else {
                    Width::Low
                };
                Place { start, end: start + self.inode_size, lo, width }
            }
            Seal::ExtentBlock { .. } => {
                let max = le16(data, 4).ok_or_else(|| none("extent block size"))?;
                let tail = 12 + 12 * usize::from(max);
                Place { start: 0, end: tail, lo: tail, width: Width::Full }
            }
            Seal::DirLeaf { .. } => {
                let tail = bs.checked_sub(12).ok_or_else(|| none("directory block size"))?;
                let shape = (le32(data, tail), le16(data, tail + 4), le16(data, tail + 6));
                if shape != (Some(0), Some(12), Some(0xde00)) {
                    return Err(none("no checksum tail in directory block").into());
                }
                Place { start: 0, end: tail, lo: tail + 8, width: Width::Full }
            }
            Seal::HtreeNode { .. } => {
                let (limit, count, at) =
                    htree_count(data).ok_or_else(|| none("htree count offset"))?;
                let tail = at + 8 * usize::from(limit);
                if count > limit || tail + 8 > bs {
                    return Err(none("htree limit").value(u64::from(limit)).into());
                }
                let end = at + 8 * usize::from(count);
                Place { start: 0, end, lo: tail + 4, width: Width::Full }
            }
            Seal::XattrBlock => Place { start: 0, end: bs, lo: 16, width: Width::Full },
            Seal::OrphanBlock { .. } => {
                let tail = bs.checked_sub(8).ok_or_else(|| none("orphan block size"))?;
                Place { start: 0, end: tail, lo: tail + 4, width: Width::Full }
            }
            Seal::Mmp => Place { start: 0, end: 0x3fc, lo: 0x3fc, width: Width::Full },
        };
        if place.end > bs || place.lo + place.width.bytes() > bs {
            return Err(none("no room for a checksum").value(place.end as u64).into());
        }
        Ok(Some(place))
    }

    fn compute(&self, seal: &Seal, block: Block, data: &[u8], at: &Place) -> u32 {
        let range = |a: usize, b: usize| data.get(a..b).unwrap_or_default();
        match *seal {
            Seal::None => 0,
            Seal::Superblock => crc32c(!0, range(at.start, at.end)),
            Seal::GroupDesc { group, .. } => {
                let head = range(at.start, at.lo);
                let rest = range(at.lo + 2, at.end);
                let nr = group.0.to_le_bytes();
                if self.metadata_csum {
                    let sum = crc32c(crc32c(self.csum_seed, &nr), head);
                    crc32c(crc32c(sum, &[0; 2]), rest) & 0xffff
                } else {
                    let sum = crc16(crc16(crc16(!0, &self.uuid), &nr), head);
                    u32::from(crc16(sum, rest))
                }
            }
            Seal::Inode { ino, .. } => {
                let generation = le32(data, at.start + I_GENERATION_OFFSET).unwrap_or(0);
                let mut sum = crc32c(self.inode_seed(ino, generation), range(at.start, at.lo));
                sum = crc32c(sum, &[0; 2]);
                let mut from = at.lo + 2;
                if let Width::Split(hi) = at.width {
                    sum = crc32c(crc32c(sum, range(from, hi)), &[0; 2]);
                    from = hi + 2;
                }
                sum = crc32c(sum, range(from, at.end));
                if matches!(at.width, Width::Low) { sum & 0xffff } else { sum }
            }
            Seal::ExtentBlock { seed } | Seal::DirLeaf { seed } => crc32c(seed, range(0, at.end)),
            Seal::HtreeNode { seed } => {
                let sum = crc32c(seed, range(0, at.end));
                crc32c(crc32c(sum, range(at.lo - 4, at.lo)), &[0; 4])
            }
            Seal::XattrBlock => {
                let sum = crc32c(self.csum_seed, &block.0.to_le_bytes());
                let sum = crc32c(crc32c(sum, range(0, at.lo)), &[0; 4]);
                crc32c(sum, range(at.lo + 4, at.end))
            }
            Seal::OrphanBlock { seed } => {
                let sum = crc32c(seed, &block.0.to_le_bytes());
                crc32c(sum, range(0, at.end))
            }
            Seal::Mmp => crc32c(self.csum_seed, range(0, at.end)),
        }
    }

    fn blame(&self, seal: &Seal, c: Corrupt) -> Corrupt {
        match *seal {
            Seal::GroupDesc { group, .. } => c.group(group),
            Seal::Inode { ino, .. } => c.ino(ino),
            _ => c,
        }
    }
}

/// Limit, count and the byte offset of both, of an htree root or node
/// (recognised by its fake directory entries); `None` if it is neither.
pub(super) fn htree_count(data: &[u8]) -> Option<(u16, u16, usize)> {
    let bs = data.len();
    let rec_len = |off| le16(data, off).map(|raw| super::dirent::decode_rec_len(raw, bs));
    let whole = rec_len(4)? == bs;
    let at = if whole {
        8
    } else if le16(data, 4)? == 12
        && rec_len(16)? == bs.checked_sub(12)?
        && le32(data, 24)? == 0
        && *data.get(29)? == 8
    {
        32
    } else {
        return None;
    };
    Some((le16(data, at)?, le16(data, at + 2)?, at))
}

fn name(seal: &Seal) -> &'static str {
    match seal {
        Seal::None => "block",
        Seal::Superblock => "superblock",
        Seal::GroupDesc { .. } => "group descriptor",
        Seal::Inode { .. } => "inode",
        Seal::ExtentBlock { .. } => "extent block",
        Seal::DirLeaf { .. } => "directory block",
        Seal::HtreeNode { .. } => "htree node",
        Seal::XattrBlock => "xattr block",
        Seal::OrphanBlock { .. } => "orphan block",
        Seal::Mmp => "MMP block",
    }
}

/// Where a checksum lies (`lo`) and the bytes `start..end` it covers.
struct Place {
    start: usize,
    end: usize,
    lo: usize,
    width: Width,
}

enum Width {
    /// 32 bits at `lo`.
    Full,
    /// 16 bits at `lo`.
    Low,
    /// 16 low bits at `lo`, the high ones here.
    Split(usize),
}

impl Width {
    fn bytes(&self) -> usize {
        if matches!(self, Width::Full) { 4 } else { 2 }
    }
}

impl Place {
    fn load(&self, data: &[u8]) -> u32 {
        let low = || u32::from(le16(data, self.lo).unwrap_or(0));
        match self.width {
            Width::Full => le32(data, self.lo).unwrap_or(0),
            Width::Low => low(),
            Width::Split(hi) => u32::from(le16(data, hi).unwrap_or(0)) << 16 | low(),
        }
    }

    /// `locate` made sure that it fits.
    fn store(&self, data: &mut [u8], sum: u32) {
        let done = match self.width {
            Width::Full => put(data, self.lo, &sum.to_le_bytes()),
            Width::Low => put(data, self.lo, &(sum as u16).to_le_bytes()),
            Width::Split(hi) => {
                put(data, self.lo, &(sum as u16).to_le_bytes())
                    && put(data, hi, &((sum >> 16) as u16).to_le_bytes())
            }
        };
        debug_assert!(done, "checksum place was checked");
    }
}
