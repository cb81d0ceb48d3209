//! What `uext4` really mounts: an ext4 image.

use super::daemon::{Backend, Started};
use crate::{
    device::{BlockDevice, FileDevice, ModelDevice, OpenHow, Recorder, model::presets},
    error::Error,
    fs::Fs,
    fuse::{adaptor::Adaptor, ctldir::CtlDir, mount::plain},
    options::{Control, MountOptions},
};
use std::{path::Path, sync::Arc};

/// The seed of the disk model's rotation: the same run gives the same delays.
const MODEL_SEED: u64 = 1;
/// The name of the control directory where `ctldir=` does not say otherwise.
const CTLDIR: &str = ".uext4";

/// An ext4 image or block device.
#[derive(Default)]
pub struct Ext4 {
    device: Option<Arc<dyn BlockDevice>>,
    fs: Option<Arc<Fs>>,
}

impl Backend for Ext4 {
    type Filesystem = Adaptor;

    fn open(&mut self, source: &Path, options: &MountOptions) -> Result<(), String> {
        let how = OpenHow {
            read_only: options.read_only,
            offset: options.offset,
            backing: options.backing,
            engine: options.io_engine,
        };
        let file = FileDevice::open(source, how).map_err(|e| match e {
            Error::Io { op: "open", source, .. } => plain(&source),
            other => other.to_string(),
        })?;
        let mut device: Arc<dyn BlockDevice> = Arc::new(file);
        if let Some(name) = &options.disk_model {
            let spec =
                presets::by_name(name).ok_or_else(|| format!("disk_model={name}: unknown"))?;
            let scale = options.disk_scale;
            device = Arc::new(ModelDevice::new(device, spec, scale, MODEL_SEED));
        }
        if let Some(path) = &options.record {
            let r = Recorder::create(device, path)
                .map_err(|e| format!("record={}: {}", path.display(), plain(&e)))?;
            device = Arc::new(r);
        }
        self.device = Some(device);
        Ok(())
    }

    fn start(&mut self, options: &MountOptions) -> Result<Started<Adaptor>, String> {
        let device = self.device.take().ok_or("the image is not open")?;
        let fs = Fs::mount(device, options).map_err(|e| e.to_string())?;
        self.fs = Some(fs.clone());
        let control: Arc<dyn Control> = fs.clone();
        // SAFETY: these calls have no preconditions and cannot fail.
        let owner = unsafe { (libc::getuid(), libc::getgid()) };
        let name = options.ctldir.as_deref().unwrap_or(CTLDIR);
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
