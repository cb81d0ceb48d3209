//! The `io_uring` engine: one ring for the file and one thread that owns it.
//!
//! Submitters put requests into a queue and wake the thread if it sleeps. It gives all that came in
//! to the kernel, and takes all that is done, in one system call; so the deeper the queue the fewer the
//! calls. (A ring that any thread submits to makes the kernel interrupt *that* thread at each
//! completion, and cancel its requests when it ends.)
//!
//! What the kernel would not take as it is (not aligned, with the direct backing), and large requests to
//! the host's page cache, which would be copied in this one thread, go to a pool of threads.

use super::{Engine, IoEngine, join, threads::Pool};
use crate::device::raw::RawFile;
use crate::device::{IoPayload, IoRequest, check_range};
use crate::error::{Error, Result};
use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Requests in the kernel at once; more wait in the queue. The submission queue holds more, so it is
/// never full.
const IN_FLIGHT: usize = 1024;
/// Most pieces of one entry; the rest follows when they are done.
const MAX_IOV: usize = 1024;
/// Most bytes of one piece.
const MAX_LEN: usize = 1 << 30;
/// From this size a request to the page cache goes to the pool.
const LARGE: u64 = 128 << 10;
/// The user data of the read of the eventfd that wakes the ring's thread.
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

#[derive(Default)]
struct Queue {
    requests: VecDeque<IoRequest>,
    /// The thread is in the kernel, or about to be, and must be woken.
    sleeps: bool,
    stop: bool,
}

struct Shared {
    raw: Arc<RawFile>,
    queue: Mutex<Queue>,
    /// An eventfd.
    wake: File,
    pool: Pool,
}

/// The engine.
pub(super) struct Uring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Uring {
    pub(super) fn new(raw: &Arc<RawFile>) -> io::Result<Uring> {
        // SAFETY: a new descriptor, checked, that the File then owns.
        let wake = unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
                -1 => return Err(io::Error::last_os_error()),
                fd => File::from_raw_fd(fd),
            }
        };
        let shared = Arc::new(Shared {
            raw: Arc::clone(raw),
            queue: Mutex::default(),
            wake,
            pool: Pool::new(raw),
        });
        let mine = Arc::clone(&shared);
        // The ring must be made by the thread that uses it.
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread =
            std::thread::Builder::new().name("uext4-uring".into()).spawn(move || match ring() {
                Ok(ring) => {
                    drop(tell.send(Ok(())));
                    Owner { ring, shared: mine, slots: Vec::new(), free: Vec::new() }.run();
                }
                Err(e) => drop(tell.send(Err(e))),
            })?;
        told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended")))?;
        Ok(Uring { shared, thread: Some(thread) })
    }
}

/// A ring for the calling thread alone; on an older kernel without the flags that say so.
fn ring() -> io::Result<IoUring> {
    let entries = 2 * IN_FLIGHT as u32;
    match IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
        r => r,
    }
}

impl Shared {
    fn wake(&self) {
        // Fails only if the counter would overflow: then the thread is awake.
        drop((&self.wake).write(&1u64.to_ne_bytes()));
    }

    /// The queue is not bounded, for the reason that the pool's is not.
    fn enqueue(&self, req: IoRequest) {
        let mut q = self.queue.lock();
        q.requests.push_back(req);
        let wake = std::mem::take(&mut q.sleeps);
        drop(q);
        if wake {
            self.wake();
        }
    }
}

impl Engine for Uring {
    fn submit(&self, req: IoRequest) {
        match fits(&self.shared.raw, &req, req.payload.len()) {
            Err(e) => req.finish(Err(e)),
            Ok(false) => self.shared.pool.submit(req),
            Ok(true) => self.shared.enqueue(req),
        }
    }

    fn kind(&self) -> IoEngine {
        IoEngine::IoUring
    }
}

/// Whether the request goes to the ring; else the pool takes it.
fn fits(raw: &RawFile, req: &IoRequest, total: u64) -> Result<bool> {
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
    let here = raw.direct || total < LARGE;
    Ok(total > 0 && here && aligned && raw.aligned(req.offset, total as usize))
}

/// The ring and what is in it; lives on the ring's thread.
struct Owner {
    ring: IoUring,
    shared: Arc<Shared>,
    /// Never longer than `IN_FLIGHT`.
    slots: Vec<Option<Box<Flight>>>,
    free: Vec<usize>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.free.len() != self.slots.len() {
            // Only by a panic. The kernel still writes to those buffers.
            std::process::abort();
        }
    }
}

impl Owner {
    fn run(mut self) {
        self.listen();
        let mut done = Vec::with_capacity(IN_FLIGHT);
        loop {
            let stop = self.take_in();
            if stop && self.free.len() == self.slots.len() {
                return;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                // Interrupted, out of memory for the moment, or completions to be taken first.
                Err(e)
                    if matches!(
                        e.raw_os_error(),
                        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                    ) => {}
                Err(e) => panic!("io_uring_enter: {e}"),
            }
            self.shared.queue.lock().sleeps = false;
            done.extend(self.ring.completion().map(|c| (c.user_data(), c.result())));
            for (slot, result) in done.drain(..) {
                match slot {
                    WAKE => self.listen(),
                    _ => self.completed(slot as usize, result),
                }
            }
        }
    }

    /// Lets a wake-up complete an entry of the ring.
    fn listen(&mut self) {
        drop((&self.shared.wake).read(&mut [0; 8]));
        let fd = types::Fd(self.shared.wake.as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
        self.push(&poll.user_data(WAKE));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points to lives until it completes: the buffers and iovecs of a boxed
        // flight stay in their slot, and `drop` sees to it that no slot outlives its request.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // Cannot be full: it holds more entries than there are slots.
        assert!(pushed.is_ok(), "the submission queue is full");
    }

    /// Moves requests from the queue into the ring; whether the engine is to stop. If nothing more can
    /// be taken, the thread counts as asleep from here on.
    fn take_in(&mut self) -> bool {
        loop {
            let room = self.free.len() + (IN_FLIGHT - self.slots.len());
            let mut q = self.shared.queue.lock();
            if q.requests.is_empty() || room == 0 {
                q.sleeps = q.requests.is_empty();
                return q.stop && q.requests.is_empty();
            }
            let n = q.requests.len().min(room);
            let taken: smallvec::SmallVec<[IoRequest; 16]> = q.requests.drain(..n).collect();
            drop(q);
            for req in taken {
                let total = req.payload.len();
                self.start(Box::new(Flight { req, total, done: 0, iov: Vec::new() }));
            }
        }
    }

    fn start(&mut self, mut flight: Box<Flight>) {
        let e = entry(&self.shared.raw, &mut flight);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(flight);
                slot
            }
            None => {
                self.slots.push(Some(flight));
                self.slots.len() - 1
            }
        };
        self.push(&e.user_data(slot as u64));
    }

    /// What the kernel says of a slot's request.
    fn completed(&mut self, slot: usize, result: i32) {
        let Some(mut f) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        self.free.push(slot);
        match outcome(&self.shared.raw, &mut f, result) {
            None => self.start(f),
            Some(Err(Error::NotSupported)) => self.shared.pool.submit(f.req),
            Some(r) => f.req.finish(r),
        }
    }
}

/// The entry for what is left of a request.
fn entry(raw: &RawFile, f: &mut Flight) -> squeue::Entry {
    // Not a registered file: the kernel would hold on to it, and so to our claim on the
    // device, for some time after the ring is closed.
    let fd = types::Fd(raw.fd());
    let at = raw.offset + f.req.offset + f.done;
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
                [v] => {
                    opcode::Read::new(fd, v.iov_base.cast(), v.iov_len as u32).offset(at).build()
                }
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

/// The end of the request, or `None` if an entry for what is left must follow. `NotSupported`
/// sends it to the pool, which knows other ways.
fn outcome(raw: &RawFile, f: &mut Flight, result: i32) -> Option<Result<()>> {
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
                if raw.aligned(f.done, 0) { None } else { fail(short(op)) }
            } else {
                fail(short(op))
            }
        }
        Err(_) => match result.wrapping_neg() {
            libc::EINTR | libc::EAGAIN => None,
            libc::EOPNOTSUPP if matches!(f.req.payload, IoPayload::Write { fua: true, .. }) => {
                Some(Err(Error::NotSupported))
            }
            e => fail(io::Error::from_raw_os_error(e)),
        },
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
        self.shared.queue.lock().stop = true;
        self.shared.wake();
        if let Some(t) = self.thread.take() {
            join(t);
        }
    }
}
