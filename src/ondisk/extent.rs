//! Nodes of the extent tree: checked reading, and edits in place.
//!
//! A node is a 12-byte header and 12-byte entries, in the 60 bytes of `i_block`
//! (the root) or in a block, where a checksum follows the last entry that fits.

use super::bytes::{le16, le32, put};
use super::geometry::Geometry;
use crate::error::{Corrupt, Error, Result};
use crate::types::{Block, Ino, LBlock};

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

/// What a node must satisfy, from where it was reached.
#[derive(Clone, Copy, Debug)]
pub struct NodeBounds<'a> {
    /// The file system.
    pub geo: &'a Geometry,
    /// The owner, for error reports.
    pub ino: Ino,
    /// The block it lies in; `None` for the root.
    pub block: Option<Block>,
    /// The depth it must have; `None` for the root, where any up to [`MAX_DEPTH`] is right.
    pub depth: Option<u16>,
    /// The first file block of the index that led here (0 for the root): no entry before it.
    pub first: u32,
    /// The first file block of the next index, or for the last the most blocks a
    /// file can have: no entry reaches past it.
    pub end: u64,
}

impl<'a> NodeBounds<'a> {
    /// Of the root of inode `ino`.
    pub fn root(geo: &'a Geometry, ino: Ino) -> NodeBounds<'a> {
        NodeBounds { geo, ino, block: None, depth: None, first: 0, end: geo.max_file_blocks() }
    }

    /// Of the child under entry `i` of a checked inner node with these bounds.
    /// `None` if there is no such entry.
    pub fn child(&self, node: &Node<'_>, i: u16) -> Option<NodeBounds<'a>> {
        let idx = node.idx(i)?;
        let end = i.checked_add(1).and_then(|n| node.idx(n));
        Some(NodeBounds {
            block: Some(idx.child),
            depth: node.header.depth.checked_sub(1),
            first: idx.lblock.0,
            end: end.map_or(self.end, |n| u64::from(n.lblock.0)),
            ..*self
        })
    }
}

/// A node whose entries are sorted, do not overlap, lie between the bounds
/// given and point inside the file system.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    header: ExtentHeader,
    data: &'a [u8],
}

impl<'a> Node<'a> {
    /// Checks a node completely. The checksum is [`super::seal`]'s affair.
    ///
    /// # Errors
    /// `Corrupt` naming what is wrong, with inode, block and value.
    pub fn parse(data: &'a [u8], b: &NodeBounds<'_>) -> Result<Node<'a>> {
        let bad = |what, value: u64| -> Error {
            let c = Corrupt::new(what).ino(b.ino).value(value);
            b.block.map_or(c.clone(), |n| c.block(n)).into()
        };
        let header = ExtentHeader::read(data)
            .ok_or_else(|| bad("extent magic", u64::from(le16(data, 0).unwrap_or(0))))?;
        if b.depth.map_or(header.depth > MAX_DEPTH, |d| header.depth != d) {
            return Err(bad("extent depth", u64::from(header.depth)));
        }
        let room = if b.block.is_none() { ROOT_MAX } else { block_max(data.len()) };
        if header.max == 0 || header.max > room || header.entries > header.max {
            return Err(bad("extent entries and maximum", u64::from(header.entries)));
        }
        if header.entries == 0 && header.depth > 0 {
            return Err(bad("empty extent index", 0));
        }
        let node = Node { header, data };
        if header.depth == 0 {
            node.check_leaf(b, &bad)?;
        } else {
            node.check_index(b, &bad)?;
        }
        Ok(node)
    }

    fn check_leaf(
        &self,
        b: &NodeBounds<'_>,
        bad: &dyn Fn(&'static str, u64) -> Error,
    ) -> Result<()> {
        let mut next = u64::from(b.first);
        for e in self.extents() {
            if e.len == 0 {
                return Err(bad("extent of length 0 at logical block", u64::from(e.lblock.0)));
            }
            if u64::from(e.lblock.0) < next || e.end() > b.end {
                return Err(bad("extent out of order at logical block", u64::from(e.lblock.0)));
            }
            if !b.geo.is_valid_block(e.block, u64::from(e.len)) {
                return Err(bad("extent outside the file system", e.block.0));
            }
            next = e.end();
        }
        Ok(())
    }

    fn check_index(
        &self,
        b: &NodeBounds<'_>,
        bad: &dyn Fn(&'static str, u64) -> Error,
    ) -> Result<()> {
        let mut next = u64::from(b.first);
        for idx in self.idxs() {
            let at = u64::from(idx.lblock.0);
            if at < next || at >= b.end {
                return Err(bad("extent index out of order at logical block", at));
            }
            if !b.geo.is_valid_block(idx.child, 1) {
                return Err(bad("extent index outside the file system", idx.child.0));
            }
            next = at + 1;
        }
        Ok(())
    }

    /// The header.
    pub fn header(&self) -> &ExtentHeader {
        &self.header
    }
    /// Whether its entries are extents.
    pub fn is_leaf(&self) -> bool {
        self.header.depth == 0
    }
    /// Entries in use.
    pub fn len(&self) -> u16 {
        self.header.entries
    }
    /// Whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.header.entries == 0
    }
    /// Entry `i` of a leaf.
    pub fn extent(&self, i: u16) -> Option<Extent> {
        (self.is_leaf() && i < self.header.entries)
            .then(|| raw_entry(self.data, i).map(Extent::decode))
            .flatten()
    }
    /// Entry `i` of an inner node.
    pub fn idx(&self, i: u16) -> Option<ExtentIdx> {
        (!self.is_leaf() && i < self.header.entries)
            .then(|| raw_entry(self.data, i).map(ExtentIdx::decode))
            .flatten()
    }
    /// The entries of a leaf (none of an inner node).
    pub fn extents(self) -> impl Iterator<Item = Extent> + 'a {
        (0..self.header.entries).map_while(move |i| self.extent(i))
    }
    /// The entries of an inner node (none of a leaf).
    pub fn idxs(self) -> impl Iterator<Item = ExtentIdx> + 'a {
        (0..self.header.entries).map_while(move |i| self.idx(i))
    }
    /// The last entry whose first file block is at or before `l`; `None` if all
    /// begin after it. Binary search.
    pub fn search(&self, l: LBlock) -> Option<u16> {
        let (mut lo, mut hi) = (0, self.header.entries);
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            match entry_lblock(self.data, mid) {
                Some(at) if at <= l => lo = mid + 1,
                _ => hi = mid,
            }
        }
        lo.checked_sub(1)
    }
}

fn raw_entry(node: &[u8], i: u16) -> Option<[u8; EXT_ENTRY]> {
    super::bytes::array(node, EXT_ENTRY + EXT_ENTRY * usize::from(i))
}

/// First file block of entry `i`, of either kind.
pub fn entry_lblock(node: &[u8], i: u16) -> Option<LBlock> {
    le32(node, EXT_ENTRY + EXT_ENTRY * usize::from(i)).map(LBlock)
}

/// Sets the first file block of entry `i`, of either kind; `false` if there is no such place.
#[must_use]
pub fn set_entry_lblock(node: &mut [u8], i: u16, l: LBlock) -> bool {
    put(node, EXT_ENTRY + EXT_ENTRY * usize::from(i), &l.0.to_le_bytes())
}

/// Replaces entry `i` (an encoded extent or index); `false` if it is not in use.
#[must_use]
pub fn set_entry(node: &mut [u8], i: u16, entry: [u8; EXT_ENTRY]) -> bool {
    match ExtentHeader::read(node) {
        Some(h) if i < h.entries => put(node, EXT_ENTRY + EXT_ENTRY * usize::from(i), &entry),
        _ => false,
    }
}

/// Inserts an entry before entry `i` (at the end if `i` is the count); `false`,
/// and nothing changed, if the node is full or `i` past the end.
#[must_use]
pub fn insert_entry(node: &mut [u8], i: u16, entry: [u8; EXT_ENTRY]) -> bool {
    let Some(mut h) = ExtentHeader::read(node) else { return false };
    if i > h.entries || h.entries >= h.max {
        return false;
    }
    let from = EXT_ENTRY + EXT_ENTRY * usize::from(i);
    let end = EXT_ENTRY + EXT_ENTRY * usize::from(h.entries);
    if end + EXT_ENTRY > node.len() {
        return false;
    }
    node.copy_within(from..end, from + EXT_ENTRY);
    h.entries += 1;
    put(node, from, &entry) && h.write(node)
}

/// Removes `n` entries from entry `i` on; `false`, and nothing changed, if they are not all there.
#[must_use]
pub fn remove_entries(node: &mut [u8], i: u16, n: u16) -> bool {
    let Some(mut h) = ExtentHeader::read(node) else { return false };
    let Some(last) = i.checked_add(n).filter(|&last| last <= h.entries) else { return false };
    let at = |i: u16| EXT_ENTRY + EXT_ENTRY * usize::from(i);
    let end = at(h.entries);
    if end > node.len() {
        return false;
    }
    node.copy_within(at(last)..end, at(i));
    h.entries -= n;
    if let Some(rest) = node.get_mut(at(h.entries)..end) {
        rest.fill(0);
    }
    h.write(node)
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
    fn edits() {
        let mut node = [0; ROOT_BYTES];
        init_node(&mut node, 0);
        let e = |l: u32| Extent { lblock: LBlock(l), len: 1, block: Block(100), unwritten: false };
        for l in [5, 1, 9, 3] {
            let at = (0..ExtentHeader::read(&node).unwrap().entries)
                .take_while(|&i| entry_lblock(&node, i).unwrap().0 < l)
                .count() as u16;
            assert!(insert_entry(&mut node, at, e(l).encode()));
        }
        assert!(!insert_entry(&mut node, 0, e(0).encode()), "full");
        let list = |node: &[u8]| {
            (0..ExtentHeader::read(node).unwrap().entries)
                .map(|i| entry_lblock(node, i).unwrap().0)
                .collect::<Vec<_>>()
        };
        assert_eq!(list(&node), [1, 3, 5, 9]);
        assert!(!remove_entries(&mut node, 3, 2));
        assert!(remove_entries(&mut node, 1, 2));
        assert_eq!(list(&node), [1, 9]);
        assert!(set_entry(&mut node, 1, e(7).encode()));
        assert!(!set_entry(&mut node, 2, e(7).encode()));
        assert_eq!(list(&node), [1, 7]);
        assert!(node[36..].iter().all(|&b| b == 0));
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
