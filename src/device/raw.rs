//! The open image or device: the system calls, and the alignment that direct I/O asks for.

use super::claim::{self, Claim};
use super::{AlignedBuf, Backing, BlockDevice, OpenHow, check_range};
use crate::error::{Error, Result};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

// From linux/fs.h; libc has no names for these.
const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
const BLKDISCARD: libc::c_ulong = 0x1277;
const BLKZEROOUT: libc::c_ulong = 0x127f;

const IOV_MAX: usize = 1024;

/// The open file and what is known of it. The engines share it with [`super::FileDevice`].
#[derive(Debug)]
pub(super) struct RawFile {
    file: File,
    /// Of the file system in the file.
    pub(super) offset: u64,
    /// Of the file system's part of the file.
    pub(super) size: u64,
    pub(super) logical: u32,
    is_dev: bool,
    pub(super) direct: bool,
    pub(super) read_only: bool,
    no_dsync: AtomicBool,
    /// Serialises the read-modify-writes of partial logical blocks (direct backing only).
    partial: Mutex<()>,
    _claim: Claim,
}

fn io_error(op: &'static str, offset: u64, source: io::Error) -> Error {
    Error::Io { op, offset, source }
}

/// A device queried with an ioctl that fills in a `T`.
fn query<T: Default>(file: &File, request: libc::c_ulong) -> io::Result<T> {
    let mut v = T::default();
    // SAFETY: callers pair the request with the type that the kernel writes for it (u64 for
    // BLKGETSIZE64, c_int for BLKSSZGET); `v` outlives the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), request as _, &mut v) } {
        0 => Ok(v),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The alignment of offset, length and memory that direct I/O on a regular file needs, from statx.
fn dio_align(file: &File) -> Option<u32> {
    // SAFETY: statx is plain data, for which all zeros is a value.
    let mut st: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated path and a statx that outlive the call.
    let r = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &mut st,
        )
    };
    let ok = r == 0 && st.stx_mask & libc::STATX_DIOALIGN != 0 && st.stx_dio_offset_align != 0;
    ok.then(|| st.stx_dio_offset_align.max(st.stx_dio_mem_align))
}

impl RawFile {
    pub(super) fn open(path: &Path, how: OpenHow) -> Result<RawFile> {
        let refuse = |e: io::Error| {
            if e.raw_os_error() == Some(libc::EBUSY) {
                Error::InUse(format!(
                    "{}: in use by the kernel (mounted, or part of another device)",
                    path.display()
                ))
            } else {
                Error::Unmountable(format!("cannot open {}: {e}", path.display()))
            }
        };
        let meta = std::fs::metadata(path).map_err(refuse)?;
        let is_dev = meta.file_type().is_block_device();
        if !is_dev && !meta.is_file() {
            return Err(Error::Unmountable(format!(
                "{}: neither a regular file nor a block device",
                path.display()
            )));
        }
        let mut flags = libc::O_CLOEXEC;
        if is_dev && !how.read_only {
            flags |= libc::O_EXCL;
        }
        let open = |flags| {
            let mut o = OpenOptions::new();
            o.read(true).write(!how.read_only).custom_flags(flags);
            // Whoever had the device before us may be closing it just now.
            for _ in 0..10 {
                match o.open(path) {
                    Err(e) if is_dev && e.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                    }
                    r => return r,
                }
            }
            o.open(path)
        };
        let mut direct = how.backing == Backing::Direct;
        let file = if direct {
            match open(flags | libc::O_DIRECT) {
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                    log::warn!(
                        "{}: the host's file system has no direct I/O; using its page cache",
                        path.display()
                    );
                    direct = false;
                    open(flags)
                }
                r => r,
            }
        } else {
            open(flags)
        }
        .map_err(refuse)?;
        let claim = claim::claim(path, &file, how.read_only)?;
        let (total, mut logical) = if is_dev {
            let size: u64 = query(&file, BLKGETSIZE64).map_err(refuse)?;
            let logical: libc::c_int = query(&file, BLKSSZGET).map_err(refuse)?;
            (size, logical as u32)
        } else {
            let size = file.metadata().map_err(refuse)?.len();
            (size, if direct { dio_align(&file).unwrap_or(4096) } else { 512 })
        };
        if !logical.is_power_of_two() || !(512..=65536).contains(&logical) {
            logical = 512;
        }
        if total <= how.offset {
            return Err(Error::Unmountable(format!(
                "{}: offset {} is past the end ({total} bytes)",
                path.display(),
                how.offset
            )));
        }
        if direct && !how.offset.is_multiple_of(u64::from(logical)) {
            return Err(Error::Unmountable(format!(
                "{}: with backing=direct the offset must be a multiple of {logical}",
                path.display()
            )));
        }
        Ok(RawFile {
            file,
            offset: how.offset,
            size: total - how.offset,
            logical,
            is_dev,
            direct,
            read_only: how.read_only,
            no_dsync: AtomicBool::new(false),
            partial: Mutex::new(()),
            _claim: claim,
        })
    }

    /// Whether a single write can be made stable by a flag.
    pub(super) fn has_dsync(&self) -> bool {
        !self.no_dsync.load(Relaxed)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Whether the kernel takes this offset and length as they are.
    pub(super) fn aligned(&self, off: u64, len: usize) -> bool {
        !self.direct || (off | len as u64) & (u64::from(self.logical) - 1) == 0
    }

    /// Whether the kernel takes this memory as it is.
    pub(super) fn mem_aligned(&self, b: &[u8]) -> bool {
        !self.direct || (b.as_ptr() as usize | b.len()) & (self.logical as usize - 1) == 0
    }

    fn read_whole(&self, buf: &mut [u8], off: u64) -> Result<()> {
        self.file.read_exact_at(buf, self.offset + off).map_err(|e| io_error("read", off, e))
    }

    fn write_whole(&self, buf: &[u8], off: u64) -> Result<()> {
        self.file.write_all_at(buf, self.offset + off).map_err(|e| io_error("write", off, e))
    }

    /// The range widened to whole logical blocks, as far as the device reaches: start and length.
    fn widen(&self, off: u64, len: usize) -> (u64, usize) {
        let unit = u64::from(self.logical);
        let start = off & !(unit - 1);
        // The range was checked against the size, so nothing here can overflow.
        let end = (off + len as u64).next_multiple_of(unit);
        (start, (end - start) as usize)
    }

    pub(super) fn read(&self, buf: &mut [u8], off: u64) -> Result<()> {
        check_range("read", off, buf.len() as u64, self.size)?;
        if self.aligned(off, buf.len()) && self.mem_aligned(buf) {
            return self.read_whole(buf, off);
        }
        let (start, len) = self.widen(off, buf.len());
        let mut bounce = AlignedBuf::for_overwrite(len);
        let within = (off - start) as usize;
        self.read_bounce(&mut bounce, start, within + buf.len())?;
        buf.copy_from_slice(&bounce[within..within + buf.len()]);
        Ok(())
    }

    /// Fills an aligned buffer; a file may end (unaligned) after `need` bytes of it.
    fn read_bounce(&self, bounce: &mut [u8], off: u64, need: usize) -> Result<()> {
        let mut at = 0;
        while at < need {
            match self.file.read_at(&mut bounce[at..], self.offset + off + at as u64) {
                Ok(0) => return Err(io_error("read", off, io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => at += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(io_error("read", off, e)),
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, buf: &[u8], off: u64) -> Result<()> {
        self.check_write("write", off, buf.len() as u64)?;
        if !self.aligned(off, buf.len()) {
            return self.write_partial(&[IoSlice::new(buf)], off, buf.len());
        }
        if self.mem_aligned(buf) {
            self.write_whole(buf, off)
        } else {
            self.write_whole(&AlignedBuf::copy_of(buf), off)
        }
    }

    /// Direct backing, range not in whole logical blocks: read-modify-write.
    fn write_partial(&self, bufs: &[IoSlice<'_>], off: u64, len: usize) -> Result<()> {
        let (start, wide) = self.widen(off, len);
        if start + wide as u64 > self.size {
            // The ragged end of an image file: O_DIRECT cannot write it without making it longer.
            let source = io::Error::new(
                io::ErrorKind::InvalidInput,
                "the last, partial block of the image cannot be written with backing=direct",
            );
            return Err(io_error("write", off, source));
        }
        let _guard = self.partial.lock();
        let mut bounce = AlignedBuf::for_overwrite(wide);
        self.read_whole(&mut bounce, start)?;
        let mut at = (off - start) as usize;
        for b in bufs {
            bounce[at..at + b.len()].copy_from_slice(b);
            at += b.len();
        }
        self.write_whole(&bounce, start)
    }

    fn check_write(&self, op: &'static str, off: u64, len: u64) -> Result<()> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        check_range(op, off, len, self.size)
    }

    fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>], off: u64) -> Result<()> {
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        check_range("read", off, len as u64, self.size)?;
        if !self.aligned(off, len) || !bufs.iter().all(|b| self.mem_aligned(b)) {
            let mut bounce = AlignedBuf::for_overwrite(len);
            self.read(&mut bounce, off)?;
            let mut rest = &bounce[..];
            for b in bufs.iter_mut() {
                let (now, later) = rest.split_at(b.len());
                b.copy_from_slice(now);
                rest = later;
            }
            return Ok(());
        }
        let mut bufs: &mut [IoSliceMut<'_>] = bufs;
        let mut done = 0;
        while done < len {
            let count = bufs.len().min(IOV_MAX) as libc::c_int;
            let at = (self.offset + off + done as u64) as libc::off_t;
            // SAFETY: IoSliceMut has the layout of iovec; `count` of them are live, and so are the
            // buffers they name, which are borrowed mutably.
            let n = unsafe { libc::preadv(self.fd(), bufs.as_mut_ptr().cast(), count, at) };
            match usize::try_from(n) {
                Ok(0) => return Err(io_error("read", off, io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => {
                    done += n;
                    IoSliceMut::advance_slices(&mut bufs, n);
                }
                Err(_) => match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::Interrupted => {}
                    e => return Err(io_error("read", off, e)),
                },
            }
        }
        Ok(())
    }

    /// Writes the buffers; with `fua`, as `RWF_DSYNC`.
    pub(super) fn write_vectored(&self, bufs: &[IoSlice<'_>], off: u64, fua: bool) -> Result<()> {
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        self.check_write("write", off, len as u64)?;
        if !self.aligned(off, len) {
            self.write_partial(bufs, off, len)?;
            return if fua { self.flush() } else { Ok(()) };
        }
        let bounce;
        let mut list: SmallVec<[IoSlice<'_>; 16]> = SmallVec::new();
        if bufs.iter().all(|b| self.mem_aligned(b)) {
            list.extend(bufs.iter().map(|b| IoSlice::new(b)));
        } else {
            let mut b = AlignedBuf::for_overwrite(len);
            let mut at = 0;
            for from in bufs {
                b[at..at + from.len()].copy_from_slice(from);
                at += from.len();
            }
            bounce = b;
            list.push(IoSlice::new(&bounce));
        }
        let dsync = fua && self.has_dsync();
        let flags = if dsync { libc::RWF_DSYNC } else { 0 };
        let mut rest: &mut [IoSlice<'_>] = &mut list;
        let mut done = 0;
        while done < len {
            let count = rest.len().min(IOV_MAX) as libc::c_int;
            let at = (self.offset + off + done as u64) as libc::off_t;
            // SAFETY: IoSlice has the layout of iovec; `count` of them are live, and so are the
            // buffers they name.
            let n = unsafe { libc::pwritev2(self.fd(), rest.as_ptr().cast(), count, at, flags) };
            match usize::try_from(n) {
                Ok(0) => return Err(io_error("write", off, io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    done += n;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(_) => match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::Interrupted => {}
                    e if dsync && e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                        self.no_dsync.store(true, Relaxed);
                        return self.write_vectored(bufs, off, true);
                    }
                    e => return Err(io_error("write", off, e)),
                },
            }
        }
        if fua && !dsync { self.flush() } else { Ok(()) }
    }

    /// `BLKDISCARD`-like ioctls take a range in bytes, in whole logical blocks.
    fn range_ioctl(&self, request: libc::c_ulong, off: u64, len: u64) -> io::Result<()> {
        let range = [self.offset + off, len];
        // SAFETY: both requests used here read two u64 from the pointer; `range` outlives the call.
        match unsafe { libc::ioctl(self.fd(), request as _, range.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn fallocate(&self, mode: libc::c_int, off: u64, len: u64) -> io::Result<()> {
        let (at, len) = ((self.offset + off) as libc::off_t, len as libc::off_t);
        // SAFETY: plain numbers and a descriptor that we own.
        match unsafe { libc::fallocate(self.fd(), mode | libc::FALLOC_FL_KEEP_SIZE, at, len) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn discard_range(&self, off: u64, len: u64) -> Result<()> {
        self.check_write("discard", off, len)?;
        let unit = u64::from(self.logical);
        let start = off.next_multiple_of(unit);
        let end = (off + len) & !(unit - 1);
        if start >= end {
            return Ok(());
        }
        let r = if self.is_dev {
            self.range_ioctl(BLKDISCARD, start, end - start)
        } else {
            self.fallocate(libc::FALLOC_FL_PUNCH_HOLE, start, end - start)
        };
        r.map_err(|e| match e.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOTTY) => Error::NotSupported,
            _ => io_error("discard", off, e),
        })
    }

    /// False if the kernel has no way and zeros must be written.
    fn zero(&self, off: u64, len: u64) -> Result<bool> {
        self.check_write("write", off, len)?;
        if len == 0 {
            return Ok(true);
        }
        let r = if !self.is_dev {
            self.fallocate(libc::FALLOC_FL_ZERO_RANGE, off, len).or_else(|e| {
                match e.raw_os_error() {
                    Some(libc::EOPNOTSUPP) => self.fallocate(libc::FALLOC_FL_PUNCH_HOLE, off, len),
                    _ => Err(e),
                }
            })
        } else if (off | len).is_multiple_of(u64::from(self.logical)) {
            self.range_ioctl(BLKZEROOUT, off, len)
        } else {
            return Ok(false);
        };
        match r {
            Ok(()) => Ok(true),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY)) => {
                Ok(false)
            }
            Err(e) => Err(io_error("write", off, e)),
        }
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        claim::release(&self.file);
    }
}

impl BlockDevice for RawFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()> {
        self.read(buf, off)
    }
    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        self.write(buf, off)
    }
    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], off: u64) -> Result<()> {
        self.read_vectored(bufs, off)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], off: u64) -> Result<()> {
        self.write_vectored(bufs, off, false)
    }
    fn write_vectored_fua(&self, bufs: &[IoSlice<'_>], off: u64) -> Result<()> {
        self.write_vectored(bufs, off, true)
    }
    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.file.sync_data().map_err(|e| io_error("flush", 0, e))
    }
    fn write_fua(&self, buf: &[u8], off: u64) -> Result<()> {
        self.write_vectored(&[IoSlice::new(buf)], off, true)
    }
    fn discard(&self, off: u64, len: u64) -> Result<()> {
        self.discard_range(off, len)
    }
    fn write_zeroes(&self, off: u64, len: u64) -> Result<()> {
        if self.zero(off, len)? { Ok(()) } else { super::write_zero_bytes(self, off, len) }
    }
    fn size(&self) -> u64 {
        self.size
    }
    fn logical_block_size(&self) -> u32 {
        self.logical
    }
    fn uncache(&self, off: u64, len: u64) {
        let at = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        let start = self.offset.saturating_add(off);
        let _ = nix::fcntl::posix_fadvise(&self.file, at(start), at(len), advice);
    }
    fn read_only(&self) -> bool {
        self.read_only
    }
}
