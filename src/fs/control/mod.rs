//! What can be seen and turned on a live mount: the control directory and the control
//! socket ask here. Names are ext4's where ext4 has them, under /sys/fs/ext4 or
//! /proc/fs/ext4. [`knobs`] has those of the mount, [`inode`] those of one file.
//!
//! A value set here and the mount option of that name are one thing: `options` shows what
//! is in force, and a remount goes through the same setters.

mod extents;
mod inode;
mod knobs;
mod remount;
mod report;
mod tracing;

use super::Fs;
use crate::options::{Control, ControlError, ControlName, Scope, Shutdown, TraceStream};
use knobs::KNOBS;

impl Control for Fs {
    fn names(&self) -> Vec<ControlName> {
        let of_mount = KNOBS.iter().map(|k| ControlName {
            name: k.name,
            writable: k.set.is_some(),
            per_inode: inode::has(k.name),
        });
        of_mount.collect()
    }

    fn get(&self, scope: Scope, name: &str) -> Result<String, ControlError> {
        let mut text = match scope {
            Scope::Mount => (knobs::find(name)?.get)(self),
            Scope::Inode(ino) => self.inode_knob(ino, name)?,
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }

    fn set(&self, scope: Scope, name: &str, value: &str) -> Result<(), ControlError> {
        match scope {
            Scope::Mount => {
                let set = knobs::find(name)?.set.ok_or_else(|| ControlError::read_only(name))?;
                set(self, value).map_err(|why| ControlError::invalid(name, value, why))
            }
            Scope::Inode(ino) => self.set_inode_knob(ino, name, value),
        }
    }

    fn remount(&self, options: &str) -> Result<Vec<String>, ControlError> {
        self.change_options(options)
    }

    fn sync(&self) -> Result<(), ControlError> {
        Ok(Fs::sync(self)?)
    }

    fn shutdown(&self, how: Shutdown) -> Result<(), ControlError> {
        match how {
            Shutdown::Default => Fs::sync(self)?,
            Shutdown::LogFlush => self.vol.journal.commit_all()?,
            Shutdown::NoLogFlush => {}
        }
        Fs::shutdown(self);
        Ok(())
    }

    fn trace(&self, filter: &str) -> Result<Box<dyn TraceStream>, ControlError> {
        self.open_trace(filter)
    }
}
