//! The crash explorer: what a crash at any instant leaves on the disk, and whether it is right.
//!
//! A workload ([`Op`]s) runs in-process on a recorded memory device ([`record`]). The recorder's log then
//! says which writes were certainly on the disk at each instant and which may have been: [`History`]
//! rebuilds the disk for prefixes, subsets and torn forms of the latter. [`Checker`] mounts each, walks
//! it and holds it against [`Model`], which replays the marks of the workload; samples go to e2fsck and
//! to the kernel's ext4. [`explore`] drives that within a budget and reports the smallest failing state.
//!
//! Called by `cli` (`uext4 crash`) and by tests. Nothing here is part of a mount.
//!
//! Invariants: a state is a function of the log and its [`State`] alone, so that what failed can be
//! repeated; the model knows only what system calls promised, never how the file system works.

mod check;
mod content;
mod explore;
mod history;
pub mod matrix;
mod model;
mod op;
mod oracle;
mod record;
mod rng;
mod state;
pub mod workloads;

pub use check::{Checker, Promise, Wrong};
pub use explore::{Budget, Failing, Report, explore, try_state};
pub use history::History;
pub use model::Model;
pub use op::{How, Op, acl_bytes};
pub use oracle::{e2fsck, kernel};
pub use record::{
    Faulty, ImageSpec, Recorded, Setup, make_image, record, record_faulty, record_threads,
};
pub use rng::Rng;
pub use state::State;

/// The byte of which free space is full before a workload runs.
pub const POISON: u8 = 0xa5;
