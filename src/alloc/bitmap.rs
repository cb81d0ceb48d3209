//! Bits of an on-disk bitmap block (bit `n` is bit `n % 8` of byte `n / 8`;
//! 1 means in use). Pure: no I/O, no locks. Ranges are clamped or refused,
//! never out of bounds.

/// Whether bit `n` is set; a bit past the end counts as set (in use).
pub fn test(map: &[u8], n: u32) -> bool {
    map.get(n as usize / 8).is_none_or(|b| b >> (n % 8) & 1 != 0)
}

/// The eight bytes from byte `at` as a little-endian word, missing bytes as `fill`.
fn word(map: &[u8], at: usize, fill: u8) -> u64 {
    let mut w = [fill; 8];
    if let Some(tail) = map.get(at..) {
        let n = tail.len().min(8);
        w[..n].copy_from_slice(&tail[..n]);
    }
    u64::from_le_bytes(w)
}

/// First bit in `from..end` that is set (`want`) or clear (`!want`); `end` if there is none.
pub fn find(map: &[u8], from: u32, end: u32, want: bool) -> u32 {
    let end = end.min((map.len() as u32).saturating_mul(8));
    let mut n = from;
    while n < end {
        let base = n & !63;
        let mut w = word(map, base as usize / 8, if want { 0 } else { 0xff });
        if !want {
            w = !w;
        }
        w &= u64::MAX << (n - base);
        if w != 0 {
            return (base + w.trailing_zeros()).min(end);
        }
        n = base + 64;
    }
    end
}

/// Number of clear bits in `0..end`.
pub fn count_clear(map: &[u8], end: u32) -> u32 {
    let end = end.min((map.len() as u32).saturating_mul(8));
    let mut used = 0;
    let mut n = 0;
    while n < end {
        let mut w = word(map, n as usize / 8, 0);
        if end - n < 64 {
            w &= (1u64 << (end - n)) - 1;
        }
        used += w.count_ones();
        n += 64;
    }
    end - used
}

/// Sets (`to`) or clears every bit of `start..start + len`. Each must have been
/// the opposite: else nothing changes and the first offending bit is the error.
/// A range past the end of the map offends with its first bit outside.
pub fn flip(map: &mut [u8], start: u32, len: u32, to: bool) -> Result<(), u32> {
    let bits = (map.len() as u64 * 8).min(u64::from(u32::MAX)) as u32;
    let Some(end) = start.checked_add(len).filter(|e| *e <= bits) else {
        return Err(start.max(bits));
    };
    let bad = find(map, start, end, to);
    if bad < end {
        return Err(bad);
    }
    fill(map, start, end, to);
    Ok(())
}

/// Sets or clears every bit of `start..end` (clamped), whatever it was.
pub fn fill(map: &mut [u8], start: u32, end: u32, to: bool) {
    let mut n = start;
    while n < end {
        let Some(byte) = map.get_mut(n as usize / 8) else { return };
        let upto = end.min((n & !7) + 8);
        let width = upto - n;
        let mask = (((1u16 << width) - 1) << (n % 8)) as u8;
        if to {
            *byte |= mask;
        } else {
            *byte &= !mask;
        }
        n = upto;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn flip_refuses_without_changing_anything() {
        let mut m = [0u8; 4];
        flip(&mut m, 3, 10, true).unwrap();
        assert_eq!(flip(&mut m, 0, 5, true), Err(3));
        assert_eq!(flip(&mut m, 12, 5, false), Err(13));
        assert_eq!(flip(&mut m, 30, 5, true), Err(32));
        assert_eq!(flip(&mut m, u32::MAX, 5, true), Err(u32::MAX));
        assert_eq!(count_clear(&m, 32), 22);
        flip(&mut m, 3, 10, false).unwrap();
        assert_eq!(m, [0; 4]);
    }

    proptest! {
        #[test]
        fn find_and_count_agree_with_the_naive_scan(
            m in proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..40),
            from in 0u32..330, end in 0u32..330, want: bool,
        ) {
            let bits = m.len() as u32 * 8;
            let stop = end.min(bits);
            let naive = (from..stop).find(|n| test(&m, *n) == want).unwrap_or(stop);
            prop_assert_eq!(find(&m, from, end, want), naive);
            let clear = (0..stop).filter(|n| !test(&m, *n)).count() as u32;
            prop_assert_eq!(count_clear(&m, end), clear);
        }
    }
}
