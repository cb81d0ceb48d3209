//! Names: linear, hashed and inline directories.
//!
//! `fs` calls it with the directory's lock held: shared to look up and list, exclusive to change.
//! Changes happen inside the caller's journal handle, one operation whole or not at all, and end
//! with the directory's inode stored.
//!
//! Invariants: records tile every block; a changed block is sealed as what it is (leaf or index);
//! an index leads to every leaf; nothing read from disk is believed before it is checked; the cost
//! of an operation on an indexed directory does not grow with its size.

pub mod index;
pub mod leaf;
