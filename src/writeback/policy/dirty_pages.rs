//! `dirty_pages`: 2.6.32 to 2.6.35, bisected in "[RFC PATCH] ext4: fix 50% disk write performance
//! regression" (linux-ext4, 30 August 2010): dd to a RAID5 of 8 disks fell from 691 to 342 MB/s.
//!
//! A background pass counts the contiguous pages that are still to be allocated, one by one. Close
//! behind a writer it finds few, asks for few, and pays for the count each time. Only a pass over the
//! whole range that is not cyclic takes eight times `nr_to_write` uncounted. (The count stops at the cap,
//! and an unlimited pass is left alone: both were faults put right in 2010.)

use super::{Ask, Dirty, Policy, UNLIMITED};

/// See the module.
pub struct DirtyPages;

impl Policy for DirtyPages {
    fn budget(&self, ask: &Ask, dirty: &dyn Dirty) -> u64 {
        if ask.nr_to_write == UNLIMITED {
            return UNLIMITED;
        }
        if ask.whole && !ask.cyclic {
            return ask.raised(ask.eightfold());
        }
        ask.raised(dirty.count_unmapped(ask.cap))
    }
}
