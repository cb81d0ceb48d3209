//! Listing.
//!
//! A position says where to go on, whatever is entered or removed meanwhile. Where the file system
//! has `dir_index`, indexed, inline and one-block directories are listed in the order of the names'
//! hashes and a position is a hash: bits 32 to 62 the major one without its low bit, bits 0 to 31
//! the minor one, as ext4's. Other directories are listed as they lie, and a position is a byte
//! offset.

use super::{
    Dir, Entry,
    change::READ_AHEAD,
    inline,
    path::{NoPath, Target},
};
use crate::{
    device::AlignedBuf,
    error::{Corrupt, Error, Result},
    inode::{Inode, Volume},
    ondisk::{csum::crc32c, hash::NameHash},
};
use std::sync::Arc;

/// Gets the entries: name, what it stands for, and the position behind it. `false`: it did not
/// fit, stop.
pub type Emit<'a> = &'a mut dyn FnMut(&[u8], Entry, u64) -> bool;

/// Position at which nothing is left.
const END: u64 = i64::MAX as u64;
/// Names of one hash that are sorted in memory; ten thousand times what chance brings together.
const MAX_RUN: usize = 1 << 18;
/// Names of one position that are told apart by listing them together.
const MAX_TIES: usize = 16;

/// Lists the directory from position `pos` (0: the start) on, `.` and `..` included, until `emit`
/// says stop or nothing is left.
///
/// # Errors
/// `Corrupt` at an entry that names an inode or has a name that it cannot.
pub fn read(vol: &Volume, dir: &Inode, pos: u64, emit: Emit<'_>) -> Result<()> {
    let d = Dir::new(vol, dir)?;
    if pos >= END {
        return Ok(());
    }
    if !d.dir_index() {
        return if d.is_inline() { inline::read(&d, pos, emit) } else { linear(&d, pos, emit) };
    }
    if d.is_indexed() && !d.is_inline() {
        match hashed(&d, pos, emit) {
            Ok(()) => return Ok(()),
            Err(NoPath::Failed(e)) => return Err(e),
            // Found out before the first name is listed.
            Err(NoPath::Unusable(_)) => return linear(&d, pos, emit),
        }
    }
    let hasher = match d.hasher(vol.geo.def_hash_version) {
        Ok(h) => h,
        Err(_) if d.is_inline() => return inline::read(&d, pos, emit),
        Err(_) => return linear(&d, pos, emit),
    };
    let mut batch = Batch::new(&d, hasher, pos);
    if d.is_inline() {
        let image = inline::image(&d)?;
        for part in [&image.dots[..], &image.first, &image.second] {
            batch.add(Bytes::Owned(part.to_vec()), part.len())?;
        }
    } else if d.blocks() == 1 {
        let buf = d.block(0, &d.leaf_seal())?;
        batch.add(Bytes::Shared(buf.data()), d.fmt.area()).map_err(|e| blame(e, &buf))?;
    } else {
        return linear(&d, pos, emit);
    }
    batch.emit(None, emit)?;
    Ok(())
}

/// As the records lie.
fn linear(d: &Dir<'_>, pos: u64, emit: Emit<'_>) -> Result<()> {
    let bits = d.vol.geo.block_size.log2();
    let mut from = d.vol.geo.block_size.within(pos);
    let Ok(mut lblk) = u32::try_from(pos >> bits) else { return Ok(()) };
    while let Some((at, buf, seal)) = d.next_block(lblk)? {
        if at != lblk {
            from = 0;
        }
        if at % READ_AHEAD == 0 {
            d.read_ahead(at + 1);
        }
        let data = buf.data();
        let area = d.area(&seal, &data);
        for r in d.fmt.records(area) {
            let r = r.map_err(|c| d.blame(&buf, c))?;
            if r.off < from || r.ino == 0 {
                continue;
            }
            let entry = d.listed(&r).map_err(|c| d.blame(&buf, c))?;
            let mut next = r.off + r.len;
            if next >= area.len() {
                next = d.fmt.block;
            }
            if !emit(r.name, entry, (u64::from(at) << bits) + next as u64) {
                return Ok(());
            }
        }
        (lblk, from) = (at.saturating_add(1), 0);
    }
    Ok(())
}

/// Leaf after leaf of the tree, each sorted by hash.
fn hashed(d: &Dir<'_>, pos: u64, emit: Emit<'_>) -> Result<(), NoPath> {
    let major = ((pos >> 32) << 1) as u32;
    let mut path = d.probe(Target::Hash(major))?;
    let hasher = d.hasher(path.info.hash_version).map_err(NoPath::Unusable)?;
    let mut batch = Batch::new(d, hasher, pos);
    batch.add_dots()?;
    loop {
        let buf = d.block(path.leaf, &d.leaf_seal())?;
        batch.add(Bytes::Shared(buf.data()), d.fmt.area()).map_err(|e| blame(e, &buf))?;
        let next = d.next_leaf(&mut path, None)?;
        // Names of one hash are listed together, however many leaves they are in.
        if next.is_some_and(|hash| hash & 1 == 1) {
            continue;
        }
        if !batch.emit(next, emit)? || next.is_none() {
            return Ok(());
        }
    }
}

fn blame(e: Error, buf: &crate::cache::Buffer) -> Error {
    match e {
        Error::Corrupt(c) => c.block(buf.block()).into(),
        e => e,
    }
}

enum Bytes {
    Shared(Arc<AlignedBuf>),
    Owned(Vec<u8>),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Shared(b) => b,
            Bytes::Owned(b) => b,
        }
    }
}

/// Names to be listed together, in the order of their positions.
struct Batch<'a, 'b> {
    d: &'a Dir<'b>,
    hasher: NameHash,
    from: u64,
    blocks: Vec<Bytes>,
    /// (position, block, offset)
    keys: Vec<(u64, u32, u32)>,
}

impl<'a, 'b> Batch<'a, 'b> {
    fn new(d: &'a Dir<'b>, hasher: NameHash, from: u64) -> Batch<'a, 'b> {
        Batch { d, hasher, from, blocks: Vec::new(), keys: Vec::new() }
    }

    fn position(&self, name: &[u8]) -> u64 {
        let (major, minor) = self.hasher.hash(name);
        // The legacy hash has no minor one: something else must tell its names apart.
        let minor = if minor == 0 { crc32c(!0, name) } else { minor };
        u64::from(major >> 1) << 32 | u64::from(minor)
    }

    /// Adds the entries in use of an area that are not before the start.
    fn add(&mut self, bytes: Bytes, area: usize) -> Result<()> {
        let (block, before) = (self.blocks.len() as u32, self.keys.len());
        for r in self.d.fmt.records(bytes.get().get(..area).unwrap_or_default()) {
            let r = r.map_err(|c| self.d.corrupt(c))?;
            if r.ino == 0 {
                continue;
            }
            let pos = self.position(r.name);
            if pos >= self.from {
                self.keys.push((pos, block, r.off as u32));
            }
        }
        if self.keys.len() > MAX_RUN {
            return Err(self.d.corrupt(Corrupt::new("too many names of one hash in a directory")));
        }
        if self.keys.len() > before {
            self.blocks.push(bytes);
        }
        Ok(())
    }

    /// Adds the two names that are not in leaves; they come first.
    fn add_dots(&mut self) -> Result<()> {
        const DOTS: [u64; 2] = [0, 1 << 32];
        if self.from > DOTS[1] {
            return Ok(());
        }
        let buf = self.d.block(0, &self.d.index_seal())?;
        let mut off = 0;
        for pos in DOTS {
            let r = buf.read(|b| self.d.fmt.record(b, off).map(|r| (r.off, r.len)));
            let (at, len) = r.map_err(|c| self.d.blame(&buf, c))?;
            if pos >= self.from {
                self.keys.push((pos, 0, at as u32));
            }
            off += len;
        }
        self.blocks.push(Bytes::Shared(buf.data()));
        Ok(())
    }

    /// Lists what was added, in order, and empties the batch. `next` is the lowest hash of what
    /// comes later. `false` if told to stop.
    fn emit(&mut self, next: Option<u32>, emit: Emit<'_>) -> Result<bool> {
        self.keys.sort_unstable();
        let mut ties = 0;
        for (i, &(pos, block, off)) in self.keys.iter().enumerate() {
            let Some(bytes) = self.blocks.get(block as usize) else { continue };
            // The records of a root reach to its end.
            let r = self.d.fmt.record(bytes.get(), off as usize).map_err(|c| self.d.corrupt(c))?;
            let entry = self.d.listed(&r).map_err(|c| self.d.corrupt(c))?;
            let tie = self.keys.get(i + 1).is_some_and(|k| k.0 == pos);
            ties = if tie { ties + 1 } else { 0 };
            // A listing that stops between two names of one position goes on with both.
            let behind = if tie && ties < MAX_TIES {
                pos
            } else if i + 1 == self.keys.len() {
                next.map_or(END, |hash| u64::from(hash >> 1) << 32).max(pos + 1)
            } else {
                pos + 1
            };
            if !emit(r.name, entry, behind) {
                return Ok(false);
            }
        }
        self.keys.clear();
        self.blocks.clear();
        Ok(true)
    }
}

impl Dir<'_> {
    /// What a name to be listed stands for.
    pub(super) fn listed(&self, r: &super::leaf::Record<'_>) -> Result<Entry, Corrupt> {
        if r.name.is_empty() || r.name.iter().any(|&b| b == b'/' || b == 0) {
            return Err(Corrupt::new("directory entry with an impossible name").value(r.off as u64));
        }
        self.entry(r)
    }
}
