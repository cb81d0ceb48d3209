//! One owner per image: keeps a second daemon, and the kernel, off what we have open.
//!
//! Three walls, since none covers all: `flock` on the image (another daemon), `O_EXCL` on block
//! devices (the kernel's mounts, md, dm, swap), and a look at the loop devices and the mount table
//! (an image *file* that the kernel has mounted through a loop device).

use crate::error::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What keeps others off, beside the image's own descriptor: dropped with the device.
#[derive(Debug, Default)]
pub(super) struct Claim {
    /// The image file behind a loop device, locked as well.
    _backing: Option<File>,
}

fn in_use(path: &Path, by: &str) -> Error {
    Error::InUse(format!("{}: {by}", path.display()))
}

/// `flock`, without waiting; exclusive unless `shared`. True if it is ours now.
fn try_flock(f: &File, shared: bool) -> io::Result<bool> {
    let how = if shared { libc::LOCK_SH } else { libc::LOCK_EX };
    // SAFETY: flock on a descriptor we own; no memory is involved.
    if unsafe { libc::flock(f.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        e => Err(e),
    }
}

/// Gives up the lock, also when the kernel still holds a reference to the open file (a request that
/// has just completed).
pub(super) fn release(f: &File) {
    // SAFETY: as in `try_flock`.
    unsafe { libc::flock(f.as_raw_fd(), libc::LOCK_UN) };
}

/// Locks `file` (opened from `path`), and refuses when somebody else uses it.
pub(super) fn claim(path: &Path, file: &File, read_only: bool) -> Result<Claim> {
    let io_err = |source| Error::Io { op: "lock", offset: 0, source };
    let meta = file.metadata().map_err(io_err)?;
    let is_dev = meta.file_type().is_block_device();
    // udev holds a shared lock on a block device for the moment in which it probes it; a daemon that
    // was killed is gone for its mount a moment before its lock is.
    let mut tries = 10;
    while !try_flock(file, read_only).map_err(io_err)? {
        tries -= 1;
        if tries == 0 {
            let by = if read_only {
                "in use: another program holds it for writing (mounted by another uext4?)"
            } else {
                "in use: another program holds a lock on it (mounted by another uext4?)"
            };
            return Err(in_use(path, by));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mounts = mounts();
    if is_dev {
        let mut claim = Claim::default();
        if let Some(m) = mounts.iter().find(|m| m.dev == meta.rdev())
            && !(read_only && m.read_only)
        {
            return Err(in_use(path, &format!("mounted by the kernel on {}", m.point)));
        }
        let name = fs::canonicalize(path).ok().and_then(|p| p.file_name().map(PathBuf::from));
        if let Some(backing) = name.and_then(|n| backing_file(&Path::new("/sys/block").join(n)))
            && let Ok(f) = File::open(&backing)
        {
            if !try_flock(&f, read_only).map_err(io_err)? {
                let by = format!("the file behind it, {}, is in use", backing.display());
                return Err(in_use(path, &by));
            }
            claim._backing = Some(f);
        }
        return Ok(claim);
    }
    for (dev, sys) in loops_over(&meta) {
        let mounted = mounts.iter().find(|m| same_disk(m.dev, dev));
        if let Some(m) = mounted
            && !(read_only && m.read_only)
        {
            let by = format!("mounted by the kernel on {} through a loop device", m.point);
            return Err(in_use(path, &by));
        }
        // Mounts of other namespaces are not in our table, but the kernel's claim is visible.
        if mounted.is_none() && claimed(&Path::new("/dev").join(&sys)) {
            let by = format!("in use by the kernel through {}", sys.display());
            return Err(in_use(path, &by));
        }
    }
    Ok(Claim::default())
}

/// Whether the kernel (a mount, md, dm, swap) has exclusive use of a block device. False if we may
/// not ask.
fn claimed(dev: &Path) -> bool {
    let r = OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(dev);
    matches!(r, Err(e) if e.raw_os_error() == Some(libc::EBUSY))
}

/// Whether `part` is the disk `disk` or one of its first partitions.
fn same_disk(part: u64, disk: u64) -> bool {
    if part == disk {
        return true;
    }
    let sys = format!("/sys/dev/block/{}:{}/../dev", libc::major(part), libc::minor(part));
    fs::read_to_string(sys).ok().and_then(|s| parse_dev(s.trim())) == Some(disk)
}

fn parse_dev(s: &str) -> Option<u64> {
    let (major, minor) = s.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The file behind a loop device, given its directory in /sys/block.
fn backing_file(sys: &Path) -> Option<PathBuf> {
    let bytes = fs::read(sys.join("loop/backing_file")).ok()?;
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
}

/// The loop devices over this very file: device number and name.
fn loops_over(meta: &fs::Metadata) -> Vec<(u64, PathBuf)> {
    let Ok(dir) = fs::read_dir("/sys/block") else { return Vec::new() };
    let mut found = Vec::new();
    for entry in dir.flatten() {
        let Some(backing) = backing_file(&entry.path()) else { continue };
        let Ok(m) = fs::metadata(&backing) else { continue };
        if (m.dev(), m.ino()) != (meta.dev(), meta.ino()) {
            continue;
        }
        let dev = fs::read_to_string(entry.path().join("dev")).ok();
        if let Some(dev) = dev.and_then(|s| parse_dev(s.trim())) {
            found.push((dev, PathBuf::from(entry.file_name())));
        }
    }
    found
}

struct Mount {
    dev: u64,
    point: String,
    read_only: bool,
}

fn mounts() -> Vec<Mount> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(parse_mount).collect()
}

/// A line of mountinfo: `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
/// Read-only is the file system's own flag (after the dash): a read-only bind mount of a writable
/// file system is writable for us.
fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let dev = parse_dev(left.nth(2)?)?;
    let point = left.nth(1)?.to_owned();
    let options = right.split(' ').nth(2)?;
    Some(Mount { dev, point, read_only: options.split(',').any(|o| o == "ro") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_line() {
        let m = parse_mount(
            "36 35 98:3 / /mnt\\040x ro,noatime master:1 - ext4 /dev/loop0 rw,errors=continue",
        )
        .unwrap();
        assert_eq!((m.dev, m.point.as_str()), (libc::makedev(98, 3), "/mnt\\040x"));
        assert!(!m.read_only);
        assert!(parse_mount("36 35 8:1 / / rw - ext4 /dev/sda1 ro").unwrap().read_only);
        assert!(parse_mount("garbage").is_none());
        assert!(parse_mount("1 2 nodev / / rw - x y z").is_none());
    }

    #[test]
    fn second_claim_is_refused() {
        let f = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(f.path()).unwrap();
        let (a, b) = (open(), open());
        let held = claim(f.path(), &a, false).unwrap();
        let e = claim(f.path(), &b, false).unwrap_err();
        assert!(matches!(&e, Error::InUse(m) if m.contains("another uext4")), "{e}");
        assert_eq!(e.errno(), libc::EBUSY);
        assert!(claim(f.path(), &b, true).is_err());
        drop((held, a));
        let c = open();
        claim(f.path(), &b, true).unwrap();
        claim(f.path(), &c, true).unwrap();
        assert!(claim(f.path(), &c, false).is_err());
    }
}
