//! The I/O lock of an inode: shared or exclusive, and owned by a *request*, not by a
//! thread: the ticket can travel to the thread that completes the request. What is held and
//! what waits can be listed, which is what the watchdog and the `locks` control file print.
//!
//! Order is first come first served, but for those who *yield* ([`IoLock::acquire_yielding`]):
//! direct reads in the lock mode `lock`. They stand for the sleepers on the mutex of 2.6.33, which
//! did not hand itself over: whoever was running took it before a woken sleeper got to the
//! processor. So a yielding request is passed by everybody else who waits, and after an exclusive
//! holder it lets [`HEADWAY`] go by, in which that writer's next request arrives. It gets its turn when
//! nobody else wants the lock, or after [`PATIENCE`]: no request waits for ever.

use crossbeam::channel::{Sender, unbounded};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock, Weak},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// How long a lock that an exclusive holder let go is kept from those who yield: the time in which a
/// writer that was answered comes back with its next request.
pub const HEADWAY: Duration = Duration::from_millis(4);
/// After so long, one who yields is served before everybody else.
pub const PATIENCE: Duration = Duration::from_millis(2500);

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
    /// A parked thread, which looks for its id among the holders.
    Thread(Thread),
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
    yields: bool,
}

#[derive(Default)]
struct State {
    next_id: u64,
    holders: Vec<Holder>,
    queue: VecDeque<Waiter>,
    /// Those who yield, in order.
    yielding: VecDeque<Waiter>,
    /// Until then a free lock is not for them.
    headway: Option<Instant>,
    /// Somebody will look when the headway is over.
    timer_set: bool,
}

/// Whom to wake once the state is unlocked.
#[derive(Default)]
struct Woken {
    calls: Vec<(u64, Grant)>,
    threads: Vec<Thread>,
    look_again: Option<Instant>,
}

impl Woken {
    fn tell(self, lock: &Arc<Inner>) {
        if let Some(t) = self.look_again {
            look_at(t, lock);
        }
        for t in self.threads {
            t.unpark();
        }
        for (id, grant) in self.calls {
            grant(Ticket { lock: lock.clone(), id });
        }
    }
}

impl State {
    fn free_for(&self, share: Share) -> bool {
        match share {
            Share::Shared => self.holders.iter().all(|h| h.share == Share::Shared),
            Share::Exclusive => self.holders.is_empty(),
        }
    }

    fn overdue(&self) -> bool {
        self.yielding.front().is_some_and(|w| w.since.elapsed() >= PATIENCE)
    }

    /// Whether one who comes now may enter at once.
    fn open_to(&self, share: Share) -> bool {
        self.queue.is_empty() && self.free_for(share) && !self.overdue()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn enter(&mut self, share: Share, op: &'static str, yields: bool) -> u64 {
        let id = self.new_id();
        self.holders.push(Holder { id, share, op, since: Instant::now(), yields });
        id
    }

    /// One more who yields.
    fn line_up(&mut self, w: Waiter) -> Woken {
        self.yielding.push_back(w);
        // The lock may be free, and nobody about to release it.
        if self.holders.is_empty() { self.promote() } else { Woken::default() }
    }

    fn admit(&mut self, w: Waiter, yields: bool, out: &mut Woken) {
        let since = Instant::now();
        self.holders.push(Holder { id: w.id, share: w.share, op: w.op, since, yields });
        match w.wake {
            Wake::Thread(t) => out.threads.push(t),
            Wake::Call(f) => out.calls.push((w.id, f)),
        }
    }

    /// Makes holders of those who can run now.
    fn promote(&mut self) -> Woken {
        let mut out = Woken::default();
        if self.overdue() {
            self.admit_yielding(&mut out);
            if self.overdue() {
                return out;
            }
        }
        while let Some(w) = self.queue.front() {
            if !self.free_for(w.share) {
                return out;
            }
            if let Some(w) = self.queue.pop_front() {
                self.admit(w, false, &mut out);
            }
        }
        match self.headway {
            Some(t) if Instant::now() < t => {
                if self.holders.is_empty() && !self.yielding.is_empty() && !self.timer_set {
                    self.timer_set = true;
                    out.look_again = Some(t);
                }
            }
            _ => self.admit_yielding(&mut out),
        }
        out
    }

    fn admit_yielding(&mut self, out: &mut Woken) {
        while self.yielding.front().is_some_and(|w| self.free_for(w.share)) {
            if let Some(w) = self.yielding.pop_front() {
                self.admit(w, true, out);
            }
        }
    }
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
}

/// Looks at a lock again at a later time. All are [`HEADWAY`] ahead, so they come due in order.
fn look_at(when: Instant, lock: &Arc<Inner>) {
    static TIMER: OnceLock<Sender<(Instant, Weak<Inner>)>> = OnceLock::new();
    let timer = TIMER.get_or_init(|| {
        let (tx, rx) = unbounded::<(Instant, Weak<Inner>)>();
        let started = thread::Builder::new().name("uext4-headway".into()).spawn(move || {
            for (when, lock) in rx {
                thread::sleep(when.saturating_duration_since(Instant::now()));
                lock.upgrade().inspect(look_now);
            }
        });
        if let Err(e) = started {
            log::error!("no thread for the mode `lock`: {e}");
        }
        tx
    });
    if timer.send((when, Arc::downgrade(lock))).is_err() {
        // No thread: those who wait get the lock ahead of time.
        lock.state.lock().headway = None;
        look_now(lock);
    }
}

fn look_now(lock: &Arc<Inner>) {
    let woken = {
        let mut s = lock.state.lock();
        s.timer_set = false;
        s.promote()
    };
    woken.tell(lock);
}

/// A shared/exclusive lock whose tickets are owned by requests. Lock rank 3.
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
    /// Names the request among those of this lock.
    pub id: u64,
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
        if s.open_to(share) {
            let id = s.enter(share, op, false);
            return Ticket { lock: self.0.clone(), id };
        }
        let id = s.new_id();
        let wake = Wake::Thread(thread::current());
        s.queue.push_back(Waiter { id, share, op, since: Instant::now(), wake });
        while !s.holders.iter().any(|h| h.id == id) {
            parking_lot::MutexGuard::unlocked(&mut s, thread::park);
        }
        Ticket { lock: self.0.clone(), id }
    }

    /// Takes the lock, sleeping as long as it takes, and lets others pass: see the module.
    pub fn acquire_yielding(&self, share: Share, op: &'static str) -> Ticket {
        let mut s = self.0.state.lock();
        if s.open_to(share) && s.yielding.is_empty() {
            let id = s.enter(share, op, true);
            return Ticket { lock: self.0.clone(), id };
        }
        let id = s.new_id();
        let wake = Wake::Thread(thread::current());
        let woken = s.line_up(Waiter { id, share, op, since: Instant::now(), wake });
        parking_lot::MutexGuard::unlocked(&mut s, || woken.tell(&self.0));
        while !s.holders.iter().any(|h| h.id == id) {
            parking_lot::MutexGuard::unlocked(&mut s, thread::park);
        }
        Ticket { lock: self.0.clone(), id }
    }

    /// Takes the lock if that needs no waiting.
    pub fn try_acquire(&self, share: Share, op: &'static str) -> Option<Ticket> {
        let mut s = self.0.state.lock();
        if s.open_to(share) {
            let id = s.enter(share, op, false);
            return Some(Ticket { lock: self.0.clone(), id });
        }
        None
    }

    /// Whether [`IoLock::acquire`] would sleep now.
    pub fn would_wait(&self, share: Share) -> bool {
        !self.0.state.lock().open_to(share)
    }

    /// Takes the lock and calls `grant` with the ticket: at once, or from the thread that releases
    /// it. `grant` must not block. With `yields` others pass: see the module.
    pub fn acquire_then(
        &self,
        share: Share,
        op: &'static str,
        yields: bool,
        grant: impl FnOnce(Ticket) + Send + 'static,
    ) {
        let mut s = self.0.state.lock();
        if s.open_to(share) && (!yields || s.yielding.is_empty()) {
            let id = s.enter(share, op, yields);
            drop(s);
            grant(Ticket { lock: self.0.clone(), id });
            return;
        }
        let id = s.new_id();
        let wake = Wake::Call(Box::new(grant));
        let w = Waiter { id, share, op, since: Instant::now(), wake };
        if yields {
            let woken = s.line_up(w);
            drop(s);
            woken.tell(&self.0);
        } else {
            s.queue.push_back(w);
        }
    }

    /// Who holds the lock and who waits, in order.
    pub fn list(&self) -> Vec<LockLine> {
        let s = self.0.state.lock();
        let held = s.holders.iter().map(|h| LockLine {
            id: h.id,
            share: h.share,
            op: h.op,
            held: true,
            age: h.since.elapsed(),
        });
        let waiting = s.queue.iter().chain(&s.yielding).map(|w| LockLine {
            id: w.id,
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
        let woken = {
            let mut s = self.lock.state.lock();
            if let Some(i) = s.holders.iter().position(|h| h.id == self.id) {
                let h = s.holders.swap_remove(i);
                if h.share == Share::Exclusive && !s.yielding.is_empty() {
                    s.headway = (!h.yields).then(|| Instant::now() + HEADWAY);
                }
            }
            s.promote()
        };
        woken.tell(&self.lock);
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
        l.acquire_then(Share::Exclusive, "write", false, move |t| {
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

    /// Two writers that come back at once against two readers.
    #[test]
    fn writers_pass_those_who_yield_but_not_for_ever() {
        let l = IoLock::default();
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let counts = [Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0))];
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let (l, stop, n) = (l.clone(), stop.clone(), counts[i % 2].clone());
                thread::spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        let t = match i % 2 {
                            0 => l.acquire(Share::Exclusive, "write"),
                            _ => l.acquire_yielding(Share::Exclusive, "read"),
                        };
                        thread::sleep(Duration::from_micros(200));
                        drop(t);
                        n.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        thread::sleep(PATIENCE + Duration::from_secs(1));
        stop.store(true, Ordering::SeqCst);
        for t in threads {
            assert!(t.join().is_ok());
        }
        let [w, r] = counts.map(|c| c.load(Ordering::SeqCst));
        assert!(r >= 2, "{r} reads beside {w} writes");
        assert!(w > 20 * r, "{r} reads beside {w} writes");
        // Alone, a reader does not wait.
        let t = Instant::now();
        for _ in 0..100 {
            drop(l.acquire(Share::Exclusive, "write"));
            drop(l.acquire_yielding(Share::Exclusive, "read"));
        }
        assert!(t.elapsed() < Duration::from_millis(500));
    }
}
