//! Open files of the kernel that can write: each remembers which write-out errors
//! it has reported. Files open for reading need no state: their handle is 0.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// The open files that can write.
#[derive(Default)]
pub struct Handles {
    next: AtomicU64,
    seen: Mutex<HashMap<u64, u64>>,
}

impl Handles {
    /// A new handle that has seen `errors` errors of its inode.
    pub fn add(&self, errors: u64) -> u64 {
        let fh = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.seen.lock().insert(fh, errors);
        fh
    }

    /// Runs `f` on the count of errors that `fh` has seen; `None` for a reader.
    pub fn with<T>(&self, fh: u64, f: impl FnOnce(&mut u64) -> T) -> Option<T> {
        if fh == 0 { None } else { self.seen.lock().get_mut(&fh).map(f) }
    }

    /// The file is closed.
    pub fn remove(&self, fh: u64) {
        if fh != 0 {
            self.seen.lock().remove(&fh);
        }
    }
}
