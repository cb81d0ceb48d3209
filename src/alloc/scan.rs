//! The search of one group: which of its free runs to take for a request. Pure.

use super::buddy::{Buddy, Extent};

/// What is looked for in a group.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Blocks to find (the normalised request).
    pub len: u32,
    /// Criterion, 0 to 3.
    pub cr: u32,
    /// Block of this group to search from.
    pub from: u32,
    /// `stripe` where the request is a whole number of stripes; else 0.
    pub stripe: u32,
    /// First block of the group on the device: what stripes are aligned to.
    pub group_first: u64,
    /// `mb_min_to_scan`
    pub min_to_scan: u32,
    /// `mb_max_to_scan`
    pub max_to_scan: u32,
}

/// What was seen so far, over all groups.
#[derive(Clone, Copy, Default, Debug)]
pub struct Seen {
    /// Extents looked at.
    pub found: u32,
    /// The best of this group.
    pub best: Extent,
}

impl Seen {
    /// Takes the better of the two: first one long enough, and then the tightest; else the longest.
    /// Whether it is a perfect fit.
    fn measure(&mut self, e: Extent, want: u32) -> bool {
        self.found += 1;
        let b = self.best.len;
        let better = b == 0 || if b < want { e.len > b } else { e.len >= want && e.len < b };
        if better {
            self.best = e;
        }
        e.len == want
    }
}

/// A run in this group to take at once; `None` with `seen` brought up to date if there is
/// none that good. What is answered is at most `want.len` long.
pub fn scan(b: &Buddy, want: &Want, seen: &mut Seen) -> Option<Extent> {
    seen.best = Extent::default();
    if want.cr == 0 {
        return simple(b, want);
    }
    if want.stripe > 1
        && let Some(e) = aligned(b, want)
    {
        seen.found += 1;
        return Some(e);
    }
    let e = complex(b, want, seen);
    let e = e.or_else(|| Some(seen.best).filter(|e| e.len >= want.len))?;
    Some(Extent { start: e.start, len: e.len.min(want.len) })
}

/// A power of two, from the buddy alone.
fn simple(b: &Buddy, want: &Want) -> Option<Extent> {
    let order = want.len.checked_ilog2()?;
    for k in order..b.counters().len() as u32 {
        if let Some(start) = b.chunk(k, want.from) {
            return Some(Extent { start, len: want.len });
        }
    }
    None
}

/// The first free run of the wanted length that begins at a stripe.
fn aligned(b: &Buddy, want: &Want) -> Option<Extent> {
    let stripe = u64::from(want.stripe);
    let mut at = (want.group_first.next_multiple_of(stripe) - want.group_first)
        .min(u64::from(u32::MAX)) as u32;
    while at < b.size() {
        let e = b.free_at(at, want.len);
        if e.len >= want.len {
            return Some(e);
        }
        at = at.checked_add(want.stripe)?;
    }
    None
}

/// Run after run from `want.from`, then from the start, within the limits.
fn complex(b: &Buddy, want: &Want, seen: &mut Seen) -> Option<Extent> {
    for (from, to) in [(want.from, b.size()), (0, want.from)] {
        let mut at = from;
        while at < to
            && let Some(e) = b.next_free(at)
            && e.start < to
        {
            if seen.measure(e, want.len) {
                return Some(e);
            }
            if seen.found > want.max_to_scan
                || seen.found > want.min_to_scan && seen.best.len >= want.len
            {
                return None;
            }
            at = e.end();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buddy(free: &[(u32, u32)]) -> Buddy {
        let mut b = Buddy::new(1024, 10, &[0xff; 128]);
        for (start, len) in free {
            b.mark_free(Extent { start: *start, len: *len }).unwrap();
        }
        b
    }

    fn want(len: u32, cr: u32) -> Want {
        Want { len, cr, from: 0, stripe: 0, group_first: 0, min_to_scan: 10, max_to_scan: 200 }
    }

    #[test]
    fn criterion_0_takes_an_aligned_chunk() {
        let b = buddy(&[(3, 8), (64, 32)]);
        assert_eq!(scan(&b, &want(8, 0), &mut Seen::default()), Some(Extent { start: 64, len: 8 }));
        assert_eq!(scan(&b, &want(64, 0), &mut Seen::default()), None);
    }

    #[test]
    fn the_tightest_fit_wins_else_the_longest_is_remembered() {
        let b = buddy(&[(3, 8), (64, 32), (200, 12)]);
        let mut seen = Seen::default();
        assert_eq!(scan(&b, &want(10, 1), &mut seen), Some(Extent { start: 200, len: 10 }));
        assert_eq!(scan(&b, &want(8, 1), &mut seen), Some(Extent { start: 3, len: 8 }));
        assert_eq!(scan(&b, &want(100, 1), &mut seen), None);
        assert_eq!(seen.best, Extent { start: 64, len: 32 });
    }

    #[test]
    fn starts_where_it_is_told_and_wraps() {
        let b = buddy(&[(3, 8), (64, 8)]);
        let w = Want { from: 20, ..want(8, 2) };
        assert_eq!(scan(&b, &w, &mut Seen::default()), Some(Extent { start: 64, len: 8 }));
        let w = Want { from: 100, ..want(8, 2) };
        assert_eq!(scan(&b, &w, &mut Seen::default()), Some(Extent { start: 3, len: 8 }));
    }

    #[test]
    fn stripes_are_aligned_on_the_device() {
        let b = buddy(&[(0, 100)]);
        let w = Want { stripe: 16, group_first: 8193, ..want(32, 1) };
        assert_eq!(scan(&b, &w, &mut Seen::default()), Some(Extent { start: 15, len: 32 }));
    }

    #[test]
    fn the_scan_is_bounded() {
        let holes: Vec<(u32, u32)> = (0..300).map(|i| (i * 3, 1)).collect();
        let b = buddy(&holes);
        let mut seen = Seen::default();
        assert_eq!(scan(&b, &Want { max_to_scan: 20, ..want(5, 2) }, &mut seen), None);
        assert_eq!(seen.found, 21);
    }
}
