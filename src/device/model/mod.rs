//! The disk model: real data on the real device, at the speed of another one.
//!
//! [`Sim`] is the timing model, pure: arrival times in, completion times out. [`ModelDevice`] wraps any
//! device: a request goes to the device at once *and* into the model; its completion is passed on when
//! both say that it is done. With a scale above 1 the model's clock runs faster than life.
//!
//! Invariants: a completion is never early by the model's clock; the timer thread calls completions
//! with no lock held; dropping the device waits for what is in flight.

pub mod layout;
pub mod presets;
pub mod sim;
pub mod unit;

pub use sim::{Sim, Time, UnitCounts};

use super::{BlockDevice, Done, IoOp, IoPayload, IoRequest, IoResult, check_range};
use crate::error::Result;
use layout::Layout;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use unit::UnitSpec;

/// An array: what of, in which layout, behind what.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spec {
    /// How bytes are spread.
    pub layout: Layout,
    /// What over.
    pub unit: UnitSpec,
    /// Bytes per second that the host's link carries.
    pub link_rate: u64,
    /// Cost of a flush, or of a FUA write beside the write, in nanoseconds. The disks have no write
    /// cache: what completed is on the medium.
    pub flush: Time,
}

/// A submitted request: done when the model and the device are.
struct Pair {
    timed_out: bool,
    real: Option<(Done, IoResult)>,
}

enum Waiting {
    /// A thread in a synchronous call.
    Thread(Thread, Arc<AtomicBool>),
    Request(Arc<Mutex<Pair>>),
}

struct State {
    sim: Sim,
    waiting: HashMap<u64, Waiting>,
    /// What the timer thread sleeps until.
    sleeps_until: Option<Time>,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    born: Instant,
    /// Model nanoseconds per real one.
    scale: f64,
}

/// Wraps a device and delays its completions as an array would.
pub struct ModelDevice {
    inner: Arc<dyn BlockDevice>,
    shared: Arc<Shared>,
    timer: Option<JoinHandle<()>>,
}

impl Shared {
    fn now(&self) -> Time {
        (self.born.elapsed().as_nanos() as f64 * self.scale) as Time
    }

    fn instant(&self, t: Time) -> Instant {
        self.born + Duration::from_nanos((t as f64 / self.scale) as u64 + 1)
    }

    fn submit(&self, op: IoOp, off: u64, len: u64, fua: bool, who: Waiting) {
        let mut s = self.state.lock();
        // Under the lock, so that the model's time does not go backwards.
        let now = self.now();
        let id = s.sim.submit(now, op, off, len, fua);
        s.waiting.insert(id, who);
        let next = s.sim.next_event();
        if s.sleeps_until.is_none() || next < s.sleeps_until {
            self.changed.notify_one();
        }
    }

    fn run_timer(&self) {
        short_timer_slack();
        let mut done = Vec::new();
        let mut due = Vec::new();
        let mut s = self.state.lock();
        loop {
            let now = self.now();
            s.sim.advance(now, &mut done);
            if !done.is_empty() {
                due.extend(done.drain(..).filter_map(|(id, _)| s.waiting.remove(&id)));
                drop(s);
                due.drain(..).for_each(Waiting::end);
                s = self.state.lock();
                continue;
            }
            s.sleeps_until = s.sim.next_event();
            match s.sleeps_until {
                None if s.stop => return,
                None => self.changed.wait(&mut s),
                Some(t) => drop(self.changed.wait_until(&mut s, self.instant(t))),
            }
        }
    }
}

impl Waiting {
    fn end(self) {
        match self {
            Waiting::Thread(t, flag) => {
                flag.store(true, Release);
                t.unpark();
            }
            Waiting::Request(pair) => {
                let mut p = pair.lock();
                p.timed_out = true;
                let real = p.real.take();
                drop(p);
                if let Some((done, r)) = real {
                    done.call(r);
                }
            }
        }
    }
}

/// Lets this thread sleep to the microsecond: the kernel's default slack is 50 of them.
fn short_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong) };
}

impl ModelDevice {
    /// `inner` as an array of this kind, `scale` times faster than life; it stands for the whole of the
    /// array. `scale` must be positive.
    pub fn new(inner: Arc<dyn BlockDevice>, spec: Spec, scale: f64, seed: u64) -> ModelDevice {
        let sim = Sim::new(spec, inner.size(), seed);
        let state = State { sim, waiting: HashMap::new(), sleeps_until: None, stop: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            born: Instant::now(),
            scale: if scale > 0.0 { scale } else { 1.0 },
        });
        let mine = Arc::clone(&shared);
        let timer =
            std::thread::Builder::new().name("uext4-model".into()).spawn(move || mine.run_timer());
        let timer = match timer {
            Ok(t) => Some(t),
            Err(e) => panic!("cannot start the disk model's thread: {e}"),
        };
        ModelDevice { inner, shared, timer }
    }

    /// What each disk of the array did so far.
    pub fn counts(&self) -> Vec<UnitCounts> {
        self.shared.state.lock().sim.counts()
    }

    /// A synchronous call: it returns when the device and the model are done.
    fn timed<R>(
        &self,
        op: IoOp,
        off: u64,
        len: u64,
        fua: bool,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let flag = Arc::new(AtomicBool::new(false));
        let who = Waiting::Thread(std::thread::current(), Arc::clone(&flag));
        self.shared.submit(op, off, len, fua, who);
        let r = call();
        while !flag.load(Acquire) {
            std::thread::park();
        }
        r
    }
}

fn total<'a>(bufs: impl Iterator<Item = &'a [u8]>) -> u64 {
    bufs.map(|b| b.len() as u64).sum()
}

impl BlockDevice for ModelDevice {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()> {
        let len = buf.len() as u64;
        check_range("read", off, len, self.size())?;
        self.timed(IoOp::Read, off, len, false, || self.inner.read_at(buf, off))
    }

    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        let len = buf.len() as u64;
        check_range("write", off, len, self.size())?;
        self.timed(IoOp::Write, off, len, false, || self.inner.write_at(buf, off))
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], off: u64) -> Result<()> {
        let len = total(bufs.iter().map(|b| &**b));
        check_range("read", off, len, self.size())?;
        self.timed(IoOp::Read, off, len, false, || self.inner.read_vectored_at(bufs, off))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], off: u64) -> Result<()> {
        let len = total(bufs.iter().map(|b| &**b));
        check_range("write", off, len, self.size())?;
        self.timed(IoOp::Write, off, len, false, || self.inner.write_vectored_at(bufs, off))
    }

    fn write_vectored_fua(&self, bufs: &[IoSlice<'_>], off: u64) -> Result<()> {
        let len = total(bufs.iter().map(|b| &**b));
        check_range("write", off, len, self.size())?;
        self.timed(IoOp::Write, off, len, true, || self.inner.write_vectored_fua(bufs, off))
    }

    fn flush(&self) -> Result<()> {
        self.timed(IoOp::Flush, 0, 0, false, || self.inner.flush())
    }

    fn write_fua(&self, buf: &[u8], off: u64) -> Result<()> {
        let len = buf.len() as u64;
        check_range("write", off, len, self.size())?;
        self.timed(IoOp::Write, off, len, true, || self.inner.write_fua(buf, off))
    }

    fn discard(&self, off: u64, len: u64) -> Result<()> {
        self.inner.discard(off, len)
    }

    fn write_zeroes(&self, off: u64, len: u64) -> Result<()> {
        check_range("write", off, len, self.size())?;
        self.timed(IoOp::Write, off, len, false, || self.inner.write_zeroes(off, len))
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
        let (op, len) = (req.payload.op(), req.payload.len());
        if let Err(e) = check_range("request", req.offset, len, self.size()) {
            return req.finish(Err(e));
        }
        let fua = matches!(req.payload, IoPayload::Write { fua: true, .. });
        let pair = Arc::new(Mutex::new(Pair { timed_out: false, real: None }));
        self.shared.submit(op, req.offset, len, fua, Waiting::Request(Arc::clone(&pair)));
        let done = req.done;
        req.done = Done::Once(Box::new(move |r| {
            let mut p = pair.lock();
            if p.timed_out {
                drop(p);
                done.call(r);
            } else {
                p.real = Some((done, r));
            }
        }));
        self.inner.submit(req);
    }
}

impl Drop for ModelDevice {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_one();
        if let Some(t) = self.timer.take()
            && t.thread().id() != std::thread::current().id()
        {
            drop(t.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{AlignedBuf, MemDevice, WriteSeg};
    use std::sync::mpsc;

    /// One channel that takes 10 ms for anything, a link that carries all.
    fn slow() -> Spec {
        let f = unit::FlashSpec { read: 10_000_000, write: 10_000_000, rate: u64::MAX };
        Spec { layout: Layout::Single, unit: UnitSpec::Flash(f), link_rate: u64::MAX, flush: 0 }
    }

    fn device(scale: f64) -> ModelDevice {
        ModelDevice::new(Arc::new(MemDevice::new(1 << 20)), slow(), scale, 1)
    }

    #[test]
    fn synchronous_calls_take_the_modelled_time() {
        let d = device(1.0);
        let t = Instant::now();
        d.write_at(&[7; 4096], 0).unwrap();
        let mut b = [0; 4096];
        d.read_at(&mut b, 0).unwrap();
        d.flush().unwrap();
        let t = t.elapsed();
        assert_eq!(b, [7; 4096]);
        assert!(t >= Duration::from_millis(20), "{t:?}");
        assert!(d.read_at(&mut b, 1 << 20).is_err());
    }

    #[test]
    fn submitted_requests_queue_and_the_scale_shortens() {
        let d = device(10.0);
        let t = Instant::now();
        let (tx, rx) = mpsc::channel();
        for i in 0..8u64 {
            let tx = tx.clone();
            let seg = WriteSeg::whole(Arc::new(AlignedBuf::copy_of(&[i as u8; 512])));
            d.submit(IoRequest::write([seg], i * 512, move |r| {
                tx.send((r.offset / 512, t.elapsed())).unwrap();
                r.result.unwrap();
            }));
        }
        let submitted = t.elapsed();
        let got: Vec<_> = (0..8).map(|_| rx.recv().unwrap()).collect();
        assert_eq!(got.iter().map(|g| g.0).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        for (i, (_, at)) in got.iter().enumerate() {
            assert!(*at >= Duration::from_millis(i as u64 + 1), "{i}: {at:?}");
        }
        assert!(submitted < got[7].1, "submission does not wait");
        assert_eq!(d.counts()[0].writes, 8);
    }

    #[test]
    fn completions_are_on_time() {
        let d = device(10.0);
        let mut late: Vec<Duration> = (0..50)
            .map(|_| {
                let t = Instant::now();
                d.write_at(&[1; 512], 0).unwrap();
                t.elapsed() - Duration::from_millis(1)
            })
            .collect();
        late.sort_unstable();
        // The median: other tests share the processors.
        assert!(late[25] < Duration::from_micros(900), "{late:?}");
    }

    #[test]
    fn dropping_waits_for_requests_in_flight() {
        let d = device(1.0);
        let (tx, rx) = mpsc::channel();
        d.submit(IoRequest::read(AlignedBuf::zeroed(512), 0, move |r| tx.send(r).unwrap()));
        drop(d);
        rx.try_recv().expect("completed before drop returned").result.unwrap();
    }
}
