//! Checkpoint: writing committed blocks home, and taking their log space back.
//!
//! For each block only the newest committed version is listed; a commit that brings a newer one retires
//! the older. A transaction whose blocks are all retired or at home leaves the log as soon as it is
//! the oldest in it.

use super::home;
use super::log_store::Log;
use super::transaction::Captured;
use super::{Backend, Journal};
use crate::cache::{BlockMap, Buffer};
use crate::device::{
    AlignedBuf, cause,
    seeded::{self, Fault},
};
use crate::error::Result;
use crate::trace;
use crate::types::{Block, Tid};
use std::collections::VecDeque;
use std::sync::Arc;

/// Blocks of one batch of home writes, in bytes and in blocks, at most.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_BLOCKS: usize = 1024;

/// The newest committed version of a block that is not known to be at home.
struct Entry {
    seq: Tid,
    data: Arc<AlignedBuf>,
    buf: Arc<Buffer>,
}

/// A committed transaction whose log blocks are still needed.
struct Logged {
    seq: Tid,
    /// Where it begins in the log, and the blocks it takes there.
    start: u32,
    len: u32,
    /// Its blocks; those with a newer version have left the entries of this number.
    blocks: Vec<u64>,
    /// Entries of this number.
    live: usize,
}

pub(super) struct Checkpoint {
    entries: BlockMap<Entry>,
    /// Oldest first, with consecutive numbers.
    logged: VecDeque<Logged>,
    /// Blocks being written home.
    in_flight: BlockMap<()>,
    /// Number and log block of the next transaction.
    pub next_seq: Tid,
    pub head: u32,
}

/// A place in the log: the first transaction needed, and its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tail {
    pub seq: Tid,
    pub start: u32,
}

impl Checkpoint {
    pub fn new(next_seq: Tid, head: u32) -> Checkpoint {
        Checkpoint {
            entries: BlockMap::default(),
            logged: VecDeque::new(),
            in_flight: BlockMap::default(),
            next_seq,
            head,
        }
    }

    /// Lists a transaction that has just been committed, `len` log blocks from the head on.
    pub fn add(&mut self, captured: Vec<Captured>, len: u32, new_head: u32) {
        let seq = self.next_seq;
        let blocks: Vec<u64> = captured.iter().map(|c| c.block.0).collect();
        for c in captured {
            let e = Entry { seq, data: c.data, buf: c.buf };
            if let Some(old) = self.entries.insert(c.block.0, e) {
                self.retire(old);
            }
        }
        let live = blocks.len();
        self.logged.push_back(Logged { seq, start: self.head, len, blocks, live });
        self.next_seq = seq.next();
        self.head = new_head;
    }

    /// The block is free: no version of it goes home any more. Whether one is on its way.
    pub fn forget(&mut self, block: Block) -> bool {
        if let Some(e) = self.entries.remove(&block.0) {
            self.retire(e);
        }
        self.in_flight.contains_key(&block.0)
    }

    pub fn is_in_flight(&self, block: Block) -> bool {
        self.in_flight.contains_key(&block.0)
    }

    /// The newest committed version of a block, if it is not at home yet.
    pub fn version(&self, block: Block) -> Option<Arc<AlignedBuf>> {
        self.entries.get(&block.0).map(|e| Arc::clone(&e.data))
    }

    /// Blocks to be written home.
    pub fn pending(&self) -> usize {
        self.entries.len()
    }

    fn retire(&mut self, e: Entry) {
        e.buf.drop_dirty();
        let front = self.logged.front().map_or(self.next_seq, |l| l.seq);
        if let Some(l) = self.logged.get_mut(e.seq.0.wrapping_sub(front.0) as usize) {
            l.live = l.live.saturating_sub(1);
        }
    }

    /// The next blocks to write home, of the oldest transactions first, sorted; marked as in flight.
    fn take_batch(&mut self, most: usize) -> Vec<Captured> {
        let mut batch = Vec::new();
        for l in &self.logged {
            if l.live == 0 {
                continue;
            }
            for &b in &l.blocks {
                if batch.len() == most {
                    break;
                }
                let Some(e) = self.entries.get(&b).filter(|e| e.seq == l.seq) else { continue };
                batch.push(Captured {
                    block: Block(b),
                    data: Arc::clone(&e.data),
                    buf: Arc::clone(&e.buf),
                });
                self.in_flight.insert(b, ());
            }
        }
        batch.sort_unstable_by_key(|c| c.block);
        batch
    }

    /// The batch is stable at home: retires what has no newer version by now.
    fn settle(&mut self, batch: &[Captured]) {
        for c in batch {
            let same = self.entries.get(&c.block.0).is_some_and(|e| Arc::ptr_eq(&e.data, &c.data));
            if same && let Some(e) = self.entries.remove(&c.block.0) {
                self.retire(e);
            }
        }
    }

    /// Drops transactions that the log need not keep: the log blocks they took.
    fn drop_finished(&mut self) -> u64 {
        let mut freed = 0;
        while self.logged.front().is_some_and(|l| l.live == 0) {
            freed += self.logged.pop_front().map_or(0, |l| u64::from(l.len));
        }
        freed
    }

    /// Log blocks that dropping finished transactions would give back.
    fn finished(&self) -> u64 {
        self.logged.iter().take_while(|l| l.live == 0).map(|l| u64::from(l.len)).sum()
    }

    /// Where recovery must begin.
    fn tail(&self) -> Tail {
        self.logged.front().map_or(Tail { seq: self.next_seq, start: self.head }, |l| Tail {
            seq: l.seq,
            start: l.start,
        })
    }
}

impl Journal {
    /// Writes everything committed home, so that the log is empty if nothing runs.
    ///
    /// # Errors
    /// `Io`, which fails the journal; `Shutdown` if it failed before.
    pub fn checkpoint_all(&self) -> Result<()> {
        self.checkpoint_until(|_, _| false)
    }

    /// The checkpoint thread's turn.
    pub(super) fn checkpoint_if_due(&self) {
        if !self.checkpoint_due() {
            return;
        }
        // It has failed the journal; that is where the error is told.
        let _ = self.checkpoint_until(|free, pending| {
            free >= self.log_len / 4 * 3 && pending <= self.max_pending / 2
        });
    }

    /// Whether the log or the memory behind it is filling up.
    pub(super) fn checkpoint_due(&self) -> bool {
        let Backend::Log(log) = &self.backend else { return false };
        let (free, waiting) = {
            let st = self.state.lock();
            (st.log_free, st.space_waiters > 0)
        };
        waiting || free < self.log_len / 2 || log.checkpoint.lock().pending() > self.max_pending
    }

    /// Writes batches home until nothing is left or `enough(free log blocks, blocks pending)`.
    fn checkpoint_until(&self, enough: impl Fn(u64, usize) -> bool) -> Result<()> {
        self.check_commit()?;
        let Backend::Log(log) = &self.backend else { return Ok(()) };
        let _cause = cause::set("checkpoint");
        let r = {
            let _one = log.checkpointer.lock();
            self.checkpoint_batches(log, enough)
        };
        r.inspect_err(|e| self.abort(e))
    }

    fn checkpoint_batches(&self, log: &Log, enough: impl Fn(u64, usize) -> bool) -> Result<()> {
        let bs = self.cache().geo().block_size;
        let most = (BATCH_BYTES / bs.bytes()).clamp(1, BATCH_BLOCKS);
        loop {
            let batch = log.checkpoint.lock().take_batch(most);
            let done = batch.is_empty();
            if !done {
                trace::event!(Jbd2Checkpoint, -, blocks: batch.len());
                self.check_commit()?;
                let r = if seeded::on(Fault::CheckpointUncommitted) {
                    let now: Vec<_> = batch.iter().map(|c| (c.block, c.buf.data())).collect();
                    home::write(&**self.cache().dev(), bs, &now)
                } else {
                    home::write(&**self.cache().dev(), bs, &batch)
                };
                let mut cp = log.checkpoint.lock();
                cp.in_flight.clear();
                log.batch_ended.notify_all();
                drop(cp);
                r?;
                self.check_commit()?;
                if !seeded::on(Fault::NoFlushBeforeTail) {
                    self.flusher.flush()?;
                }
            }
            let (finished, pending) = {
                let mut cp = log.checkpoint.lock();
                cp.settle(&batch);
                (cp.finished(), cp.pending())
            };
            let (free, waiting) = {
                let st = self.state.lock();
                (st.log_free + finished, st.space_waiters > 0)
            };
            let stop = done || enough(free, pending);
            if finished > 0 && (stop || waiting || finished > self.log_len / 8) {
                self.move_tail(log)?;
            }
            if stop {
                return Ok(());
            }
        }
    }

    /// Gives the log space of finished transactions back, once the superblock says where the log
    /// begins now.
    fn move_tail(&self, log: &Log) -> Result<()> {
        let (freed, tail) = {
            let mut cp = log.checkpoint.lock();
            (cp.drop_finished(), cp.tail())
        };
        self.check_commit()?;
        if !seeded::on(Fault::SpaceBeforeTail) {
            log.write_tail(tail.seq, tail.start, self.live.barrier())?;
        }
        let mut st = self.state.lock();
        st.log_free += freed;
        if st.space_waiters > 0 {
            self.startable.notify_all();
        }
        Ok(())
    }

    /// After a commit: older versions of the blocks it freed are dropped, and one on its way home is
    /// waited for, so that the blocks can be used for something else.
    pub(super) fn forget_committed(&self, log: &Log, blocks: &[Block]) {
        let mut cp = log.checkpoint.lock();
        for &b in blocks {
            if cp.forget(b) {
                while cp.is_in_flight(b) {
                    log.batch_ended.wait(&mut cp);
                }
            }
        }
    }
}
