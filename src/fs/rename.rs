//! rename(2) and renameat2(2) with NOREPLACE, EXCHANGE and WHITEOUT.
//!
//! Lock order: the rename mutex if two directories take part (the tree's shape
//! then stands still), the directories with an ancestor before its
//! descendants, then directories that are moved or replaced, by number.

use super::{Cred, Fs, namei::check_name};
use crate::device::seeded::{self, Fault};
use crate::{
    dir,
    error::{Error, Result},
    inode::{self, Inode, NewInode, mode, orphan::ORPHAN_CREDITS},
    journal::Handle,
    ondisk::{FileKind, InodeFlags},
    types::Ino,
};
use std::sync::Arc;

bitflags::bitflags! {
    /// Flags of renameat2(2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail if the new name exists.
        const NOREPLACE = 1;
        /// Swap the two names.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0:0) at the old name.
        const WHITEOUT = 4;
    }
}

/// A name and what it names.
struct Side<'a> {
    dir: &'a Arc<Inode>,
    name: &'a [u8],
    inode: Arc<Inode>,
}

impl Fs {
    /// Renames `name` in `parent` to `new_name` in `new_parent`.
    pub fn rename(
        &self,
        cred: Cred,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        let flags = RenameFlags::from_bits(flags).ok_or(Error::Invalid("rename flags"))?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && flags.intersects(RenameFlags::NOREPLACE | RenameFlags::WHITEOUT) {
            return Err(Error::Invalid("rename flags"));
        }
        check_name(name)?;
        check_name(new_name)?;
        if [name, new_name].iter().any(|n| *n == b"." || *n == b"..") {
            return Err(Error::Busy);
        }
        self.retry_space(|| self.rename_once(cred, (parent, name), (new_parent, new_name), flags))
    }

    fn rename_once(
        &self,
        cred: Cred,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let from = self.dir_to_change(parent, false)?;
        let to = self.dir_to_change(new_parent, !exchange)?;
        let cross = from.ino != to.ino;
        let _shape = cross.then(|| self.rename_lock.lock());
        // Data before name: what replaces a file is on disk, map and size included, before
        // the new name can commit. Done with no directory locked, then checked again.
        self.flush_before_replace(&from, name, &to, new_name, exchange)?;
        let to_first = cross && self.ancestor_of(&to, &from)?;
        let from_first = cross && !to_first && (self.ancestor_of(&from, &to)? || from.ino < to.ino);
        let (_a, _b) = if !cross {
            (from.dir.write(), None)
        } else if from_first {
            let a = from.dir.write();
            (a, Some(to.dir.write()))
        } else {
            let a = to.dir.write();
            (a, Some(from.dir.write()))
        };
        let old = self.side(&from, name)?.ok_or(Error::NotFound)?;
        let new = self.side(&to, new_name)?;
        if flags.contains(RenameFlags::NOREPLACE) && new.is_some() {
            return Err(Error::Exists);
        }
        self.may_remove(&old.inode)?;
        if cross && old.inode.is_dir() && self.ancestor_of(&old.inode, &to)? {
            return Err(Error::Invalid("a directory into itself"));
        }
        match new {
            Some(n) if exchange => self.exchange(old, n),
            None if exchange => Err(Error::NotFound),
            new => self.replace(cred, old, &to, new_name, new, flags),
        }
    }

    fn side<'a>(&self, dir: &'a Arc<Inode>, name: &'a [u8]) -> Result<Option<Side<'a>>> {
        let Some(entry) = self.op("rename", dir::lookup(&self.vol, dir, name))? else {
            return Ok(None);
        };
        let inode = self.entry_inode(dir, entry.ino)?;
        Ok(Some(Side { dir, name, inode }))
    }

    /// Whether `a` is `b` or above it. The rename mutex is held: no directory moves.
    fn ancestor_of(&self, a: &Inode, b: &Inode) -> Result<bool> {
        if !a.is_dir() {
            return Ok(false);
        }
        let mut at = b.ino;
        // A path of more directories than there are inodes is a cycle.
        for _ in 0..=self.vol.geo.inodes_count {
            if at == a.ino {
                return Ok(true);
            }
            if at == Ino::ROOT {
                return Ok(false);
            }
            at = self.op("rename", dir::parent(&self.vol, &*self.get(at)?))?;
        }
        Err(b.corrupt("directories form a cycle"))
    }

    /// `auto_da_alloc` for a rename over an existing file and for an exchange.
    fn flush_before_replace(
        &self,
        from: &Arc<Inode>,
        name: &[u8],
        to: &Arc<Inode>,
        new_name: &[u8],
        exchange: bool,
    ) -> Result<()> {
        if !self.vol.conf.auto_da_alloc || seeded::on(Fault::RenameWithoutData) {
            return Ok(());
        }
        let find = |d: &Arc<Inode>, n: &[u8]| -> Result<Option<Arc<Inode>>> {
            let _l = d.dir.read();
            match dir::lookup(&self.vol, d, n)? {
                Some(e) => Ok(Some(self.entry_inode(d, e.ino)?)),
                None => Ok(None),
            }
        };
        let Some(b) = find(to, new_name)? else { return Ok(()) };
        let Some(a) = find(from, name)? else { return Ok(()) };
        if a.is_reg() {
            self.write_out(&a)?;
        }
        if exchange && b.is_reg() {
            self.write_out(&b)?;
        }
        Ok(())
    }

    fn exchange(&self, old: Side<'_>, new: Side<'_>) -> Result<()> {
        self.may_remove(&new.inode)?;
        if old.inode.ino == new.inode.ino {
            return Ok(());
        }
        let cross = old.dir.ino != new.dir.ino;
        if cross && new.inode.is_dir() && self.ancestor_of(&new.inode, old.dir)? {
            return Err(Error::Invalid("a directory into itself"));
        }
        let (od, nd) = (old.inode.is_dir(), new.inode.is_dir());
        if cross && od && !nd {
            self.may_add_subdir(new.dir)?;
        }
        if cross && nd && !od {
            self.may_add_subdir(old.dir)?;
        }
        let credits = 4 * dir::CHANGE_CREDITS + 8;
        let mut h = self.vol.journal.start("rename", credits)?;
        let vol = &self.vol;
        let (oft, nft) = (self.type_of(&old), self.type_of(&new));
        self.op("rename", dir::replace(vol, &mut h, new.dir, new.name, old.inode.ino, oft))?;
        self.op("rename", dir::replace(vol, &mut h, old.dir, old.name, new.inode.ino, nft))?;
        if cross && od {
            self.op("rename", dir::set_parent(vol, &mut h, &old.inode, new.dir.ino))?;
        }
        if cross && nd {
            self.op("rename", dir::set_parent(vol, &mut h, &new.inode, old.dir.ino))?;
        }
        let moved = if cross { i64::from(nd) - i64::from(od) } else { 0 };
        self.subdirs_changed(&mut h, old.dir, moved)?;
        if cross {
            self.subdirs_changed(&mut h, new.dir, -moved)?;
        }
        for i in [&old.inode, &new.inode] {
            self.changed(&mut h, i)?;
        }
        self.finish(h, &[old.dir, new.dir])
    }

    fn type_of(&self, s: &Side<'_>) -> FileKind {
        FileKind::from_mode(s.inode.mode()).unwrap_or(FileKind::Regular)
    }

    /// New ctime, stored: the inode's name changed.
    fn changed(&self, h: &mut Handle, i: &Inode) -> Result<()> {
        i.attrs_mut().rec.ctime = self.vol.now();
        i.store(&self.vol, h)
    }

    fn replace(
        &self,
        cred: Cred,
        old: Side<'_>,
        to: &Arc<Inode>,
        new_name: &[u8],
        new: Option<Side<'_>>,
        flags: RenameFlags,
    ) -> Result<()> {
        let vol = &self.vol;
        let moving_dir = old.inode.is_dir();
        let cross = old.dir.ino != to.ino;
        if let Some(n) = &new {
            if n.inode.ino == old.inode.ino {
                return Ok(());
            }
            self.may_remove(&n.inode)?;
            match (moving_dir, n.inode.is_dir()) {
                (true, false) => return Err(Error::NotDir),
                (false, true) => return Err(Error::IsDir),
                _ => {}
            }
            if to.flags().contains(InodeFlags::APPEND) {
                return Err(Error::Perm);
            }
        }
        let victim = new.as_ref().filter(|n| n.inode.is_dir()).map(|n| n.inode.clone());
        let _v = victim.as_ref().map(|v| v.dir.write());
        if let Some(v) = &victim
            && !self.op("rename", dir::is_empty(vol, v))?
        {
            return Err(Error::NotEmpty);
        }
        if moving_dir && cross && new.is_none() {
            self.may_add_subdir(to)?;
        }
        let credits = dir::insert_credits(to)
            + 3 * dir::CHANGE_CREDITS
            + 2 * ORPHAN_CREDITS
            + dir::init_credits(to)
            + 12;
        let mut h = vol.journal.start("rename", credits)?;
        let ft = self.type_of(&old);
        let whiteout = if flags.contains(RenameFlags::WHITEOUT) {
            let new = NewInode {
                parent: old.dir,
                mode: mode::CHR,
                uid: cred.uid,
                gid: cred.gid,
                rdev: 0,
                nlink: 1,
            };
            Some(self.op("rename", inode::new_inode(vol, &mut h, &new))?)
        } else {
            None
        };
        let entered = match &new {
            Some(_) => dir::replace(vol, &mut h, to, new_name, old.inode.ino, ft).map(|_| ()),
            None => dir::insert(vol, &mut h, to, new_name, old.inode.ino, ft),
        };
        if let Err(e) = entered {
            if let Some(w) = whiteout {
                inode::undo_new(vol, &mut h, &w)?;
            }
            return self.op("rename", Err(e));
        }
        match &whiteout {
            Some(w) => {
                let r = dir::replace(vol, &mut h, old.dir, old.name, w.ino, FileKind::CharDevice);
                self.op("rename", r)?;
                w.store(vol, &mut h)?;
            }
            None => {
                self.op("rename", dir::remove(vol, &mut h, old.dir, old.name))?;
            }
        }
        if moving_dir && cross {
            self.op("rename", dir::set_parent(vol, &mut h, &old.inode, to.ino))?;
        }
        self.changed(&mut h, &old.inode)?;
        let mut gone = 0;
        if let Some(n) = &new {
            if n.inode.is_dir() {
                self.kill_dir(&mut h, &n.inode)?;
                gone = 1;
            } else {
                self.drop_link(&mut h, &n.inode)?;
            }
        }
        let moved = i64::from(moving_dir);
        if cross {
            self.subdirs_changed(&mut h, old.dir, -moved)?;
            self.subdirs_changed(&mut h, to, moved - gone)?;
        } else {
            self.subdirs_changed(&mut h, old.dir, -gone)?;
        }
        self.finish(h, &[old.dir, to])?;
        if let Some(n) = new {
            self.maybe_reap(&n.inode);
        }
        Ok(())
    }
}
