//! From dirty pages to blocks on the device: delayed allocation, the flusher,
//! throttling of writers, completion.
//!
//! [`write_out`] is the one way buffered data reaches the device. It works on one inode
//! at a time under [`Inode::wb`] (rank 4), in ascending order, one run of
//! contiguous dirty pages after another: map, write, complete (`run`). Reads and
//! writes go on meanwhile; pages in flight do not change.
//!
//! Invariants: a block is *written* in the map only when its bytes are on the
//! device (nolock) or when the transaction that says so waits for them
//! (ordered); `i_disksize` passes neither a dirty page nor one in flight.

mod flusher;
mod list;
pub mod policy;
mod run;
pub mod stats;
mod submit;

pub use list::Writeback;

use crate::{
    error::Result,
    inode::{Inode, Volume},
    options::PolicyName,
    trace,
    types::LBlock,
};
use stats::PassStats;
use std::sync::Arc;

/// Which pages of an inode a write-out takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// First block.
    pub from: LBlock,
    /// End, exclusive; `u64::MAX` for all.
    pub end: u64,
    /// At most this many pages.
    pub budget: u64,
    /// The policy that set the budget; none if somebody waits for the pass.
    pub policy: Option<PolicyName>,
}

impl Scope {
    /// All that is dirty now.
    pub const ALL: Scope = Scope { from: LBlock(0), end: u64::MAX, budget: u64::MAX, policy: None };

    /// The blocks `from..end`.
    pub fn range(from: LBlock, end: u64) -> Scope {
        Scope { from, end, ..Scope::ALL }
    }
}

/// Writes out what is dirty in `scope` as of now and waits until it is on the device and
/// in the map. Pages dirtied later are left alone, so that a busy writer cannot
/// hold the caller for ever. Returns how many pages were written.
///
/// The caller holds no lock of rank 4 or above.
pub fn write_out(vol: &Volume, wb: &Writeback, inode: &Arc<Inode>, scope: Scope) -> Result<u64> {
    if inode.pages.lock().is_empty() {
        return Ok(0);
    }
    let _one = inode.wb.lock();
    write_out_locked(vol, wb, inode, scope)
}

/// As [`write_out`], for a caller that holds [`Inode::wb`].
pub fn write_out_locked(
    vol: &Volume,
    wb: &Writeback,
    inode: &Arc<Inode>,
    scope: Scope,
) -> Result<u64> {
    let mut at = start_of(vol, inode, scope.from);
    pass(vol, wb, inode, scope, &mut at)
}

/// Writes out from `at` on, which follows; [`Inode::wb`] is held.
fn pass(
    vol: &Volume,
    wb: &Writeback,
    inode: &Arc<Inode>,
    scope: Scope,
    at: &mut LBlock,
) -> Result<u64> {
    let stats = wb.stats.of(scope.policy);
    PassStats::add(&stats.passes, 1);
    trace::event!(DaWritepages, inode.ino,
        nr_to_write: i64::try_from(scope.budget).unwrap_or(i64::MAX),
        range_start: scope.from.0,
        range_end: i64::try_from(scope.end).unwrap_or(i64::MAX),
        sync_mode: scope.policy.is_none(),
        range_cyclic: scope.policy.is_some(),
        writeback_index: inode.wb_index.load(std::sync::atomic::Ordering::Relaxed),
        policy: scope.policy.map_or("none_asked", PolicyName::as_str),
    );
    let upto = inode.pages.lock().now();
    let mut done = 0;
    let mut first_error = Ok(());
    while done < scope.budget {
        let max = scope.budget.saturating_sub(done).min(run::MAX_PAGES as u64) as usize;
        let Some(next) = next_of(vol, inode, *at, upto) else { break };
        if u64::from(next.0) >= scope.end {
            break;
        }
        match run::write_run(vol, wb, stats, inode, next, scope.end, max) {
            Ok(run) if run.pages == 0 => break,
            Ok(run) => {
                done += u64::from(run.pages);
                *at = run.next;
            }
            // The pages are gone from the cache: just on.
            Err(e) => {
                first_error = first_error.and(Err(e));
                *at = next;
            }
        }
    }
    PassStats::add(&stats.written, done);
    wb.settled(inode, vol.geo.block_size);
    trace::event!(DaWritepagesResult, inode.ino, ret: trace::ret(&first_error), pages_written: done,
        writeback_index: at.0);
    first_error.map(|()| done)
}

/// The page to go on with: the next that was dirty when the pass began, but for data beyond
/// `i_disksize` below it, which came since: the size is about to pass it.
fn next_of(vol: &Volume, inode: &Inode, at: LBlock, upto: u64) -> Option<LBlock> {
    let beyond = start_of(vol, inode, LBlock(u32::MAX));
    let pages = inode.pages.lock();
    let next = pages.next_dirty(at, upto)?;
    Some(pages.lowest_dirty(beyond).map_or(next, |low| low.min(next)))
}

/// Data beyond `i_disksize` goes out lowest first, whatever was asked for: the
/// size can only follow data that is complete below it.
fn start_of(vol: &Volume, inode: &Inode, from: LBlock) -> LBlock {
    let disk_end = vol.geo.block_size.index(inode.attrs().rec.size);
    LBlock(from.0.min(u32::try_from(disk_end).unwrap_or(u32::MAX)))
}
