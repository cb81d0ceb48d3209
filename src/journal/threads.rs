//! The background threads. They do not keep the journal alive.

use super::Journal;
use super::kick::{Kick, Order};
use crate::error::{Error, Result};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Starts the thread that commits old transactions, and those that somebody asked for without waiting.
pub(super) fn spawn_commit(j: &Arc<Journal>) -> Result<()> {
    spawn(j, "commit", Arc::clone(&j.kick), |j| {
        j.commit_if_due();
        j.until_due()
    })
}

/// Starts the thread that writes committed blocks home when the log or memory fills up.
pub(super) fn spawn_checkpoint(j: &Arc<Journal>) -> Result<()> {
    spawn(j, "checkpoint", Arc::clone(&j.checkpoint_kick), |j| {
        j.checkpoint_if_due();
        Duration::from_secs(30)
    })
}

fn spawn(
    j: &Arc<Journal>,
    name: &'static str,
    kick: Arc<Kick>,
    mut turn: impl FnMut(&Journal) -> Duration + Send + 'static,
) -> Result<()> {
    let weak: Weak<Journal> = Arc::downgrade(j);
    let body = move || {
        let mut sleep = Duration::ZERO;
        while kick.wait(sleep) == Order::Work {
            let Some(j) = weak.upgrade() else { return };
            sleep = turn(&j);
        }
    };
    match std::thread::Builder::new().name(format!("uext4-{name}")).spawn(body) {
        Ok(t) => j.threads.lock().push(t),
        Err(e) => {
            log::error!("cannot start the {name} thread: {e}");
            return Err(Error::NoMemory);
        }
    }
    Ok(())
}

impl Journal {
    /// How long the commit thread may sleep so that no transaction grows older than the interval.
    fn until_due(&self) -> Duration {
        let interval = self.commit_interval();
        let st = self.state.lock();
        let age = st.running.as_ref().map(|r| r.txn.started.elapsed());
        let busy = st.committer;
        drop(st);
        if busy {
            // Who commits now may leave what runs to this thread.
            return interval.min(Duration::from_millis(100));
        }
        // A failed journal has nothing to commit.
        if self.is_aborted() {
            return interval.max(Duration::from_secs(1));
        }
        age.map_or(interval, |a| interval.saturating_sub(a)).max(Duration::from_millis(1))
    }

    /// Ends the threads and waits for them.
    pub(super) fn stop_threads(&self) {
        self.kick.stop();
        self.checkpoint_kick.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        for t in threads {
            if t.thread().id() != std::thread::current().id() && t.join().is_err() {
                log::error!("a journal thread panicked");
            }
        }
    }
}
