//! The blocks of one transaction as they lie in the log, and writing them.

use super::home::{MAX_BYTES, MAX_PIECES};
use super::log_map::LogMap;
use super::transaction::Captured;
use crate::device::AlignedBuf;
use crate::device::seeded::{self, Fault};
use crate::error::{Corrupt, Result};
use crate::ondisk::jbd2::{
    DescriptorWriter, LogFormat, RevokeWriter, crc32_be, escape, needs_escape,
};
use crate::types::{Block, Tid};
use smallvec::SmallVec;
use std::io::IoSlice;
use std::sync::Arc;

/// The part of the journal that holds the log: it wraps from `end` to `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    pub first: u32,
    pub end: u32,
}

impl Ring {
    pub fn len(self) -> u32 {
        self.end - self.first
    }

    /// The block `n` (at most the ring's length) after `at`.
    pub fn advance(self, at: u32, n: u32) -> u32 {
        let past = u64::from(at) + u64::from(n);
        let wrapped = if past >= u64::from(self.end) { past - u64::from(self.len()) } else { past };
        // Below `end`, which is a u32.
        wrapped as u32
    }
}

/// A block and what it is to hold.
pub(super) trait Logged {
    fn block(&self) -> Block;
    fn data(&self) -> &Arc<AlignedBuf>;
}

impl Logged for Captured {
    fn block(&self) -> Block {
        self.block
    }
    fn data(&self) -> &Arc<AlignedBuf> {
        &self.data
    }
}

impl Logged for (Block, Arc<AlignedBuf>) {
    fn block(&self) -> Block {
        self.0
    }
    fn data(&self) -> &Arc<AlignedBuf> {
        &self.1
    }
}

/// Everything of a transaction but its commit block, in log order.
pub(super) struct Record {
    blocks: Vec<Arc<AlignedBuf>>,
    /// CRC-32 over descriptors and data (checksum v1).
    pub v1_sum: u32,
}

impl Record {
    /// Revoke blocks, then descriptors, each followed by the blocks it describes.
    pub fn build(
        format: LogFormat,
        seq: Tid,
        revokes: impl Iterator<Item = Block>,
        captured: &[impl Logged],
    ) -> Result<Record> {
        let mut blocks = Vec::with_capacity(captured.len() + 4);
        revoke_blocks(format, seq, revokes, &mut blocks);
        let mut v1_sum = !0;
        let mut rest = captured;
        while !rest.is_empty() {
            let mut block = AlignedBuf::for_overwrite(format.block_bytes);
            let mut w = DescriptorWriter::new(format, &mut block, seq);
            let at = blocks.len();
            let mut n = 0;
            for c in rest {
                let (data, escaped) = escape_copy(c.data());
                let escaped = escaped && !seeded::on(Fault::EscapeNotNoted);
                if !w.push(c.block(), escaped, format.tag_checksum(seq, &data)) {
                    break;
                }
                blocks.push(data);
                n += 1;
            }
            if n == 0 {
                return Err(Corrupt::new("journal block too small for a tag").into());
            }
            w.finish();
            blocks.insert(at, Arc::new(block));
            if format.csum_v1 {
                v1_sum = blocks[at..].iter().fold(v1_sum, |sum, b| crc32_be(sum, b));
            }
            rest = &rest[n..];
        }
        Ok(Record { blocks, v1_sum })
    }

    /// Blocks it takes, the commit block not counted.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Adds a block at the end: the commit block, when it need not wait for the others.
    pub fn push(&mut self, block: AlignedBuf) {
        self.blocks.push(Arc::new(block));
    }

    /// Writes it from block `at` of the log on, in as few requests as can be.
    pub fn write(&self, map: &LogMap, ring: Ring, mut at: u32) -> Result<()> {
        let bs = map.block_size();
        let most = (MAX_BYTES / bs.bytes()).clamp(1, MAX_PIECES);
        let mut rest = &self.blocks[..];
        while !rest.is_empty() {
            let (home, contiguous) = map.locate(at)?;
            let n = (contiguous.min(ring.end - at) as usize).min(most).min(rest.len());
            let (now, later) = rest.split_at(n);
            let v: SmallVec<[IoSlice<'_>; 32]> = now.iter().map(|b| IoSlice::new(b)).collect();
            map.dev().write_vectored_at(&v, bs.offset(home))?;
            at = ring.advance(at, n as u32);
            rest = later;
        }
        Ok(())
    }
}

/// The block as it goes to the log: itself, or a private copy without the magic that it begins with.
fn escape_copy(data: &Arc<AlignedBuf>) -> (Arc<AlignedBuf>, bool) {
    if !needs_escape(data) {
        return (Arc::clone(data), false);
    }
    let mut copy = AlignedBuf::copy_of(data);
    escape(&mut copy);
    (Arc::new(copy), true)
}

fn revoke_blocks(
    format: LogFormat,
    seq: Tid,
    revokes: impl Iterator<Item = Block>,
    out: &mut Vec<Arc<AlignedBuf>>,
) {
    let mut revokes = revokes.peekable();
    while revokes.peek().is_some() {
        let mut block = AlignedBuf::for_overwrite(format.block_bytes);
        let mut w = RevokeWriter::new(format, &mut block, seq);
        while let Some(&b) = revokes.peek() {
            if !w.push(b) {
                break;
            }
            revokes.next();
        }
        w.finish();
        out.push(Arc::new(block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_wraps() {
        let r = Ring { first: 1, end: 1024 };
        assert_eq!(r.len(), 1023);
        assert_eq!(r.advance(1, 5), 6);
        assert_eq!(r.advance(1023, 1), 1);
        assert_eq!(r.advance(1020, 10), 7);
        assert_eq!(r.advance(7, 1023), 7);
        let high = Ring { first: 1, end: u32::MAX };
        assert_eq!(high.advance(u32::MAX - 1, 3), 3);
    }
}
