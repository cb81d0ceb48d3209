//! A device in memory, sparse, for tests and the crash explorer.

use super::{AlignedBuf, BlockDevice, check_range};
use crate::error::{Error, Result};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

const CHUNK: usize = 64 << 10;

/// Chunks never written read as zeros. A snapshot shares the chunks until one side writes.
pub struct MemDevice {
    size: u64,
    chunks: RwLock<BTreeMap<u64, Arc<AlignedBuf>>>,
}

/// The pieces of `off..off + len`: chunk number, where in the chunk, where in the caller's buffer, bytes.
fn pieces(off: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == len {
            return None;
        }
        let pos = off + at as u64;
        let within = (pos % CHUNK as u64) as usize;
        let n = (CHUNK - within).min(len - at);
        let piece = (pos / CHUNK as u64, within, at, n);
        at += n;
        Some(piece)
    })
}

impl MemDevice {
    /// A device of `size` zero bytes.
    pub fn new(size: u64) -> MemDevice {
        MemDevice { size, chunks: RwLock::default() }
    }

    /// A device with the contents of a file; runs of zeros take no memory.
    pub fn load(path: &Path) -> io::Result<MemDevice> {
        use std::io::Read;
        let mut f = std::fs::File::open(path)?;
        let size = f.metadata()?.len();
        let dev = MemDevice::new(size);
        let mut buf = vec![0; CHUNK];
        let mut at = 0;
        while at < size {
            let n = (size - at).min(CHUNK as u64) as usize;
            f.read_exact(&mut buf[..n])?;
            if buf[..n].iter().any(|&b| b != 0) {
                let mut chunk = AlignedBuf::zeroed(CHUNK);
                chunk[..n].copy_from_slice(&buf[..n]);
                dev.chunks.write().insert(at / CHUNK as u64, Arc::new(chunk));
            }
            at += n as u64;
        }
        Ok(dev)
    }

    /// Writes the contents to a (sparse) file.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let f = std::fs::File::create(path)?;
        f.set_len(self.size)?;
        for (&i, chunk) in self.chunks.read().iter() {
            let at = i * CHUNK as u64;
            let n = (self.size - at).min(CHUNK as u64) as usize;
            f.write_all_at(&chunk[..n], at)?;
        }
        Ok(())
    }

    /// A device with the same contents now, and its own from here on. Cheap: chunks are shared.
    pub fn snapshot(&self) -> MemDevice {
        MemDevice { size: self.size, chunks: RwLock::new(self.chunks.read().clone()) }
    }

    /// Bytes of memory that hold contents.
    pub fn resident(&self) -> u64 {
        (self.chunks.read().len() * CHUNK) as u64
    }
}

impl BlockDevice for MemDevice {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()> {
        check_range("read", off, buf.len() as u64, self.size)?;
        let chunks = self.chunks.read();
        for (i, within, at, n) in pieces(off, buf.len()) {
            match chunks.get(&i) {
                Some(c) => buf[at..at + n].copy_from_slice(&c[within..within + n]),
                None => buf[at..at + n].fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        check_range("write", off, buf.len() as u64, self.size)?;
        let mut chunks = self.chunks.write();
        for (i, within, at, n) in pieces(off, buf.len()) {
            let c = chunks.entry(i).or_insert_with(|| Arc::new(AlignedBuf::zeroed(CHUNK)));
            Arc::make_mut(c)[within..within + n].copy_from_slice(&buf[at..at + n]);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, off: u64, len: u64) -> Result<()> {
        check_range("discard", off, len, self.size)?;
        let len = usize::try_from(len).map_err(|_| Error::NotSupported)?;
        let mut chunks = self.chunks.write();
        for (i, within, _, n) in pieces(off, len) {
            if n == CHUNK {
                chunks.remove(&i);
            } else if let Some(c) = chunks.get_mut(&i) {
                Arc::make_mut(c)[within..within + n].fill(0);
            }
        }
        Ok(())
    }

    fn write_zeroes(&self, off: u64, len: u64) -> Result<()> {
        self.discard(off, len)
    }

    fn size(&self) -> u64 {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn out_of_range_is_an_error() {
        let d = MemDevice::new(1000);
        let mut b = [0; 10];
        assert!(d.read_at(&mut b, 990).is_ok());
        assert!(matches!(d.read_at(&mut b, 991), Err(Error::Io { offset: 991, .. })));
        assert!(d.write_at(&b, u64::MAX).is_err());
        assert!(d.discard(0, 1001).is_err());
    }

    #[test]
    fn snapshots_part_ways() {
        let a = MemDevice::new(1 << 20);
        a.write_at(b"before", 70_000).unwrap();
        let b = a.snapshot();
        a.write_at(b"after!", 70_000).unwrap();
        let mut got = [0; 6];
        b.read_at(&mut got, 70_000).unwrap();
        assert_eq!(&got, b"before");
        a.read_at(&mut got, 70_000).unwrap();
        assert_eq!(&got, b"after!");
    }

    #[test]
    fn file_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let p = dir.path().join("img");
        let a = MemDevice::new(200_001);
        a.write_at(b"end", 199_998).unwrap();
        a.save(&p).unwrap();
        let b = MemDevice::load(&p).unwrap();
        assert_eq!((b.size(), b.resident()), (200_001, CHUNK as u64));
        let mut got = [0; 3];
        b.read_at(&mut got, 199_998).unwrap();
        assert_eq!(&got, b"end");
    }

    proptest! {
        #[test]
        fn like_a_vec(ops in proptest::collection::vec(
            (0u64..300_000, 1usize..100_000, any::<u8>(), 0..3u8), 1..20)) {
            let dev = MemDevice::new(300_000);
            let mut model = vec![0u8; 300_000];
            for (off, len, byte, what) in ops {
                let len = len.min(300_000 - off as usize);
                let range = off as usize..off as usize + len;
                match what {
                    0 => {
                        dev.write_at(&vec![byte; len], off).unwrap();
                        model[range].fill(byte);
                    }
                    1 => {
                        dev.discard(off, len as u64).unwrap();
                        model[range].fill(0);
                    }
                    _ => {
                        let mut got = vec![0; len];
                        dev.read_at(&mut got, off).unwrap();
                        prop_assert_eq!(&got[..], &model[range]);
                    }
                }
            }
        }
    }
}
