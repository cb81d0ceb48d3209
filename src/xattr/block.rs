//! The attribute block: a block of sorted entries that inodes with the same attributes share.

use super::value;
use crate::{
    alloc::{FreeFlags, Request, Run},
    cache::Buffer,
    device::AlignedBuf,
    error::{Corrupt, Result},
    inode::{Inode, Volume},
    journal::Handle,
    ondisk::{
        Incompat, Seal,
        bytes::{le32, put},
        xattr::{self, Entries, Entry, MAGIC, Value},
    },
    types::Block,
};
use std::sync::Arc;

/// Bytes of the header; entries follow.
pub const HEADER: usize = 32;
/// A block with this many owners is not shared further (`EXT4_XATTR_REFCOUNT_MAX`).
const MAX_REFS: u32 = 1024;

/// A block as it was read.
pub struct Loaded {
    buf: Arc<Buffer>,
    data: Arc<AlignedBuf>,
}

impl Loaded {
    /// Reads and checks the attribute block of an inode.
    pub fn read(vol: &Volume, inode: &Inode, block: Block) -> Result<Loaded> {
        let buf = vol.cache.read(block, &Seal::XattrBlock)?;
        let data = buf.data();
        let bad = |what| Corrupt::new(what).ino(inode.ino).block(block);
        if le32(&data, 0) != Some(MAGIC) || le32(&data, 8) != Some(1) {
            return Err(bad("header of an attribute block").into());
        }
        let l = Loaded { buf, data };
        if l.refs() == 0 {
            return Err(bad("attribute block without references").into());
        }
        Ok(l)
    }

    /// Its entries.
    pub fn entries(&self) -> Result<Entries<'_>> {
        xattr::parse(&self.data, HEADER).map_err(|c| c.block(self.buf.block()).into())
    }

    /// Remembers it as one to share.
    pub fn note(&self, vol: &Volume) {
        let hash = self.hash();
        if hash != 0 && self.refs() < MAX_REFS {
            vol.xattr_blocks.note(hash, self.buf.block().0);
        }
    }

    fn refs(&self) -> u32 {
        le32(&self.data, 4).unwrap_or(0)
    }

    fn hash(&self) -> u32 {
        le32(&self.data, 12).unwrap_or(0)
    }
}

/// Whether these entries may lie in a block. `bulk` is the new one's value, if it is in the block: it
/// must leave room for the names of values that have inodes of their own.
pub fn fits(vol: &Volume, list: &[Entry<'_>], bulk: bool) -> bool {
    let bs = vol.geo.block_size.bytes();
    let reserve = (bs / 8).min(1024);
    xattr::free(bs, HEADER, list).is_some()
        && (!bulk
            || !vol.geo.has_incompat(Incompat::EA_INODE)
            || xattr::value_start(bs, list) >= reserve)
}

/// The hash of a block with these entries; 0: not to be shared.
fn block_hash(list: &[Entry<'_>]) -> u32 {
    let mut hash = 0u32;
    for e in list {
        if e.hash == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ e.hash;
    }
    hash
}

/// Gives the inode a block with these entries, or none, in place of `old`: a block that has them
/// already, the old one if nobody shares it, or a new one. `stored` is the value inode that a new
/// entry took a reference to. Returns the block; the caller stores it in the inode.
pub fn replace(
    vol: &Volume,
    h: &mut Handle,
    inode: &Inode,
    old: Option<&Loaded>,
    list: &[Entry<'_>],
    stored: Option<u32>,
) -> Result<Option<Block>> {
    if list.is_empty() {
        if let Some(old) = old {
            release(vol, h, old)?;
        }
        return Ok(None);
    }
    let mut bytes = AlignedBuf::zeroed(vol.geo.block_size.bytes());
    let hash = block_hash(list);
    let ok = put(&mut bytes, 0, &MAGIC.to_le_bytes())
        && put(&mut bytes, 4, &1u32.to_le_bytes())
        && put(&mut bytes, 8, &1u32.to_le_bytes())
        && put(&mut bytes, 12, &hash.to_le_bytes())
        && xattr::write(&mut bytes, HEADER, list);
    debug_assert!(ok, "the caller made sure that the entries fit");

    if let Some(shared) = share(vol, h, old, list, hash)? {
        for e in list {
            if let Value::Inode { ino, size } = e.value
                && stored == Some(ino)
            {
                value::drop_ref(vol, h, ino, size)?;
            }
        }
        if let Some(old) = old {
            release(vol, h, old)?;
        }
        return Ok(Some(shared));
    }
    if let Some(old) = old
        && in_place(vol, h, old, &bytes, hash)?
    {
        for e in old.entries()?.iter() {
            if let Value::Inode { ino, size } = e.value
                && !list.iter().any(|n| n.value == e.value && n.key() == e.key())
            {
                value::drop_ref(vol, h, ino, size)?;
            }
        }
        return Ok(Some(old.buf.block()));
    }
    let mut req = Request::metadata(inode.ino, None);
    req.root_ok = true;
    let run = vol.alloc.alloc(h, req)?;
    h.create(run.start, &Seal::XattrBlock, |b| b.copy_from_slice(&bytes))?;
    if hash != 0 {
        vol.xattr_blocks.lock().insert(hash, run.start.0);
    }
    for e in list {
        if let Value::Inode { ino, size } = e.value
            && stored != Some(ino)
        {
            value::keep(vol, h, ino, size)?;
        }
    }
    if let Some(old) = old {
        release(vol, h, old)?;
    }
    Ok(Some(run.start))
}

/// Takes a reference to a block, other than `old`, that holds just these entries.
fn share(
    vol: &Volume,
    h: &mut Handle,
    old: Option<&Loaded>,
    list: &[Entry<'_>],
    hash: u32,
) -> Result<Option<Block>> {
    if hash == 0 {
        return Ok(None);
    }
    let candidates = vol.xattr_blocks.lock().find(hash);
    for c in candidates {
        let block = Block(c);
        if old.is_some_and(|o| o.buf.block() == block) {
            continue;
        }
        // Read before the lock is taken, so that under it the block is found in the cache.
        let Ok(buf) = vol.cache.read(block, &Seal::XattrBlock) else { continue };
        let mut index = vol.xattr_blocks.lock();
        if !index.contains(hash, c) {
            continue;
        }
        let again = vol.cache.read(block, &Seal::XattrBlock)?;
        let refs = again.read(|b| {
            let same = le32(b, 0) == Some(MAGIC)
                && xattr::parse(b, HEADER).is_ok_and(|l| l.as_slice() == list);
            if same { le32(b, 4) } else { None }
        });
        drop(buf);
        let Some(refs) = refs.filter(|n| (1..MAX_REFS).contains(n)) else { continue };
        let ok = h.modify(&again, &Seal::XattrBlock, |b| put(b, 4, &(refs + 1).to_le_bytes()))?;
        debug_assert!(ok, "the block was read");
        if refs + 1 >= MAX_REFS {
            index.remove(hash, c);
        }
        return Ok(Some(block));
    }
    Ok(None)
}

/// Rewrites a block that has no other owner; `false` if it has.
fn in_place(vol: &Volume, h: &mut Handle, old: &Loaded, bytes: &[u8], hash: u32) -> Result<bool> {
    let mut index = vol.xattr_blocks.lock();
    if old.buf.read(|b| le32(b, 4)) != Some(1) {
        return Ok(false);
    }
    index.remove(old.hash(), old.buf.block().0);
    h.modify(&old.buf, &Seal::XattrBlock, |b| b.copy_from_slice(bytes))?;
    if hash != 0 {
        index.insert(hash, old.buf.block().0);
    }
    Ok(true)
}

/// Gives a reference to a block back; the last one frees it and what its entries hold.
pub fn release(vol: &Volume, h: &mut Handle, old: &Loaded) -> Result<()> {
    let block = old.buf.block();
    let mut index = vol.xattr_blocks.lock();
    let refs = old.buf.read(|b| le32(b, 4)).unwrap_or(0);
    if refs > 1 {
        let ok = h.modify(&old.buf, &Seal::XattrBlock, |b| put(b, 4, &(refs - 1).to_le_bytes()))?;
        debug_assert!(ok, "the block was read");
        if refs == MAX_REFS && old.hash() != 0 {
            index.insert(old.hash(), block.0);
        }
        return Ok(());
    }
    index.remove(old.hash(), block.0);
    drop(index);
    for e in old.entries()?.iter() {
        if let Value::Inode { ino, size } = e.value {
            value::drop_ref(vol, h, ino, size)?;
        }
    }
    vol.alloc.free(h, Run { start: block, len: 1 }, FreeFlags { metadata: true })
}

/// Of a block about to be freed with its owner: drops the value of one entry that has an inode of its
/// own, entry and all, so that a crash in between finds both or neither. `false` if there is none, or
/// the block has other owners.
pub fn drop_one_value(vol: &Volume, h: &mut Handle, old: &Loaded) -> Result<bool> {
    let list = old.entries()?;
    let is_inode = |e: &Entry<'_>| matches!(e.value, Value::Inode { .. });
    let Some(at) = list.iter().position(is_inode) else { return Ok(false) };
    let mut rest = list.clone();
    let gone = rest.remove(at);
    let mut bytes = AlignedBuf::zeroed(vol.geo.block_size.bytes());
    bytes.copy_from_slice(&old.data);
    let hash = block_hash(&rest);
    let ok = put(&mut bytes, 12, &hash.to_le_bytes()) && xattr::write(&mut bytes, HEADER, &rest);
    debug_assert!(ok, "fewer entries fit");
    if !in_place(vol, h, old, &bytes, 0)? {
        return Ok(false);
    }
    if let Value::Inode { ino, size } = gone.value {
        value::drop_ref(vol, h, ino, size)?;
    }
    Ok(true)
}
