//! Extended attributes, as the system calls have them.

use super::{Cred, Fs};
use crate::{
    error::{Error, Result},
    inode::{Inode, mode},
    journal::Handle,
    types::Ino,
    xattr::{self, SetMode},
};
use std::sync::{Arc, atomic::Ordering};

impl Fs {
    /// The value of attribute `name` (with its prefix).
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let i = self.get(ino)?;
        self.op("getxattr", xattr::get(&self.vol, &i, name))
    }

    /// The names of all attributes, each with a NUL behind it.
    pub fn listxattr(&self, cred: Cred, ino: Ino) -> Result<Vec<u8>> {
        let i = self.get(ino)?;
        self.op("listxattr", xattr::list(&self.vol, &i, cred.uid == 0))
    }

    /// Sets attribute `name`. `flags` are XATTR_CREATE and XATTR_REPLACE.
    pub fn setxattr(
        &self,
        cred: Cred,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<()> {
        self.vol.writable()?;
        let i = self.get(ino)?;
        let how = match flags & (libc::XATTR_CREATE | libc::XATTR_REPLACE) {
            0 => SetMode::Any,
            libc::XATTR_CREATE => SetMode::Create,
            libc::XATTR_REPLACE => SetMode::Replace,
            _ => return Err(Error::Invalid("xattr flags")),
        };
        self.retry_space(|| {
            self.change_xattr(&i, value.len(), |h| {
                xattr::set(&self.vol, h, &i, name, value, how)?;
                if name == b"system.posix_acl_access" {
                    clear_sgid(cred, &i);
                }
                Ok(())
            })
        })
    }

    /// Removes attribute `name`.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.vol.writable()?;
        let i = self.get(ino)?;
        self.change_xattr(&i, 0, |h| xattr::remove(&self.vol, h, &i, name))?;
        i.cap_removed.store(name == b"security.capability", Ordering::Release);
        Ok(())
    }

    fn change_xattr(
        &self,
        i: &Arc<Inode>,
        len: usize,
        f: impl FnOnce(&mut Handle) -> Result<()>,
    ) -> Result<()> {
        let credits = xattr::set_credits(&self.vol, len) + 2;
        let mut h = self.vol.journal.start("setxattr", credits)?;
        let r = f(&mut h);
        if r.is_ok() {
            i.store(&self.vol, &mut h)?;
        }
        self.op("setxattr", r)?;
        self.finish(h, &[i])
    }
}

/// A user who is not of the file's group loses its set-group-id bit with a new access list.
/// Supplementary groups are not known here.
fn clear_sgid(cred: Cred, i: &Inode) {
    let mut a = i.attrs_mut();
    if !cred.in_group(a.rec.gid) {
        a.rec.mode &= !mode::SGID;
    }
}
