//! Where the allocator says what it found wrong while it went on without it.

use super::counters::Counters;
use crate::error::Error;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::sync::{Arc, OnceLock};

/// Called with every contradiction found, by the thread that found it, with none of the allocator's
/// locks held; a handle may be open.
pub type ErrorSink = Box<dyn Fn(&Error) + Send + Sync>;

/// See the module.
#[derive(Default)]
pub(super) struct Reporter {
    sink: OnceLock<ErrorSink>,
    counters: OnceLock<Arc<Counters>>,
    /// Found under a group's lock, to be told once that is gone. Leaf lock.
    found: Mutex<Vec<Error>>,
    any: AtomicBool,
}

impl Reporter {
    pub fn set_sink(&self, sink: ErrorSink) {
        if self.sink.set(sink).is_err() {
            log::warn!("allocator: the error sink is set already");
        }
    }

    pub fn set_counters(&self, c: Arc<Counters>) {
        let _ = self.counters.set(c);
    }

    /// Free clusters that lie in a group taken out of use.
    pub fn lost(&self, clusters: u64) {
        if let Some(c) = self.counters.get() {
            c.lost(clusters);
        }
    }

    /// Remembers an error.
    pub fn error(&self, e: Error) {
        self.found.lock().push(e);
        self.any.store(true, std::sync::atomic::Ordering::Release);
    }

    /// Tells what was found. With no lock of the allocator held.
    pub fn deliver(&self) {
        if !self.any.swap(false, AcqRel) {
            return;
        }
        let found = std::mem::take(&mut *self.found.lock());
        for e in &found {
            match self.sink.get() {
                Some(sink) => sink(e),
                None => log::error!("block allocator: {e}"),
            }
        }
    }
}

/// Delivers at the end of a call, however it ends. Declared before any guard.
pub(super) struct DeliverAtEnd<'a>(pub &'a Reporter);

impl Drop for DeliverAtEnd<'_> {
    fn drop(&mut self) {
        self.0.deliver();
    }
}
