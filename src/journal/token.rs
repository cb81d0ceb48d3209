//! Ordered data: what a commit waits for.

use crate::error::Error;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

#[derive(Default)]
struct Count {
    pending: usize,
    failed: bool,
}

/// The data writes that one transaction must not commit before.
#[derive(Default)]
pub(super) struct Tokens {
    /// Leaf lock.
    count: Mutex<Count>,
    none: Condvar,
}

impl Tokens {
    pub fn attach(self: &Arc<Self>) -> DataToken {
        self.count.lock().pending += 1;
        DataToken { tokens: Some(Arc::clone(self)) }
    }

    /// Waits until every token is back; whether one came back failed.
    pub fn wait(&self) -> bool {
        let mut c = self.count.lock();
        while c.pending != 0 {
            self.none.wait(&mut c);
        }
        c.failed
    }

    fn release(&self, failed: bool) {
        let mut c = self.count.lock();
        c.failed |= failed;
        c.pending = c.pending.saturating_sub(1);
        if c.pending == 0 {
            self.none.notify_all();
        }
    }
}

/// A promise that data on its way to the device is there before the transaction commits. The commit
/// waits until it is given back, which only the device's completion does: the holder must not wait
/// for anything a commit may hold up. Dropping it gives it back.
#[must_use = "dropping the token lets the commit go ahead of the data"]
pub struct DataToken {
    tokens: Option<Arc<Tokens>>,
}

impl DataToken {
    /// The data is on the device (not necessarily stable: the commit flushes).
    pub fn done(mut self) {
        self.give_back(false);
    }

    /// The data did not get there. The commit goes on, as ext4's does unless `data_err=abort`: the
    /// error is the writer's to report.
    pub fn fail(mut self, err: &Error) {
        log::error!("ordered data: {err}");
        self.give_back(true);
    }

    fn give_back(&mut self, failed: bool) {
        if let Some(t) = self.tokens.take() {
            t.release(failed);
        }
    }
}

impl Drop for DataToken {
    fn drop(&mut self) {
        self.give_back(false);
    }
}
