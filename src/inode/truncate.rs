//! Taking blocks away from an inode, in as many transactions as it takes, with
//! the inode on the orphan list in between.

use super::{Inode, Volume, orphan::ORPHAN_CREDITS};
use crate::{error::Result, journal::Handle, map::Progress, types::LBlock};
use std::sync::Arc;

/// Credits with which a handle for [`remove_blocks`] is started and restarted.
pub fn remove_credits(inode: &Inode) -> u32 {
    inode.map().map_or(0, |m| m.credits_for_remove()) + ORPHAN_CREDITS + 2
}

/// Turns `len` blocks from `from` unwritten: they read as zeros. `credits` as for an allocation.
pub fn to_unwritten(
    vol: &Volume,
    h: &mut Handle,
    inode: &Inode,
    from: LBlock,
    len: u32,
    credits: u32,
) -> Result<()> {
    loop {
        let p = inode.map_mut()?.to_unwritten(&vol.map_ctx(), h, from, len)?;
        inode.store(vol, h)?;
        match p {
            Progress::Done => return Ok(()),
            Progress::More => h.restart(credits)?,
        }
    }
}

/// Frees the blocks `from..end`, restarting the handle as needed. The caller has
/// put the inode where a crash in between is repaired (the orphan list, or a
/// punched range whose rest simply stays), holds no lock of rank 6 or above, and
/// nothing in flight targets the range.
pub fn remove_blocks(
    vol: &Volume,
    h: &mut Handle,
    inode: &Arc<Inode>,
    from: LBlock,
    end: u64,
) -> Result<()> {
    loop {
        let progress = inode.map_mut()?.remove(&vol.map_ctx(), h, from, end)?;
        inode.store(vol, h)?;
        match progress {
            Progress::Done => return Ok(()),
            Progress::More => h.restart(remove_credits(inode))?,
        }
    }
}
