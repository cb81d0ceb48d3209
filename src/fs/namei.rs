//! Operations on names: lookup, create, mkdir, mknod, symlink, link, unlink, rmdir.
//!
//! Each is one journal handle, so that after a crash it has happened or not.

use super::{Cred, Fs, Stat};
use crate::device::seeded::{self, Fault};
use crate::{
    dir,
    error::{Error, Result},
    inode::{self, Inode, NewInode, mode, orphan::ORPHAN_CREDITS},
    journal::Handle,
    ondisk::{FileKind, InodeFlags, RoCompat},
    trace,
    types::Ino,
    xattr,
};
use std::sync::Arc;

/// ext4's limit of links to a file (`EXT4_LINK_MAX`).
pub const LINK_MAX: u16 = 65_000;
/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;

/// Checks a name that is to be looked up or made.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("file name"));
    }
    Ok(())
}

impl Fs {
    /// The directory `ino`, or `ENOTDIR`.
    pub(super) fn dir(&self, ino: Ino) -> Result<Arc<Inode>> {
        let d = self.get(ino)?;
        if d.is_dir() { Ok(d) } else { Err(Error::NotDir) }
    }

    /// A directory in which names are to be made or removed.
    pub(super) fn dir_to_change(&self, ino: Ino, adding: bool) -> Result<Arc<Inode>> {
        self.vol.writable()?;
        let d = self.dir(ino)?;
        let f = d.flags();
        if f.contains(InodeFlags::IMMUTABLE) || (!adding && f.contains(InodeFlags::APPEND)) {
            return Err(Error::Perm);
        }
        if d.nlink() == 0 {
            return Err(Error::NotFound);
        }
        Ok(d)
    }

    /// Finds `name` in `parent` and counts a look-up of the kernel; `None` if there is none.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Option<Stat>> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let d = self.dir(parent)?;
        let found = {
            let _l = d.dir.read();
            let found = match name {
                b"." => Some(d.ino),
                b".." => Some(self.op("lookup", dir::parent(&self.vol, &d))?),
                _ => self.op("lookup", dir::lookup(&self.vol, &d, name))?.map(|e| e.ino),
            };
            // Counted under the directory's lock: an unlink that follows sees the count.
            if let Some(ino) = found {
                self.vol.inodes.add_lookup(ino);
            }
            found
        };
        let Some(ino) = found else { return Ok(None) };
        match self.get(ino) {
            Ok(i) => Ok(Some(Stat::of(self, &i))),
            Err(e) => {
                self.vol.inodes.forget(ino, 1);
                Err(match e {
                    Error::Stale => self.corrupt_entry(&d),
                    e => e,
                })
            }
        }
    }

    fn corrupt_entry(&self, d: &Inode) -> Error {
        let e = d.corrupt("directory entry names an unused inode");
        if let Error::Corrupt(c) = &e {
            self.vol.report("lookup", c);
        }
        e
    }

    /// Makes a file, device, fifo or socket (not a directory or symlink). `umask` applies where the
    /// directory has no default ACL. Counts a look-up of the kernel.
    pub fn mknod(
        &self,
        cred: Cred,
        parent: Ino,
        name: &[u8],
        mode: u16,
        umask: u16,
        rdev: u32,
    ) -> Result<Stat> {
        let t = mode & mode::FMT;
        let ft = match if t == 0 { mode::REG } else { t } {
            mode::REG => FileKind::Regular,
            mode::CHR => FileKind::CharDevice,
            mode::BLK => FileKind::BlockDevice,
            mode::FIFO => FileKind::Fifo,
            mode::SOCK => FileKind::Socket,
            _ => return Err(Error::Invalid("file type")),
        };
        let mode = if t == 0 { mode | mode::REG } else { mode };
        let i = self.make(cred, parent, name, (mode, umask), rdev, ft, |_, _| Ok(()))?;
        Ok(Stat::of(self, &i))
    }

    /// Makes a directory.
    pub fn mkdir(
        &self,
        cred: Cred,
        parent: Ino,
        name: &[u8],
        mode: u16,
        umask: u16,
    ) -> Result<Stat> {
        let mode = (mode & 0o7777) | mode::DIR;
        let p = self.dir(parent)?.ino;
        let i =
            self.make(cred, parent, name, (mode, umask), 0, FileKind::Directory, |h, new| {
                dir::init(&self.vol, h, new, p)
            })?;
        Ok(Stat::of(self, &i))
    }

    /// Makes a symbolic link to `target`.
    pub fn symlink(&self, cred: Cred, parent: Ino, name: &[u8], target: &[u8]) -> Result<Stat> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() >= self.vol.geo.block_size.bytes() {
            return Err(Error::NameTooLong);
        }
        let mode = mode::LNK | 0o777;
        let i = self.make(cred, parent, name, (mode, 0), 0, FileKind::Symlink, |h, new| {
            super::symlink::write_target(&self.vol, h, new, target)
        })?;
        Ok(Stat::of(self, &i))
    }

    #[allow(clippy::too_many_arguments)]
    fn make(
        &self,
        cred: Cred,
        parent: Ino,
        name: &[u8],
        mode: (u16, u16),
        rdev: u32,
        ft: FileKind,
        fill: impl Fn(&mut Handle, &Arc<Inode>) -> Result<()>,
    ) -> Result<Arc<Inode>> {
        check_name(name)?;
        self.retry_space(|| self.make_once(cred, parent, name, mode, rdev, ft, &fill))
    }

    #[allow(clippy::too_many_arguments)]
    fn make_once(
        &self,
        cred: Cred,
        parent: Ino,
        name: &[u8],
        (mode, umask): (u16, u16),
        rdev: u32,
        ft: FileKind,
        fill: &impl Fn(&mut Handle, &Arc<Inode>) -> Result<()>,
    ) -> Result<Arc<Inode>> {
        let d = self.dir_to_change(parent, true)?;
        let is_dir = ft == FileKind::Directory;
        let guard = d.dir.write();
        let spot = self.op("create", dir::search(&self.vol, &d, name))?;
        if spot.entry.is_some() {
            return Err(Error::Exists);
        }
        if is_dir {
            self.may_add_subdir(&d)?;
        }
        let (mode, gid) = self.inherit_group(&d, cred, mode, is_dir);
        let acl = self.op("create", xattr::acl::inherit(&self.vol, &d, mode, umask))?;
        let credits = dir::insert_credits(&d)
            + dir::init_credits(&d)
            + if acl.is_plain() { 0 } else { 2 * xattr::set_credits(&self.vol, 0) }
            + 8;
        let mut h = self.vol.journal.start("create", credits)?;
        let nlink = if is_dir { 2 } else { 1 };
        let new = NewInode { parent: &d, mode: acl.mode, uid: cred.uid, gid, rdev, nlink };
        let made = inode::new_inode(&self.vol, &mut h, &new);
        let i = self.op("create", made)?;
        let done = xattr::acl::apply(&self.vol, &mut h, &i, &acl)
            .and_then(|()| fill(&mut h, &i))
            .and_then(|()| dir::insert_at(&self.vol, &mut h, &d, &spot, name, i.ino, ft));
        if let Err(e) = done {
            let undo = xattr::release_all(&self.vol, &mut h, &i)
                .and_then(|()| inode::undo_new(&self.vol, &mut h, &i));
            self.op("create", undo)?;
            h.stop()?;
            return self.op("create", Err(e));
        }
        // A plain file is as `new_inode` stored it.
        if !acl.is_plain() || matches!(ft, FileKind::Directory | FileKind::Symlink) {
            i.store(&self.vol, &mut h)?;
        }
        self.subdirs_changed(&mut h, &d, i64::from(is_dir))?;
        self.vol.inodes.add_lookup(i.ino);
        drop(guard);
        self.finish(h, &[&d, &i])?;
        Ok(i)
    }

    /// `EMLINK` where one more subdirectory does not fit.
    pub(super) fn may_add_subdir(&self, d: &Inode) -> Result<()> {
        let uncounted = self.vol.geo.has_ro_compat(RoCompat::DIR_NLINK)
            && d.flags().contains(InodeFlags::INDEX);
        if d.nlink() >= u32::from(LINK_MAX) && !uncounted {
            return Err(Error::TooManyLinks);
        }
        Ok(())
    }

    /// Group and mode of a new inode: setgid directories and `grpid` pass the group on.
    fn inherit_group(&self, d: &Inode, cred: Cred, mode: u16, is_dir: bool) -> (u16, u32) {
        let a = d.attrs();
        if a.rec.mode & mode::SGID != 0 {
            return (if is_dir { mode | mode::SGID } else { mode }, a.rec.gid);
        }
        (mode, if self.vol.conf.grpid { a.rec.gid } else { cred.gid })
    }

    /// A directory has `subdirs` subdirectories more. (Its times are set and its inode stored by
    /// whatever changed its entries.)
    pub(super) fn subdirs_changed(&self, h: &mut Handle, d: &Inode, subdirs: i64) -> Result<()> {
        if subdirs == 0 {
            return Ok(());
        }
        {
            let mut a = d.attrs_mut();
            a.rec.links_count = add_subdirs(a.rec.links_count, subdirs);
        }
        d.store(&self.vol, h)
    }

    /// Makes `name` in `parent` another name of `ino`. Counts a look-up of the kernel.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Stat> {
        check_name(name)?;
        self.retry_space(|| self.link_once(ino, parent, name))
    }

    fn link_once(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Stat> {
        let d = self.dir_to_change(parent, true)?;
        let i = self.get(ino)?;
        if i.is_dir() {
            return Err(Error::Perm);
        }
        if i.flags().intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(Error::Perm);
        }
        let guard = d.dir.write();
        let spot = self.op("link", dir::search(&self.vol, &d, name))?;
        if spot.entry.is_some() {
            return Err(Error::Exists);
        }
        let credits = dir::insert_credits(&d) + ORPHAN_CREDITS + 4;
        let mut h = self.vol.journal.start("link", credits)?;
        let ft = FileKind::from_mode(i.mode()).unwrap_or(FileKind::Regular);
        {
            let mut a = i.attrs_mut();
            if a.rec.links_count == 0 {
                return Err(Error::NotFound);
            }
            if a.rec.links_count >= LINK_MAX {
                return Err(Error::TooManyLinks);
            }
            a.rec.links_count += 1;
            a.rec.ctime = self.vol.now();
        }
        let inserted = dir::insert_at(&self.vol, &mut h, &d, &spot, name, i.ino, ft);
        if let Err(e) = inserted {
            i.attrs_mut().rec.links_count -= 1;
            return self.op("link", Err(e));
        }
        i.store(&self.vol, &mut h)?;
        self.vol.inodes.add_lookup(i.ino);
        drop(guard);
        self.finish(h, &[&d, &i])?;
        Ok(Stat::of(self, &i))
    }

    /// Removes a name of something that is not a directory.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let r = self.unlink_entry(parent, name);
        trace::event!(UnlinkExit, parent, ret: trace::ret(&r));
        r
    }

    fn unlink_entry(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let d = self.dir_to_change(parent, false)?;
        let guard = d.dir.write();
        let spot = self.op("unlink", dir::search(&self.vol, &d, name))?;
        let e = spot.entry.ok_or(Error::NotFound)?;
        let i = self.entry_inode(&d, e.ino)?;
        if i.is_dir() {
            return Err(Error::IsDir);
        }
        self.may_remove(&i)?;
        trace::event!(UnlinkEnter, i.ino, size: i.size(), parent: parent.0);
        let credits = dir::CHANGE_CREDITS + ORPHAN_CREDITS + 4;
        let mut h = self.vol.journal.start("unlink", credits)?;
        self.op("unlink", dir::remove_at(&self.vol, &mut h, &d, &spot, name))?;
        if seeded::on(Fault::UnlinkInTwo) {
            h.stop()?;
            self.vol.journal.commit_all()?;
            h = self.vol.journal.start("unlink", credits)?;
        }
        self.drop_link(&mut h, &i)?;
        drop(guard);
        self.finish(h, &[&d])?;
        self.maybe_reap(&i);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        if name == b"." {
            return Err(Error::Invalid("rmdir of ."));
        }
        if name == b".." {
            return Err(Error::NotEmpty);
        }
        let d = self.dir_to_change(parent, false)?;
        let guard = d.dir.write();
        let e = self.op("rmdir", dir::lookup(&self.vol, &d, name))?.ok_or(Error::NotFound)?;
        let i = self.entry_inode(&d, e.ino)?;
        if !i.is_dir() {
            return Err(Error::NotDir);
        }
        if i.ino == Ino::ROOT || i.ino == d.ino {
            return Err(d.corrupt("entry names the root or the directory itself"));
        }
        self.may_remove(&i)?;
        let child = i.dir.write();
        if !self.op("rmdir", dir::is_empty(&self.vol, &i))? {
            return Err(Error::NotEmpty);
        }
        let credits = dir::CHANGE_CREDITS + ORPHAN_CREDITS + 4;
        let mut h = self.vol.journal.start("rmdir", credits)?;
        self.op("rmdir", dir::remove(&self.vol, &mut h, &d, name))?;
        self.kill_dir(&mut h, &i)?;
        self.subdirs_changed(&mut h, &d, -1)?;
        drop(child);
        drop(guard);
        self.finish(h, &[&d])?;
        self.maybe_reap(&i);
        Ok(())
    }

    /// The inode that an entry of `d` names; an entry that names none is corruption.
    pub(super) fn entry_inode(&self, d: &Inode, ino: Ino) -> Result<Arc<Inode>> {
        self.get(ino).map_err(|e| if let Error::Stale = e { self.corrupt_entry(d) } else { e })
    }

    /// `EPERM` for immutable and append-only inodes.
    pub(super) fn may_remove(&self, i: &Inode) -> Result<()> {
        if i.flags().intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(Error::Perm);
        }
        Ok(())
    }

    /// One link less; without any the inode becomes an orphan.
    pub(super) fn drop_link(&self, h: &mut Handle, i: &Arc<Inode>) -> Result<()> {
        let gone = {
            let mut a = i.attrs_mut();
            if a.rec.links_count == 0 {
                log::warn!("inode {}: unlinked with a link count of 0", i.ino);
            }
            a.rec.links_count = a.rec.links_count.saturating_sub(1);
            a.rec.ctime = self.vol.now();
            a.rec.links_count == 0
        };
        if gone {
            self.vol.orphans.add(&self.vol, h, i)?;
        }
        i.store(&self.vol, h)
    }

    /// A directory that lost its name: no links, an orphan.
    pub(super) fn kill_dir(&self, h: &mut Handle, i: &Arc<Inode>) -> Result<()> {
        {
            let mut a = i.attrs_mut();
            a.rec.links_count = 0;
            a.size = 0;
            a.rec.ctime = self.vol.now();
        }
        self.vol.orphans.add(&self.vol, h, i)?;
        i.store(&self.vol, h)
    }

    /// Ends an operation: a synchronous mount, directory or file waits for the commit.
    pub(super) fn finish(&self, h: Handle, touched: &[&Inode]) -> Result<()> {
        let tid = h.tid();
        h.stop()?;
        let sync = self.vol.conf.sync
            || touched.iter().any(|i| {
                let f = i.flags();
                f.contains(InodeFlags::SYNC)
                    || i.is_dir() && (self.vol.conf.dirsync || f.contains(InodeFlags::DIRSYNC))
            });
        if sync { self.vol.journal.wait_commit(tid) } else { Ok(()) }
    }
}

/// The link count of a directory with `delta` subdirectories more. Above 65,000 it
/// is 1, "unknown", and stays so (dir_nlink).
pub(super) fn add_subdirs(links: u16, delta: i64) -> u16 {
    match (links, delta) {
        (1, _) | (_, 0) => links,
        (n, d) if d > 0 => {
            if n >= LINK_MAX {
                1
            } else {
                n + 1
            }
        }
        (n, _) => n.saturating_sub(1).max(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_link_counts_follow_ext4() {
        assert_eq!(add_subdirs(2, 1), 3);
        assert_eq!(add_subdirs(LINK_MAX - 1, 1), LINK_MAX);
        assert_eq!(add_subdirs(LINK_MAX, 1), 1);
        assert_eq!(add_subdirs(1, 1), 1);
        assert_eq!(add_subdirs(1, -1), 1);
        assert_eq!(add_subdirs(3, -1), 2);
        assert_eq!(add_subdirs(2, -1), 2);
    }
}
