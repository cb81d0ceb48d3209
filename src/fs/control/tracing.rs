//! Traces: the stream of `uext4 trace`, and the `trace` file of the control directory.

use super::super::Fs;
use crate::{
    options::{ControlError, TraceNext, TraceStream},
    trace::{self, Filter, Next, Reader},
    types::Ino,
    writeback::Writeback,
};
use std::{
    sync::Weak,
    time::{Duration, Instant},
};

/// How often a waiting reader looks whether the mount has ended.
const LOOK: Duration = Duration::from_millis(100);

struct Stream {
    reader: Reader,
    wb: Weak<Writeback>,
}

impl TraceStream for Stream {
    fn next(&mut self, timeout: Duration) -> TraceNext {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if let Next::Line(l) = self.reader.next(left.min(LOOK)) {
                return TraceNext::Line(l);
            }
            if self.wb.upgrade().is_none_or(|w| w.is_stopped()) {
                return TraceNext::End;
            }
            if left.is_zero() {
                return TraceNext::Idle;
            }
        }
    }
}

impl Fs {
    fn filter(&self, text: &str) -> Result<Filter, String> {
        Filter::parse(text, |p| self.walk(p.as_bytes()).map_err(|e| e.to_string()))
    }

    /// The inode at a path from the root; a link at its end is not followed.
    fn walk(&self, path: &[u8]) -> crate::error::Result<Ino> {
        let mut at = Ino::ROOT;
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            let found = self.lookup(at, name)?.ok_or(crate::error::Error::NotFound)?;
            self.forget(found.ino, 1);
            at = found.ino;
        }
        Ok(at)
    }

    pub(super) fn open_trace(&self, filter: &str) -> Result<Box<dyn TraceStream>, ControlError> {
        let filter = self.filter(filter).map_err(ControlError::refused)?;
        let wb = std::sync::Arc::downgrade(&self.wb);
        Ok(Box::new(Stream { reader: trace::open(filter), wb }))
    }

    /// Writing a filter to `trace` starts collecting, as far as the queue goes; `off` ends it; an empty
    /// filter is every event.
    pub(super) fn set_trace(&self, value: &str) -> Result<(), String> {
        let new = match value {
            "off" | "0" => None,
            "on" | "1" => Some(trace::open(Filter::default())),
            _ => Some(trace::open(self.filter(value)?)),
        };
        *self.tracing.lock() = new;
        Ok(())
    }

    /// Reading `trace` gives what was collected since it was last read.
    pub(super) fn drain_trace(&self) -> String {
        match &*self.tracing.lock() {
            Some(r) => r.drain(),
            None => "# off; write a filter (on: every event) to start\n".into(),
        }
    }
}
