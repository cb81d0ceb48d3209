//! The kernel's side of a mount: getting a FUSE connection, keeping it, ending
//! it, and (in the adaptor) answering its requests from [`crate::fs`].
//!
//! Called by `cli`. Invariants: the daemon itself never mounts or unmounts, its
//! supervisor does; the control socket has threads of its own and never goes
//! through the FUSE queue; whatever ends the daemon, no dead mount stays behind.

pub mod adaptor;
pub mod control_socket;
pub mod convert;
pub mod ctldir;
mod data;
mod handles;
mod invalidate;
mod ioctl;
pub mod mount;
pub mod mount_table;
mod pool;
pub mod raw;
pub mod sandbox;
pub mod supervisor;
