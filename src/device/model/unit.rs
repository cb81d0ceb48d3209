//! How long one disk, or one channel of a flash device, takes for a transfer. Pure.
//!
//! Times are nanoseconds of the model's clock.

use super::layout::SubOp;

/// A rotating disk.
///
/// The seek over a fraction `x` of the disk takes `seek_min + (seek_full - seek_min) * sqrt(x)`, nothing
/// within a track; between two random places that is on average `seek_min + 8/15 (seek_full -
/// seek_min)`, since the mean of the root of their distance is 8/15. Then the platter turns until the
/// first byte comes by (half a turn on average). Tracks are skewed so that a run that goes on in the
/// next track loses nothing. A read that goes on where the last transfer ended finds its bytes in the
/// disk's read-ahead buffer: no seek, no turn. There is no write cache.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DiskSpec {
    /// One turn.
    pub turn: u64,
    /// Shortest seek.
    pub seek_min: u64,
    /// Seek over the whole disk.
    pub seek_full: u64,
    /// Bytes of a track: those that pass the head in a turn.
    pub track: u64,
    /// From the host's command to the start, when the disk is idle.
    pub overhead: u64,
}

/// A channel of a flash device: a fixed time and a rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashSpec {
    /// Time of a read beside its transfer.
    pub read: u64,
    /// Time of a write beside its transfer.
    pub write: u64,
    /// Bytes per second.
    pub rate: u64,
}

/// What an array is built of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum UnitSpec {
    /// Rotating disks.
    Disk(DiskSpec),
    /// Flash channels.
    Flash(FlashSpec),
}

impl DiskSpec {
    /// Mean time between two random places, in nanoseconds.
    pub fn mean_seek(&self) -> u64 {
        self.seek_min + (self.seek_full - self.seek_min) * 8 / 15
    }

    /// Time for `len` bytes to pass the head.
    pub fn transfer(&self, len: u64) -> u64 {
        mul_div(len, self.turn, self.track)
    }
}

/// `a * b / c` without overflow on the way.
pub(super) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c.max(1))).unwrap_or(u64::MAX)
}

/// A unit and where its head is.
#[derive(Clone, Debug)]
pub struct Unit {
    spec: UnitSpec,
    /// Bytes of the whole unit.
    size: u64,
    /// Where in its turn the platter was at time 0.
    phase: u64,
    /// The byte after the last one transferred.
    head: u64,
}

impl Unit {
    /// A unit of `size` bytes, its platter at `phase`.
    pub fn new(spec: UnitSpec, size: u64, phase: u64) -> Unit {
        Unit { spec, size: size.max(1), phase, head: 0 }
    }

    /// Distance of a byte from the head.
    pub fn distance(&self, at: u64) -> u64 {
        self.head.abs_diff(at)
    }

    /// Does a transfer that arrived at `arrived`, beginning no earlier than `free`; when it ends.
    pub fn serve(&mut self, arrived: u64, free: u64, write: bool, op: SubOp) -> u64 {
        let end = match self.spec {
            UnitSpec::Flash(f) => {
                let fixed = if write { f.write } else { f.read };
                arrived.max(free) + fixed + mul_div(op.len, 1_000_000_000, f.rate)
            }
            UnitSpec::Disk(d) => {
                let start = (arrived + d.overhead).max(free);
                let there = start + self.seek(&d, op.at);
                // A read is in the disk's buffer; a write must come before the skew is used up.
                let goes_on = op.at == self.head && (!write || start <= free + d.turn / 50);
                let wait = if goes_on { 0 } else { rotation(&d, there + self.phase, op.at) };
                there + wait + d.transfer(op.len)
            }
        };
        self.head = op.at + op.len;
        end
    }

    fn seek(&self, d: &DiskSpec, at: u64) -> u64 {
        if at == self.head || at / d.track == self.head / d.track {
            return 0;
        }
        let x = self.distance(at) as f64 / self.size as f64;
        d.seek_min + ((d.seek_full - d.seek_min) as f64 * x.min(1.0).sqrt()) as u64
    }
}

/// From the platter's time `now` until byte `at` passes the head.
fn rotation(d: &DiskSpec, now: u64, at: u64) -> u64 {
    let there = mul_div(at % d.track, d.turn, d.track);
    (there + d.turn - now % d.turn) % d.turn
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: DiskSpec = DiskSpec {
        turn: 8_333_333,
        seek_min: 800_000,
        seek_full: 16_000_000,
        track: 1 << 20,
        overhead: 0,
    };

    fn op(at: u64, len: u64) -> SubOp {
        SubOp { disk: 0, at, len }
    }

    #[test]
    fn seek_curve() {
        let u = Unit::new(UnitSpec::Disk(D), 1 << 40, 0);
        assert_eq!(u.seek(&D, 1000), 0);
        assert_eq!(u.seek(&D, 1 << 40), 16_000_000);
        assert_eq!(u.seek(&D, 1 << 38), 800_000 + 15_200_000 / 2);
        assert_eq!(D.mean_seek(), 8_906_666);
    }

    #[test]
    fn rotation_waits_for_the_byte() {
        let mut u = Unit::new(UnitSpec::Disk(D), 1 << 40, 0);
        // Half a track further: half a turn, then 4 KiB pass.
        let end = u.serve(0, 0, true, op(1 << 19, 4096));
        assert_eq!(end, D.turn / 2 + D.transfer(4096));
        // The same again: a whole turn after it.
        let again = u.serve(end, end, true, op(1 << 19, 4096));
        assert!(again.abs_diff(end + D.turn) < 10, "{again}");
    }

    #[test]
    fn a_queued_run_goes_on_at_the_media_rate() {
        for write in [false, true] {
            let mut u = Unit::new(UnitSpec::Disk(D), 1 << 40, 12345);
            let first = u.serve(0, 0, write, op(0, 65536));
            let mut t = first;
            for i in 1..100 {
                t = u.serve(0, t, write, op(i * 65536, 65536));
            }
            let want = D.transfer(99 * 65536);
            assert!((t - first).abs_diff(want) < 1000, "{} {want}", t - first);
        }
    }

    #[test]
    fn reads_that_go_on_later_are_buffered_and_writes_lose_a_turn() {
        let mut u = Unit::new(UnitSpec::Disk(D), 1 << 40, 0);
        let t = u.serve(0, 0, false, op(0, 65536)) + 1_000_000;
        let t2 = u.serve(t, t, false, op(65536, 4096));
        assert_eq!(t2 - t, D.transfer(4096));
        let t = t2 + 1_000_000;
        let t3 = u.serve(t, t2, true, op(65536 + 4096, 4096));
        assert!(t3 - t > D.turn / 2, "{}", t3 - t);
    }
}
