//! A recorded run: its log in memory, the instants at which a crash is worth trying, and the disk as it was.

use super::rng::Rng;
use super::state::State;
use crate::device::reclog::{Entry, Kind, LogReader, Pending};
use crate::device::{BlockDevice, MemDevice};
use crate::error::Result;
use std::io;
use std::path::Path;

/// The most writes of which every subset is tried.
const EXHAUSTIVE: usize = 5;
const SECTOR: usize = 512;

/// An instant: just before something becomes stable, when the most is in doubt.
#[derive(Debug, Clone)]
pub struct Point {
    /// Sequence number of the entry that did not happen.
    pub at: u64,
    /// Changes that became stable since the point before, in that order.
    pub settled: Vec<u64>,
    /// Changes in doubt, in order of issue.
    pub pending: Vec<u64>,
}

/// See the module.
pub struct History {
    /// The disk before the first entry.
    pub base: MemDevice,
    /// The log.
    pub entries: Vec<Entry>,
    /// The instants, in order.
    pub points: Vec<Point>,
}

impl History {
    /// Reads a log over the image it began with.
    ///
    /// # Errors
    /// Of reading either; a log of a device of another size.
    pub fn load(log: &Path, image: &Path) -> io::Result<History> {
        History::new(MemDevice::load(image)?, log)
    }

    /// The same with the image in memory.
    ///
    /// # Errors
    /// As [`History::load`].
    pub fn new(base: MemDevice, log: &Path) -> io::Result<History> {
        let reader = LogReader::open(log)?;
        if reader.size() != base.size() {
            let what = format!(
                "the log is of a device of {} bytes, the image has {}",
                reader.size(),
                base.size()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let entries = reader.collect::<io::Result<Vec<Entry>>>()?;
        let points = points(&entries);
        Ok(History { base, entries, points })
    }

    /// The states of a point, at most `most`: everything lost, everything kept, each prefix, one lost,
    /// one kept, then seeded random subsets, some with torn writes. All subsets where they are few.
    pub fn states(&self, point: &Point, most: usize, rng: &mut Rng) -> Vec<State> {
        let p = &point.pending;
        let n = p.len();
        let mut out: Vec<State> = Vec::new();
        let state = |keep: Vec<u64>| State { at: point.at, keep, torn: Vec::new() };
        if n <= EXHAUSTIVE {
            for bits in 0u32..1 << n {
                out.push(state((0..n).filter(|i| bits >> i & 1 != 0).map(|i| p[i]).collect()));
            }
        } else {
            out.push(state(Vec::new()));
            out.push(state(p.clone()));
            let mut single: Vec<State> = Vec::new();
            for i in 0..n {
                single.push(state(p.iter().copied().filter(|s| *s != p[i]).collect()));
                single.push(state(vec![p[i]]));
                single.push(state(p[..i].to_vec()));
            }
            while !single.is_empty() && out.len() < most * 2 / 3 {
                let i = rng.below(single.len() as u64) as usize;
                out.push(single.swap_remove(i));
            }
        }
        shuffle(&mut out, rng);
        let torn = (most / 6).max(1);
        out.truncate(most.saturating_sub(torn).max(1));
        let room = most.saturating_sub(out.len());
        for i in 0..room {
            let odds = 1 + rng.below(4);
            let keep: Vec<u64> = p.iter().copied().filter(|_| rng.below(5) >= odds).collect();
            let mut s = state(keep);
            if i < torn || rng.one_in(4) {
                self.tear(&mut s, p, rng);
            }
            if n > EXHAUSTIVE || !s.torn.is_empty() {
                out.push(s);
            }
        }
        out.sort();
        out.dedup();
        out
    }

    /// Tears one or two of the pending writes.
    fn tear(&self, s: &mut State, pending: &[u64], rng: &mut Rng) {
        for _ in 0..1 + rng.below(2) {
            let Some(&seq) = pending.get(rng.below(pending.len() as u64) as usize) else { return };
            let e = &self.entries[seq as usize];
            let sectors = e.data.len().div_ceil(SECTOR);
            if sectors < 2 || s.torn.iter().any(|t| t.0 == seq) {
                continue;
            }
            // Mostly what a disk does: a prefix of the sectors.
            let mask = if rng.one_in(3) {
                rng.draw()
            } else {
                u64::MAX >> (63 - rng.below(sectors.min(63) as u64))
            };
            let mask = History::whole_super(e, mask);
            if !s.keep.contains(&seq) {
                s.keep.push(seq);
                s.keep.sort_unstable();
            }
            s.torn.push((seq, mask));
        }
    }

    /// The superblock has one checksum over two sectors, and a mount, the kernel's too, takes no backup
    /// unasked: both sectors are kept or lost.
    fn whole_super(e: &Entry, mask: u64) -> u64 {
        let first = (1024u64.wrapping_sub(e.offset) / SECTOR as u64) as u32;
        if e.offset > 1024 || first > 62 {
            return mask;
        }
        let both = 3u64 << first;
        if mask >> first & 1 != 0 { mask | both } else { mask & !both }
    }

    /// Applies the changes of a point that became stable.
    ///
    /// # Errors
    /// Of the device: an entry outside it.
    pub fn settle(&self, disk: &MemDevice, point: &Point) -> Result<()> {
        point.settled.iter().try_for_each(|s| self.entries[*s as usize].apply(disk))
    }

    /// The disk of `state`, where `stable` holds what was certainly there.
    ///
    /// # Errors
    /// Of the device: an entry outside it.
    pub fn disk(&self, stable: &MemDevice, state: &State) -> Result<MemDevice> {
        let disk = stable.snapshot();
        for seq in &state.keep {
            let Some(e) = self.entries.get(*seq as usize) else { continue };
            match state.torn.iter().find(|t| t.0 == *seq) {
                None => e.apply(&disk)?,
                Some((_, mask)) => {
                    for (i, sector) in e.data.chunks(SECTOR).enumerate() {
                        if mask >> (i % 64) & 1 != 0 {
                            disk.write_at(sector, e.offset + (i * SECTOR) as u64)?;
                        }
                    }
                }
            }
        }
        Ok(disk)
    }

    /// The point of a state, and the disk with everything before it that was stable.
    ///
    /// # Errors
    /// Of the device.
    pub fn stable_at(&self, at: u64) -> Result<(Option<&Point>, MemDevice)> {
        let disk = self.base.snapshot();
        for p in &self.points {
            self.settle(&disk, p)?;
            if p.at >= at {
                return Ok((Some(p), disk));
            }
        }
        Ok((None, disk))
    }

    /// The text of the marks before an instant, the last `n` of them.
    pub fn marks_before(&self, at: u64, n: usize) -> Vec<String> {
        let marks = self.entries.iter().take(at as usize).filter(|e| e.kind == Kind::Mark);
        let all: Vec<String> = marks.map(|e| format!("{:>6} {}", e.seq, e.text())).collect();
        all[all.len().saturating_sub(n)..].to_vec()
    }

    /// What an entry is, in a line.
    pub fn describe(&self, seq: u64) -> String {
        let Some(e) = self.entries.get(seq as usize) else { return format!("{seq}: none") };
        let what = match e.kind {
            Kind::Write { fua: true } => "FUA write",
            Kind::Write { fua: false } => "write",
            Kind::Flush => "flush",
            Kind::Discard => "discard",
            Kind::Zero => "zeroes",
            Kind::Done { .. } => "done",
            Kind::Mark => "mark",
        };
        let tag = if e.tag.is_empty() { "-" } else { &e.tag };
        format!("{seq}: {what} of {} bytes at {} ({tag})", e.len, e.offset)
    }
}

fn shuffle(v: &mut [State], rng: &mut Rng) {
    for i in (1..v.len()).rev() {
        v.swap(i, rng.below(i as u64 + 1) as usize);
    }
}

/// Before each growth of what is stable, and at the end.
fn points(entries: &[Entry]) -> Vec<Point> {
    let mut out = Vec::new();
    let mut p = Pending::default();
    let mut settled = Vec::new();
    for e in entries {
        let before = p.pending().to_vec();
        p.feed(e);
        let now = p.take_durable();
        if !now.is_empty() {
            out.push(Point {
                at: e.seq,
                settled: std::mem::replace(&mut settled, now),
                pending: before,
            });
        }
    }
    let at = entries.len() as u64;
    out.push(Point { at, settled, pending: p.pending().to_vec() });
    out
}
