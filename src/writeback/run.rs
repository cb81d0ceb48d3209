//! One run of contiguous dirty pages on its way to the device. This file is the
//! whole difference between the two ways of entering new blocks:
//!
//! - *nolock*: as **unwritten**; the data is written; then the range turns written and
//!   `i_disksize` moves, in a second handle.
//! - *ordered* (`lock` and `shared` modes, indirect maps, `data=ordered` without
//!   `dioread_nolock`): as **written** at once, `i_disksize` with it; the
//!   transaction carries a token and does not commit before the data is down.

use super::{
    Writeback,
    stats::PassStats,
    submit::{Pieces, write_pieces},
};
use crate::device::seeded::{self, Fault};
use crate::{
    alloc::{Kind, Reservation},
    cache::pages::Taken,
    error::{Error, Result},
    inode::{Inode, Volume, lock_mode, truncate},
    journal::{DataToken, Handle, ReservedHandle},
    map::{AllocHow, Enter, Mapping, Progress, State},
    trace,
    types::{Block, LBlock},
};
use std::sync::{Arc, atomic::Ordering};

/// The most pages taken at once. Bounds the memory pinned by one run.
pub const MAX_PAGES: usize = 8192;

/// What became of a run.
pub struct Ran {
    /// Pages written.
    pub pages: u32,
    /// The block after the last.
    pub next: LBlock,
}

/// How blocks of a run, from its first on or from where the part before ended, were entered into
/// the map.
struct Mapped {
    pieces: Pieces,
    /// The block after the last of them.
    end: u64,
    /// Something was entered unwritten: to be converted.
    convert: bool,
    /// The transaction that must not commit before the data is down.
    token: Option<DataToken>,
    /// Credits for [`hide`], which must not wait for a commit that waits for the token.
    repair: Option<ReservedHandle>,
}

/// Takes a run at or after `from`, maps it, writes it, completes it. The caller holds [`Inode::wb`].
pub fn write_run(
    vol: &Volume,
    wb: &Writeback,
    stats: &PassStats,
    inode: &Arc<Inode>,
    from: LBlock,
    end: u64,
    max: usize,
) -> Result<Ran> {
    let size = inode.size();
    let taken = Taken { size, ..inode.pages.lock().take(from, end, max) };
    if taken.is_empty() {
        return Ok(Ran { pages: 0, next: from });
    }
    PassStats::add(&stats.runs, 1);
    trace::event!(DaWritePages, inode.ino, first_page: taken.first.0, nr_to_write: taken.len());
    let done = write_taken(vol, stats, inode, &taken);
    if let Err(e) = &done {
        PassStats::add(&stats.errors, 1);
        failed(vol, inode, &taken, e);
    }
    let dropped = inode.pages.lock().written(taken.first, taken.len());
    inode.pages_idle.notify_all();
    wb.cleaned(u64::from(dropped) * vol.geo.block_size.bytes64());
    done?;
    Ok(Ran { pages: taken.len(), next: LBlock(u32::try_from(taken.end()).unwrap_or(u32::MAX)) })
}

fn write_taken(vol: &Volume, stats: &PassStats, inode: &Arc<Inode>, taken: &Taken) -> Result<()> {
    if vol.journals_data(inode) {
        return journal_run(vol, inode, taken);
    }
    if let Some(pieces) = mapped_already(vol, inode, taken)? {
        give_back(inode, taken.reserved);
        write_pieces(vol, stats, taken, &pieces)?;
        return complete(
            vol,
            inode,
            taken,
            &Mapped { pieces, end: taken.end(), convert: false, token: None, repair: None },
        );
    }
    let mut reservation = inode.take_to_write(taken.reserved);
    let done = write_parts(vol, stats, inode, taken, &mut reservation);
    if let Some(r) = reservation {
        inode.return_reservation(r);
    }
    done
}

/// Maps, writes and completes the run, part by part.
fn write_parts(
    vol: &Volume,
    stats: &PassStats,
    inode: &Arc<Inode>,
    taken: &Taken,
    reservation: &mut Option<Reservation>,
) -> Result<()> {
    let mut at = u64::from(taken.first.0);
    while at < taken.end() {
        let mut mapped = with_space(vol, || map_part(vol, stats, inode, taken, at, reservation))?;
        // With the commit at the worst moment.
        if seeded::on(Fault::ConvertBeforeData) && mapped.convert {
            complete(vol, inode, taken, &mapped)?;
            vol.journal.commit_all()?;
        }
        if seeded::on(Fault::OrderedNotWaited) && mapped.token.take().is_some() {
            vol.journal.commit_all()?;
        }
        let written = write_pieces(vol, stats, taken, &mapped.pieces);
        if let Some(t) = mapped.token.take() {
            match &written {
                Ok(()) => t.done(),
                Err(e) => hide(vol, inode, at..mapped.end, mapped.repair.take(), t, e)?,
            }
        }
        written?;
        complete(vol, inode, taken, &mapped)?;
        at = mapped.end;
    }
    Ok(())
}

/// Blocks that were promised may be free only after a commit, or preallocated for another file.
fn with_space<T>(vol: &Volume, mut f: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..3 {
        match f() {
            Err(Error::NoSpace) if vol.alloc.reclaim(&vol.journal)? => {}
            r => return r,
        }
    }
    f()
}

/// The pieces of the run if all of it is in written blocks: nothing to allocate or convert.
fn mapped_already(vol: &Volume, inode: &Inode, taken: &Taken) -> Result<Option<Pieces>> {
    let ctx = vol.map_ctx();
    let map = inode.map()?;
    let mut pieces = Pieces::new();
    let mut at = u64::from(taken.first.0);
    while at < taken.end() {
        let m = map.lookup(&ctx, LBlock(at as u32), (taken.end() - at) as u32)?;
        if m.state != State::Written {
            return Ok(None);
        }
        at += u64::from(m.len);
        pieces.push(m);
    }
    Ok(Some(pieces))
}

/// Enters blocks of the run from `from` on into the map, as many as one handle takes. What is entered
/// is written before more is mapped: an ordered commit waits for it, so that it must not wait for
/// the journal.
fn map_part(
    vol: &Volume,
    stats: &PassStats,
    inode: &Arc<Inode>,
    taken: &Taken,
    from: u64,
    reservation: &mut Option<Reservation>,
) -> Result<Mapped> {
    let nolock = lock_mode::effective(vol, inode).enters_unwritten();
    let credits = inode.map()?.credits_for_alloc() + 1;
    let (mut h, repair) = if nolock {
        (vol.journal.start("writepages", credits + 1)?, None)
    } else {
        let (h, r) = vol.journal.start_with_reserve("writepages", credits + 1, credits)?;
        (h, Some(r))
    };
    let mut out = Mapped { pieces: Pieces::new(), end: from, convert: false, token: None, repair };
    while out.end < taken.end() && h.ensure(credits)? {
        let left = (taken.end() - out.end) as u32;
        let lblk = LBlock(out.end as u32);
        match map_piece(vol, inode, &mut h, lblk, left, nolock, reservation) {
            Ok((m, how)) => {
                out.convert |= how.convert;
                if how.fresh {
                    PassStats::add(&stats.allocations, 1);
                    PassStats::add(&stats.extents, u64::from(!how.continues));
                }
                trace::event!(DaWritePagesExtent, inode.ino, lblk: m.lblk.0, len: m.len,
                    pblk: m.pblk.0, unwritten: m.state == State::Unwritten);
                out.end += u64::from(m.len);
                out.pieces.push(m);
            }
            // Met again by the next part, with nothing mapped whose data is still to be written.
            Err(_) if !out.pieces.is_empty() => break,
            Err(e) => return Err(e),
        }
    }
    if !nolock && out.pieces.iter().any(|m| m.state == State::Written) {
        move_disk_size(vol, inode, taken, out.end);
        out.token = Some(h.attach());
    }
    inode.store(vol, &mut h)?;
    h.stop()?;
    Ok(out)
}

/// How a piece came to be mapped.
struct Entered {
    /// It is to be converted once it is written.
    convert: bool,
    /// It was a hole.
    fresh: bool,
    /// On the device it follows the block before it.
    continues: bool,
}

/// Maps one piece.
fn map_piece(
    vol: &Volume,
    inode: &Inode,
    h: &mut Handle,
    lblk: LBlock,
    left: u32,
    nolock: bool,
    reservation: &mut Option<Reservation>,
) -> Result<(Mapping, Entered)> {
    let ctx = vol.map_ctx();
    let mut map = inode.map_mut()?;
    let m = map.lookup(&ctx, lblk, left)?;
    match m.state {
        State::Written => Ok((m, Entered { convert: false, fresh: false, continues: false })),
        State::Unwritten => {
            // The split happens now, so that the conversion needs no block.
            let how = how_to(inode, Enter::InFlight, reservation.as_mut());
            let m = map.split_at(&ctx, h, lblk, m.len, how)?;
            Ok((m, Entered { convert: true, fresh: false, continues: false }))
        }
        State::Hole => {
            let enter = if nolock { Enter::InFlight } else { Enter::Written };
            let how = how_to(inode, enter, reservation.as_mut());
            let m = map.allocate(&ctx, h, lblk, m.len, how)?;
            let before = match lblk.0.checked_sub(1) {
                Some(b) => Some(map.lookup(&ctx, LBlock(b), 1)?),
                None => None,
            };
            let continues =
                before.is_some_and(|b| b.state != State::Hole && b.pblk.plus(1) == m.pblk);
            Ok((m, Entered { convert: nolock, fresh: true, continues }))
        }
    }
}

/// How write-out allocates: it may use the reserve, for the writer was promised the blocks. A file
/// that nobody has open is taken to be complete: nothing is held for its next blocks.
fn how_to<'r>(
    inode: &Inode,
    enter: Enter,
    reservation: Option<&'r mut Reservation>,
) -> AllocHow<'r> {
    AllocHow {
        reservation,
        size_hint: inode.size(),
        root_ok: true,
        use_pool: true,
        delalloc: true,
        prealloc: inode.opens.load(Ordering::Acquire) > 0,
        ..AllocHow::new(enter, Kind::Data)
    }
}

fn give_back(inode: &Inode, reserved: u32) {
    if reserved > 0 {
        drop(inode.take_reservation(reserved));
    }
}

/// The data is on the device: the range turns written, the size follows.
fn complete(vol: &Volume, inode: &Arc<Inode>, taken: &Taken, mapped: &Mapped) -> Result<()> {
    if !mapped.convert && !size_moves(vol, inode, taken, mapped.end) {
        return Ok(());
    }
    // A range of many pieces needs more than one transaction takes: after each handle the size has
    // followed what is converted, and the rest is unwritten.
    let credits = inode.map()?.credits_for_convert() + 1;
    let mut h = vol.journal.start("end_io", credits)?;
    let ctx = vol.map_ctx();
    for m in mapped.pieces.iter().filter(|m| mapped.convert && m.state == State::Unwritten) {
        if !h.ensure(credits)? {
            move_disk_size(vol, inode, taken, u64::from(m.lblk.0));
            inode.store(vol, &mut h)?;
            h.restart(credits)?;
        }
        inode.map_mut()?.convert(&ctx, &mut h, m.lblk, m.len)?;
    }
    if seeded::on(Fault::SizeInAnother) {
        inode.store(vol, &mut h)?;
        h.stop()?;
        vol.journal.commit_all()?;
        h = vol.journal.start("end_io", credits)?;
    }
    move_disk_size(vol, inode, taken, mapped.end);
    inode.store(vol, &mut h)?;
    h.stop()
}

/// How far `i_disksize` may go now that the run is written up to block `end`: to the size, or to the
/// first page from `end` on that is still to be written. Pages below the run became dirty after it
/// was taken (see `next_of`), so that the size may pass them; bytes that came since into pages of the
/// run it may not. What is mapped up to `end` it covers in any case, if only by one byte.
fn disk_size_goal(vol: &Volume, inode: &Inode, taken: &Taken, end: u64) -> u64 {
    let bs = vol.geo.block_size;
    let (size, disk) = {
        let a = inode.attrs();
        (a.size, a.rec.size)
    };
    if disk >= size {
        return disk;
    }
    let block = |n: u64| LBlock(u32::try_from(n).unwrap_or(u32::MAX));
    let captured = taken.size.max((end.saturating_sub(1) << bs.log2()) + 1);
    let pages = inode.pages.lock();
    let above = pages.lowest_unwritten(block(bs.index(disk).max(end)));
    let again = pages.lowest_dirty(block(bs.index(taken.size))).filter(|l| u64::from(l.0) < end);
    drop(pages);
    let goal = above.map_or(size, |l| size.min(u64::from(l.0) << bs.log2()));
    if again.is_some() { goal.min(captured) } else { goal }.max(disk)
}

fn size_moves(vol: &Volume, inode: &Inode, taken: &Taken, end: u64) -> bool {
    disk_size_goal(vol, inode, taken, end) > inode.attrs().rec.size
}

/// Moves `i_disksize` in memory, inside the handle that stores the inode.
fn move_disk_size(vol: &Volume, inode: &Inode, taken: &Taken, end: u64) {
    let goal = disk_size_goal(vol, inode, taken, end);
    let mut a = inode.attrs_mut();
    a.rec.size = a.rec.size.max(goal.min(a.size));
}

/// The write of blocks entered as written failed: they go back to unwritten, so that
/// nobody reads what was there before. The token is held for as long as the credits put aside last:
/// whoever waits for a transaction may wait for a commit that waits for the token.
fn hide(
    vol: &Volume,
    inode: &Arc<Inode>,
    range: std::ops::Range<u64>,
    repair: Option<ReservedHandle>,
    token: DataToken,
    why: &Error,
) -> Result<()> {
    let extents = inode.map()?.is_extents();
    let Some(repair) = repair.filter(|_| extents) else {
        token.fail(why);
        return Ok(());
    };
    let (from, len) = (LBlock(range.start as u32), (range.end - range.start) as u32);
    let mut h = vol.journal.start_reserved(repair, "end_io")?;
    let done = inode.map_mut()?.to_unwritten(&vol.map_ctx(), &mut h, from, len)?;
    inode.store(vol, &mut h)?;
    token.fail(why);
    if let Progress::More = done {
        let credits = inode.map()?.credits_for_alloc() + 1;
        h.restart(credits)?;
        truncate::to_unwritten(vol, &mut h, inode, from, len, credits)?;
    }
    h.stop()
}

/// `data=journal`: blocks, map, size and data in the same transaction.
fn journal_run(vol: &Volume, inode: &Arc<Inode>, taken: &Taken) -> Result<()> {
    let mut reservation = inode.take_to_write(taken.reserved);
    let mut at = u64::from(taken.first.0);
    let done = with_space(vol, || journal_parts(vol, inode, taken, &mut at, &mut reservation));
    if let Some(r) = reservation {
        inode.return_reservation(r);
    }
    done
}

/// From `at` on, which moves with what is done.
fn journal_parts(
    vol: &Volume,
    inode: &Arc<Inode>,
    taken: &Taken,
    at: &mut u64,
    reservation: &mut Option<Reservation>,
) -> Result<()> {
    let credits = inode.map()?.credits_for_alloc() + 64 + 1;
    let mut h: Handle = vol.journal.start("journal_data", credits)?;
    let mut result = Ok(());
    while *at < taken.end() {
        if !h.ensure(credits)? {
            move_disk_size(vol, inode, taken, *at);
            inode.store(vol, &mut h)?;
            h.restart(credits)?;
        }
        match journal_piece(vol, inode, &mut h, taken, *at, reservation.as_mut()) {
            Ok(n) => *at += u64::from(n),
            Err(e) => {
                result = Err(e);
                break;
            }
        }
    }
    // No block is mapped past the size that commits with it, also after an error.
    move_disk_size(vol, inode, taken, *at);
    inode.store(vol, &mut h)?;
    h.stop()?;
    result
}

/// Maps one piece of the run from `at` on and journals its data; how many blocks it took.
fn journal_piece(
    vol: &Volume,
    inode: &Inode,
    h: &mut Handle,
    taken: &Taken,
    at: u64,
    reservation: Option<&mut Reservation>,
) -> Result<u32> {
    let ctx = vol.map_ctx();
    let left = ((taken.end() - at) as u32).min(64);
    let lblk = LBlock(at as u32);
    let mut map = inode.map_mut()?;
    let mut m = map.lookup(&ctx, lblk, left)?;
    match m.state {
        State::Written => {}
        State::Unwritten => {
            let how = how_to(inode, Enter::InFlight, reservation);
            m = map.split_at(&ctx, h, lblk, m.len, how)?;
            map.convert(&ctx, h, lblk, m.len)?;
        }
        State::Hole => {
            let how = how_to(inode, Enter::Written, reservation);
            m = map.allocate(&ctx, h, lblk, m.len, how)?;
        }
    }
    drop(map);
    let first = (at - u64::from(taken.first.0)) as usize;
    for (i, data) in (0u64..).zip(&taken.bufs[first..first + m.len as usize]) {
        h.journal_data(m.pblk.plus(i), data.clone())?;
    }
    Ok(m.len)
}

/// A write-out failed: every open file reports it once, the superblock records it, the log says what
/// and where.
fn failed(vol: &Volume, inode: &Inode, taken: &Taken, e: &Error) {
    inode.wb_errors.fetch_add(1, Ordering::AcqRel);
    log::error!(
        "inode {}: write-out of blocks {}..{} failed: {e}; their data is lost",
        inode.ino,
        taken.first,
        taken.end()
    );
    if let Error::Io { offset, .. } = e {
        let block = Block(vol.geo.block_size.index(*offset));
        vol.note_io_error("writepages", inode.ino, block, e);
    }
}
