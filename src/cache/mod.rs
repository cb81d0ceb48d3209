//! What of the device is kept in memory: [`Buffer`]s, which are metadata blocks, and pages, which are
//! file data. Passive: no policy about when something is written lives here.
//!
//! Metadata blocks are read by every room above through [`BufferCache::read`] and changed only by a
//! journal handle. A buffer's bytes are an `Arc`: a reader's snapshot, a commit and a checkpoint keep
//! the version they took while the next transaction changes its own.
//!
//! Invariants:
//! - At most one `Buffer` per block is in the cache, and at most one thread reads a block in.
//! - A buffer whose `Arc` somebody else holds is never evicted; transactions and checkpoint lists hold
//!   one, so what is not yet at home on the device cannot be lost to memory pressure.
//! - Bytes reach a caller only after the seal they asked for was found good.
//! - No lock here is held across I/O.

pub mod buffer;
pub mod pages;
mod buffer_cache;
pub mod hash_index;
mod shard;
pub mod super_buf;

pub use buffer::Buffer;
pub use buffer_cache::BufferCache;
pub use hash_index::HashIndex;
pub(crate) use shard::{BlockMap, InoMap, InoSet};
pub use super_buf::SuperBuf;

#[cfg(test)]
mod buffer_tests;
