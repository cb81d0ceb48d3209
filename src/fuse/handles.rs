//! Open files of the kernel. One that can write remembers which write-out errors it has reported; one
//! that reads needs no state. Of each inode is known how many open files use the kernel's page cache:
//! a direct write beside those has to drop what they cached meanwhile.

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
    /// By inode.
    cached: Mutex<HashMap<u64, u32>>,
}

/// Set in handles that use the page cache.
const CACHED: u64 = 1 << 63;

impl Handles {
    /// A new handle that has seen `errors` errors of its inode.
    pub fn add_writer(&self, errors: u64) -> u64 {
        let fh = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.seen.lock().insert(fh, errors);
        fh
    }

    /// Runs `f` on the count of errors that `fh` has seen; `None` for a reader.
    pub fn with<T>(&self, fh: u64, f: impl FnOnce(&mut u64) -> T) -> Option<T> {
        match fh & !CACHED {
            0 => None,
            fh => self.seen.lock().get_mut(&fh).map(f),
        }
    }

    /// The same handle, of an open file of `node` that uses the page cache.
    pub fn cached(&self, node: u64, fh: u64) -> u64 {
        *self.cached.lock().entry(node).or_default() += 1;
        fh | CACHED
    }

    /// Whether open files of `node` use the page cache.
    pub fn has_cached(&self, node: u64) -> bool {
        self.cached.lock().contains_key(&node)
    }

    /// The file is closed.
    pub fn remove(&self, node: u64, fh: u64) {
        if fh & !CACHED != 0 {
            self.seen.lock().remove(&(fh & !CACHED));
        }
        if fh & CACHED != 0 {
            let mut c = self.cached.lock();
            if let Some(n) = c.get_mut(&node) {
                *n -= 1;
                if *n == 0 {
                    c.remove(&node);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_files_are_counted_and_writers_remember() {
        let h = Handles::default();
        let (reader, writer) = (h.cached(7, 0), h.cached(7, h.add_writer(3)));
        assert_eq!(h.with(writer, |seen| std::mem::replace(seen, 4)), Some(3));
        assert_eq!(h.with(writer, |seen| *seen), Some(4));
        assert_eq!(h.with(reader, |seen| *seen), None);
        assert!(h.has_cached(7) && !h.has_cached(8));
        h.remove(7, reader);
        assert!(h.has_cached(7));
        h.remove(7, writer);
        assert!(!h.has_cached(7));
        assert_eq!(h.with(writer, |seen| *seen), None);
        h.remove(7, 0);
    }
}
