//! Committing: closing the running transaction, and making it durable.
//!
//! One thread commits at a time: whoever wants a commit and finds nobody at it (an fsync in its own
//! thread, without a switch to another), or the commit thread. Others wait on their transaction; when
//! the commit ends one of those who wait for the next transaction goes on with that.

use super::abort::Health;
use super::state::{Phase, State};
use super::transaction::{Callback, Captured, Transaction};
use super::{Backend, Journal, nesting};
use crate::device::cause;
use crate::error::{Error, Result};
use crate::trace;
use crate::types::Tid;
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

impl Journal {
    /// Asks for a commit of everything up to `tid`, without waiting.
    pub fn request_commit(&self, tid: Tid) {
        let mut st = self.state.lock();
        self.want(&mut st, tid);
    }

    pub(super) fn want(&self, st: &mut State, tid: Tid) {
        if !tid.after(st.committed) || tid.after(st.last) {
            return;
        }
        if tid.after(st.wanted) {
            st.wanted = tid;
        }
        if !st.committer && st.running.is_some() {
            self.kick.poke();
        }
    }

    /// Waits until `tid` is durable; starts its commit if need be. A transaction that never began is
    /// durable. Not with a handle open.
    ///
    /// # Errors
    /// `Shutdown` if the journal failed before it was.
    pub fn wait_commit(&self, tid: Tid) -> Result<()> {
        nesting::check("waiting for a commit");
        let mut st = self.state.lock();
        while tid.after(st.committed) && !tid.after(st.last) {
            self.check_commit()?;
            if !st.committer {
                st = self.wait_for_company(st);
                st = self.commit_running(st);
                continue;
            }
            if tid.after(st.wanted) {
                st.wanted = tid;
            }
            let of = |t: &Arc<Transaction>| (t.tid == tid).then(|| Arc::clone(t));
            let txn = st.committing.as_ref().and_then(of);
            match txn.or_else(|| st.running.as_ref().and_then(|r| of(&r.txn))) {
                Some(t) => {
                    t.waiters.fetch_add(1, Relaxed);
                    t.ended.wait(&mut st);
                    t.waiters.fetch_sub(1, Relaxed);
                }
                None => self.commit_ended.wait(&mut st),
            }
        }
        Ok(())
    }

    /// [`Journal::wait_commit`], and whatever completed before this call is stable too: what fsync
    /// needs for data that no transaction covers. At most one flush more.
    ///
    /// # Errors
    /// As [`Journal::wait_commit`], and `Io` of the flush.
    pub fn wait_commit_flush(&self, tid: Tid) -> Result<()> {
        let mark = self.flusher.mark();
        self.wait_commit(tid)?;
        self.flush_since(mark)
    }

    /// Flushes the device (unless `barrier=0`); shared with others who ask at the same time.
    ///
    /// # Errors
    /// `Io`; `Shutdown` if the journal failed. A failed flush fails the journal.
    pub fn flush(&self) -> Result<()> {
        self.flush_since(self.flusher.mark())
    }

    fn flush_since(&self, mark: super::flusher::FlushMark) -> Result<()> {
        self.check_commit()?;
        self.flusher.flush_since(mark).inspect_err(|e| self.abort(e))
    }

    /// Commits everything changed so far.
    ///
    /// # Errors
    /// As [`Journal::wait_commit`].
    pub fn commit_all(&self) -> Result<()> {
        let last = {
            let st = self.state.lock();
            st.last
        };
        self.wait_commit(last)?;
        self.check_commit()
    }

    /// Calls `f` once `tid` is durable (at once if it is), or with the error if it never will be. `f`
    /// runs in the committing thread, where [`super::CommitListener::committed`]'s rules hold.
    pub fn on_committed(&self, tid: Tid, f: Callback) {
        let st = self.state.lock();
        if !tid.after(st.committed) || tid.after(st.last) {
            drop(st);
            return f(Ok(()));
        }
        if let Err(e) = self.check_commit() {
            drop(st);
            return f(Err(e));
        }
        for t in st.committing.iter().chain(st.running.as_ref().map(|r| &r.txn)) {
            if t.tid == tid {
                t.contents.lock().callbacks.push(f);
                return;
            }
        }
    }

    /// The commit thread's turn: commits the running transaction if somebody wants it, or it is due.
    pub(super) fn commit_if_due(&self) {
        let st = self.state.lock();
        let due = st.running.as_ref().is_some_and(|r| {
            !r.txn.tid.after(st.wanted) || r.txn.started.elapsed() >= self.commit_interval()
        });
        if due && !st.committer && !self.is_aborted() {
            drop(self.commit_running(st));
        }
    }

    /// If threads shared the last commit, others are about to want this one too: waits for them, with
    /// the transaction open. The caller is the committer from here on.
    fn wait_for_company<'a>(&'a self, mut st: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let age = st.running.as_ref().map(|r| r.txn.started.elapsed());
        let wait = age.filter(|_| st.company).and_then(|age| self.live.batch_wait(age));
        if let Some(t) = wait {
            st.committer = true;
            MutexGuard::unlocked(&mut st, || std::thread::sleep(t));
            st.committer = false;
        }
        st
    }

    /// Commits the running transaction, if any, in this thread. On an error the journal is aborted.
    fn commit_running<'a>(&'a self, mut st: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        debug_assert!(!st.committer);
        let Some(r) = &mut st.running else { return st };
        r.phase = Phase::Locked;
        let txn = Arc::clone(&r.txn);
        trace::event!(Jbd2StartCommit, -, transaction: txn.tid.0);
        trace::event!(Jbd2CommitLocking, -, transaction: txn.tid.0);
        st.committer = true;
        while st.running.as_ref().is_some_and(|r| r.handles > 0) {
            self.idle.wait(&mut st);
        }
        if let Some(r) = &mut st.running {
            r.phase = Phase::Switching;
        }
        let captured = MutexGuard::unlocked(&mut st, || txn.capture());
        let credits = st.running.take().map_or(0, |r| r.credits);
        st.committing = Some(Arc::clone(&txn));
        st.committing_need = self.log_need(credits);
        self.startable.notify_all();

        let result = MutexGuard::unlocked(&mut st, || {
            let _cause = cause::set("commit");
            let start = Instant::now();
            let r = self.make_durable(&txn, captured);
            self.live.took(start.elapsed());
            r
        });

        let callbacks = std::mem::take(&mut txn.contents.lock().callbacks);
        st.committer = false;
        st.company = txn.waiters.load(Relaxed) > 0;
        st.committing_need = 0;
        match &result {
            Ok(()) => {
                st.committed = txn.tid;
                st.committing = None;
            }
            // What is in memory must not be evicted for what is on the disk: it stays pinned.
            Err(_) => drop(txn.contents.lock()),
        }
        trace::event!(Jbd2EndCommit, -, transaction: txn.tid.0, ret: trace::ret(&result));
        txn.ended.notify_all();
        self.commit_ended.notify_all();
        if st.space_waiters > 0 {
            self.startable.notify_all();
        }
        let next = st.running.as_ref().filter(|r| !r.txn.tid.after(st.wanted));
        if let Some(r) = next {
            if r.txn.waiters.load(Relaxed) > 0 {
                r.txn.ended.notify_one();
            } else {
                self.kick.poke();
            }
        }
        let failed = result.is_err();
        MutexGuard::unlocked(&mut st, || {
            if let Err(e) = &result {
                self.abort(e);
            }
            for f in callbacks {
                f(if failed { Err(Error::Shutdown) } else { Ok(()) });
            }
        });
        st
    }

    /// The I/O of a commit, and telling those who must know before the waiters do.
    fn make_durable(&self, txn: &Arc<Transaction>, captured: Vec<Captured>) -> Result<()> {
        trace::event!(Jbd2CommitFlushing, -, transaction: txn.tid.0);
        if txn.tokens.wait() && self.live.data_err_abort() {
            let source = std::io::Error::from_raw_os_error(libc::EIO);
            return Err(Error::Io { op: "ordered data write", offset: 0, source });
        }
        self.check_commit()?;
        trace::event!(Jbd2CommitLogging, -, transaction: txn.tid.0);
        let empty = txn.contents.lock().is_empty();
        if !empty {
            match &self.backend {
                Backend::Home => self.commit_home(captured)?,
                Backend::Log(log) => self.commit_to_log(log, txn, captured)?,
            }
        }
        if self.health.load(Acquire) != Health::Good as u8 {
            return Err(Error::Shutdown);
        }
        for l in self.listeners.read().iter() {
            l.committed(txn.tid);
        }
        Ok(())
    }

    /// A commit without a log: the blocks go home.
    fn commit_home(&self, captured: Vec<Captured>) -> Result<()> {
        let bs = self.cache().geo().block_size;
        super::home::write(&**self.cache().dev(), bs, &captured)?;
        self.flusher.flush()?;
        for c in captured {
            c.buf.drop_dirty();
        }
        Ok(())
    }
}
