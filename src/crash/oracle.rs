//! The judges from outside: e2fsck, and the kernel's ext4.

use super::check::Wrong;
use super::record::save;
use crate::device::MemDevice;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// What `e2fsck -fn` finds wrong with a clean image.
///
/// # Errors
/// Of writing the image or running e2fsck.
pub fn e2fsck(disk: &MemDevice, scratch: &Path, name: &str) -> io::Result<Wrong> {
    let path = scratch.join(name);
    save(disk, &path)?;
    let out = Command::new("e2fsck")
        .args(["-fn"])
        .arg(&path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()?;
    std::fs::remove_file(&path)?;
    if out.status.success() {
        return Ok(Wrong::new());
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with("Pass "));
    let mut said: Vec<&str> = lines.take(6).collect();
    if said.is_empty() {
        said.push("no reason");
    }
    Ok(vec![format!("e2fsck {}: {}", out.status, said.join("; "))])
}

/// What the kernel makes of a crashed image: it replays the journal and finishes orphans, then e2fsck
/// judges. Answers the image that the kernel left, too, if it mounted it. Needs root and loop devices.
///
/// # Errors
/// Of writing the image or running the commands.
pub fn kernel(
    disk: &MemDevice,
    scratch: &Path,
    name: &str,
) -> io::Result<(Wrong, Option<MemDevice>)> {
    let (path, point) = (scratch.join(name), scratch.join(format!("{name}.mnt")));
    save(disk, &path)?;
    std::fs::create_dir_all(&point)?;
    let run = |program: &str, args: &[&std::ffi::OsStr]| {
        Command::new(program).args(args).env("LC_ALL", "C").stdin(Stdio::null()).output()
    };
    let o = std::ffi::OsStr::new("-o");
    let mounted = run(
        "mount",
        &["-t".as_ref(), "ext4".as_ref(), o, "loop".as_ref(), path.as_ref(), point.as_ref()],
    )?;
    let mut wrong = Wrong::new();
    let mut left = None;
    if mounted.status.success() {
        let umount = run("umount", &[point.as_ref()])?;
        if !umount.status.success() {
            return Err(io::Error::other("umount failed"));
        }
        let out = run("e2fsck", &["-fn".as_ref(), path.as_ref()])?;
        if !out.status.success() {
            let text = String::from_utf8_lossy(&out.stdout);
            let said: Vec<&str> =
                text.lines().filter(|l| !l.starts_with("Pass ")).take(6).collect();
            wrong.push(format!("after the kernel's replay: e2fsck: {}", said.join("; ")));
        }
        left = Some(MemDevice::load(&path)?);
    } else {
        let text = String::from_utf8_lossy(&mounted.stderr);
        wrong.push(format!("the kernel does not mount it: {}", text.trim()));
    }
    std::fs::remove_file(&path)?;
    std::fs::remove_dir(&point)?;
    Ok((wrong, left))
}
