//! What `uext4` really mounts: an ext4 image.

use super::daemon::{Backend, Started};
use crate::{
    device::Opened,
    error::Error,
    fs::Fs,
    fuse::{adaptor::Adaptor, ctldir::CtlDir, mount::plain},
    options::{Control, MountOptions},
};
use std::{path::Path, sync::Arc};

/// An ext4 image or block device.
#[derive(Default)]
pub struct Ext4 {
    device: Option<Opened>,
    fs: Option<Arc<Fs>>,
}

impl Backend for Ext4 {
    type Filesystem = Adaptor;

    fn open(&mut self, source: &Path, options: &MountOptions) -> Result<(), String> {
        let opened = Opened::open(source, options).map_err(|e| match e {
            Error::Io { op: "open", source, .. } => plain(&source),
            other => other.to_string(),
        })?;
        self.device = Some(opened);
        Ok(())
    }

    fn start(&mut self, options: &MountOptions) -> Result<Started<Adaptor>, String> {
        let device = self.device.take().ok_or("the image is not open")?;
        let stack = device.start(options).map_err(|e| e.to_string())?;
        let fs = Fs::mount(stack.dev, options).map_err(|e| e.to_string())?;
        self.fs = Some(fs.clone());
        let control: Arc<dyn Control> = fs.clone();
        // SAFETY: these calls have no preconditions and cannot fail.
        let owner = unsafe { (libc::getuid(), libc::getgid()) };
        // Nobody looks up an empty name.
        let name = options.ctldir.as_deref().unwrap_or_default();
        let ctl = CtlDir::new(name, control.clone(), owner);
        let checks = options.default_permissions.unwrap_or(owner.0 == 0);
        let mut warnings = Vec::new();
        let read_only = fs.vol.conf.read_only;
        if read_only && !options.read_only {
            warnings.push(fs.why_read_only());
        }
        let filesystem = Adaptor::new(fs, ctl, checks);
        let notifier = filesystem.notifier();
        Ok(Started { filesystem, control, notifier, warnings, read_only })
    }

    fn end(mut self) -> Result<(), String> {
        match self.fs.take() {
            Some(fs) => fs.unmount().map_err(|e| e.to_string()),
            None => Ok(()),
        }
    }
}
