//! `none`: what the kernel up to 2.6.31 did, before anybody raised the budget. A pass takes
//! `nr_to_write`, 1024 pages, however much the file has waiting.

use super::{Ask, Dirty, Policy};

/// See the module.
pub struct None;

impl Policy for None {
    fn budget(&self, ask: &Ask, _dirty: &dyn Dirty) -> u64 {
        ask.nr_to_write
    }
}
