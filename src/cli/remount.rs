//! `-o remount`: the change goes to the daemon over its control socket, and to
//! the kernel's own flags of the mount.

use super::Failure;
use super::args::warn;
use super::target;
use crate::fuse::mount::{self, plain};
use crate::options::MountOptions;
use std::path::Path;

/// Changes the mount at `point`. Read-only is told to the kernel first, which
/// refuses while files are open for writing; anything else to the daemon first.
pub fn run(point: &Path, given: &[String]) -> Result<(), Failure> {
    let mount = target::uext4_mount(point)?;
    let shown = point.display();
    let usage = |e: crate::options::OptionError| Failure::usage(format!("{shown}: {e}"));
    let root = mount::is_root();
    let current = ["suid,dev", mount.options.as_str(), mount.super_options.as_str()];
    let before = MountOptions::parse_sloppy(&current).map_err(usage)?;
    let all: Vec<&str> = current.into_iter().chain(given.iter().map(String::as_str)).collect();
    MountOptions::parse(given).map_err(usage)?;
    let after = MountOptions::parse_sloppy(&all).map_err(usage)?;

    let mut daemon = target::daemon(&mount)?;
    let mut tell = |options: &str| {
        daemon.ask(&format!("remount {options}")).map_err(|e| target::refused(point, e))
    };
    let (old, new) = (mount::flags(&before, root), mount::flags(&after, root));
    let kernel = |flags| {
        mount::remount(&mount.point, flags)
            .map_err(|e| Failure::failed(format!("{shown}: remount: {}", plain(&e))))
    };
    let becomes_read_only = after.read_only && !before.read_only;
    if becomes_read_only {
        kernel(new)?;
    }
    let told = tell(&given.join(","));
    if told.is_err() && becomes_read_only {
        let _ = kernel(old);
    }
    for line in told?.lines() {
        warn(line);
    }
    if !becomes_read_only && old != new {
        kernel(new)?;
    }
    Ok(())
}
