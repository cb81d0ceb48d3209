//! The cache of metadata blocks.

use super::Buffer;
use super::shard::{Found, Shard};
use crate::device::{AlignedBuf, BlockDevice};
use crate::error::{Corrupt, Result};
use crate::ondisk::{Geometry, Seal, Sealer};
use crate::types::Block;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const SHARDS: usize = 64;
/// Largest single read of [`BufferCache::prefetch`], in bytes, and in blocks.
const PREFETCH_BYTES: usize = 1 << 20;
const PREFETCH_BLOCKS: usize = 256;

/// The metadata blocks of one file system, by block number.
pub struct BufferCache {
    dev: Arc<dyn BlockDevice>,
    geo: Arc<Geometry>,
    sealer: Arc<Sealer>,
    shards: Box<[Shard]>,
    /// Buffers per shard.
    limit: AtomicUsize,
}

impl BufferCache {
    /// A cache that holds about `capacity_bytes` of blocks, more only while they are pinned.
    pub fn new(
        dev: Arc<dyn BlockDevice>,
        geo: Arc<Geometry>,
        sealer: Arc<Sealer>,
        capacity_bytes: usize,
    ) -> BufferCache {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        let c = BufferCache { dev, geo, sealer, shards, limit: AtomicUsize::new(0) };
        c.set_capacity(capacity_bytes);
        c
    }

    /// Changes the capacity, in bytes, and evicts what is too much.
    pub fn set_capacity(&self, bytes: usize) {
        let per_shard = bytes / self.geo.block_size.bytes() / SHARDS;
        self.limit.store(per_shard.max(4), Relaxed);
        for s in &self.shards {
            s.evict(per_shard.max(4));
        }
    }

    /// Seals and verifies metadata of this file system.
    pub fn sealer(&self) -> &Arc<Sealer> {
        &self.sealer
    }

    /// The file system's geometry.
    pub fn geo(&self) -> &Arc<Geometry> {
        &self.geo
    }

    /// The device the blocks live on.
    pub fn dev(&self) -> &Arc<dyn BlockDevice> {
        &self.dev
    }

    /// Blocks in the cache now.
    pub fn len(&self) -> usize {
        self.shards.iter().map(Shard::len).sum()
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The block, read from the device if need be, its seal verified (once per buffer and kind).
    ///
    /// # Errors
    /// `Corrupt` if the block is not in the file system or its seal is broken; `Io`.
    pub fn read(&self, block: Block, seal: &Seal) -> Result<Arc<Buffer>> {
        let buf = self.load(block)?;
        if *seal != Seal::None && !buf.is_verified(seal) {
            buf.read(|data| self.sealer.verify(seal, block, data))?;
            buf.set_verified(seal);
        }
        Ok(buf)
    }

    /// The block if it is in memory.
    pub fn peek(&self, block: Block) -> Option<Arc<Buffer>> {
        self.shard(block).peek(block)
    }

    /// Reads `count` blocks from `first` in as few requests as can be, ahead of [`BufferCache::read`].
    /// Blocks that are there or being read are left alone; errors are left for `read` to meet.
    pub fn prefetch(&self, first: Block, count: u32) {
        if !self.geo.is_valid_block(first, u64::from(count)) {
            return;
        }
        let bs = self.geo.block_size.bytes();
        let most = (PREFETCH_BYTES / bs).clamp(1, PREFETCH_BLOCKS);
        let mut run: Vec<Block> = Vec::new();
        for i in 0..u64::from(count) {
            let b = first.plus(i);
            let claimed = self.shard(b).try_claim(b);
            if claimed {
                run.push(b);
            }
            if !run.is_empty() && (!claimed || run.len() == most) {
                self.read_run(&run);
                run.clear();
            }
        }
        if !run.is_empty() {
            self.read_run(&run);
        }
    }

    /// A buffer of zeros for a block whose old contents are dead; not read. For journal handles only.
    pub(crate) fn create(&self, block: Block) -> Result<Arc<Buffer>> {
        self.check(block)?;
        let zeros = AlignedBuf::zeroed(self.geo.block_size.bytes());
        Ok(self.create_with(block, Arc::new(zeros)))
    }

    /// A buffer with these bytes, which replace whatever was cached of the block.
    pub(crate) fn create_with(&self, block: Block, data: Arc<AlignedBuf>) -> Arc<Buffer> {
        let shard = self.shard(block);
        match shard.find_or_claim(block) {
            Found::Buffer(buf) => {
                buf.replace(data);
                buf.clear_verified();
                buf
            }
            Found::Claimed => {
                let buf = Arc::new(Buffer::new(block, AlignedBuf::zeroed(0)));
                buf.replace(data);
                shard.fill(block, Some(Arc::clone(&buf)), self.limit.load(Relaxed));
                buf
            }
        }
    }

    /// Drops the block: its contents are dead. Waits if it is being read in.
    pub fn forget(&self, block: Block) {
        self.shard(block).remove(block);
    }

    /// Drops every buffer that nobody holds.
    pub fn drop_clean(&self) {
        for s in &self.shards {
            s.evict(0);
        }
    }

    fn shard(&self, block: Block) -> &Shard {
        let h = block.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.shards[h as usize % SHARDS]
    }

    fn check(&self, block: Block) -> Result<()> {
        if self.geo.is_valid_block(block, 1) {
            return Ok(());
        }
        Err(Corrupt::new("block number outside the file system").block(block).into())
    }

    fn load(&self, block: Block) -> Result<Arc<Buffer>> {
        let shard = self.shard(block);
        match shard.find_or_claim(block) {
            Found::Buffer(b) => Ok(b),
            Found::Claimed => {
                let read = self.check(block).and_then(|()| self.read_block(block));
                let limit = self.limit.load(Relaxed);
                match read {
                    Ok(data) => {
                        let buf = Arc::new(Buffer::new(block, data));
                        shard.fill(block, Some(Arc::clone(&buf)), limit);
                        Ok(buf)
                    }
                    Err(e) => {
                        shard.fill(block, None, limit);
                        Err(e)
                    }
                }
            }
        }
    }

    fn read_block(&self, block: Block) -> Result<AlignedBuf> {
        let mut data = AlignedBuf::for_overwrite(self.geo.block_size.bytes());
        self.dev.read_at(&mut data, self.geo.block_size.offset(block))?;
        Ok(data)
    }

    /// Fills the claimed slots of consecutive blocks with one read.
    fn read_run(&self, run: &[Block]) {
        let bs = self.geo.block_size;
        let mut bufs: Vec<AlignedBuf> =
            run.iter().map(|_| AlignedBuf::for_overwrite(bs.bytes())).collect();
        let ok = run.first().is_some_and(|&first| {
            let mut v: Vec<IoSliceMut<'_>> = bufs.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            self.dev.read_vectored_at(&mut v, bs.offset(first)).is_ok()
        });
        let limit = self.limit.load(Relaxed);
        for (&b, data) in run.iter().zip(bufs) {
            self.shard(b).fill(b, ok.then(|| Arc::new(Buffer::new(b, data))), limit);
        }
    }
}
