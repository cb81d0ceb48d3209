//! Writing blocks to where they belong, neighbours in one request.

use super::transaction::Captured;
use crate::device::{AlignedBuf, BlockDevice};
use crate::error::Result;
use crate::types::{Block, BlockSize};
use smallvec::SmallVec;
use std::io::IoSlice;
use std::sync::Arc;

/// Largest single write, in bytes and in pieces.
pub(super) const MAX_BYTES: usize = 1 << 20;
pub(super) const MAX_PIECES: usize = 512;

/// A block and its bytes.
pub(super) trait AtHome {
    fn block(&self) -> Block;
    fn bytes(&self) -> &[u8];
}

impl AtHome for Captured {
    fn block(&self) -> Block {
        self.block
    }
    fn bytes(&self) -> &[u8] {
        &self.data
    }
}

impl AtHome for (Block, Arc<AlignedBuf>) {
    fn block(&self) -> Block {
        self.0
    }
    fn bytes(&self) -> &[u8] {
        &self.1
    }
}

/// Writes blocks, which are sorted by number and distinct.
pub(super) fn write<T: AtHome>(dev: &dyn BlockDevice, bs: BlockSize, blocks: &[T]) -> Result<()> {
    let most = (MAX_BYTES / bs.bytes()).clamp(1, MAX_PIECES);
    let mut rest = blocks;
    while let Some(first) = rest.first() {
        let n = rest
            .iter()
            .zip(0u64..)
            .take(most)
            .take_while(|(c, i)| c.block() == first.block().plus(*i))
            .count();
        let (run, after) = rest.split_at(n);
        if let [one] = run {
            dev.write_at(one.bytes(), bs.offset(one.block()))?;
        } else {
            let v: SmallVec<[IoSlice<'_>; 32]> =
                run.iter().map(|c| IoSlice::new(c.bytes())).collect();
            dev.write_vectored_at(&v, bs.offset(first.block()))?;
        }
        rest = after;
    }
    Ok(())
}
