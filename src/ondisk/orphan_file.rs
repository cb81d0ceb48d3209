//! Blocks of the orphan file: arrays of inode numbers, 0 where free.

use super::bytes::{le32, put};
use crate::error::{Corrupt, Result};
use crate::types::BlockSize;

/// `EXT4_ORPHAN_BLOCK_MAGIC`
pub const ORPHAN_MAGIC: u32 = 0x0b10_ca04;
/// Most blocks that an orphan file has (as mke2fs limits it).
pub const MAX_BLOCKS: u64 = 512;
/// Bytes of magic and checksum at the end of a block.
const TAIL: usize = 8;

/// Inode numbers that fit a block.
pub fn slots(bs: BlockSize) -> usize {
    (bs.bytes() - TAIL) / 4
}

/// Checks the magic of a block. The checksum is [`super::seal`]'s affair.
///
/// # Errors
/// `Corrupt`; the caller adds the block.
pub fn check(data: &[u8]) -> Result<()> {
    match data.len().checked_sub(TAIL).and_then(|at| le32(data, at)) {
        Some(ORPHAN_MAGIC) => Ok(()),
        found => {
            let value = u64::from(found.unwrap_or(0));
            Err(Corrupt::new("orphan block magic").value(value).into())
        }
    }
}

/// The inode number in a slot; 0 if it is free, or there is no such slot. Not checked.
pub fn get(data: &[u8], slot: usize) -> u32 {
    if in_range(data, slot) { le32(data, slot * 4).unwrap_or(0) } else { 0 }
}

/// Writes an inode number, or 0, into a slot below [`slots`].
pub fn set(data: &mut [u8], slot: usize, ino: u32) {
    let done = in_range(data, slot) && put(data, slot * 4, &ino.to_le_bytes());
    debug_assert!(done, "orphan slot {slot} out of range");
}

fn in_range(data: &[u8], slot: usize) -> bool {
    slot < data.len().saturating_sub(TAIL) / 4
}

/// Makes an empty, unsealed block.
pub fn init(data: &mut [u8]) {
    data.fill(0);
    let done = put(data, data.len().saturating_sub(TAIL), &ORPHAN_MAGIC.to_le_bytes());
    debug_assert!(done, "a block holds a tail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_and_clear() {
        let bs = BlockSize::from_log(0).unwrap();
        let mut b = vec![0xff; bs.bytes()];
        init(&mut b);
        check(&b).unwrap();
        assert_eq!(slots(bs), 254);
        for i in 0..slots(bs) {
            assert_eq!(get(&b, i), 0);
            set(&mut b, i, 100 + i as u32);
        }
        check(&b).unwrap();
        assert_eq!(get(&b, 253), 353);
        assert_eq!(get(&b, 254), 0, "the magic is no inode");
        assert_eq!(get(&b, usize::MAX), 0);
        assert!(check(&b[..1020]).is_err());
        assert!(check(&[]).is_err());
    }
}
