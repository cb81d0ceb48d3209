//! Random handles against a model, crashes with any subset of what was not flushed, and devices that
//! fail.

use super::image::{log_map, mkfs, open_log, recover};
use crate::device::{BlockDevice, FaultDevice, IoOp, MemDevice, fault::Rule};
use crate::error::Result;
use crate::journal::{Journal, JournalOptions};
use crate::ondisk::Seal;
use crate::types::Block;
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const BS: u64 = 1024;
const FREE: u64 = 12_000;
const POOL: u64 = 60;
/// Written by every transaction: says which one a recovered disk is at.
const MARKER: u64 = FREE + POOL;

static IMAGE: LazyLock<MemDevice> =
    LazyLock::new(|| mkfs(16, &["-b", "1024", "-J", "size=1", "-E", "lazy_itable_init=0"]));

fn quiet(async_commit: bool) -> JournalOptions {
    let commit_interval = Duration::from_secs(3600);
    JournalOptions { commit_interval, async_commit, ..JournalOptions::default() }
}

enum Op {
    Write { off: u64, data: Vec<u8>, fua: bool },
    Flush,
}

/// Logs what reaches the device, in order.
struct Logged {
    dev: MemDevice,
    ops: Mutex<Vec<Op>>,
}

impl Logged {
    fn now(&self) -> usize {
        self.ops.lock().len()
    }

    fn write(&self, buf: &[u8], off: u64, fua: bool) -> Result<()> {
        self.ops.lock().push(Op::Write { off, data: buf.to_vec(), fua });
        self.dev.write_at(buf, off)
    }

    /// The disk after a crash before operation `n`: what was flushed, and of the rest what `keep` says.
    fn crash(&self, base: &MemDevice, n: usize, mut keep: impl FnMut() -> bool) -> MemDevice {
        let ops = self.ops.lock();
        let disk = base.snapshot();
        let flushed = ops[..n].iter().rposition(|o| matches!(o, Op::Flush)).unwrap_or(0);
        for (i, op) in ops[..n].iter().enumerate() {
            if let Op::Write { off, data, fua } = op
                && (i < flushed || *fua || keep())
            {
                disk.write_at(data, *off).unwrap();
            }
        }
        disk
    }

    /// Whether operation `i` is stable at a crash before operation `n`.
    fn stable(&self, i: usize, n: usize) -> bool {
        self.ops.lock()[i..n].iter().any(|o| matches!(o, Op::Flush))
    }
}

impl BlockDevice for Logged {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()> {
        self.dev.read_at(buf, off)
    }
    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        self.write(buf, off, false)
    }
    fn write_fua(&self, buf: &[u8], off: u64) -> Result<()> {
        self.write(buf, off, true)
    }
    fn flush(&self) -> Result<()> {
        self.ops.lock().push(Op::Flush);
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn size(&self) -> u64 {
        self.dev.size()
    }
}

fn value(dev: &dyn BlockDevice, block: u64) -> u32 {
    let mut b = [0; 4];
    dev.read_at(&mut b, block * BS).unwrap();
    u32::from_be_bytes(b)
}

/// What a transaction does, or what happens between two.
#[derive(Clone, Debug)]
enum Step {
    Create(u64),
    Forget(u64),
    /// File data written to a block that is free.
    Data(u64),
    Commit,
    Checkpoint,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..POOL).prop_map(Step::Create),
        3 => (0..POOL).prop_map(Step::Forget),
        3 => (0..POOL).prop_map(Step::Data),
        2 => Just(Step::Commit),
        1 => Just(Step::Checkpoint),
    ];
    proptest::collection::vec(step, 50..400)
}

/// A committed state.
struct Committed {
    /// Device operations when it was acknowledged.
    acked: usize,
    /// Blocks that are metadata, and their values.
    meta: BTreeMap<u64, u32>,
    /// For the others: device operations when the transaction that freed them was acknowledged.
    freed: BTreeMap<u64, usize>,
}

struct Run {
    dev: Arc<Logged>,
    journal: Arc<Journal>,
    states: Vec<Committed>,
    meta: BTreeMap<u64, u32>,
    freed_now: Vec<u64>,
    /// Block, device operation and value of each data write.
    data: Vec<(u64, usize, u32)>,
    next: u32,
}

impl Run {
    fn new(async_commit: bool) -> Run {
        let dev = Arc::new(Logged { dev: IMAGE.snapshot(), ops: Mutex::default() });
        let (journal, _) = open_log(dev.clone(), quiet(async_commit));
        let start = Committed { acked: 0, meta: BTreeMap::new(), freed: BTreeMap::new() };
        Run {
            dev,
            journal,
            states: vec![start],
            meta: BTreeMap::new(),
            freed_now: Vec::new(),
            data: Vec::new(),
            next: 1,
        }
    }

    fn create(&mut self, block: u64, v: u32) {
        let mut h = self.journal.start("create", 1).unwrap();
        h.create(Block(FREE + block), &Seal::None, |d| {
            d.chunks_exact_mut(4).for_each(|c| c.copy_from_slice(&v.to_be_bytes()));
        })
        .unwrap();
    }

    fn step(&mut self, s: &Step) {
        self.next += 1;
        let v = 0x0100_0000 + self.next;
        match *s {
            Step::Create(b) => {
                // Freed in this transaction: not to be had before it commits.
                if !self.freed_now.contains(&b) {
                    self.create(b, v);
                    self.meta.insert(b, v);
                }
            }
            Step::Forget(b) => {
                if self.meta.remove(&b).is_some() {
                    let mut h = self.journal.start("forget", 1).unwrap();
                    h.forget(Block(FREE + b)).unwrap();
                    self.freed_now.push(b);
                }
            }
            Step::Data(b) => {
                if !self.meta.contains_key(&b) && !self.freed_now.contains(&b) {
                    let at = self.dev.now();
                    let bytes = v.to_be_bytes().repeat(BS as usize / 4);
                    self.dev.write_at(&bytes, (FREE + b) * BS).unwrap();
                    self.data.push((b, at, v));
                }
            }
            Step::Commit => self.commit(),
            Step::Checkpoint => self.journal.checkpoint_all().unwrap(),
        }
    }

    fn commit(&mut self) {
        let mark = self.states.len() as u32;
        self.create(POOL, mark);
        self.journal.commit_all().unwrap();
        let acked = self.dev.now();
        let mut freed = self.states.last().unwrap().freed.clone();
        for b in self.freed_now.drain(..) {
            freed.insert(b, acked);
        }
        freed.retain(|b, _| !self.meta.contains_key(b));
        self.states.push(Committed { acked, meta: self.meta.clone(), freed });
    }

    /// A crash before operation `n` leaves a committed state, and data that was stable.
    fn check(&self, n: usize, keep: impl FnMut() -> bool) {
        let disk = Arc::new(self.dev.crash(&IMAGE, n, keep));
        recover(disk.clone());
        let k = value(&*disk, MARKER) as usize;
        let least = self.states.iter().rposition(|s| s.acked <= n).unwrap();
        assert!(k >= least && k < self.states.len(), "crash at {n}: state {k}, {least} was acked");
        let state = &self.states[k];
        for (b, v) in &state.meta {
            let got = value(&*disk, FREE + b);
            assert_eq!(got, *v, "crash at {n}, state {k}, metadata block {b}");
        }
        for b in (0..POOL).filter(|b| !state.meta.contains_key(b)) {
            let since = state.freed.get(&b).copied().unwrap_or(0);
            let writes: Vec<_> =
                self.data.iter().filter(|d| d.0 == b && d.1 >= since && d.1 < n).collect();
            if let Some(i) = writes.iter().rposition(|d| self.dev.stable(d.1, n)) {
                let got = value(&*disk, FREE + b);
                let fine = writes[i..].iter().any(|d| d.2 == got);
                assert!(fine, "crash at {n}, state {k}, data block {b}: {got:#x}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_crash_leaves_a_committed_state(steps in steps(), seed: u64, async_commit: bool) {
        let mut run = Run::new(async_commit);
        for s in &steps {
            run.step(s);
        }
        run.commit();
        let mut state = seed | 1;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let ops = run.dev.now();
        for _ in 0..60 {
            let n = (random() % (ops as u64 + 1)) as usize;
            run.check(n, || random() & 1 == 0);
        }
        run.check(ops, || false);
        run.journal.close().unwrap();
    }
}

#[test]
fn a_device_that_dies_wakes_everybody_and_loses_nothing_acknowledged() {
    for nth in 1..60 {
        let mem = Arc::new(IMAGE.snapshot());
        let dev = Arc::new(FaultDevice::new(mem.clone() as Arc<dyn BlockDevice>));
        let (j, _) = open_log(dev.clone(), quiet(false));
        dev.reset();
        let op = if nth % 3 == 0 { IoOp::Flush } else { IoOp::Write };
        dev.add(Rule::nth(op, nth / 2 + 1).then_dead());
        let mut acked = 0;
        for i in 1..=40u32 {
            let Ok(mut h) = j.start("fill", 60) else { break };
            for b in 0..50u64 {
                let r = h.create(Block(FREE + (b * 7 + u64::from(i)) % 400), &Seal::None, |_| ());
                if r.is_err() {
                    break;
                }
            }
            let r = h.create(Block(MARKER + 1000), &Seal::None, |d| {
                d[..4].copy_from_slice(&i.to_be_bytes());
            });
            let tid = h.tid();
            drop(h);
            if r.is_err() || j.wait_commit_flush(tid).is_err() {
                break;
            }
            acked = i;
        }
        assert!(j.is_aborted(), "fault {nth} was never met");
        assert!(j.start("late", 1).is_err());
        assert!(j.commit_all().is_err() && j.checkpoint_all().is_err() && j.close().is_err());
        let disk = Arc::new(mem.snapshot());
        recover(disk.clone());
        let got = value(&*disk, MARKER + 1000);
        assert!(got >= acked, "fault {nth}: {got} after {acked} was acknowledged");
    }
}

#[test]
fn an_abort_is_recorded_in_both_superblocks() {
    let mem = Arc::new(IMAGE.snapshot());
    let dev = Arc::new(FaultDevice::new(mem.clone() as Arc<dyn BlockDevice>));
    let (j, _) = open_log(dev.clone(), quiet(false));
    let head = log_map(mem.clone()).locate(5).unwrap().0;
    dev.add(Rule::range(IoOp::Write, head.0 * BS..head.0 * BS + 1));
    let mut h = j.start("fill", 60).unwrap();
    for b in 0..50 {
        h.create(Block(FREE + b), &Seal::None, |_| ()).unwrap();
    }
    let tid = h.tid();
    drop(h);
    assert!(j.wait_commit(tid).is_err());
    let sb = super::image::superblock(&*mem);
    let (first, last) = sb.error_records().unwrap();
    assert_eq!((first.errcode, last.func.as_str()), (2, "journal_abort"));
    assert!(sb.needs_recovery());
    let map = log_map(mem.clone());
    let js =
        crate::ondisk::jbd2::JournalSuper::parse(&map.read(0).unwrap(), map.block_size(), u64::MAX);
    assert_eq!(js.unwrap().errno(), libc::EIO as u32);
}

#[test]
fn after_a_shutdown_nothing_reaches_the_device() {
    let dev = Arc::new(Logged { dev: IMAGE.snapshot(), ops: Mutex::default() });
    let (j, _) = open_log(dev.clone(), quiet(false));
    let mut h = j.start("fill", 2).unwrap();
    h.create(Block(FREE), &Seal::None, |d| d.fill(1)).unwrap();
    drop(h);
    j.commit_all().unwrap();
    let mut h = j.start("fill", 2).unwrap();
    h.create(Block(FREE), &Seal::None, |d| d.fill(2)).unwrap();
    let before = dev.now();
    j.set_emergency_stop();
    drop(h);
    assert!(matches!(j.start("late", 1), Err(crate::error::Error::Shutdown)));
    assert!(j.commit_all().is_err());
    assert!(j.flush().is_err());
    j.abort(&crate::error::Error::NoMemory);
    assert!(j.close().is_err());
    assert_eq!(dev.now(), before);
}
