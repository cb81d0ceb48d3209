//! /proc/self/mountinfo: which mounts there are. Reading it never asks a FUSE
//! daemon anything, so that a hung one cannot hang us.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The type that mount(8) and /proc/mounts show.
pub const FS_TYPE: &str = "fuse.uext4";

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Device number, `major:minor`.
    pub dev: String,
    /// The mounted file system's directory that is seen at the mount point.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Options of this mount.
    pub options: String,
    /// File system type.
    pub kind: String,
    /// What is mounted.
    pub source: OsString,
    /// Options of the file system.
    pub super_options: String,
}

impl Mount {
    /// Whether it is one of ours.
    pub fn is_uext4(&self) -> bool {
        self.kind == FS_TYPE
    }
    /// The user that mounted it, as FUSE notes it.
    pub fn owner(&self) -> Option<u32> {
        self.super_options.split(',').find_map(|o| o.strip_prefix("user_id=")?.parse().ok())
    }
}

/// All mounts of this mount namespace, oldest first.
pub fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The mount that covers `point` (the topmost), if it is a mount point. The last
/// component of `point` is not touched unless the name alone finds nothing.
pub fn at(point: &Path) -> io::Result<Option<Mount>> {
    let all = read()?;
    let last = |path: &Path| all.iter().rev().find(|m| m.point == path).cloned();
    let absolute = std::path::absolute(point)?;
    let found = last(&absolute).or_else(|| {
        let parent = absolute.parent()?.canonicalize().ok()?;
        last(&parent.join(absolute.file_name()?))
    });
    Ok(found.or_else(|| last(&absolute.canonicalize().ok()?)))
}

/// The mount that the file `path` lies in, by its device number.
pub fn of_device(major: u64, minor: u64) -> io::Result<Option<Mount>> {
    let dev = format!("{major}:{minor}");
    Ok(read()?.into_iter().rev().find(|m| m.dev == dev))
}

fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|&b| b == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let (_id, _parent) = (fields.next()?, fields.next()?);
    let dev = text(fields.next()?);
    let root = unescape(fields.next()?).into();
    let point = unescape(fields.next()?).into();
    let options = text(fields.next()?);
    fields.by_ref().find(|f| *f == b"-")?;
    let kind = text(fields.next()?);
    let source = unescape(fields.next()?);
    let super_options = text(fields.next().unwrap_or_default());
    Some(Mount { dev, root, point, options, kind, source, super_options })
}

/// Undoes the kernel's `\040` escapes.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&b, tail)) = rest.split_first() {
        let octal = (b == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|d| u8::from_str_radix(OsStr::from_bytes(d).to_str()?, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(b);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let text = b"36 35 0:53 / /mnt/a\\040b rw,nosuid shared:1 master:2 - fuse.uext4 /tmp/d\\134i.img rw,user_id=17,group_id=0\n\
            junk\n37 35 8:1 /sub /mnt/c ro - ext4 /dev/sda1\n";
        let all = parse(text);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].point, Path::new("/mnt/a b"));
        assert_eq!(all[0].source, "/tmp/d\\i.img");
        assert!(all[0].is_uext4() && all[0].owner() == Some(17) && all[0].dev == "0:53");
        assert_eq!((all[1].root.as_path(), all[1].owner()), (Path::new("/sub"), None));
    }

    #[test]
    fn the_root_is_a_mount_point_and_a_file_is_none() {
        assert!(at(Path::new("/")).unwrap().is_some());
        assert_eq!(at(Path::new("/proc/self/status")).unwrap(), None);
        assert_eq!(at(Path::new("/proc/.")).unwrap().map(|m| m.kind), Some("proc".into()));
    }
}
