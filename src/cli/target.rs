//! From a path to the mount it means, and to that mount's daemon.

use super::Failure;
use crate::fuse::control_socket::{Client, ClientError};
use crate::fuse::mount::plain;
use crate::fuse::mount_table::{self, Mount};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The mount at `point`, or the one whose source is `point`.
pub fn mounted(point: &Path) -> Result<Option<Mount>, Failure> {
    let table = |e: io::Error| Failure::system(format!("/proc/self/mountinfo: {}", plain(&e)));
    if let Some(mount) = mount_table::at(point).map_err(table)? {
        return Ok(Some(mount));
    }
    let Ok(source) = point.canonicalize() else { return Ok(None) };
    let all = mount_table::read().map_err(table)?;
    Ok(all.into_iter().rev().find(|m| m.is_uext4() && Path::new(&m.source) == source))
}

/// The uext4 mount at exactly `point`.
pub fn uext4_mount(point: &Path) -> Result<Mount, Failure> {
    match mounted(point)? {
        Some(mount) if mount.is_uext4() => Ok(mount),
        Some(mount) => Err(Failure::failed(format!(
            "{}: mounted as {}, not by uext4",
            point.display(),
            mount.kind
        ))),
        None => Err(Failure::failed(format!("{}: not mounted", point.display()))),
    }
}

/// The mount that a path is in, and its inode number if it is not the mount point itself.
pub fn inode(path: &Path) -> Result<(Mount, Option<u64>), Failure> {
    if let Some(mount) = mounted(path)?
        && mount.is_uext4()
    {
        return Ok((mount, None));
    }
    let say = |e: io::Error| Failure::failed(format!("{}: {}", path.display(), plain(&e)));
    let meta = path.symlink_metadata().map_err(say)?;
    let (major, minor) = (libc::major(meta.dev()), libc::minor(meta.dev()));
    match mount_table::of_device(major.into(), minor.into()).map_err(say)? {
        Some(mount) if mount.is_uext4() => Ok((mount, Some(meta.ino()))),
        _ => Err(Failure::failed(format!("{}: not in a uext4 mount", path.display()))),
    }
}

/// Connects to the mount's daemon.
pub fn daemon(mount: &Mount) -> Result<Client, Failure> {
    let owner = mount.owner().unwrap_or(0);
    Client::connect(&mount.dev, owner).map_err(|e| {
        let why = match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                "its daemon is not there".to_string()
            }
            _ => format!("cannot reach its daemon: {}", plain(&e)),
        };
        Failure::failed(format!("{}: {why}", mount.point.display()))
    })
}

/// A refusal in the words of the daemon, prefixed with what it is about.
pub fn refused(about: &Path, e: ClientError) -> Failure {
    Failure::failed(format!("{}: {e}", about.display()))
}
