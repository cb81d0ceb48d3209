//! Writing blocks to where they belong, neighbours in one request.

use super::transaction::Captured;
use crate::device::BlockDevice;
use crate::error::Result;
use crate::types::BlockSize;
use smallvec::SmallVec;
use std::io::IoSlice;

/// Largest single write, in bytes and in pieces.
pub(super) const MAX_BYTES: usize = 1 << 20;
pub(super) const MAX_PIECES: usize = 512;

/// Writes blocks, which are sorted by number and distinct.
pub(super) fn write(dev: &dyn BlockDevice, bs: BlockSize, blocks: &[Captured]) -> Result<()> {
    let most = (MAX_BYTES / bs.bytes()).clamp(1, MAX_PIECES);
    let mut rest = blocks;
    while let Some(first) = rest.first() {
        let n = rest
            .iter()
            .zip(0u64..)
            .take(most)
            .take_while(|(c, i)| c.block == first.block.plus(*i))
            .count();
        let (run, after) = rest.split_at(n);
        if let [one] = run {
            dev.write_at(&one.data, bs.offset(one.block))?;
        } else {
            let v: SmallVec<[IoSlice<'_>; 32]> =
                run.iter().map(|c| IoSlice::new(&c.data)).collect();
            dev.write_vectored_at(&v, bs.offset(first.block))?;
        }
        rest = after;
    }
    Ok(())
}
