//! Symbolic links: the target in the inode, or in one block.

use super::Fs;
use crate::{
    error::{Error, Result},
    inode::{self, Inode, Volume, mode},
    journal::Handle,
    map::FileMap,
    ondisk::{InodeFlags, Seal},
    types::{Ino, LBlock},
};

/// Longest target kept in `i_block`, in bytes, without its NUL.
const FAST_MAX: usize = 59;

/// Writes the target of a new symlink in the handle that makes it.
pub(super) fn write_target(
    vol: &Volume,
    h: &mut Handle,
    inode: &Inode,
    target: &[u8],
) -> Result<()> {
    if target.len() <= FAST_MAX {
        let mut a = inode.attrs_mut();
        a.rec.flags.remove(InodeFlags::EXTENTS);
        a.rec.i_block = [0; 60];
        a.rec.i_block[..target.len()].copy_from_slice(target);
        a.size = target.len() as u64;
        a.rec.size = a.size;
        return Ok(());
    }
    let rec = {
        let mut a = inode.attrs_mut();
        FileMap::init_block(&vol.geo, &mut a.rec);
        a.rec.clone()
    };
    inode.set_map(Some(FileMap::from_inode(&vol.geo, inode.ino, &rec)?));
    let (_, block) = inode::append_meta_block(vol, h, inode)?;
    h.create(block, &Seal::None, |b| {
        if let Some(t) = b.get_mut(..target.len()) {
            t.copy_from_slice(target);
        }
    })?;
    let mut a = inode.attrs_mut();
    a.size = target.len() as u64;
    a.rec.size = a.size;
    Ok(())
}

impl Fs {
    /// readlink.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let i = self.get(ino)?;
        if i.file_type() != mode::LNK {
            return Err(Error::Invalid("not a symbolic link"));
        }
        self.accessed(&i);
        let size = i.size() as usize;
        let too_long = || i.corrupt("symbolic link's length");
        if i.flags().contains(InodeFlags::INLINE_DATA) {
            return self.op("readlink", super::inline::read_all(&i));
        }
        if i.is_fast_symlink(&self.vol) {
            return i.attrs().rec.i_block.get(..size).map(<[u8]>::to_vec).ok_or_else(too_long);
        }
        if size == 0 || size > self.vol.geo.block_size.bytes() {
            return self.op("readlink", Err(too_long()));
        }
        let b = inode::meta_block(&self.vol, &i, LBlock(0), &Seal::None);
        match self.op("readlink", b)? {
            Some(b) => b.read(|b| b.get(..size).map(<[u8]>::to_vec)).ok_or_else(too_long),
            None => self.op("readlink", Err(i.corrupt("symbolic link without a block"))),
        }
    }
}
