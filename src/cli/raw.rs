//! `uext4 raw`: the device alone behind FUSE, for comparison.

use super::daemon::{Backend, Started};
use crate::device::{BlockDevice, Stack};
use crate::fuse::raw::{Raw, RawControl};
use crate::options::MountOptions;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A device that is served as one file.
#[derive(Default)]
pub struct Device(Option<Arc<dyn BlockDevice>>);

impl Backend for Device {
    type Filesystem = Raw;

    fn open(&mut self, source: &Path, options: &MountOptions) -> Result<(), String> {
        self.0 = Some(Stack::open(source, options).map_err(|e| e.to_string())?.dev);
        Ok(())
    }

    fn start(&mut self, options: &MountOptions) -> Result<Started<Raw>, String> {
        let dev = self.0.clone().ok_or("the image is not open")?;
        // SAFETY: these calls have no preconditions and cannot fail.
        let owner = unsafe { (libc::getuid(), libc::getgid()) };
        let read_only = dev.read_only();
        Ok(Started {
            filesystem: Raw::new(dev.clone(), options.max_background, owner),
            control: Arc::new(RawControl { dev }),
            notifier: Arc::new(OnceLock::new()),
            warnings: Vec::new(),
            read_only,
        })
    }

    fn end(self) -> Result<(), String> {
        self.0.map_or(Ok(()), |dev| dev.flush().map_err(|e| e.to_string()))
    }
}
