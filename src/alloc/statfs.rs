//! The numbers that statfs, the superblock and `mb_groups` show.

use super::buddy::MAX_ORDERS;
use super::report::DeliverAtEnd;
use super::{Allocator, Run};
use crate::cache::SuperBuf;
use crate::error::{Corrupt, Result};
use crate::journal::Handle;
use crate::ondisk::{Seal, Superblock};
use crate::types::Group;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

/// statfs, in blocks and inodes, as ext4 counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsCounts {
    /// Blocks, without the metadata overhead unless `minixdf`.
    pub blocks: u64,
    /// Free blocks, delayed allocations taken off.
    pub free: u64,
    /// Of these, free to users without privilege.
    pub avail: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Blocks reserved by delayed allocation.
    pub dirty: u64,
    /// Blocks of metadata that `bsddf` takes off.
    pub overhead: u64,
}

/// One line of `mb_groups`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupInfo {
    /// Blocks that can be handed out.
    pub free: u32,
    /// Runs they form.
    pub fragments: u32,
    /// The first of them.
    pub first: u32,
    /// Free chunks of each order.
    pub orders: Vec<u32>,
}

impl Allocator {
    /// The numbers for statfs.
    pub fn statfs(&self) -> FsCounts {
        let c = &self.counters;
        let ratio = self.geo.cluster_bits;
        let overhead = self.overhead + self.groups.extra_zone.read().blocks();
        let total = self.geo.blocks_count;
        let free = c.free().saturating_sub(c.dirty()) << ratio;
        let kept = c.root_reserve().saturating_add(c.pool()) << ratio;
        FsCounts {
            blocks: match self.tunables.minixdf() {
                true => total,
                false => total.saturating_sub(overhead),
            },
            free,
            avail: free.saturating_sub(kept),
            files: self.geo.inodes_count.into(),
            ffree: self.inodes.free.load(Relaxed).max(0) as u64,
            dirty: c.dirty() << ratio,
            overhead,
        }
    }

    /// Writes the free counts to the superblock, as unmount does. One credit.
    ///
    /// # Errors
    /// Of the handle.
    pub fn store_totals(&self, h: &mut Handle, sb: &SuperBuf) -> Result<()> {
        let blocks = self.counters.free() << self.geo.cluster_bits;
        let inodes = self.inodes.free.load(Relaxed).clamp(0, u32::MAX.into()) as u32;
        h.modify(&sb.buf, &Seal::Superblock, |b| {
            let slot = sb.slice_mut(b);
            let bytes: &[u8; 1024] = (&*slot)
                .try_into()
                .map_err(|_| Corrupt::new("superblock does not fit its block"))?;
            let mut parsed = Superblock::parse(bytes)?;
            parsed.set_free(blocks, inodes);
            slot.copy_from_slice(&parsed.encode());
            Ok(())
        })?
    }

    /// What the buddy of a group looks like; builds it if need be. `None` if the group is out of use.
    ///
    /// # Errors
    /// `Corrupt` if there is no such group.
    pub fn group_info(&self, g: Group) -> Result<Option<GroupInfo>> {
        let _told = DeliverAtEnd(&self.report);
        let Some(e) = self.groups.enter(g, true)? else { return Ok(None) };
        Ok(e.state.buddy.as_ref().map(|b| GroupInfo {
            free: b.free(),
            fragments: b.fragments(),
            first: b.next_free(0).map_or(b.size(), |x| x.start),
            orders: b.counters().to_vec(),
        }))
    }

    /// `/proc/fs/ext4/*/mb_groups` for the groups `from..to`.
    ///
    /// # Errors
    /// `Io`.
    pub fn mb_groups(&self, from: u32, to: u32) -> Result<String> {
        let mut s = String::new();
        let orders = (self.groups.max_order as usize + 1).min(MAX_ORDERS);
        if from == 0 {
            s.push_str("#group: free  frags first [");
            for k in 0..orders {
                let _ = write!(s, " 2^{k:<4}");
            }
            s.push_str("]\n");
        }
        for g in from..to.min(self.groups.count()) {
            let Some(i) = self.group_info(Group(g))? else {
                let _ = writeln!(s, "#{g:<5}: excluded (corrupt)");
                continue;
            };
            let _ = write!(s, "#{g:<5}: {:<5} {:<5} {:<5} [", i.free, i.fragments, i.first);
            for n in &i.orders {
                let _ = write!(s, " {n:<6}");
            }
            s.push_str("]\n");
        }
        Ok(s)
    }

    /// `mb_stats`.
    pub fn mb_stats(&self) -> String {
        let mut s = String::from("mballoc:\n");
        if !self.tunables.mb_stats() {
            s.push_str("\tmb stats collection turned off.\n");
            return s;
        }
        for (name, n) in self.stats().snapshot() {
            let _ = writeln!(s, "\t{name}: {n}");
        }
        s
    }

    /// Block groups.
    pub fn groups_count(&self) -> u32 {
        self.groups.count()
    }

    /// Blocks that preallocations hold, and that wait for a commit: free, but not now.
    pub fn withheld_blocks(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for g in (0..self.groups.count()).map(Group) {
            if let Ok(cell) = self.groups.cell(g) {
                let st = cell.state.lock();
                sums.0 += u64::from(st.held_blocks);
                sums.1 += u64::from(st.pending_blocks);
            }
        }
        sums
    }

    /// Whether every block of a run is marked used on disk.
    ///
    /// # Errors
    /// `Corrupt` if the run is outside the file system; `Io`.
    pub fn is_used(&self, run: Run) -> Result<bool> {
        let outside = || Corrupt::new("blocks outside the file system").block(run.start);
        if !self.geo.is_valid_block(run.start, run.len.into()) {
            return Err(outside().into());
        }
        for i in 0..run.len {
            let (g, bit) = self.geo.group_of_block(run.start.plus(i.into())).ok_or_else(outside)?;
            if !self.groups.bit_is_used(g, bit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
