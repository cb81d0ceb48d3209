//! The `threads` engine: a queue and a bounded pool that serves it with blocking calls.

use super::{Engine, IoEngine, join};
use crate::device::raw::RawFile;
use crate::device::{IoRequest, run_in_place};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Most threads of a pool. Blocking calls beyond what the device serves at once gain nothing.
const MAX_THREADS: usize = 16;

#[derive(Default)]
struct State {
    queue: VecDeque<IoRequest>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    stop: bool,
}

struct Shared {
    raw: Arc<RawFile>,
    state: Mutex<State>,
    work: Condvar,
}

/// The pool: threads are started as they are needed.
pub(super) struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    pub(super) fn new(raw: &Arc<RawFile>) -> Pool {
        let raw = Arc::clone(raw);
        Pool { shared: Arc::new(Shared { raw, state: Mutex::default(), work: Condvar::new() }) }
    }
}

impl Engine for Pool {
    /// The queue is not bounded: a completion may submit, and must not wait for its own thread. Those
    /// who make requests bound them by the buffers they may have.
    fn submit(&self, req: IoRequest) {
        let mut s = self.shared.state.lock();
        s.queue.push_back(req);
        if s.idle >= s.queue.len() {
            self.shared.work.notify_one();
        } else if s.threads.len() < MAX_THREADS {
            let shared = Arc::clone(&self.shared);
            let spawned = std::thread::Builder::new()
                .name(format!("uext4-io-{}", s.threads.len()))
                .spawn(move || serve(&shared));
            match spawned {
                Ok(t) => s.threads.push(t),
                Err(e) if s.threads.is_empty() => {
                    log::warn!("cannot start an I/O thread: {e}");
                    let req = s.queue.pop_back();
                    drop(s);
                    if let Some(req) = req {
                        run_in_place(&*self.shared.raw, req);
                    }
                }
                Err(_) => {}
            }
        } else if s.idle > 0 {
            self.shared.work.notify_one();
        }
    }

    fn kind(&self) -> IoEngine {
        IoEngine::Threads
    }
}

fn serve(shared: &Shared) {
    let mut s = shared.state.lock();
    loop {
        if let Some(req) = s.queue.pop_front() {
            drop(s);
            run_in_place(&*shared.raw, req);
            s = shared.state.lock();
        } else if s.stop {
            return;
        } else {
            s.idle += 1;
            shared.work.wait(&mut s);
            s.idle -= 1;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let threads = {
            let mut s = self.shared.state.lock();
            s.stop = true;
            std::mem::take(&mut s.threads)
        };
        self.shared.work.notify_all();
        threads.into_iter().for_each(join);
    }
}
