//! A node of an extent tree as a slice of raw entries, which is how lookups and
//! edits see it: both kinds of entry (extents in a leaf, indexes above) are 12
//! bytes and begin with their key, the first logical block they cover. Pure.

use crate::ondisk::Geometry;
use crate::ondisk::extent::{
    EXT_ENTRY, Extent, ExtentHeader, ExtentIdx, MAX_DEPTH, ROOT_MAX, block_max, init_node,
};
use crate::types::{Block, LBlock};

/// An entry as it is on the disk.
pub(super) type Raw = [u8; EXT_ENTRY];

/// What is wrong with a node, and the offending value.
pub(super) type Bad = (&'static str, u64);

/// One past the last logical block.
pub(super) const LBLK_END: u64 = 1 << 32;
/// Fewest entries that a node outside the inode must have room for, so that it can be split.
const MIN_MAX: u16 = 8;

/// The key of an entry of either kind.
pub(super) fn key(r: &Raw) -> u32 {
    u32::from_le_bytes([r[0], r[1], r[2], r[3]])
}

/// An index entry: the node at `block` covers the file from `lblk`.
pub(super) fn index(lblk: u32, block: Block) -> Raw {
    ExtentIdx { lblock: LBlock(lblk), child: block }.encode()
}

/// The part of an extent within `from..end`, if there is any.
pub(super) fn cut(e: &Extent, from: u64, end: u64) -> Option<Extent> {
    let first = u64::from(e.lblock.0);
    let start = from.max(first);
    let stop = end.min(e.end());
    (start < stop).then(|| Extent {
        lblock: LBlock(start as u32),
        len: (stop - start) as u32,
        block: e.block.plus(start - first),
        unwritten: e.unwritten,
    })
}

/// A node whose header was found good.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    entries: &'a [Raw],
    max: usize,
    depth: u16,
}

impl<'a> Node<'a> {
    /// The node in the 60 bytes of an inode.
    pub fn root(bytes: &'a [u8; 60]) -> Result<Node<'a>, Bad> {
        let n = Node::header(bytes, ROOT_MAX)?;
        if n.depth > MAX_DEPTH {
            return Err(("extent tree depth", u64::from(n.depth)));
        }
        if n.depth > 0 && n.entries.is_empty() {
            return Err(("extent index without entries", 0));
        }
        Ok(n)
    }

    /// A node in a block, which its parent says is `depth` levels above the leaves and starts at
    /// `lblk`.
    pub fn block(bytes: &'a [u8], depth: u16, lblk: u32) -> Result<Node<'a>, Bad> {
        let n = Node::header(bytes, block_max(bytes.len()))?;
        if n.depth != depth {
            return Err(("extent node depth", u64::from(n.depth)));
        }
        if n.max < usize::from(MIN_MAX) {
            return Err(("extent node eh_max", n.max as u64));
        }
        match n.entries.first().map(key) {
            None => Err(("extent node without entries", 0)),
            Some(k) if k != lblk => Err(("extent node starts elsewhere than its index", k.into())),
            Some(_) => Ok(n),
        }
    }

    fn header(bytes: &'a [u8], room: u16) -> Result<Node<'a>, Bad> {
        let Some(h) = ExtentHeader::read(bytes) else {
            return Err(("extent node magic", 0));
        };
        if h.max > room || h.max == 0 {
            return Err(("extent node eh_max", u64::from(h.max)));
        }
        let (chunks, _) = bytes.as_chunks::<EXT_ENTRY>();
        match chunks.get(1..=usize::from(h.entries)) {
            Some(entries) if h.entries <= h.max => {
                Ok(Node { entries, max: usize::from(h.max), depth: h.depth })
            }
            _ => Err(("extent node eh_entries", u64::from(h.entries))),
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
    pub fn max(&self) -> usize {
        self.max
    }
    pub fn depth(&self) -> u16 {
        self.depth
    }
    pub fn raws(&self) -> &'a [Raw] {
        self.entries
    }
    pub fn key(&self, i: usize) -> Option<u32> {
        self.entries.get(i).map(key)
    }
    /// Entry `i` of a leaf.
    pub fn extent(&self, i: usize) -> Option<Extent> {
        self.entries.get(i).map(|r| Extent::decode(*r))
    }
    /// Where entry `i` of an index node points to.
    pub fn child(&self, i: usize) -> Option<Block> {
        self.entries.get(i).map(|r| ExtentIdx::decode(*r).child)
    }

    /// Entries whose key is at most `lblk`, by binary search.
    pub fn position(&self, lblk: u32) -> usize {
        self.entries.partition_point(|e| key(e) <= lblk)
    }

    /// Checks every entry: sorted, without overlap, below `hi`, blocks in the file system.
    pub fn check(&self, geo: &Geometry, hi: u64) -> Result<(), Bad> {
        let mut from = 0;
        for r in self.entries {
            let start = u64::from(key(r));
            if start < from {
                return Err(("extent entries out of order or overlapping", start));
            }
            if self.depth == 0 {
                let e = Extent::decode(*r);
                check_extent(geo, &e)?;
                from = e.end();
            } else {
                check_child(geo, ExtentIdx::decode(*r).child)?;
                from = start + 1;
            }
        }
        if from > hi { Err(("extent entry beyond its node", from)) } else { Ok(()) }
    }
}

/// Whether the extent has a length and its blocks are in the file system.
pub(super) fn check_extent(geo: &Geometry, e: &Extent) -> Result<(), Bad> {
    if e.len == 0 {
        return Err(("extent of length 0", u64::from(e.lblock.0)));
    }
    if e.end() > LBLK_END {
        return Err(("extent beyond the largest file", u64::from(e.lblock.0)));
    }
    if !geo.is_valid_block(e.block, u64::from(e.len)) {
        return Err(("extent outside the file system", e.block.0));
    }
    Ok(())
}

/// Whether a child's block is in the file system.
pub(super) fn check_child(geo: &Geometry, b: Block) -> Result<(), Bad> {
    if geo.is_valid_block(b, 1) {
        Ok(())
    } else {
        Err(("extent node outside the file system", b.0))
    }
}

/// Makes `bytes` a node with these entries, which fit.
pub(super) fn init(bytes: &mut [u8], depth: u16, entries: &[Raw]) {
    init_node(bytes, depth);
    splice(bytes, 0, 0, entries);
}

/// Replaces the `del` entries from `at` by `ins`. The caller saw to it that they exist and that
/// the result fits.
pub(super) fn splice(bytes: &mut [u8], at: usize, del: usize, ins: &[Raw]) {
    let Some(mut h) = ExtentHeader::read(bytes) else { return };
    let old = usize::from(h.entries);
    let new = (old + ins.len()).saturating_sub(del);
    let (chunks, _) = bytes.as_chunks_mut::<EXT_ENTRY>();
    let Some(rest) = chunks.get_mut(1..) else { return };
    if at + del > old || old > rest.len() || new > rest.len() {
        debug_assert!(false, "splice {at} {del} {} of {old}", ins.len());
        return;
    }
    rest.copy_within(at + del..old, at + ins.len());
    for (dst, src) in rest.iter_mut().skip(at).zip(ins) {
        *dst = *src;
    }
    if new < old {
        rest[new..old].fill([0; EXT_ENTRY]);
    }
    h.entries = new as u16;
    let done = h.write(bytes);
    debug_assert!(done);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(k: u32) -> Raw {
        Extent { lblock: LBlock(k), len: 1, block: Block(9), unwritten: false }.encode()
    }

    #[test]
    fn splicing() {
        let mut b = [0; 60];
        init(&mut b, 0, &[raw(1), raw(5), raw(9)]);
        splice(&mut b, 1, 1, &[raw(4), raw(6)]);
        let n = Node::root(&b).unwrap();
        assert_eq!((0..4).map(|i| n.key(i).unwrap()).collect::<Vec<_>>(), [1, 4, 6, 9]);
        splice(&mut b, 0, 3, &[]);
        let n = Node::root(&b).unwrap();
        assert_eq!((n.len(), n.key(0), n.max()), (1, Some(9), 4));
        assert!(b[24..].iter().all(|&x| x == 0));
    }

    #[test]
    fn cutting() {
        let e = Extent { lblock: LBlock(10), len: 10, block: Block(100), unwritten: true };
        let c = cut(&e, 12, 15).unwrap();
        assert_eq!((c.lblock, c.len, c.block, c.unwritten), (LBlock(12), 3, Block(102), true));
        assert_eq!(cut(&e, 0, LBLK_END), Some(e));
        assert_eq!(cut(&e, 20, 30), None);
    }

    #[test]
    fn bad_headers_are_refused() {
        let mut b = [0; 60];
        assert_eq!(Node::root(&b).err(), Some(("extent node magic", 0)));
        init(&mut b, 0, &[]);
        for (at, val, what) in [
            (2, 5, "extent node eh_entries"),
            (4, 5, "extent node eh_max"),
            (4, 0, "extent node eh_max"),
            (6, 6, "extent tree depth"),
            (6, 1, "extent index without entries"),
        ] {
            let mut c = b;
            c[at] = val;
            assert_eq!(Node::root(&c).err().map(|e| e.0), Some(what));
        }
    }
}
