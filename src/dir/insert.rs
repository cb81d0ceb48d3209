//! Entering a name: into a leaf with room, by splitting leaves and index blocks of a tree, by
//! turning a directory that outgrows its first block into a tree, or in a block more.

use super::{
    Dir, Spot, SpotAt, check_name, code_of,
    index::{self, MAX_LEVELS},
    inline, leaf,
    path::{Frame, NoPath, Path, Target},
};
use crate::{
    cache::Buffer,
    error::{Corrupt, Error, Result},
    inode::{Inode, Volume, append_meta_block as append},
    journal::Handle,
    ondisk::{FileKind, InodeFlags, Seal},
    types::{Ino, LBlock},
};
use std::sync::Arc;

/// What is entered.
#[derive(Clone, Copy)]
pub(super) struct New<'a> {
    pub name: &'a [u8],
    pub ino: Ino,
    pub code: u8,
}

/// Enters `name` for inode `ino`. The caller has looked the name up and not found it.
///
/// # Errors
/// `Exists` if the name is seen all the same; `NoSpace` if there is no block or the tree is at its
/// full height; `Invalid`, `NameTooLong`; `Corrupt`. The directory is whole in any case.
pub fn insert(
    vol: &Volume,
    h: &mut Handle,
    dir: &Inode,
    name: &[u8],
    ino: Ino,
    kind: FileKind,
) -> Result<()> {
    check_name(name)?;
    let mut d = Dir::new(vol, dir)?;
    let new = New { name, ino, code: code_of(kind) };
    if d.is_inline() {
        if inline::insert(&d, h, &new)? {
            return d.finish(h);
        }
        inline::to_block(&d, h)?;
        d = Dir::new(vol, dir)?;
    }
    let r = enter(&mut d, h, &new);
    if r.is_ok() {
        return d.finish(h);
    }
    // What was changed before the failure (a block more, a tree made) must reach the inode.
    d.inode.store(vol, h)?;
    r
}

/// As [`insert`], where [`super::search`] found that the name is not there.
///
/// # Errors
/// As [`insert`].
pub fn insert_at(
    vol: &Volume,
    h: &mut Handle,
    dir: &Inode,
    spot: &Spot,
    name: &[u8],
    ino: Ino,
    kind: FileKind,
) -> Result<()> {
    let SpotAt::Room(leaf, off) = &spot.at else { return insert(vol, h, dir, name, ino, kind) };
    check_name(name)?;
    let d = Dir::new(vol, dir)?;
    let put = |b: &mut [u8]| d.fmt.put(d.fmt.of_mut(b), *off, name, ino, code_of(kind));
    if h.modify(leaf, &d.leaf_seal(), put)?.map_err(|c| d.blame(leaf, c))? {
        return d.finish(h);
    }
    insert(vol, h, dir, name, ino, kind)
}

fn enter(d: &mut Dir<'_>, h: &mut Handle, new: &New<'_>) -> Result<()> {
    let mut may_index = d.dir_index();
    if d.is_indexed() {
        match into_tree(d, h, new) {
            Ok(()) => return Ok(()),
            Err(NoPath::Failed(e)) => return Err(e),
            Err(NoPath::Unusable(c)) if d.fmt.csum => return Err(c.into()),
            Err(NoPath::Unusable(_)) => {
                d.inode.attrs_mut().rec.flags.remove(InodeFlags::INDEX);
                d.flags.remove(InodeFlags::INDEX);
                may_index = false;
            }
        }
    }
    let mut lblk = 0;
    while let Some((at, buf, seal)) = d.next_block(lblk)? {
        if into_leaf(d, h, &buf, &seal, new)? {
            return Ok(());
        }
        lblk = at.saturating_add(1);
    }
    if may_index && d.blocks() == 1 && make_tree(d, h)? {
        // As ext4, which never leaves a tree of one leaf.
        return split_first(d, h, new).and_then(|()| into_tree(d, h, new)).map_err(|e| match e {
            NoPath::Failed(e) => e,
            NoPath::Unusable(c) => c.into(),
        });
    }
    let (_, block) = append(d.vol, h, d.inode)?;
    let fmt = d.fmt;
    h.create(block, &d.leaf_seal(), |b| {
        fmt.init_leaf(b);
        fmt.write(b, 0, fmt.area(), new.name, new.ino, new.code);
    })?;
    Ok(())
}

/// Enters the name in this leaf if it has room.
fn into_leaf(
    d: &Dir<'_>,
    h: &mut Handle,
    buf: &Arc<Buffer>,
    seal: &Seal,
    new: &New<'_>,
) -> Result<bool> {
    let room = buf.read(|b| {
        let area = d.fmt.of(b);
        match d.fmt.find(area, new.name)? {
            Some(_) => Ok(Err(Error::Exists)),
            None => d.fmt.room(area, new.name.len()).map(Ok),
        }
    });
    let Some(off) = room.map_err(|c| d.blame(buf, c))?? else { return Ok(false) };
    h.modify(buf, seal, |b| d.fmt.put(d.fmt.of_mut(b), off, new.name, new.ino, new.code))?
        .map_err(|c| d.blame(buf, c))
}

fn into_tree(d: &Dir<'_>, h: &mut Handle, new: &New<'_>) -> Result<(), NoPath> {
    let seal = d.leaf_seal();
    // Each round but the last makes room in the index at one level.
    for _ in 0..=MAX_LEVELS + 1 {
        let path = d.probe(Target::Name(new.name))?;
        let leaf = d.block(path.leaf, &seal)?;
        if into_leaf(d, h, &leaf, &seal, new)? {
            return Ok(());
        }
        if path.frames.last().is_some_and(|f| !f.table.is_full()) {
            let half = split_leaf(d, h, path, &leaf)?;
            if into_leaf(d, h, &half, &seal, new)? {
                return Ok(());
            }
            break;
        }
        split_index(d, h, path)?;
    }
    let c = Corrupt::new("no room in a directory block just split");
    Err(NoPath::Failed(d.corrupt(c)))
}

/// Splits the one leaf of a tree just made.
fn split_first(d: &Dir<'_>, h: &mut Handle, new: &New<'_>) -> Result<(), NoPath> {
    let path = d.probe(Target::Name(new.name))?;
    let leaf = d.block(path.leaf, &d.leaf_seal())?;
    split_leaf(d, h, path, &leaf).map(|_| ())
}

/// Moves the upper half (by hash) of a leaf's entries to a new leaf behind it. Returns the leaf that
/// the path's name belongs in. The lowest index block has room.
fn split_leaf(
    d: &Dir<'_>,
    h: &mut Handle,
    mut path: Path,
    leaf: &Arc<Buffer>,
) -> Result<Arc<Buffer>, NoPath> {
    let old = leaf.data();
    let hasher = d.hasher(path.info.hash_version).map_err(NoPath::Unusable)?;
    // (hash, offset, length with the free space behind it), by hash.
    let mut map: Vec<(u32, usize, usize)> = Vec::new();
    for r in d.fmt.records(d.fmt.of(&old)) {
        let r = r.map_err(|c| d.blame(leaf, c))?;
        if r.ino != 0 && !r.name.is_empty() {
            map.push((hasher.hash(r.name).0, r.off, r.len));
        }
    }
    map.sort_unstable();
    let split = median(&map, d.fmt.block);
    let (Some(first), Some(before)) =
        (map.get(split), split.checked_sub(1).and_then(|i| map.get(i)))
    else {
        let c = Corrupt::new("full directory block with too few entries").value(map.len() as u64);
        return Err(d.blame(leaf, c).into());
    };
    let continued = u32::from(first.0 == before.0);
    let hash = first.0;
    let go: Vec<usize> = map.iter().skip(split).map(|e| e.1).collect();

    let (lblk, block) = append(d.vol, h, d.inode)?;
    let fmt = d.fmt;
    let seal = d.leaf_seal();
    let mut moved = Ok(());
    let upper = h.create(block, &seal, |b| {
        moved = fmt.copy_out(fmt.of(&old), &go, fmt.of_mut(b));
        fmt.init_tail(b);
    })?;
    drop(old);
    moved.map_err(|c| d.blame(leaf, c))?;
    h.modify(leaf, &seal, |b| fmt.cut(fmt.of_mut(b), &go))?.map_err(|c| d.blame(leaf, c))?;
    if let Some(f) = path.frames.last_mut() {
        link(d, h, f, hash | continued, lblk)?;
    }
    Ok(if path.hash >= hash { upper } else { leaf.clone() })
}

/// Where to cut a sorted list of records so that neither half fills more than half a block.
fn median(map: &[(u32, usize, usize)], block: usize) -> usize {
    let (mut size, mut moves) = (0, 0);
    for e in map.iter().rev() {
        if size + e.2 / 2 > block / 2 {
            return map.len() - moves;
        }
        size += e.2;
        moves += 1;
    }
    map.len() / 2
}

/// Enters a new block behind the one that this index block, which has room, leads to.
fn link(d: &Dir<'_>, h: &mut Handle, f: &mut Frame, hash: u32, lblk: LBlock) -> Result<()> {
    let (table, at) = (&mut f.table, f.at);
    let ok = h.modify(&f.buf, &d.index_seal(), |b| table.insert_after(b, at, hash, lblk.0))?;
    if ok {
        return Ok(());
    }
    Err(d.blame(&f.buf, Corrupt::new("no room in an index block just found to have room")))
}

/// Makes room in the index: splits the highest full node below one with room, or adds a level.
fn split_index(d: &Dir<'_>, h: &mut Handle, mut path: Path) -> Result<(), NoPath> {
    let fmt = d.fmt;
    let seal = d.index_seal();
    match path.frames.iter().rposition(|f| !f.table.is_full()) {
        Some(parent) => {
            let Some([up, full, ..]) = path.frames.get_mut(parent..) else { return Ok(()) };
            let old = full.buf.data();
            let stay = full.table.count / 2;
            let hash = full.table.hash(&old, stay);
            let (lblk, block) = append(d.vol, h, d.inode)?;
            h.create(block, &seal, |b| full.table.copy_out(&old, stay, &fmt, b))?;
            drop(old);
            h.modify(&full.buf, &seal, |b| full.table.truncate(b, stay))?;
            link(d, h, up, hash, lblk)?;
        }
        None => {
            if path.frames.len() >= d.max_levels() {
                log::warn!("directory inode {}: index full at its greatest height", d.inode.ino);
                return Err(NoPath::Failed(Error::NoSpace));
            }
            let Some(root) = path.frames.first_mut() else { return Ok(()) };
            let old = root.buf.data();
            let (lblk, block) = append(d.vol, h, d.inode)?;
            h.create(block, &seal, |b| root.table.copy_out(&old, 0, &fmt, b))?;
            drop(old);
            h.modify(&root.buf, &seal, |b| root.table.grow_root(b, lblk.0))?;
        }
    }
    Ok(())
}

/// Turns a linear directory of one block into a tree with one leaf. `false`, and nothing changed,
/// if the block does not begin as a root must.
fn make_tree(d: &mut Dir<'_>, h: &mut Handle) -> Result<bool> {
    let fmt = d.fmt;
    let buf = d.block(0, &d.leaf_seal())?;
    let old = buf.data();
    let mut go = Vec::new();
    for (i, r) in fmt.records(fmt.of(&old)).enumerate() {
        let r = r.map_err(|c| d.blame(&buf, c))?;
        let proper = match i {
            0 => r.name == b"." && r.ino != 0 && r.len == leaf::rec_len(1),
            1 => r.name == b".." && r.ino != 0,
            _ => true,
        };
        if !proper {
            return Ok(false);
        }
        if i > 1 && r.ino != 0 {
            go.push(r.off);
        }
    }
    let version = d.vol.geo.def_hash_version;
    if d.hasher(version).is_err() {
        return Ok(false);
    }
    let (lblk, block) = append(d.vol, h, d.inode)?;
    let mut moved = Ok(());
    h.create(block, &d.leaf_seal(), |b| {
        moved = fmt.copy_out(fmt.of(&old), &go, fmt.of_mut(b));
        fmt.init_tail(b);
    })?;
    drop(old);
    moved.map_err(|c| d.blame(&buf, c))?;
    h.modify(&buf, &d.index_seal(), |b| index::init_root(&fmt, b, version, lblk.0))?;
    d.inode.attrs_mut().rec.flags.insert(InodeFlags::INDEX);
    d.flags.insert(InodeFlags::INDEX);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn halves_are_at_most_half_full() {
        let map: Vec<_> = (0..10).map(|i| (i * 2, 0, 100)).collect();
        assert_eq!(median(&map, 1000), 5);
        // One long record first: the many short ones go together.
        let mut map: Vec<_> = (1..20).map(|i| (i * 2, 0, 12)).collect();
        map.insert(0, (0, 0, 764));
        assert_eq!(median(&map, 1024), 1);
    }
}
