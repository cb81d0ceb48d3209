//! A device that fails on purpose: chosen requests, chosen places, torn writes, a device that dies.

use super::{BlockDevice, IoOp, IoPayload, IoRequest, IoResult};
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Which requests a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum When {
    /// The n-th of its operation, counted from 1.
    Nth(u64),
    /// Every n-th of its operation.
    Every(u64),
    /// The n-th and all that follow.
    From(u64),
    /// Those that touch this range of bytes.
    Touches(Range<u64>),
}

/// What happens to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing is transferred; the caller sees EIO.
    Fail,
    /// A write puts its first `n` bytes on the device and fails; a multiple of 512 as disks do it.
    /// Other operations just fail.
    Tear(u64),
    /// A write or flush reports success and does nothing: a device that lies.
    Lie,
}

/// One rule: the first that matches a request decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The operation it is about.
    pub op: IoOp,
    /// Which of them.
    pub when: When,
    /// What happens.
    pub fault: Fault,
    /// From the first fault on, every request of any kind fails: a device that is gone.
    pub then_dead: bool,
}

impl Rule {
    /// The n-th (from 1) request of this kind fails with EIO.
    pub fn nth(op: IoOp, n: u64) -> Rule {
        Rule { op, when: When::Nth(n), fault: Fault::Fail, then_dead: false }
    }

    /// Requests of this kind that touch the bytes fail with EIO.
    pub fn range(op: IoOp, bytes: Range<u64>) -> Rule {
        Rule { op, when: When::Touches(bytes), fault: Fault::Fail, then_dead: false }
    }

    /// The n-th write is torn after `bytes` bytes.
    pub fn tear(n: u64, bytes: u64) -> Rule {
        Rule { op: IoOp::Write, when: When::Nth(n), fault: Fault::Tear(bytes), then_dead: false }
    }

    /// The same, and the device is gone afterwards.
    pub fn then_dead(mut self) -> Rule {
        self.then_dead = true;
        self
    }
}

/// How many requests of each kind came so far: run once without rules to know what to sweep over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes, FUA writes included.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Requests that a rule (or death) made fail or lie.
    pub faults: u64,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    counts: Counts,
    dead: bool,
}

/// Wraps a device and makes requests fail by rules.
pub struct FaultDevice {
    inner: Arc<dyn BlockDevice>,
    state: Mutex<State>,
}

fn eio(op: IoOp, offset: u64) -> Error {
    let op = match op {
        IoOp::Read => "read",
        IoOp::Write => "write",
        IoOp::Flush => "flush",
    };
    Error::Io { op, offset, source: io::Error::from_raw_os_error(libc::EIO) }
}

impl FaultDevice {
    /// Over `inner`, with no rules yet.
    pub fn new(inner: Arc<dyn BlockDevice>) -> FaultDevice {
        FaultDevice { inner, state: Mutex::default() }
    }

    /// Adds a rule.
    pub fn add(&self, rule: Rule) {
        self.state.lock().rules.push(rule);
    }

    /// Removes all rules and brings a dead device back; the counts start again at 0.
    pub fn reset(&self) {
        *self.state.lock() = State::default();
    }

    /// From now on every request fails.
    pub fn kill(&self) {
        self.state.lock().dead = true;
    }

    /// Requests so far.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Counts the request and says what shall happen to it.
    fn judge(&self, op: IoOp, off: u64, len: u64) -> Option<Fault> {
        let mut s = self.state.lock();
        let n = match op {
            IoOp::Read => &mut s.counts.reads,
            IoOp::Write => &mut s.counts.writes,
            IoOp::Flush => &mut s.counts.flushes,
        };
        *n += 1;
        let n = *n;
        let fault = if s.dead {
            Some(Fault::Fail)
        } else {
            let hit = |r: &&Rule| {
                r.op == op
                    && match &r.when {
                        When::Nth(k) => n == *k,
                        When::Every(k) => *k != 0 && n % *k == 0,
                        When::From(k) => n >= *k,
                        When::Touches(r) => off < r.end && off.saturating_add(len) > r.start,
                    }
            };
            let rule = s.rules.iter().find(hit).map(|r| (r.fault, r.then_dead));
            rule.map(|(fault, dead)| {
                s.dead |= dead;
                fault
            })
        };
        s.counts.faults += u64::from(fault.is_some());
        fault
    }

    fn faulty_write(&self, fault: Fault, buf: &[u8], off: u64) -> Result<()> {
        match fault {
            Fault::Lie => Ok(()),
            Fault::Fail => Err(eio(IoOp::Write, off)),
            Fault::Tear(n) => {
                self.inner.write_at(&buf[..buf.len().min(n as usize)], off)?;
                Err(eio(IoOp::Write, off))
            }
        }
    }
}

impl BlockDevice for FaultDevice {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()> {
        match self.judge(IoOp::Read, off, buf.len() as u64) {
            None => self.inner.read_at(buf, off),
            Some(_) => Err(eio(IoOp::Read, off)),
        }
    }

    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        match self.judge(IoOp::Write, off, buf.len() as u64) {
            None => self.inner.write_at(buf, off),
            Some(f) => self.faulty_write(f, buf, off),
        }
    }

    fn write_vectored_at(&self, bufs: &[io::IoSlice<'_>], off: u64) -> Result<()> {
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        match self.judge(IoOp::Write, off, len as u64) {
            None => self.inner.write_vectored_at(bufs, off),
            Some(f) => {
                let whole: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
                self.faulty_write(f, &whole, off)
            }
        }
    }

    fn read_vectored_at(&self, bufs: &mut [io::IoSliceMut<'_>], off: u64) -> Result<()> {
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        match self.judge(IoOp::Read, off, len as u64) {
            None => self.inner.read_vectored_at(bufs, off),
            Some(_) => Err(eio(IoOp::Read, off)),
        }
    }

    fn flush(&self) -> Result<()> {
        match self.judge(IoOp::Flush, 0, 0) {
            None => self.inner.flush(),
            Some(Fault::Lie) => Ok(()),
            Some(_) => Err(eio(IoOp::Flush, 0)),
        }
    }

    fn write_fua(&self, buf: &[u8], off: u64) -> Result<()> {
        match self.judge(IoOp::Write, off, buf.len() as u64) {
            None => self.inner.write_fua(buf, off),
            Some(f) => self.faulty_write(f, buf, off),
        }
    }

    fn discard(&self, off: u64, len: u64) -> Result<()> {
        if self.state.lock().dead {
            return Err(eio(IoOp::Write, off));
        }
        self.inner.discard(off, len)
    }

    fn write_zeroes(&self, off: u64, len: u64) -> Result<()> {
        match self.judge(IoOp::Write, off, len) {
            None => self.inner.write_zeroes(off, len),
            Some(Fault::Lie) => Ok(()),
            Some(_) => Err(eio(IoOp::Write, off)),
        }
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

    fn submit(&self, req: IoRequest) {
        let (op, off) = (req.payload.op(), req.offset);
        let Some(fault) = self.judge(op, off, req.payload.len()) else {
            return self.inner.submit(req);
        };
        let result = match &req.payload {
            IoPayload::Write { segs, .. } => {
                let whole: Vec<u8> = segs.iter().flat_map(|s| s.bytes().iter().copied()).collect();
                self.faulty_write(fault, &whole, off)
            }
            IoPayload::Flush if fault == Fault::Lie => Ok(()),
            _ => Err(eio(op, off)),
        };
        req.finish(result);
    }
}

/// Fills a device with a byte that no test writes, so that stale data shows: 1 MiB at a time.
pub fn poison(dev: &dyn BlockDevice, byte: u8) -> Result<()> {
    let chunk = vec![byte; 1 << 20];
    let mut at = 0;
    while at < dev.size() {
        let n = (dev.size() - at).min(chunk.len() as u64);
        dev.write_at(&chunk[..n as usize], at)?;
        at += n;
    }
    Ok(())
}

/// A submitted request's result, waited for: for tests.
pub fn wait_for(dev: &dyn BlockDevice, payload: IoPayload, offset: u64) -> IoResult {
    let (tx, rx) = std::sync::mpsc::channel();
    let done = super::Done::Once(Box::new(move |r| drop(tx.send(r))));
    dev.submit(IoRequest { offset, payload, tag: super::cause::current(), done });
    match rx.recv() {
        Ok(r) => r,
        Err(_) => {
            IoResult { result: Err(eio(IoOp::Read, offset)), offset, payload: IoPayload::Flush }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{AlignedBuf, MemDevice, WriteSeg};
    use smallvec::smallvec;

    fn device() -> (Arc<MemDevice>, FaultDevice) {
        let mem = Arc::new(MemDevice::new(1 << 20));
        (mem.clone(), FaultDevice::new(mem))
    }

    fn is_eio(r: &Result<()>) -> bool {
        matches!(r, Err(Error::Io { source, .. }) if source.raw_os_error() == Some(libc::EIO))
    }

    #[test]
    fn nth_of_each_kind() {
        let (_, d) = device();
        d.add(Rule::nth(IoOp::Write, 2));
        d.add(Rule::nth(IoOp::Flush, 1));
        d.write_at(&[1], 0).unwrap();
        assert!(is_eio(&d.write_at(&[1], 0)));
        d.write_at(&[1], 0).unwrap();
        assert!(is_eio(&d.flush()));
        d.flush().unwrap();
        let mut b = [0];
        d.read_at(&mut b, 0).unwrap();
        assert_eq!(d.counts(), Counts { reads: 1, writes: 3, flushes: 2, faults: 2 });
    }

    #[test]
    fn torn_in_every_form() {
        let seg = || WriteSeg::whole(Arc::new(AlignedBuf::copy_of(&[7; 1024])));
        type Writer<'a> = &'a dyn Fn(&FaultDevice) -> Result<()>;
        let writes: [Writer<'_>; 3] = [
            &|d| d.write_at(&[7; 2048], 0),
            &|d| {
                d.write_vectored_at(&[io::IoSlice::new(&[7; 100]), io::IoSlice::new(&[7; 1948])], 0)
            },
            &|d| {
                let segs = smallvec![seg(), seg()];
                wait_for(d, IoPayload::Write { segs, fua: false }, 0).result
            },
        ];
        for w in writes {
            let (mem, d) = device();
            d.add(Rule::tear(1, 1536).then_dead());
            assert!(is_eio(&w(&d)));
            let mut got = [0; 2048];
            mem.read_at(&mut got, 0).unwrap();
            assert!(got[..1536].iter().all(|&b| b == 7) && got[1536..].iter().all(|&b| b == 0));
            assert!(is_eio(&d.read_at(&mut got, 0)) && is_eio(&d.flush()), "dead");
            d.reset();
            d.read_at(&mut got, 0).unwrap();
        }
    }

    #[test]
    fn bad_sectors_and_lies() {
        let (mem, d) = device();
        d.add(Rule::range(IoOp::Read, 4096..4608));
        let mut b = [0; 512];
        d.read_at(&mut b, 3584).unwrap();
        assert!(is_eio(&d.read_at(&mut b, 3585)));
        d.read_at(&mut b, 4608).unwrap();
        d.add(Rule { op: IoOp::Write, when: When::From(1), fault: Fault::Lie, then_dead: false });
        d.write_at(&[9; 512], 0).unwrap();
        mem.read_at(&mut b, 0).unwrap();
        assert_eq!(b, [0; 512]);
    }

    #[test]
    fn poison_fills() {
        let mem = MemDevice::new((1 << 20) + 77);
        poison(&mem, 0xee).unwrap();
        let mut b = [0; 77];
        mem.read_at(&mut b, 1 << 20).unwrap();
        assert_eq!(b, [0xee; 77]);
    }
}
