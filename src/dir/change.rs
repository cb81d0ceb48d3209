//! Taking names away, giving them to other inodes, and the two names every directory has.

use super::{Dir, Entry, Spot, SpotAt, check_name, code_of, find, inline, leaf::rec_len};
use crate::{
    error::{Corrupt, Error, Result},
    inode::{self, Inode, Volume},
    journal::Handle,
    ondisk::{FileKind, Incompat},
    types::{Ino, LBlock},
};

/// Removes `name` and returns the inode it stood for. The space stays with the directory.
///
/// # Errors
/// `NotFound`; `Invalid` for `.` and `..`.
pub fn remove(vol: &Volume, h: &mut Handle, dir: &Inode, name: &[u8]) -> Result<Ino> {
    check_name(name)?;
    let d = Dir::new(vol, dir)?;
    if d.is_inline() {
        let ino = inline::remove(&d, h, name)?;
        d.finish(h)?;
        return Ok(ino);
    }
    let f = find::find(&d, name)?.ok_or(Error::NotFound)?;
    remove_found(&d, h, &f)
}

fn remove_found(d: &Dir<'_>, h: &mut Handle, f: &find::Found) -> Result<Ino> {
    h.modify(&f.buf, &f.seal, |b| d.fmt.remove(d.fmt.of_mut(b), f.off))?
        .map_err(|c| d.blame(&f.buf, c))?;
    d.finish(h)?;
    Ok(f.entry.ino)
}

/// As [`remove`], of what [`super::search`] found.
///
/// # Errors
/// As [`remove`].
pub fn remove_at(
    vol: &Volume,
    h: &mut Handle,
    dir: &Inode,
    spot: &Spot,
    name: &[u8],
) -> Result<Ino> {
    let SpotAt::Entry(f) = &spot.at else { return remove(vol, h, dir, name) };
    check_name(name)?;
    remove_found(&Dir::new(vol, dir)?, h, f)
}

/// Makes `name`, which is there, stand for another inode. Returns what it stood for.
///
/// # Errors
/// `NotFound`; `Invalid` for `.` and `..`.
pub fn replace(
    vol: &Volume,
    h: &mut Handle,
    dir: &Inode,
    name: &[u8],
    ino: Ino,
    kind: FileKind,
) -> Result<Entry> {
    check_name(name)?;
    let d = Dir::new(vol, dir)?;
    let code = code_of(kind);
    if d.is_inline() {
        let old = inline::replace(&d, h, name, ino, code)?;
        d.finish(h)?;
        return Ok(old);
    }
    let f = find::find(&d, name)?.ok_or(Error::NotFound)?;
    h.modify(&f.buf, &f.seal, |b| d.fmt.set_ino(d.fmt.of_mut(b), f.off, ino, code))?
        .map_err(|c| d.blame(&f.buf, c))?;
    d.finish(h)?;
    Ok(f.entry)
}

/// Makes an empty directory of a new inode: inline where the file system has that and the inode has
/// room, else a first block with `.` and `..`.
pub fn init(vol: &Volume, h: &mut Handle, dir: &Inode, parent: Ino) -> Result<()> {
    let d = Dir::new(vol, dir)?;
    if vol.geo.has_incompat(Incompat::INLINE_DATA) && inline::init(&d, parent)? {
        return dir.store(vol, h);
    }
    let (_, block) = inode::append_meta_block(vol, h, dir)?;
    let fmt = d.fmt;
    h.create(block, &d.leaf_seal(), |b| {
        let dot = rec_len(1);
        let code = code_of(FileKind::Directory);
        fmt.write(b, 0, dot, b".", dir.ino, code);
        fmt.write(b, dot, fmt.area() - dot, b"..", parent, code);
        fmt.init_tail(b);
    })?;
    dir.store(vol, h)
}

/// The directory that `..` names.
pub fn parent(vol: &Volume, dir: &Inode) -> Result<Ino> {
    let d = Dir::new(vol, dir)?;
    if d.is_inline() {
        return inline::parent(&d);
    }
    let none = || d.corrupt(Corrupt::new("directory without .."));
    Ok(find::find(&d, b"..")?.ok_or_else(none)?.entry.ino)
}

/// Makes `..` name another directory.
pub fn set_parent(vol: &Volume, h: &mut Handle, dir: &Inode, parent: Ino) -> Result<()> {
    let d = Dir::new(vol, dir)?;
    if d.is_inline() {
        inline::set_parent(&d, parent);
        return dir.store(vol, h);
    }
    let none = || d.corrupt(Corrupt::new("directory without .."));
    let f = find::find(&d, b"..")?.ok_or_else(none)?;
    let code = code_of(FileKind::Directory);
    // The record covers the index of a root, so it is looked at in the whole block.
    h.modify(&f.buf, &f.seal, |b| d.fmt.set_ino(b, f.off, parent, code))?
        .map_err(|c| d.blame(&f.buf, c))
}

/// Whether the directory names nothing but `.` and `..`. Holes are skipped.
///
/// # Errors
/// `Corrupt` if it does not begin with `.` (itself) and `..`, or a block is not valid.
pub fn is_empty(vol: &Volume, dir: &Inode) -> Result<bool> {
    let d = Dir::new(vol, dir)?;
    if d.is_inline() {
        return inline::is_empty(&d);
    }
    let first = d.block(0, &d.first_seal())?;
    let dots = first.read(|b| {
        let dot = d.fmt.record(b, 0)?;
        let dotdot = d.fmt.record(b, dot.len)?;
        let good = dot.name == b"." && dot.ino == dir.ino.0 && dotdot.name == b"..";
        Ok((good && dotdot.ino != 0).then_some(dotdot.off + dotdot.len))
    });
    let Some(behind) = dots.map_err(|c| d.blame(&first, c))? else {
        return Err(d.blame(&first, Corrupt::new("directory does not begin with . and ..")));
    };
    let mut lblk = 0;
    while let Some((at, buf, seal)) = d.next_block(lblk)? {
        let skip = if at == 0 { behind } else { 0 };
        if at % READ_AHEAD == 0 {
            d.read_ahead(at + 1);
        }
        let used = buf.read(|b| {
            let area = d.area(&seal, b);
            let mut off = skip;
            while off < area.len() {
                let r = d.fmt.record(area, off)?;
                if r.ino != 0 {
                    return Ok(true);
                }
                off += r.len;
            }
            Ok(false)
        });
        if used.map_err(|c: Corrupt| d.blame(&buf, c))? {
            return Ok(false);
        }
        lblk = at.saturating_add(1);
    }
    Ok(true)
}

/// Blocks read ahead when a directory is read from end to end.
pub(super) const READ_AHEAD: u32 = 16;

impl Dir<'_> {
    /// Starts reading blocks that are wanted soon; a failure shows when they are read.
    pub(super) fn read_ahead(&self, lblk: u32) {
        let n = self.blocks().saturating_sub(lblk).min(READ_AHEAD);
        if n > 1 {
            let _ = inode::prefetch_meta(self.vol, self.inode, LBlock(lblk), n);
        }
    }
}
