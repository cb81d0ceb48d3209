//! Where the allocator says what it found wrong while it went on without it.

use super::counters::Counters;
use crate::error::Error;
use std::sync::{Arc, OnceLock};

/// Called with every contradiction found, perhaps under a group's lock: it must not block.
pub type ErrorSink = Box<dyn Fn(&Error) + Send + Sync>;

/// See the module.
#[derive(Default)]
pub(super) struct Reporter {
    sink: OnceLock<ErrorSink>,
    counters: OnceLock<Arc<Counters>>,
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

    pub fn error(&self, e: &Error) {
        log::error!("block allocator: {e}");
        if let Some(sink) = self.sink.get() {
            sink(e);
        }
    }
}
