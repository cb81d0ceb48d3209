//! How submitted requests reach an open file: in the calling thread, by a pool of threads, or through
//! io_uring. One is chosen at mount (`-o io_engine=`); only [`super::FileDevice`] calls them.
//!
//! Invariants: each request's completion is called once; dropping an engine waits for what is in
//! flight; a completion may submit again, and may drop the last reference to the device.

mod threads;
mod uring;

use super::raw::RawFile;
use super::{IoRequest, run_in_place};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Which engine serves submitted requests.
pub use crate::options::EngineName as IoEngine;

/// An engine at work on one file.
pub(super) trait Engine: Send + Sync {
    /// Starts a request.
    fn submit(&self, req: IoRequest);
    /// Which one it is.
    fn kind(&self) -> IoEngine;
}

/// Starts the engine asked for, or the next best.
pub(super) fn start(raw: &Arc<RawFile>, wanted: IoEngine) -> Box<dyn Engine> {
    match wanted {
        IoEngine::Sync => Box::new(InPlace(Arc::clone(raw))),
        IoEngine::Threads => Box::new(threads::Pool::new(raw)),
        IoEngine::Auto | IoEngine::IoUring => match uring::Uring::new(raw) {
            Ok(ring) => Box::new(ring),
            Err(e) => {
                log::warn!("io_uring is not to be had ({e}): using the threads engine");
                Box::new(threads::Pool::new(raw))
            }
        },
    }
}

struct InPlace(Arc<RawFile>);

impl Engine for InPlace {
    fn submit(&self, req: IoRequest) {
        run_in_place(&*self.0, req);
    }
    fn kind(&self) -> IoEngine {
        IoEngine::Sync
    }
}

/// Waits for a thread of ours, unless we *are* that thread: the last reference to a device may go
/// away in one of its own completions.
fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != std::thread::current().id() {
        // A panic in it was reported, and aborts a release build.
        drop(thread.join());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{
        AlignedBuf, Backing, BlockDevice, BufPart, FileDevice, IoPayload, OpenHow, ReadBuf,
        WriteSeg,
    };
    use smallvec::SmallVec;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;

    const SIZE: u64 = 1 << 20;

    fn every(f: impl Fn(OpenHow)) {
        for engine in [IoEngine::Sync, IoEngine::Threads, IoEngine::IoUring] {
            for backing in [Backing::Buffered, Backing::Direct] {
                f(OpenHow { backing, engine, ..OpenHow::default() });
            }
        }
    }

    fn image(size: u64) -> tempfile::NamedTempFile {
        let f = tempfile::NamedTempFile::new().unwrap();
        f.as_file().set_len(size).unwrap();
        f
    }

    fn seg(byte: u8, len: usize) -> WriteSeg {
        let mut b = AlignedBuf::for_overwrite(len);
        b.fill(byte);
        WriteSeg::whole(Arc::new(b))
    }

    #[test]
    fn this_kernel_has_io_uring() {
        let f = image(SIZE);
        let d = FileDevice::open(f.path(), OpenHow::default()).unwrap();
        assert_eq!(d.engine(), IoEngine::IoUring);
    }

    #[test]
    fn many_at_once_from_many_threads() {
        every(|how| {
            let f = image(SIZE);
            let d = FileDevice::open(f.path(), how).unwrap();
            let (tx, rx) = mpsc::channel();
            std::thread::scope(|s| {
                for t in 0..4u64 {
                    let (d, tx) = (&d, tx.clone());
                    s.spawn(move || {
                        for i in (t..256).step_by(4) {
                            let tx = tx.clone();
                            let segs = [seg(i as u8, 1024), seg(!i as u8, 3072)];
                            d.submit(IoRequest::write(segs, i * 4096, move |r| {
                                tx.send(r).unwrap()
                            }));
                        }
                    });
                }
            });
            drop(tx);
            assert_eq!(rx.iter().map(|r| r.result.unwrap()).count(), 256, "{how:?}");
            let (tx, rx) = mpsc::channel();
            for i in 0..256u64 {
                let tx = tx.clone();
                let parts = AlignedBuf::zeroed(4096).into_parts(&[1024, 1024, 2048]).unwrap();
                let bufs: SmallVec<_> = parts.into_iter().map(ReadBuf::Part).collect();
                let req = IoRequest::read(AlignedBuf::zeroed(0), i * 4096, move |r| {
                    tx.send(r).unwrap();
                });
                d.submit(IoRequest { payload: IoPayload::Read(bufs), ..req });
            }
            drop(tx);
            let mut seen = 0;
            for r in rx {
                r.result.unwrap();
                let IoPayload::Read(bufs) = r.payload else { panic!() };
                let whole = BufPart::join(bufs.into_iter().map(|b| match b {
                    ReadBuf::Part(p) => p,
                    ReadBuf::Whole(_) => panic!(),
                }));
                let whole = whole.unwrap();
                let i = (r.offset / 4096) as u8;
                assert!(whole[..1024].iter().all(|&b| b == i), "{how:?} {i}");
                assert!(whole[1024..].iter().all(|&b| b == !i), "{how:?} {i}");
                seen += 1;
            }
            assert_eq!(seen, 256);
        });
    }

    #[test]
    fn unaligned_flush_fua_and_errors() {
        every(|how| {
            let f = image(SIZE);
            let d = FileDevice::open(f.path(), how).unwrap();
            let run = |payload, offset| crate::device::fault::wait_for(&d, payload, offset);
            let write = |segs: Vec<WriteSeg>, fua| IoPayload::Write { segs: segs.into(), fua };
            run(write(vec![seg(5, 100)], false), 1001).result.unwrap();
            run(write(vec![seg(6, 4096), seg(7, 4096)], true), 8192).result.unwrap();
            run(write(vec![seg(8, 10)], true), 7).result.unwrap();
            run(IoPayload::Flush, 0).result.unwrap();
            let many: Vec<_> = (0..1500).map(|i| seg(i as u8, 512)).collect();
            let whole = AlignedBuf::for_overwrite(512);
            drop(whole);
            if how.backing == Backing::Buffered || d.logical_block_size() == 512 {
                run(write(many, false), 65536).result.unwrap();
                let mut b = vec![0; 1500 * 512];
                d.read_at(&mut b, 65536).unwrap();
                assert!(b.chunks(512).enumerate().all(|(i, c)| c.iter().all(|&x| x == i as u8)));
            }
            let mut b = vec![0; 16384];
            d.read_at(&mut b, 0).unwrap();
            let mut want = vec![0; 16384];
            want[1001..1101].fill(5);
            want[8192..12288].fill(6);
            want[12288..].fill(7);
            want[7..17].fill(8);
            assert_eq!(b, want, "{how:?}");
            let read = |n| IoPayload::Read(SmallVec::from_iter([AlignedBuf::zeroed(n).into()]));
            assert!(run(read(4096), SIZE).result.is_err());
            assert!(run(read(4096), u64::MAX - 4095).result.is_err());
            assert!(run(write(vec![seg(1, 4096)], false), SIZE - 512).result.is_err());
            run(read(0), 0).result.unwrap();
            // The file shrinks under us: an error, not a hang.
            f.as_file().set_len(SIZE / 2).unwrap();
            assert!(run(read(8192), SIZE / 2 - 4096).result.is_err(), "{how:?}");
        });
    }

    #[test]
    fn read_only_device() {
        every(|how| {
            let f = image(SIZE);
            let how = OpenHow { read_only: true, ..how };
            let d = FileDevice::open(f.path(), how).unwrap();
            let segs = SmallVec::from_iter([seg(1, 4096)]);
            let r = crate::device::fault::wait_for(&d, IoPayload::Write { segs, fua: false }, 0);
            assert!(matches!(r.result, Err(crate::error::Error::ReadOnly)), "{how:?}");
        });
    }

    #[test]
    fn completions_chain_and_drop_waits() {
        fn again(d: &Arc<FileDevice>, left: usize, count: &Arc<AtomicUsize>) {
            let (me, count) = (Arc::clone(d), Arc::clone(count));
            d.submit(IoRequest::read(AlignedBuf::zeroed(4096), 0, move |r| {
                r.result.unwrap();
                count.fetch_add(1, SeqCst);
                if left > 1 {
                    again(&me, left - 1, &count);
                }
            }));
        }
        every(|how| {
            let f = image(SIZE);
            let count = Arc::new(AtomicUsize::new(0));
            let d = Arc::new(FileDevice::open(f.path(), how).unwrap());
            for _ in 0..4 {
                again(&d, 20, &count);
            }
            // The last reference goes away in a completion.
            let weak = Arc::downgrade(&d);
            drop(d);
            let mut tries = 0;
            while weak.strong_count() > 0 || count.load(SeqCst) < 80 {
                std::thread::sleep(std::time::Duration::from_millis(1));
                tries += 1;
                assert!(tries < 5000, "{how:?}: {}", count.load(SeqCst));
            }
            // Or while requests are in flight.
            let mut tries = 0;
            let d = loop {
                match FileDevice::open(f.path(), how) {
                    Ok(d) => break d,
                    Err(_) if tries < 1000 => {
                        std::thread::sleep(std::time::Duration::from_millis(1))
                    }
                    Err(e) => panic!("{e}"),
                }
                tries += 1;
            };
            let count = Arc::new(AtomicUsize::new(0));
            for i in 0..3000u64 {
                let count = Arc::clone(&count);
                d.submit(IoRequest::write([seg(1, 4096)], i % 256 * 4096, move |r| {
                    r.result.unwrap();
                    count.fetch_add(1, SeqCst);
                }));
            }
            drop(d);
            assert_eq!(count.load(SeqCst), 3000, "{how:?}");
        });
    }
}
