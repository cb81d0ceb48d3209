//! Between fuser's types and ours.

use crate::{
    error::{Error, Result},
    fs::{Cred, SetTime, Stat},
    inode::mode,
    ondisk::{FileKind, Timestamp},
    types::Ino,
};
use fuser::{Errno, FileAttr, FileType, INodeNo, ReplyEmpty, ReplyXattr, Request, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// FUSE calls the root 1; ext4 calls it 2 and keeps 1 for bad blocks, which
/// no request may name.
pub fn ino_of(node: INodeNo) -> Ino {
    match node.0 {
        1 => Ino::ROOT,
        // Out of range for every file system: becomes ESTALE.
        2 => Ino(0),
        n => Ino(u32::try_from(n).unwrap_or(0)),
    }
}

/// The node id of an inode.
pub fn node_of(ino: Ino) -> INodeNo {
    INodeNo(if ino == Ino::ROOT { 1 } else { u64::from(ino.0) })
}

/// The errno of an error, for a reply.
pub fn errno(e: &Error) -> Errno {
    Errno::from_i32(e.errno())
}

/// fuser's file type of a mode.
pub fn kind(m: u16) -> FileType {
    match m & mode::FMT {
        mode::DIR => FileType::Directory,
        mode::LNK => FileType::Symlink,
        mode::CHR => FileType::CharDevice,
        mode::BLK => FileType::BlockDevice,
        mode::FIFO => FileType::NamedPipe,
        mode::SOCK => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

/// The file type of a directory entry; a regular file where the file system does not record it.
pub fn dirent_kind(k: Option<FileKind>) -> FileType {
    k.map_or(FileType::RegularFile, |k| kind(k.mode_bits()))
}

/// Times before 1970 included.
pub fn to_system_time(t: Timestamp) -> SystemTime {
    let nsec = Duration::from_nanos(u64::from(t.nsec));
    let base = if t.sec >= 0 {
        UNIX_EPOCH.checked_add(Duration::from_secs(t.sec.unsigned_abs()))
    } else {
        UNIX_EPOCH.checked_sub(Duration::from_secs(t.sec.unsigned_abs()))
    };
    base.and_then(|b| b.checked_add(nsec)).unwrap_or(UNIX_EPOCH)
}

/// A time from the kernel. fuser subtracts the nanoseconds of a time before 1970 where
/// they are to be added: undone here.
pub fn from_system_time(t: SystemTime) -> Timestamp {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => Timestamp {
            sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            nsec: d.subsec_nanos(),
        },
        Err(e) => {
            let d = e.duration();
            let sec = i64::try_from(d.as_secs()).map_or(i64::MIN, |s| -s);
            Timestamp { sec, nsec: d.subsec_nanos() }
        }
    }
}

/// A time of setattr.
pub fn set_time(t: TimeOrNow) -> SetTime {
    match t {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(t) => SetTime::At(from_system_time(t)),
    }
}

/// The attributes for a reply. `ino` is the number that programs see; entries use
/// it as node id too, which for the root is [`node_of`].
pub fn attr(s: &Stat, blksize: u32) -> FileAttr {
    FileAttr {
        ino: INodeNo(u64::from(s.ino.0)),
        size: s.size,
        blocks: s.blocks512,
        atime: to_system_time(s.atime),
        mtime: to_system_time(s.mtime),
        ctime: to_system_time(s.ctime),
        crtime: to_system_time(s.crtime),
        kind: kind(s.mode),
        perm: s.mode & 0o7777,
        nlink: s.nlink,
        uid: s.uid,
        gid: s.gid,
        rdev: s.rdev,
        blksize,
        flags: 0,
    }
}

/// Who asks.
pub(super) fn cred(req: &Request) -> Cred {
    Cred { uid: req.uid(), gid: req.gid() }
}

/// Replies with nothing or an errno.
pub(super) fn empty(r: Result<()>, reply: ReplyEmpty) {
    match r {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(&e)),
    }
}

/// Replies to the two-step protocol of getxattr and listxattr.
pub(super) fn xattr(r: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match r {
        Ok(v) if size == 0 => reply.size(v.len() as u32),
        Ok(v) if v.len() <= size as usize => reply.data(&v),
        Ok(_) => reply.error(errno(&Error::Range)),
        Err(e) => reply.error(errno(&e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_survive_fuser() {
        // What fuser makes of tv_sec -1, tv_nsec 999_999_999.
        let mangled = UNIX_EPOCH - Duration::new(1, 999_999_999);
        let t = from_system_time(mangled);
        assert_eq!(t, Timestamp { sec: -1, nsec: 999_999_999 });
        assert_eq!(to_system_time(t), UNIX_EPOCH - Duration::from_nanos(1));
        let t = Timestamp { sec: 15_032_385_535, nsec: 7 };
        assert_eq!(from_system_time(to_system_time(t)), t);
    }

    #[test]
    fn the_root_has_two_numbers() {
        assert_eq!(ino_of(INodeNo(1)), Ino(2));
        assert_eq!(node_of(Ino(2)), INodeNo(1));
        assert_eq!(ino_of(INodeNo(2)), Ino(0));
        assert_eq!(ino_of(INodeNo(1 << 40)), Ino(0));
    }
}
