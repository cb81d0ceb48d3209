//! Which inodes are dirty, how much memory they take, and who waits for it.

use super::policy::Stats;
use crate::inode::{Inode, Volume};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

#[derive(Default)]
struct List {
    order: VecDeque<Arc<Inode>>,
}

/// Write-back of one volume.
pub struct Writeback {
    /// Bytes in dirty pages and pages in flight.
    dirty_bytes: AtomicU64,
    /// Writers wait above this (`dirty_bytes`).
    limit: AtomicU64,
    /// The flusher starts above this (`dirty_background_bytes`).
    background: AtomicU64,
    /// Age at which dirty data is written (`dirty_expire`), in milliseconds.
    pub(super) expire_ms: AtomicU64,
    /// How often the flusher looks (`dirty_writeback`), in milliseconds.
    pub(super) period_ms: AtomicU64,
    list: Mutex<List>,
    /// Throttled writers and the flusher sleep here. Leaf.
    gate: Mutex<()>,
    room: Condvar,
    work: Condvar,
    pub(super) stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Counters of all passes.
    pub stats: Stats,
}

impl Writeback {
    /// With the limits of the volume's mount options; nothing runs before [`Writeback::start`].
    pub fn new(vol: &Volume) -> Writeback {
        let c = &vol.conf;
        Writeback {
            dirty_bytes: AtomicU64::new(0),
            limit: AtomicU64::new(c.dirty_bytes),
            background: AtomicU64::new(c.dirty_background_bytes),
            expire_ms: AtomicU64::new(c.dirty_expire.as_millis() as u64),
            period_ms: AtomicU64::new(c.dirty_writeback.as_millis() as u64),
            list: Mutex::default(),
            gate: Mutex::new(()),
            room: Condvar::new(),
            work: Condvar::new(),
            stop: AtomicBool::new(false),
            thread: Mutex::new(None),
            stats: Stats::default(),
        }
    }

    /// Starts the flusher.
    pub fn start(self: &Arc<Self>, vol: &Arc<Volume>) -> std::io::Result<()> {
        let (wb, vol): (Weak<Writeback>, Weak<Volume>) =
            (Arc::downgrade(self), Arc::downgrade(vol));
        let t = std::thread::Builder::new()
            .name("uext4-flush".into())
            .spawn(move || super::flusher::run(&wb, &vol))?;
        *self.thread.lock() = Some(t);
        Ok(())
    }

    /// Stops the flusher; what is dirty stays so.
    pub fn shutdown(&self) {
        self.stop.store(true, Ordering::Release);
        drop(self.gate.lock());
        self.work.notify_all();
        self.room.notify_all();
        if let Some(t) = self.thread.lock().take() {
            let _ = t.join();
        }
    }

    /// Bytes that wait to be written.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Acquire)
    }

    /// The inode has dirty pages or times from now on: the flusher will see to it.
    pub fn mark(&self, inode: &Arc<Inode>) {
        if !inode.wb_listed.swap(true, Ordering::AcqRel) {
            self.list.lock().order.push_back(inode.clone());
        }
    }

    /// `bytes` more are dirty.
    pub fn dirtied(&self, bytes: u64) {
        let now = self.dirty_bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let background = self.background.load(Ordering::Relaxed);
        if now > background && now - bytes <= background {
            self.work.notify_one();
        }
    }

    /// `bytes` are on the device, or dropped.
    pub fn cleaned(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let was = self.dirty_bytes.fetch_sub(bytes, Ordering::AcqRel);
        let limit = self.limit.load(Ordering::Relaxed);
        if was > limit {
            drop(self.gate.lock());
            self.room.notify_all();
        }
    }

    /// Waits while more is dirty than `dirty_bytes` allows. The caller holds no lock.
    pub fn throttle(&self) {
        if self.dirty_bytes() <= self.limit.load(Ordering::Relaxed) {
            return;
        }
        let mut g = self.gate.lock();
        while self.dirty_bytes() > self.limit.load(Ordering::Relaxed)
            && !self.stop.load(Ordering::Acquire)
        {
            self.work.notify_one();
            self.room.wait_for(&mut g, Duration::from_millis(200));
        }
    }

    /// More is dirty than writers may have.
    pub fn is_over_limit(&self) -> bool {
        self.dirty_bytes() > self.limit.load(Ordering::Relaxed)
    }

    /// `dirty_bytes`: writers wait above it.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes `dirty_bytes`.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
        self.room.notify_all();
    }

    /// `dirty_background_bytes`: the flusher starts above it.
    pub fn background(&self) -> u64 {
        self.background.load(Ordering::Relaxed)
    }

    /// Changes `dirty_background_bytes`.
    pub fn set_background(&self, bytes: u64) {
        self.background.store(bytes, Ordering::Relaxed);
        self.work.notify_one();
    }

    /// Above the background threshold.
    pub(super) fn over_background(&self) -> bool {
        self.dirty_bytes() > self.background.load(Ordering::Relaxed)
    }

    /// Sleeps until there is work or the period is over.
    pub(super) fn sleep(&self) {
        let period = Duration::from_millis(self.period_ms.load(Ordering::Relaxed).max(10));
        let mut g = self.gate.lock();
        if self.stop.load(Ordering::Acquire) || self.over_background() {
            return;
        }
        self.work.wait_for(&mut g, period);
    }

    /// The oldest of the dirty inodes, taken off the list.
    pub(super) fn pop(&self) -> Option<Arc<Inode>> {
        let i = self.list.lock().order.pop_front()?;
        i.wb_listed.store(false, Ordering::Release);
        Some(i)
    }

    /// How many inodes are on the list.
    pub(super) fn listed(&self) -> usize {
        self.list.lock().order.len()
    }

    /// Every inode on the list now; they stay on it.
    pub fn dirty_inodes(&self) -> Vec<Arc<Inode>> {
        self.list.lock().order.iter().cloned().collect()
    }
}
