//! What `uext4` really mounts: an ext4 image.

use super::daemon::{Backend, Started};
use crate::device::{FileDevice, OpenHow};
use crate::error::Error;
use crate::fuse::mount::plain;
use crate::options::MountOptions;
use std::path::Path;

/// An ext4 image or block device.
#[derive(Default)]
pub struct Ext4 {
    device: Option<FileDevice>,
}

/// Never made: stands where the adaptor will.
pub struct Nothing;
impl fuser::Filesystem for Nothing {}

impl Backend for Ext4 {
    type Filesystem = Nothing;

    fn open(&mut self, source: &Path, options: &MountOptions) -> Result<(), String> {
        let how = OpenHow {
            read_only: options.read_only,
            offset: options.offset,
            backing: options.backing,
            engine: options.io_engine,
        };
        self.device = Some(FileDevice::open(source, how).map_err(|e| match e {
            Error::Io { op: "open", source, .. } => plain(&source),
            other => other.to_string(),
        })?);
        Ok(())
    }

    fn start(&mut self, _options: &MountOptions) -> Result<Started<Nothing>, String> {
        Err("there is no file system behind the command yet".into())
    }

    fn end(self) -> Result<(), String> {
        Ok(())
    }
}
