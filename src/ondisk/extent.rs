//! What a node of the extent tree is made of. The tree itself is the room `map`'s.
//!
//! A node is a 12-byte header and 12-byte entries, in the 60 bytes of `i_block`
//! (the root) or in a block, where a checksum follows the last entry that fits.

use super::bytes::{le16, le32, put};
use crate::types::{Block, LBlock};

/// `EXT4_EXT_MAGIC`
pub const EXT_MAGIC: u16 = 0xf30a;
/// Bytes in the header, in an extent and in an index.
pub const EXT_ENTRY: usize = 12;
/// Bytes in the root node.
pub const ROOT_BYTES: usize = 60;
/// Entries in the root node.
pub const ROOT_MAX: u16 = 4;
/// Largest depth of a root that the format allows.
pub const MAX_DEPTH: u16 = 5;
/// Longest written extent, in blocks (`EXT_INIT_MAX_LEN`).
pub const MAX_WRITTEN: u32 = 32768;
/// Longest unwritten extent, in blocks (`EXT_UNWRITTEN_MAX_LEN`).
pub const MAX_UNWRITTEN: u32 = 32767;

/// The header of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentHeader {
    /// Entries in use.
    pub entries: u16,
    /// Entries that fit.
    pub max: u16,
    /// 0 in a leaf.
    pub depth: u16,
    /// Not used by Linux.
    pub generation: u32,
}

/// A leaf entry: `len` blocks of the file from `lblock` lie at `block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block of the file that it maps.
    pub lblock: LBlock,
    /// Blocks: 1 to [`MAX_WRITTEN`], or to [`MAX_UNWRITTEN`] if unwritten.
    pub len: u32,
    /// First block on the device.
    pub block: Block,
    /// Allocated but never written: reads as zeros.
    pub unwritten: bool,
}

/// An inner entry: what lies from `lblock` on is under the node at `child`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentIdx {
    /// First block of the file below it.
    pub lblock: LBlock,
    /// The node below.
    pub child: Block,
}

impl ExtentHeader {
    /// Reads a header; `None` if there is no room for one or the magic is missing.
    pub fn read(node: &[u8]) -> Option<ExtentHeader> {
        (le16(node, 0)? == EXT_MAGIC).then_some(())?;
        Some(ExtentHeader {
            entries: le16(node, 2)?,
            max: le16(node, 4)?,
            depth: le16(node, 6)?,
            generation: le32(node, 8)?,
        })
    }

    /// Writes it at the start of `node`; `false` if it does not fit.
    #[must_use]
    pub fn write(&self, node: &mut [u8]) -> bool {
        let mut h = [0; EXT_ENTRY];
        h[..2].copy_from_slice(&EXT_MAGIC.to_le_bytes());
        h[2..4].copy_from_slice(&self.entries.to_le_bytes());
        h[4..6].copy_from_slice(&self.max.to_le_bytes());
        h[6..8].copy_from_slice(&self.depth.to_le_bytes());
        h[8..].copy_from_slice(&self.generation.to_le_bytes());
        put(node, 0, &h)
    }
}

impl Extent {
    /// The block of the file after its last one; a `u64` because it can be 2^32.
    pub fn end(&self) -> u64 {
        u64::from(self.lblock.0) + u64::from(self.len)
    }
    /// Longest extent of its kind.
    pub fn max_len(unwritten: bool) -> u32 {
        if unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN }
    }
    /// Whether `next` continues it on the device and in the file, in the same
    /// state, and both fit one extent.
    pub fn can_merge(&self, next: &Extent) -> bool {
        self.unwritten == next.unwritten
            && self.end() == u64::from(next.lblock.0)
            && self.block.plus(u64::from(self.len)) == next.block
            && self.len.saturating_add(next.len) <= Extent::max_len(self.unwritten)
    }
    /// Decodes an entry: a length above 32,768 means unwritten, less that.
    pub fn decode(e: [u8; EXT_ENTRY]) -> Extent {
        let [l0, l1, l2, l3, n0, n1, h0, h1, s0, s1, s2, s3] = e;
        let raw = u32::from(u16::from_le_bytes([n0, n1]));
        let unwritten = raw > MAX_WRITTEN;
        let hi = u64::from(u16::from_le_bytes([h0, h1]));
        Extent {
            lblock: LBlock(u32::from_le_bytes([l0, l1, l2, l3])),
            len: if unwritten { raw - MAX_WRITTEN } else { raw },
            block: Block(hi << 32 | u64::from(u32::from_le_bytes([s0, s1, s2, s3]))),
            unwritten,
        }
    }
    /// Encodes an entry. `len` must be within [`Extent::max_len`].
    pub fn encode(&self) -> [u8; EXT_ENTRY] {
        debug_assert!((1..=Extent::max_len(self.unwritten)).contains(&self.len));
        let raw = if self.unwritten { self.len + MAX_WRITTEN } else { self.len };
        let mut e = [0; EXT_ENTRY];
        e[..4].copy_from_slice(&self.lblock.0.to_le_bytes());
        e[4..6].copy_from_slice(&(raw as u16).to_le_bytes());
        e[6..8].copy_from_slice(&((self.block.0 >> 32) as u16).to_le_bytes());
        e[8..].copy_from_slice(&(self.block.0 as u32).to_le_bytes());
        e
    }
}

impl ExtentIdx {
    /// Decodes an entry.
    pub fn decode(e: [u8; EXT_ENTRY]) -> ExtentIdx {
        let [l0, l1, l2, l3, s0, s1, s2, s3, h0, h1, _, _] = e;
        let hi = u64::from(u16::from_le_bytes([h0, h1]));
        ExtentIdx {
            lblock: LBlock(u32::from_le_bytes([l0, l1, l2, l3])),
            child: Block(hi << 32 | u64::from(u32::from_le_bytes([s0, s1, s2, s3]))),
        }
    }
    /// Encodes an entry.
    pub fn encode(&self) -> [u8; EXT_ENTRY] {
        let mut e = [0; EXT_ENTRY];
        e[..4].copy_from_slice(&self.lblock.0.to_le_bytes());
        e[4..8].copy_from_slice(&(self.child.0 as u32).to_le_bytes());
        e[8..10].copy_from_slice(&((self.child.0 >> 32) as u16).to_le_bytes());
        e
    }
}

/// Entries that fit a node in a block of `bytes` bytes (the checksum has its place behind them).
pub fn block_max(bytes: usize) -> u16 {
    (bytes.saturating_sub(EXT_ENTRY) / EXT_ENTRY).min(usize::from(u16::MAX)) as u16
}

/// Writes the header of an empty node; `node` is the root's 60 bytes or a
/// block, which is zeroed.
pub fn init_node(node: &mut [u8], depth: u16) {
    node.fill(0);
    let max = if node.len() == ROOT_BYTES { ROOT_MAX } else { block_max(node.len()) };
    let done = ExtentHeader { entries: 0, max, depth, generation: 0 }.write(node);
    debug_assert!(done, "a node holds a header");
}

/// First file block of entry `i`, of either kind.
pub fn entry_lblock(node: &[u8], i: u16) -> Option<LBlock> {
    le32(node, EXT_ENTRY + EXT_ENTRY * usize::from(i)).map(LBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        for (len, unwritten, raw) in
            [(1, false, 1u16), (32768, false, 32768), (1, true, 32769), (32767, true, 65535)]
        {
            let e = Extent { lblock: LBlock(3), len, block: Block(0x1234_5678_9abc), unwritten };
            let bytes = e.encode();
            assert_eq!(le16(&bytes, 4), Some(raw));
            assert_eq!(Extent::decode(bytes), e);
        }
        let idx = ExtentIdx { lblock: LBlock(9), child: Block(0xfedc_ba98_7654) };
        assert_eq!(ExtentIdx::decode(idx.encode()), idx);
    }

    #[test]
    fn merging() {
        let a = Extent { lblock: LBlock(0), len: 32767, block: Block(10), unwritten: false };
        let b = Extent { lblock: LBlock(32767), len: 1, block: Block(32777), unwritten: false };
        assert!(a.can_merge(&b));
        assert!(!Extent { unwritten: true, ..a }.can_merge(&Extent { unwritten: true, ..b }));
        assert!(!a.can_merge(&Extent { block: Block(5), ..b }));
        assert!(!a.can_merge(&Extent { len: 2, ..b }));
    }
}
