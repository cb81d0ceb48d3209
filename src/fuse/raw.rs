//! The device itself behind FUSE: a directory with one file, `disk`, which is read and written
//! past every cache through the same engine and disk model as a file system would be. What
//! a file system adds is the difference.

use super::convert::errno;
use crate::device::{AlignedBuf, BlockDevice, IoPayload, IoRequest, ReadBuf, WriteSeg};
use crate::error::{Error, Result};
use crate::options::{Control, ControlError, ControlName, Scope, Shutdown, TraceStream};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

const TTL: Duration = Duration::from_secs(24 * 3600);
const DISK: INodeNo = INodeNo(2);
const MAX_WRITE: u32 = 1 << 20;

/// Serves a device.
pub struct Raw {
    dev: Arc<dyn BlockDevice>,
    max_background: u16,
    owner: (u32, u32),
}

impl Raw {
    /// For a user and a group.
    pub fn new(dev: Arc<dyn BlockDevice>, max_background: u16, owner: (u32, u32)) -> Raw {
        Raw { dev, max_background, owner }
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            DISK => (FileType::RegularFile, 0o600, self.dev.size()),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// What a request of `len` bytes at `off` may touch: in whole sectors, and no further than the end.
    fn clip(&self, off: u64, len: usize) -> Result<usize> {
        let unit = u64::from(self.dev.logical_block_size());
        if !off.is_multiple_of(unit) || !(len as u64).is_multiple_of(unit) {
            return Err(Error::Invalid("not aligned to the device's blocks"));
        }
        Ok(self.dev.size().saturating_sub(off).min(len as u64) as usize)
    }
}

/// The buffer of a finished read.
fn filled(payload: IoPayload) -> Option<AlignedBuf> {
    match payload {
        IoPayload::Read(bufs) => match bufs.into_iter().next() {
            Some(ReadBuf::Whole(b)) => Some(b),
            _ => None,
        },
        _ => None,
    }
}

impl Filesystem for Raw {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_BIG_WRITES;
        // Only what it offers is asked for, so this cannot fail.
        let _ = config.add_capabilities(config.capabilities() & wanted);
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_background(self.max_background);
        let _ = config.set_congestion_threshold(self.max_background);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(DISK) {
            Some(a) if parent == INodeNo::ROOT && name == "disk" => {
                reply.entry(&TTL, &a, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(a) => reply.attr(&TTL, &a),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let how = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), how);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = match self.clip(offset, size as usize) {
            Ok(0) => return reply.data(&[]),
            Ok(len) => len,
            Err(e) => return reply.error(errno(&e)),
        };
        let buf = AlignedBuf::for_overwrite(len);
        self.dev.submit(IoRequest::read(buf, offset, move |r| {
            match (r.result, filled(r.payload)) {
                (Ok(()), Some(b)) => reply.data(&b),
                (Ok(()), None) => reply.error(Errno::EIO),
                (Err(e), _) => reply.error(errno(&e)),
            }
        }));
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let len = match self.clip(offset, data.len()) {
            Ok(0) => return reply.error(Errno::ENOSPC),
            Ok(len) => len,
            Err(e) => return reply.error(errno(&e)),
        };
        let head = data.get(..len).unwrap_or(data);
        let seg = WriteSeg::whole(Arc::new(AlignedBuf::copy_of(head)));
        self.dev.submit(IoRequest::write([seg], offset, move |r| match r.result {
            Ok(()) => reply.written(len as u32),
            Err(e) => reply.error(errno(&e)),
        }));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.dev.submit(IoRequest::flush(move |r| match r.result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(&e)),
        }));
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        at: u64,
        mut reply: ReplyDirectory,
    ) {
        let all = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (DISK, FileType::RegularFile, "disk"),
        ];
        for (n, (ino, kind, name)) in (1u64..).zip(all) {
            if n > at && reply.add(ino, n, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

/// There is little to see and nothing to turn.
pub struct RawControl {
    /// The device.
    pub dev: Arc<dyn BlockDevice>,
}

impl Control for RawControl {
    fn names(&self) -> Vec<ControlName> {
        vec![ControlName { name: "size", writable: false, per_inode: false }]
    }
    fn get(&self, _: Scope, name: &str) -> std::result::Result<String, ControlError> {
        match name {
            "size" => Ok(format!("{}\n", self.dev.size())),
            _ => Err(ControlError::unknown(name)),
        }
    }
    fn set(&self, _: Scope, name: &str, _: &str) -> std::result::Result<(), ControlError> {
        Err(ControlError::read_only(name))
    }
    fn remount(&self, _: &str) -> std::result::Result<Vec<String>, ControlError> {
        Err(ControlError::refused("a raw device cannot be remounted"))
    }
    fn sync(&self) -> std::result::Result<(), ControlError> {
        Ok(self.dev.flush()?)
    }
    fn shutdown(&self, _: Shutdown) -> std::result::Result<(), ControlError> {
        Err(ControlError::refused("a raw device cannot be shut down"))
    }
    fn trace(&self, _: &str) -> std::result::Result<Box<dyn TraceStream>, ControlError> {
        Err(ControlError::refused("a raw device has no events"))
    }
}
