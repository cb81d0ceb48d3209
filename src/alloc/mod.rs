//! alloc
pub mod bitmap;
pub mod buddy;
pub mod index;
