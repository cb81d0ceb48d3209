//! Which inodes are dirty, how much memory they take, and who waits for it.

use super::{
    policy::{self, Ask},
    stats::Stats,
};
use crate::{
    inode::{Inode, Volume},
    options::PolicyName,
    types::{BlockSize, Ino},
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
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
    expire_ms: AtomicU64,
    /// How often the flusher looks (`dirty_writeback`), in milliseconds; 0: never by itself.
    period_ms: AtomicU64,
    /// The mount's policy: its place in [`policy::NAMES`].
    policy: AtomicU8,
    /// What a pass starts from, in pages of 4 KiB.
    nr_to_write: AtomicU32,
    /// What a policy may raise it to, in MiB.
    max_mb_bump: AtomicU32,
    list: Mutex<List>,
    /// Throttled writers and the flusher sleep here. Leaf.
    gate: Mutex<()>,
    room: Condvar,
    work: Condvar,
    pub(super) stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Called, with the inode's number, when write-out changed what stat(2) says of its blocks.
    blocks_moved: OnceLock<Box<dyn Fn(Ino) + Send + Sync>>,
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
            policy: AtomicU8::new(policy::index(c.writeback_policy) as u8),
            nr_to_write: AtomicU32::new(c.nr_to_write),
            max_mb_bump: AtomicU32::new(c.max_writeback_mb_bump),
            list: Mutex::default(),
            gate: Mutex::new(()),
            room: Condvar::new(),
            work: Condvar::new(),
            stop: AtomicBool::new(false),
            thread: Mutex::new(None),
            blocks_moved: OnceLock::new(),
            stats: Stats::default(),
        }
    }

    /// Sets what is called when write-out changed what stat(2) says of an inode's blocks: whoever
    /// keeps that. Once; it must not wait for a lock of this crate.
    pub fn on_blocks_moved(&self, f: impl Fn(Ino) + Send + Sync + 'static) {
        let _ = self.blocks_moved.set(Box::new(f));
    }

    /// A write-out of the inode is over.
    pub(super) fn settled(&self, inode: &Inode, bs: BlockSize) {
        let told = inode.told_blocks.load(Ordering::Acquire);
        if told == u64::MAX {
            return;
        }
        let now = inode.stat_blocks512(bs);
        if now != told
            && inode.told_blocks.swap(u64::MAX, Ordering::AcqRel) != u64::MAX
            && let Some(f) = self.blocks_moved.get()
        {
            f(inode.ino);
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

    /// `dirty_expire`: the age at which dirty data is written.
    pub fn expire(&self) -> Duration {
        Duration::from_millis(self.expire_ms.load(Ordering::Relaxed))
    }

    /// Changes `dirty_expire`.
    pub fn set_expire(&self, d: Duration) {
        self.expire_ms.store(millis(d), Ordering::Relaxed);
        self.work.notify_one();
    }

    /// `dirty_writeback`: how often the flusher looks for old data; zero: never.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms.load(Ordering::Relaxed))
    }

    /// Changes `dirty_writeback`.
    pub fn set_period(&self, d: Duration) {
        self.period_ms.store(millis(d), Ordering::Relaxed);
        self.work.notify_one();
    }

    /// `writeback_policy` of the mount.
    pub fn policy(&self) -> PolicyName {
        named(self.policy.load(Ordering::Relaxed)).unwrap_or(PolicyName::Extent)
    }

    /// Changes it, for every inode that has none of its own.
    pub fn set_policy(&self, p: PolicyName) {
        self.policy.store(policy::index(p) as u8, Ordering::Relaxed);
    }

    /// The policy that write-out of this inode follows.
    pub fn policy_of(&self, inode: &Inode) -> PolicyName {
        let own = inode.wb_policy.load(Ordering::Relaxed).checked_sub(1);
        own.and_then(named).unwrap_or_else(|| self.policy())
    }

    /// Gives this inode a policy of its own, or (`None`) the mount's again.
    pub fn set_policy_of(&self, inode: &Inode, p: Option<PolicyName>) {
        let v = p.map_or(0, |p| policy::index(p) as u8 + 1);
        inode.wb_policy.store(v, Ordering::Relaxed);
    }

    /// `nr_to_write` in pages of 4 KiB.
    pub fn nr_to_write(&self) -> u32 {
        self.nr_to_write.load(Ordering::Relaxed)
    }

    /// Changes `nr_to_write`.
    pub fn set_nr_to_write(&self, pages: u32) {
        self.nr_to_write.store(pages.max(1), Ordering::Relaxed);
    }

    /// `max_writeback_mb_bump` in MiB.
    pub fn max_mb_bump(&self) -> u32 {
        self.max_mb_bump.load(Ordering::Relaxed)
    }

    /// Changes `max_writeback_mb_bump`.
    pub fn set_max_mb_bump(&self, mib: u32) {
        self.max_mb_bump.store(mib.max(1), Ordering::Relaxed);
    }

    /// What a background pass is asked for, in blocks of this size.
    pub(super) fn ask(&self, bs: BlockSize) -> Ask {
        let blocks = |bytes: u64| (bytes >> bs.log2()).max(1);
        Ask {
            nr_to_write: blocks(u64::from(self.nr_to_write()) << 12),
            cap: blocks(u64::from(self.max_mb_bump()) << 20),
            whole: true,
            cyclic: true,
        }
    }

    /// Sleeps until there is work or the period is over.
    pub(super) fn sleep(&self) {
        let period = self.period();
        let mut g = self.gate.lock();
        if self.stop.load(Ordering::Acquire) || self.over_background() {
            return;
        }
        if period.is_zero() {
            self.work.wait_for(&mut g, NEVER);
        } else {
            self.work.wait_for(&mut g, period.max(SHORTEST_PERIOD));
        }
    }

    /// Whether the flusher has been told to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Every inode on the list now, oldest first; they stay on it.
    pub fn dirty_inodes(&self) -> Vec<Arc<Inode>> {
        self.list.lock().order.iter().cloned().collect()
    }

    /// Takes off the list what has nothing more to write. Who dirties an inode marks it afterwards, so
    /// that none gets lost; and one that is being written out stays on it, so that sync finds it.
    pub(super) fn drop_clean(&self) {
        self.list.lock().order.retain(|i| {
            i.wb_listed.store(false, Ordering::SeqCst);
            let dirty = !i.pages.lock().is_empty() || i.attrs().dirty;
            // Who marked it since then is about to list it again.
            dirty && !i.wb_listed.swap(true, Ordering::SeqCst)
        });
    }
}

/// How long the flusher sleeps at most if it is not to look by itself.
const NEVER: Duration = Duration::from_secs(3600);
/// The flusher looks no more often than this.
const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

fn named(i: u8) -> Option<PolicyName> {
    policy::NAMES.get(usize::from(i)).copied()
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
