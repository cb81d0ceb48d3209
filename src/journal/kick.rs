//! How a background thread is told that there is work, and how it learns that it must end.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Flags {
    work: bool,
    stop: bool,
}

/// What a kicked thread is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Work,
    Stop,
}

/// Leaf lock.
#[derive(Default)]
pub(super) struct Kick {
    flags: Mutex<Flags>,
    changed: Condvar,
}

impl Kick {
    /// There is work.
    pub fn poke(&self) {
        let mut f = self.flags.lock();
        if !f.work {
            f.work = true;
            self.changed.notify_all();
        }
    }

    /// The thread is to end.
    pub fn stop(&self) {
        self.flags.lock().stop = true;
        self.changed.notify_all();
    }

    /// Sleeps until there is work, or for `longest`.
    pub fn wait(&self, longest: Duration) -> Order {
        let mut f = self.flags.lock();
        if !f.work && !f.stop {
            self.changed.wait_for(&mut f, longest);
        }
        f.work = false;
        if f.stop { Order::Stop } else { Order::Work }
    }
}
