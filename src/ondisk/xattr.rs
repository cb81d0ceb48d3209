//! The attribute entries of one area (the end of an inode, or an attribute block), as operations on
//! bytes. Pure.
//!
//! Entries grow from the front, values from the back, four zero bytes end the entries. An area is
//! read into a list and written anew from a list, so that it never has gaps.

use crate::{
    error::Corrupt,
    ondisk::bytes::{array, le32, put},
};
use smallvec::SmallVec;

/// `EXT4_XATTR_MAGIC`, which begins the area of an inode and an attribute block.
pub const MAGIC: u32 = 0xEA02_0000;
/// Bytes of an entry before its name.
const HEAD: usize = 16;
/// Bytes of the end mark.
const END: usize = 4;
/// Largest value that the format allows.
const VALUE_MAX: u32 = 1 << 24;

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// In the area.
    Here(&'a [u8]),
    /// In an inode of its own.
    Inode {
        /// That inode; not checked yet.
        ino: u32,
        /// Bytes of the value.
        size: u32,
    },
}

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What stands for the prefix.
    pub index: u8,
    /// The rest of the name.
    pub name: &'a [u8],
    /// The value.
    pub value: Value<'a>,
    /// `e_hash`: 0 in inodes, unless the value has its own.
    pub hash: u32,
}

/// The attributes of an area, in its order.
pub type Entries<'a> = SmallVec<[Entry<'a>; 12]>;

/// Bytes of an entry with a name of `n` bytes.
pub const fn entry_len(n: usize) -> usize {
    (HEAD + n).next_multiple_of(4)
}

/// Bytes a value of `n` bytes takes.
pub const fn value_len(n: usize) -> usize {
    n.next_multiple_of(4)
}

impl Entry<'_> {
    /// Whether this is the attribute of that name.
    pub fn is(&self, index: u8, name: &[u8]) -> bool {
        self.index == index && self.name == name
    }

    /// Bytes of the value.
    pub fn size(&self) -> usize {
        match self.value {
            Value::Here(v) => v.len(),
            Value::Inode { size, .. } => size as usize,
        }
    }

    /// Bytes it takes of the area's back.
    fn tail(&self) -> usize {
        match self.value {
            Value::Here(v) => value_len(v.len()),
            Value::Inode { .. } => 0,
        }
    }

    /// What attribute blocks are sorted by.
    pub fn key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), self.name)
    }

    /// The hash of an entry whose value is in the block.
    pub fn block_hash(name: &[u8], value: &[u8]) -> u32 {
        let (words, rest) = value.as_chunks::<4>();
        let mut last = [0; 4];
        let mut hash = name_hash(name, false);
        for w in words {
            hash = hash.rotate_left(16) ^ u32::from_le_bytes(*w);
        }
        if !rest.is_empty() {
            for (d, s) in last.iter_mut().zip(rest) {
                *d = *s;
            }
            hash = hash.rotate_left(16) ^ u32::from_le_bytes(last);
        }
        hash
    }

    /// The hash of an entry whose value, with checksum `value_hash`, is in an inode of its own.
    pub fn inode_hash(name: &[u8], value_hash: u32) -> u32 {
        name_hash(name, false).rotate_left(16) ^ value_hash
    }

    /// Whether the entry's hash is that of a value, with checksum `value_hash`, in an inode.
    pub fn matches_inode_hash(&self, value_hash: u32) -> bool {
        [false, true]
            .iter()
            .any(|&signed| self.hash == name_hash(self.name, signed).rotate_left(16) ^ value_hash)
    }
}

/// Kernels before 6.2 took the bytes of a name as the platform's `char`.
fn name_hash(name: &[u8], signed: bool) -> u32 {
    let wide = |b: u8| if signed { i32::from(b as i8) as u32 } else { u32::from(b) };
    name.iter().fold(0, |h: u32, &b| h.rotate_left(5) ^ wide(b))
}

/// Reads the entries that begin at byte `first` of `area`; offsets of values count from its start.
pub fn parse(area: &[u8], first: usize) -> Result<Entries<'_>, Corrupt> {
    let bad = |what, at: usize| Corrupt::new(what).value(at as u64);
    let mut end = first;
    // The end mark first: values lie behind it.
    loop {
        let mark = le32(area, end).ok_or_else(|| bad("attribute entries without an end", end))?;
        if mark == 0 {
            break;
        }
        end += entry_len((mark & 0xff) as usize);
    }
    let mut entries = Entries::new();
    let mut at = first;
    while at < end {
        let head: [u8; HEAD] =
            array(area, at).ok_or_else(|| bad("attribute entries without an end", at))?;
        let [name_len, index, o0, o1, i0, i1, i2, i3, s0, s1, s2, s3, h0, h1, h2, h3] = head;
        let name_len = usize::from(name_len);
        let name = area
            .get(at + HEAD..at + HEAD + name_len)
            .ok_or_else(|| bad("attribute name past the end", at))?;
        if name.contains(&0) {
            return Err(bad("attribute name with a NUL", at));
        }
        let offset = usize::from(u16::from_le_bytes([o0, o1]));
        let ino = u32::from_le_bytes([i0, i1, i2, i3]);
        let size = u32::from_le_bytes([s0, s1, s2, s3]);
        if size > VALUE_MAX {
            return Err(bad("size of an attribute's value", size as usize));
        }
        let value = if ino != 0 {
            Value::Inode { ino, size }
        } else if size == 0 {
            Value::Here(&[])
        } else {
            let size = size as usize;
            let fits = offset >= end + END && offset + value_len(size) <= area.len();
            let v = area.get(offset..offset + size).filter(|_| fits);
            Value::Here(v.ok_or_else(|| bad("attribute value outside of its area", offset))?)
        };
        entries.push(Entry { index, name, value, hash: u32::from_le_bytes([h0, h1, h2, h3]) });
        at += entry_len(name_len);
    }
    Ok(entries)
}

/// Bytes left of an area of `len` bytes that holds these entries from byte `first`; `None` if they
/// do not fit.
pub fn free(len: usize, first: usize, entries: &[Entry<'_>]) -> Option<usize> {
    let used: usize = entries.iter().map(|e| entry_len(e.name.len()) + e.tail()).sum();
    len.checked_sub(first + END + used)
}

/// Bytes of an area in front of the values of these entries.
pub fn value_start(len: usize, entries: &[Entry<'_>]) -> usize {
    len.saturating_sub(entries.iter().map(Entry::tail).sum())
}

/// Writes the entries to `area` from byte `first` on, zeroing the rest. `false`, and nothing
/// changed, if they do not fit.
#[must_use]
pub fn write(area: &mut [u8], first: usize, entries: &[Entry<'_>]) -> bool {
    if free(area.len(), first, entries).is_none() {
        return false;
    }
    if let Some(b) = area.get_mut(first..) {
        b.fill(0);
    }
    let mut ok = true;
    let (mut at, mut back) = (first, area.len());
    for e in entries {
        back -= e.tail();
        let (offset, ino) = match e.value {
            Value::Here([]) => (0, 0),
            Value::Here(v) => {
                ok &= put(area, back, v);
                (back as u16, 0)
            }
            Value::Inode { ino, .. } => (0, ino),
        };
        ok &= put(area, at, &[e.name.len() as u8, e.index])
            && put(area, at + 2, &offset.to_le_bytes())
            && put(area, at + 4, &ino.to_le_bytes())
            && put(area, at + 8, &(e.size() as u32).to_le_bytes())
            && put(area, at + 12, &e.hash.to_le_bytes())
            && put(area, at + HEAD, e.name);
        at += entry_len(e.name.len());
    }
    debug_assert!(ok, "free() said that the entries fit");
    ok
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layout() {
        let mut a = [0xaa; 96];
        let e = [
            Entry { index: 1, name: b"k", value: Value::Here(b"hello"), hash: 0 },
            Entry { index: 7, name: b"data", value: Value::Here(b""), hash: 0 },
            Entry { index: 4, name: b"big", value: Value::Inode { ino: 13, size: 9000 }, hash: 5 },
        ];
        assert!(write(&mut a, 0, &e));
        assert_eq!(&a[..17], b"\x01\x01\x58\0\0\0\0\0\x05\0\0\0\0\0\0\0k");
        assert_eq!(&a[88..], b"hello\0\0\0");
        assert_eq!(parse(&a, 0).unwrap().as_slice(), &e);
        assert_eq!(free(96, 0, &e), Some(96 - 4 - 20 - 20 - 20 - 8));
    }

    #[test]
    fn hostile_areas() {
        let mut a = [0; 64];
        let e = [Entry { index: 1, name: b"k", value: Value::Here(b"hello"), hash: 0 }];
        assert!(write(&mut a, 0, &e));
        let check = |at: usize, v: u8| {
            let mut b = a;
            b[at] = v;
            parse(&b, 0).unwrap_err().what
        };
        assert_eq!(check(2, 20), "attribute value outside of its area");
        assert_eq!(check(2, 60), "attribute value outside of its area");
        assert_eq!(check(8, 200), "attribute value outside of its area");
        assert_eq!(check(11, 2), "size of an attribute's value");
        assert_eq!(check(16, 0), "attribute name with a NUL");
        assert_eq!(check(0, 255), "attribute entries without an end");
        assert_eq!(parse(&[1; 16], 0).unwrap_err().what, "attribute entries without an end");
        assert_eq!(parse(&[], 0).unwrap_err().what, "attribute entries without an end");
    }

    proptest! {
        #[test]
        fn written_is_read_back(
            list in proptest::collection::vec(
                (1u8..8, proptest::collection::vec(1u8..255, 1..30), proptest::collection::vec(any::<u8>(), 0..70)),
                0..12),
        ) {
            let entries: Vec<Entry<'_>> = list.iter()
                .map(|(i, n, v)| Entry { index: *i, name: n, value: Value::Here(v), hash: Entry::block_hash(n, v) })
                .collect();
            let mut a = vec![0x77; 800];
            let fits = free(800, 32, &entries).is_some();
            prop_assert_eq!(write(&mut a, 32, &entries), fits);
            if fits {
                let back = parse(&a, 32).unwrap();
                prop_assert_eq!(back.as_slice(), entries.as_slice());
                prop_assert!(a[..32].iter().all(|&b| b == 0x77));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(a in proptest::collection::vec(any::<u8>(), 0..200), first in 0usize..40) {
            if let Ok(e) = parse(&a, first) {
                prop_assert!(e.len() <= 200 / 16);
            }
        }
    }
}
