//! Replay of fast commits: what the kernel logged since the last full commit as "this inode, this
//! extent, this name" instead of as blocks.
//!
//! They are replayed on a volume of their own whose device keeps every change in memory; its changed
//! blocks are the answer. Nothing is allocated from ranges that a record names, for they are marked as
//! used first. A file that is touched has its map rebuilt from the extents it ends up with.

mod ranges;

use super::{mount, recover, superblocks};
use crate::{
    alloc::{FreeFlags, Run},
    device::{AlignedBuf, BlockDevice, Overlay},
    dir,
    error::{Corrupt, Error, Result},
    inode::{Inode, Volume, mode, orphan::ORPHAN_CREDITS, truncate},
    journal::{FastCommitArea, Journal, JournalOptions, LogExtent},
    map::{FileMap, State},
    ondisk::{
        FileKind, Geometry, InodeFlags, InodeRecord,
        fast_commit::{FcDentry, FcScan, FcTag, tags},
        inode_raw::{I_BLOCK_OFFSET, I_GENERATION_OFFSET},
    },
    options::{ErrorsMode, MountOptions},
    types::{Block, Ino, LBlock, Tid},
};
use ranges::{Ranges, blocks_of, merged, without};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Bytes of changed blocks that a replay may hold.
const LIMIT: u64 = 256 << 20;
/// Blocks that one record changes at most, names aside.
const CREDITS: u32 = 24;

/// Replays the fast commits behind transaction `next - 1`, if the area holds any, on what `dev` holds,
/// and answers the blocks that change. `dev` is not written.
///
/// # Errors
/// `Unmountable` if they ask for a feature that nobody knows; `Corrupt` if a sound record contradicts
/// the file system; `NoSpace`, `NoMemory`, `Io`.
pub(super) fn replay(
    dev: &Arc<dyn BlockDevice>,
    opts: &MountOptions,
    log: &[LogExtent],
    area: Option<FastCommitArea>,
    next: Tid,
) -> Result<Vec<(Block, AlignedBuf)>> {
    let Some(area) = area.filter(|a| !a.is_empty()) else { return Ok(Vec::new()) };
    let records = sound(&area, next)?;
    if records == 0 {
        return Ok(Vec::new());
    }
    let over = Arc::new(Overlay::new(dev.clone(), LIMIT));
    let mut opts = opts.clone();
    opts.read_only = false;
    opts.errors = Some(ErrorsMode::Continue);
    let (top, sb) = superblocks::settle(over.clone(), &opts)?;
    let geo = Arc::new(Geometry::new(&sb, Some(top.size()))?);
    let cache = mount::new_cache(&top, &geo, 64 << 20);
    let journal = Journal::none(cache.clone(), JournalOptions::default());
    let vol = mount::new_volume(geo.clone(), cache, journal, &sb, opts, log)?;
    let done = (|| {
        if let Some(ino) = sb.orphan_file_inum() {
            let file = vol.inodes.get(&vol, ino)?;
            vol.orphans.use_file(&vol, &file)?;
        }
        vol.orphans.scan_file(&vol);
        vol.orphans.adopt_list(&recover::read_list(&vol, &sb));
        let mut r = Replay {
            vol: &vol,
            files: BTreeMap::new(),
            had: Vec::new(),
            renamed: BTreeSet::new(),
            seen: BTreeSet::new(),
        };
        each_record(&area, records, |tag| r.reserve(tag))?;
        each_record(&area, records, |tag| r.record(tag))?;
        r.finish()
    })();
    let closed = vol.journal.close();
    done.and(closed)?;
    let changed = changes(&over, &**dev, &geo)?;
    log::info!("fast commits replayed: {records} records, {} blocks", changed.len());
    Ok(changed)
}

/// How many records of the area are to be replayed.
fn sound(area: &FastCommitArea, next: Tid) -> Result<u64> {
    let mut scan = FcScan::new(next);
    for i in 0..area.len() {
        if !scan.block(&area.read(i)?) {
            break;
        }
    }
    if scan.unsupported() != 0 {
        return Err(Error::Unmountable(format!(
            "the journal's fast commits need unknown features {:#x}",
            scan.unsupported()
        )));
    }
    Ok(scan.sound_records())
}

fn each_record(
    area: &FastCommitArea,
    mut left: u64,
    mut f: impl FnMut(FcTag<'_>) -> Result<()>,
) -> Result<()> {
    for i in 0..area.len() {
        for record in tags(&area.read(i)?) {
            if left == 0 {
                return Ok(());
            }
            let Ok((tag, _)) = record else { return Ok(()) };
            f(tag)?;
            left -= 1;
        }
    }
    Ok(())
}

/// The blocks in which the overlay differs from what lies below it.
fn changes(
    over: &Overlay,
    base: &dyn BlockDevice,
    geo: &Geometry,
) -> Result<Vec<(Block, AlignedBuf)>> {
    let bs = geo.block_size;
    let mut out = Vec::new();
    for b in over.touched(bs) {
        if !geo.is_valid_block(b, 1) {
            // The superblock with blocks of 1 KiB.
            if b != geo.superblock_block() {
                continue;
            }
        }
        let mut new = AlignedBuf::for_overwrite(bs.bytes());
        let mut old = AlignedBuf::for_overwrite(bs.bytes());
        over.read_at(&mut new, bs.offset(b))?;
        base.read_at(&mut old, bs.offset(b))?;
        if new[..] != old[..] {
            out.push((b, new));
        }
    }
    Ok(out)
}

/// A file that records touched.
#[derive(Default)]
struct File {
    now: Ranges,
    /// `i_blocks` without the map and what it maps.
    other512: u64,
}

struct Replay<'a> {
    vol: &'a Arc<Volume>,
    files: BTreeMap<Ino, File>,
    /// Runs that a file had or was given, start and end: free in the end if no file has them.
    had: Vec<(u64, u64)>,
    /// Directories that have a new name and are about to lose the old one.
    renamed: BTreeSet<Ino>,
    /// Inodes whose link count may have become zero.
    seen: BTreeSet<Ino>,
}

impl Replay<'_> {
    /// First pass: the blocks that records give to files are taken.
    fn reserve(&mut self, tag: FcTag<'_>) -> Result<()> {
        let FcTag::AddRange(ino, e) = tag else { return Ok(()) };
        if e.len == 0 || e.end() > u64::from(u32::MAX) || !self.vol.geo.is_user_ino(ino) {
            return Err(Corrupt::new("fast commit: extent").ino(ino).block(e.block).into());
        }
        let run = Run { start: e.block, len: e.len };
        self.vol.alloc.check_data_run(run)?;
        let mut h = self.vol.journal.start("fast_commit", CREDITS)?;
        self.vol.alloc.mark_used(&mut h, run)?;
        self.had.push(blocks_of(&e));
        h.stop()
    }

    fn record(&mut self, tag: FcTag<'_>) -> Result<()> {
        match tag {
            FcTag::AddRange(ino, e) => {
                if self.touch(ino)?
                    && let Some(f) = self.files.get_mut(&ino)
                {
                    f.now.set(e);
                }
                Ok(())
            }
            FcTag::DelRange { ino, lblock, len } => {
                if self.touch(ino)?
                    && let Some(f) = self.files.get_mut(&ino)
                {
                    let from = u64::from(lblock.0);
                    f.now.cut(from, from + u64::from(len));
                }
                Ok(())
            }
            FcTag::Inode(ino, raw) => self.inode(ino, raw),
            FcTag::Creat(d) => self.create(&d),
            FcTag::Link(d) => self.link(&d),
            FcTag::Unlink(d) => self.unlink(&d),
            FcTag::Head { .. } | FcTag::Tail { .. } | FcTag::Pad => Ok(()),
        }
    }

    /// The inode, if it is in use.
    fn get(&self, ino: Ino) -> Result<Option<Arc<Inode>>> {
        if ino != Ino::ROOT && !self.vol.geo.is_user_ino(ino) {
            return Err(Corrupt::new("fast commit: inode number").ino(ino).into());
        }
        if !self.vol.alloc.inode_is_allocated(ino)? {
            return Ok(None);
        }
        match self.vol.inodes.get(self.vol, ino) {
            Ok(i) => Ok(Some(i)),
            Err(Error::Stale) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Takes the map of a file into memory; false if it has none.
    fn touch(&mut self, ino: Ino) -> Result<bool> {
        if self.files.contains_key(&ino) {
            return Ok(true);
        }
        let Some(i) = self.get(ino)? else { return Ok(false) };
        if i.is_dir() || !i.has_map() || !i.map()?.is_extents() {
            return Ok(false);
        }
        let mut now = Ranges::default();
        i.map()?.for_each(&self.vol.map_ctx(), LBlock(0), u64::MAX, &mut |m| {
            now.0.insert(m.lblk.0, m.as_extent());
            true
        })?;
        self.had.extend(now.0.values().map(blocks_of));
        // The blocks of the tree go, the data stays marked as used until all is settled.
        i.map_mut()?.keep_data();
        let mut h = self.vol.journal.start("fast_commit", truncate::remove_credits(&i))?;
        truncate::remove_blocks(self.vol, &mut h, &i, LBlock(0), u64::MAX)?;
        h.stop()?;
        let other512 = i.blocks512();
        drop(i);
        self.reload(ino);
        self.files.insert(ino, File { now, other512 });
        Ok(true)
    }

    fn reload(&self, ino: Ino) {
        self.vol.inodes.remove(ino);
    }

    /// The slot of an inode, but for its map.
    fn inode(&mut self, ino: Ino, raw: &[u8]) -> Result<()> {
        let vol = self.vol;
        let geo = &vol.geo;
        let bad = |what| Error::from(Corrupt::new(what).ino(ino));
        if !geo.is_user_ino(ino) && ino != Ino::ROOT {
            return Err(bad("fast commit: inode number"));
        }
        let size = usize::from(geo.inode_size);
        let (Some(head), Some(tail)) = (raw.get(..I_BLOCK_OFFSET), raw.get(I_GENERATION_OFFSET..))
        else {
            return Err(bad("fast commit: inode record"));
        };
        if raw.len() > size {
            return Err(bad("fast commit: inode record"));
        }
        let mut whole = vec![0; size];
        whole.iter_mut().zip(raw).for_each(|(to, from)| *to = *from);
        let flags = InodeFlags::from_bits_retain(word(raw, 0x20));
        if flags.contains(InodeFlags::EXTENTS) {
            // Whatever map it brings is not the one it gets.
            set_i_block(&mut whole, empty_map(geo));
        }
        let new = InodeRecord::parse(geo, ino, &whole)?;
        let is_dir = new.mode & mode::FMT == mode::DIR;
        let before = self.get(ino)?;
        let same = before.as_ref().is_some_and(|i| i.generation == new.generation);
        if before.is_some() {
            self.touch(ino)?;
        }
        drop(before);
        if !same && let Some(f) = self.files.get_mut(&ino) {
            f.now = Ranges::default();
        }
        let mut h = vol.journal.start("fast_commit", CREDITS)?;
        let fresh = vol.alloc.take_inode(&mut h, ino, is_dir)?;
        let at = vol.slot(ino)?;
        let buf = vol.cache.read(at.block, &crate::ondisk::Seal::None)?;
        let seal = vol.slot_seal(ino, at);
        let extents = flags.contains(InodeFlags::EXTENTS);
        let mapped = !extents
            && !flags.contains(InodeFlags::INLINE_DATA)
            && matches!(new.mode & mode::FMT, mode::REG | mode::DIR);
        h.modify(&buf, &seal, |b| -> Result<()> {
            let slot = b.get_mut(at.offset..at.offset + size).ok_or_else(|| bad("inode slot"))?;
            if fresh || !same {
                slot.fill(0);
            }
            let put = |slot: &mut [u8], at: usize, from: &[u8]| {
                if let Some(to) = slot.get_mut(at..at + from.len()) {
                    to.copy_from_slice(from);
                }
            };
            put(slot, 0, head);
            put(slot, I_GENERATION_OFFSET, tail);
            if extents && (is_dir && same) || mapped && same {
                // The blocks of a directory are not in the records.
            } else {
                let from = whole.get(I_BLOCK_OFFSET..I_GENERATION_OFFSET).unwrap_or_default();
                put(slot, I_BLOCK_OFFSET, from);
            }
            Ok(())
        })??;
        h.stop()?;
        self.reload(ino);
        self.seen.insert(ino);
        if extents && !is_dir {
            let acl = u64::from(new.file_acl != 0) << (geo.block_size.log2() - 9);
            let f = self.files.entry(ino).or_default();
            if !same {
                f.other512 = acl;
            }
        }
        Ok(())
    }

    fn dir(&self, ino: Ino) -> Result<Option<Arc<Inode>>> {
        Ok(self.get(ino)?.filter(|d| d.is_dir()))
    }

    /// Enters a name; whether it was not there.
    fn enter(&self, d: &Arc<Inode>, name: &[u8], i: &Inode) -> Result<bool> {
        check_name(name).map_err(|c| c.ino(d.ino))?;
        if dir::lookup(self.vol, d, name)?.is_some() {
            return Ok(false);
        }
        let kind = FileKind::from_mode(i.mode())
            .ok_or_else(|| Error::from(Corrupt::new("fast commit: file type").ino(i.ino)))?;
        let mut h = self.vol.journal.start("fast_commit", dir::insert_credits(d) + CREDITS)?;
        dir::insert(self.vol, &mut h, d, name, i.ino, kind)?;
        self.dir_changed(d, i64::from(i.is_dir()));
        d.store(self.vol, &mut h)?;
        h.stop()?;
        Ok(true)
    }

    fn dir_changed(&self, d: &Inode, subdirs: i64) {
        let now = self.vol.now();
        let mut a = d.attrs_mut();
        a.rec.mtime = now;
        a.rec.ctime = now;
        a.rec.links_count = super::namei::add_subdirs(a.rec.links_count, subdirs);
    }

    fn set_links(&mut self, i: &Arc<Inode>, f: impl FnOnce(u16) -> u16) -> Result<()> {
        self.seen.insert(i.ino);
        let mut h = self.vol.journal.start("fast_commit", CREDITS)?;
        {
            let mut a = i.attrs_mut();
            a.rec.links_count = f(a.rec.links_count);
            a.rec.ctime = self.vol.now();
        }
        i.store(self.vol, &mut h)?;
        h.stop()
    }

    fn create(&mut self, d: &FcDentry<'_>) -> Result<()> {
        let Some(i) = self.get(d.ino)? else {
            return Err(Corrupt::new("fast commit: a name without its inode").ino(d.ino).into());
        };
        let Some(parent) = self.dir(d.parent)? else { return Ok(()) };
        let mapped = i.is_dir() && i.has_map();
        if mapped && i.map()?.lookup(&self.vol.map_ctx(), LBlock(0), 1)?.state == State::Hole {
            let acl = u64::from(i.attrs().rec.file_acl != 0);
            i.map_mut()?.set_blocks512(acl << (self.vol.geo.block_size.log2() - 9));
            let extra = dir::init_credits(&parent);
            let mut h = self.vol.journal.start("fast_commit", extra + CREDITS)?;
            {
                let mut a = i.attrs_mut();
                a.size = 0;
                a.rec.size = 0;
            }
            dir::init(self.vol, &mut h, &i, d.parent)?;
            i.store(self.vol, &mut h)?;
            h.stop()?;
        }
        self.enter(&parent, d.name, &i)?;
        let links = if i.is_dir() { i.attrs().rec.links_count.max(2) } else { 1 };
        self.set_links(&i, |_| links)
    }

    fn link(&mut self, d: &FcDentry<'_>) -> Result<()> {
        let Some(i) = self.get(d.ino)? else { return Ok(()) };
        let Some(parent) = self.dir(d.parent)? else { return Ok(()) };
        if !self.enter(&parent, d.name, &i)? {
            return Ok(());
        }
        if i.is_dir() {
            self.renamed.insert(i.ino);
            let mut h = self.vol.journal.start("fast_commit", CREDITS)?;
            dir::set_parent(self.vol, &mut h, &i, d.parent)?;
            i.store(self.vol, &mut h)?;
            return h.stop();
        }
        self.set_links(&i, |n| n.saturating_add(1))
    }

    fn unlink(&mut self, d: &FcDentry<'_>) -> Result<()> {
        let Some(i) = self.get(d.ino)? else { return Ok(()) };
        let Some(parent) = self.dir(d.parent)? else { return Ok(()) };
        check_name(d.name).map_err(|c| c.ino(parent.ino))?;
        let Some(e) = dir::lookup(self.vol, &parent, d.name)? else { return Ok(()) };
        if e.ino == i.ino {
            let credits = dir::CHANGE_CREDITS + CREDITS;
            let mut h = self.vol.journal.start("fast_commit", credits)?;
            dir::remove(self.vol, &mut h, &parent, d.name)?;
            self.dir_changed(&parent, -i64::from(i.is_dir()));
            parent.store(self.vol, &mut h)?;
            h.stop()?;
        }
        if i.is_dir() {
            return if self.renamed.remove(&i.ino) { Ok(()) } else { self.set_links(&i, |_| 0) };
        }
        self.set_links(&i, |n| n.saturating_sub(1))
    }

    /// The maps are made again, blocks that no file has any more are freed, and what lost its last link
    /// becomes an orphan.
    fn finish(mut self) -> Result<()> {
        let vol = self.vol;
        // What the old maps were made of is free from here on.
        vol.journal.commit_all()?;
        let mut used: Vec<(u64, u64)> = Vec::new();
        for (ino, f) in std::mem::take(&mut self.files) {
            let Some(i) = self.get(ino)? else { continue };
            if !i.has_map() || !i.map()?.is_extents() {
                continue;
            }
            i.map_mut()?.set_blocks512(f.other512);
            let mut h = vol.journal.start("fast_commit", i.map()?.credits_for_alloc() + 2)?;
            for e in f.now.0.into_values() {
                let credits = i.map()?.credits_for_alloc() + 2;
                if !h.ensure(credits)? {
                    i.store(vol, &mut h)?;
                    h.restart(credits)?;
                }
                i.map_mut()?.attach(&vol.map_ctx(), &mut h, e)?;
                used.push(blocks_of(&e));
            }
            i.store(vol, &mut h)?;
            h.stop()?;
        }
        for (start, end) in without(merged(std::mem::take(&mut self.had)), &merged(used)) {
            let mut at = start;
            while at < end {
                let len = (end - at).min(u64::from(vol.geo.blocks_per_group)) as u32;
                let mut h = vol.journal.start("fast_commit", CREDITS)?;
                let run = Run { start: Block(at), len };
                vol.alloc.free(&mut h, run, FreeFlags::default())?;
                h.stop()?;
                at += u64::from(len);
            }
        }
        for ino in std::mem::take(&mut self.seen) {
            let Some(i) = self.get(ino)? else { continue };
            if i.nlink() == 0 {
                let mut h = vol.journal.start("fast_commit", ORPHAN_CREDITS + CREDITS)?;
                vol.orphans.add(vol, &mut h, &i)?;
                i.store(vol, &mut h)?;
                h.stop()?;
            }
        }
        vol.journal.commit_all()
    }
}

fn check_name(name: &[u8]) -> Result<(), Corrupt> {
    if name.is_empty()
        || name == b"."
        || name == b".."
        || name.iter().any(|b| matches!(b, 0 | b'/'))
    {
        return Err(Corrupt::new("fast commit: file name"));
    }
    Ok(())
}

fn word(b: &[u8], at: usize) -> u32 {
    crate::ondisk::bytes::le32(b, at).unwrap_or(0)
}

/// `i_block` of a file without blocks.
fn empty_map(geo: &Geometry) -> [u8; 60] {
    let mut rec = InodeRecord::new(geo, mode::REG, 0, 0, crate::ondisk::Timestamp::default());
    FileMap::init_block(geo, &mut rec);
    rec.i_block
}

fn set_i_block(slot: &mut [u8], i_block: [u8; 60]) {
    if let Some(to) = slot.get_mut(I_BLOCK_OFFSET..I_BLOCK_OFFSET + i_block.len()) {
        to.copy_from_slice(&i_block);
    }
}
