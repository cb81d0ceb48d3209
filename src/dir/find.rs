//! Where a name is.

use super::{
    Dir, Entry,
    path::{NoPath, Target},
};
use crate::{cache::Buffer, error::Result, ondisk::Seal};
use std::sync::Arc;

/// An entry and its place.
pub(super) struct Found {
    pub entry: Entry,
    pub buf: Arc<Buffer>,
    /// What its block is sealed as.
    pub seal: Seal,
    /// Byte offset in the block.
    pub off: usize,
}

/// What a search that wants to change the directory finds.
pub(super) enum Search {
    Found(Found),
    /// Not there; the leaf of the tree that has room for it, and where, if that was seen.
    Absent(Option<(Arc<Buffer>, usize)>),
}

/// As [`find`], and sees where a new name would go.
pub(super) fn search(d: &Dir<'_>, name: &[u8]) -> Result<Search> {
    if d.is_indexed() {
        match hashed_or_room(d, name) {
            Ok(s) => return Ok(s),
            Err(NoPath::Failed(e)) => return Err(e),
            Err(NoPath::Unusable(_)) => {}
        }
    }
    Ok(find(d, name)?.map_or(Search::Absent(None), Search::Found))
}

fn hashed_or_room(d: &Dir<'_>, name: &[u8]) -> Result<Search, NoPath> {
    let mut path = d.probe(Target::Name(name))?;
    let seal = d.leaf_seal();
    let leaf = d.block(path.leaf, &seal)?;
    let seen = leaf.read(|b| match d.fmt.find_or_room(d.fmt.of(b), name)? {
        Ok(r) => Ok(Ok((d.entry(&r)?, r.off))),
        Err(room) => Ok(Err(room)),
    });
    let room = match seen.map_err(|c| d.blame(&leaf, c))? {
        Ok((entry, off)) => return Ok(Search::Found(Found { entry, buf: leaf, seal, off })),
        Err(room) => room,
    };
    let hash = path.hash;
    while d.next_leaf(&mut path, Some(hash))?.is_some() {
        let next = d.block(path.leaf, &seal)?;
        if let Some(f) = in_block(d, next, seal, name)? {
            return Ok(Search::Found(f));
        }
    }
    Ok(Search::Absent(room.map(|off| (leaf, off))))
}

/// Finds a name in a directory that is not inline.
pub(super) fn find(d: &Dir<'_>, name: &[u8]) -> Result<Option<Found>> {
    if matches!(name, b"." | b"..") {
        let seal = d.first_seal();
        return in_block(d, d.block(0, &seal)?, seal, name);
    }
    if d.is_indexed() {
        match hashed(d, name) {
            Ok(found) => return Ok(found),
            Err(NoPath::Failed(e)) => return Err(e),
            Err(NoPath::Unusable(_)) => {}
        }
    }
    let mut lblk = 0;
    while let Some((at, buf, seal)) = d.next_block(lblk)? {
        if let Some(f) = in_block(d, buf, seal, name)? {
            return Ok(Some(f));
        }
        lblk = at.saturating_add(1);
    }
    Ok(None)
}

fn hashed(d: &Dir<'_>, name: &[u8]) -> Result<Option<Found>, NoPath> {
    let mut path = d.probe(Target::Name(name))?;
    let seal = d.leaf_seal();
    loop {
        let leaf = d.block(path.leaf, &seal)?;
        if let Some(f) = in_block(d, leaf, seal, name)? {
            return Ok(Some(f));
        }
        let hash = path.hash;
        if d.next_leaf(&mut path, Some(hash))?.is_none() {
            return Ok(None);
        }
    }
}

fn in_block(d: &Dir<'_>, buf: Arc<Buffer>, seal: Seal, name: &[u8]) -> Result<Option<Found>> {
    let found = buf.read(|b| {
        let Some(r) = d.fmt.find(d.area(&seal, b), name)? else { return Ok(None) };
        Ok(Some((d.entry(&r)?, r.off)))
    });
    match found {
        Ok(Some((entry, off))) => Ok(Some(Found { entry, buf, seal, off })),
        Ok(None) => Ok(None),
        Err(c) => Err(d.blame(&buf, c)),
    }
}
