//! `extent`: ours. What the mail of August 2010 was after is one large allocation: the whole contiguous
//! dirty range from the index on goes out in one pass, up to the cap, whatever state its blocks are in.

use super::{Ask, Dirty, Policy, UNLIMITED};

/// See the module.
pub struct Extent;

impl Policy for Extent {
    fn budget(&self, ask: &Ask, dirty: &dyn Dirty) -> u64 {
        if ask.nr_to_write == UNLIMITED {
            return UNLIMITED;
        }
        ask.raised(dirty.contiguous(ask.cap))
    }
}
