//! Metadata operations on many files of one directory, from one or several client threads, through
//! plain system calls: the client must cost little.

use std::ffi::CString;
use std::io;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What is done to each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// open(O_CREAT | O_EXCL) and close.
    Create,
    /// mknod(2): a create of one request.
    Mknod,
    /// lstat(2).
    Stat,
    /// rename(2) to another name in the same directory.
    Rename,
    /// rename(2) back.
    RenameBack,
    /// unlink(2).
    Unlink,
}

impl Op {
    /// All, by name.
    pub const ALL: [(&str, Op); 6] = [
        ("create", Op::Create),
        ("mknod", Op::Mknod),
        ("stat", Op::Stat),
        ("rename", Op::Rename),
        ("rename-back", Op::RenameBack),
        ("unlink", Op::Unlink),
    ];

    /// By name.
    pub fn by_name(name: &str) -> Option<Op> {
        Op::ALL.iter().find(|(n, _)| *n == name).map(|&(_, op)| op)
    }
}

fn checked(r: libc::c_int) -> io::Result<libc::c_int> {
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) }
}

fn one(op: Op, dir: libc::c_int, name: &CString, other: &CString) -> io::Result<()> {
    let (n, o) = (name.as_ptr(), other.as_ptr());
    // SAFETY: `dir` is an open directory; the strings and `st` outlive the calls.
    unsafe {
        match op {
            Op::Create => {
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
                let fd = checked(libc::openat(dir, n, flags, 0o644))?;
                checked(libc::close(fd))?;
            }
            Op::Mknod => {
                checked(libc::mknodat(dir, n, libc::S_IFREG | 0o644, 0))?;
            }
            Op::Stat => {
                let mut st = std::mem::zeroed::<libc::stat>();
                checked(libc::fstatat(dir, n, &mut st, libc::AT_SYMLINK_NOFOLLOW))?;
            }
            Op::Rename => {
                checked(libc::renameat(dir, n, dir, o))?;
            }
            Op::RenameBack => {
                checked(libc::renameat(dir, o, dir, n))?;
            }
            Op::Unlink => {
                checked(libc::unlinkat(dir, n, 0))?;
            }
        }
    }
    Ok(())
}

/// Does `op` to the files `first..first + count` of `dir`, shared out among `clients` threads.
///
/// # Errors
/// Of the first system call that failed.
pub fn run(op: Op, dir: &Path, first: u64, count: u64, clients: u64) -> io::Result<Duration> {
    use std::os::fd::AsRawFd;
    let handle = std::fs::File::open(dir)?;
    let fd = handle.as_raw_fd();
    let start = Barrier::new(clients as usize + 1);
    let mut begun = Instant::now();
    std::thread::scope(|s| {
        let start = &start;
        let threads: Vec<_> = (0..clients)
            .map(|c| {
                s.spawn(move || -> io::Result<()> {
                    let name = |what: &str, i: u64| CString::new(format!("{what}{i:07}"));
                    let mut names = Vec::new();
                    for i in (first..first + count).filter(|i| i % clients == c) {
                        names.push((name("file-", i)?, name("other-", i)?));
                    }
                    start.wait();
                    names.iter().try_for_each(|(n, o)| one(op, fd, n, o))
                })
            })
            .collect();
        start.wait();
        begun = Instant::now();
        let mut result = Ok(());
        for t in threads {
            let r = t.join().unwrap_or_else(|_| Err(io::Error::other("client panicked")));
            result = result.and(r);
        }
        result
    })?;
    Ok(begun.elapsed())
}
