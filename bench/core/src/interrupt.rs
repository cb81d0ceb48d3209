//! Ctrl-C: children end, loops stop between two measurements, and everything that was begun is
//! put in order by the way out.

use crate::Result;
use shared_child::SharedChild;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

static STOPPED: AtomicBool = AtomicBool::new(false);
static CHILDREN: Mutex<Vec<Arc<SharedChild>>> = Mutex::new(Vec::new());

/// Catches SIGINT, SIGTERM and SIGHUP from now on. Once in a process.
pub fn catch() -> Result<()> {
    ctrlc::set_handler(|| {
        STOPPED.store(true, SeqCst);
        for child in children().iter() {
            let _ = child.kill();
        }
    })?;
    Ok(())
}

/// Whether the user wants to stop.
pub fn stopped() -> bool {
    STOPPED.load(SeqCst)
}

/// An error if the user wants to stop.
pub fn check() -> Result<()> {
    if stopped() { Err(Interrupted.into()) } else { Ok(()) }
}

/// Whether an error is only the user's wish to stop.
pub fn is_interrupt(e: &crate::Error) -> bool {
    e.downcast_ref::<Interrupted>().is_some()
}

/// The user wants to stop.
#[derive(Debug, Clone, Copy)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}
impl std::error::Error for Interrupted {}

fn children() -> std::sync::MutexGuard<'static, Vec<Arc<SharedChild>>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, an interrupt kills the child.
pub(crate) struct Watched(Arc<SharedChild>);

impl Watched {
    pub(crate) fn new(child: Arc<SharedChild>) -> Watched {
        children().push(child.clone());
        if stopped() {
            let _ = child.kill();
        }
        Watched(child)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        children().retain(|c| !Arc::ptr_eq(c, &self.0));
    }
}
