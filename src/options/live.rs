//! Options that a remount changes under everybody's eyes.

use super::MountOptions;
use parking_lot::RwLock;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

/// The options of a mount as they are now. What a remount replaces is kept until the process ends (a
/// kilobyte each), so that a reader needs no guard.
#[derive(Debug)]
pub struct LiveOptions {
    first: MountOptions,
    changed: AtomicBool,
    latest: RwLock<Option<&'static MountOptions>>,
}

impl LiveOptions {
    /// From here on everybody sees these.
    pub fn replace(&self, new: MountOptions) {
        *self.latest.write() = Some(Box::leak(Box::new(new)));
        self.changed.store(true, Ordering::Release);
    }
}

impl From<MountOptions> for LiveOptions {
    fn from(first: MountOptions) -> LiveOptions {
        LiveOptions { first, changed: AtomicBool::new(false), latest: RwLock::new(None) }
    }
}

impl Deref for LiveOptions {
    type Target = MountOptions;
    fn deref(&self) -> &MountOptions {
        if self.changed.load(Ordering::Acquire)
            && let Some(latest) = *self.latest.read()
        {
            return latest;
        }
        &self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_the_latest() {
        let live = LiveOptions::from(MountOptions::default());
        let before: &MountOptions = &live;
        assert!(!before.sync);
        live.replace(MountOptions { sync: true, ..MountOptions::default() });
        assert!(live.sync && !before.sync);
    }
}
