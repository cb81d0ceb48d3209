//! Whether a request is served where it arrives or submitted to the engine.
//!
//! A device that answers at once (an image in the host's page cache) is fastest in place: a hand-off
//! costs more than the copy. One that takes its time must not hold up the thread that reads the
//! FUSE queue. Which it is shows in how long the requests take that are served in place.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Slower than this, a request is submitted.
const FAST: u64 = 60_000;
/// A sample counts for at most this much, so that one pause of this thread does not count as a slow device.
const MOST: u64 = 400_000;
/// While requests are submitted, one in so many is served in place, to see.
const SAMPLE: u64 = 256;

/// The running mean of the time that requests served in place took.
#[derive(Default)]
pub struct Pace {
    /// Nanoseconds.
    mean: AtomicU64,
    seen: AtomicU64,
}

impl Pace {
    /// Whether the next request is to be submitted.
    pub fn submit(&self) -> bool {
        self.mean.load(Relaxed) > FAST && !self.seen.fetch_add(1, Relaxed).is_multiple_of(SAMPLE)
    }

    /// Serves a request of `bytes` in place, and looks at the clock now and then.
    pub fn timed<R>(&self, bytes: usize, f: impl FnOnce() -> R) -> R {
        let mean = self.mean.load(Relaxed);
        if mean <= FAST && !self.seen.fetch_add(1, Relaxed).is_multiple_of(8) {
            return f();
        }
        let t = Instant::now();
        let r = f();
        self.note(bytes, t.elapsed());
        r
    }

    fn note(&self, bytes: usize, took: Duration) {
        // What copying the bytes takes is no wait.
        let copy = bytes as u64 / 4;
        let ns = u64::try_from(took.as_nanos()).unwrap_or(MOST).saturating_sub(copy).min(MOST);
        let mean = self.mean.load(Relaxed);
        // Quick to believe that it is fast.
        let next = if ns < mean { (mean + ns) / 2 } else { mean + (ns - mean) / 8 };
        self.mean.store(next, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_is_submitted_and_fast_comes_back() {
        let p = Pace::default();
        assert!(!p.submit());
        p.note(4096, Duration::from_millis(50));
        assert!(!p.submit(), "one pause");
        for _ in 0..4 {
            p.note(4096, Duration::from_millis(5));
        }
        assert!((0..100).filter(|_| p.submit()).count() >= 99);
        for _ in 0..4 {
            p.note(4096, Duration::from_micros(5));
        }
        assert!(!p.submit());
    }
}
