//! An empty FUSE file system in memory: what the transport allows. It asks the kernel for what
//! uext4 asks for (flags, sizes, timeouts, open flags, worker threads) and does no work of its own
//! but what a request needs: a hash look-up, a copy.
//!
//! `emptyfs MOUNTPOINT [--threads N] [--max-background N] [--read-ahead-kb N]`; it serves until unmounted.

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenAccMode, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, SessionACL, TimeOrNow, WriteFlags,
};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

const TTL: Duration = Duration::from_secs(24 * 3600);
const MAX_WRITE: u32 = 1 << 20;
/// File data is kept in pieces of this many bytes, each with a lock of its own.
const PIECE: usize = 256 << 10;
const SHARDS: usize = 64;

type Piece = Arc<RwLock<Box<[u8]>>>;

#[derive(Default)]
struct Directory {
    names: HashMap<OsString, (u64, u64)>,
    /// In order of creation, by cookie.
    order: BTreeMap<u64, (OsString, u64, FileType)>,
    next: u64,
}

struct Node {
    attr: Mutex<FileAttr>,
    dir: RwLock<Directory>,
    data: RwLock<Vec<Option<Piece>>>,
    target: Vec<u8>,
}

struct Empty {
    shards: Vec<RwLock<HashMap<u64, Arc<Node>>>>,
    next: AtomicU64,
    max_background: u16,
}

fn new_attr(ino: u64, kind: FileType, perm: u16, uid: u32, gid: u32) -> FileAttr {
    let now = SystemTime::now();
    FileAttr {
        ino: INodeNo(ino),
        size: if kind == FileType::Directory { 4096 } else { 0 },
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm,
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        uid,
        gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Empty {
    fn new(max_background: u16) -> Empty {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        let e = Empty { shards, next: AtomicU64::new(2), max_background };
        e.add(1, new_attr(1, FileType::Directory, 0o755, 0, 0), Vec::new());
        e
    }

    fn shard(&self, ino: u64) -> &RwLock<HashMap<u64, Arc<Node>>> {
        &self.shards[ino as usize % SHARDS]
    }

    fn get(&self, ino: INodeNo) -> Result<Arc<Node>, Errno> {
        self.shard(ino.0).read().get(&ino.0).cloned().ok_or(Errno::ENOENT)
    }

    fn add(&self, ino: u64, attr: FileAttr, target: Vec<u8>) -> Arc<Node> {
        let node = Arc::new(Node {
            attr: Mutex::new(attr),
            dir: RwLock::default(),
            data: RwLock::default(),
            target,
        });
        self.shard(ino).write().insert(ino, node.clone());
        node
    }

    fn make(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        (kind, perm): (FileType, u16),
        target: &[u8],
    ) -> Result<FileAttr, Errno> {
        let dir = self.get(parent)?;
        let mut d = dir.dir.write();
        if d.names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let ino = self.next.fetch_add(1, Relaxed);
        let mut attr = new_attr(ino, kind, perm & 0o7777, req.uid(), req.gid());
        if kind == FileType::Symlink {
            attr.size = target.len() as u64;
        }
        self.add(ino, attr, target.to_vec());
        enter(&mut d, name, ino, kind);
        Ok(attr)
    }

    fn drop_name(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let dir = self.get(parent)?;
        let ino = leave(&mut dir.dir.write(), name).ok_or(Errno::ENOENT)?;
        // It goes when the kernel forgets it.
        let node = self.get(INodeNo(ino))?;
        let mut a = node.attr.lock();
        a.nlink = if a.kind == FileType::Directory { 0 } else { a.nlink.saturating_sub(1) };
        Ok(())
    }

    fn open_flags(flags: OpenFlags) -> FopenFlags {
        let mut how = FopenFlags::empty();
        if flags.0 & libc::O_DIRECT != 0 {
            how |= FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        } else {
            how |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        if flags.acc_mode() == OpenAccMode::O_RDONLY {
            how |= FopenFlags::FOPEN_NOFLUSH;
        }
        how
    }
}

fn enter(d: &mut Directory, name: &OsStr, ino: u64, kind: FileType) {
    d.next += 1;
    let at = d.next;
    d.names.insert(name.to_os_string(), (ino, at));
    d.order.insert(at, (name.to_os_string(), ino, kind));
}

fn leave(d: &mut Directory, name: &OsStr) -> Option<u64> {
    let (ino, at) = d.names.remove(name)?;
    d.order.remove(&at);
    Some(ino)
}

impl Node {
    fn read(&self, offset: u64, size: usize) -> Vec<u8> {
        let end = self.attr.lock().size.min(offset.saturating_add(size as u64));
        let mut out = Vec::with_capacity(size);
        let mut at = offset;
        let data = self.data.read();
        while at < end {
            let within = (at % PIECE as u64) as usize;
            let n = (PIECE - within).min((end - at) as usize);
            match data.get((at / PIECE as u64) as usize).and_then(Option::as_ref) {
                Some(p) => out.extend_from_slice(&p.read()[within..within + n]),
                None => out.resize(out.len() + n, 0),
            }
            at += n as u64;
        }
        out
    }

    fn piece(&self, i: usize) -> Piece {
        if let Some(Some(p)) = self.data.read().get(i) {
            return p.clone();
        }
        let mut data = self.data.write();
        if data.len() <= i {
            data.resize_with(i + 1, || None);
        }
        data[i].get_or_insert_with(|| Arc::new(RwLock::new(vec![0; PIECE].into()))).clone()
    }

    fn write(&self, offset: u64, mut bytes: &[u8]) {
        let mut at = offset;
        while !bytes.is_empty() {
            let within = (at % PIECE as u64) as usize;
            let n = (PIECE - within).min(bytes.len());
            let piece = self.piece((at / PIECE as u64) as usize);
            piece.write()[within..within + n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            at += n as u64;
        }
        let mut a = self.attr.lock();
        a.size = a.size.max(at);
        a.blocks = a.size.div_ceil(512);
    }

    fn truncate(&self, size: u64) {
        let keep = size.div_ceil(PIECE as u64) as usize;
        let mut data = self.data.write();
        data.truncate(keep);
        let within = (size % PIECE as u64) as usize;
        if within > 0
            && let Some(Some(p)) = data.get((size / PIECE as u64) as usize)
        {
            p.write()[within..].fill(0);
        }
        self.attr.lock().size = size;
    }
}

fn empty(r: Result<(), Errno>, reply: ReplyEmpty) {
    match r {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

fn entry(r: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match r {
        Ok(a) => reply.entry(&TTL, &a, Generation(0)),
        Err(e) => reply.error(e),
    }
}

impl Filesystem for Empty {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_HAS_IOCTL_DIR
            | InitFlags::FUSE_POSIX_ACL;
        let able = config.capabilities() & wanted;
        let _ = config.add_capabilities(able);
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_readahead(MAX_WRITE);
        let _ = config.set_max_background(self.max_background);
        let _ = config.set_congestion_threshold(self.max_background);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.get(parent).map(|d| d.dir.read().names.get(name).map(|&(ino, _)| ino));
        match found {
            Ok(None) => {
                let a = new_attr(0, FileType::RegularFile, 0, 0, 0);
                reply.entry(&TTL, &a, Generation(0));
            }
            Ok(Some(ino)) => entry(self.get(INodeNo(ino)).map(|n| *n.attr.lock()), reply),
            Err(e) => reply.error(e),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, _nlookup: u64) {
        if self.get(ino).is_ok_and(|n| n.attr.lock().nlink == 0) {
            self.shard(ino.0).write().remove(&ino.0);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.get(ino) {
            Ok(n) => reply.attr(&TTL, &n.attr.lock()),
            Err(e) => reply.error(e),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = match self.get(ino) {
            Ok(n) => n,
            Err(e) => return reply.error(e),
        };
        if let Some(size) = size {
            node.truncate(size);
        }
        let mut a = node.attr.lock();
        if let Some(m) = mode {
            a.perm = (m & 0o7777) as u16;
        }
        a.uid = uid.unwrap_or(a.uid);
        a.gid = gid.unwrap_or(a.gid);
        match mtime {
            Some(TimeOrNow::SpecificTime(t)) => a.mtime = t,
            Some(TimeOrNow::Now) => a.mtime = SystemTime::now(),
            None => {}
        }
        reply.attr(&TTL, &a);
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.get(ino) {
            Ok(n) => reply.data(&n.target),
            Err(e) => reply.error(e),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let perm = (mode & !umask) as u16;
        entry(self.make(req, parent, name, (FileType::RegularFile, perm), b""), reply);
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
        let perm = (mode & !umask) as u16;
        entry(self.make(req, parent, name, (FileType::Directory, perm), b""), reply);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        entry(self.make(req, parent, name, (FileType::Symlink, 0o777), target), reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.drop_name(parent, name), reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.drop_name(parent, name), reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let moved = || {
            let from = self.get(parent)?;
            let ino = leave(&mut from.dir.write(), name).ok_or(Errno::ENOENT)?;
            let kind = self.get(INodeNo(ino))?.attr.lock().kind;
            let to = self.get(newparent)?;
            let mut d = to.dir.write();
            if let Some(old) = leave(&mut d, newname) {
                self.get(INodeNo(old))?.attr.lock().nlink = 0;
            }
            enter(&mut d, newname, ino, kind);
            Ok(())
        };
        empty(moved(), reply);
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = || {
            let node = self.get(ino)?;
            let dir = self.get(newparent)?;
            let mut a = node.attr.lock();
            enter(&mut dir.dir.write(), newname, ino.0, a.kind);
            a.nlink += 1;
            Ok(*a)
        };
        entry(linked(), reply);
    }

    fn open(&self, _req: &Request, _ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), Empty::open_flags(flags));
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
        let perm = (mode & !umask) as u16;
        let how = Empty::open_flags(OpenFlags(flags));
        match self.make(req, parent, name, (FileType::RegularFile, perm), b"") {
            Ok(a) => reply.created(&TTL, &a, Generation(0), FileHandle(0), how),
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.get(ino) {
            Ok(n) => reply.data(&n.read(offset, size as usize)),
            Err(e) => reply.error(e),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.get(ino) {
            Ok(n) => {
                n.write(offset, data);
                reply.written(data.len() as u32);
            }
            Err(e) => reply.error(e),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        let grown = self.get(ino).map(|n| {
            let mut a = n.attr.lock();
            a.size = a.size.max(offset + length);
        });
        empty(grown, reply);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let dir = match self.get(ino) {
            Ok(d) => d,
            Err(e) => return reply.error(e),
        };
        for (&at, (name, ino, kind)) in dir.dir.read().order.range(offset + 1..) {
            if reply.add(INodeNo(*ino), at, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let dir = match self.get(ino) {
            Ok(d) => d,
            Err(e) => return reply.error(e),
        };
        for (&at, (name, ino, _)) in dir.dir.read().order.range(offset + 1..) {
            let Ok(n) = self.get(INodeNo(*ino)) else { continue };
            let a = *n.attr.lock();
            if reply.add(INodeNo(*ino), at, name, &TTL, &a, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 30, 1 << 29, 1 << 29, 1 << 30, 1 << 29, 4096, 255, 4096);
    }
}

struct Args {
    point: String,
    threads: usize,
    max_background: u16,
    read_ahead_kb: u32,
}

fn args() -> Result<Args, String> {
    let mut a =
        Args { point: String::new(), threads: 16, max_background: 1024, read_ahead_kb: 1024 };
    let mut given = std::env::args().skip(1);
    while let Some(arg) = given.next() {
        let mut number = || {
            let n = given.next().and_then(|v| v.parse::<u32>().ok());
            n.ok_or_else(|| format!("{arg} wants a number"))
        };
        match arg.as_str() {
            "--threads" => a.threads = number()? as usize,
            "--max-background" => a.max_background = number()?.min(65535) as u16,
            "--read-ahead-kb" => a.read_ahead_kb = number()?,
            s if s.starts_with('-') || !a.point.is_empty() => return Err(format!("{s}: unknown")),
            s => a.point = s.into(),
        }
    }
    if a.point.is_empty() { Err("no mount point given".into()) } else { Ok(a) }
}

/// As uext4 does for its mounts.
fn set_read_ahead(point: &str, kb: u32) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let dev = std::fs::metadata(point)?.dev();
    let bdi = format!("{}:{}", libc::major(dev), libc::minor(dev));
    std::fs::write(format!("/sys/class/bdi/{bdi}/read_ahead_kb"), kb.to_string())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let a = args()?;
    let mut config = fuser::Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(a.threads);
    config.clone_fd = true;
    config.mount_options = vec![
        MountOption::FSName("emptyfs".into()),
        MountOption::DefaultPermissions,
        MountOption::Suid,
        MountOption::Dev,
    ];
    let session = Session::new(Empty::new(a.max_background), &a.point, &config)?;
    let point = a.point.clone();
    // Answered by the session below.
    std::thread::spawn(move || {
        if let Err(e) = set_read_ahead(&point, a.read_ahead_kb) {
            eprintln!("emptyfs: read-ahead: {e}");
        }
    });
    session.run()?;
    Ok(())
}
