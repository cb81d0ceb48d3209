//! What a remount changes of a running journal, and how long a synchronous commit waits for company.

use super::{Journal, JournalOptions};
use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

/// Options as they are now.
pub(super) struct Live {
    /// Milliseconds.
    interval: AtomicU64,
    /// Shared with the flusher.
    pub barrier: Arc<AtomicBool>,
    data_err_abort: AtomicBool,
    /// Nanoseconds.
    min_batch: AtomicU64,
    max_batch: AtomicU64,
    /// What a commit takes, in nanoseconds: a running mean.
    average: AtomicU64,
}

impl Live {
    pub fn new(o: &JournalOptions) -> Live {
        Live {
            interval: AtomicU64::new(millis(o.commit_interval)),
            barrier: Arc::new(AtomicBool::new(o.barrier)),
            data_err_abort: AtomicBool::new(o.data_err_abort),
            min_batch: AtomicU64::new(nanos(o.min_batch)),
            max_batch: AtomicU64::new(nanos(o.max_batch)),
            average: AtomicU64::new(0),
        }
    }

    pub fn barrier(&self) -> bool {
        self.barrier.load(Acquire)
    }

    pub fn data_err_abort(&self) -> bool {
        self.data_err_abort.load(Relaxed)
    }

    /// A commit took so long.
    pub fn took(&self, t: Duration) {
        let (old, new) = (self.average.load(Relaxed), nanos(t));
        let mean = if old == 0 { new } else { old - old / 4 + new / 4 };
        self.average.store(mean, Relaxed);
    }

    /// How long a synchronous commit of a transaction of that age waits for others to join: about as
    /// long as a commit takes, as jbd2 does. The caller has seen that there are others.
    pub fn batch_wait(&self, age: Duration) -> Option<Duration> {
        let (min, max) = (self.min_batch.load(Relaxed), self.max_batch.load(Relaxed));
        let wait = self.average.load(Relaxed).max(min).min(max);
        (nanos(age) < wait).then(|| Duration::from_nanos(wait))
    }
}

fn millis(t: Duration) -> u64 {
    u64::try_from(t.as_millis()).unwrap_or(u64::MAX)
}

fn nanos(t: Duration) -> u64 {
    u64::try_from(t.as_nanos()).unwrap_or(u64::MAX)
}

impl Journal {
    /// The age at which a transaction is committed unasked.
    pub fn commit_interval(&self) -> Duration {
        Duration::from_millis(self.live.interval.load(Relaxed))
    }

    /// `commit=`, `barrier`, `data_err=` and the batch times, from now on (a remount).
    pub fn set_options(&self, o: &JournalOptions) {
        let l = &self.live;
        l.interval.store(millis(o.commit_interval), Relaxed);
        l.barrier.store(o.barrier, Release);
        l.data_err_abort.store(o.data_err_abort, Relaxed);
        l.min_batch.store(nanos(o.min_batch), Relaxed);
        l.max_batch.store(nanos(o.max_batch), Relaxed);
        self.kick.poke();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_as_long_as_a_commit_takes_within_bounds() {
        let ms = Duration::from_millis;
        let o = JournalOptions { min_batch: ms(2), max_batch: ms(15), ..Default::default() };
        let l = Live::new(&o);
        assert_eq!(l.batch_wait(ms(0)), Some(ms(2)));
        assert_eq!(l.batch_wait(ms(3)), None, "it is older than that");
        l.took(ms(8));
        assert_eq!(l.batch_wait(ms(3)), Some(ms(8)));
        (0..50).for_each(|_| l.took(ms(100)));
        assert_eq!(l.batch_wait(ms(0)), Some(ms(15)));
        l.max_batch.store(0, Relaxed);
        assert_eq!(l.batch_wait(ms(0)), None);
    }
}
