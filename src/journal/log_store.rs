//! The log of an open journal: its format, where it is written next, and its superblock.

use super::checkpoint::Checkpoint;
use super::log_map::LogMap;
use super::log_write::Ring;
use crate::device::AlignedBuf;
use crate::error::Result;
use crate::ondisk::jbd2::{JournalSuper, LogFormat};
use crate::types::Tid;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering::*};

/// The journal's superblock, and how it is written.
pub(super) struct SuperWriter {
    sb: JournalSuper,
    /// Block 0 of the journal, to keep what follows the superblock in it.
    block: AlignedBuf,
}

pub(super) struct Log {
    pub map: LogMap,
    pub ring: Ring,
    pub format: LogFormat,
    /// Leaf lock. What is committed and not yet at home, and where the log goes on.
    pub checkpoint: Mutex<Checkpoint>,
    /// With `checkpoint`: a batch of home writes ended.
    pub batch_ended: Condvar,
    /// One checkpoint at a time. Held across I/O; no other lock of a rank is held when it is taken.
    pub checkpointer: Mutex<()>,
    /// Serialises writes of the journal's superblock, and is held across them.
    pub superblock: Mutex<SuperWriter>,
    empty: AtomicBool,
}

impl Log {
    pub fn new(map: LogMap, sb: JournalSuper, block: AlignedBuf) -> Log {
        let ring = Ring { first: sb.first(), end: sb.log_end() };
        let head = ring.first;
        Log {
            format: sb.log_format(),
            ring,
            checkpoint: Mutex::new(Checkpoint::new(sb.sequence(), head)),
            batch_ended: Condvar::new(),
            checkpointer: Mutex::new(()),
            empty: AtomicBool::new(sb.start() == 0),
            superblock: Mutex::new(SuperWriter { sb, block }),
            map,
        }
    }

    /// Log blocks that a transaction of `credits` blocks (revoke blocks counted) takes at most.
    pub fn need(&self, credits: u64) -> u64 {
        let tags = self.format.tags_per_block().max(1) as u64;
        credits + credits / tags + 3
    }

    /// Makes the superblock say where the log begins. With `fua` it is stable on return; the caller
    /// has flushed what it vouches for.
    pub fn write_tail(&self, seq: Tid, start: u32, fua: bool) -> Result<()> {
        self.change_super(fua, |sb| sb.set_tail(seq, start))?;
        self.empty.store(start == 0, Release);
        Ok(())
    }

    /// Changes and writes the superblock.
    pub fn change_super(&self, fua: bool, f: impl FnOnce(&mut JournalSuper)) -> Result<()> {
        let mut w = self.superblock.lock();
        f(&mut w.sb);
        let bytes = w.sb.encode();
        if let Some(head) = w.block.get_mut(..bytes.len()) {
            head.copy_from_slice(&bytes);
        }
        let (at, _) = self.map.locate(0)?;
        let off = self.map.block_size().offset(at);
        if fua {
            self.map.dev().write_fua(&w.block, off)
        } else {
            self.map.dev().write_at(&w.block, off)
        }
    }

    /// Whether the superblock says that the log is empty.
    pub fn marked_empty(&self) -> bool {
        self.empty.load(Acquire)
    }
}
