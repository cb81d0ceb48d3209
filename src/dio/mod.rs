//! Direct I/O: the lock mode of an inode, direct reads, direct writes. The `fs` room calls it.
//!
//! Invariants:
//! - Every direct request passes the inode's gate and is counted there until it completes, and runs
//!   to its end under the lock mode it started with: it looks at the mode again once it is counted.
//! - A direct write holds the I/O lock to completion. A direct read holds it to completion in mode
//!   `shared`, until it is submitted in mode `lock`, never in mode `nolock`.
//! - [`switch`] drains an inode before its mode changes.
//! - A submitted request carries its ticket and its pass; its completion takes no lock of rank 1 to 6.

mod lock;
mod pace;
mod read;
mod start;
mod switch;
mod tail;
mod write;

pub use lock::{Dir, Grant, take_then};
pub use pace::Pace;
pub use read::{read_direct, read_mapped};
pub use start::{Admitted, admit_overwrite, start_overwrite, start_read};
pub use switch::{switch, switch_mount};
pub use tail::zero_tail;
pub use write::{overwrites, write_direct};
