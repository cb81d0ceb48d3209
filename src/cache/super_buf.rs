//! The buffer that the primary superblock lies in.

use super::{Buffer, BufferCache};
use crate::error::{Corrupt, Result};
use crate::ondisk::Seal;
use std::sync::Arc;

/// Byte offset of the superblock on the device, and its size.
const SUPERBLOCK: usize = 1024;

/// The superblock's buffer, pinned, and where in it the superblock begins.
#[derive(Clone, Debug)]
pub struct SuperBuf {
    /// The block that holds it: what a handle changes, with [`Seal::Superblock`].
    pub buf: Arc<Buffer>,
    /// Byte offset of the superblock in the block: 0 with 1 KiB blocks, else 1024.
    pub offset: usize,
}

impl SuperBuf {
    /// Reads it.
    pub fn load(cache: &BufferCache) -> Result<SuperBuf> {
        let geo = cache.geo();
        let block = geo.superblock_block();
        let offset = geo.block_size.within(SUPERBLOCK as u64);
        let buf = cache.read(block, &Seal::Superblock)?;
        if buf.read(|b| b.len() < offset + SUPERBLOCK) {
            return Err(Corrupt::new("superblock does not fit its block").block(block).into());
        }
        Ok(SuperBuf { buf, offset })
    }

    /// Looks at the superblock's 1024 bytes.
    pub fn read<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        self.buf.read(|b| f(self.slice(b)))
    }

    /// The superblock within its block's bytes.
    pub fn slice<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.offset..self.offset + SUPERBLOCK]
    }

    /// The superblock within its block's bytes, to change.
    pub fn slice_mut<'a>(&self, block: &'a mut [u8]) -> &'a mut [u8] {
        &mut block[self.offset..self.offset + SUPERBLOCK]
    }
}
