//! Inode numbers: taking one, giving it back.
//!
//! Within a group the lowest free number is taken, so that the part of the inode table that was never
//! used (`itable_unused`) stays one piece at its end. The table block that a first inode falls in is
//! created as zeros in the same handle: what lies on the device there is never read.

use super::groups::Groups;
use super::orlov::{self, Stat, View};
use super::report::DeliverAtEnd;
use super::{Allocator, bitmap};
use crate::cache::{Buffer, InoSet};
use crate::error::{Corrupt, Error, Result};
use crate::journal::Handle;
use crate::ondisk::group_desc::inode_bitmap_csum;
use crate::ondisk::{GroupDesc, GroupFlags, Seal};
use crate::types::{Group, Ino};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// Counts of inodes, and the numbers that may not be given out yet.
pub(super) struct InodeState {
    pub free: AtomicI64,
    pub used_dirs: AtomicI64,
    /// Free on disk, and still known to the kernel. Leaf lock.
    withheld: Mutex<InoSet>,
    spread: AtomicU32,
}

impl InodeState {
    pub fn new(free: u64, used_dirs: u64) -> InodeState {
        InodeState {
            free: AtomicI64::new(free as i64),
            used_dirs: AtomicI64::new(used_dirs as i64),
            withheld: Mutex::default(),
            spread: AtomicU32::new(0x2545_f491),
        }
    }
}

struct Groupwise<'a> {
    groups: &'a Groups,
    inodes: &'a InodeState,
    free_clusters: u64,
}

fn count(n: &AtomicI64) -> u64 {
    n.load(Relaxed).max(0) as u64
}

impl View for Groupwise<'_> {
    fn groups(&self) -> u32 {
        self.groups.count()
    }
    fn flex_size(&self) -> u32 {
        self.groups.geo.flex_bg_size
    }
    fn inodes_per_group(&self) -> u32 {
        self.groups.geo.inodes_per_group
    }
    fn clusters_per_group(&self) -> u32 {
        self.groups.geo.clusters_per_group
    }
    fn flex(&self, flex: u32) -> Stat {
        self.groups.flex().get(flex as usize).map_or(Stat::default(), |f| Stat {
            free_inodes: count(&f.free_inodes),
            free_clusters: count(&f.free_clusters),
            used_dirs: count(&f.used_dirs),
        })
    }
    fn total(&self) -> Stat {
        Stat {
            free_inodes: count(&self.inodes.free),
            free_clusters: self.free_clusters,
            used_dirs: count(&self.inodes.used_dirs),
        }
    }
    fn free_inodes(&self, g: u32) -> u32 {
        self.groups.cell(Group(g)).map_or(0, |c| c.free_inodes.load(Relaxed))
    }
    fn has_blocks(&self, g: u32) -> bool {
        self.groups.next_by(super::groups::By::Free, 0, g, g + 1).is_some()
    }
    fn next_with_inode(&self, from: u32, to: u32) -> Option<u32> {
        self.groups.inode_index.next(0, from, to)
    }
}

impl Allocator {
    /// Takes an inode number near `parent` (top-level directories are spread) and marks it used. The
    /// caller writes the slot; what it holds is an older inode's or zeros.
    ///
    /// # Errors
    /// `NoSpace` when there is none; `Corrupt`, `Io`, `ReadOnly`.
    pub fn alloc_inode(
        &self,
        h: &mut Handle,
        parent: Ino,
        is_dir: bool,
        top_level: bool,
    ) -> Result<Ino> {
        let _told = DeliverAtEnd(&self.report);
        let near = self.geo.ino_location(parent).map_or(0, |(g, _)| g.0);
        let view = Groupwise {
            groups: &self.groups,
            inodes: &self.inodes,
            free_clusters: self.counters.free(),
        };
        let choice = if is_dir {
            let spread = self.inodes.spread.fetch_add(0x9e37_79b9, Relaxed);
            orlov::for_dir(&view, near, top_level, spread.rotate_right(13))
        } else {
            orlov::for_file(&view, near, parent.0)
        };
        let first = choice.ok_or(Error::NoSpace)?;
        let n = self.groups.count();
        for (from, to) in [(first, n), (0, first)] {
            let mut at = from;
            while let Some(g) = self.groups.inode_index.next(0, at, to) {
                match self.alloc_in_group(h, Group(g), is_dir, None) {
                    Ok(Some(ino)) => return Ok(ino),
                    Ok(None) => {}
                    Err(e @ (Error::Corrupt(_) | Error::Io { .. })) => {
                        self.exclude_inodes(Group(g), e)?;
                    }
                    Err(e) => return Err(e),
                }
                at = g + 1;
            }
        }
        Err(Error::NoSpace)
    }

    /// Leaves a group out of inode allocation, because of `e`.
    fn exclude_inodes(&self, g: Group, e: Error) -> Result<()> {
        let mut st = self.groups.cell(g)?.state.lock();
        if !st.bad_inodes {
            st.bad_inodes = true;
            let free = i64::from(st.desc.free_inodes);
            self.inodes.free.fetch_sub(free, Relaxed);
            self.groups.flex_of(g).free_inodes.fetch_sub(free, Relaxed);
            self.groups.inode_index.change(g.0, Some(0), None);
            self.report.error(e);
        }
        Ok(())
    }

    /// The group's inode bitmap; `None` while it is INODE_UNINIT.
    fn inode_bitmap(&self, g: Group) -> Result<Option<Arc<Buffer>>> {
        let cell = self.groups.cell(g)?;
        if cell.state.lock().desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(None);
        }
        let buf = self.cache.read(cell.inode_bitmap, &Seal::None)?;
        if !buf.is_checked() {
            let st = cell.state.lock();
            buf.read(|b| st.desc.verify_inode_bitmap(&self.geo, g, b))?;
            buf.set_checked();
        }
        Ok(Some(buf))
    }

    /// Marks an inode as used, unless it is: a replay brings its slot. Whether it was not.
    ///
    /// # Errors
    /// `Corrupt` if there is no such inode or its group cannot be used; `Io`.
    pub fn take_inode(&self, h: &mut Handle, ino: Ino, is_dir: bool) -> Result<bool> {
        if self.inode_is_allocated(ino)? {
            return Ok(false);
        }
        let bad = || Error::from(Corrupt::new("inode that cannot be taken").ino(ino));
        let (g, index) = self.geo.ino_location(ino).ok_or_else(bad)?;
        match self.alloc_in_group(h, g, is_dir, Some(index))? {
            Some(got) if got == ino => Ok(true),
            _ => Err(bad()),
        }
    }

    fn alloc_in_group(
        &self,
        h: &mut Handle,
        g: Group,
        is_dir: bool,
        want: Option<u32>,
    ) -> Result<Option<Ino>> {
        let bitmap = self.inode_bitmap(g)?;
        // The block bitmap is made with the first inode, as ext4 does; no matter if it is corrupt.
        let entered = match bitmap {
            None => self.groups.enter(g, false)?,
            Some(_) => None,
        };
        let cell = self.groups.cell(g)?;
        let desc_buf = match &entered {
            Some(e) => Arc::clone(e.desc_buf()),
            None => self.groups.desc_buf(g)?,
        };
        let mut entered = entered;
        if let Some(e) = &mut entered
            && e.state.desc.flags.contains(GroupFlags::BLOCK_UNINIT)
        {
            self.groups.init_block_bitmap(h, e)?;
        }
        let mut st = match entered {
            Some(e) => e.state,
            None => cell.state.lock(),
        };
        if st.bad_inodes || st.desc.free_inodes == 0 {
            return Ok(None);
        }
        let uninit = st.desc.flags.contains(GroupFlags::INODE_UNINIT);
        let bitmap = match (bitmap, uninit) {
            (Some(b), _) => b,
            (None, false) => {
                // Another thread made it meanwhile.
                drop(st);
                return self.alloc_in_group(h, g, is_dir, want);
            }
            (None, true) => {
                let ipg = self.geo.inodes_per_group;
                let buf = h.create(cell.inode_bitmap, &Seal::None, |b| {
                    let bits = b.len() as u32 * 8;
                    bitmap::fill(b, ipg, bits, true);
                })?;
                buf.set_checked();
                buf
            }
        };
        let Some(index) = want.or_else(|| self.pick_inode(g, &bitmap)) else {
            return match self.has_withheld() {
                // Free, but still known to the kernel.
                true => Ok(None),
                false => Err(Corrupt::new("free inodes in bitmap and descriptor differ")
                    .group(g)
                    .value(st.desc.free_inodes.into())
                    .into()),
            };
        };
        let ino = self.geo.ino_at(g, index).ok_or_else(|| Corrupt::new("inode index").group(g))?;
        let mut desc = st.desc.clone();
        let fresh = self.fresh_block(&desc, index);
        let csum = h.modify(&bitmap, &Seal::None, |b| {
            bitmap::flip(b, index, 1, true).map(|()| inode_bitmap_csum(&self.geo, b))
        })?;
        desc.inode_bitmap_csum =
            csum.map_err(|_| Corrupt::new("inode in use in the bitmap").ino(ino).group(g))?;
        desc.flags.remove(GroupFlags::INODE_UNINIT);
        desc.free_inodes -= 1;
        desc.used_dirs = (desc.used_dirs + u32::from(is_dir)).min(self.geo.inodes_per_group);
        if self.geo.metadata_csum || self.geo.gdt_csum {
            let rest = self.geo.inodes_per_group - 1 - index;
            desc.itable_unused = if uninit { rest } else { desc.itable_unused.min(rest) };
        }
        self.groups.write_desc(h, g, &desc_buf, &desc)?;
        st.desc = desc;
        if st.desc.free_inodes == 0 {
            self.groups.inode_index.change(g.0, Some(0), None);
        }
        self.count_inodes(g, st.desc.free_inodes, -1, i64::from(is_dir));
        if let Some(block) = fresh {
            h.create(block, &Seal::None, |_| {})?;
        }
        Ok(Some(ino))
    }

    /// The table block of the inode, if no inode in it was ever used.
    fn fresh_block(&self, desc: &GroupDesc, index: u32) -> Option<crate::types::Block> {
        let (block, _) = self.geo.itable_slot(index);
        let first = block * self.geo.inodes_per_block();
        (first >= self.used_slots(desc)).then(|| desc.inode_table.plus(block.into()))
    }

    /// Slots of the group's table that were ever used, counted from its start.
    fn used_slots(&self, desc: &GroupDesc) -> u32 {
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return 0;
        }
        self.geo.inodes_per_group.saturating_sub(desc.itable_unused)
    }

    /// The lowest free inode of the group that may be given out.
    fn pick_inode(&self, g: Group, bitmap: &Buffer) -> Option<u32> {
        let ipg = self.geo.inodes_per_group;
        let mut at = match g.0 {
            0 => self.geo.first_ino.saturating_sub(1),
            _ => 0,
        };
        loop {
            let i = bitmap.read(|b| bitmap::find(b, at, ipg, false));
            let ino = self.geo.ino_at(g, i).filter(|_| i < ipg)?;
            // (With small groups the reserved inodes may reach into the next one.)
            if ino.0 >= self.geo.first_ino && !self.inodes.withheld.lock().contains(&ino) {
                return Some(i);
            }
            at = i + 1;
        }
    }

    fn count_inodes(&self, g: Group, left: u32, free: i64, dirs: i64) {
        if let Ok(c) = self.groups.cell(g) {
            c.free_inodes.store(left, Relaxed);
        }
        let f = self.groups.flex_of(g);
        f.free_inodes.fetch_add(free, Relaxed);
        f.used_dirs.fetch_add(dirs, Relaxed);
        self.inodes.free.fetch_add(free, Relaxed);
        self.inodes.used_dirs.fetch_add(dirs, Relaxed);
    }

    /// Gives an inode number back. Its preallocations are dropped.
    ///
    /// # Errors
    /// `Corrupt` if it is reserved, out of range, or free already.
    pub fn free_inode(&self, h: &mut Handle, ino: Ino, is_dir: bool) -> Result<()> {
        let _told = DeliverAtEnd(&self.report);
        self.discard_prealloc(ino);
        let (g, index) = match self.geo.ino_location(ino) {
            Some(l) if ino.0 >= self.geo.first_ino => l,
            _ => {
                return Err(Corrupt::new("freeing a reserved or nonexistent inode")
                    .ino(ino)
                    .into());
            }
        };
        let cell = self.groups.cell(g)?;
        if cell.state.lock().bad_inodes {
            return Ok(());
        }
        let free_already = || Corrupt::new("freeing a free inode").ino(ino).group(g);
        let bitmap = self.inode_bitmap(g)?.ok_or_else(free_already)?;
        let desc_buf = self.groups.desc_buf(g)?;
        let mut st = cell.state.lock();
        let csum = h.modify(&bitmap, &Seal::None, |b| {
            bitmap::flip(b, index, 1, false).map(|()| inode_bitmap_csum(&self.geo, b))
        })?;
        let Ok(csum) = csum else {
            drop(st);
            self.exclude_inodes(g, free_already().into())?;
            return Err(free_already().into());
        };
        let mut desc = st.desc.clone();
        desc.inode_bitmap_csum = csum;
        desc.free_inodes = (desc.free_inodes + 1).min(self.geo.inodes_per_group);
        let dirs = u32::from(is_dir && desc.used_dirs > 0);
        desc.used_dirs -= dirs;
        self.groups.write_desc(h, g, &desc_buf, &desc)?;
        st.desc = desc;
        if st.desc.free_inodes == 1 {
            self.groups.inode_index.change(g.0, None, Some(0));
        }
        self.count_inodes(g, st.desc.free_inodes, 1, -i64::from(dirs));
        Ok(())
    }

    /// Whether an inode is in use, by its bitmap.
    ///
    /// # Errors
    /// `Corrupt` if there is no such inode or the bitmap is bad; `Io`.
    pub fn inode_is_allocated(&self, ino: Ino) -> Result<bool> {
        let Some((g, index)) = self.geo.ino_location(ino) else {
            return Err(Corrupt::new("inode number").ino(ino).into());
        };
        let bitmap = self.inode_bitmap(g)?;
        Ok(bitmap.is_some_and(|b| b.read(|b| bitmap::test(b, index))))
    }

    /// Whether the inode's slot was never used: what the device holds there means nothing.
    pub fn inode_slot_is_fresh(&self, ino: Ino) -> bool {
        let Some((g, index)) = self.geo.ino_location(ino) else { return false };
        self.groups.cell(g).is_ok_and(|c| index >= self.used_slots(&c.state.lock().desc))
    }

    /// Keeps a number from being given out although it is (or is about to be) free: the kernel still
    /// knows the inode. Until [`Allocator::unhold_inode`].
    pub fn hold_inode(&self, ino: Ino) {
        self.inodes.withheld.lock().insert(ino);
    }

    /// Undoes [`Allocator::hold_inode`].
    pub fn unhold_inode(&self, ino: Ino) {
        self.inodes.withheld.lock().remove(&ino);
    }

    fn has_withheld(&self) -> bool {
        !self.inodes.withheld.lock().is_empty()
    }
}
