//! The operations of a workload, and their text form: a line of a workload file and of a mark.

use std::fmt;

/// How a write is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Through the page cache.
    Buffered,
    /// O_DIRECT.
    Direct,
    /// O_SYNC.
    Sync,
}

/// One step of a workload. Paths have no blanks; one that begins with `@` names what `open` of the rest opened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Op {
    Create {
        path: String,
    },
    Mkdir {
        path: String,
    },
    Symlink {
        path: String,
        target: String,
    },
    Link {
        old: String,
        new: String,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Rename {
        old: String,
        new: String,
    },
    Exchange {
        old: String,
        new: String,
    },
    Write {
        path: String,
        off: u64,
        len: u64,
        how: How,
    },
    Truncate {
        path: String,
        size: u64,
    },
    /// fallocate(2) with these mode bits.
    Falloc {
        path: String,
        off: u64,
        len: u64,
        mode: u32,
    },
    Fsync {
        path: String,
    },
    Fdatasync {
        path: String,
    },
    Sync,
    SetXattr {
        path: String,
        name: String,
        len: u64,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    /// An access list with `users` named users.
    SetAcl {
        path: String,
        users: u32,
    },
    Chmod {
        path: String,
        mode: u16,
    },
    Open {
        path: String,
    },
    Close {
        path: String,
    },
    /// The flusher's work on one file: data goes out, nothing is committed.
    Writeout {
        path: String,
    },
    /// The commit thread's work: what was changed is committed, no data is written out.
    Commit,
    /// Everything committed goes home.
    Checkpoint,
    /// Milliseconds of nothing.
    Sleep {
        ms: u64,
    },
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create { path } => write!(f, "create {path}"),
            Op::Mkdir { path } => write!(f, "mkdir {path}"),
            Op::Symlink { path, target } => write!(f, "symlink {path} {target}"),
            Op::Link { old, new } => write!(f, "link {old} {new}"),
            Op::Unlink { path } => write!(f, "unlink {path}"),
            Op::Rmdir { path } => write!(f, "rmdir {path}"),
            Op::Rename { old, new } => write!(f, "rename {old} {new}"),
            Op::Exchange { old, new } => write!(f, "exchange {old} {new}"),
            Op::Write { path, off, len, how } => {
                let word = match how {
                    How::Buffered => "write",
                    How::Direct => "dwrite",
                    How::Sync => "swrite",
                };
                write!(f, "{word} {path} {off} {len}")
            }
            Op::Truncate { path, size } => write!(f, "truncate {path} {size}"),
            Op::Falloc { path, off, len, mode } => write!(f, "falloc {path} {off} {len} {mode}"),
            Op::Fsync { path } => write!(f, "fsync {path}"),
            Op::Fdatasync { path } => write!(f, "fdatasync {path}"),
            Op::Sync => write!(f, "sync"),
            Op::SetXattr { path, name, len } => write!(f, "setxattr {path} {name} {len}"),
            Op::RemoveXattr { path, name } => write!(f, "rmxattr {path} {name}"),
            Op::SetAcl { path, users } => write!(f, "setacl {path} {users}"),
            Op::Chmod { path, mode } => write!(f, "chmod {path} {mode}"),
            Op::Open { path } => write!(f, "open {path}"),
            Op::Close { path } => write!(f, "close {path}"),
            Op::Writeout { path } => write!(f, "writeout {path}"),
            Op::Commit => write!(f, "commit"),
            Op::Checkpoint => write!(f, "checkpoint"),
            Op::Sleep { ms } => write!(f, "sleep {ms}"),
        }
    }
}

impl Op {
    /// From its text form; `None` if it is none.
    pub fn parse(line: &str) -> Option<Op> {
        let mut w = line.split_whitespace();
        let word = w.next()?;
        let rest: Vec<&str> = w.collect();
        let path = || rest.first().map(|s| s.to_string());
        let second = || rest.get(1).map(|s| s.to_string());
        fn num<T: std::str::FromStr>(rest: &[&str], at: usize) -> Option<T> {
            rest.get(at)?.parse().ok()
        }
        Some(match word {
            "create" => Op::Create { path: path()? },
            "mkdir" => Op::Mkdir { path: path()? },
            "symlink" => Op::Symlink { path: path()?, target: second()? },
            "link" => Op::Link { old: path()?, new: second()? },
            "unlink" => Op::Unlink { path: path()? },
            "rmdir" => Op::Rmdir { path: path()? },
            "rename" => Op::Rename { old: path()?, new: second()? },
            "exchange" => Op::Exchange { old: path()?, new: second()? },
            "write" | "dwrite" | "swrite" => Op::Write {
                path: path()?,
                off: num(&rest, 1)?,
                len: num(&rest, 2)?,
                how: match word {
                    "write" => How::Buffered,
                    "dwrite" => How::Direct,
                    _ => How::Sync,
                },
            },
            "truncate" => Op::Truncate { path: path()?, size: num(&rest, 1)? },
            "falloc" => Op::Falloc {
                path: path()?,
                off: num(&rest, 1)?,
                len: num(&rest, 2)?,
                mode: num(&rest, 3)?,
            },
            "fsync" => Op::Fsync { path: path()? },
            "fdatasync" => Op::Fdatasync { path: path()? },
            "sync" => Op::Sync,
            "setxattr" => Op::SetXattr { path: path()?, name: second()?, len: num(&rest, 2)? },
            "rmxattr" => Op::RemoveXattr { path: path()?, name: second()? },
            "setacl" => Op::SetAcl { path: path()?, users: num(&rest, 1)? },
            "chmod" => Op::Chmod { path: path()?, mode: num(&rest, 1)? },
            "open" => Op::Open { path: path()? },
            "close" => Op::Close { path: path()? },
            "writeout" => Op::Writeout { path: path()? },
            "commit" => Op::Commit,
            "checkpoint" => Op::Checkpoint,
            "sleep" => Op::Sleep { ms: num(&rest, 0)? },
            _ => return None,
        })
    }

    /// A workload file: an operation a line, `#` begins a comment.
    ///
    /// # Errors
    /// The first line that is no operation.
    pub fn parse_all(text: &str) -> Result<Vec<Op>, String> {
        text.lines()
            .map(|l| l.split('#').next().unwrap_or("").trim())
            .filter(|l| !l.is_empty())
            .map(|l| Op::parse(l).ok_or_else(|| format!("`{l}` is no operation of a workload")))
            .collect()
    }
}

/// The bytes of a POSIX access list with `users` named users, as the attribute holds it.
pub fn acl_bytes(users: u32) -> Vec<u8> {
    let mut v = 2u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, perm: u16, id: u32| {
        v.extend_from_slice(&tag.to_le_bytes());
        v.extend_from_slice(&perm.to_le_bytes());
        v.extend_from_slice(&id.to_le_bytes());
    };
    entry(1, 6, u32::MAX);
    for u in 0..users {
        entry(2, 4, 1000 + u);
    }
    entry(4, 4, u32::MAX);
    if users > 0 {
        entry(16, 4, u32::MAX);
    }
    entry(32, 4, u32::MAX);
    v
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        let text = "create /a\nmkdir /d\nsymlink /s a\nlink /a /b # two names\nunlink /a\nrmdir /d\n\
                    rename /a /b\nexchange /a /b\nwrite /a 0 10\ndwrite /a 0 512\nswrite /a 1 2\n\
                    truncate /a 9\nfalloc /a 0 4096 3\nfsync /a\nfdatasync /a\nsync\n\
                    setxattr /a user.x 5\nrmxattr /a user.x\nsetacl /a 3\nchmod /a 420\nopen /a\n\
                    close /a\nwriteout /a\ncommit\n\ncheckpoint\nsleep 5\n";
        let ops = Op::parse_all(text).unwrap();
        assert_eq!(ops.len(), 26);
        for op in ops {
            assert_eq!(Op::parse(&op.to_string()), Some(op));
        }
        assert!(Op::parse_all("write /a").is_err());
    }
}
