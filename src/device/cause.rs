//! Why a request is made: a short static word carried by the thread while it works (`commit`,
//! `checkpoint`, `writeback`, `direct write`, ...). The recorder writes it beside each request, and
//! the statistics group by it.

use std::cell::Cell;

thread_local! {
    static CAUSE: Cell<&'static str> = const { Cell::new("") };
}

/// Puts the previous cause back when dropped.
#[must_use = "the cause holds only while the guard lives"]
pub struct CauseGuard {
    before: &'static str,
}

/// Names the cause of the requests this thread makes until the guard is dropped.
pub fn set(cause: &'static str) -> CauseGuard {
    CauseGuard { before: CAUSE.replace(cause) }
}

/// The cause the calling thread works for; empty if it named none.
pub fn current() -> &'static str {
    CAUSE.get()
}

impl Drop for CauseGuard {
    fn drop(&mut self) {
        CAUSE.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_nest() {
        assert_eq!(current(), "");
        {
            let _a = set("commit");
            {
                let _b = set("checkpoint");
                assert_eq!(current(), "checkpoint");
            }
            assert_eq!(current(), "commit");
        }
        assert_eq!(current(), "");
    }
}
