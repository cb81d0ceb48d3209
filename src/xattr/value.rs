//! Values in inodes of their own (`ea_inode`): shared by whoever has the same value, counted, and
//! gone with the last reference.
//!
//! Such an inode keeps the count in ctime (high half) and version (low half), and the checksum of the
//! value in atime. Lustre's older kind has one owner, named by mtime and generation.

use crate::{
    error::{Corrupt, Error, Result},
    inode::{self, Inode, Volume},
    journal::Handle,
    map::{AllocHow, Enter, FileMap, Kind},
    ondisk::{
        InodeFlags, Seal, Timestamp,
        csum::crc32c,
        xattr::{Entry, Value},
    },
    types::{Ino, LBlock},
};
use std::sync::Arc;

/// Largest value that is read, in bytes: what the system call interface can carry.
pub const SIZE_MAX: usize = 65536;

/// A value that found its inode; one reference is taken.
pub struct Stored {
    pub ino: Ino,
    /// Checksum of the value.
    pub hash: u32,
}

/// Metadata blocks that storing a value of `len` bytes may change.
pub fn store_credits(vol: &Volume, len: usize) -> u32 {
    let blocks = vol.geo.block_size.blocks_for(len as u64) as u32;
    // Its number, slot and map; the blocks, each in the worst case a run of its own.
    crate::alloc::credits::ALLOC_INODE + 8 + 3 * blocks
}

/// Metadata blocks that dropping a reference to a value of `len` bytes may change.
pub fn drop_credits(vol: &Volume, len: usize) -> u32 {
    let blocks = vol.geo.block_size.blocks_for(len as u64) as u32;
    crate::alloc::credits::FREE_INODE + 6 + 2 * blocks
}

fn hash_of(vol: &Volume, value: &[u8]) -> u32 {
    crc32c(vol.geo.csum_seed, value)
}

/// The inode `ino`, if it is one of a value of `size` bytes.
fn open(vol: &Volume, ino: u32, size: u32) -> Result<Arc<Inode>> {
    let bad = |what, v: u64| Error::from(Corrupt::new(what).ino(Ino(ino)).value(v));
    if Ino(ino) == Ino::ROOT || !vol.geo.is_user_ino(Ino(ino)) {
        return Err(bad("inode of an attribute's value", ino.into()));
    }
    let inode = match vol.inodes.get(vol, Ino(ino)) {
        Err(Error::Stale) => return Err(bad("inode of an attribute's value is not in use", 0)),
        r => r?,
    };
    if !inode.flags().contains(InodeFlags::EA_INODE) {
        return Err(bad("inode of an attribute's value is not one", inode.flags().bits().into()));
    }
    if inode.size() != u64::from(size) {
        return Err(bad("size of an attribute's value in its inode", inode.size()));
    }
    Ok(inode)
}

/// The value that `entry` of `owner` says is in inode `ino`.
pub fn read(
    vol: &Volume,
    owner: &Inode,
    entry: &Entry<'_>,
    ino: u32,
    size: u32,
) -> Result<Vec<u8>> {
    let inode = open(vol, ino, size)?;
    let value = contents(vol, &inode)?;
    let hash = hash_of(vol, &value);
    let (stored, parent) = {
        let a = inode.attrs();
        (a.rec.atime.sec as u32, a.rec.mtime.sec as u32)
    };
    let lustre = parent == owner.ino.0 && inode.generation == owner.generation;
    if !lustre {
        let wrong = |what| Error::from(Corrupt::checksum(what).ino(inode.ino).value(hash.into()));
        if stored != hash {
            return Err(wrong("attribute value in its inode"));
        }
        if !entry.matches_inode_hash(hash) {
            return Err(wrong("attribute entry of a value in an inode"));
        }
    }
    Ok(value)
}

fn contents(vol: &Volume, inode: &Inode) -> Result<Vec<u8>> {
    let size = usize::try_from(inode.size()).ok().filter(|&n| n <= SIZE_MAX);
    let size = size.ok_or_else(|| {
        Error::from(Corrupt::new("attribute value too large").ino(inode.ino).value(inode.size()))
    })?;
    let mut value = Vec::with_capacity(size);
    let mut lblk = 0;
    while value.len() < size {
        let buf = inode::meta_block(vol, inode, LBlock(lblk), &Seal::None)?
            .ok_or_else(|| inode.corrupt("hole in an attribute value"))?;
        buf.read(|b| {
            value.extend_from_slice(b.get(..(size - value.len()).min(b.len())).unwrap_or(b))
        });
        lblk += 1;
    }
    Ok(value)
}

/// Stores a value, or takes a reference to an inode that has it already.
pub fn store(vol: &Volume, h: &mut Handle, owner: &Inode, value: &[u8]) -> Result<Stored> {
    let hash = hash_of(vol, value);
    let candidates = vol.ea_inodes.lock().find(hash);
    for c in candidates {
        let Ok(ino) = u32::try_from(c) else { continue };
        let Ok(inode) = open(vol, ino, value.len() as u32) else { continue };
        if contents(vol, &inode)? != value {
            continue;
        }
        let listed = vol.ea_inodes.lock();
        if listed.contains(hash, c) {
            add_ref(&inode, 1)?;
            drop(listed);
            inode.store(vol, h)?;
            return Ok(Stored { ino: inode.ino, hash });
        }
    }
    let inode = create(vol, h, owner, value, hash)?;
    vol.ea_inodes.lock().insert(hash, inode.ino.0.into());
    Ok(Stored { ino: inode.ino, hash })
}

fn create(
    vol: &Volume,
    h: &mut Handle,
    owner: &Inode,
    value: &[u8],
    hash: u32,
) -> Result<Arc<Inode>> {
    let (uid, gid) = {
        let a = owner.attrs();
        (a.rec.uid, a.rec.gid)
    };
    let mode = inode::mode::REG | 0o600;
    let new = inode::NewInode { parent: owner, mode, uid, gid, rdev: 0, nlink: 1 };
    let inode = inode::new_inode(vol, h, &new)?;
    let r = fill(vol, h, &inode, value, hash);
    if let Err(e) = r {
        inode::undo_new(vol, h, &inode)?;
        return Err(e);
    }
    Ok(inode)
}

fn fill(vol: &Volume, h: &mut Handle, inode: &Inode, value: &[u8], hash: u32) -> Result<()> {
    {
        let mut a = inode.attrs_mut();
        a.rec.flags = (a.rec.flags & InodeFlags::EXTENTS) | InodeFlags::EA_INODE;
        a.rec.projid = 0;
        a.rec.atime = Timestamp { sec: hash.into(), nsec: 0 };
        a.rec.ctime = Timestamp { sec: 0, nsec: 0 };
        a.rec.i_version = 1;
        let map = FileMap::from_inode(&vol.geo, inode.ino, &a.rec)?;
        a.size = value.len() as u64;
        a.rec.size = a.size;
        drop(a);
        inode.set_map(Some(map));
    }
    let bs = vol.geo.block_size;
    let mut chunks = value.chunks(bs.bytes());
    let mut lblk = 0;
    let mut left = bs.blocks_for(value.len() as u64) as u32;
    while left > 0 {
        let how = AllocHow { root_ok: true, ..AllocHow::new(Enter::Written, Kind::Directory) };
        let m = inode.map_mut()?.allocate(&vol.map_ctx(), h, LBlock(lblk), left, how)?;
        for i in 0..m.len {
            let chunk = chunks.next().unwrap_or_default();
            h.create(m.pblk.plus(i.into()), &Seal::None, |b| {
                let (head, tail) = b.split_at_mut(chunk.len().min(b.len()));
                head.copy_from_slice(chunk);
                tail.fill(0);
            })?;
        }
        lblk += m.len;
        left -= m.len;
    }
    inode.store(vol, h)
}

/// Takes one more reference to the value in inode `ino`.
pub fn keep(vol: &Volume, h: &mut Handle, ino: u32, size: u32) -> Result<()> {
    let inode = open(vol, ino, size)?;
    let listed = vol.ea_inodes.lock();
    add_ref(&inode, 1)?;
    drop(listed);
    inode.store(vol, h)
}

/// Drops a reference to the value in inode `ino`; the last one frees the inode in this handle.
pub fn drop_ref(vol: &Volume, h: &mut Handle, ino: u32, size: u32) -> Result<()> {
    let inode = open(vol, ino, size)?;
    let hash = inode.attrs().rec.atime.sec as u32;
    let mut listed = vol.ea_inodes.lock();
    let left = add_ref(&inode, -1)?;
    if left == 0 {
        listed.remove(hash, ino.into());
    }
    drop(listed);
    if left == 0 {
        return inode::undo_new(vol, h, &inode);
    }
    inode.store(vol, h)
}

/// Changes the reference count and returns it.
fn add_ref(inode: &Inode, by: i64) -> Result<u64> {
    let mut a = inode.attrs_mut();
    let count = (a.rec.ctime.sec as u64 & 0xffff_ffff) << 32 | (a.rec.i_version & 0xffff_ffff);
    let bad = || Corrupt::new("reference count of an attribute value").ino(inode.ino).value(count);
    let new = count.checked_add_signed(by).filter(|_| count > 0).ok_or_else(bad)?;
    a.rec.ctime = Timestamp { sec: i64::from((new >> 32) as u32 as i32), nsec: 0 };
    a.rec.i_version = new & 0xffff_ffff;
    Ok(new)
}

/// Units of 512 bytes that a value in an inode of its own counts in its owner's `i_blocks`.
pub fn blocks512(vol: &Volume, entry: &Entry<'_>) -> i64 {
    match entry.value {
        Value::Here(_) => 0,
        Value::Inode { size, .. } => {
            let cluster = vol.geo.block_size.bytes64() << vol.geo.cluster_bits;
            (u64::from(size).next_multiple_of(cluster) >> 9) as i64
        }
    }
}
