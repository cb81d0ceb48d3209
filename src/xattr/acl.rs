//! Access control lists of inodes, and how they and the file mode keep each other true.

use super::{
    SetMode,
    acl_format::Acl,
    name::{ACL_ACCESS, ACL_DEFAULT},
};
use crate::{
    error::{Error, Result},
    inode::{Inode, Volume},
    journal::Handle,
    ondisk::FileKind,
};

const PERMS: u16 = 0o777;

/// Which of an inode's two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Who may access it.
    Access,
    /// What is created in it starts with this (directories only).
    Default,
}

impl Which {
    pub(super) fn from_index(index: u8) -> Option<Which> {
        match index {
            ACL_ACCESS => Some(Which::Access),
            ACL_DEFAULT => Some(Which::Default),
            _ => None,
        }
    }

    fn index(self) -> u8 {
        match self {
            Which::Access => ACL_ACCESS,
            Which::Default => ACL_DEFAULT,
        }
    }
}

/// The list of an inode, `None` if it has none: then its mode says everything.
///
/// # Errors
/// `NotSupported` if mounted `noacl`, or on a symlink; `Corrupt` if it is malformed.
pub fn get(vol: &Volume, inode: &Inode, which: Which) -> Result<Option<Acl>> {
    if !vol.conf.acl || kind(inode) == Some(FileKind::Symlink) {
        return Err(Error::NotSupported);
    }
    stored(vol, inode, which)
}

fn stored(vol: &Volume, inode: &Inode, which: Which) -> Result<Option<Acl>> {
    let Some(value) = super::read(vol, inode, which.index(), b"")? else { return Ok(None) };
    Acl::from_disk(&value).map(Some).ok_or_else(|| inode.corrupt("access control list"))
}

fn kind(inode: &Inode) -> Option<FileKind> {
    FileKind::from_mode(inode.mode())
}

/// Sets or removes a list. An access list changes the mode's permission bits to what it shows; one
/// that says no more than them is not stored. Credits: [`super::set_credits`].
///
/// The caller clears the set-group-id bit where the user is not of the file's group.
///
/// # Errors
/// `NotSupported` as [`get`]; `Access` for a default list on what is not a directory; `Invalid` for a
/// malformed one.
pub fn set(
    vol: &Volume,
    h: &mut Handle,
    inode: &Inode,
    which: Which,
    acl: Option<Acl>,
) -> Result<()> {
    if !vol.conf.acl || kind(inode) == Some(FileKind::Symlink) {
        return Err(Error::NotSupported);
    }
    if let Some(acl) = &acl {
        acl.check()?;
    }
    let mut store = acl;
    match which {
        Which::Default if kind(inode) != Some(FileKind::Directory) => {
            return if store.is_some() { Err(Error::Access) } else { Ok(()) };
        }
        Which::Default => {}
        Which::Access => {
            if let Some(acl) = &store {
                let (perms, equivalent) = acl.equivalent_mode();
                set_perms(vol, inode, perms);
                if equivalent {
                    store = None;
                }
            }
        }
    }
    write(vol, h, inode, which, store.as_ref())?;
    inode.store(vol, h)
}

fn set_perms(vol: &Volume, inode: &Inode, perms: u16) {
    let now = vol.now();
    let mut a = inode.attrs_mut();
    let mode = (a.rec.mode & !PERMS) | perms;
    if mode != a.rec.mode {
        a.rec.mode = mode;
        a.rec.ctime = now;
    }
}

fn write(
    vol: &Volume,
    h: &mut Handle,
    inode: &Inode,
    which: Which,
    acl: Option<&Acl>,
) -> Result<()> {
    let value = acl.map(Acl::to_disk);
    super::write(vol, h, inode, which.index(), b"", value.as_deref(), SetMode::Any)
}

/// Brings the access list, if there is one, in line with the mode that the inode was just given.
/// Credits: [`super::set_credits`].
pub fn chmod(vol: &Volume, h: &mut Handle, inode: &Inode) -> Result<()> {
    if !vol.conf.acl || kind(inode) == Some(FileKind::Symlink) {
        return Ok(());
    }
    let Some(mut acl) = stored(vol, inode, Which::Access)? else { return Ok(()) };
    if !acl.chmod(inode.mode()) {
        return Err(inode.corrupt("access control list without a group entry"));
    }
    set(vol, h, inode, Which::Access, Some(acl))
}

/// What a new inode takes from its directory's default list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inherited {
    /// Its mode, type bits included.
    pub mode: u16,
    /// Its access list, where the mode does not say it all.
    pub access: Option<Acl>,
    /// Its default list: of a directory.
    pub default: Option<Acl>,
}

impl Inherited {
    /// Whether [`apply`] has anything to do.
    pub fn is_plain(&self) -> bool {
        self.access.is_none() && self.default.is_none()
    }
}

/// What is created in `dir` with `mode` starts with. The umask counts only where there is no default
/// list. A symlink inherits nothing.
pub fn inherit(vol: &Volume, dir: &Inode, mode: u16, umask: u16) -> Result<Inherited> {
    let new = FileKind::from_mode(mode);
    let plain = |mode| Ok(Inherited { mode, access: None, default: None });
    if new == Some(FileKind::Symlink) {
        return plain(mode);
    }
    let default = if vol.conf.acl { stored(vol, dir, Which::Default)? } else { None };
    let Some(default) = default else { return plain(mode & !(umask & PERMS)) };
    let mut access = default.clone();
    let (mode, equivalent) = access
        .inherit(mode)
        .ok_or_else(|| dir.corrupt("default access control list without a group entry"))?;
    Ok(Inherited {
        mode,
        access: (!equivalent).then_some(access),
        default: (new == Some(FileKind::Directory)).then_some(default),
    })
}

/// Gives a new inode, created with [`Inherited::mode`], its lists. Credits: twice
/// [`super::set_credits`].
pub fn apply(vol: &Volume, h: &mut Handle, inode: &Inode, from: &Inherited) -> Result<()> {
    if let Some(acl) = &from.default {
        write(vol, h, inode, Which::Default, Some(acl))?;
    }
    if let Some(acl) = &from.access {
        write(vol, h, inode, Which::Access, Some(acl))?;
    }
    Ok(())
}
