//! Inline data: small files and directories inside the inode.
//!
//! The first 60 bytes are in `i_block`, what is beyond in the value of the
//! in-inode attribute `system.data`, which is there even if it is empty. A
//! directory begins with four bytes of its parent's number; the rest of
//! `i_block` and the attribute are separate arrays of entries, without `.`,
//! `..` and checksum tails.

use super::bytes::{le32, put};
use super::xattr::{self, Entry, MAGIC, Value, entry_len};
use crate::error::Corrupt;
use smallvec::SmallVec;

// The functions on an attribute area take the bytes from the end of an inode's extra fields to the end
// of its slot, the magic included.

/// Bytes of inline data in `i_block`.
pub const INLINE_MIN: usize = 60;
/// Name index and name of the attribute that holds the rest.
pub const INLINE_XATTR: (u8, &[u8]) = (7, b"data");

/// Bytes of the magic.
const MAGIC_LEN: usize = 4;

fn entries(ibody: &[u8]) -> Result<xattr::Entries<'_>, Corrupt> {
    if le32(ibody, 0) != Some(MAGIC) {
        return Ok(xattr::Entries::new());
    }
    xattr::parse(ibody.get(MAGIC_LEN..).unwrap_or_default(), 0)
}

/// The data past `i_block`; `None` if the attribute is missing.
pub fn tail(ibody: &[u8]) -> Result<Option<&[u8]>, Corrupt> {
    match entries(ibody)?.iter().find(|e| e.is(INLINE_XATTR.0, INLINE_XATTR.1)) {
        None => Ok(None),
        Some(Entry { value: Value::Here(v), .. }) => Ok(Some(v)),
        Some(_) => Err(Corrupt::new("inline data outside of the inode")),
    }
}

/// The most bytes that [`set_tail`] can store beside the other attributes, a multiple of 4; `None` if
/// there is no room even for the attribute without bytes.
pub fn capacity(ibody: &[u8]) -> Result<Option<usize>, Corrupt> {
    let mut list = entries(ibody)?;
    list.retain(|e| !e.is(INLINE_XATTR.0, INLINE_XATTR.1));
    let free = ibody.len().checked_sub(MAGIC_LEN).and_then(|len| xattr::free(len, 0, &list));
    Ok(free.and_then(|n| n.checked_sub(entry_len(INLINE_XATTR.1.len()))).map(|n| n & !3))
}

/// Stores the data past `i_block`, or removes the attribute. `false`, and nothing changed, if it
/// does not fit.
pub fn set_tail(ibody: &mut [u8], data: Option<&[u8]>) -> Result<bool, Corrupt> {
    let old: SmallVec<[u8; 256]> = SmallVec::from_slice(ibody);
    let mut list = entries(&old)?;
    let at = list.iter().position(|e| e.is(INLINE_XATTR.0, INLINE_XATTR.1));
    let new = data.map(|v| Entry {
        index: INLINE_XATTR.0,
        name: INLINE_XATTR.1,
        value: Value::Here(v),
        hash: 0,
    });
    match (at, new) {
        (Some(i), Some(e)) => {
            if let Some(slot) = list.get_mut(i) {
                *slot = e;
            }
        }
        (Some(i), None) => {
            list.remove(i);
        }
        (None, Some(e)) => list.push(e),
        (None, None) => return Ok(true),
    }
    Ok(store(ibody, &list))
}

/// Writes the attributes of one area into another, of another length. `false` if they do not fit.
pub fn copy_area(from: &[u8], to: &mut [u8]) -> Result<bool, Corrupt> {
    Ok(store(to, &entries(from)?))
}

/// Writes a whole attribute area: with its magic, or all zero if there are no attributes. `false`,
/// and nothing changed, if they do not fit.
#[must_use]
pub fn store(ibody: &mut [u8], list: &[Entry<'_>]) -> bool {
    if list.is_empty() {
        ibody.fill(0);
        return true;
    }
    let Some(area) = ibody.get_mut(MAGIC_LEN..) else { return false };
    xattr::write(area, 0, list) && put(ibody, 0, &MAGIC.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_beside_another_attribute() {
        let mut body = [0; 96];
        assert_eq!(tail(&body), Ok(None));
        assert_eq!(capacity(&body), Ok(Some(96 - 4 - 4 - 20)));
        assert_eq!(set_tail(&mut body, Some(&[])), Ok(true));
        assert_eq!(tail(&body), Ok(Some(&[][..])));
        let other = Entry { index: 1, name: b"a", value: Value::Here(b"xy"), hash: 0 };
        let data = Entry { index: 7, name: b"data", value: Value::Here(b""), hash: 0 };
        assert!(store(&mut body, &[other, data]));
        assert_eq!(capacity(&body), Ok(Some(96 - 4 - 4 - 20 - 24)));
        assert_eq!(set_tail(&mut body, Some(&[7; 44])), Ok(true));
        assert_eq!(set_tail(&mut body, Some(&[7; 45])), Ok(false));
        assert_eq!(tail(&body), Ok(Some(&[7; 44][..])));
        assert_eq!(set_tail(&mut body, None), Ok(true));
        assert_eq!(tail(&body), Ok(None));
        assert_eq!(capacity(&[]), Ok(None));
    }
}
