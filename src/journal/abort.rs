//! A journal that failed stays failed.

use super::Journal;
use crate::error::{Error, Result};
use std::sync::atomic::Ordering::{Acquire, SeqCst};

/// Why nothing more is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Health {
    /// All is well.
    Good = 0,
    /// An error: starts fail `ReadOnly`.
    Aborted = 1,
    /// FS_IOC_SHUTDOWN: starts fail `Shutdown`, and nothing reaches the device.
    Stopped = 2,
}

impl Journal {
    pub(super) fn health(&self) -> Health {
        match self.health.load(Acquire) {
            0 => Health::Good,
            1 => Health::Aborted,
            _ => Health::Stopped,
        }
    }

    /// Whether the journal has failed or was stopped.
    pub fn is_aborted(&self) -> bool {
        self.health() != Health::Good
    }

    /// What a handle that wants to start or change something is told.
    pub(super) fn check_start(&self) -> Result<()> {
        match self.health() {
            Health::Good => Ok(()),
            Health::Aborted => Err(Error::ReadOnly),
            Health::Stopped => Err(Error::Shutdown),
        }
    }

    /// What a thread that waits for a commit is told.
    pub(super) fn check_commit(&self) -> Result<()> {
        match self.health() {
            Health::Good => Ok(()),
            Health::Aborted | Health::Stopped => Err(Error::Shutdown),
        }
    }

    /// Ends all writing after an error: everybody who waits is woken with an error, no handle starts
    /// any more, the journal's superblock and the file system's record it. The first error counts.
    pub fn abort(&self, err: &Error) {
        if self
            .health
            .compare_exchange(Health::Good as u8, Health::Aborted as u8, SeqCst, SeqCst)
            .is_err()
        {
            return;
        }
        log::error!("journal aborted: {err}");
        self.wake_all();
        self.record_abort(err);
    }

    /// FS_IOC_SHUTDOWN: from here on the journal sends nothing to the device, not even an error
    /// record. Everybody who waits is woken with an error.
    pub fn set_emergency_stop(&self) {
        self.health.store(Health::Stopped as u8, SeqCst);
        self.wake_all();
    }

    /// After `close`: nothing starts any more. A failure stays what it was.
    pub(super) fn end(&self) {
        let good = Health::Good as u8;
        let _ = self.health.compare_exchange(good, Health::Stopped as u8, SeqCst, SeqCst);
        self.wake_all();
    }

    fn wake_all(&self) {
        let mut callbacks = Vec::new();
        let st = self.state.lock();
        for t in st.committing.iter().chain(st.running.as_ref().map(|r| &r.txn)) {
            callbacks.append(&mut t.contents.lock().callbacks);
        }
        if let Some(r) = &st.running {
            r.txn.ended.notify_all();
        }
        if let Some(t) = &st.committing {
            t.ended.notify_all();
        }
        self.startable.notify_all();
        self.idle.notify_all();
        self.commit_ended.notify_all();
        drop(st);
        self.kick.poke();
        self.checkpoint_kick.poke();
        for f in callbacks {
            f(Err(Error::Shutdown));
        }
    }
}
