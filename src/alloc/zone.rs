//! The system zone: the blocks of the file system's own metadata, which are
//! neither handed out nor freed whatever a bitmap says. Pure.

use crate::error::{Corrupt, Result};
use crate::ondisk::Geometry;
use crate::types::{Block, Group};

/// Sorted, merged, disjoint runs of blocks.
#[derive(Debug, Default)]
pub struct Zone {
    runs: Vec<(u64, u64)>,
}

/// Collects runs, joining each to the one added before it to the same stream.
#[derive(Default)]
struct Stream {
    open: Option<(u64, u64)>,
}

impl Stream {
    fn add(&mut self, out: &mut Vec<(u64, u64)>, start: u64, len: u64) {
        match &mut self.open {
            Some((_, end)) if *end == start => *end += len,
            open => {
                out.extend(open.take());
                *open = Some((start, start + len));
            }
        }
    }
}

/// Where the metadata of one group is.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// The block bitmap.
    pub block_bitmap: Block,
    /// The inode bitmap.
    pub inode_bitmap: Block,
    /// First block of the inode table.
    pub inode_table: Block,
}

impl Zone {
    /// From the checked locations of every group's tables (in order), the superblocks
    /// and descriptor tables.
    ///
    /// # Errors
    /// `Corrupt` if two of them overlap.
    pub fn system(geo: &Geometry, tables: impl Iterator<Item = Tables>) -> Result<Zone> {
        let mut runs = Vec::new();
        let mut streams: [Stream; 4] = Default::default();
        let itable = u64::from(geo.itable_blocks());
        for (g, t) in tables.enumerate() {
            let g = Group(g as u32);
            let base = u64::from(geo.base_meta_blocks(g));
            if base > 0 {
                streams[0].add(&mut runs, geo.group_first_block(g).0, base);
            }
            streams[1].add(&mut runs, t.block_bitmap.0, 1);
            streams[2].add(&mut runs, t.inode_bitmap.0, 1);
            streams[3].add(&mut runs, t.inode_table.0, itable);
        }
        runs.extend(streams.into_iter().filter_map(|s| s.open));
        Zone::new(runs)
    }

    /// From runs `(start, end)` in any order.
    ///
    /// # Errors
    /// `Corrupt` if two of them overlap.
    pub fn new(mut runs: Vec<(u64, u64)>) -> Result<Zone> {
        runs.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in runs {
            match merged.last_mut() {
                Some((_, last)) if start < *last => {
                    return Err(Corrupt::new("metadata blocks overlap").block(Block(start)).into());
                }
                Some((_, last)) if start == *last => *last = end,
                _ => merged.push((start, end)),
            }
        }
        merged.shrink_to_fit();
        Ok(Zone { runs: merged })
    }

    /// The runs, cut to `start..end`, in order.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let from = self.runs.partition_point(|r| r.1 <= start);
        self.runs[from..]
            .iter()
            .take_while(move |r| r.0 < end)
            .map(move |r| (r.0.max(start), r.1.min(end)))
    }

    /// The first block of `start..end` in the zone.
    pub fn overlap(&self, start: u64, end: u64) -> Option<Block> {
        self.within(start, end).next().map(|r| Block(r.0))
    }

    /// Blocks in the zone.
    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|r| r.1 - r.0).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_cuts_and_refuses_overlap() {
        let z = Zone::new(vec![(10, 12), (0, 5), (5, 7), (20, 21)]).unwrap();
        assert_eq!(z.runs, vec![(0, 7), (10, 12), (20, 21)]);
        assert_eq!(z.within(6, 11).collect::<Vec<_>>(), vec![(6, 7), (10, 11)]);
        assert_eq!(z.overlap(7, 10), None);
        assert_eq!(z.overlap(7, 11), Some(Block(10)));
        assert_eq!(z.overlap(12, 100), Some(Block(20)));
        assert_eq!(z.blocks(), 10);
        assert!(Zone::new(vec![(0, 5), (4, 6)]).is_err());
    }
}
