//! Inline data: small files and directories inside the inode.
//!
//! The first 60 bytes are in `i_block`, what is beyond in the value of the
//! in-inode attribute `system.data`, which is there even if it is empty. A
//! directory begins with four bytes of its parent's number; the rest of
//! `i_block` and the attribute are separate arrays of entries, without `.`,
//! `..` and checksum tails ([`DirentFormat::bare`]).

use super::dirent::DirentFormat;
use super::geometry::Geometry;
use crate::types::Ino;

/// Bytes of inline data in `i_block`.
pub const INLINE_MIN: usize = 60;
/// Bytes of a directory's parent number at the start of `i_block`.
pub const INLINE_DOTDOT: usize = 4;
/// Name index and name of the attribute that holds the rest.
pub const INLINE_XATTR: (u8, &[u8]) = (7, b"data");

/// The parent of an inline directory.
pub fn parent(i_block: &[u8; 60]) -> Ino {
    Ino(super::bytes::le32(i_block, 0).unwrap_or(0))
}

/// Makes `i_block` an empty inline directory.
pub fn init_dir(geo: &Geometry, i_block: &mut [u8; 60], parent: Ino) {
    let (head, entries) = i_block.split_at_mut(INLINE_DOTDOT);
    DirentFormat::bare(geo).init_empty(entries);
    head.copy_from_slice(&parent.0.to_le_bytes());
}
