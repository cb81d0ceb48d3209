//! A submitted request: what, where, with whose buffers, and whom to tell.

use super::{AlignedBuf, BufPart, cause};
use crate::error::Result;
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IoOp {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Make completed writes stable.
    Flush,
}

/// A buffer to read into: whole, or one of the disjoint parts of a larger one.
#[derive(Debug)]
pub enum ReadBuf {
    /// A buffer of its own.
    Whole(AlignedBuf),
    /// A part; [`BufPart::join`] puts the whole together again.
    Part(BufPart),
}

impl Deref for ReadBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            ReadBuf::Whole(b) => b,
            ReadBuf::Part(p) => p,
        }
    }
}

impl DerefMut for ReadBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            ReadBuf::Whole(b) => b,
            ReadBuf::Part(p) => p,
        }
    }
}

impl From<AlignedBuf> for ReadBuf {
    fn from(b: AlignedBuf) -> ReadBuf {
        ReadBuf::Whole(b)
    }
}

impl From<BufPart> for ReadBuf {
    fn from(p: BufPart) -> ReadBuf {
        ReadBuf::Part(p)
    }
}

/// Bytes to write: a range of a buffer that others may hold too. While the request is in flight
/// nobody can change them, because `Arc::get_mut` fails: a writer copies.
#[derive(Debug, Clone)]
pub struct WriteSeg {
    buf: Arc<AlignedBuf>,
    start: usize,
    len: usize,
}

impl WriteSeg {
    /// The range `start..start + len` of `buf`; `None` if it is not within it.
    pub fn new(buf: Arc<AlignedBuf>, start: usize, len: usize) -> Option<WriteSeg> {
        let end = start.checked_add(len)?;
        (end <= buf.len()).then_some(WriteSeg { buf, start, len })
    }

    /// All of `buf`.
    pub fn whole(buf: Arc<AlignedBuf>) -> WriteSeg {
        let len = buf.len();
        WriteSeg { buf, start: 0, len }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.start + self.len]
    }

    /// The buffer the bytes lie in.
    pub fn buf(&self) -> &Arc<AlignedBuf> {
        &self.buf
    }

    /// Gives the buffer back.
    pub fn into_buf(self) -> Arc<AlignedBuf> {
        self.buf
    }
}

/// The operation together with its buffers.
#[derive(Debug)]
pub enum IoPayload {
    /// Fill these, one after the other, from the request's offset.
    Read(SmallVec<[ReadBuf; 2]>),
    /// Write these, one after the other, at the request's offset.
    Write {
        /// The bytes.
        segs: SmallVec<[WriteSeg; 2]>,
        /// Stable when completed (force unit access).
        fua: bool,
    },
    /// Everything that completed before the submission becomes stable.
    Flush,
}

impl IoPayload {
    /// Which operation.
    pub fn op(&self) -> IoOp {
        match self {
            IoPayload::Read(_) => IoOp::Read,
            IoPayload::Write { .. } => IoOp::Write,
            IoPayload::Flush => IoOp::Flush,
        }
    }

    /// Bytes to transfer.
    pub fn len(&self) -> u64 {
        match self {
            IoPayload::Read(b) => b.iter().map(|b| b.len() as u64).sum(),
            IoPayload::Write { segs, .. } => segs.iter().map(|s| s.len as u64).sum(),
            IoPayload::Flush => 0,
        }
    }

    /// Whether there is nothing to transfer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A completion that is told of many requests, without an allocation for each.
pub trait IoDone: Send + Sync {
    /// Request `token` is done. Must not block.
    fn done(&self, token: u64, result: IoResult);
}

/// Whom to tell when a request is done. Called exactly once; must not block.
pub enum Done {
    /// This closure.
    Once(Box<dyn FnOnce(IoResult) + Send>),
    /// This object, with this token.
    Shared(Arc<dyn IoDone>, u64),
}

impl Done {
    /// Tells.
    pub fn call(self, r: IoResult) {
        match self {
            Done::Once(f) => f(r),
            Done::Shared(d, token) => d.done(token, r),
        }
    }
}

/// What a completion is given.
#[derive(Debug)]
pub struct IoResult {
    /// Whether all of it succeeded. After a failed read the buffers' contents are undefined; after a
    /// failed write any part of the range may be old, new or unreadable.
    pub result: Result<()>,
    /// The request's offset in bytes.
    pub offset: u64,
    /// The request's buffers.
    pub payload: IoPayload,
}

/// A request to [`super::BlockDevice::submit`].
pub struct IoRequest {
    /// Byte offset on the device.
    pub offset: u64,
    /// Operation and buffers.
    pub payload: IoPayload,
    /// Why: see [`cause`].
    pub tag: &'static str,
    /// Whom to tell.
    pub done: Done,
}

impl IoRequest {
    /// A read into one buffer.
    pub fn read(
        buf: impl Into<ReadBuf>,
        offset: u64,
        done: impl FnOnce(IoResult) + Send + 'static,
    ) -> IoRequest {
        let payload = IoPayload::Read(SmallVec::from_iter([buf.into()]));
        IoRequest { offset, payload, tag: cause::current(), done: Done::Once(Box::new(done)) }
    }

    /// A write of the segments, one after the other.
    pub fn write(
        segs: impl IntoIterator<Item = WriteSeg>,
        offset: u64,
        done: impl FnOnce(IoResult) + Send + 'static,
    ) -> IoRequest {
        let payload = IoPayload::Write { segs: segs.into_iter().collect(), fua: false };
        IoRequest { offset, payload, tag: cause::current(), done: Done::Once(Box::new(done)) }
    }

    /// A flush of the writes that completed before.
    pub fn flush(done: impl FnOnce(IoResult) + Send + 'static) -> IoRequest {
        let payload = IoPayload::Flush;
        IoRequest { offset: 0, payload, tag: cause::current(), done: Done::Once(Box::new(done)) }
    }

    /// The same request with another cause.
    pub fn tagged(mut self, tag: &'static str) -> IoRequest {
        self.tag = tag;
        self
    }

    /// Ends the request: hands the buffers to the completion.
    pub fn finish(self, result: Result<()>) {
        self.done.call(IoResult { result, offset: self.offset, payload: self.payload });
    }
}
