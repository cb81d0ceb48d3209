//! The on-disk format of ext4 and jbd2 as plain data.
//!
//! Every other room that looks at metadata calls this one. Raw structs
//! (`Raw*`) mirror the disk byte for byte and carry the field names of ext4;
//! parsing checks them once and gives domain types whose numbers can be computed
//! with. Writing changes only the fields it knows, so the rest of a slot or
//! block survives.
//!
//! Invariants: no I/O, no locks, no panic and no unbounded memory for any bytes;
//! sizes and offsets are asserted at compile time; metadata checksums are made
//! and checked in [`seal`] (and [`jbd2`] for the journal's own) and nowhere else.

pub mod bytes;
pub mod csum;
pub mod dirent;
pub mod extent;
pub mod fast_commit;
pub mod features;
pub mod geometry;
pub mod group_desc;
pub mod hash;
pub mod inline;
pub mod inode;
pub mod inode_flags;
pub mod inode_raw;
pub mod jbd2;
mod jbd2_log;
pub mod mmp;
pub mod orphan_file;
pub mod seal;
pub mod superblock;
pub mod superblock_raw;
pub mod timestamp;
pub mod xattr;

pub use features::{Compat, FeatureCheck, Features, Incompat, RoCompat};
pub use geometry::Geometry;
pub use group_desc::{GroupDesc, GroupFlags};
pub use inode::{FileKind, InodeRecord};
pub use inode_flags::InodeFlags;
pub use seal::{Seal, Sealer};
pub use superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
pub use timestamp::Timestamp;

#[cfg(test)]
mod tests;
