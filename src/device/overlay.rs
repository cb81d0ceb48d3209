//! Writes that never reach the device: a read-only mount of a dirty journal is replayed into memory.

use super::{AlignedBuf, BlockDevice, IoPayload, IoRequest, check_range, run_in_place};
use crate::error::{Error, Result};
use crate::types::{Block, BlockSize};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

const CHUNK: u64 = 4096;

/// A device over another that is only read: what is written here stays in memory.
pub struct Overlay {
    base: Arc<dyn BlockDevice>,
    chunks: RwLock<BTreeMap<u64, AlignedBuf>>,
    limit: u64,
}

impl Overlay {
    /// Over `base`, keeping at most `limit` bytes of changes; a write beyond that is
    /// [`Error::NoMemory`].
    pub fn new(base: Arc<dyn BlockDevice>, limit: u64) -> Overlay {
        Overlay { base, chunks: RwLock::default(), limit }
    }

    /// Bytes of memory that hold changes.
    pub fn resident(&self) -> u64 {
        self.chunks.read().len() as u64 * CHUNK
    }

    /// The blocks of this size that may differ from those below, in order.
    pub fn touched(&self, bs: BlockSize) -> Vec<Block> {
        let chunks = self.chunks.read();
        let each = chunks.keys().flat_map(|i| {
            let start = i * CHUNK;
            let end = (start + CHUNK).min(self.base.size());
            bs.index(start)..bs.blocks_for(end)
        });
        let mut blocks: Vec<Block> = each.map(Block).collect();
        blocks.dedup();
        blocks
    }

    fn touches(&self, off: u64, len: u64) -> bool {
        let end = off.saturating_add(len).div_ceil(CHUNK);
        self.chunks.read().range(off / CHUNK..end.max(off / CHUNK)).next().is_some()
    }

    /// The chunk's bytes on the base device; the last chunk may be short there.
    fn base_chunk(&self, index: u64) -> Result<AlignedBuf> {
        let mut chunk = AlignedBuf::zeroed(CHUNK as usize);
        let start = index * CHUNK;
        let n = CHUNK.min(self.base.size().saturating_sub(start)) as usize;
        self.base.read_at(&mut chunk[..n], start)?;
        Ok(chunk)
    }
}

impl BlockDevice for Overlay {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()> {
        self.base.read_at(buf, off)?;
        let end = off + buf.len() as u64;
        let chunks = self.chunks.read();
        for (&i, chunk) in chunks.range(off / CHUNK..end.div_ceil(CHUNK).max(off / CHUNK)) {
            let from = (i * CHUNK).max(off);
            let to = ((i + 1) * CHUNK).min(end);
            if from < to {
                let within = (from - i * CHUNK) as usize..(to - i * CHUNK) as usize;
                buf[(from - off) as usize..(to - off) as usize].copy_from_slice(&chunk[within]);
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        check_range("write", off, buf.len() as u64, self.size())?;
        let end = off + buf.len() as u64;
        for i in off / CHUNK..end.div_ceil(CHUNK) {
            let from = (i * CHUNK).max(off);
            let to = ((i + 1) * CHUNK).min(end);
            let missing = !self.chunks.read().contains_key(&i);
            let fresh = match missing {
                true if to - from == CHUNK => Some(AlignedBuf::for_overwrite(CHUNK as usize)),
                true => Some(self.base_chunk(i)?),
                false => None,
            };
            let mut chunks = self.chunks.write();
            if let Some(fresh) = fresh
                && !chunks.contains_key(&i)
            {
                if (chunks.len() as u64 + 1) * CHUNK > self.limit {
                    return Err(Error::NoMemory);
                }
                chunks.insert(i, fresh);
            }
            if let Some(chunk) = chunks.get_mut(&i) {
                chunk[(from - i * CHUNK) as usize..(to - i * CHUNK) as usize]
                    .copy_from_slice(&buf[(from - off) as usize..(to - off) as usize]);
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _off: u64, _len: u64) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn size(&self) -> u64 {
        self.base.size()
    }

    fn logical_block_size(&self) -> u32 {
        self.base.logical_block_size()
    }

    fn submit(&self, req: IoRequest) {
        match &req.payload {
            IoPayload::Read(_) if !self.touches(req.offset, req.payload.len()) => {
                self.base.submit(req);
            }
            _ => run_in_place(self, req),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemDevice;
    use std::sync::mpsc;

    #[test]
    fn writes_stay_above() {
        let base = Arc::new(MemDevice::new(10_000));
        base.write_at(&[1; 10_000], 0).unwrap();
        let o = Overlay::new(base.clone(), 1 << 20);
        o.write_at(&[2; 5000], 3000).unwrap();
        o.write_at(&[3; 10], 9_990).unwrap();
        let mut got = vec![0; 10_000];
        o.read_at(&mut got, 0).unwrap();
        let mut want = vec![1; 10_000];
        want[3000..8000].fill(2);
        want[9990..].fill(3);
        assert_eq!(got, want);
        for (off, len) in [(0, 3000), (2999, 2), (4096, 100), (7999, 2), (8192, 1000)] {
            let (tx, rx) = mpsc::channel();
            let b = AlignedBuf::zeroed(len);
            o.submit(IoRequest::read(b, off as u64, move |r| tx.send(r).unwrap()));
            let r = rx.recv().unwrap();
            r.result.unwrap();
            let IoPayload::Read(bufs) = r.payload else { panic!() };
            assert_eq!(bufs[0][..], want[off..off + len]);
        }
        let mut b = vec![0; 10_000];
        base.read_at(&mut b, 0).unwrap();
        assert_eq!(b, vec![1; 10_000]);
        assert!(o.write_at(&[0; 2], 9_999).is_err());
    }

    #[test]
    fn memory_is_bounded() {
        let o = Overlay::new(Arc::new(MemDevice::new(1 << 20)), 8192);
        o.write_at(&[1; 8192], 0).unwrap();
        assert!(matches!(o.write_at(&[1; 1], 8192), Err(Error::NoMemory)));
        o.write_at(&[2; 100], 5000).unwrap();
        assert_eq!(o.resident(), 8192);
    }
}
