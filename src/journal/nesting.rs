//! Debug builds: a thread that waits for the journal while it holds a handle may wait for itself.

#[cfg(debug_assertions)]
mod counted {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    thread_local! {
        static OPEN: Arc<AtomicU32> = Arc::default();
    }

    /// Counts one handle in the thread that opened it, until dropped (by any thread).
    pub struct Open(Arc<AtomicU32>);

    impl Open {
        pub fn new() -> Open {
            let count = OPEN.with(Arc::clone);
            count.fetch_add(1, Relaxed);
            Open(count)
        }
    }

    impl Drop for Open {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }

    /// Panics if this thread has a handle open.
    pub fn check(what: &str) {
        let n = OPEN.with(|c| c.load(Relaxed));
        assert!(n == 0, "{what} while this thread holds {n} journal handles");
    }
}

#[cfg(not(debug_assertions))]
mod counted {
    pub struct Open;

    impl Open {
        pub fn new() -> Open {
            Open
        }
    }

    pub fn check(_: &str) {}
}

pub(super) use counted::{Open, check};
