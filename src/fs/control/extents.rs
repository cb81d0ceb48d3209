//! Where the blocks of a file are, delayed ones included.
//!
//! The text is for `uext4 extents`: a line `size SIZE block BYTES`, then one line for each extent:
//! `LBLK LEN PBLK FLAG...`, with FIEMAP's names for the flags.

use super::super::Fs;
use crate::{
    error::Result,
    inode::Inode,
    map::{Mapping, State},
    types::{Ino, LBlock},
};
use std::fmt::Write as _;

impl Fs {
    pub(super) fn extents_text(&self, ino: Ino) -> Result<String> {
        let i = self.get(ino)?;
        let bs = self.vol.geo.block_size;
        let size = i.size();
        let mut s = format!("size {size} block {}\n", bs.bytes());
        let _held = super::super::inline::hold(&i);
        if !i.has_map() {
            if size > 0 {
                let _ = writeln!(s, "0 1 0 last,not_aligned,inline,eof");
            }
            return Ok(s);
        }
        let all = self.op("fiemap", self.ranges(&i))?;
        for (n, r) in all.iter().enumerate() {
            let mut flags = Vec::new();
            if n + 1 == all.len() {
                flags.push("last");
            }
            match r.place {
                None => flags.extend(["unknown_loc", "delalloc"]),
                Some((_, State::Unwritten)) => flags.push("unwritten"),
                Some(_) => {}
            }
            if r.end >= bs.blocks_for(size) {
                flags.push("eof");
            }
            let at = r.place.map_or(0, |(p, _)| p);
            let _ = writeln!(s, "{} {} {at} {}", r.start, r.end - r.start, flags.join(","));
        }
        Ok(s)
    }

    /// Mapped and delayed ranges, in order.
    fn ranges(&self, i: &Inode) -> Result<Vec<Range>> {
        // Pages first, then the map: a page leaves only after the map has its block.
        let mut delayed: Vec<(u64, u64)> = Vec::new();
        for (l, _) in i.pages.lock().range(LBlock(0), u64::MAX) {
            let l = u64::from(l.0);
            match delayed.last_mut() {
                Some((_, end)) if *end == l => *end = l + 1,
                _ => delayed.push((l, l + 1)),
            }
        }
        let mut out: Vec<Range> = Vec::new();
        i.map()?.for_each(&self.vol.map_ctx(), LBlock(0), u64::MAX, &mut |m| {
            match out.last_mut() {
                Some(r) if r.goes_on(&m) => r.end = m.end(),
                _ => out.push(Range::of(&m)),
            }
            true
        })?;
        let mapped: Vec<(u64, u64)> = out.iter().map(|r| (r.start, r.end)).collect();
        out.extend(without(&delayed, &mapped).map(|(start, end)| Range {
            start,
            end,
            place: None,
        }));
        out.sort_by_key(|r| r.start);
        Ok(out)
    }
}

struct Range {
    start: u64,
    end: u64,
    /// On the device; `None` if there is no place yet.
    place: Option<(u64, State)>,
}

impl Range {
    fn of(m: &Mapping) -> Range {
        Range { start: m.lblk.0.into(), end: m.end(), place: Some((m.pblk.0, m.state)) }
    }

    fn goes_on(&self, m: &Mapping) -> bool {
        let here = self.place.map(|(p, s)| (p + (self.end - self.start), s));
        self.end == u64::from(m.lblk.0) && here == Some((m.pblk.0, m.state))
    }
}

/// The parts of `a` outside `b`; both sorted and disjoint.
fn without(a: &[(u64, u64)], b: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> {
    let mut out = Vec::new();
    let mut k = 0;
    for &(mut s, e) in a {
        while b.get(k).is_some_and(|r| r.1 <= s) {
            k += 1;
        }
        let mut j = k;
        while s < e {
            match b.get(j) {
                Some(&(bs, be)) if bs < e => {
                    if s < bs {
                        out.push((s, bs));
                    }
                    s = s.max(be);
                    j += 1;
                }
                _ => {
                    out.push((s, e));
                    break;
                }
            }
        }
    }
    out.into_iter()
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn what_is_mapped_is_not_delayed() {
        let w = |a: &[(u64, u64)], b: &[(u64, u64)]| without(a, b).collect::<Vec<_>>();
        assert_eq!(w(&[(0, 10)], &[]), [(0, 10)]);
        assert_eq!(w(&[(0, 10)], &[(2, 4), (6, 20)]), [(0, 2), (4, 6)]);
        assert_eq!(w(&[(0, 2), (5, 8)], &[(1, 6)]), [(0, 1), (6, 8)]);
        assert_eq!(w(&[(3, 4), (5, 6)], &[(0, 9)]), []);
    }
}
