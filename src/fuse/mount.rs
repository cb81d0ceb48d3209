//! Mounting and unmounting: mount(2) of our own where we may, `fusermount3` else.

use super::mount_table::{self, FS_TYPE, Mount};
use crate::options::{Atime, MountOptions};
use nix::cmsg_space;
use nix::mount::{MntFlags, MsFlags};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is to be mounted where.
#[derive(Debug, Clone)]
pub struct MountRequest {
    /// Shown as the source by mount(8).
    pub source: OsString,
    /// An absolute path without symbolic links.
    pub point: PathBuf,
    /// Flags for mount(2).
    pub flags: MsFlags,
    /// Options for the kernel's FUSE, besides those that describe the connection.
    pub fuse_options: Vec<String>,
}

impl MountRequest {
    /// From the options; what they leave open is decided by who the caller is.
    pub fn new(source: OsString, point: PathBuf, options: &MountOptions) -> MountRequest {
        let root = is_root();
        let mut fuse_options = vec![];
        if options.allow_other.unwrap_or(root) {
            fuse_options.push("allow_other".to_string());
        }
        if options.default_permissions.unwrap_or(root) {
            fuse_options.push("default_permissions".to_string());
        }
        if options.max_read != 0 {
            fuse_options.push(format!("max_read={}", options.max_read));
        }
        MountRequest { source, point, flags: flags(options, root), fuse_options }
    }
}

/// Whether we are root over an image's files: user 0, and not of a user namespace
/// that maps so few users that an image's owners mean nothing in it.
pub fn is_root() -> bool {
    let mapped = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let users: u64 = map.lines().filter_map(mapped).sum();
    nix::unistd::geteuid().is_root() && (map.is_empty() || users >= 65_536)
}

/// The mount(2) flags that the options ask for; `root` may have suid and dev by default.
pub fn flags(options: &MountOptions, root: bool) -> MsFlags {
    let nosymfollow = MsFlags::from_bits_retain(libc::MS_NOSYMFOLLOW);
    let mut flags = match options.atime {
        Atime::Noatime => MsFlags::MS_NOATIME,
        Atime::Relatime => MsFlags::MS_RELATIME,
        Atime::Strictatime => MsFlags::MS_STRICTATIME,
    };
    for (on, flag) in [
        (options.read_only, MsFlags::MS_RDONLY),
        (!options.suid.unwrap_or(root), MsFlags::MS_NOSUID),
        (!options.dev.unwrap_or(root), MsFlags::MS_NODEV),
        (!options.exec, MsFlags::MS_NOEXEC),
        (!options.symfollow, nosymfollow),
        (options.nodiratime, MsFlags::MS_NODIRATIME),
        (options.sync, MsFlags::MS_SYNCHRONOUS),
        (options.dirsync, MsFlags::MS_DIRSYNC),
        (options.lazytime, MsFlags::MS_LAZYTIME),
    ] {
        flags.set(flag, on);
    }
    flags
}

/// A FUSE connection whose mount exists.
#[derive(Debug)]
pub struct Connection {
    /// /dev/fuse; the connection lives as long as this descriptor and its copies.
    pub fuse: OwnedFd,
    /// Whether `fusermount3` mounted it, and so must unmount it.
    pub by_fusermount: bool,
}

/// Mounts. The message is one line for the user.
pub fn mount(request: &MountRequest) -> Result<Connection, String> {
    match mount_ourselves(request) {
        Ok(fuse) => Ok(Connection { fuse, by_fusermount: false }),
        Err(Refused::Here(message)) => Err(message),
        Err(Refused::AskFusermount(why)) => match fusermount(request) {
            Ok(fuse) => Ok(Connection { fuse, by_fusermount: true }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(format!("{why}, and there is no fusermount3 to help (package fuse3)"))
            }
            Err(e) => Err(e.to_string()),
        },
    }
}

enum Refused {
    Here(String),
    AskFusermount(String),
}

fn mount_ourselves(request: &MountRequest) -> Result<OwnedFd, Refused> {
    let dev = OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(|e| {
        let hint = if e.kind() == io::ErrorKind::NotFound { " (modprobe fuse?)" } else { "" };
        Refused::AskFusermount(format!("cannot open /dev/fuse: {}{hint}", plain(&e)))
    })?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        dev.as_raw_fd(),
        nix::unistd::getuid(),
        nix::unistd::getgid()
    );
    for option in &request.fuse_options {
        data.push(',');
        data.push_str(option);
    }
    let mounted = nix::mount::mount(
        Some(request.source.as_os_str()),
        &request.point,
        Some(FS_TYPE),
        request.flags,
        Some(data.as_str()),
    );
    match mounted {
        Ok(()) => Ok(dev.into()),
        Err(nix::Error::EPERM) => Err(Refused::AskFusermount("mount(2) is not permitted".into())),
        Err(e) => Err(Refused::Here(format!("mount(2): {}", e.desc()))),
    }
}

/// The text of an I/O error without Rust's "(os error N)".
pub fn plain(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(n) => nix::errno::Errno::from_raw(n).desc().to_string(),
        None => e.to_string(),
    }
}

fn fusermount_program() -> OsString {
    std::env::var_os("FUSERMOUNT_PATH").unwrap_or_else(|| "fusermount3".into())
}

/// Runs `fusermount3`, which opens /dev/fuse with its own rights, mounts, and
/// sends the descriptor back over a socket.
fn fusermount(request: &MountRequest) -> io::Result<OwnedFd> {
    let escape = |s: &str| s.replace('\\', "\\\\").replace(',', "\\,");
    let mut options = request.fuse_options.clone();
    options.push(format!("fsname={}", escape(&request.source.to_string_lossy())));
    options.push("subtype=uext4".into());
    for (flag, name) in [
        (MsFlags::MS_RDONLY, "ro"),
        (MsFlags::MS_NOSUID, "nosuid"),
        (MsFlags::MS_NODEV, "nodev"),
        (MsFlags::MS_NOEXEC, "noexec"),
        (MsFlags::MS_NOATIME, "noatime"),
        (MsFlags::MS_SYNCHRONOUS, "sync"),
        (MsFlags::MS_DIRSYNC, "dirsync"),
    ] {
        if request.flags.contains(flag) {
            options.push(name.into());
        }
    }
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let fd = theirs.as_raw_fd();
    let mut command = Command::new(fusermount_program());
    command
        .arg("-o")
        .arg(options.join(","))
        .arg("--")
        .arg(&request.point)
        .env("_FUSE_COMMFD", fd.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: runs in the child between fork and exec; fcntl is async-signal-safe and
    // `fd` is open there because `theirs` outlives the spawn.
    unsafe {
        command.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let child = command.spawn()?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    drop(ours);
    let output = child.wait_with_output()?;
    received.map_err(|e| {
        let text = String::from_utf8_lossy(&output.stderr);
        match text.lines().rfind(|l| !l.trim().is_empty()) {
            Some(line) => io::Error::other(line.trim().to_string()),
            None => io::Error::other(format!("fusermount3: {}, {}", output.status, plain(&e))),
        }
    })
}

fn receive_descriptor(socket: &std::os::unix::net::UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0u8; 1];
    let mut space = cmsg_space!([libc::c_int; 1]);
    let mut iov = [IoSliceMut::new(&mut byte)];
    let message = loop {
        match recvmsg::<()>(
            socket.as_raw_fd(),
            &mut iov,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        ) {
            Err(nix::Error::EINTR) => {}
            other => break other?,
        }
    };
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = control
            && let Some(&fd) = fds.first()
        {
            // SAFETY: the kernel has just installed this descriptor for us; nobody else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "no descriptor came back"))
}

/// How to take a mount away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// Only if nobody uses it (else EBUSY).
    IfIdle,
    /// From the tree at once; it ends when nobody uses it any more.
    Lazy,
    /// Requests in flight fail, then as `Lazy`.
    Force,
}

/// Unmounts the topmost mount at `point`.
pub fn unmount(point: &Path, how: Unmount) -> io::Result<()> {
    let flags = match how {
        Unmount::IfIdle => MntFlags::UMOUNT_NOFOLLOW,
        Unmount::Lazy => MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH,
        Unmount::Force => {
            // It may answer EBUSY, but the connection is aborted all the same.
            let force = MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_FORCE;
            match nix::mount::umount2(point, force) {
                Ok(()) => return Ok(()),
                Err(_) => MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH,
            }
        }
    };
    match nix::mount::umount2(point, flags) {
        Ok(()) => Ok(()),
        Err(nix::Error::EPERM) => fusermount_unmount(point, how != Unmount::IfIdle),
        Err(e) => Err(e.into()),
    }
}

fn fusermount_unmount(point: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new(fusermount_program());
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(point);
    let output = command.stdin(Stdio::null()).output().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => io::Error::from_raw_os_error(libc::EPERM),
        _ => e,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("busy") {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    Err(io::Error::other(text.lines().last().unwrap_or("fusermount3 failed").trim().to_string()))
}

/// Changes the flags of the mount at `point` (MS_REMOUNT).
pub fn remount(point: &Path, flags: MsFlags) -> io::Result<()> {
    let flags = flags | MsFlags::MS_REMOUNT;
    Ok(nix::mount::mount(None::<&str>, point, None::<&str>, flags, None::<&str>)?)
}

/// Enters the mount into libmount's table with `helper=uext4`, so that umount(8)
/// runs `umount.uext4` for it and for no other FUSE mount; without the helper
/// installed, or without root, nothing.
pub fn note_in_utab(request: &MountRequest) {
    if !nix::unistd::geteuid().is_root() || !Path::new("/sbin/umount.uext4").exists() {
        return;
    }
    quietly(
        Command::new("mount")
            .args(["-i", "-f", "--no-canonicalize", "-t", FS_TYPE])
            .args(["-o", "helper=uext4,uhelper=uext4"])
            .arg(&request.source)
            .arg(&request.point),
    );
}

/// Takes back what [`note_in_utab`] did, once the mount is gone.
pub fn forget_in_utab(point: &Path) {
    let noted = std::fs::read_to_string("/run/mount/utab").is_ok_and(|t| t.contains("uext4"));
    if noted && nix::unistd::geteuid().is_root() {
        quietly(Command::new("umount").args(["-i", "--fake", "--no-canonicalize"]).arg(point));
    }
}

fn quietly(command: &mut Command) {
    let run = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    log::debug!("{command:?}: {run:?}");
}

/// The mount just made at `point`.
pub fn made(point: &Path) -> Result<Mount, String> {
    match mount_table::at(point) {
        Ok(Some(mount)) if mount.is_uext4() => Ok(mount),
        Ok(_) => Err("the mount is not in /proc/self/mountinfo".into()),
        Err(e) => Err(format!("/proc/self/mountinfo: {}", plain(&e))),
    }
}

/// Sets the kernel's read-ahead for the mount; only root may.
pub fn set_read_ahead(dev: &str, kb: u32) -> io::Result<()> {
    use std::io::Write;
    let path = format!("/sys/class/bdi/{dev}/read_ahead_kb");
    File::options().write(true).open(path)?.write_all(kb.to_string().as_bytes())
}
