//! Where the bytes of an array lie on its disks, and what a request does to each of them. Pure.

use crate::device::IoOp;
use smallvec::SmallVec;

/// How an array spreads its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// One disk.
    Single,
    /// Chunks in turn over `disks`.
    Raid0 {
        /// How many.
        disks: u32,
        /// Bytes of a chunk.
        chunk: u64,
    },
    /// Chunks in turn over pairs of mirrors; `disks` is even.
    Raid10 {
        /// How many, mirrors counted.
        disks: u32,
        /// Bytes of a chunk.
        chunk: u64,
    },
    /// Chunks and rotating parity over `disks` (at least 3), left-symmetric as in md.
    Raid5 {
        /// How many, parity counted.
        disks: u32,
        /// Bytes of a chunk.
        chunk: u64,
    },
}

/// One transfer of one disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubOp {
    /// Which disk. For a read from mirrors the even one of the pair: the other will do as well.
    pub disk: u32,
    /// Byte on that disk.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// What part of a request does: first all of `reads`, then all of `writes`. The parts of a request are
/// independent of each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// Transfers from the disks.
    pub reads: SmallVec<[SubOp; 4]>,
    /// Transfers to the disks, after the reads.
    pub writes: SmallVec<[SubOp; 4]>,
}

/// The pieces of `off..off + len` in units of `unit` bytes: unit number, offset in it, bytes.
fn pieces(off: u64, len: u64, unit: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let end = off.saturating_add(len);
    let mut at = off;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let within = at % unit;
            let n = (unit - within).min(end - at);
            let piece = (at / unit, within, n);
            at += n;
            piece
        })
    })
}

impl Layout {
    /// Disks of the array.
    pub fn disks(self) -> u32 {
        match self {
            Layout::Single => 1,
            Layout::Raid0 { disks, .. }
            | Layout::Raid10 { disks, .. }
            | Layout::Raid5 { disks, .. } => disks,
        }
    }

    /// Bytes of each disk that an array of `size` bytes takes.
    pub fn disk_size(self, size: u64) -> u64 {
        let over = |n: u32, chunk: u64| size.div_ceil(chunk * u64::from(n)) * chunk;
        match self {
            Layout::Single => size,
            Layout::Raid0 { disks, chunk } => over(disks, chunk),
            Layout::Raid10 { disks, chunk } => over(disks / 2, chunk),
            Layout::Raid5 { disks, chunk } => over(disks - 1, chunk),
        }
    }

    /// Whether a read of `disk` may as well go to its mirror, `disk + 1`.
    pub fn mirrored(self) -> bool {
        matches!(self, Layout::Raid10 { .. })
    }

    /// What a request does. Nothing for a flush or an empty one.
    pub fn plan(self, op: IoOp, off: u64, len: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut simple = |subs: &[SubOp]| {
            let subs = SmallVec::from_slice(subs);
            parts.push(match op {
                IoOp::Write => Part { writes: subs, ..Part::default() },
                _ => Part { reads: subs, ..Part::default() },
            });
        };
        match self {
            _ if op == IoOp::Flush || len == 0 => {}
            Layout::Single => simple(&[SubOp { disk: 0, at: off, len }]),
            Layout::Raid0 { disks, chunk } => {
                for (c, within, len) in pieces(off, len, chunk) {
                    let n = u64::from(disks);
                    let at = c / n * chunk + within;
                    simple(&[SubOp { disk: (c % n) as u32, at, len }]);
                }
            }
            Layout::Raid10 { disks, chunk } => {
                for (c, within, len) in pieces(off, len, chunk) {
                    let pairs = u64::from(disks / 2);
                    let (disk, at) = ((c % pairs) as u32 * 2, c / pairs * chunk + within);
                    let one = SubOp { disk, at, len };
                    match op {
                        IoOp::Write => simple(&[one, SubOp { disk: disk + 1, ..one }]),
                        _ => simple(&[one]),
                    }
                }
            }
            Layout::Raid5 { disks, chunk } => {
                let stripe = chunk * u64::from(disks - 1);
                for (s, within, len) in pieces(off, len, stripe) {
                    if op == IoOp::Write {
                        parts.push(raid5_write(disks, chunk, s, within, len));
                    } else {
                        for (k, at, len) in pieces(within, len, chunk) {
                            let sub =
                                SubOp { disk: data_disk(disks, s, k), at: s * chunk + at, len };
                            let reads = SmallVec::from_slice(&[sub]);
                            parts.push(Part { reads, ..Part::default() });
                        }
                    }
                }
            }
        }
        parts
    }
}

fn parity_disk(disks: u32, stripe: u64) -> u32 {
    disks - 1 - (stripe % u64::from(disks)) as u32
}

fn data_disk(disks: u32, stripe: u64, k: u64) -> u32 {
    (parity_disk(disks, stripe) + 1 + k as u32) % disks
}

/// A write inside one stripe. The parity of a whole stripe follows from its data. For a part of one,
/// either the old data and the old parity are read (read-modify-write), or the rest of the stripe
/// (reconstruct-write), whichever needs fewer reads, as md does.
fn raid5_write(disks: u32, chunk: u64, stripe: u64, within: u64, len: u64) -> Part {
    let base = stripe * chunk;
    let parity = parity_disk(disks, stripe);
    let touched: SmallVec<[(u64, u64, u64); 8]> = pieces(within, len, chunk).collect();
    // The rows of the parity chunk that change: from the lowest to the highest byte touched.
    let low = touched.iter().map(|p| p.1).min().unwrap_or(0);
    let high = touched.iter().map(|p| p.1 + p.2).max().unwrap_or(0);
    let parity = SubOp { disk: parity, at: base + low, len: high - low };
    let mut part = Part::default();
    for &(k, at, len) in &touched {
        part.writes.push(SubOp { disk: data_disk(disks, stripe, k), at: base + at, len });
    }
    // For reconstruction: of each data disk the rows that change there only elsewhere.
    let missing = (0..u64::from(disks - 1)).filter_map(|k| {
        let covered = touched.iter().find(|p| p.0 == k);
        let whole = covered.is_some_and(|p| p.1 == low && p.1 + p.2 == high);
        let disk = data_disk(disks, stripe, k);
        (!whole).then_some(SubOp { disk, at: base + low, len: high - low })
    });
    let missing: SmallVec<[SubOp; 8]> = missing.collect();
    if missing.len() <= touched.len() {
        part.reads.extend(missing);
    } else {
        part.reads.extend(part.writes.iter().copied());
        part.reads.push(parity);
    }
    part.writes.push(parity);
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const K: u64 = 1024;
    const R5: Layout = Layout::Raid5 { disks: 8, chunk: 64 * K };

    #[test]
    fn raid5_small_write_is_two_reads_and_two_writes() {
        let plan = R5.plan(IoOp::Write, 4 * K, 4 * K);
        assert_eq!(plan.len(), 1);
        assert_eq!(plan[0].reads, plan[0].writes);
        assert_eq!(plan[0].writes.len(), 2);
        let [data, parity] = plan[0].writes[..] else { panic!() };
        assert_ne!(data.disk, parity.disk);
        assert_eq!((data.at, data.len, parity.at, parity.len), (4 * K, 4 * K, 4 * K, 4 * K));
    }

    #[test]
    fn raid5_full_stripe_reads_nothing() {
        let plan = R5.plan(IoOp::Write, 7 * 64 * K, 2 * 7 * 64 * K);
        assert_eq!(plan.len(), 2);
        for p in &plan {
            assert!(p.reads.is_empty());
            let mut disks: Vec<u32> = p.writes.iter().map(|w| w.disk).collect();
            disks.sort_unstable();
            assert_eq!(disks, (0..8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn raid5_most_of_a_stripe_is_reconstructed() {
        let plan = R5.plan(IoOp::Write, 0, 6 * 64 * K);
        assert_eq!((plan[0].reads.len(), plan[0].writes.len()), (1, 7));
        let plan = R5.plan(IoOp::Write, 0, 3 * 64 * K);
        assert_eq!((plan[0].reads.len(), plan[0].writes.len()), (4, 4));
    }

    #[test]
    fn raid10_writes_both_mirrors() {
        let r10 = Layout::Raid10 { disks: 14, chunk: 64 * K };
        let plan = r10.plan(IoOp::Write, 64 * K, 4 * K);
        let disks: Vec<u32> = plan[0].writes.iter().map(|w| w.disk).collect();
        assert_eq!(disks, [2, 3]);
        assert_eq!(r10.plan(IoOp::Read, 0, 7 * 64 * K).len(), 7);
        assert_eq!(r10.disk_size(7 * 64 * K + 1), 2 * 64 * K);
    }

    proptest! {
        /// Every byte of the array has a place of its own within the disks.
        #[test]
        fn bytes_do_not_collide(disks in 3u32..9, which in 0..4, chunks in 1u64..4) {
            let chunk = chunks * 512;
            let layout = match which {
                0 => Layout::Single,
                1 => Layout::Raid0 { disks, chunk },
                2 => Layout::Raid10 { disks: disks / 2 * 2, chunk },
                _ => Layout::Raid5 { disks, chunk },
            };
            let size = 512 * 200;
            let mut seen = std::collections::HashSet::new();
            for sector in 0..200 {
                let plan = layout.plan(IoOp::Read, sector * 512, 512);
                prop_assert_eq!(plan.len(), 1);
                let sub = plan[0].reads[0];
                prop_assert!(sub.disk < layout.disks() && sub.at + 512 <= layout.disk_size(size));
                prop_assert!(seen.insert((sub.disk, sub.at)));
                // A write goes to the same place, parity to another.
                let w = layout.plan(IoOp::Write, sector * 512, 512);
                prop_assert_eq!(w[0].writes[0], sub);
                prop_assert!(w[0].writes[1..].iter().all(|p| p.disk != sub.disk));
            }
        }

        #[test]
        fn all_bytes_are_moved(off in 0u64..1_000_000, len in 1u64..2_000_000) {
            for layout in [Layout::Single, Layout::Raid0 { disks: 5, chunk: 16384 }, R5] {
                let read: u64 = layout.plan(IoOp::Read, off, len)
                    .iter().flat_map(|p| &p.reads).map(|s| s.len).sum();
                prop_assert_eq!(read, len);
            }
        }
    }
}
