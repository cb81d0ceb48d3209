//! The file system as fuser sees it: each request becomes one call of [`Fs`].
//!
//! A worker finishes in place what needs no long wait. What may sleep (fsync, size changes,
//! space allocation, writers over the dirty limit or behind a lock) goes to the
//! pool with its reply, so that the workers never all sleep.

use super::{
    convert::{attr, cred, empty, errno, ino_of, node_of, set_time, xattr},
    ctldir::CtlDir,
    data::Write,
    handles::Handles,
    invalidate::Invalidator,
    ioctl,
    pool::Pool,
};
use crate::{
    error::{Error, Result},
    fs::{Fs, SetAttr, Stat},
    inode::mode as kind_of,
    options::Atime,
    types::Ino,
};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, Notifier, OpenAccMode,
    OpenFlags, RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

/// How long the kernel may keep what we told it: we are the only writer.
const TTL: Duration = Duration::from_secs(24 * 3600);
const MAX_WRITE: u32 = 1 << 20;

/// Everything the handlers share.
pub struct Adaptor {
    pub(super) fs: Arc<Fs>,
    pub(super) pool: Arc<Pool>,
    /// For requests that got the lock that they waited for. Never all busy with waiting for one.
    pub(super) granted: Arc<Pool>,
    pub(super) invalidator: Arc<Invalidator>,
    pub(super) handles: Arc<Handles>,
    notifier: Arc<OnceLock<Notifier>>,
    ctl: CtlDir,
    /// What the kernel is asked for at INIT.
    wanted: InitFlags,
    max_background: u16,
    blksize: u32,
}

impl Adaptor {
    /// Serves `fs`. `checks`: the kernel checks permissions (`default_permissions`).
    pub fn new(fs: Arc<Fs>, ctl: CtlDir, checks: bool) -> Adaptor {
        let conf = &fs.vol.conf;
        let mut wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_HAS_IOCTL_DIR;
        if checks && conf.acl {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        if conf.writeback_cache {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        if conf.atime != Atime::Strictatime {
            // A cached target is read without our hearing of it.
            wanted |= InitFlags::FUSE_CACHE_SYMLINKS;
        }
        let max_background = conf.max_background;
        let notifier: Arc<OnceLock<Notifier>> = Arc::default();
        let told = notifier.clone();
        fs.wb.on_blocks_moved(move |ino| {
            if let Some(n) = told.get() {
                // An inode that the kernel does not know is as good as told.
                let _ = n.inval_inode(node_of(ino), -1, 0);
            }
        });
        let blksize = fs.vol.geo.block_size.bytes() as u32;
        Adaptor {
            fs,
            pool: Arc::new(Pool::new(256)),
            granted: Arc::new(Pool::new(32)),
            invalidator: Arc::default(),
            handles: Arc::default(),
            notifier,
            ctl,
            wanted,
            max_background,
            blksize,
        }
    }

    /// To be filled once there is a session.
    pub fn notifier(&self) -> Arc<OnceLock<Notifier>> {
        self.notifier.clone()
    }

    /// The kernel takes it that attributes take no blocks: it is told to ask again if they do now.
    fn blocks_may_have_moved(&self, ino: INodeNo) {
        if self.fs.blocks_moved(ino_of(ino))
            && let Some(n) = self.notifier.get()
        {
            let _ = n.inval_inode(ino, -1, 0);
        }
    }

    fn attr(&self, s: &Stat) -> FileAttr {
        attr(s, self.blksize)
    }

    fn entry(&self, r: Result<Stat>, reply: ReplyEntry) {
        match r {
            Ok(s) => {
                let mut a = self.attr(&s);
                a.ino = node_of(s.ino);
                reply.entry(&TTL, &a, Generation(u64::from(s.generation)));
            }
            Err(e) => reply.error(errno(&e)),
        }
    }

    /// Opens `ino` and says how the kernel is to treat the handle.
    fn open_file(&self, ino: Ino, flags: OpenFlags) -> Result<(FileHandle, FopenFlags)> {
        let write = flags.acc_mode() != OpenAccMode::O_RDONLY;
        self.fs.may_open(ino, write, flags.0 & libc::O_APPEND != 0)?;
        let i = self.fs.open(ino, write)?;
        let mut how = FopenFlags::empty();
        if flags.0 & libc::O_DIRECT != 0 {
            how |= FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        } else if !self.fs.atime_due(&i) {
            // Where the first read moves atime it has to reach us.
            how |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        // The close of a handle that wrote tells of a failed write-out; any other has nothing to do.
        if !write {
            how |= FopenFlags::FOPEN_NOFLUSH;
        }
        let mut fh = if write { self.handles.add_writer(self.fs.errors_seen(&i)) } else { 0 };
        if flags.0 & libc::O_DIRECT == 0 {
            fh = self.handles.cached(node_of(ino).0, fh);
        }
        Ok((FileHandle(fh), how))
    }
}

impl Filesystem for Adaptor {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let able = config.capabilities() & self.wanted;
        let missing = self.wanted - able;
        if !missing.is_empty() {
            log::info!("the kernel's FUSE does not offer {missing:?}");
        }
        // Only what it offers is asked for, so this cannot fail.
        let _ = config.add_capabilities(able);
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_readahead(MAX_WRITE);
        let _ = config.set_max_background(self.max_background);
        let _ = config.set_congestion_threshold(self.max_background);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Some(found) = self.ctl.lookup(&self.fs, parent, name) {
            return match found {
                Ok(a) => reply.entry(&Duration::ZERO, &a, Generation(0)),
                Err(e) => reply.error(errno(&e)),
            };
        }
        match self.fs.lookup(ino_of(parent), name.as_bytes()) {
            Ok(None) => {
                // Node id 0: the kernel remembers that there is no such name.
                let mut a = self.attr(&Stat::default());
                a.ino = INodeNo(0);
                reply.entry(&TTL, &a, Generation(0));
            }
            Ok(Some(s)) => self.entry(Ok(s), reply),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        if ino != INodeNo::ROOT && !self.ctl.owns(ino) {
            self.fs.forget(ino_of(ino), nlookup);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if self.ctl.owns(ino) {
            return match self.ctl.getattr(ino) {
                Ok(a) => reply.attr(&Duration::ZERO, &a),
                Err(e) => reply.error(errno(&e)),
            };
        }
        match self.fs.getattr(ino_of(ino)) {
            Ok(s) => reply.attr(&TTL, &self.attr(&s)),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if self.ctl.owns(ino) {
            // `echo x > file` truncates first.
            return match self.ctl.getattr(ino) {
                Ok(a) => reply.attr(&Duration::ZERO, &a),
                Err(e) => reply.error(errno(&e)),
            };
        }
        let s = SetAttr {
            mode: mode.map(|m| (m & 0o7777) as u16),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(super::convert::from_system_time),
            kill_priv: size.is_some() && req.uid() != 0,
        };
        let (fs, blksize, cred) = (self.fs.clone(), self.blksize, cred(req));
        let times = atime.is_some() || mtime.is_some();
        let notifier = self.notifier.clone();
        let request = fs.requests.begin("setattr", ino_of(ino));
        let job = move || match fs.setattr(cred, ino_of(ino), s) {
            Ok(s) => {
                drop(request);
                let link = s.mode & kind_of::FMT == kind_of::LNK;
                if times
                    && link
                    && let Some(n) = notifier.get()
                {
                    // The next readlink may have to move atime: it has to reach us.
                    let _ = n.inval_inode(ino, 0, 0);
                }
                reply.attr(&TTL, &attr(&s, blksize));
            }
            Err(e) => reply.error(errno(&e)),
        };
        if size.is_some() { self.pool.run(job) } else { job() }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.fs.readlink(ino_of(ino)) {
            Ok(t) => reply.data(&t),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (mode, umask) = (mode as u16, umask as u16);
        let _request = self.fs.requests.begin("mknod", ino_of(parent));
        let r = self.fs.mknod(cred(req), ino_of(parent), name.as_bytes(), mode, umask, rdev);
        self.entry(r, reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (mode, umask) = (mode as u16, umask as u16);
        let _request = self.fs.requests.begin("mkdir", ino_of(parent));
        let r = self.fs.mkdir(cred(req), ino_of(parent), name.as_bytes(), mode, umask);
        self.entry(r, reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.fs.requests.begin("unlink", ino_of(parent));
        empty(self.fs.unlink(ino_of(parent), name.as_bytes()), reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.fs.requests.begin("rmdir", ino_of(parent));
        empty(self.fs.rmdir(ino_of(parent), name.as_bytes()), reply);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let _request = self.fs.requests.begin("symlink", ino_of(parent));
        let r = self.fs.symlink(cred(req), ino_of(parent), link_name.as_bytes(), target);
        self.entry(r, reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _request = self.fs.requests.begin("rename", ino_of(parent));
        let r = self.fs.rename(
            cred(req),
            ino_of(parent),
            name.as_bytes(),
            ino_of(newparent),
            newname.as_bytes(),
            flags.bits(),
        );
        empty(r, reply);
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let _request = self.fs.requests.begin("link", ino_of(ino));
        self.entry(self.fs.link(ino_of(ino), ino_of(newparent), newname.as_bytes()), reply);
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.ctl.owns(ino) {
            return match self.ctl.open(ino) {
                Ok(fh) => reply.opened(FileHandle(fh), FopenFlags::FOPEN_DIRECT_IO),
                Err(e) => reply.error(errno(&e)),
            };
        }
        match self.open_file(ino_of(ino), flags) {
            Ok((fh, how)) => reply.opened(fh, how),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (mode, umask) = (mode as u16, umask as u16);
        let _request = self.fs.requests.begin("create", ino_of(parent));
        let made = self.fs.mknod(cred(req), ino_of(parent), name.as_bytes(), mode, umask, 0);
        let opened = made.and_then(|s| self.open_file(s.ino, OpenFlags(flags)).map(|o| (s, o)));
        match opened {
            Ok((s, (fh, how))) => {
                let mut a = self.attr(&s);
                a.ino = node_of(s.ino);
                reply.created(&TTL, &a, Generation(u64::from(s.generation)), fh, how);
            }
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if self.ctl.owns(ino) {
            return match self.ctl.read(fh.0, offset, size) {
                Ok(d) => reply.data(&d),
                Err(e) => reply.error(errno(&e)),
            };
        }
        self.serve_read(ino_of(ino), offset, size as usize, flags, reply);
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.ctl.owns(ino) {
            return match self.ctl.write(ino, fh.0, data) {
                Ok(()) => reply.written(data.len() as u32),
                Err(e) => reply.error(errno(&e)),
            };
        }
        let write = Write { cred: cred(req), node: ino, off: offset, flags, how: write_flags };
        self.serve_write(write, data, reply);
    }

    fn flush(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let r = self.handles.with(fh.0, |seen| self.fs.take_error(ino_of(ino), seen));
        empty(r.unwrap_or(Ok(())), reply);
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if self.ctl.owns(ino) {
            self.ctl.release(fh.0);
            return reply.ok();
        }
        self.handles.remove(ino.0, fh.0);
        let (fs, ino) = (self.fs.clone(), ino_of(ino));
        let waits = fs.release_may_wait(ino);
        let job = move || {
            fs.release(ino);
            reply.ok();
        };
        if waits { self.pool.run(job) } else { job() }
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let (fs, handles, ino) = (self.fs.clone(), self.handles.clone(), ino_of(ino));
        let request = fs.requests.begin("fsync", ino);
        self.pool.run(move || {
            let synced = fs.fsync(ino, datasync);
            drop(request);
            let told = handles.with(fh.0, |seen| fs.take_error(ino, seen));
            empty(synced.and(told.unwrap_or(Ok(()))), reply);
        });
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.ctl.owns(ino) {
            return reply.opened(FileHandle(0), FopenFlags::empty());
        }
        if self.wanted.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT) {
            // The kernel then opens directories by itself and caches their entries.
            return reply.error(Errno::ENOSYS);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if self.ctl.owns(ino) {
            return match self.ctl.readdir(offset, &mut reply) {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(errno(&e)),
            };
        }
        let r = self.fs.readdir(ino_of(ino), offset, &mut |e| {
            let name = OsStr::from_bytes(e.name);
            let kind = super::convert::dirent_kind(e.kind);
            !reply.add(INodeNo(u64::from(e.ino.0)), e.next, kind, name)
        });
        match r {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        if self.ctl.owns(ino) {
            return match self.ctl.readdirplus(offset, &mut reply) {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(errno(&e)),
            };
        }
        let r = self.fs.readdir(ino_of(ino), offset, &mut |e| {
            let name = OsStr::from_bytes(e.name);
            let (mut a, generation) = match self.fs.entry_stat(e.name, e.ino) {
                Some(s) => (self.attr(&s), s.generation),
                None => return true,
            };
            a.ino = node_of(e.ino);
            let full = reply.add(a.ino, e.next, name, &TTL, &a, Generation(u64::from(generation)));
            if full && !matches!(e.name, b"." | b"..") {
                // It did not fit, so the kernel took no reference.
                self.fs.forget(e.ino, 1);
            }
            !full
        });
        match r {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let fs = self.fs.clone();
        self.pool.run(move || empty(fs.fsync(ino_of(ino), datasync), reply));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let s = self.fs.statfs();
        reply.statfs(s.blocks, s.bfree, s.bavail, s.files, s.ffree, s.bsize, 255, s.bsize);
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let r = self.fs.setxattr(cred(req), ino_of(ino), name.as_bytes(), value, flags);
        self.blocks_may_have_moved(ino);
        empty(r, reply);
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if self.ctl.owns(ino) {
            return reply.error(errno(&Error::NoData));
        }
        xattr(self.fs.getxattr(ino_of(ino), name.as_bytes()), size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        if self.ctl.owns(ino) {
            return xattr(Ok(Vec::new()), size, reply);
        }
        xattr(self.fs.listxattr(cred(req), ino_of(ino)), size, reply);
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let r = self.fs.removexattr(ino_of(ino), name.as_bytes());
        self.blocks_may_have_moved(ino);
        empty(r, reply);
    }

    fn bmap(&self, _req: &Request, ino: INodeNo, _blocksize: u32, idx: u64, reply: ReplyBmap) {
        match self.fs.bmap(ino_of(ino), idx) {
            Ok(b) => reply.bmap(b),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        match ioctl::run(&self.fs, req.uid() == 0, ino_of(ino), cmd, in_data) {
            // For lsattr the kernel asks for a word where ioctl(2) gives a long.
            Ok(out) => reply.ioctl(0, &out[..out.len().min(out_size as usize)]),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (fs, notifier, cred) = (self.fs.clone(), self.notifier.clone(), cred(req));
        let request = fs.requests.begin("fallocate", ino_of(ino));
        self.pool.run(move || {
            let r = fs.fallocate(cred, ino_of(ino), offset, length, mode as u32);
            drop(request);
            if r.is_err()
                && let Some(n) = notifier.get()
            {
                // The kernel takes it that nothing changed; part of it may have.
                let _ = n.inval_inode(ino, -1, 0);
            }
            empty(r, reply);
        });
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let r = match (u64::try_from(offset), whence) {
            (Ok(off), libc::SEEK_DATA) => self.fs.seek(ino_of(ino), off, false),
            (Ok(off), libc::SEEK_HOLE) => self.fs.seek(ino_of(ino), off, true),
            (Err(_), _) => Err(Error::NoOffset),
            _ => Err(Error::Invalid("whence")),
        };
        match r {
            Ok(off) => reply.offset(i64::try_from(off).unwrap_or(i64::MAX)),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (fs, cred) = (self.fs.clone(), cred(req));
        let len = len.min(u64::from(u32::MAX) & !0xf_ffff);
        let request = fs.requests.begin("copy_file_range", ino_of(ino_out));
        self.pool.run(move || {
            let from = (ino_of(ino_in), offset_in);
            let to = (ino_of(ino_out), offset_out);
            let r = fs.copy_range(cred, from, to, len);
            drop(request);
            match r {
                Ok(n) => reply.written(n as u32),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }
}
