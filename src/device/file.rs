//! An image file or a block device.

use super::engine::{self, Engine, IoEngine};
use super::raw::RawFile;
use super::{BlockDevice, IoRequest};
use crate::error::Result;
/// Whether reads and writes go through the host's page cache.
pub use crate::options::Backing;
use std::path::Path;
use std::sync::Arc;

/// How to open a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenHow {
    /// Never write; needs read permission only.
    pub read_only: bool,
    /// Where in the file or device the file system starts, in bytes.
    pub offset: u64,
    /// Through the host's page cache or around it.
    pub backing: Backing,
    /// Who serves submitted requests.
    pub engine: IoEngine,
}

impl Default for OpenHow {
    fn default() -> OpenHow {
        OpenHow { read_only: false, offset: 0, backing: Backing::Buffered, engine: IoEngine::Auto }
    }
}

/// An image file or a block device, claimed for this daemon.
pub struct FileDevice {
    // First, so that it has ended when the file is closed and the claim is given up.
    engine: Box<dyn Engine>,
    raw: Arc<RawFile>,
}

impl FileDevice {
    /// Opens and claims it. [`crate::error::Error::InUse`] when somebody else has it: another daemon, or the
    /// kernel (for an image file, also through a loop device); read-only use is shared.
    pub fn open(path: impl AsRef<Path>, how: OpenHow) -> Result<FileDevice> {
        Ok(FileDevice::claim(path, how)?.start())
    }

    /// Opens and claims it, without a thread yet: threads keep the rights that they begin with.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn claim(path: impl AsRef<Path>, how: OpenHow) -> Result<Claimed> {
        Ok(Claimed { raw: Arc::new(RawFile::open(path.as_ref(), how)?), engine: how.engine })
    }

    /// Which backing is really in use.
    pub fn backing(&self) -> Backing {
        if self.raw.direct { Backing::Direct } else { Backing::Buffered }
    }

    /// Which engine is really in use.
    pub fn engine(&self) -> IoEngine {
        self.engine.kind()
    }
}

/// An image or device that is open and claimed; its engine does not run.
pub struct Claimed {
    raw: Arc<RawFile>,
    engine: IoEngine,
}

impl Claimed {
    /// Starts the engine.
    pub fn start(self) -> FileDevice {
        FileDevice { engine: engine::start(&self.raw, self.engine), raw: self.raw }
    }
}

impl BlockDevice for FileDevice {
    forward!(self, *self.raw);
    fn submit(&self, req: IoRequest) {
        self.engine.submit(req);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::io::{IoSlice, IoSliceMut, Write};

    fn image(len: usize) -> tempfile::NamedTempFile {
        let mut f = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
        f.write_all(&bytes).unwrap();
        f
    }

    fn exercise(backing: Backing) {
        let f = image(256 << 10);
        let mut model = std::fs::read(f.path()).unwrap();
        let d = FileDevice::open(f.path(), OpenHow { backing, ..OpenHow::default() }).unwrap();
        assert_eq!(d.size(), 256 << 10);
        let mut seed = 12345u64;
        let mut rand = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for i in 0..200u64 {
            let off = rand(200_000);
            let len = 1 + rand(40_000) as usize;
            let (o, e) = (off as usize, off as usize + len);
            match i % 6 {
                0 => {
                    d.write_at(&vec![i as u8; len], off).unwrap();
                    model[o..e].fill(i as u8);
                }
                1 => {
                    let cut = rand(len as u64) as usize;
                    let b = vec![i as u8; len];
                    let v = [IoSlice::new(&b[..cut]), IoSlice::new(&[]), IoSlice::new(&b[cut..])];
                    d.write_vectored_at(&v, off).unwrap();
                    model[o..e].fill(i as u8);
                }
                2 => {
                    let cut = rand(len as u64) as usize;
                    let mut b = vec![0; len];
                    let (x, y) = b.split_at_mut(cut);
                    d.read_vectored_at(&mut [IoSliceMut::new(x), IoSliceMut::new(y)], off).unwrap();
                    assert_eq!(b, model[o..e], "{off} {len}");
                }
                3 => {
                    d.write_zeroes(off, len as u64).unwrap();
                    model[o..e].fill(0);
                }
                4 => {
                    d.write_fua(&vec![i as u8; len], off).unwrap();
                    model[o..e].fill(i as u8);
                }
                _ => {
                    let mut b = vec![0; len];
                    d.read_at(&mut b, off).unwrap();
                    assert_eq!(b, model[o..e], "{off} {len}");
                }
            }
        }
        d.flush().unwrap();
        d.discard(4096, 8192).unwrap();
        assert_eq!(std::fs::metadata(f.path()).unwrap().len(), 256 << 10);
        model[4096..4096 + 8192].fill(0);
        drop(d);
        assert_eq!(std::fs::read(f.path()).unwrap(), model);
    }

    #[test]
    fn buffered_like_a_vec() {
        exercise(Backing::Buffered);
    }

    #[test]
    fn direct_like_a_vec() {
        exercise(Backing::Direct);
    }

    #[test]
    fn past_the_end_is_an_error() {
        let f = image(10_000);
        for backing in [Backing::Buffered, Backing::Direct] {
            let d = FileDevice::open(f.path(), OpenHow { backing, ..OpenHow::default() }).unwrap();
            let mut b = [0; 100];
            d.read_at(&mut b, 9_900).unwrap();
            assert_eq!(b[99], (9_999 / 7) as u8);
            assert!(matches!(d.read_at(&mut b, 9_901), Err(Error::Io { op: "read", .. })));
            assert!(d.write_at(&b, 9_950).is_err());
            assert!(d.read_at(&mut b, u64::MAX - 5).is_err());
        }
        assert_eq!(std::fs::metadata(f.path()).unwrap().len(), 10_000);
        // The file shrinks under us.
        let d = FileDevice::open(f.path(), OpenHow::default()).unwrap();
        f.as_file().set_len(100).unwrap();
        let mut b = [0; 512];
        assert!(matches!(d.read_at(&mut b, 4096), Err(Error::Io { op: "read", .. })));
    }

    #[test]
    fn offset_shifts() {
        let f = image(10_240);
        let whole = std::fs::read(f.path()).unwrap();
        let how = OpenHow { offset: 1024, ..OpenHow::default() };
        let d = FileDevice::open(f.path(), how).unwrap();
        assert_eq!(d.size(), 9216);
        let mut b = [0; 16];
        d.read_at(&mut b, 9200).unwrap();
        assert_eq!(b, whole[10_224..]);
        assert!(d.read_at(&mut b, 9201).is_err());
        drop(d);
        let how = OpenHow { offset: 10_240, ..OpenHow::default() };
        assert!(matches!(FileDevice::open(f.path(), how), Err(Error::Unmountable(_))));
    }

    #[test]
    fn read_only_refuses_writes() {
        let f = image(8192);
        let how = OpenHow { read_only: true, ..OpenHow::default() };
        let d = FileDevice::open(f.path(), how).unwrap();
        assert!(matches!(d.write_at(&[1], 0), Err(Error::ReadOnly)));
        assert!(matches!(d.discard(0, 4096), Err(Error::ReadOnly)));
        assert!(d.read_only());
        FileDevice::open(f.path(), how).expect("two readers share");
    }

    #[test]
    fn not_a_device() {
        let e = FileDevice::open("/dev/null", OpenHow::default()).err().unwrap();
        assert!(matches!(e, Error::Unmountable(_)));
        assert!(FileDevice::open("/nonexistent/x", OpenHow::default()).is_err());
    }
}
