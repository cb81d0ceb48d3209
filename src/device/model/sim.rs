//! The timing model of an array: requests with their arrival times in, completion times out. Pure: it
//! has no clock; who calls it says what time it is.
//!
//! Each unit serves its transfers in the order of arrival, one at a time. A part of a request that must
//! read before it writes queues its writes when its last read is done.

use super::Spec;
use super::layout::{Part, SubOp};
use super::unit::{Unit, mul_div};
use crate::device::IoOp;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// Nanoseconds of the model's clock.
pub type Time = u64;

struct Queued {
    arrived: Time,
    write: bool,
    op: SubOp,
    /// Which part of which request waits for it.
    request: u64,
    part: usize,
}

struct Queue {
    unit: Unit,
    waiting: VecDeque<Queued>,
    /// The transfer being served and when it ends.
    serving: Option<Queued>,
    free: Time,
    counts: UnitCounts,
}

/// What a unit did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnitCounts {
    /// Transfers from it.
    pub reads: u64,
    /// Transfers to it.
    pub writes: u64,
    /// Time in which it was busy.
    pub busy: Time,
}

struct Active {
    parts: Vec<(Part, usize)>,
    left: usize,
    /// No earlier than this: the host's link carries the bytes, or the cost of a flush.
    not_before: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    UnitDone(u32),
    Complete(u64),
}

/// An array at work.
pub struct Sim {
    spec: Spec,
    queues: Vec<Queue>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    active: HashMap<u64, Active>,
    completed: Vec<(u64, Time)>,
    link_free: Time,
    next_id: u64,
    next_event: u64,
}

impl Sim {
    /// An idle array that stands for a device of `size` bytes (which fills its disks). The seed sets
    /// where each platter is at time 0.
    pub fn new(spec: Spec, size: u64, seed: u64) -> Sim {
        let disk_size = spec.layout.disk_size(size);
        let mut state = seed;
        let queues = (0..spec.layout.disks()).map(|_| Queue {
            unit: Unit::new(spec.unit, disk_size, split_mix(&mut state) >> 32),
            waiting: VecDeque::new(),
            serving: None,
            free: 0,
            counts: UnitCounts::default(),
        });
        Sim {
            spec,
            queues: queues.collect(),
            events: BinaryHeap::new(),
            active: HashMap::new(),
            completed: Vec::new(),
            link_free: 0,
            next_id: 0,
            next_event: 0,
        }
    }

    /// A request arrives; its identity. Times must not go backwards.
    pub fn submit(&mut self, now: Time, op: IoOp, off: u64, len: u64, fua: bool) -> u64 {
        self.run_until(now);
        let id = self.next_id;
        self.next_id += 1;
        let mut not_before = now;
        if op == IoOp::Flush || fua {
            not_before += self.spec.flush;
        }
        if op != IoOp::Flush {
            self.link_free =
                self.link_free.max(now) + mul_div(len, 1_000_000_000, self.spec.link_rate);
            not_before = not_before.max(self.link_free);
        }
        let plan = self.spec.layout.plan(op, off, len);
        if plan.is_empty() {
            self.at(not_before, Event::Complete(id));
        }
        let left = plan.len();
        let parts: Vec<(Part, usize)> = plan
            .into_iter()
            .map(|p| {
                let first = if p.reads.is_empty() { p.writes.len() } else { p.reads.len() };
                (p, first)
            })
            .collect();
        for (i, (p, _)) in parts.iter().enumerate() {
            let write = p.reads.is_empty();
            let ops = if write { p.writes.clone() } else { p.reads.clone() };
            for op in ops {
                self.enqueue(Queued { arrived: now, write, op, request: id, part: i });
            }
        }
        self.active.insert(id, Active { parts, left, not_before });
        id
    }

    /// When something next happens; `None` when the array is idle.
    pub fn next_event(&self) -> Option<Time> {
        if let Some((_, t)) = self.completed.first() {
            return Some(*t);
        }
        self.events.peek().map(|Reverse((t, _, _))| *t)
    }

    /// Time passes; the requests completed since the last call, with their times, are added to `done`.
    pub fn advance(&mut self, now: Time, done: &mut Vec<(u64, Time)>) {
        self.run_until(now);
        done.append(&mut self.completed);
    }

    /// What each unit did so far.
    pub fn counts(&self) -> Vec<UnitCounts> {
        self.queues.iter().map(|q| q.counts).collect()
    }

    fn at(&mut self, t: Time, e: Event) {
        self.events.push(Reverse((t, self.next_event, e)));
        self.next_event += 1;
    }

    fn enqueue(&mut self, mut q: Queued) {
        if !q.write && self.spec.layout.mirrored() {
            q.op.disk = self.better_mirror(q.op);
        }
        let disk = q.op.disk;
        let (now, Some(queue)) = (q.arrived, self.queues.get_mut(disk as usize)) else { return };
        queue.waiting.push_back(q);
        self.start(disk, now);
    }

    /// The mirror with fewer transfers before it, or else the nearer head.
    fn better_mirror(&self, op: SubOp) -> u32 {
        let cost = |disk: u32| {
            self.queues.get(disk as usize).map(|q| {
                let before = q.waiting.len() + usize::from(q.serving.is_some());
                (before, q.unit.distance(op.at))
            })
        };
        if cost(op.disk + 1) < cost(op.disk) { op.disk + 1 } else { op.disk }
    }

    /// Starts the next transfer of an idle unit.
    fn start(&mut self, disk: u32, now: Time) {
        let q = &mut self.queues[disk as usize];
        if q.serving.is_some() {
            return;
        }
        let Some(next) = q.waiting.pop_front() else { return };
        let end = q.unit.serve(next.arrived, q.free, next.write, next.op);
        q.counts.busy += end - q.free.max(next.arrived).min(end);
        if next.write {
            q.counts.writes += 1;
        } else {
            q.counts.reads += 1;
        }
        q.free = end;
        q.serving = Some(next);
        debug_assert!(end >= now);
        self.at(end, Event::UnitDone(disk));
    }

    fn run_until(&mut self, now: Time) {
        while let Some(&Reverse((t, _, event))) = self.events.peek() {
            if t > now {
                return;
            }
            self.events.pop();
            match event {
                Event::Complete(id) => {
                    self.active.remove(&id);
                    self.completed.push((id, t));
                }
                Event::UnitDone(disk) => {
                    let done = self.queues[disk as usize].serving.take();
                    if let Some(done) = done {
                        self.transferred(t, &done);
                    }
                    self.start(disk, t);
                }
            }
        }
    }

    fn transferred(&mut self, now: Time, q: &Queued) {
        let Some(a) = self.active.get_mut(&q.request) else { return };
        let Some((part, left)) = a.parts.get_mut(q.part) else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        if !q.write && !part.writes.is_empty() {
            *left = part.writes.len();
            for op in part.writes.clone() {
                let (request, part) = (q.request, q.part);
                self.enqueue(Queued { arrived: now, write: true, op, request, part });
            }
            return;
        }
        a.left -= 1;
        if a.left == 0 {
            let t = now.max(a.not_before);
            self.at(t, Event::Complete(q.request));
        }
    }
}

/// The next number of the splitmix64 generator.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use super::super::unit::UnitSpec;
    use super::*;

    const MS: f64 = 1e6;

    /// Runs requests one after the other; the mean time of one in nanoseconds.
    fn one_by_one(sim: &mut Sim, reqs: impl Iterator<Item = (IoOp, u64, u64)>) -> f64 {
        let (mut now, mut n) = (0, 0);
        for (op, off, len) in reqs {
            let id = sim.submit(now, op, off, len, false);
            let mut done = Vec::new();
            while done.is_empty() {
                now = sim.next_event().unwrap();
                sim.advance(now, &mut done);
            }
            assert_eq!(done, [(id, now)]);
            n += 1;
        }
        now as f64 / f64::from(n)
    }

    /// All at once; requests per second.
    fn rate(
        sim: &mut Sim,
        depth: usize,
        total: usize,
        mut req: impl FnMut() -> (IoOp, u64, u64),
    ) -> f64 {
        let mut done = Vec::new();
        let (mut now, mut started, mut ended) = (0, 0, 0);
        while ended < total {
            while started - ended < depth && started < total {
                let (op, off, len) = req();
                sim.submit(now, op, off, len, false);
                started += 1;
            }
            now = sim.next_event().unwrap();
            sim.advance(now, &mut done);
            ended += done.len();
            done.clear();
        }
        total as f64 / (now as f64 / 1e9)
    }

    fn random(seed: u64, size: u64, len: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || split_mix(&mut state) % (size / len) * len
    }

    fn disk(spec: &Spec) -> super::super::unit::DiskSpec {
        let UnitSpec::Disk(d) = spec.unit else { panic!() };
        d
    }

    #[test]
    fn random_reads_of_a_disk_take_seek_half_a_turn_and_transfer() {
        let spec = presets::by_name("hdd").unwrap();
        let d = disk(&spec);
        let size = 500 << 30;
        for len in [4096, 65536, 1 << 20] {
            for op in [IoOp::Read, IoOp::Write] {
                let mut at = random(7, size, len);
                let mut sim = Sim::new(spec, size, 1);
                let mean = one_by_one(&mut sim, (0..20_000).map(|_| (op, at(), len)));
                let want = d.overhead + d.mean_seek() + d.turn / 2 + d.transfer(len);
                let off = mean / want as f64;
                assert!((0.985..1.015).contains(&off), "{len}: {mean} ns, not {want}");
            }
        }
    }

    #[test]
    fn sequential_runs_at_the_media_rate() {
        let spec = presets::by_name("hdd").unwrap();
        let d = disk(&spec);
        let mut sim = Sim::new(spec, 500 << 30, 1);
        let mut next = 0;
        let per_second = rate(&mut sim, 4, 2000, || {
            next += 1;
            (IoOp::Write, (next - 1) << 18, 1 << 18)
        });
        let media = d.track as f64 / (d.turn as f64 / 1e9);
        let got = per_second * f64::from(1 << 18);
        assert!((got / media - 1.0).abs() < 0.02, "{got} of {media}");
    }

    #[test]
    fn raid5_partial_stripe_write_costs_a_read_and_a_turn() {
        let spec = presets::by_name("raid5-8").unwrap();
        let d = disk(&spec);
        let size = 2000 << 30;
        let mut at = random(3, size, 4096);
        let mut sim = Sim::new(spec, size, 1);
        let n = 5000;
        let mean = one_by_one(&mut sim, (0..n).map(|_| (IoOp::Write, at(), 4096)));
        let counts = sim.counts();
        assert_eq!(counts.iter().map(|c| c.reads).sum::<u64>(), 2 * n);
        assert_eq!(counts.iter().map(|c| c.writes).sum::<u64>(), 2 * n);
        // The slower of two reads, then each waits for its sector to come round again.
        let one = (d.overhead + d.mean_seek() + d.turn / 2) as f64;
        assert!(mean > one + d.turn as f64 && mean < 2.0 * one + 2.0 * d.turn as f64, "{mean}");
        // A full-stripe write: no reads, one positioning of all the disks.
        let mut sim = Sim::new(spec, size, 1);
        let stripe = (7 * 64) << 10;
        let mut at = random(4, size, stripe);
        let full = one_by_one(&mut sim, (0..500).map(|_| (IoOp::Write, at(), stripe)));
        assert_eq!(sim.counts().iter().map(|c| c.reads).sum::<u64>(), 0);
        assert!(full < mean, "{full} {mean}");
    }

    #[test]
    fn mirrors_share_the_reads() {
        let spec = presets::by_name("raid10-14").unwrap();
        let d = disk(&spec);
        let size = 1000 << 30;
        let mut at = random(5, size, 4096);
        let mut sim = Sim::new(spec, size, 1);
        let iops = rate(&mut sim, 256, 30_000, || (IoOp::Read, at(), 4096));
        let one = 1e9 / (d.mean_seek() + d.turn / 2 + d.transfer(4096)) as f64;
        assert!((0.85..1.05).contains(&(iops / (14.0 * one))), "{iops} of {}", 14.0 * one);
        let counts = sim.counts();
        let (min, max) =
            (counts.iter().map(|c| c.reads).min(), counts.iter().map(|c| c.reads).max());
        assert!(max.unwrap() < min.unwrap() * 5 / 4, "{min:?} {max:?}");
        assert!(counts.iter().all(|c| c.writes == 0));
    }

    #[test]
    fn flash_scales_with_depth_up_to_its_link() {
        let spec = presets::by_name("ssd").unwrap();
        let size = 100 << 30;
        let run = |depth, len| {
            let mut at = random(5, size, len);
            rate(&mut Sim::new(spec, size, 1), depth, 20_000, || (IoOp::Read, at(), len))
        };
        assert!(run(32, 4096) > 5.0 * run(1, 4096));
        let bytes = run(32, 128 << 10) * f64::from(128 << 10);
        assert!(bytes <= spec.link_rate as f64 * 1.001, "{bytes}");
        assert!(bytes > spec.link_rate as f64 * 0.9, "{bytes}");
    }

    #[test]
    fn the_same_seed_gives_the_same_times() {
        let spec = presets::by_name("raid5-8").unwrap();
        let run = |seed| {
            let mut sim = Sim::new(spec, 1 << 40, seed);
            let (mut a, mut done) = (random(9, 1 << 40, 4096), Vec::new());
            for i in 0..1000u64 {
                let op = if i % 3 == 0 { IoOp::Write } else { IoOp::Read };
                sim.submit(i * 1_000_000, op, a(), 4096, false);
            }
            sim.advance(u64::MAX, &mut done);
            assert_eq!(done.len(), 1000);
            done
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn flush_and_empty_requests_complete() {
        let spec = presets::by_name("ssd").unwrap();
        let mut sim = Sim::new(spec, 1 << 30, 1);
        let f = sim.submit(100, IoOp::Flush, 0, 0, false);
        let e = sim.submit(100, IoOp::Read, 0, 0, false);
        let mut done = Vec::new();
        sim.advance(u64::MAX, &mut done);
        done.sort_unstable();
        assert_eq!(done, [(f, 100 + spec.flush), (e, 100)]);
        assert!(sim.next_event().is_none() && spec.flush as f64 <= 10.0 * MS);
    }
}
