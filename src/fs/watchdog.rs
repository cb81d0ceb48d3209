//! The watchdog: a request that holds or waits for an I/O lock for too long is logged once, with who
//! holds the lock that it waits for. What the kernel's "hung task" line does not say.

use crate::{
    inode::{Volume, io_lock::LockLine},
    types::Ino,
};
use crossbeam::channel::{RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use std::{
    collections::HashSet,
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

/// How often it looks if it is off, so that it need not be told.
const IDLE: Duration = Duration::from_secs(60);

/// The thread that looks, and how old a request may get.
pub(super) struct Watchdog {
    /// Nanoseconds; zero is off.
    limit: Arc<AtomicU64>,
    thread: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl Watchdog {
    pub(super) fn start(vol: &Arc<Volume>) -> std::io::Result<Watchdog> {
        let limit = Arc::new(AtomicU64::new(nanos(vol.conf.watchdog)));
        let (tx, rx) = bounded::<()>(1);
        let (vol, old) = (vol.clone(), limit.clone());
        let t = std::thread::Builder::new().name("uext4-watchdog".into()).spawn(move || {
            let mut told = HashSet::new();
            loop {
                let limit = Duration::from_nanos(old.load(Relaxed));
                let pause = match limit.is_zero() {
                    true => IDLE,
                    false => (limit / 8).clamp(Duration::from_millis(50), Duration::from_secs(5)),
                };
                match rx.recv_timeout(pause) {
                    Err(RecvTimeoutError::Disconnected) => return,
                    // The limit has changed.
                    Ok(()) => {}
                    Err(RecvTimeoutError::Timeout) if limit.is_zero() => {}
                    Err(RecvTimeoutError::Timeout) => {
                        for line in look(&vol, limit, &mut told) {
                            log::warn!("{line}");
                        }
                    }
                }
            }
        })?;
        Ok(Watchdog { limit, thread: Mutex::new(Some((tx, t))) })
    }

    /// How old a request may get before it is logged; zero is off.
    pub(super) fn limit(&self) -> Duration {
        Duration::from_nanos(self.limit.load(Relaxed))
    }

    /// Changes [`Watchdog::limit`], at once.
    pub(super) fn set_limit(&self, limit: Duration) {
        self.limit.store(nanos(limit), Relaxed);
        if let Some((tx, _)) = &*self.thread.lock() {
            let _ = tx.try_send(());
        }
    }

    pub(super) fn stop(&self) {
        if let Some((tx, t)) = self.thread.lock().take() {
            drop(tx);
            let _ = t.join();
        }
    }
}

fn nanos(t: Duration) -> u64 {
    u64::try_from(t.as_nanos()).unwrap_or(u64::MAX)
}

/// One line for each request that is older than `limit` and not among `told`.
fn look(vol: &Volume, limit: Duration, told: &mut HashSet<(Ino, u64)>) -> Vec<String> {
    let mut out = Vec::new();
    let mut old = HashSet::new();
    for i in vol.inodes.all() {
        let lines = i.io.list();
        for l in lines.iter().filter(|l| l.age >= limit) {
            old.insert((i.ino, l.id));
            if !told.contains(&(i.ino, l.id)) {
                out.push(text(i.ino, l, &lines));
            }
        }
    }
    *told = old;
    out
}

fn text(ino: Ino, l: &LockLine, all: &[LockLine]) -> String {
    let secs = |l: &LockLine| l.age.as_secs_f64();
    let mut s = format!("{} on inode {ino}: not done after {:.1} s", l.op, secs(l));
    if l.held {
        let _ = write!(s, "; it holds the I/O lock ({:?})", l.share);
        return s;
    }
    let _ = write!(s, "; it waits for the I/O lock ({:?}), held by", l.share);
    let mut holders = all.iter().filter(|h| h.held).peekable();
    if holders.peek().is_none() {
        s.push_str(" nobody now");
    }
    for (n, h) in holders.enumerate() {
        let sep = if n == 0 { "" } else { "," };
        let _ = write!(s, "{sep} {} ({:?}) for {:.1} s", h.op, h.share, secs(h));
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::{Share, testing};

    #[test]
    fn told_once_with_the_holder() {
        let t = testing::mkfs(8, &[]);
        let root = t.vol.inodes.get(&t.vol, Ino::ROOT).unwrap();
        let held = root.io.acquire(Share::Exclusive, "direct write");
        root.io.acquire_then(Share::Shared, "direct read", drop);
        let mut told = HashSet::new();
        assert!(look(&t.vol, Duration::from_secs(5), &mut told).is_empty());
        let lines = look(&t.vol, Duration::ZERO, &mut told);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].starts_with("direct read on inode 2"), "{lines:?}");
        assert!(lines[1].contains("held by direct write (Exclusive) for"), "{lines:?}");
        assert!(look(&t.vol, Duration::ZERO, &mut told).is_empty());
        drop(held);
        assert!(root.io.list().is_empty());
    }
}
