//! Extended attributes and access control lists.
//!
//! An attribute is stored in its inode if there is room, else in the attribute block, which inodes
//! with the same attributes share, else (with `ea_inode`) its value gets an inode of its own, shared
//! too. `fs` calls it for the attribute system calls and for modes; changes happen inside the
//! caller's journal handle and end with the inode stored.
//!
//! Invariants: a block's count is the number of inodes that name it, a value inode's the number of
//! entries that name it (a shared block's entry counts once); a shared block or value never changes;
//! `i_blocks` counts the block, and values in inodes, for each owner; `system.data`, the tail of
//! inline data, survives every change and is never shown.

pub mod acl;
pub mod acl_format;
mod block;
pub mod name;
#[cfg(test)]
mod tests;
mod value;

use crate::{
    error::{Error, Result},
    inode::{Inode, Volume},
    journal::Handle,
    ondisk::{
        Compat, FileKind, Incompat, InodeFlags, Seal,
        bytes::{le32, put},
        inline,
        xattr::{self, Entries, Entry, MAGIC, Value, value_len},
    },
    types::Block,
};
use block::Loaded;
use smallvec::SmallVec;

/// Largest value, in bytes (`XATTR_SIZE_MAX`).
pub const VALUE_MAX: usize = value::SIZE_MAX;

/// What [`set`] may find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetMode {
    /// The attribute or none.
    #[default]
    Any,
    /// None (`XATTR_CREATE`).
    Create,
    /// The attribute (`XATTR_REPLACE`).
    Replace,
}

/// The value of an attribute.
///
/// # Errors
/// `NoData` if the inode does not have it; `NotSupported` for a name that cannot be; `Range`,
/// `Invalid` for one that is malformed.
pub fn get(vol: &Volume, inode: &Inode, full_name: &[u8]) -> Result<Vec<u8>> {
    let (index, rest) = name::split(full_name)?;
    if let Some(which) = acl::Which::from_index(index) {
        let acl = acl::get(vol, inode, which)?;
        return Ok(acl.ok_or(Error::NoData)?.to_xattr());
    }
    check_namespace(vol, index)?;
    read(vol, inode, index, rest)?.ok_or(Error::NoData)
}

/// The names of all attributes, each ended by a NUL. `trusted` says whether the caller may see
/// `trusted.` ones (`CAP_SYS_ADMIN`).
pub fn list(vol: &Volume, inode: &Inode, trusted: bool) -> Result<Vec<u8>> {
    let _shared = inode.xattr.read();
    let (body, file_acl) = body_of(inode);
    let mut names = Vec::new();
    let mut add = |e: &Entry<'_>| {
        let shown = match e.index {
            name::USER => vol.conf.user_xattr,
            name::ACL_ACCESS | name::ACL_DEFAULT => vol.conf.acl && e.name.is_empty(),
            name::TRUSTED => trusted,
            _ => true,
        };
        if shown && let Some(prefix) = name::prefix(e.index) {
            names.extend_from_slice(prefix);
            names.extend_from_slice(e.name);
            names.push(0);
        }
    };
    body_entries(inode, &body)?.iter().for_each(&mut add);
    if let Some(block) = file_acl {
        let loaded = Loaded::read(vol, inode, block)?;
        loaded.note(vol);
        loaded.entries()?.iter().for_each(&mut add);
    }
    Ok(names)
}

/// Sets an attribute. Credits: [`set_credits`].
///
/// # Errors
/// `Exists` and `NoData` as the mode asks; `NoSpace` if it does not fit; `ArgTooBig`; `Perm` on an
/// immutable or append-only inode and for `user.` on what is neither file nor directory; else as [`get`].
pub fn set(
    vol: &Volume,
    h: &mut Handle,
    inode: &Inode,
    full_name: &[u8],
    value: &[u8],
    mode: SetMode,
) -> Result<()> {
    let (index, rest) = name::split(full_name)?;
    check_change(vol, inode, index)?;
    if value.len() > VALUE_MAX {
        return Err(Error::ArgTooBig);
    }
    if let Some(which) = acl::Which::from_index(index) {
        return acl::set(vol, h, inode, which, acl_format::Acl::from_xattr(value)?);
    }
    write(vol, h, inode, index, rest, Some(value), mode)
}

/// Removes an attribute. Credits: [`set_credits`] of an empty value.
///
/// # Errors
/// `NoData` if the inode does not have it (an access control list it does not have is removed all
/// the same); else as [`set`].
pub fn remove(vol: &Volume, h: &mut Handle, inode: &Inode, full_name: &[u8]) -> Result<()> {
    let (index, rest) = name::split(full_name)?;
    check_change(vol, inode, index)?;
    if let Some(which) = acl::Which::from_index(index) {
        return acl::set(vol, h, inode, which, None);
    }
    write(vol, h, inode, index, rest, None, SetMode::Replace)
}

/// Metadata blocks that [`set`] of a value of `len` bytes, or [`remove`], may change.
pub fn set_credits(vol: &Volume, len: usize) -> u32 {
    // The inode, the superblock; a block allocated, one freed, one shared.
    let base = 2 + 3 + 3 + 1;
    if !vol.geo.has_incompat(Incompat::EA_INODE) {
        return base;
    }
    base + value::store_credits(vol, len) + value::drop_credits(vol, VALUE_MAX)
}

/// Metadata blocks that a step of [`release_all`] may change.
pub fn release_credits(vol: &Volume) -> u32 {
    let values = vol.geo.has_incompat(Incompat::EA_INODE);
    6 + if values { value::drop_credits(vol, VALUE_MAX) } else { 0 }
}

/// Gives up all attributes of an inode that is being freed: nothing else uses it and no lock is
/// held. Restarts the handle as needed; after each step the inode is whole.
pub fn release_all(vol: &Volume, h: &mut Handle, inode: &Inode) -> Result<()> {
    let credits = release_credits(vol);
    loop {
        if !h.ensure(credits)? {
            h.restart(credits)?;
        }
        let (body, file_acl) = body_of(inode);
        let mut list = body_entries(inode, &body)?;
        let is_inode = |e: &Entry<'_>| matches!(e.value, Value::Inode { .. });
        if let Some(at) = list.iter().position(is_inode) {
            let gone = list.remove(at);
            let fits = inline::store(&mut inode.attrs_mut().ibody, &list);
            debug_assert!(fits, "fewer entries fit");
            if let Value::Inode { ino, size } = gone.value {
                value::drop_ref(vol, h, ino, size)?;
            }
            inode.store(vol, h)?;
            continue;
        }
        let Some(block) = file_acl else { return Ok(()) };
        let loaded = Loaded::read(vol, inode, block)?;
        if block::drop_one_value(vol, h, &loaded)? {
            continue;
        }
        block::release(vol, h, &loaded)?;
        inode.attrs_mut().rec.file_acl = 0;
        return inode.store(vol, h);
    }
}

fn check_namespace(vol: &Volume, index: u8) -> Result<()> {
    if index == name::USER && !vol.conf.user_xattr {
        return Err(Error::NotSupported);
    }
    Ok(())
}

fn check_change(vol: &Volume, inode: &Inode, index: u8) -> Result<()> {
    check_namespace(vol, index)?;
    let (flags, kind) = {
        let a = inode.attrs();
        (a.rec.flags, FileKind::from_mode(a.rec.mode))
    };
    if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Err(Error::Perm);
    }
    let plain = matches!(kind, Some(FileKind::Regular | FileKind::Directory));
    if index == name::USER && !plain {
        return Err(Error::Perm);
    }
    Ok(())
}

type Body = SmallVec<[u8; 256]>;

/// A copy of the area in the inode, and the attribute block's number.
fn body_of(inode: &Inode) -> (Body, Option<Block>) {
    let a = inode.attrs();
    let block = (a.rec.file_acl != 0).then_some(Block(a.rec.file_acl));
    (SmallVec::from_slice(&a.ibody), block)
}

/// The entries of an area in an inode: none if it does not begin with the magic.
fn body_entries<'a>(inode: &Inode, body: &'a [u8]) -> Result<Entries<'a>> {
    if le32(body, 0) != Some(MAGIC) {
        return Ok(Entries::new());
    }
    let area = body.get(4..).unwrap_or_default();
    xattr::parse(area, 0).map_err(|c| c.ino(inode.ino).into())
}

/// The stored value of an attribute, looked for in the inode and then in the block.
fn read(vol: &Volume, inode: &Inode, index: u8, rest: &[u8]) -> Result<Option<Vec<u8>>> {
    let _shared = inode.xattr.read();
    let (body, file_acl) = {
        let a = inode.attrs();
        if a.rec.file_acl == 0 && le32(&a.ibody, 0) != Some(MAGIC) {
            return Ok(None);
        }
        drop(a);
        body_of(inode)
    };
    let take = |e: &Entry<'_>| match e.value {
        Value::Here(v) => Ok(v.to_vec()),
        Value::Inode { ino, size } => value::read(vol, inode, e, ino, size),
    };
    if let Some(e) = body_entries(inode, &body)?.iter().find(|e| e.is(index, rest)) {
        return take(e).map(Some);
    }
    let Some(block) = file_acl else { return Ok(None) };
    let loaded = Loaded::read(vol, inode, block)?;
    loaded.note(vol);
    loaded.entries()?.iter().find(|e| e.is(index, rest)).map(take).transpose()
}

/// Where an attribute is to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Body,
    Block,
}

/// An entry for a value: hashed only in blocks, as the kernel does.
fn entry<'a>(index: u8, name: &'a [u8], value: Value<'a>, place: Place) -> Entry<'a> {
    let hash = match (value, place) {
        (Value::Here(v), Place::Block) => Entry::block_hash(name, v),
        _ => 0,
    };
    Entry { index, name, value, hash }
}

/// A list with an entry in place of the one of that name, or behind all of them (in a block: in
/// order).
fn with<'a>(list: &[Entry<'a>], new: Entry<'a>, place: Place) -> Entries<'a> {
    let mut list = Entries::from_slice(list);
    if let Some(e) = list.iter_mut().find(|e| e.is(new.index, new.name)) {
        *e = new;
        return list;
    }
    let end = list.len();
    let at = match place {
        Place::Body => end,
        Place::Block => list.iter().position(|e| e.key() > new.key()).unwrap_or(end),
    };
    list.insert(at, new);
    list
}

fn without<'a>(list: &[Entry<'a>], index: u8, name: &[u8]) -> Entries<'a> {
    list.iter().filter(|e| !e.is(index, name)).copied().collect()
}

/// Sets or removes a stored attribute.
fn write(
    vol: &Volume,
    h: &mut Handle,
    inode: &Inode,
    index: u8,
    name: &[u8],
    value: Option<&[u8]>,
    mode: SetMode,
) -> Result<()> {
    let _exclusive = inode.xattr.write();
    let (body, file_acl) = body_of(inode);
    let in_body = body_entries(inode, &body)?;
    let loaded = file_acl.map(|b| Loaded::read(vol, inode, b)).transpose()?;
    let loaded = loaded.as_ref();
    let in_block = match loaded {
        Some(l) => l.entries()?,
        None => Entries::new(),
    };
    let find = |l: &[Entry<'_>]| l.iter().position(|e| e.is(index, name));
    let found = match (find(&in_body), find(&in_block)) {
        (Some(i), _) => in_body.get(i).copied(),
        (None, Some(i)) => in_block.get(i).copied(),
        (None, None) => None,
    };
    match (found, mode) {
        (None, SetMode::Replace) => return Err(Error::NoData),
        (Some(_), SetMode::Create) => return Err(Error::Exists),
        _ => {}
    }
    let body_len = body.len();
    let (in_body, in_block) = (in_body.as_slice(), in_block.as_slice());
    let change = Change { vol, inode, index, name, body_len, in_body, in_block, loaded };
    match value {
        None => match found {
            None => return Ok(()),
            Some(_) => change.apply(h, None)?,
        },
        Some(v) => {
            // A value in an inode of its own is stored anew, perhaps nearer, as the kernel does.
            if found.is_some_and(|e| e.value == Value::Here(v)) {
                return Ok(());
            }
            let (place, bulk) = change.choose(v)?;
            let mut stored = None;
            let new = if bulk {
                let s = value::store(vol, h, inode, v)?;
                let value = Value::Inode { ino: s.ino.0, size: v.len() as u32 };
                stored = Some(s.ino.0);
                Entry { index, name, value, hash: Entry::inode_hash(name, s.hash) }
            } else {
                entry(index, name, Value::Here(v), place)
            };
            if let Err(e) = change.apply(h, Some((new, place, stored))) {
                if let Some(ino) = stored {
                    value::drop_ref(vol, h, ino, v.len() as u32)?;
                }
                return Err(e);
            }
        }
    }
    note_feature(vol, h)?;
    let now = vol.now();
    inode.attrs_mut().rec.ctime = now;
    inode.store(vol, h)
}

/// One change of one attribute.
struct Change<'a> {
    vol: &'a Volume,
    inode: &'a Inode,
    index: u8,
    name: &'a [u8],
    body_len: usize,
    in_body: &'a [Entry<'a>],
    in_block: &'a [Entry<'a>],
    loaded: Option<&'a Loaded>,
}

/// An entry, where it goes, and the value inode that it took a reference to.
type New<'a> = (Entry<'a>, Place, Option<u32>);

impl<'a> Change<'a> {
    /// Where a value fits, and whether it gets an inode of its own.
    fn choose(&self, value: &'a [u8]) -> Result<(Place, bool)> {
        let bs = self.vol.geo.block_size.bytes();
        let may_have_inode = self.vol.geo.has_incompat(Incompat::EA_INODE) && !value.is_empty();
        // What would fill a block by itself (`EXT4_XATTR_MIN_LARGE_EA_SIZE`).
        let largest = bs - xattr::entry_len(3) - block::HEADER - 4;
        let too_large = may_have_inode && value_len(value.len()) > largest;
        for own_inode in [false, true] {
            if (own_inode && !may_have_inode) || (!own_inode && too_large) {
                continue;
            }
            let value = if own_inode {
                Value::Inode { ino: 0, size: value.len() as u32 }
            } else {
                Value::Here(value)
            };
            let new = Entry { index: self.index, name: self.name, value, hash: 0 };
            let body = with(self.in_body, new, Place::Body);
            let area = self.body_len.checked_sub(4);
            if area.is_some_and(|len| xattr::free(len, 0, &body).is_some()) {
                return Ok((Place::Body, own_inode));
            }
            let bulk = !own_inode && new.size() > 0;
            if block::fits(self.vol, &with(self.in_block, new, Place::Block), bulk) {
                return Ok((Place::Block, own_inode));
            }
        }
        Err(Error::NoSpace)
    }

    /// Puts the entry in its place and removes the one of that name from wherever it was.
    fn apply(&self, h: &mut Handle, new: Option<New<'a>>) -> Result<()> {
        let Change { vol, inode, in_body, in_block, .. } = *self;
        let (mut body, mut block) =
            (without(in_body, self.index, self.name), without(in_block, self.index, self.name));
        let mut stored = None;
        match new {
            Some((e, Place::Body, _)) => body = with(in_body, e, Place::Body),
            Some((e, Place::Block, s)) => {
                block = with(in_block, e, Place::Block);
                stored = s;
            }
            None => {}
        }
        let mut units = self.units(&body, &block) - self.units(in_body, in_block);
        if block.as_slice() != in_block {
            let now = block::replace(vol, h, inode, self.loaded, &block, stored)?;
            let each = (vol.geo.block_size.bytes64() << vol.geo.cluster_bits >> 9) as i64;
            units += each * (i64::from(now.is_some()) - i64::from(self.loaded.is_some()));
            inode.attrs_mut().rec.file_acl = now.map_or(0, |b| b.0);
        }
        if body.as_slice() != in_body {
            let fits = inline::store(&mut inode.attrs_mut().ibody, &body);
            debug_assert!(fits, "choose() said that it fits, and without it there is more room");
            let old = in_body.iter().find(|e| e.is(self.index, self.name));
            if let Some(Entry { value: Value::Inode { ino, size }, .. }) = old {
                value::drop_ref(vol, h, *ino, *size)?;
            }
        }
        // The value found the inode that its entry names already: one reference, not two.
        if block.as_slice() == in_block
            && body.as_slice() == in_body
            && let Some((Entry { value: Value::Inode { ino, size }, .. }, _, Some(_))) = new
        {
            value::drop_ref(vol, h, ino, size)?;
        }
        inode.add_blocks512(units);
        Ok(())
    }

    /// What values in inodes of their own add to `i_blocks`.
    fn units(&self, body: &[Entry<'_>], block: &[Entry<'_>]) -> i64 {
        let of = |l: &[Entry<'_>]| l.iter().map(|e| value::blocks512(self.vol, e)).sum::<i64>();
        of(body) + of(block)
    }
}

/// Says in the superblock that there are attributes; every current mkfs did already.
fn note_feature(vol: &Volume, h: &mut Handle) -> Result<()> {
    const S_FEATURE_COMPAT: usize = 0x5c;
    if vol.geo.has_compat(Compat::EXT_ATTR) {
        return Ok(());
    }
    let bits = vol.sb.read(|sb| le32(sb, S_FEATURE_COMPAT)).unwrap_or(0);
    if Compat::from_bits_retain(bits).contains(Compat::EXT_ATTR) {
        return Ok(());
    }
    let bits = (bits | Compat::EXT_ATTR.bits()).to_le_bytes();
    h.modify(&vol.sb.buf, &Seal::Superblock, |b| {
        let ok = put(vol.sb.slice_mut(b), S_FEATURE_COMPAT, &bits);
        debug_assert!(ok, "the superblock has its length");
    })
}
