//! The gate of an inode: every read and every direct request passes it and is
//! counted until it completes. Whoever takes blocks away (truncate, punch,
//! collapse, a switch of the lock mode) closes the door, waits for the count to
//! reach zero, changes the map and opens the door, so that no request in
//! flight targets a block that belongs to somebody else.

use parking_lot::{Condvar, Mutex};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

const CLOSED: u64 = 1 << 63;

#[derive(Default)]
struct Inner {
    /// Requests in flight, plus [`CLOSED`].
    word: AtomicU64,
    sleepers: Mutex<u32>,
    changed: Condvar,
}

/// Counts requests in flight; can be closed and drained.
#[derive(Default, Clone)]
pub struct IoGate(Arc<Inner>);

/// A request in flight; dropping it says the request has completed.
pub struct Pass(Arc<Inner>);

/// The door is closed; dropping it opens the door.
pub struct Closed(Arc<Inner>);

impl IoGate {
    /// Enters if the door is open.
    pub fn try_enter(&self) -> Option<Pass> {
        let was = self.0.word.fetch_add(1, Ordering::AcqRel);
        let pass = Pass(self.0.clone());
        (was & CLOSED == 0).then_some(pass)
    }

    /// Enters, waiting while the door is closed.
    pub fn enter(&self) -> Pass {
        loop {
            if let Some(p) = self.try_enter() {
                return p;
            }
            let mut s = self.0.sleepers.lock();
            *s += 1;
            while self.0.word.load(Ordering::Acquire) & CLOSED != 0 {
                self.0.changed.wait(&mut s);
            }
            *s -= 1;
        }
    }

    /// Closes the door and waits for all requests in flight. One closer at a
    /// time: callers hold the inode's I/O lock exclusively.
    pub fn close(&self) -> Closed {
        let closed = Closed(self.0.clone());
        self.0.word.fetch_or(CLOSED, Ordering::AcqRel);
        let mut s = self.0.sleepers.lock();
        *s += 1;
        while self.0.word.load(Ordering::Acquire) != CLOSED {
            self.0.changed.wait(&mut s);
        }
        *s -= 1;
        drop(s);
        closed
    }

    /// Whether [`IoGate::enter`] would wait now.
    pub fn is_closed(&self) -> bool {
        self.0.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Requests in flight now.
    pub fn in_flight(&self) -> u64 {
        self.0.word.load(Ordering::Acquire) & !CLOSED
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let was = self.0.word.fetch_sub(1, Ordering::AcqRel);
        if was == (CLOSED | 1) {
            drop(self.0.sleepers.lock());
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.word.fetch_and(!CLOSED, Ordering::AcqRel);
        drop(self.0.sleepers.lock());
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::atomic::AtomicBool, time::Duration};

    #[test]
    fn close_waits_for_those_inside_and_keeps_others_out() {
        let g = IoGate::default();
        let pass = g.enter();
        let done = Arc::new(AtomicBool::new(false));
        let closer = {
            let (g, done) = (g.clone(), done.clone());
            std::thread::spawn(move || {
                let c = g.close();
                done.store(true, Ordering::SeqCst);
                c
            })
        };
        while g.0.word.load(Ordering::SeqCst) & CLOSED == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(g.try_enter().is_none());
        assert!(!done.load(Ordering::SeqCst));
        drop(pass);
        let closed = closer.join().ok();
        assert!(done.load(Ordering::SeqCst));
        let late = {
            let g = g.clone();
            std::thread::spawn(move || drop(g.enter()))
        };
        drop(closed);
        assert!(late.join().is_ok());
        assert_eq!(g.in_flight(), 0);
    }
}
