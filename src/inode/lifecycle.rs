//! The beginning and the end of an inode.

use super::{Attrs, Inode, Volume, mode, orphan::ORPHAN_CREDITS, store::Store, truncate};
use crate::{
    error::{Error, Result},
    journal::Handle,
    map::FileMap,
    ondisk::{FileKind, Incompat, InodeFlags, InodeRecord, inode::encode_rdev},
    trace,
    types::{Ino, LBlock},
};
use std::sync::{Arc, atomic::Ordering};

/// What a new inode starts with.
pub struct NewInode<'a> {
    /// Its directory.
    pub parent: &'a Inode,
    /// Type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number (character and block devices), as Linux encodes it in stat.
    pub rdev: u32,
    /// Link count to start with: 2 for a directory.
    pub nlink: u16,
}

/// Allocates a number, fills the slot and makes the inode known, all in this
/// handle. The inode is stored; the caller enters it in a directory, or undoes it with
/// [`undo_new`].
pub fn new_inode(vol: &Volume, h: &mut Handle, n: &NewInode<'_>) -> Result<Arc<Inode>> {
    let is_dir = n.mode & mode::FMT == mode::DIR;
    let top =
        is_dir && (n.parent.ino == Ino::ROOT || n.parent.flags().contains(InodeFlags::TOPDIR));
    let ino = vol.alloc.alloc_inode(h, n.parent.ino, is_dir, top)?;
    match fill_slot(vol, h, n, ino) {
        Ok(inode) => Ok(inode),
        Err(e) => {
            vol.alloc.free_inode(h, ino, is_dir)?;
            Err(e)
        }
    }
}

fn fill_slot(vol: &Volume, h: &mut Handle, n: &NewInode<'_>, ino: Ino) -> Result<Arc<Inode>> {
    let at = vol.slot(ino)?;
    let kind = FileKind::from_mode(n.mode).ok_or(Error::Invalid("file type"))?;
    let parent_flags = n.parent.flags();
    let mut rec = InodeRecord::new(&vol.geo, n.mode, n.uid, n.gid, vol.now());
    rec.links_count = n.nlink;
    rec.generation = vol.next_generation();
    rec.flags = parent_flags.inherit(kind);
    if parent_flags.contains(InodeFlags::PROJINHERIT) {
        rec.projid = n.parent.attrs().rec.projid;
    }
    match kind {
        FileKind::Regular | FileKind::Directory => FileMap::init_block(&vol.geo, &mut rec),
        k if k.is_device() => {
            let (major, minor) = (libc::major(n.rdev.into()), libc::minor(n.rdev.into()));
            encode_rdev(&mut rec.i_block, major, minor)?;
        }
        _ => {}
    }
    let ibody = vec![0; rec.ibody_range(&vol.geo).len()];
    let inode = Arc::new(Inode::from_record(vol, ino, rec, ibody)?);
    let inline = kind == FileKind::Regular && vol.geo.has_incompat(Incompat::INLINE_DATA);
    inode.may_inline.store(inline, Ordering::Release);
    inode.store_at(vol, h, at, Store::New)?;
    vol.inodes.insert(inode.clone());
    trace::event!(AllocateInode, ino, dir: n.parent.ino.0, mode: n.mode);
    Ok(inode)
}

/// Takes back an inode that [`new_inode`] made in this same handle and that no directory names.
pub fn undo_new(vol: &Volume, h: &mut Handle, inode: &Arc<Inode>) -> Result<()> {
    if inode.has_map() {
        truncate::remove_blocks(vol, h, inode, LBlock(0), u64::MAX)?;
    }
    release_number(vol, h, inode)
}

fn release_number(vol: &Volume, h: &mut Handle, inode: &Arc<Inode>) -> Result<()> {
    let is_dir = inode.is_dir();
    trace::event!(FreeInode, inode.ino, mode: inode.mode(), blocks: inode.blocks512());
    {
        let mut a: parking_lot::RwLockWriteGuard<'_, Attrs> = inode.attrs_mut();
        a.rec.links_count = 0;
        a.rec.dtime = vol.now().sec as u32;
        a.size = 0;
        a.rec.size = 0;
    }
    inode.store(vol, h)?;
    inode.freed.store(true, Ordering::Release);
    vol.inodes.remove(inode.ino);
    vol.alloc.free_inode(h, inode.ino, is_dir)
}

/// Ends an inode without links: frees its blocks, its attributes (through
/// `release_xattrs`, a room above) and, if `number` is set, its number. Holds no locks when called;
/// nothing else uses the inode. Must be an orphan.
pub fn free_inode(
    vol: &Volume,
    inode: &Arc<Inode>,
    number: bool,
    release_xattrs: impl FnOnce(&mut Handle) -> Result<()>,
    xattr_credits: u32,
) -> Result<()> {
    if inode.nlink() != 0 {
        return Err(Error::Invalid("inode still has links"));
    }
    trace::event!(EvictInode, inode.ino, nlink: inode.nlink());
    let closed = inode.gate.close();
    let mut h = vol.journal.start(
        "evict_inode",
        truncate::remove_credits(inode) + xattr_credits + 2 * ORPHAN_CREDITS,
    )?;
    let vacant = inode.map().is_ok_and(|m| m.is_vacant());
    if inode.has_map() && !(vacant && number) {
        let mut a = inode.attrs_mut();
        a.size = 0;
        a.rec.size = 0;
        drop(a);
        truncate::remove_blocks(vol, &mut h, inode, LBlock(0), u64::MAX)?;
    }
    drop(closed);
    if number {
        if !h.ensure(xattr_credits + ORPHAN_CREDITS + 6)? {
            h.restart(xattr_credits + ORPHAN_CREDITS + 6)?;
        }
        release_xattrs(&mut h)?;
        vol.orphans.remove(vol, &mut h, inode)?;
        release_number(vol, &mut h, inode)?;
    }
    h.stop()
}
