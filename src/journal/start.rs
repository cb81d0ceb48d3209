//! Starting and ending handles: credits, and the log space behind them.

use super::handle::Handle;
use super::state::{Phase, Running, State};
use super::transaction::Transaction;
use super::{Journal, nesting};
use crate::error::{Error, Result};
use crate::trace;
use crate::types::Tid;
use std::sync::Arc;

/// Credits put aside for a handle that starts later, from a completion: it joins even while others
/// wait for the transaction to close. Dropping it gives the credits back.
#[must_use = "dropping it gives the credits back"]
pub struct ReservedHandle {
    journal: Arc<Journal>,
    credits: u32,
}

impl Drop for ReservedHandle {
    fn drop(&mut self) {
        if self.credits > 0 {
            let mut st = self.journal.state.lock();
            st.reserved = st.reserved.saturating_sub(u64::from(self.credits));
            self.journal.startable.notify_all();
        }
    }
}

/// Why a handle cannot start now.
enum Full {
    /// The transaction is as large as it may be: the next one will take it.
    Transaction,
    /// The log has no room: a checkpoint must make some.
    Log,
    /// Too much is reserved: until a reserved handle starts.
    Reserved,
}

/// Log blocks never promised: for handles that use more than they asked for.
const SLACK: u64 = 32;

impl Journal {
    /// Begins an operation that changes at most `credits` metadata blocks. May wait for the running
    /// transaction to close and for log space (rank 5): the caller holds nothing of rank 6 or above,
    /// and no other handle.
    ///
    /// # Errors
    /// `ReadOnly` after an abort, `Shutdown` after a shutdown, `NoSpace` if the log could never hold
    /// that many blocks.
    pub fn start(self: &Arc<Self>, op: &'static str, credits: u32) -> Result<Handle> {
        let txn = self.join_running(credits, 0)?;
        Ok(self.handle(txn, op, credits))
    }

    /// [`Journal::start`] together with [`Journal::reserve`].
    ///
    /// # Errors
    /// As [`Journal::start`].
    pub fn start_with_reserve(
        self: &Arc<Self>,
        op: &'static str,
        credits: u32,
        reserve: u32,
    ) -> Result<(Handle, ReservedHandle)> {
        let txn = self.join_running(credits, reserve)?;
        let rsv = ReservedHandle { journal: Arc::clone(self), credits: reserve };
        Ok((self.handle(txn, op, credits), rsv))
    }

    /// Puts credits aside for a handle to be started later by [`Journal::start_reserved`]. May wait,
    /// as [`Journal::start`]: never with a handle open.
    ///
    /// # Errors
    /// As [`Journal::start`].
    pub fn reserve(self: &Arc<Self>, credits: u32) -> Result<ReservedHandle> {
        self.wait_for_room(0, credits, |st| st.reserved += u64::from(credits))?;
        Ok(ReservedHandle { journal: Arc::clone(self), credits })
    }

    /// As [`Journal::reserve`], but refused instead of waiting.
    pub(super) fn try_reserve(self: &Arc<Self>, credits: u32) -> Option<ReservedHandle> {
        let mut st = self.state.lock();
        if self.is_aborted() || self.room(&st, 0, credits).is_err() {
            return None;
        }
        st.reserved += u64::from(credits);
        Some(ReservedHandle { journal: Arc::clone(self), credits })
    }

    /// Starts the handle that credits were put aside for. Waits at most for the buffers of a closing
    /// transaction to be captured, never for I/O.
    ///
    /// # Errors
    /// `ReadOnly` after an abort, `Shutdown` after a shutdown.
    pub fn start_reserved(
        self: &Arc<Self>,
        mut rsv: ReservedHandle,
        op: &'static str,
    ) -> Result<Handle> {
        let credits = std::mem::take(&mut rsv.credits);
        let mut st = self.state.lock();
        while st.running.as_ref().is_some_and(|r| r.phase == Phase::Switching) {
            self.startable.wait(&mut st);
        }
        st.reserved = st.reserved.saturating_sub(u64::from(credits));
        self.check_start()?;
        let txn = self.enter(&mut st, credits);
        drop(st);
        // Others may wait because so much is reserved.
        self.startable.notify_all();
        Ok(self.handle(txn, op, credits))
    }

    fn handle(self: &Arc<Self>, txn: Arc<Transaction>, op: &'static str, credits: u32) -> Handle {
        trace::event!(Jbd2HandleStart, -, tid: txn.tid.0, type: op, requested_blocks: credits);
        let journal = Arc::clone(self);
        let open = Some(nesting::Open::new());
        Handle { journal, txn, op, credits, overdraft: 0, sync: false, live: true, open }
    }

    /// Joins the running transaction with `credits`, and puts `reserve` aside.
    pub(super) fn join_running(&self, credits: u32, reserve: u32) -> Result<Arc<Transaction>> {
        self.wait_for_room(credits, reserve, |st| {
            st.reserved += u64::from(reserve);
            self.enter(st, credits)
        })
    }

    /// Waits until the running transaction and the log have room, then runs `f` under the state lock.
    fn wait_for_room<R>(
        &self,
        credits: u32,
        reserve: u32,
        f: impl FnOnce(&mut State) -> R,
    ) -> Result<R> {
        nesting::check("starting a handle");
        let total = u64::from(credits) + u64::from(reserve);
        if self.log_need(total) > self.largest_need() {
            log::error!("an operation wants {total} journal credits, more than the log can hold");
            return Err(Error::NoSpace);
        }
        let mut st = self.state.lock();
        loop {
            self.check_start()?;
            let closing = st.running.as_ref().is_some_and(|r| r.phase != Phase::Running);
            if !closing {
                match self.room(&st, credits, reserve) {
                    Ok(()) => return Ok(f(&mut st)),
                    Err(Full::Transaction) => {
                        if let Some(tid) = st.running.as_ref().map(|r| r.txn.tid) {
                            self.want(&mut st, tid);
                        }
                    }
                    Err(Full::Log) => {
                        st.space_waiters += 1;
                        self.checkpoint_kick.poke();
                        self.startable.wait(&mut st);
                        st.space_waiters -= 1;
                        continue;
                    }
                    Err(Full::Reserved) => {}
                }
            }
            self.startable.wait(&mut st);
        }
    }

    fn room(&self, st: &State, credits: u32, reserve: u32) -> std::result::Result<(), Full> {
        let (used, handles) = st.running.as_ref().map_or((0, 0), |r| (r.credits, r.handles));
        let credits = used + u64::from(credits);
        let reserved = st.reserved + u64::from(reserve);
        if reserve > 0 && st.reserved > 0 && reserved > self.max_credits / 2 {
            return Err(Full::Reserved);
        }
        // One operation larger than that is let in alone.
        if credits + reserved > self.max_credits {
            if used > 0 || handles > 0 {
                return Err(Full::Transaction);
            }
            if st.reserved > 0 {
                return Err(Full::Reserved);
            }
        }
        let need = self.log_need(credits) + self.log_need(reserved) + st.committing_need + SLACK;
        if need > st.log_free {
            return Err(Full::Log);
        }
        Ok(())
    }

    /// Counts a handle in, in a new transaction if none runs.
    fn enter(&self, st: &mut State, credits: u32) -> Arc<Transaction> {
        let State { running, last, .. } = st;
        let r = running.get_or_insert_with(|| {
            *last = last.next();
            let txn = Arc::new(Transaction::new(*last));
            Running { txn, phase: Phase::Running, handles: 0, credits: 0 }
        });
        r.handles += 1;
        r.credits += u64::from(credits);
        Arc::clone(&r.txn)
    }

    /// Adds to the credits of an open handle if there is room and the transaction is not closing.
    pub(super) fn extend(&self, more: u32) -> bool {
        let mut st = self.state.lock();
        if self.room(&st, more, 0).is_err() {
            return false;
        }
        match &mut st.running {
            Some(r) if r.phase == Phase::Running => {
                r.credits += u64::from(more);
                true
            }
            _ => false,
        }
    }

    /// Counts a handle out, with its unused credits and what it used beyond them.
    pub(super) fn leave(&self, txn: &Arc<Transaction>, unused: u32, over: u32) {
        let (unused, over) = (u64::from(unused), u64::from(over));
        let mut st = self.state.lock();
        if let Some(r) = &mut st.running {
            debug_assert!(Arc::ptr_eq(&r.txn, txn));
            r.credits = (r.credits + over).saturating_sub(unused);
            r.handles = r.handles.saturating_sub(1);
            if r.handles == 0 && r.phase == Phase::Locked {
                self.idle.notify_one();
            }
        }
    }

    /// The running transaction, or else the newest that ran: waiting for it waits for every change
    /// made so far.
    pub fn running_tid(&self) -> Tid {
        self.state.lock().last
    }

    /// The newest transaction that is durable.
    pub fn committed_tid(&self) -> Tid {
        self.state.lock().committed
    }
}
