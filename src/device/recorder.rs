//! Records what reaches the device, for the crash explorer.
//!
//! The log has one entry when a request is *issued* and one when it is *done*, because that is what
//! crash consistency is about: a write that was issued may be on the disk, wholly or in part; it is
//! certainly there once a flush that was issued after it was done is itself done. See [`super::reclog`]
//! for the format, the reader and [`super::reclog::Pending`], which applies that rule.

use super::reclog::{self, Kind};
use super::{BlockDevice, Done, IoPayload, IoRequest, cause};
use crate::error::Result;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, BufWriter, IoSlice, IoSliceMut, Write};
use std::path::Path;
use std::sync::Arc;

struct Open {
    out: BufWriter<File>,
    seq: u64,
    failed: bool,
}

/// The log file. Entries are in the order in which this lock was taken.
struct Log(Mutex<Open>);

impl Log {
    fn append(&self, kind: Kind, offset: u64, len: u64, tag: &str, data: &[&[u8]]) -> u64 {
        let mut o = self.0.lock();
        let seq = o.seq;
        o.seq += 1;
        if o.failed {
            return seq;
        }
        let mut written = reclog::write_entry(&mut o.out, kind, seq, offset, len, tag, data);
        if matches!(kind, Kind::Flush | Kind::Write { fua: true }) {
            // What is stable is in the log, whatever becomes of this process.
            written = written.and_then(|()| o.out.flush());
        }
        if let Err(e) = written {
            // A hole in the log would make the explorer lie: it ends here.
            o.failed = true;
            log::error!("recorder: cannot write the log, recording ends: {e}");
        }
        seq
    }

    fn done(&self, id: u64, ok: bool) {
        self.append(Kind::Done { ok }, id, 0, "", &[]);
    }

    fn write_out(&self) {
        let mut o = self.0.lock();
        if !o.failed && o.out.flush().is_err() {
            o.failed = true;
        }
    }
}

/// Wraps a device and logs each write, flush and discard with its data and cause.
pub struct Recorder {
    inner: Arc<dyn BlockDevice>,
    log: Arc<Log>,
}

impl Recorder {
    /// Over `inner`, into a new log file.
    pub fn create(inner: Arc<dyn BlockDevice>, path: &Path) -> io::Result<Recorder> {
        Recorder::into_file(inner, File::create(path)?)
    }

    /// The same into an empty file that is open.
    ///
    /// # Errors
    /// Of writing its header.
    pub fn into_file(inner: Arc<dyn BlockDevice>, log: File) -> io::Result<Recorder> {
        let mut out = BufWriter::with_capacity(1 << 20, log);
        reclog::write_header(&mut out, inner.size(), inner.logical_block_size())?;
        out.flush()?;
        let log = Arc::new(Log(Mutex::new(Open { out, seq: 0, failed: false })));
        Ok(Recorder { inner, log })
    }

    /// Notes something the workload knows, such as "fsync of a returned", at this place of the log.
    pub fn mark(&self, text: &str) {
        self.log.append(Kind::Mark, 0, text.len() as u64, cause::current(), &[text.as_bytes()]);
    }

    /// Writes out what is buffered; an error if any entry was lost.
    pub fn sync(&self) -> io::Result<()> {
        let mut o = self.log.0.lock();
        if o.failed {
            return Err(io::Error::other("an earlier write to the log failed"));
        }
        o.out.flush()
    }

    fn issue_vectored(&self, bufs: &[IoSlice<'_>], off: u64, fua: bool) -> u64 {
        let data: Vec<&[u8]> = bufs.iter().map(|b| &**b).collect();
        let len = data.iter().map(|d| d.len() as u64).sum();
        self.log.append(Kind::Write { fua }, off, len, cause::current(), &data)
    }

    fn around(&self, id: u64, r: Result<()>) -> Result<()> {
        self.log.done(id, r.is_ok());
        r
    }

    /// As `around`, of what makes writes stable: so is the log, for the process may be killed. A failure
    /// is told by [`Recorder::sync`].
    fn around_stable(&self, id: u64, r: Result<()>) -> Result<()> {
        let r = self.around(id, r);
        self.log.write_out();
        r
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Err(e) = self.sync() {
            log::error!("recorder: the log is not complete: {e}");
        }
    }
}

impl BlockDevice for Recorder {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()> {
        self.inner.read_at(buf, off)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], off: u64) -> Result<()> {
        self.inner.read_vectored_at(bufs, off)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        let kind = Kind::Write { fua: false };
        let id = self.log.append(kind, off, buf.len() as u64, cause::current(), &[buf]);
        self.around(id, self.inner.write_at(buf, off))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], off: u64) -> Result<()> {
        let id = self.issue_vectored(bufs, off, false);
        self.around(id, self.inner.write_vectored_at(bufs, off))
    }

    fn write_vectored_fua(&self, bufs: &[IoSlice<'_>], off: u64) -> Result<()> {
        let id = self.issue_vectored(bufs, off, true);
        self.around_stable(id, self.inner.write_vectored_fua(bufs, off))
    }

    fn write_fua(&self, buf: &[u8], off: u64) -> Result<()> {
        let kind = Kind::Write { fua: true };
        let id = self.log.append(kind, off, buf.len() as u64, cause::current(), &[buf]);
        self.around_stable(id, self.inner.write_fua(buf, off))
    }

    fn flush(&self) -> Result<()> {
        let id = self.log.append(Kind::Flush, 0, 0, cause::current(), &[]);
        self.around_stable(id, self.inner.flush())
    }

    fn discard(&self, off: u64, len: u64) -> Result<()> {
        let id = self.log.append(Kind::Discard, off, len, cause::current(), &[]);
        self.around(id, self.inner.discard(off, len))
    }

    fn write_zeroes(&self, off: u64, len: u64) -> Result<()> {
        let id = self.log.append(Kind::Zero, off, len, cause::current(), &[]);
        self.around(id, self.inner.write_zeroes(off, len))
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn logical_block_size(&self) -> u32 {
        self.inner.logical_block_size()
    }

    fn uncache(&self, off: u64, len: u64) {
        self.inner.uncache(off, len);
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn submit(&self, mut req: IoRequest) {
        let id = match &req.payload {
            IoPayload::Read(_) => return self.inner.submit(req),
            IoPayload::Write { segs, fua } => {
                let data: Vec<&[u8]> = segs.iter().map(|s| s.bytes()).collect();
                let len = req.payload.len();
                self.log.append(Kind::Write { fua: *fua }, req.offset, len, req.tag, &data)
            }
            IoPayload::Flush => self.log.append(Kind::Flush, 0, 0, req.tag, &[]),
        };
        let log = Arc::clone(&self.log);
        let done = req.done;
        req.done = Done::Once(Box::new(move |r| {
            log.done(id, r.result.is_ok());
            done.call(r);
        }));
        self.inner.submit(req);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::reclog::{Entry, LogReader, Pending};
    use crate::device::{AlignedBuf, MemDevice, WriteSeg};

    #[test]
    fn what_was_done_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let r = Recorder::create(Arc::new(MemDevice::new(1 << 20)), &path).unwrap();
        {
            let _c = cause::set("commit");
            r.write_at(b"one", 10).unwrap();
            r.flush().unwrap();
        }
        r.write_vectored_at(&[IoSlice::new(b"tw"), IoSlice::new(b"o")], 20).unwrap();
        r.write_at(&[0; 4096], 4096).unwrap();
        let seg = WriteSeg::whole(Arc::new(AlignedBuf::copy_of(b"three")));
        r.submit(IoRequest::write([seg], 30, |r| r.result.unwrap()).tagged("direct write"));
        r.mark("fsync of a returned");
        r.write_fua(b"four", 40).unwrap();
        r.discard(0, 512).unwrap();
        assert!(r.write_at(b"x", 1 << 20).is_err());
        drop(r);

        let reader = LogReader::open(&path).unwrap();
        assert_eq!((reader.size(), reader.logical_block_size()), (1 << 20, 512));
        let all: Vec<Entry> = reader.map(|e| e.unwrap()).collect();
        assert!(all.iter().enumerate().all(|(i, e)| e.seq == i as u64));
        assert_eq!(all[0].kind, Kind::Write { fua: false });
        assert_eq!((all[0].offset, &all[0].data[..], &*all[0].tag), (10, &b"one"[..], "commit"));
        assert_eq!((all[1].kind, all[1].offset), (Kind::Done { ok: true }, 0));
        assert_eq!((all[2].kind, &*all[2].tag), (Kind::Flush, "commit"));
        let find = |off| all.iter().find(|e| e.is_change() && e.offset == off).unwrap();
        assert_eq!((&find(20).data[..], &*find(20).tag), (&b"two"[..], ""));
        assert_eq!((&find(30).data[..], &*find(30).tag), (&b"three"[..], "direct write"));
        assert_eq!(find(4096).data, vec![0; 4096]);
        assert_eq!(find(40).kind, Kind::Write { fua: true });
        let mark = all.iter().find(|e| e.kind == Kind::Mark).unwrap();
        assert_eq!(mark.text(), "fsync of a returned");
        assert_eq!(all.last().unwrap().kind, Kind::Done { ok: false });

        let mut p = Pending::default();
        for e in &all[..4] {
            p.feed(e);
        }
        assert_eq!((p.durable(), p.pending()), (&[0][..], &[][..]), "flushed after it was done");
        for e in &all[4..] {
            p.feed(e);
        }
        assert_eq!(p.durable().len(), 2, "the FUA write too: {p:?}");
        // Zeros are recorded without their bytes.
        assert!(std::fs::metadata(&path).unwrap().len() < 2000);
    }
}
