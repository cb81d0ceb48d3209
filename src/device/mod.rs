//! Where blocks live.
//!
//! Everything above sees one trait, [`BlockDevice`]: bytes at an offset, read, written, flushed,
//! discarded, synchronously or through [`BlockDevice::submit`] with a completion. What is behind it
//! is put together at mount time, from the bottom up: a [`FileDevice`] (image file or block device,
//! with an I/O engine) or a [`MemDevice`]; over it, as asked for, the disk model, the recorder, the
//! fault injector, the overlay of a read-only mount.
//!
//! Invariants:
//! - Offsets are bytes from the start of the *file system* (`offset=` is added here and nowhere else).
//! - A request outside `0..size()` is an error, never a short transfer; an image file never grows.
//! - A write is on stable storage only after a `flush` that began after it completed, or if it was FUA.
//! - A completion is called exactly once, with the buffers of the request; it must not block: it runs
//!   on the engine's threads (or, with the `sync` engine, on the submitter's).
//! - No ordering between requests in flight; two that overlap are the caller's mistake.

/// Every method of [`BlockDevice`] but `submit`, passed on to the device that the expression names.
macro_rules! forward {
    ($self:ident, $to:expr) => {
        fn read_at(&$self, buf: &mut [u8], off: u64) -> $crate::error::Result<()> {
            ($to).read_at(buf, off)
        }
        fn write_at(&$self, buf: &[u8], off: u64) -> $crate::error::Result<()> {
            ($to).write_at(buf, off)
        }
        fn read_vectored_at(
            &$self,
            bufs: &mut [std::io::IoSliceMut<'_>],
            off: u64,
        ) -> $crate::error::Result<()> {
            ($to).read_vectored_at(bufs, off)
        }
        fn write_vectored_at(
            &$self,
            bufs: &[std::io::IoSlice<'_>],
            off: u64,
        ) -> $crate::error::Result<()> {
            ($to).write_vectored_at(bufs, off)
        }
        fn write_vectored_fua(
            &$self,
            bufs: &[std::io::IoSlice<'_>],
            off: u64,
        ) -> $crate::error::Result<()> {
            ($to).write_vectored_fua(bufs, off)
        }
        fn flush(&$self) -> $crate::error::Result<()> {
            ($to).flush()
        }
        fn write_fua(&$self, buf: &[u8], off: u64) -> $crate::error::Result<()> {
            ($to).write_fua(buf, off)
        }
        fn discard(&$self, off: u64, len: u64) -> $crate::error::Result<()> {
            ($to).discard(off, len)
        }
        fn write_zeroes(&$self, off: u64, len: u64) -> $crate::error::Result<()> {
            ($to).write_zeroes(off, len)
        }
        fn size(&$self) -> u64 {
            ($to).size()
        }
        fn logical_block_size(&$self) -> u32 {
            ($to).logical_block_size()
        }
        fn uncache(&$self, off: u64, len: u64) {
            ($to).uncache(off, len)
        }
        fn read_only(&$self) -> bool {
            ($to).read_only()
        }
    };
}

pub mod buf;
pub mod cause;
mod claim;
mod engine;
pub mod fault;
pub mod file;
pub mod mem;
pub mod model;
pub mod overlay;
mod raw;
pub mod reclog;
pub mod recorder;
pub mod request;
pub mod seeded;
pub mod stack;
pub mod stats;

pub use buf::{AlignedBuf, BufPart, pool_shrink};
pub use engine::IoEngine;
pub use fault::FaultDevice;
pub use file::{Backing, FileDevice, OpenHow};
pub use mem::MemDevice;
pub use model::ModelDevice;
pub use overlay::Overlay;
pub use recorder::Recorder;
pub use request::{Done, IoDone, IoOp, IoPayload, IoRequest, IoResult, ReadBuf, WriteSeg};
pub use stack::{Opened, Stack};
pub use stats::{Counted, DeviceStats};

use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

/// A device, or an image of one, addressed in bytes. See the module for what holds.
pub trait BlockDevice: Send + Sync {
    /// Fills `buf` from byte `off`.
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()>;

    /// Writes `buf` at byte `off`.
    fn write_at(&self, buf: &[u8], off: u64) -> Result<()>;

    /// Fills the buffers one after the other from byte `off`.
    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], off: u64) -> Result<()> {
        let mut at = off;
        for b in bufs.iter_mut() {
            self.read_at(b, at)?;
            at = at.saturating_add(b.len() as u64);
        }
        Ok(())
    }

    /// Writes the buffers one after the other from byte `off`, as one request where the backend can.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], off: u64) -> Result<()> {
        let mut at = off;
        for b in bufs {
            self.write_at(b, at)?;
            at = at.saturating_add(b.len() as u64);
        }
        Ok(())
    }

    /// Everything that completed before this call is on stable storage when it returns.
    fn flush(&self) -> Result<()>;

    /// A write that is itself on stable storage when it returns (force unit access). It says nothing
    /// of writes before it.
    fn write_fua(&self, buf: &[u8], off: u64) -> Result<()> {
        self.write_at(buf, off)?;
        self.flush()
    }

    /// [`BlockDevice::write_vectored_at`] with force unit access.
    fn write_vectored_fua(&self, bufs: &[IoSlice<'_>], off: u64) -> Result<()> {
        self.write_vectored_at(bufs, off)?;
        self.flush()
    }

    /// The contents of the range are no longer needed. What a later read returns is undefined.
    /// [`Error::NotSupported`] where the backend cannot.
    fn discard(&self, off: u64, len: u64) -> Result<()>;

    /// Makes the range read as zeros, without writing them where the backend has a way.
    fn write_zeroes(&self, off: u64, len: u64) -> Result<()> {
        write_zero_bytes(self, off, len)
    }

    /// Size in bytes.
    fn size(&self) -> u64;

    /// Smallest unit the device transfers, in bytes (512 or 4096). Writes smaller than this or not
    /// aligned to it are a read-modify-write that is not atomic against its neighbours.
    fn logical_block_size(&self) -> u32 {
        512
    }

    /// The next read of the range shows what is on the device, which others may write too, rather than
    /// what this host keeps of it in memory. Best effort.
    fn uncache(&self, off: u64, len: u64) {
        let _ = (off, len);
    }

    /// Whether writes are refused ([`Error::ReadOnly`]).
    fn read_only(&self) -> bool {
        false
    }

    /// Starts a request; its completion is called exactly once, perhaps before this returns. Never
    /// blocks for longer than the engine's queue is full. Errors travel in the completion.
    fn submit(&self, req: IoRequest) {
        run_in_place(self, req);
    }
}

/// Zeros, written as bytes.
pub(crate) fn write_zero_bytes<D: BlockDevice + ?Sized>(dev: &D, off: u64, len: u64) -> Result<()> {
    let zeros = AlignedBuf::zeroed(len.min(1 << 20) as usize);
    let mut done = 0;
    while done < len {
        let n = (len - done).min(zeros.len() as u64);
        dev.write_at(&zeros[..n as usize], off.saturating_add(done))?;
        done += n;
    }
    Ok(())
}

/// Serves a submitted request with the synchronous calls, in the calling thread.
pub(crate) fn run_in_place<D: BlockDevice + ?Sized>(dev: &D, mut req: IoRequest) {
    let _cause = cause::set(req.tag);
    let r = execute(dev, &mut req.payload, req.offset);
    req.finish(r);
}

/// The synchronous form of a payload.
pub(crate) fn execute<D: BlockDevice + ?Sized>(
    dev: &D,
    payload: &mut IoPayload,
    offset: u64,
) -> Result<()> {
    match payload {
        IoPayload::Read(bufs) => {
            if let [one] = bufs.as_mut_slice() {
                return dev.read_at(one, offset);
            }
            let mut v: SmallVec<[IoSliceMut<'_>; 16]> =
                bufs.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            dev.read_vectored_at(&mut v, offset)
        }
        IoPayload::Write { segs, fua } => {
            if let [one] = segs.as_slice() {
                let b = one.bytes();
                return if *fua { dev.write_fua(b, offset) } else { dev.write_at(b, offset) };
            }
            let v: SmallVec<[IoSlice<'_>; 16]> =
                segs.iter().map(|s| IoSlice::new(s.bytes())).collect();
            if *fua {
                dev.write_vectored_fua(&v, offset)
            } else {
                dev.write_vectored_at(&v, offset)
            }
        }
        IoPayload::Flush => dev.flush(),
    }
}

/// Ok if `off..off + len` lies within a device of `size` bytes; else the error every backend gives.
pub(crate) fn check_range(op: &'static str, off: u64, len: u64, size: u64) -> Result<()> {
    match off.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::Io {
            op,
            offset: off,
            source: io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{len} bytes there reach past the end of the device ({size} bytes)"),
            ),
        }),
    }
}

impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    forward!(self, **self);
    fn submit(&self, req: IoRequest) {
        (**self).submit(req)
    }
}
