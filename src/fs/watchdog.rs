//! The watchdog: a request that is not answered for too long is logged once, with who holds the I/O
//! lock that it waits for. What the kernel's "hung task" line does not say.

use super::Requests;
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
    pub(super) fn start(vol: &Arc<Volume>, requests: &Arc<Requests>) -> std::io::Result<Watchdog> {
        let limit = Arc::new(AtomicU64::new(nanos(vol.conf.watchdog)));
        let (tx, rx) = bounded::<()>(1);
        let (vol, requests, old) = (vol.clone(), requests.clone(), limit.clone());
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
                        for line in look(&vol, &requests, limit, &mut told) {
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

/// Names a request that was told of: one of the list, or one of an I/O lock.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
enum Told {
    Request(u64),
    Lock(Ino, u64),
}

/// One line for each request that is older than `limit` and not among `told`. Who holds or waits for an
/// I/O lock without being a request from outside counts too.
fn look(
    vol: &Volume,
    requests: &Requests,
    limit: Duration,
    told: &mut HashSet<Told>,
) -> Vec<String> {
    let mut out = Vec::new();
    let mut old = HashSet::new();
    let listed = requests.older_than(limit);
    for r in &listed {
        let name = Told::Request(r.id);
        old.insert(name);
        if told.contains(&name) {
            continue;
        }
        let locks = vol.inodes.peek(r.ino).map(|i| i.io.list()).unwrap_or_default();
        let mine = locks.iter().filter(|l| l.op == r.op);
        let mine = mine.max_by_key(|l| (!l.held, l.age));
        out.push(text(r.op, r.ino, r.age, mine, &locks));
    }
    for i in vol.inodes.all() {
        let lines = i.io.list();
        for l in lines.iter().filter(|l| l.age >= limit) {
            let name = Told::Lock(i.ino, l.id);
            old.insert(name);
            let known = listed.iter().any(|r| r.ino == i.ino && r.op == l.op);
            if !known && !told.contains(&name) {
                out.push(text(l.op, i.ino, l.age, Some(l), &lines));
            }
        }
    }
    *told = old;
    out
}

fn text(op: &str, ino: Ino, age: Duration, mine: Option<&LockLine>, all: &[LockLine]) -> String {
    let mut s = format!("{op} on inode {ino}: not done after {:.1} s", age.as_secs_f64());
    match mine {
        None => return s,
        Some(l) if l.held => {
            let _ = write!(s, "; it holds the I/O lock ({:?})", l.share);
            return s;
        }
        Some(l) => {
            let _ = write!(s, "; it waits for the I/O lock ({:?}), held by", l.share);
        }
    }
    let mut holders = all.iter().filter(|h| h.held).peekable();
    if holders.peek().is_none() {
        s.push_str(" nobody now");
    }
    for (n, h) in holders.enumerate() {
        let sep = if n == 0 { "" } else { "," };
        let _ = write!(s, "{sep} {} ({:?}) for {:.1} s", h.op, h.share, h.age.as_secs_f64());
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
        let requests = Requests::new();
        let root = t.vol.inodes.get(&t.vol, Ino::ROOT).unwrap();
        let held = root.io.acquire(Share::Exclusive, "dioread_mode");
        let reader = requests.begin("direct read", Ino::ROOT);
        let _other = requests.begin("fsync", Ino::ROOT);
        root.io.acquire_then(Share::Shared, "direct read", false, drop);
        let mut told = HashSet::new();
        assert!(look(&t.vol, &requests, Duration::from_secs(5), &mut told).is_empty());
        let lines = look(&t.vol, &requests, Duration::ZERO, &mut told);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].starts_with("direct read on inode 2"), "{lines:?}");
        assert!(lines[0].contains("held by dioread_mode (Exclusive) for"), "{lines:?}");
        assert!(lines[1].starts_with("fsync on inode 2: not done after"), "{lines:?}");
        assert!(lines[2].contains("it holds the I/O lock"), "{lines:?}");
        assert!(look(&t.vol, &requests, Duration::ZERO, &mut told).is_empty());
        drop((held, reader));
        assert!(root.io.list().is_empty());
    }
}
