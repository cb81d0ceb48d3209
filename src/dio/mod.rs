//! Direct I/O: the lock mode of an inode, direct reads, direct writes.

mod read;
mod write;

pub use read::{read_direct, read_mapped};
pub use write::write_direct;
