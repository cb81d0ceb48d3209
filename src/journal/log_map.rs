//! Where on the device the blocks of the log lie.

use crate::device::{AlignedBuf, BlockDevice};
use crate::error::{Corrupt, Result};
use crate::types::{Block, BlockSize};
use std::sync::Arc;

/// A run of the journal's blocks: `len` blocks from `log` on lie at `start` on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogExtent {
    /// First block, counted in the journal.
    pub log: u32,
    /// Blocks.
    pub len: u32,
    /// Where they begin on the device.
    pub start: Block,
}

/// The whole journal: its device, and where each of its blocks lies.
#[derive(Clone)]
pub struct LogMap {
    dev: Arc<dyn BlockDevice>,
    bs: BlockSize,
    /// Sorted, without gaps, from block 0.
    extents: Vec<LogExtent>,
    /// The same, sorted by where they lie.
    by_start: Vec<(Block, u32)>,
    len: u32,
}

impl LogMap {
    /// From the map of the journal's inode (or one extent, on a device of its own). The extents must
    /// cover the journal from block 0 without gaps; neighbours are merged.
    ///
    /// # Errors
    /// `Corrupt` if they do not, or lie outside the device.
    pub fn new(
        dev: Arc<dyn BlockDevice>,
        bs: BlockSize,
        mut extents: Vec<LogExtent>,
    ) -> Result<LogMap> {
        extents.sort_unstable_by_key(|e| e.log);
        let mut merged: Vec<LogExtent> = Vec::with_capacity(extents.len());
        let blocks = dev.size() >> bs.log2();
        let mut len = 0u32;
        for e in extents {
            let bad = |what| Corrupt::new(what).block(e.start).value(u64::from(e.log));
            if e.log != len || e.len == 0 {
                return Err(bad("the journal's map has a hole or an overlap").into());
            }
            len = len.checked_add(e.len).ok_or_else(|| bad("the journal's map is too long"))?;
            let end = e.start.0.checked_add(u64::from(e.len)).filter(|&end| end <= blocks);
            if end.is_none() || e.start.0 == 0 {
                return Err(bad("the journal lies outside the device").into());
            }
            match merged.last_mut() {
                Some(m) if m.start.plus(u64::from(m.len)) == e.start => m.len += e.len,
                _ => merged.push(e),
            }
        }
        if len == 0 {
            return Err(Corrupt::new("the journal is empty").into());
        }
        let mut by_start: Vec<(Block, u32)> = merged.iter().map(|e| (e.start, e.len)).collect();
        by_start.sort_unstable();
        for pair in by_start.windows(2) {
            if let &[(a, n), (b, _)] = pair
                && a.plus(u64::from(n)) > b
            {
                return Err(Corrupt::new("the journal overlaps itself").block(b).into());
            }
        }
        Ok(LogMap { dev, bs, extents: merged, by_start, len })
    }

    /// Blocks of the journal.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Never: a journal has blocks.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device it lies on.
    pub fn dev(&self) -> &Arc<dyn BlockDevice> {
        &self.dev
    }

    /// Bytes in a block.
    pub fn block_size(&self) -> BlockSize {
        self.bs
    }

    /// Where block `index` lies, and how many blocks follow it there, itself included.
    pub fn locate(&self, index: u32) -> Result<(Block, u32)> {
        let i = self.extents.partition_point(|e| e.log <= index);
        let found = i.checked_sub(1).and_then(|i| self.extents.get(i)).and_then(|e| {
            let within = index - e.log;
            (within < e.len).then(|| (e.start.plus(u64::from(within)), e.len - within))
        });
        found
            .ok_or_else(|| Corrupt::new("block outside the journal").value(u64::from(index)).into())
    }

    /// Whether a block of the device belongs to the journal.
    pub fn holds(&self, b: Block) -> bool {
        let i = self.by_start.partition_point(|&(start, _)| start <= b);
        let before = i.checked_sub(1).and_then(|i| self.by_start.get(i));
        before.is_some_and(|&(start, len)| b < start.plus(u64::from(len)))
    }

    /// Reads one block.
    ///
    /// # Errors
    /// `Io`; `Corrupt` outside the journal.
    pub fn read(&self, index: u32) -> Result<AlignedBuf> {
        let (at, _) = self.locate(index)?;
        let mut buf = AlignedBuf::for_overwrite(self.bs.bytes());
        self.dev.read_at(&mut buf, self.bs.offset(at))?;
        Ok(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemDevice;

    fn map(extents: &[(u32, u32, u64)]) -> Result<LogMap> {
        let bs = BlockSize::from_log(0).unwrap();
        let dev = Arc::new(MemDevice::new(1 << 20));
        let e =
            extents.iter().map(|&(log, len, start)| LogExtent { log, len, start: Block(start) });
        LogMap::new(dev, bs, e.collect())
    }

    #[test]
    fn locates_and_merges() {
        let m = map(&[(10, 5, 300), (0, 4, 100), (4, 6, 104)]).unwrap();
        assert_eq!(m.extents.len(), 2);
        assert_eq!(m.len(), 15);
        assert_eq!(m.locate(0).unwrap(), (Block(100), 10));
        assert_eq!(m.locate(9).unwrap(), (Block(109), 1));
        assert_eq!(m.locate(12).unwrap(), (Block(302), 3));
        assert!(m.locate(15).is_err());
        assert!(m.holds(Block(304)) && !m.holds(Block(305)) && !m.holds(Block(110)));
    }

    #[test]
    fn refuses_holes_and_what_lies_outside() {
        for bad in [
            &[(0, 4, 100), (5, 4, 200)][..],
            &[(0, 4, 100), (3, 4, 200)],
            &[(0, 4, 1021)],
            &[(0, 4, 100), (4, 4, 102)],
            &[(0, 4, u64::MAX)],
            &[(0, 4, 0)],
            &[(0, 0, 5)],
            &[],
        ] {
            assert!(map(bad).is_err(), "{bad:?}");
        }
    }
}
