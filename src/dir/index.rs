//! The blocks of a directory's hash tree, as operations on bytes. Pure.
//!
//! The root is the directory's first block, behind the records of `.` and `..`; a node hides
//! behind one unused record as long as the block. Both hold a sorted table of (hash, block): entry
//! 0 has no hash of its own (its place holds the table's limit and count) and covers everything
//! below entry 1. The low bit of a hash says that names of the same hash begin in the block before.

use super::leaf::{Format, rec_len};
use crate::{
    error::Corrupt,
    ondisk::bytes::{array, le16, le32, put},
};

/// Byte offset of the table in the root: behind `.`, `..` and the 8 bytes of information.
const ROOT_TABLE: usize = 32;
/// Byte offset of the table in a node.
const NODE_TABLE: usize = 8;
/// Byte offset of `dx_root_info`.
const INFO: usize = 24;
const INFO_LEN: u8 = 8;
/// Bytes of an entry of the table, and of the checksum tail behind it.
const ENTRY: usize = 8;

/// Most levels of index blocks there can be, root included: 2, or 3 with `large_dir`.
pub const MAX_LEVELS: usize = 3;

/// What the root says about the whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootInfo {
    /// `hash_version`: 0 legacy, 1 half_md4, 2 tea, as stored.
    pub hash_version: u8,
    /// Levels of index blocks, root included: 1 to [`MAX_LEVELS`].
    pub levels: usize,
}

/// Where the table of an index block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    at: usize,
    limit: usize,
    /// Entries in use, entry 0 counted; at least 1, at most the limit.
    pub count: usize,
}

/// Entries that fit an index block.
fn limit(fmt: &Format, at: usize) -> usize {
    (fmt.block - at - if fmt.csum { ENTRY } else { 0 }) / ENTRY
}

/// Checks the root block of a tree that may have `max_levels` levels.
pub fn root(fmt: &Format, b: &[u8], max_levels: usize) -> Result<(RootInfo, Table), Corrupt> {
    let bad = |what, value: u8| Corrupt::new(what).value(value.into());
    let [_, _, _, _, hash_version, len, indirect, flags] =
        array::<8>(b, INFO).ok_or_else(|| bad("directory block too small for an index", 0))?;
    if hash_version > 2 {
        return Err(bad("unknown hash of a directory index", hash_version));
    }
    if flags & 1 != 0 {
        return Err(bad("unknown flags of a directory index", flags));
    }
    let levels = usize::from(indirect) + 1;
    if levels > max_levels {
        return Err(bad("directory index too deep", indirect));
    }
    if len != INFO_LEN {
        return Err(bad("length of the directory index header", len));
    }
    Ok((RootInfo { hash_version, levels }, table(fmt, b, ROOT_TABLE)?))
}

/// Checks a node.
pub fn node(fmt: &Format, b: &[u8]) -> Result<Table, Corrupt> {
    table(fmt, b, NODE_TABLE)
}

fn table(fmt: &Format, b: &[u8], at: usize) -> Result<Table, Corrupt> {
    let (Some(l), Some(count)) = (le16(b, at), le16(b, at + 2)) else {
        return Err(Corrupt::new("directory block too small for an index"));
    };
    let (l, count) = (usize::from(l), usize::from(count));
    if l != limit(fmt, at) {
        return Err(Corrupt::new("limit of a directory index block").value(l as u64));
    }
    if count == 0 || count > l {
        return Err(Corrupt::new("count of a directory index block").value(count as u64));
    }
    Ok(Table { at, limit: l, count })
}

impl Table {
    /// Whether another entry does not fit.
    pub fn is_full(&self) -> bool {
        self.count >= self.limit
    }

    /// The lowest hash of entry `i`; 0 for entry 0.
    pub fn hash(&self, b: &[u8], i: usize) -> u32 {
        if i == 0 { 0 } else { le32(b, self.at + i * ENTRY).unwrap_or(u32::MAX) }
    }

    /// The directory block that entry `i` leads to.
    pub fn block(&self, b: &[u8], i: usize) -> u32 {
        le32(b, self.at + i * ENTRY + 4).unwrap_or(u32::MAX) & 0x0fff_ffff
    }

    /// The last entry whose hash is not above `hash`.
    pub fn search(&self, b: &[u8], hash: u32) -> usize {
        let (mut lo, mut hi) = (1, self.count);
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            if self.hash(b, mid) > hash { hi = mid } else { lo = mid + 1 }
        }
        lo - 1
    }

    /// Puts an entry behind entry `i`. `false`, and nothing changed, if the table is full.
    #[must_use]
    pub fn insert_after(&mut self, b: &mut [u8], i: usize, hash: u32, block: u32) -> bool {
        if self.is_full() || i >= self.count {
            return false;
        }
        let from = self.at + (i + 1) * ENTRY;
        let end = self.at + self.count * ENTRY;
        if end + ENTRY > b.len() {
            return false;
        }
        b.copy_within(from..end, from + ENTRY);
        self.count += 1;
        put(b, from, &hash.to_le_bytes()) && put(b, from + 4, &block.to_le_bytes()) && self.store(b)
    }

    /// Makes `new` a node that holds the entries from `i` on.
    pub fn copy_out(&self, b: &[u8], i: usize, fmt: &Format, new: &mut [u8]) {
        new.fill(0);
        fmt.set_len(new, 0, fmt.block);
        let from = b.get(self.at + i * ENTRY..self.at + self.count * ENTRY).unwrap_or_default();
        let t = Table { at: NODE_TABLE, limit: limit(fmt, NODE_TABLE), count: self.count - i };
        let ok = put(new, NODE_TABLE, from) && t.store(new);
        debug_assert!(ok, "a node holds at least as much as any table");
    }

    /// Keeps the first `count` entries.
    pub fn truncate(&mut self, b: &mut [u8], count: usize) {
        self.count = count.clamp(1, self.count);
        let ok = self.store(b);
        debug_assert!(ok, "the table was checked");
    }

    /// Makes the tree one level higher: the root keeps one entry, which leads to block `lblk`, a
    /// node that got all entries by [`Table::copy_out`].
    pub fn grow_root(&mut self, b: &mut [u8], lblk: u32) {
        self.count = 1;
        let levels = b.get(INFO + 6).copied().unwrap_or(0).saturating_add(1);
        let ok = put(b, INFO + 6, &[levels])
            && put(b, self.at + 4, &lblk.to_le_bytes())
            && self.store(b);
        debug_assert!(ok, "the table was checked");
    }

    #[must_use]
    fn store(&self, b: &mut [u8]) -> bool {
        put(b, self.at, &(self.limit as u16).to_le_bytes())
            && put(b, self.at + 2, &(self.count as u16).to_le_bytes())
    }
}

/// Turns the first block of a linear directory, whose entries but `.` and `..` went to block
/// `leaf`, into the root of a tree with that one leaf.
pub fn init_root(fmt: &Format, b: &mut [u8], hash_version: u8, leaf: u32) {
    let dotdot = rec_len(1);
    fmt.set_len(b, dotdot, fmt.block - dotdot);
    if let Some(rest) = b.get_mut(INFO..) {
        rest.fill(0);
    }
    let t = Table { at: ROOT_TABLE, limit: limit(fmt, ROOT_TABLE), count: 1 };
    let ok = put(b, INFO + 4, &[hash_version, INFO_LEN, 0, 0])
        && put(b, ROOT_TABLE + 4, &leaf.to_le_bytes())
        && t.store(b);
    debug_assert!(ok, "a block has room for a root");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Ino;
    use proptest::prelude::*;

    fn fmt(csum: bool) -> Format {
        Format { filetype: true, csum, block: 1024, inodes_count: 100, first_ino: 11 }
    }

    fn new_root(f: &Format) -> Vec<u8> {
        let mut b = vec![0; 1024];
        f.init_leaf(&mut b);
        f.write(&mut b, 0, 12, b".", Ino(12), 2);
        f.write(&mut b, 12, 1000, b"..", Ino(2), 2);
        init_root(f, &mut b, 1, 1);
        b
    }

    #[test]
    fn published_layout() {
        let f = fmt(true);
        let b = new_root(&f);
        assert_eq!(&b[12..24], b"\x02\0\0\0\xf4\x03\x02\x02..\0\0");
        assert_eq!(&b[24..40], &[0, 0, 0, 0, 1, 8, 0, 0, 123, 0, 1, 0, 1, 0, 0, 0]);
        let (info, t) = root(&f, &b, 2).unwrap();
        assert_eq!(info, RootInfo { hash_version: 1, levels: 1 });
        assert_eq!((t.count, t.block(&b, 0), t.search(&b, 77)), (1, 1, 0));
        assert_eq!(limit(&f, NODE_TABLE), 126);
        assert_eq!(limit(&fmt(false), NODE_TABLE), 127);
    }

    #[test]
    fn hostile_headers() {
        let f = fmt(true);
        let good = new_root(&f);
        let check = |at: usize, v: u8| {
            let mut b = good.clone();
            b[at] = v;
            root(&f, &b, 2).unwrap_err()
        };
        assert_eq!(check(28, 7).what, "unknown hash of a directory index");
        assert_eq!(check(29, 12).what, "length of the directory index header");
        assert_eq!(check(30, 2).what, "directory index too deep");
        assert_eq!(check(31, 1).what, "unknown flags of a directory index");
        assert_eq!(check(32, 1).what, "limit of a directory index block");
        assert_eq!(check(34, 0).what, "count of a directory index block");
        assert_eq!(check(34, 200).what, "count of a directory index block");
    }

    proptest! {
        #[test]
        fn sorted_inserts_splits_and_growth(
            mut hashes in proptest::collection::btree_set(1u32..u32::MAX, 1..122),
            probe: u32,
            csum: bool,
        ) {
            let f = fmt(csum);
            let mut b = new_root(&f);
            let (_, mut t) = root(&f, &b, 2).unwrap();
            for (n, &h) in hashes.iter().rev().enumerate() {
                let at = t.search(&b, h);
                prop_assert_eq!(at, 0);
                prop_assert!(t.insert_after(&mut b, at, h, n as u32 + 2));
            }
            hashes.insert(0);
            let sorted: Vec<u32> = hashes.into_iter().collect();
            let want = sorted.partition_point(|&h| h <= probe) - 1;
            prop_assert_eq!(t.search(&b, probe), want);
            prop_assert_eq!(root(&f, &b, 2).unwrap().1, t);

            let mut n1 = vec![0xaa; 1024];
            t.copy_out(&b, 0, &f, &mut n1);
            t.grow_root(&mut b, 99);
            let (info, r) = root(&f, &b, 2).unwrap();
            prop_assert_eq!((info.levels, r.count, r.block(&b, 0)), (2, 1, 99));
            prop_assert!(root(&f, &b, 1).is_err());
            let mut t1 = node(&f, &n1).unwrap();
            prop_assert_eq!(t1.count, sorted.len());
            prop_assert_eq!(t1.search(&n1, probe), want);
            prop_assert!(super::super::leaf::is_index_node(&n1));

            let mut n2 = vec![0xaa; 1024];
            if t1.count >= 2 {
                let stay = t1.count / 2;
                let h = t1.hash(&n1, stay);
                prop_assert_eq!(h, sorted[stay]);
                t1.copy_out(&n1, stay, &f, &mut n2);
                t1.truncate(&mut n1, stay);
                let t2 = node(&f, &n2).unwrap();
                prop_assert_eq!(t1.count + t2.count, sorted.len());
                let (half, at) = if probe >= h { (&t2, want - stay) } else { (&t1, want) };
                let bytes = if probe >= h { &n2 } else { &n1 };
                prop_assert_eq!(half.search(bytes, probe), at);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(b in proptest::collection::vec(any::<u8>(), 1024..=1024), h: u32) {
            let f = fmt(true);
            if let Ok((_, t)) = root(&f, &b, 3) {
                t.search(&b, h);
            }
            if let Ok(t) = node(&f, &b) {
                t.search(&b, h);
            }
        }
    }
}
