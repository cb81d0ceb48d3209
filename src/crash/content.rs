//! What operation `n` writes at offset `off` of a file: bytes that no other operation writes. Of every eighth
//! operation each KiB begins with the magic number of the journal, which must be escaped in the log.

use super::rng::mix;
use crate::ondisk::jbd2::JBD2_MAGIC;

/// `len` bytes for the range that begins at `off`.
pub fn bytes(op: usize, off: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 8);
    let mut at = off & !7;
    while at < off + len as u64 {
        let mut word = mix(((op as u64 + 1) << 40) ^ (at >> 3)).to_le_bytes();
        if op % 8 == 1 && at.is_multiple_of(1024) {
            word[..4].copy_from_slice(&JBD2_MAGIC.to_be_bytes());
        }
        out.extend_from_slice(&word);
        at += 8;
    }
    let skip = (off & 7) as usize;
    out.drain(..skip);
    out.truncate(len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_part_of_the_whole() {
        let all = bytes(3, 0, 100);
        assert_eq!(bytes(3, 13, 50), all[13..63]);
        assert_ne!(bytes(4, 0, 100), all);
    }
}
