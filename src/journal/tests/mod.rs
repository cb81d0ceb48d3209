//! Tests of the journal on images made by mkfs.ext4, in memory.

mod crash;
mod home;
mod hostile;
mod image;
mod kernel;
mod log;
