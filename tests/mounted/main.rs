//! Whole-program tests: real mounts, real programs, the ext4 tools and the kernel's ext4 as
//! oracles. They need root, /dev/fuse and loop devices, and fail where these are missing.

#[path = "../common/mod.rs"]
mod common;

mod control_dir;
mod kill;
mod parallel;
mod programs;
mod refusals;
mod replay;
mod scale;
mod setup;
mod trees;
mod walls;
