//! ext4 in user space: a FUSE daemon that mounts a real ext4 image, reads it
//! and writes it *with the journal*.
//!
//! The rooms, from the ground up; each imports only from the rooms above it in
//! this list (`tests/layers.rs` enforces it).

#![allow(rustdoc::private_intra_doc_links)]

pub mod types;
pub mod error;
pub mod options;
pub mod trace;
pub mod ondisk;
pub mod device;
pub mod cache;
pub mod journal;
pub mod alloc;
pub mod map;
pub mod inode;
pub mod dir;
pub mod xattr;
pub mod writeback;
pub mod dio;
pub mod fs;
pub mod crash;
pub mod fuse;
pub mod cli;
