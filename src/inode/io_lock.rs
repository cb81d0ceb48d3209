//! The I/O lock of an inode: shared or exclusive, first come first served, and
//! owned by a *request*, not by a thread: the ticket can travel to the thread
//! that completes the request. What is held and what waits can be listed, which
//! is what the watchdog and the `locks` control file print.

use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

/// How the lock is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// Together with other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

type Grant = Box<dyn FnOnce(Ticket) + Send>;

enum Wake {
    /// A thread sleeps on the lock's condition variable until its id is granted.
    Thread,
    /// Called with the ticket by whoever releases the lock; must not block.
    Call(Grant),
}

struct Waiter {
    id: u64,
    share: Share,
    op: &'static str,
    since: Instant,
    wake: Wake,
}

struct Holder {
    id: u64,
    share: Share,
    op: &'static str,
    since: Instant,
}

#[derive(Default)]
struct State {
    next_id: u64,
    holders: Vec<Holder>,
    queue: VecDeque<Waiter>,
}

impl State {
    fn free_for(&self, share: Share) -> bool {
        match share {
            Share::Shared => self.holders.iter().all(|h| h.share == Share::Shared),
            Share::Exclusive => self.holders.is_empty(),
        }
    }

    fn enter(&mut self, share: Share, op: &'static str) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.holders.push(Holder { id, share, op, since: Instant::now() });
        id
    }

    /// Moves every waiter that can run now from the queue to the holders.
    /// Returns the callbacks to run once the state is unlocked, and whether a
    /// thread has to be woken.
    fn promote(&mut self) -> (Vec<(u64, Grant)>, bool) {
        let (mut calls, mut threads) = (Vec::new(), false);
        while let Some(w) = self.queue.front() {
            if !self.free_for(w.share) {
                break;
            }
            if let Some(w) = self.queue.pop_front() {
                self.holders.push(Holder {
                    id: w.id,
                    share: w.share,
                    op: w.op,
                    since: Instant::now(),
                });
                match w.wake {
                    Wake::Thread => threads = true,
                    Wake::Call(f) => calls.push((w.id, f)),
                }
            }
        }
        (calls, threads)
    }
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    granted: Condvar,
}

/// A fair shared/exclusive lock whose tickets are owned by requests. Lock rank 3.
#[derive(Default, Clone)]
pub struct IoLock(Arc<Inner>);

/// The right to the lock; dropping it gives the lock to the next in line.
pub struct Ticket {
    lock: Arc<Inner>,
    id: u64,
}

/// One line of the `locks` control file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockLine {
    /// Shared or exclusive.
    pub share: Share,
    /// The operation that holds or waits.
    pub op: &'static str,
    /// Held (true) or waiting (false).
    pub held: bool,
    /// For how long.
    pub age: Duration,
}

impl IoLock {
    /// Takes the lock, sleeping as long as it takes.
    pub fn acquire(&self, share: Share, op: &'static str) -> Ticket {
        let mut s = self.0.state.lock();
        if s.queue.is_empty() && s.free_for(share) {
            let id = s.enter(share, op);
            return Ticket { lock: self.0.clone(), id };
        }
        s.next_id += 1;
        let id = s.next_id;
        s.queue.push_back(Waiter { id, share, op, since: Instant::now(), wake: Wake::Thread });
        while !s.holders.iter().any(|h| h.id == id) {
            self.0.granted.wait(&mut s);
        }
        Ticket { lock: self.0.clone(), id }
    }

    /// Takes the lock if that needs no waiting.
    pub fn try_acquire(&self, share: Share, op: &'static str) -> Option<Ticket> {
        let mut s = self.0.state.lock();
        if s.queue.is_empty() && s.free_for(share) {
            let id = s.enter(share, op);
            return Some(Ticket { lock: self.0.clone(), id });
        }
        None
    }

    /// Takes the lock and calls `grant` with the ticket: at once, or from the
    /// thread that releases it. `grant` must not block.
    pub fn acquire_then(
        &self,
        share: Share,
        op: &'static str,
        grant: impl FnOnce(Ticket) + Send + 'static,
    ) {
        let mut s = self.0.state.lock();
        if s.queue.is_empty() && s.free_for(share) {
            let id = s.enter(share, op);
            drop(s);
            grant(Ticket { lock: self.0.clone(), id });
            return;
        }
        s.next_id += 1;
        let id = s.next_id;
        let wake = Wake::Call(Box::new(grant));
        s.queue.push_back(Waiter { id, share, op, since: Instant::now(), wake });
    }

    /// Who holds the lock and who waits, in order.
    pub fn list(&self) -> Vec<LockLine> {
        let s = self.0.state.lock();
        let held = s.holders.iter().map(|h| LockLine {
            share: h.share,
            op: h.op,
            held: true,
            age: h.since.elapsed(),
        });
        let waiting = s.queue.iter().map(|w| LockLine {
            share: w.share,
            op: w.op,
            held: false,
            age: w.since.elapsed(),
        });
        held.chain(waiting).collect()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let (calls, threads) = {
            let mut s = self.lock.state.lock();
            s.holders.retain(|h| h.id != self.id);
            s.promote()
        };
        if threads {
            self.lock.granted.notify_all();
        }
        for (id, grant) in calls {
            grant(Ticket { lock: self.lock.clone(), id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn shared_together_exclusive_alone_in_order() {
        let l = IoLock::default();
        let a = l.acquire(Share::Shared, "read");
        let b = l.try_acquire(Share::Shared, "read");
        assert!(b.is_some());
        assert!(l.try_acquire(Share::Exclusive, "write").is_none());
        let order = Arc::new(AtomicU32::new(0));
        let o = order.clone();
        let held: Arc<Mutex<Vec<Ticket>>> = Arc::default();
        let h = held.clone();
        l.acquire_then(Share::Exclusive, "write", move |t| {
            o.store(1, Ordering::SeqCst);
            h.lock().push(t);
        });
        // A reader that comes after a waiting writer waits behind it.
        assert!(l.try_acquire(Share::Shared, "read").is_none());
        assert_eq!(order.load(Ordering::SeqCst), 0);
        drop(a);
        drop(b);
        assert_eq!(order.load(Ordering::SeqCst), 1);
        assert_eq!(l.list().len(), 1);
        held.lock().clear();
        assert!(l.list().is_empty());
    }

    #[test]
    fn threads_wait_their_turn() {
        let l = IoLock::default();
        let n = Arc::new(Mutex::new(0u64));
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let (l, n) = (l.clone(), n.clone());
                std::thread::spawn(move || {
                    for _ in 0..500 {
                        if i % 2 == 0 {
                            let _t = l.acquire(Share::Exclusive, "write");
                            let v = *n.lock();
                            std::thread::yield_now();
                            *n.lock() = v + 1;
                        } else {
                            drop(l.acquire(Share::Shared, "read"));
                        }
                    }
                })
            })
            .collect();
        for t in threads {
            assert!(t.join().is_ok());
        }
        assert_eq!(*n.lock(), 2000);
    }
}
