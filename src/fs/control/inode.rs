//! The names of one file. What is set lasts for as long as the inode stays in memory.

use super::super::Fs;
use crate::{
    inode::lock_mode::{self, LockMode},
    options::{ControlError, PolicyName},
    types::Ino,
};

/// Names that the mount has too.
const SHARED: &[&str] = &["writeback_policy", "dioread_mode", "delayed_allocation_blocks"];

/// Whether a name of the mount can be asked of one inode.
pub fn has(name: &str) -> bool {
    SHARED.contains(&name)
}

impl Fs {
    pub(super) fn inode_knob(&self, ino: Ino, name: &str) -> Result<String, ControlError> {
        match name {
            "writeback_policy" => Ok(self.wb.policy_of(&*self.get(ino)?).to_string()),
            // What it works as, which may be less than what it was set to.
            "dioread_mode" => {
                Ok(lock_mode::effective(&self.vol, &*self.get(ino)?).name().to_owned())
            }
            "delayed_allocation_blocks" => {
                Ok(self.get(ino)?.pages.lock().reserved_blocks().to_string())
            }
            "extents" => Ok(self.extents_text(ino)?),
            _ => Err(ControlError::unknown(name)),
        }
    }

    pub(super) fn set_inode_knob(
        &self,
        ino: Ino,
        name: &str,
        value: &str,
    ) -> Result<(), ControlError> {
        match name {
            "writeback_policy" => {
                let i = self.get(ino)?;
                let policy = match value {
                    "default" => None,
                    _ => Some(PolicyName::parse(value).map_err(|why| {
                        ControlError::invalid(name, value, format!("{why}, or default"))
                    })?),
                };
                self.wb.set_policy_of(&i, policy);
                Ok(())
            }
            "dioread_mode" => {
                let mode = LockMode::by_name(value)
                    .ok_or_else(|| ControlError::invalid(name, value, LockMode::NAMES))?;
                Ok(self.set_dioread_mode(ino, mode)?)
            }
            "delayed_allocation_blocks" | "extents" => Err(ControlError::read_only(name)),
            _ => Err(ControlError::unknown(name)),
        }
    }
}
