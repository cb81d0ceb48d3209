//! The one error type, and the one place where an errno is chosen.

use crate::types::{Block, Group, Ino};
use std::{fmt, io};

/// What every fallible function here returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Something went wrong; [`Error::errno`] says what the caller of the system call sees.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed a request. `offset` in bytes from the start of the file system.
    #[error("{op} of the device at byte {offset}: {source}")]
    Io {
        /// `read`, `write`, `flush`, `discard`.
        op: &'static str,
        /// Byte offset of the request on the device.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file system contradicts itself.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The image cannot be mounted (as asked): not ext4, unknown feature, dirty and read-only, ...
    #[error("{0}")]
    Unmountable(String),
    /// The image is in use by another daemon or by the kernel (EBUSY); says by whom.
    #[error("{0}")]
    InUse(String),
    /// No free block (ENOSPC).
    #[error("no space left on device")]
    NoSpace,
    /// The journal was aborted or the file system went read-only after an error, or was mounted so (EROFS).
    #[error("read-only file system")]
    ReadOnly,
    /// After FS_IOC_SHUTDOWN, or a failed journal: nothing more reaches the device (EIO).
    #[error("file system is shut down")]
    Shutdown,
    /// ENOENT
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST
    #[error("file exists")]
    Exists,
    /// ENOTDIR
    #[error("not a directory")]
    NotDir,
    /// EISDIR
    #[error("is a directory")]
    IsDir,
    /// ENOTEMPTY
    #[error("directory not empty")]
    NotEmpty,
    /// ENAMETOOLONG
    #[error("file name too long")]
    NameTooLong,
    /// EMLINK
    #[error("too many links")]
    TooManyLinks,
    /// EPERM
    #[error("operation not permitted")]
    Perm,
    /// EACCES
    #[error("permission denied")]
    Access,
    /// EINVAL, with what was invalid.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// EOPNOTSUPP
    #[error("operation not supported")]
    NotSupported,
    /// EFBIG
    #[error("file too large")]
    TooBig,
    /// ERANGE: the caller's buffer is too small.
    #[error("result does not fit")]
    Range,
    /// ENODATA: no such extended attribute.
    #[error("no such attribute")]
    NoData,
    /// E2BIG
    #[error("argument too large")]
    ArgTooBig,
    /// ENXIO: SEEK_DATA or SEEK_HOLE past the end.
    #[error("no such offset")]
    NoOffset,
    /// EBUSY
    #[error("busy")]
    Busy,
    /// ESTALE: the inode is gone.
    #[error("stale file handle")]
    Stale,
    /// ENOTTY: unknown ioctl.
    #[error("inappropriate ioctl")]
    NotTty,
    /// ETXTBSY, e.g. swap files and verity being built.
    #[error("file is in use")]
    TextBusy,
    /// ENOMEM
    #[error("out of memory")]
    NoMemory,
    /// ENOKEY: needs an encryption key that is not here.
    #[error("required key not available")]
    NoKey,
    /// EOVERFLOW: a value does not fit the on-disk field.
    #[error("value too large for the on-disk field")]
    Overflow,
    /// EDQUOT
    #[error("disk quota exceeded")]
    Quota,
}

/// A contradiction found in the file system, with the numbers that locate it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Corrupt {
    /// What is wrong, in a few words.
    pub what: &'static str,
    /// The block it was found in.
    pub block: Option<Block>,
    /// The inode it concerns.
    pub ino: Option<Ino>,
    /// The block group it concerns.
    pub group: Option<Group>,
    /// The offending value, where there is one.
    pub value: Option<u64>,
    /// A checksum did not match (EFSBADCRC = EBADMSG; else EFSCORRUPTED = EUCLEAN).
    pub checksum: bool,
}

impl Corrupt {
    /// `what` is wrong; add the numbers with the builder methods.
    pub fn new(what: &'static str) -> Corrupt {
        Corrupt { what, ..Corrupt::default() }
    }
    /// A checksum of `what` does not match.
    pub fn checksum(what: &'static str) -> Corrupt {
        Corrupt { what, checksum: true, ..Corrupt::default() }
    }
    /// Found in this block.
    pub fn block(mut self, b: Block) -> Corrupt {
        self.block = Some(b);
        self
    }
    /// Concerns this inode.
    pub fn ino(mut self, i: Ino) -> Corrupt {
        self.ino = Some(i);
        self
    }
    /// Concerns this group.
    pub fn group(mut self, g: Group) -> Corrupt {
        self.group = Some(g);
        self
    }
    /// The offending value.
    pub fn value(mut self, v: u64) -> Corrupt {
        self.value = Some(v);
        self
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.checksum { "bad checksum: " } else { "corrupt: " })?;
        f.write_str(self.what)?;
        if let Some(v) = self.value {
            write!(f, " ({v})")?;
        }
        if let Some(i) = self.ino {
            write!(f, ", inode {i}")?;
        }
        if let Some(g) = self.group {
            write!(f, ", group {g}")?;
        }
        if let Some(b) = self.block {
            write!(f, ", block {b}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Corrupt {}

impl Error {
    /// The errno a system call reports for this error. Never ENOSYS: the FUSE
    /// client would switch the operation off for the whole mount.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Io { source, .. } => match source.raw_os_error() {
                Some(libc::ENOSPC) => libc::ENOSPC,
                _ => libc::EIO,
            },
            Error::Corrupt(c) => {
                if c.checksum {
                    libc::EBADMSG
                } else {
                    libc::EUCLEAN
                }
            }
            Error::Unmountable(_) => libc::EINVAL,
            Error::InUse(_) => libc::EBUSY,
            Error::NoSpace => libc::ENOSPC,
            Error::ReadOnly => libc::EROFS,
            Error::Shutdown => libc::EIO,
            Error::NotFound => libc::ENOENT,
            Error::Exists => libc::EEXIST,
            Error::NotDir => libc::ENOTDIR,
            Error::IsDir => libc::EISDIR,
            Error::NotEmpty => libc::ENOTEMPTY,
            Error::NameTooLong => libc::ENAMETOOLONG,
            Error::TooManyLinks => libc::EMLINK,
            Error::Perm => libc::EPERM,
            Error::Access => libc::EACCES,
            Error::Invalid(_) => libc::EINVAL,
            Error::NotSupported => libc::EOPNOTSUPP,
            Error::TooBig => libc::EFBIG,
            Error::Range => libc::ERANGE,
            Error::NoData => libc::ENODATA,
            Error::ArgTooBig => libc::E2BIG,
            Error::NoOffset => libc::ENXIO,
            Error::Busy => libc::EBUSY,
            Error::Stale => libc::ESTALE,
            Error::NotTty => libc::ENOTTY,
            Error::TextBusy => libc::ETXTBSY,
            Error::NoMemory => libc::ENOMEM,
            Error::NoKey => libc::ENOKEY,
            Error::Overflow => libc::EOVERFLOW,
            Error::Quota => libc::EDQUOT,
        }
    }
}
