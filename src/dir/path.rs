//! The way through a directory's hash tree: from the root to a leaf, and on to the next leaf.

use super::{
    Dir,
    index::{self, MAX_LEVELS, RootInfo, Table},
};
use crate::{
    cache::Buffer,
    error::{Corrupt, Error, Result},
    ondisk::hash::NameHash,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// Why there is no path.
pub(super) enum NoPath {
    /// The index cannot be used; the names can still be found in the leaves.
    Unusable(Corrupt),
    /// A block could not be read.
    Failed(Error),
}

impl From<Error> for NoPath {
    fn from(e: Error) -> NoPath {
        NoPath::Failed(e)
    }
}

/// One index block on the way.
pub(super) struct Frame {
    pub buf: Arc<Buffer>,
    pub table: Table,
    /// The entry taken.
    pub at: usize,
}

/// What a path leads to.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    /// The first leaf a name can be in.
    Name(&'a [u8]),
    /// The first leaf with names of this hash or above.
    Hash(u32),
}

/// A way to a leaf.
pub(super) struct Path {
    pub info: RootInfo,
    /// The hash looked for.
    pub hash: u32,
    /// Root first.
    pub frames: SmallVec<[Frame; MAX_LEVELS]>,
    /// The leaf.
    pub leaf: u32,
    /// Leaves seen: a hostile index can lead to one leaf any number of times.
    steps: u64,
}

impl Dir<'_> {
    /// How names are hashed in a tree of this version.
    pub(super) fn hasher(&self, version: u8) -> Result<NameHash, Corrupt> {
        let geo = &self.vol.geo;
        NameHash::new(version, geo.hash_unsigned, geo.hash_seed)
            .ok_or_else(|| Corrupt::new("unknown hash of a directory index").value(version.into()))
    }

    /// Walks from the root to a leaf.
    pub(super) fn probe(&self, target: Target<'_>) -> Result<Path, NoPath> {
        let unusable = |buf: &Buffer, c: Corrupt| {
            let c = c.ino(self.inode.ino).block(buf.block());
            log::warn!("directory index not usable: {c}");
            NoPath::Unusable(c)
        };
        let mut buf = self.block(0, &self.index_seal())?;
        let (info, mut table) = buf
            .read(|b| index::root(&self.fmt, b, self.max_levels()))
            .map_err(|c| unusable(&buf, c))?;
        let hash = match target {
            Target::Name(name) => {
                self.hasher(info.hash_version).map_err(|c| unusable(&buf, c))?.hash(name).0
            }
            Target::Hash(hash) => hash,
        };
        let mut frames: SmallVec<[Frame; MAX_LEVELS]> = SmallVec::new();
        let mut seen: SmallVec<[u32; MAX_LEVELS]> = SmallVec::from_slice(&[0]);
        loop {
            let (at, block) = buf.read(|b| {
                let at = table.search(b, hash);
                (at, table.block(b, at))
            });
            if seen.contains(&block) {
                let c = Corrupt::new("directory index leads back to itself").value(block.into());
                return Err(unusable(&buf, c));
            }
            frames.push(Frame { buf, table, at });
            if frames.len() == info.levels {
                return Ok(Path { info, hash, frames, leaf: block, steps: 0 });
            }
            seen.push(block);
            buf = self.block(block, &self.index_seal())?;
            table = buf.read(|b| index::node(&self.fmt, b)).map_err(|c| unusable(&buf, c))?;
        }
    }

    /// Moves the path to the next leaf, whose lowest hash it returns: low bit set if names of that
    /// hash begin in a leaf before. With `only` set just if names of that hash may be there.
    /// `None`, and the path is of no more use, if not.
    pub(super) fn next_leaf(&self, path: &mut Path, only: Option<u32>) -> Result<Option<u32>> {
        path.steps += 1;
        if path.steps > u64::from(self.blocks()).min(self.vol.geo.blocks_count) {
            return Err(self.corrupt(Corrupt::new("directory index with too many leaves")));
        }
        let Some(level) = path.frames.iter().rposition(|f| f.at + 1 < f.table.count) else {
            return Ok(None);
        };
        let Some(f) = path.frames.get_mut(level) else { return Ok(None) };
        f.at += 1;
        let (hash, mut block) = f.buf.read(|b| (f.table.hash(b, f.at), f.table.block(b, f.at)));
        if only.is_some_and(|only| hash & !1 != only) {
            return Ok(None);
        }
        for f in path.frames.iter_mut().skip(level + 1) {
            let buf = self.block(block, &self.index_seal())?;
            let table = buf.read(|b| index::node(&self.fmt, b)).map_err(|c| self.blame(&buf, c))?;
            block = buf.read(|b| table.block(b, 0));
            *f = Frame { buf, table, at: 0 };
        }
        path.leaf = block;
        Ok(Some(hash))
    }
}
