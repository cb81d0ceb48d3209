//! Watches a trial: it may not panic in any thread, hang, or take memory without bound.

use crate::memory;
use std::sync::{Mutex, Once, mpsc};
use std::time::Duration;

/// What a trial may take.
pub const TIME: Duration = Duration::from_secs(10);
pub const MEMORY: usize = 256 << 20;

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

fn watch_panics() {
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // The test's own threads have a name: the test's.
            let ours =
                std::thread::current().name().is_some_and(|n| n.contains("::") || n == "main");
            if !ours {
                PANICS.lock().unwrap().push(info.to_string());
            }
            usual(info);
        }));
    });
}

/// Runs `f` in a thread of its own; what went wrong with it, if anything.
pub fn guarded<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    watch_panics();
    let before = memory::now();
    memory::take_peak();
    let (tx, rx) = mpsc::channel();
    let trial = std::thread::Builder::new().name("trial".into());
    trial
        .spawn(move || {
            let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            let _ = tx.send(r.ok());
        })
        .unwrap();
    let got = rx.recv_timeout(TIME);
    let panics: Vec<String> = PANICS.lock().unwrap().drain(..).collect();
    if !panics.is_empty() {
        return Err(format!("panic: {}", panics.join("; ")));
    }
    let peak = memory::take_peak().saturating_sub(before);
    if peak > MEMORY {
        return Err(format!("{} MiB of memory", peak >> 20));
    }
    match got {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err("panic".into()),
        Err(_) => Err(format!("no end after {TIME:?}")),
    }
}
