//! Names: linear, hashed and inline directories.
//!
//! `fs` calls it with the directory's lock held: shared to look up and list, exclusive to change.
//! Changes happen inside the caller's journal handle, one operation whole or not at all, and end
//! with the directory's inode stored.
//!
//! Invariants: records tile every block; a changed block is sealed as what it is (leaf or index);
//! an index leads to every leaf; nothing read from disk is believed before it is checked; the cost
//! of an operation on an indexed directory does not grow with its size.

mod change;
mod find;
pub mod index;
mod inline;
mod insert;
pub mod leaf;
mod path;
mod read;
#[cfg(test)]
mod tests;

pub use change::{init, is_empty, parent, remove, remove_at, replace, set_parent};
pub use insert::{insert, insert_at};
pub use read::read;

use crate::{
    cache::Buffer,
    error::{Corrupt, Error, Result},
    inode::{self, Inode, Volume},
    journal::Handle,
    ondisk::{
        Compat, FileKind, Incompat, InodeFlags, Seal,
        dirent::{file_type_code as code_of, file_type_kind as kind_of},
    },
    types::{Ino, LBlock},
};
use leaf::{Format, NAME_MAX, Record};
use std::sync::Arc;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The inode.
    pub ino: Ino,
    /// Its kind; `None` where the directory does not record it.
    pub kind: Option<FileKind>,
}

/// What `name` stands for in this directory; `None` if it is not there.
///
/// # Errors
/// `NotDir`, `NameTooLong`, `Corrupt` (also if the entry names an inode that it cannot).
pub fn lookup(vol: &Volume, dir: &Inode, name: &[u8]) -> Result<Option<Entry>> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let d = Dir::new(vol, dir)?;
    if d.is_inline() {
        return inline::lookup(&d, name);
    }
    Ok(find::find(&d, name)?.map(|f| f.entry))
}

/// A name looked up in order to change the directory. Good as long as the directory's lock is held
/// and nothing else changes the directory.
pub struct Spot {
    /// What the name stands for; `None` if it is not there.
    pub entry: Option<Entry>,
    at: SpotAt,
}

enum SpotAt {
    /// Not known: the change looks again.
    Unknown,
    /// The entry.
    Entry(find::Found),
    /// A leaf with room for it, at this offset.
    Room(Arc<Buffer>, usize),
}

/// As [`lookup`], for [`insert_at`] or [`remove_at`].
///
/// # Errors
/// As [`lookup`].
pub fn search(vol: &Volume, dir: &Inode, name: &[u8]) -> Result<Spot> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let d = Dir::new(vol, dir)?;
    if d.is_inline() || matches!(name, b"." | b"..") {
        return Ok(Spot { entry: lookup(vol, dir, name)?, at: SpotAt::Unknown });
    }
    Ok(match find::search(&d, name)? {
        find::Search::Found(f) => Spot { entry: Some(f.entry), at: SpotAt::Entry(f) },
        find::Search::Absent(Some((leaf, off))) => {
            Spot { entry: None, at: SpotAt::Room(leaf, off) }
        }
        find::Search::Absent(None) => Spot { entry: None, at: SpotAt::Unknown },
    })
}

/// Metadata blocks that [`insert`] may change, the blocks it allocates and the directory's inode
/// included.
pub fn insert_credits(dir: &Inode) -> u32 {
    // At most: a node of each level split, the root grown, a leaf split.
    let appends = index::MAX_LEVELS as u32 + 2;
    let alloc = dir.map().map_or(12, |m| m.credits_for_alloc());
    appends * (alloc + 2) + index::MAX_LEVELS as u32 + 2
}

/// Metadata blocks that [`remove`], [`replace`] or [`set_parent`] may change.
pub const CHANGE_CREDITS: u32 = 2;

/// Metadata blocks that [`init`] may change.
pub fn init_credits(dir: &Inode) -> u32 {
    dir.map().map_or(12, |m| m.credits_for_alloc()) + 2
}

/// A directory with what every operation on it needs.
struct Dir<'a> {
    vol: &'a Volume,
    inode: &'a Inode,
    fmt: Format,
    /// Checksum seed of its blocks.
    seed: u32,
    flags: InodeFlags,
}

impl<'a> Dir<'a> {
    fn new(vol: &'a Volume, inode: &'a Inode) -> Result<Dir<'a>> {
        let flags = {
            let a = inode.attrs();
            if FileKind::from_mode(a.rec.mode) != Some(FileKind::Directory) {
                return Err(Error::NotDir);
            }
            a.rec.flags
        };
        let fmt = Format::new(&vol.geo);
        Ok(Dir { vol, inode, fmt, seed: inode.csum_seed(vol), flags })
    }

    fn is_inline(&self) -> bool {
        self.flags.contains(InodeFlags::INLINE_DATA)
    }

    fn dir_index(&self) -> bool {
        self.vol.geo.has_compat(Compat::DIR_INDEX)
    }

    /// Whether there is a hash tree (that we may use).
    fn is_indexed(&self) -> bool {
        self.dir_index() && self.flags.contains(InodeFlags::INDEX)
    }

    fn max_levels(&self) -> usize {
        if self.vol.geo.has_incompat(Incompat::LARGEDIR) { 3 } else { 2 }
    }

    /// Blocks of the directory, as its size says.
    fn blocks(&self) -> u32 {
        let n = self.inode.size() >> self.vol.geo.block_size.log2();
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    fn leaf_seal(&self) -> Seal {
        Seal::DirLeaf { seed: self.seed }
    }

    fn index_seal(&self) -> Seal {
        Seal::HtreeNode { seed: self.seed }
    }

    /// The seal of the first block, which of an indexed directory is the root.
    fn first_seal(&self) -> Seal {
        if self.is_indexed() { self.index_seal() } else { self.leaf_seal() }
    }

    /// The records of a block; those of a root or node cover the index behind them.
    fn area<'b>(&self, seal: &Seal, block: &'b [u8]) -> &'b [u8] {
        if *seal == self.leaf_seal() { self.fmt.of(block) } else { block }
    }

    fn corrupt(&self, c: Corrupt) -> Error {
        c.ino(self.inode.ino).into()
    }

    /// Adds the directory and the block to what was found wrong in the block.
    fn blame(&self, buf: &Buffer, c: Corrupt) -> Error {
        c.ino(self.inode.ino).block(buf.block()).into()
    }

    /// A block that must be there.
    fn block(&self, lblk: u32, seal: &Seal) -> Result<Arc<Buffer>> {
        let hole = || Corrupt::new("hole in a directory").value(lblk.into());
        inode::meta_block(self.vol, self.inode, LBlock(lblk), seal)?
            .ok_or_else(|| self.corrupt(hole()))
    }

    /// The next block from `lblk` on, read as what it is; `None` after the last. Holes are skipped
    /// in one step, however large.
    fn next_block(&self, mut lblk: u32) -> Result<Option<(u32, Arc<Buffer>, Seal)>> {
        let end = self.blocks();
        while lblk < end {
            let m = self.inode.map()?.lookup(&self.vol.map_ctx(), LBlock(lblk), end - lblk)?;
            if m.state == crate::map::State::Hole {
                log::warn!("directory inode {}: hole at block {lblk}", self.inode.ino);
                lblk = lblk.saturating_add(m.len.max(1));
                continue;
            }
            let buf = self.block(lblk, &Seal::None)?;
            let indexed = self.flags.contains(InodeFlags::INDEX);
            let is_index = indexed && (lblk == 0 || buf.read(leaf::is_index_node));
            let seal = if is_index { self.index_seal() } else { self.leaf_seal() };
            let buf = self.block(lblk, &seal)?;
            return Ok(Some((lblk, buf, seal)));
        }
        Ok(None)
    }

    fn entry(&self, r: &Record<'_>) -> Result<Entry, Corrupt> {
        Ok(Entry { ino: self.fmt.named_ino(r)?, kind: kind_of(r.ftype & 0xf) })
    }

    /// Ends a change: times and version of the directory, and its inode stored.
    fn finish(&self, h: &mut Handle) -> Result<()> {
        {
            let now = self.vol.now();
            let mut a = self.inode.attrs_mut();
            a.rec.mtime = now;
            a.rec.ctime = now;
            a.rec.i_version = a.rec.i_version.wrapping_add(1);
            // A directory without the feature must not claim an index that we don't maintain.
            if !self.dir_index() && !self.fmt.csum {
                a.rec.flags.remove(InodeFlags::INDEX);
            }
        }
        self.inode.store(self.vol, h)
    }
}

/// Checks a name that is to be entered, changed or removed.
fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" | b"." | b".." => Err(Error::Invalid("file name")),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
        _ if name.iter().any(|&b| b == 0 || b == b'/') => Err(Error::Invalid("file name")),
        _ => Ok(()),
    }
}
