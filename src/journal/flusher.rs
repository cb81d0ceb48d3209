//! Device flushes, shared by those who ask at the same time.

use crate::device::BlockDevice;
use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire};

#[derive(Default)]
struct Flushes {
    started: u64,
    done: u64,
    running: bool,
    failed: bool,
}

/// One flush serves every caller that came before it began. A flush that failed fails all later
/// ones: what the device lost it will not find again.
pub(super) struct Flusher {
    dev: Arc<dyn BlockDevice>,
    /// barrier=0: nothing is ever flushed.
    barrier: Arc<AtomicBool>,
    /// Leaf lock, never held across the flush.
    state: Mutex<Flushes>,
    ended: Condvar,
}

/// A point in time: a flush that began later covers what completed before.
#[derive(Clone, Copy)]
pub(super) struct FlushMark(u64);

impl Flusher {
    pub fn new(dev: Arc<dyn BlockDevice>, barrier: Arc<AtomicBool>) -> Flusher {
        Flusher { dev, barrier, state: Mutex::default(), ended: Condvar::new() }
    }

    /// Now.
    pub fn mark(&self) -> FlushMark {
        FlushMark(self.state.lock().started)
    }

    /// Everything that completed before this call is stable when it returns.
    pub fn flush(&self) -> Result<()> {
        self.flush_since(self.mark())
    }

    /// Everything that completed before `mark` is stable when it returns; does nothing if a flush
    /// that began since has seen to it.
    pub fn flush_since(&self, mark: FlushMark) -> Result<()> {
        if !self.barrier.load(Acquire) {
            return Ok(());
        }
        let mut s = self.state.lock();
        while s.done <= mark.0 {
            if s.failed {
                return Err(Error::Shutdown);
            }
            if s.running {
                self.ended.wait(&mut s);
                continue;
            }
            s.running = true;
            s.started += 1;
            let mine = s.started;
            drop(s);
            let r = self.dev.flush();
            s = self.state.lock();
            s.running = false;
            match &r {
                Ok(()) => s.done = mine,
                Err(_) => s.failed = true,
            }
            self.ended.notify_all();
            r?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemDevice;

    #[test]
    fn a_later_flush_covers_a_mark() {
        let f = Flusher::new(Arc::new(MemDevice::new(4096)), Arc::new(AtomicBool::new(true)));
        let m = f.mark();
        f.flush().unwrap();
        f.flush_since(m).unwrap();
        assert_eq!(f.state.lock().started, 1);
        f.flush_since(f.mark()).unwrap();
        assert_eq!(f.state.lock().started, 2);
    }
}
