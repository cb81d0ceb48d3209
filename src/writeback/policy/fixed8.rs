//! `fixed8`: the answer to that regression (linux-ext4, 30 August 2010): eight times `nr_to_write`
//! always, and no counting. The same dd on the same RAID5: 677 MB/s.

use super::{Ask, Dirty, Policy};

/// See the module.
pub struct Fixed8;

impl Policy for Fixed8 {
    fn budget(&self, ask: &Ask, _dirty: &dyn Dirty) -> u64 {
        ask.raised(ask.eightfold())
    }
}
