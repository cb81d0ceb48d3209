//! The `io_uring` engine: one ring for the file, submitted to from any thread, reaped by one.
//!
//! A submitter puts its entry into the ring under a short lock and then enters the kernel, unless
//! another thread is just doing that: then that one takes the entry along. Requests that the kernel
//! would not take as they are (not aligned, with the direct backing) go to a pool of threads.

use super::{Engine, IoEngine, join, threads::Pool};
use crate::device::file::RawFile;
use crate::device::{IoPayload, IoRequest, check_range};
use crate::error::{Error, Result};
use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::thread::JoinHandle;

/// Requests in the kernel at once; more wait in a queue of ours. The submission queue holds twice as
/// many, so it is never full.
const IN_FLIGHT: usize = 1024;
/// Most pieces of one entry; the rest follows when they are done.
const MAX_IOV: usize = 1024;
/// Most bytes of one piece.
const MAX_LEN: usize = 1 << 30;
/// The user data of the entry that wakes the reaper up to stop.
const WAKE: u64 = u64::MAX;

/// A request in the kernel.
struct Flight {
    req: IoRequest,
    total: u64,
    /// Bytes already transferred, by earlier entries of the same request.
    done: u64,
    /// What the entry in the kernel points to.
    iov: Vec<libc::iovec>,
}

// SAFETY: the iovecs point into buffers that `req` owns, and are used by the kernel only.
unsafe impl Send for Flight {}

struct State {
    /// Never grows beyond its capacity: the kernel may read a slot's iovecs until it is submitted.
    slots: Vec<Option<Flight>>,
    free: Vec<usize>,
    waiting: VecDeque<Flight>,
    stop: bool,
}

struct Ring {
    ring: IoUring,
    raw: Arc<RawFile>,
    state: Mutex<State>,
    /// Some thread is entering the kernel to submit.
    entering: AtomicBool,
    unaligned: Pool,
}

/// The engine.
pub(super) struct Uring {
    ring: Arc<Ring>,
    reaper: Option<JoinHandle<()>>,
}

impl Uring {
    pub(super) fn new(raw: &Arc<RawFile>) -> io::Result<Uring> {
        let ring =
            IoUring::builder().setup_cqsize(2 * IN_FLIGHT as u32).build(2 * IN_FLIGHT as u32)?;
        let state = State {
            slots: Vec::with_capacity(IN_FLIGHT),
            free: Vec::with_capacity(IN_FLIGHT),
            waiting: VecDeque::new(),
            stop: false,
        };
        let ring = Arc::new(Ring {
            ring,
            raw: Arc::clone(raw),
            state: Mutex::new(state),
            entering: AtomicBool::new(false),
            unaligned: Pool::new(raw),
        });
        let mine = Arc::clone(&ring);
        let reaper =
            std::thread::Builder::new().name("uext4-reaper".into()).spawn(move || mine.reap())?;
        Ok(Uring { ring, reaper: Some(reaper) })
    }
}

impl Engine for Uring {
    fn submit(&self, req: IoRequest) {
        let total = req.payload.len();
        match self.ring.fits(&req, total) {
            Err(e) => req.finish(Err(e)),
            Ok(false) => self.ring.unaligned.submit(req),
            Ok(true) => {
                let flight = Flight { req, total, done: 0, iov: Vec::new() };
                let pushed = self.ring.push(&mut self.ring.state.lock(), flight);
                if pushed {
                    self.ring.enter();
                }
            }
        }
    }

    fn kind(&self) -> IoEngine {
        IoEngine::IoUring
    }
}

impl Ring {
    /// Whether the kernel takes the request as it is.
    fn fits(&self, req: &IoRequest, total: u64) -> Result<bool> {
        let raw = &self.raw;
        let aligned = match &req.payload {
            IoPayload::Flush => return Ok(!raw.read_only),
            IoPayload::Read(bufs) => {
                check_range("read", req.offset, total, raw.size)?;
                bufs.iter().all(|b| raw.mem_aligned(b))
            }
            IoPayload::Write { segs, fua } => {
                if raw.read_only {
                    return Err(Error::ReadOnly);
                }
                check_range("write", req.offset, total, raw.size)?;
                segs.iter().all(|s| raw.mem_aligned(s.bytes())) && (!fua || raw.has_dsync())
            }
        };
        Ok(total > 0 && aligned && raw.aligned(req.offset, total as usize))
    }

    /// Puts the request into the ring, or into the queue when the kernel has enough; true if the
    /// kernel must be told.
    fn push(&self, s: &mut State, flight: Flight) -> bool {
        let slot = match s.free.pop() {
            Some(slot) => slot,
            None if s.slots.len() < IN_FLIGHT => {
                s.slots.push(None);
                s.slots.len() - 1
            }
            None => {
                s.waiting.push_back(flight);
                return false;
            }
        };
        let flight = s.slots[slot].insert(flight);
        let entry = self.entry(flight).user_data(slot as u64);
        self.push_entry(entry);
        true
    }

    /// The caller holds the state's lock.
    fn push_entry(&self, entry: squeue::Entry) {
        // SAFETY: the state's lock makes this the only submission queue at this time. The entry
        // points to buffers and iovecs of a flight, which stay in their slot until it completes.
        let pushed = unsafe { self.ring.submission_shared().push(&entry) };
        // Cannot be full: it holds more entries than there are slots.
        assert!(pushed.is_ok(), "the submission queue is full");
    }

    /// The entry for what is left of a request.
    fn entry(&self, f: &mut Flight) -> squeue::Entry {
        // Not a registered file: the kernel would hold on to it, and so to our claim on the
        // device, for some time after the ring is closed.
        let fd = types::Fd(self.raw.fd());
        let at = self.raw.offset + f.req.offset + f.done;
        f.iov.clear();
        let mut skip = f.done as usize;
        let mut piece = |ptr: *mut u8, len: usize| {
            if skip >= len {
                skip -= len;
            } else if f.iov.len() < MAX_IOV {
                let iov_base = ptr.wrapping_add(skip).cast();
                f.iov.push(libc::iovec { iov_base, iov_len: (len - skip).min(MAX_LEN) });
                skip = 0;
            }
        };
        match &mut f.req.payload {
            IoPayload::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            IoPayload::Read(bufs) => {
                bufs.iter_mut().for_each(|b| piece(b.as_mut_ptr(), b.len()));
                match f.iov.as_slice() {
                    [v] => opcode::Read::new(fd, v.iov_base.cast(), v.iov_len as u32)
                        .offset(at)
                        .build(),
                    v => opcode::Readv::new(fd, v.as_ptr(), v.len() as u32).offset(at).build(),
                }
            }
            IoPayload::Write { segs, fua } => {
                segs.iter().for_each(|s| piece(s.bytes().as_ptr().cast_mut(), s.bytes().len()));
                let flags = if *fua { libc::RWF_DSYNC } else { 0 };
                match f.iov.as_slice() {
                    [v] => opcode::Write::new(fd, v.iov_base.cast(), v.iov_len as u32)
                        .offset(at)
                        .rw_flags(flags)
                        .build(),
                    v => opcode::Writev::new(fd, v.as_ptr(), v.len() as u32)
                        .offset(at)
                        .rw_flags(flags)
                        .build(),
                }
            }
        }
    }

    /// Gives the ring's entries to the kernel. If another thread is doing so it takes ours too: it
    /// looks again after it has said that it is finished.
    fn enter(&self) {
        while !self.entering.swap(true, AcqRel) {
            let r = self.ring.submit();
            // A swap, not a store: it must see what those who found it set had pushed before.
            self.entering.swap(false, AcqRel);
            if let Err(e) = r {
                match e.raw_os_error() {
                    // Out of memory for the moment, or completions to be reaped first.
                    Some(libc::EAGAIN | libc::EBUSY) => std::thread::yield_now(),
                    Some(libc::EINTR) => {}
                    _ => panic!("io_uring_enter: {e}"),
                }
            }
            let empty = {
                let _lock = self.state.lock();
                // SAFETY: under the state's lock, as in `push_entry`.
                unsafe { self.ring.submission_shared().is_empty() }
            };
            if empty {
                return;
            }
        }
    }

    fn reap(&self) {
        let mut done = Vec::new();
        loop {
            // SAFETY: submits nothing, waits for one completion; no signal mask is passed.
            let r = unsafe {
                self.ring.submitter().enter::<libc::sigset_t>(
                    0, 1, 1, // IORING_ENTER_GETEVENTS
                    None,
                )
            };
            if let Err(e) = r
                && !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
            {
                panic!("io_uring_enter: {e}");
            }
            // SAFETY: only this thread ever makes a completion queue.
            let queue = unsafe { self.ring.completion_shared() };
            done.extend(queue.map(|c| (c.user_data(), c.result())));
            for (slot, result) in done.drain(..) {
                if slot != WAKE {
                    self.completed(slot as usize, result);
                }
            }
            let s = self.state.lock();
            if s.stop && s.waiting.is_empty() && s.slots.iter().all(Option::is_none) {
                return;
            }
        }
    }

    /// What the kernel says of a slot's request.
    fn completed(&self, slot: usize, result: i32) {
        let mut s = self.state.lock();
        let Some(mut f) = s.slots.get_mut(slot).and_then(Option::take) else { return };
        s.free.push(slot);
        let outcome = self.outcome(&mut f, result);
        let mut tell = false;
        let finished = match outcome {
            Some(r) => {
                if let Some(next) = s.waiting.pop_front() {
                    tell = self.push(&mut s, next);
                }
                Some((f, r))
            }
            // More to do: into the slot just freed.
            None => {
                tell |= self.push(&mut s, f);
                None
            }
        };
        drop(s);
        if tell {
            self.enter();
        }
        match finished {
            Some((f, Err(Error::NotSupported))) => self.unaligned.submit(f.req),
            Some((f, r)) => f.req.finish(r),
            None => {}
        }
    }

    /// The end of the request, or `None` if an entry for what is left must follow. `NotSupported`
    /// sends it to the pool, which knows other ways.
    fn outcome(&self, f: &mut Flight, result: i32) -> Option<Result<()>> {
        let op = match &f.req.payload {
            IoPayload::Read(_) => "read",
            IoPayload::Write { .. } => "write",
            IoPayload::Flush => "flush",
        };
        let fail = |source| Some(Err(Error::Io { op, offset: f.req.offset, source }));
        match u64::try_from(result) {
            Ok(n) => {
                f.done += n;
                if f.done >= f.total {
                    Some(Ok(()))
                } else if n > 0 {
                    // Direct I/O that stopped at an odd place ended at the end of the file.
                    if self.raw.aligned(f.done, 0) { None } else { fail(short(op)) }
                } else {
                    fail(short(op))
                }
            }
            Err(_) => match result.wrapping_neg() {
                // The kernel cancels what a thread submitted when that thread ends; the reaper, which
                // submits it again, does not end.
                libc::EINTR | libc::EAGAIN | libc::ECANCELED => None,
                libc::EOPNOTSUPP if matches!(f.req.payload, IoPayload::Write { fua: true, .. }) => {
                    Some(Err(Error::NotSupported))
                }
                e => fail(io::Error::from_raw_os_error(e)),
            },
        }
    }
}

fn short(op: &str) -> io::Error {
    match op {
        "read" => io::ErrorKind::UnexpectedEof.into(),
        _ => io::ErrorKind::WriteZero.into(),
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        {
            let mut s = self.ring.state.lock();
            s.stop = true;
            self.ring.push_entry(opcode::Nop::new().build().user_data(WAKE));
        }
        self.ring.enter();
        if let Some(t) = self.reaper.take() {
            join(t);
        }
    }
}
