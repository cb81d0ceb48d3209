//! The index blocks of a hashed directory: root and nodes.
//!
//! Both look like directory blocks without usable entries, so that a driver
//! that does not know them reads past. Entry 0 has no hash of its own: limit
//! and count lie in its place, and it takes all hashes below entry 1's.

use super::bytes::{le16, le32, put};
use super::dirent::{DirentFormat, encode_rec_len};
use super::features::Incompat;
use super::geometry::Geometry;
use super::seal::htree_count;
use crate::error::{Corrupt, Error, Result};
use crate::types::{Ino, LBlock};

const ENTRY: usize = 8;
const ROOT_AT: usize = 32;
const NODE_AT: usize = 8;
/// Byte offset of `dx_root_info`.
const INFO: usize = 24;
/// Logical blocks in entries have 28 bits.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// An entry: names whose hash is `hash` or more (up to the next entry's) are in `block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DxEntry {
    /// Lowest hash. The low bit says that a name of the same hash may be in the block before.
    pub hash: u32,
    /// Logical block of the directory: a leaf, or a node one level down.
    pub block: LBlock,
}

/// `dx_root_info`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DxInfo {
    /// Version of the name hash, see [`super::hash::NameHash::new`].
    pub hash_version: u8,
    /// Levels of nodes between the root and the leaves.
    pub indirect_levels: u8,
}

/// Most levels of nodes between root and leaves: 1, with `large_dir` 2.
pub fn max_indirect_levels(geo: &Geometry) -> u8 {
    if geo.has_incompat(Incompat::LARGEDIR) { 2 } else { 1 }
}

/// Entries that fit the root block.
pub fn root_limit(geo: &Geometry) -> u16 {
    limit(geo, ROOT_AT)
}

/// Entries that fit a node block.
pub fn node_limit(geo: &Geometry) -> u16 {
    limit(geo, NODE_AT)
}

fn limit(geo: &Geometry, at: usize) -> u16 {
    let tail = if geo.metadata_csum { ENTRY } else { 0 };
    ((geo.block_size.bytes() - at - tail) / ENTRY) as u16
}

/// The entries of a checked root or node.
#[derive(Clone, Copy, Debug)]
pub struct DxBlock<'a> {
    data: &'a [u8],
    at: usize,
    limit: u16,
    count: u16,
}

fn bad(what: &'static str, value: impl Into<u64>) -> Error {
    Corrupt::new(what).value(value.into()).into()
}

impl<'a> DxBlock<'a> {
    /// Checks block 0 of a hashed directory.
    ///
    /// # Errors
    /// `Corrupt`; the caller adds inode and block.
    pub fn parse_root(geo: &Geometry, data: &'a [u8]) -> Result<(DxInfo, DxBlock<'a>)> {
        let mut dots = DirentFormat::bare(geo).iter(data);
        for name in [&b"."[..], b".."] {
            let e = dots.next().ok_or_else(|| bad("htree root size", data.len() as u64))??;
            if e.name != name || e.ino.is_none() {
                return Err(bad("htree root does not begin with . and .., at", e.offset as u64));
            }
        }
        let byte = |i: usize| data.get(INFO + i).copied().unwrap_or(0);
        let (hash_version, info_length, levels, flags) = (byte(4), byte(5), byte(6), byte(7));
        if le32(data, INFO) != Some(0) || info_length != 8 {
            return Err(bad("htree root info length", info_length));
        }
        if flags & 1 != 0 {
            return Err(bad("htree root flags", flags));
        }
        if levels > max_indirect_levels(geo) {
            return Err(bad("htree depth", levels));
        }
        let block = DxBlock::parse(data, ROOT_AT, root_limit(geo))?;
        Ok((DxInfo { hash_version, indirect_levels: levels }, block))
    }

    /// Checks a node.
    ///
    /// # Errors
    /// `Corrupt`; the caller adds inode and block.
    pub fn parse_node(geo: &Geometry, data: &'a [u8]) -> Result<DxBlock<'a>> {
        DxBlock::parse(data, NODE_AT, node_limit(geo))
    }

    fn parse(data: &'a [u8], at: usize, expected: u16) -> Result<DxBlock<'a>> {
        let (limit, count, found) = htree_count(data).ok_or_else(|| bad("no htree block", 0u32))?;
        if found != at {
            return Err(bad("htree root where a node belongs, or the reverse", found as u64));
        }
        if limit != expected {
            return Err(bad("htree limit", limit));
        }
        if count == 0 || count > limit {
            return Err(bad("htree count", count));
        }
        Ok(DxBlock { data, at, limit, count })
    }

    /// Entries in use, at least 1.
    pub fn count(&self) -> u16 {
        self.count
    }
    /// Entries that fit.
    pub fn limit(&self) -> u16 {
        self.limit
    }
    /// Whether no entry can be added.
    pub fn is_full(&self) -> bool {
        self.count >= self.limit
    }
    /// Entry `i`; entry 0 has hash 0.
    pub fn entry(&self, i: u16) -> Option<DxEntry> {
        if i >= self.count {
            return None;
        }
        let at = self.at + ENTRY * usize::from(i);
        let hash = if i == 0 { 0 } else { le32(self.data, at)? };
        Some(DxEntry { hash, block: LBlock(le32(self.data, at + 4)? & BLOCK_MASK) })
    }
    /// All entries in order.
    pub fn entries(self) -> impl Iterator<Item = DxEntry> + 'a {
        (0..self.count).map_while(move |i| self.entry(i))
    }
    /// The entry that a hash belongs under: the last one whose hash is not above it.
    pub fn search(&self, hash: u32) -> u16 {
        let (mut lo, mut hi) = (1, self.count);
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            match self.entry(mid) {
                Some(e) if e.hash <= hash => lo = mid + 1,
                _ => hi = mid,
            }
        }
        lo - 1
    }
}

/// Turns block 0 of a directory into an htree root with one entry, keeping the
/// inode numbers of `.` and `..` given here. Unsealed.
pub fn init_root(
    geo: &Geometry,
    data: &mut [u8],
    dir: Ino,
    parent: Ino,
    hash_version: u8,
    first: LBlock,
) {
    DirentFormat::bare(geo).init_dots(data, dir, parent);
    let mut done = put(data, INFO, &[0, 0, 0, 0, hash_version, 8, 0, 0]);
    done &= set_counts(data, ROOT_AT, root_limit(geo), 1);
    done &= put(data, ROOT_AT + 4, &first.0.to_le_bytes());
    debug_assert!(done, "a block holds an htree root");
}

/// Makes an empty node (count 0: give it entries before it is read). Unsealed.
pub fn init_node(geo: &Geometry, data: &mut [u8]) {
    data.fill(0);
    let whole = encode_rec_len(data.len(), data.len());
    let mut done = put(data, 4, &whole.to_le_bytes());
    done &= set_counts(data, NODE_AT, node_limit(geo), 0);
    debug_assert!(done, "a block holds an htree node");
}

/// Sets `indirect_levels` in a root; `false` if it is none.
#[must_use]
pub fn set_levels(root: &mut [u8], levels: u8) -> bool {
    matches!(htree_count(root), Some((_, _, ROOT_AT))) && put(root, INFO + 6, &[levels])
}

/// Sets the inode of `..` in a root or in the first block of a linear directory.
#[must_use]
pub fn set_dotdot(block0: &mut [u8], parent: Ino) -> bool {
    put(block0, 12, &parent.0.to_le_bytes())
}

/// Inserts an entry before entry `i`, which is at least 1 (entry 0 stays the
/// lowest). `false`, and nothing changed, if full or out of range.
#[must_use]
pub fn insert(data: &mut [u8], i: u16, entry: DxEntry) -> bool {
    let Some((limit, count, at)) = htree_count(data) else { return false };
    if i == 0 || i > count || count >= limit {
        return false;
    }
    let from = at + ENTRY * usize::from(i);
    let end = at + ENTRY * usize::from(count);
    if end + ENTRY > data.len() {
        return false;
    }
    data.copy_within(from..end, from + ENTRY);
    put(data, from, &entry.hash.to_le_bytes())
        && put(data, from + 4, &entry.block.0.to_le_bytes())
        && set_counts(data, at, limit, count + 1)
}

/// Sets the block of entry `i`; `false` if it is not in use.
#[must_use]
pub fn set_block(data: &mut [u8], i: u16, block: LBlock) -> bool {
    match htree_count(data) {
        Some((_, count, at)) if i < count => {
            put(data, at + ENTRY * usize::from(i) + 4, &block.0.to_le_bytes())
        }
        _ => false,
    }
}

/// Moves the entries from `from` on (all of them if 0) from one index block to
/// an empty node, and returns the hash they begin with (0 if all). `from` keeps
/// at least nothing: with 0 the source's count becomes 1, pointing where it
/// pointed, for the caller to redirect. `None`, and nothing changed, if they do not fit.
pub fn move_tail(src: &mut [u8], dst: &mut [u8], from: u16) -> Option<u32> {
    let (limit, count, at) = htree_count(src)?;
    let (dst_limit, dst_count, dst_at) = htree_count(dst)?;
    let n = count.checked_sub(from).filter(|&n| n > 0 && n <= dst_limit && dst_count == 0)?;
    let start = at + ENTRY * usize::from(from);
    let bytes = src.get(start..start + ENTRY * usize::from(n))?;
    let hash = if from == 0 { 0 } else { le32(bytes, 0)? };
    let (_, rest) = bytes.split_at_checked(4)?;
    dst.get(dst_at..dst_at + ENTRY * usize::from(n))?;
    let done = put(dst, dst_at + 4, rest)
        && set_counts(dst, dst_at, dst_limit, n)
        && set_counts(src, at, limit, from.max(1));
    done.then_some(hash)
}

fn set_counts(data: &mut [u8], at: usize, limit: u16, count: u16) -> bool {
    put(data, at, &limit.to_le_bytes()) && put(data, at + 2, &count.to_le_bytes())
}

/// The limit stored in an index block, for reports.
pub fn stored_limit(data: &[u8]) -> Option<u16> {
    htree_count(data).and_then(|(_, _, at)| le16(data, at))
}
