//! Directories small enough to lie in their inode: four bytes of `i_block` hold the parent, the other
//! 56 are one area of entries and the value of `system.data` another. `.` and `..` are not stored.

use super::{Dir, Entry, code_of, insert::New, leaf::rec_len, read::Emit};
use crate::{
    error::{Corrupt, Error, Result},
    inode::{self, Attrs},
    journal::Handle,
    map::FileMap,
    ondisk::{
        FileKind, InodeFlags,
        bytes::{le32, put},
        inline::{self as inline_data, INLINE_MIN as IN_BLOCK},
    },
    types::Ino,
};
use smallvec::SmallVec;

/// Bytes of the parent's number.
const PARENT: usize = 4;
/// Bytes of the entries in `i_block`.
const FIRST: usize = IN_BLOCK - PARENT;
/// Bytes that `.` and `..` take in a block.
const DOTS: usize = rec_len(1) + rec_len(2);

/// Which area.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Block,
    Tail,
}

/// The directory as areas of records, those of `.` and `..` made up.
pub(super) struct Image {
    pub dots: [u8; DOTS],
    pub first: [u8; FIRST],
    pub second: SmallVec<[u8; 128]>,
}

fn first(a: &Attrs) -> &[u8] {
    a.rec.i_block.get(PARENT..).unwrap_or_default()
}

fn second(a: &Attrs) -> Result<&[u8], Corrupt> {
    inline_data::tail(&a.ibody)?
        .ok_or_else(|| Corrupt::new("inline directory without its attribute"))
}

/// What is done with the bytes of a record's area, and where the record is.
struct Place {
    part: Part,
    off: usize,
    entry: Entry,
}

fn find(d: &Dir<'_>, a: &Attrs, name: &[u8]) -> Result<Option<Place>, Corrupt> {
    for (part, area) in [(Part::Block, first(a)), (Part::Tail, second(a)?)] {
        if let Some(r) = d.fmt.find(area, name)? {
            return Ok(Some(Place { part, off: r.off, entry: d.entry(&r)? }));
        }
    }
    Ok(None)
}

/// Changes one area.
fn edit<R>(
    a: &mut Attrs,
    part: Part,
    f: impl FnOnce(&mut [u8]) -> Result<R, Corrupt>,
) -> Result<R, Corrupt> {
    match part {
        Part::Block => f(a.rec.i_block.get_mut(PARENT..).unwrap_or_default()),
        Part::Tail => {
            let mut bytes: SmallVec<[u8; 128]> = SmallVec::from_slice(second(a)?);
            let r = f(&mut bytes)?;
            let fits = inline_data::set_tail(&mut a.ibody, Some(&bytes))?;
            debug_assert!(fits, "the value keeps its length");
            Ok(r)
        }
    }
}

pub(super) fn lookup(d: &Dir<'_>, name: &[u8]) -> Result<Option<Entry>> {
    let dot = |ino| Some(Entry { ino, kind: Some(FileKind::Directory) });
    match name {
        b"." => return Ok(dot(d.inode.ino)),
        b".." => return Ok(dot(parent(d)?)),
        _ => {}
    }
    let a = d.inode.attrs();
    let found = find(d, &a, name).map_err(|c| d.corrupt(c))?;
    Ok(found.map(|p| p.entry))
}

/// Enters a name; `false`, and nothing changed, if the inode has no room for it.
pub(super) fn insert(d: &Dir<'_>, h: &mut Handle, new: &New<'_>) -> Result<bool> {
    let _ = h;
    let mut a = d.inode.attrs_mut();
    if find(d, &a, new.name).map_err(|c| d.corrupt(c))?.is_some() {
        return Err(Error::Exists);
    }
    let done = enter(d, &mut a, new).map_err(|c| d.corrupt(c))?;
    if done {
        a.dirty = true;
    }
    Ok(done)
}

fn enter(d: &Dir<'_>, a: &mut Attrs, new: &New<'_>) -> Result<bool, Corrupt> {
    let put_in = |a: &mut Attrs, part: Part, off: usize| {
        edit(a, part, |area| d.fmt.put(area, off, new.name, new.ino, new.code))
    };
    if let Some(off) = d.fmt.room(first(a), new.name.len())? {
        return put_in(a, Part::Block, off);
    }
    if second(a)?.is_empty() {
        // The whole rest of the inode becomes one unused record, as the kernel does it.
        let room = inline_data::capacity(&a.ibody)?.unwrap_or(0);
        if room < rec_len(new.name.len()) {
            return Ok(false);
        }
        let mut bytes: SmallVec<[u8; 128]> = SmallVec::from_elem(0, room);
        d.fmt.clear(&mut bytes);
        if !inline_data::set_tail(&mut a.ibody, Some(&bytes))? {
            return Ok(false);
        }
        a.size = (IN_BLOCK + room) as u64;
        a.rec.size = a.size;
    }
    match d.fmt.room(second(a)?, new.name.len())? {
        Some(off) => put_in(a, Part::Tail, off),
        None => Ok(false),
    }
}

pub(super) fn remove(d: &Dir<'_>, h: &mut Handle, name: &[u8]) -> Result<Ino> {
    let _ = h;
    let mut a = d.inode.attrs_mut();
    let p = find(d, &a, name).map_err(|c| d.corrupt(c))?.ok_or(Error::NotFound)?;
    edit(&mut a, p.part, |area| d.fmt.remove(area, p.off)).map_err(|c| d.corrupt(c))?;
    Ok(p.entry.ino)
}

pub(super) fn replace(
    d: &Dir<'_>,
    h: &mut Handle,
    name: &[u8],
    ino: Ino,
    code: u8,
) -> Result<Entry> {
    let _ = h;
    let mut a = d.inode.attrs_mut();
    let p = find(d, &a, name).map_err(|c| d.corrupt(c))?.ok_or(Error::NotFound)?;
    edit(&mut a, p.part, |area| d.fmt.set_ino(area, p.off, ino, code)).map_err(|c| d.corrupt(c))?;
    Ok(p.entry)
}

/// Makes a new inode an empty inline directory. `false`, and nothing changed, if the inode has no
/// room for the attribute.
pub(super) fn init(d: &Dir<'_>, parent: Ino) -> Result<bool> {
    let mut a = d.inode.attrs_mut();
    if !inline_data::set_tail(&mut a.ibody, Some(&[])).map_err(|c| d.corrupt(c))? {
        return Ok(false);
    }
    a.rec.flags.insert(InodeFlags::INLINE_DATA);
    a.rec.flags.remove(InodeFlags::EXTENTS);
    a.rec.i_block = [0; IN_BLOCK];
    let ok = put(&mut a.rec.i_block, 0, &parent.0.to_le_bytes());
    debug_assert!(ok, "i_block has 60 bytes");
    edit(&mut a, Part::Block, |area| {
        d.fmt.clear(area);
        Ok(())
    })
    .map_err(|c| d.corrupt(c))?;
    a.size = IN_BLOCK as u64;
    a.rec.size = a.size;
    drop(a);
    // What attributes count (their block, their own inodes) stays with the record.
    let blocks = d.inode.blocks512();
    d.inode.set_map(None);
    d.inode.attrs_mut().rec.blocks = blocks;
    Ok(true)
}

pub(super) fn parent(d: &Dir<'_>) -> Result<Ino> {
    let ino = Ino(le32(&d.inode.attrs().rec.i_block, 0).unwrap_or(0));
    if d.vol.geo.is_user_ino(ino) {
        return Ok(ino);
    }
    Err(d.corrupt(Corrupt::new("parent of an inline directory").value(ino.0.into())))
}

pub(super) fn set_parent(d: &Dir<'_>, parent: Ino) {
    let ok = put(&mut d.inode.attrs_mut().rec.i_block, 0, &parent.0.to_le_bytes());
    debug_assert!(ok, "i_block has 60 bytes");
}

pub(super) fn is_empty(d: &Dir<'_>) -> Result<bool> {
    let image = image(d)?;
    for area in [&image.first[..], &image.second] {
        for r in d.fmt.records(area) {
            if r.map_err(|c| d.corrupt(c))?.ino != 0 {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// A copy of the directory's bytes.
pub(super) fn image(d: &Dir<'_>) -> Result<Image> {
    let parent = parent(d)?;
    let a = d.inode.attrs();
    let mut image = Image {
        dots: [0; DOTS],
        first: [0; FIRST],
        second: SmallVec::from_slice(second(&a).map_err(|c| d.corrupt(c))?),
    };
    image.first.copy_from_slice(first(&a));
    let code = code_of(FileKind::Directory);
    let dot = rec_len(1);
    d.fmt.write(&mut image.dots, 0, dot, b".", d.inode.ino, code);
    d.fmt.write(&mut image.dots, dot, DOTS - dot, b"..", parent, code);
    Ok(image)
}

/// As they lie; a position is the offset the entry would have in a block.
pub(super) fn read(d: &Dir<'_>, pos: u64, emit: Emit<'_>) -> Result<()> {
    let image = image(d)?;
    let mut base = 0;
    for area in [&image.dots[..], &image.first, &image.second] {
        for r in d.fmt.records(area) {
            let r = r.map_err(|c| d.corrupt(c))?;
            if r.ino == 0 || base + (r.off as u64) < pos {
                continue;
            }
            let entry = d.listed(&r).map_err(|c| d.corrupt(c))?;
            if !emit(r.name, entry, base + (r.off + r.len) as u64) {
                return Ok(());
            }
        }
        base += area.len() as u64;
    }
    Ok(())
}

/// Gives the inode an empty block map instead of inline data.
pub(super) fn to_mapped(d: &Dir<'_>) -> Result<()> {
    let mut a = d.inode.attrs_mut();
    inline_data::set_tail(&mut a.ibody, None).map_err(|c| d.corrupt(c))?;
    a.rec.flags.remove(InodeFlags::INLINE_DATA);
    a.rec.i_block = [0; IN_BLOCK];
    FileMap::init_block(&d.vol.geo, &mut a.rec);
    a.size = 0;
    a.rec.size = 0;
    let map = FileMap::from_inode(&d.vol.geo, d.inode.ino, &a.rec)?;
    drop(a);
    d.inode.set_map(Some(map));
    Ok(())
}

/// Moves the entries to a first block. On failure the directory is as it was.
pub(super) fn to_block(d: &Dir<'_>, h: &mut Handle) -> Result<()> {
    let image = image(d)?;
    let before = d.inode.attrs().clone();
    let r = fill_block(d, h, &image);
    if r.is_err() {
        d.inode.set_map(None);
        *d.inode.attrs_mut() = before;
    }
    r
}

fn fill_block(d: &Dir<'_>, h: &mut Handle, image: &Image) -> Result<()> {
    let fmt = d.fmt;
    let parts = [&image.dots[..], &image.first, &image.second];
    // (base of its area, offset of the last record)
    let (mut base, mut last) = (0, 0);
    for area in parts {
        for r in fmt.records(area) {
            last = base + r.map_err(|c| d.corrupt(c))?.off;
        }
        base += area.len();
    }
    if base > fmt.area() {
        return Err(d.corrupt(Corrupt::new("inline directory larger than a block")));
    }
    to_mapped(d)?;
    let (_, block) = inode::append_meta_block(d.vol, h, d.inode)?;
    let mut ok = true;
    h.create(block, &d.leaf_seal(), |b| {
        b.fill(0);
        let mut at = 0;
        for area in parts {
            ok &= put(b, at, area);
            at += area.len();
        }
        fmt.set_len(b, last, fmt.area() - last);
        fmt.init_tail(b);
    })?;
    debug_assert!(ok, "the areas were measured");
    Ok(())
}
