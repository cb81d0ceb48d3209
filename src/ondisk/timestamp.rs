//! Inode times: 34 bits of seconds and 30 of nanoseconds in two words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time as the file system holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub sec: i64,
    /// Nanoseconds, below 10^9.
    pub nsec: u32,
}

impl Timestamp {
    /// The earliest time an inode can hold: 1901-12-13 20:45:52.
    pub const MIN_SEC: i64 = i32::MIN as i64;
    /// The latest second of an inode with the extra words: 2446-05-10 22:38:55.
    pub const MAX_SEC: i64 = 0x3_7fff_ffff;
    /// The latest second of a 128-byte inode: 2038-01-19 03:14:07.
    pub const MAX_SEC_SMALL: i64 = i32::MAX as i64;

    /// From the signed seconds word and, where the inode has it, the extra word:
    /// two bits of epoch below 30 bits of nanoseconds.
    pub fn decode(sec: u32, extra: Option<u32>) -> Timestamp {
        let low = i64::from(sec as i32);
        match extra {
            None => Timestamp { sec: low, nsec: 0 },
            Some(x) => {
                Timestamp { sec: low + (i64::from(x & 3) << 32), nsec: (x >> 2).min(999_999_999) }
            }
        }
    }

    /// The seconds word and the extra word. Times out of range are clamped;
    /// `has_extra` says whether the inode has room for the extra word (else
    /// clamped to 32 bits, and the nanoseconds are lost).
    pub fn encode(self, has_extra: bool) -> (u32, u32) {
        let t = self.clamp(has_extra);
        let epoch = (t.sec - i64::from(t.sec as i32)) >> 32;
        (t.sec as u32, if has_extra { t.nsec << 2 | (epoch as u32 & 3) } else { 0 })
    }

    /// The nearest time that an inode can hold.
    pub fn clamp(self, has_extra: bool) -> Timestamp {
        let max = if has_extra { Timestamp::MAX_SEC } else { Timestamp::MAX_SEC_SMALL };
        let nsec = if has_extra { self.nsec.min(999_999_999) } else { 0 };
        // At either end of the range there are no fractions of a second, as in the kernel.
        if self.sec >= max {
            Timestamp { sec: max, nsec: 0 }
        } else if self.sec <= Timestamp::MIN_SEC {
            Timestamp { sec: Timestamp::MIN_SEC, nsec: 0 }
        } else {
            Timestamp { sec: self.sec, nsec }
        }
    }

    /// The current time.
    pub fn now() -> Timestamp {
        SystemTime::now().into()
    }
}

impl From<SystemTime> for Timestamp {
    fn from(t: SystemTime) -> Timestamp {
        match t.duration_since(UNIX_EPOCH) {
            Ok(d) => Timestamp { sec: d.as_secs().min(1 << 40) as i64, nsec: d.subsec_nanos() },
            Err(e) => {
                let d = e.duration();
                let sec = -(d.as_secs().min(1 << 40) as i64);
                match d.subsec_nanos() {
                    0 => Timestamp { sec, nsec: 0 },
                    n => Timestamp { sec: sec - 1, nsec: 1_000_000_000 - n },
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(t: Timestamp) -> SystemTime {
        let whole = Duration::from_secs(t.sec.unsigned_abs().min(1 << 40));
        let base =
            if t.sec < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        base.and_then(|b| b.checked_add(Duration::from_nanos(u64::from(t.nsec))))
            .unwrap_or(UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the format's documentation: epoch bits, sign of the word, seconds.
    #[test]
    fn documented_ranges() {
        for (extra, word, sec) in [
            (0, 0x8000_0000u32, -0x8000_0000i64),
            (0, 0xffff_ffff, -1),
            (0, 0, 0),
            (0, 0x7fff_ffff, 0x7fff_ffff),
            (1, 0x8000_0000, 0x8000_0000),
            (1, 0xffff_ffff, 0xffff_ffff),
            (1, 0, 0x1_0000_0000),
            (1, 0x7fff_ffff, 0x1_7fff_ffff),
            (2, 0x8000_0000, 0x1_8000_0000),
            (2, 0xffff_ffff, 0x1_ffff_ffff),
            (2, 0, 0x2_0000_0000),
            (2, 0x7fff_ffff, 0x2_7fff_ffff),
            (3, 0x8000_0000, 0x2_8000_0000),
            (3, 0xffff_ffff, 0x2_ffff_ffff),
            (3, 0, 0x3_0000_0000),
            (3, 0x7fff_ffff, 0x3_7fff_ffff),
        ] {
            let t = Timestamp { sec, nsec: 0 };
            assert_eq!(Timestamp::decode(word, Some(extra)), t);
            assert_eq!(t.encode(true), (word, extra), "{sec:#x}");
        }
    }

    #[test]
    fn clamps() {
        let far = Timestamp { sec: i64::MAX, nsec: 5 };
        assert_eq!(Timestamp::decode(far.encode(false).0, None).sec, i64::from(i32::MAX));
        let (s, x) = far.encode(true);
        assert_eq!(Timestamp::decode(s, Some(x)).sec, Timestamp::MAX_SEC);
        let (s, x) = Timestamp { sec: i64::MIN, nsec: 5 }.encode(true);
        assert_eq!(Timestamp::decode(s, Some(x)), Timestamp { sec: i64::from(i32::MIN), nsec: 0 });
        assert_eq!(Timestamp::decode(0, Some(u32::MAX)).nsec, 999_999_999);
    }

    #[test]
    fn system_time_and_back() {
        for t in [
            Timestamp { sec: -1, nsec: 999_999_999 },
            Timestamp { sec: -5, nsec: 0 },
            Timestamp { sec: 1 << 33, nsec: 1 },
        ] {
            assert_eq!(Timestamp::from(SystemTime::from(t)), t);
        }
    }
}
