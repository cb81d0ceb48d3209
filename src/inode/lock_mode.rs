//! The lock mode of direct I/O, per inode, and what follows from it.
//!
//! Each inode carries the mode that it is in. A new default of the mount reaches the inodes in
//! memory one by one, each when nothing of its old mode is in flight any more (the `dio` room does
//! that); an inode read from disk starts with the default.

use super::{Inode, Share, Volume};
use crate::{ondisk::InodeFlags, options::DioreadMode};
use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

/// How direct I/O on an inode locks, and how buffered write-out enters new blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Direct reads take the I/O lock exclusively for as long as they flush, map and submit, and
    /// yield to writers, as with the mutex of 2.6.33.
    Lock,
    /// Direct reads share the I/O lock (4.9 to 5.5).
    Shared,
    /// Direct reads take no lock; new blocks are unwritten until their data is down.
    Nolock,
}

impl LockMode {
    /// All of them.
    pub const ALL: [LockMode; 3] = [LockMode::Lock, LockMode::Shared, LockMode::Nolock];

    /// What is said where none of them was given.
    pub const NAMES: &'static str = "must be lock, shared or nolock";

    /// What a direct read takes.
    pub fn read_share(self) -> Option<Share> {
        match self {
            LockMode::Lock => Some(Share::Exclusive),
            LockMode::Shared => Some(Share::Shared),
            LockMode::Nolock => None,
        }
    }

    /// What a direct write takes that overwrites written blocks.
    pub fn overwrite_share(self) -> Share {
        match self {
            LockMode::Lock => Share::Exclusive,
            LockMode::Shared | LockMode::Nolock => Share::Shared,
        }
    }

    /// Whether buffered write-out enters new blocks as unwritten.
    pub fn enters_unwritten(self) -> bool {
        self == LockMode::Nolock
    }

    /// Its name, as `dioread_mode` shows and takes it.
    pub fn name(self) -> &'static str {
        match self {
            LockMode::Lock => "lock",
            LockMode::Shared => "shared",
            LockMode::Nolock => "nolock",
        }
    }

    /// The mode of that name.
    pub fn by_name(name: &str) -> Option<LockMode> {
        LockMode::ALL.into_iter().find(|m| m.name() == name)
    }

    fn code(self) -> u8 {
        match self {
            LockMode::Lock => 1,
            LockMode::Shared => 2,
            LockMode::Nolock => 3,
        }
    }

    fn decode(v: u8) -> LockMode {
        match v & !PINNED {
            1 => LockMode::Lock,
            2 => LockMode::Shared,
            _ => LockMode::Nolock,
        }
    }
}

impl From<DioreadMode> for LockMode {
    fn from(m: DioreadMode) -> LockMode {
        match m {
            DioreadMode::Lock => LockMode::Lock,
            DioreadMode::Shared => LockMode::Shared,
            DioreadMode::Nolock => LockMode::Nolock,
        }
    }
}

impl From<LockMode> for DioreadMode {
    fn from(m: LockMode) -> DioreadMode {
        match m {
            LockMode::Lock => DioreadMode::Lock,
            LockMode::Shared => DioreadMode::Shared,
            LockMode::Nolock => DioreadMode::Nolock,
        }
    }
}

/// Set for this inode by name: a new default of the mount does not reach it.
const PINNED: u8 = 0x80;

/// The mode an inode carries.
pub struct ModeCell(AtomicU8);

impl ModeCell {
    /// Starts with `mode`.
    pub fn new(mode: LockMode) -> ModeCell {
        ModeCell(AtomicU8::new(mode.code()))
    }

    /// The mode, whether the inode is able to or not.
    pub fn get(&self) -> LockMode {
        LockMode::decode(self.0.load(Acquire))
    }

    /// Whether it was set for this inode.
    pub fn pinned(&self) -> bool {
        self.0.load(Acquire) & PINNED != 0
    }

    /// Only for whoever has drained the inode: see `dio::switch`.
    pub fn set(&self, mode: LockMode, pinned: bool) {
        self.0.store(mode.code() | if pinned { PINNED } else { 0 }, Release);
    }
}

/// The mode the inode is in, less what it cannot do: without
/// extents, with `nodelalloc` or journalled data it is `shared`, as in ext4.
pub fn effective(vol: &Volume, inode: &Inode) -> LockMode {
    let able = vol.conf.delalloc
        && inode.flags().contains(InodeFlags::EXTENTS)
        && !vol.journals_data(inode);
    if able { inode.dio_mode.get() } else { LockMode::Shared }
}

/// Buckets of a histogram of times: below 1, 2, 4 ... microseconds, the last without a bound.
const BUCKETS: usize = 24;

/// What direct I/O did in one mode.
#[derive(Default)]
pub struct ModeStats {
    /// Direct reads.
    pub reads: AtomicU64,
    /// Direct writes.
    pub writes: AtomicU64,
    /// Of them, those that allocated or converted blocks.
    pub conversions: AtomicU64,
    /// Requests that waited for the I/O lock.
    pub waits: AtomicU64,
    /// Switches away from this mode, each of which drained an inode.
    pub drains: AtomicU64,
    waited: [AtomicU64; BUCKETS],
}

/// The lock mode of a mount and what was done in each.
pub struct DioState {
    default: ModeCell,
    modes: [ModeStats; 3],
}

impl DioState {
    /// Inodes start with `mode`.
    pub fn new(mode: LockMode) -> DioState {
        DioState { default: ModeCell::new(mode), modes: Default::default() }
    }

    /// The mode an inode starts with.
    pub fn default_mode(&self) -> LockMode {
        self.default.get()
    }

    /// Changes it for inodes read from now on.
    pub fn set_default(&self, mode: LockMode) {
        self.default.set(mode, false);
    }

    /// The counters of a mode.
    pub fn of(&self, mode: LockMode) -> &ModeStats {
        &self.modes[usize::from(mode.code() - 1)]
    }

    /// Counts a wait for the I/O lock.
    pub fn waited(&self, mode: LockMode, t: Duration) {
        let us = u64::try_from(t.as_micros()).unwrap_or(u64::MAX);
        let m = self.of(mode);
        m.waits.fetch_add(1, Relaxed);
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        m.waited[bucket.min(BUCKETS - 1)].fetch_add(1, Relaxed);
    }

    /// Lines `dio_MODE_NAME VALUE`; the histogram as `BOUND:COUNT` with bounds in microseconds.
    pub fn text(&self) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        for mode in LockMode::ALL {
            let (m, name) = (self.of(mode), mode.name());
            for (what, n) in [
                ("reads", &m.reads),
                ("writes", &m.writes),
                ("conversions", &m.conversions),
                ("lock_waits", &m.waits),
                ("drains", &m.drains),
            ] {
                let _ = writeln!(out, "dio_{name}_{what} {}", n.load(Relaxed));
            }
            let _ = write!(out, "dio_{name}_lock_wait_us");
            for (i, n) in m.waited.iter().enumerate() {
                let n = n.load(Relaxed);
                if n > 0 {
                    let _ = write!(out, " {}:{n}", 1u64 << i);
                }
            }
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_histogram() {
        for m in LockMode::ALL {
            assert_eq!(LockMode::by_name(m.name()), Some(m));
            assert_eq!(LockMode::decode(m.code() | PINNED), m);
        }
        let s = DioState::new(LockMode::Shared);
        s.waited(LockMode::Lock, Duration::from_micros(3));
        s.waited(LockMode::Lock, Duration::from_secs(1 << 40));
        assert!(s.text().contains("dio_lock_lock_wait_us 4:1 8388608:1\n"), "{}", s.text());
    }
}
