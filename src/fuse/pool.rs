//! Threads for requests that may sleep, so that the workers which read the FUSE
//! queue never do. Threads are made when all are busy, up to a limit, and end when idle.

use crossbeam::channel::{Receiver, Sender, unbounded};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

type Job = Box<dyn FnOnce() + Send>;

struct Shared {
    idle: AtomicUsize,
    threads: AtomicUsize,
    limit: usize,
}

/// The pool.
pub struct Pool {
    jobs: Sender<Job>,
    queue: Receiver<Job>,
    shared: Arc<Shared>,
}

const IDLE: Duration = Duration::from_secs(10);

impl Pool {
    /// At most `limit` threads; none yet.
    pub fn new(limit: usize) -> Pool {
        let (jobs, queue) = unbounded();
        let shared = Shared { idle: AtomicUsize::new(0), threads: AtomicUsize::new(0), limit };
        Pool { jobs, queue, shared: Arc::new(shared) }
    }

    /// Runs `job` on some thread of the pool.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        // The receiver is ours, so the channel is open.
        let _ = self.jobs.send(Box::new(job));
        let s = &self.shared;
        if self.queue.len() > s.idle.load(Ordering::Acquire) {
            let room = |n| (n < s.limit).then_some(n + 1);
            if s.threads.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_ok() {
                self.spawn();
            }
        }
    }

    fn spawn(&self) {
        let (queue, s) = (self.queue.clone(), self.shared.clone());
        let started = std::thread::Builder::new()
            .name("uext4-pool".into())
            .stack_size(512 << 10)
            .spawn(move || serve(&queue, &s));
        if let Err(e) = started {
            self.shared.threads.fetch_sub(1, Ordering::AcqRel);
            log::warn!("no thread for a request: {e}");
            if self.shared.threads.load(Ordering::Acquire) == 0
                && let Ok(job) = self.queue.try_recv()
            {
                job();
            }
        }
    }
}

fn serve(queue: &Receiver<Job>, s: &Shared) {
    loop {
        s.idle.fetch_add(1, Ordering::AcqRel);
        let job = queue.recv_timeout(IDLE);
        s.idle.fetch_sub(1, Ordering::AcqRel);
        match job {
            Ok(job) => job(),
            Err(_) => {
                s.threads.fetch_sub(1, Ordering::AcqRel);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn jobs_that_wait_for_each_other_all_run() {
        let p = Pool::new(8);
        let b = Arc::new(Barrier::new(9));
        for _ in 0..8 {
            let b = b.clone();
            p.run(move || {
                b.wait();
            });
        }
        b.wait();
    }
}
