//! `uext4 umount`: unmounts, then waits until the daemon has written everything,
//! let go of the image and said so.

use super::Failure;
use super::args::{UmountArgs, warn};
use super::failure::say;
use super::target;
use crate::device::{FileDevice, OpenHow};
use crate::error::Error;
use crate::fuse::control_socket::{Client, ClientError};
use crate::fuse::mount::{self, Unmount, plain};
use crate::fuse::mount_table::{self, Mount};
use crate::options::EngineName;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait before saying for what.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a daemon that has said it is done may take to be gone.
const LAST_MOMENTS: Duration = Duration::from_secs(30);

/// Unmounts.
pub fn run(args: &UmountArgs) -> Result<(), Failure> {
    let shown = args.target.display();
    let mount = match target::mounted(&args.target)? {
        Some(m) if m.is_uext4() || args.anything => m,
        Some(m) => {
            return Err(Failure::failed(format!("{shown}: mounted as {}, not by uext4", m.kind)));
        }
        None => return Err(Failure::failed(format!("{shown}: not mounted"))),
    };
    let point = &mount.point;
    let mut daemon = if mount.is_uext4() { listen(&mount).map(Some) } else { Ok(None) };
    if matches!(daemon, Ok(Some(_))) && !args.force {
        write_back(&mount);
    }
    let how = match (args.force, args.lazy) {
        (true, _) => Unmount::Force,
        (_, true) => Unmount::Lazy,
        _ => Unmount::IfIdle,
    };
    mount::unmount(point, how).map_err(|e| {
        let why = match e.raw_os_error() {
            Some(libc::EBUSY) => "target is busy".to_string(),
            _ => plain(&e),
        };
        Failure::failed(format!("{shown}: {why}"))
    })?;
    mount::forget_in_utab(point);
    if args.verbose {
        say(&format!("{} unmounted", point.display()));
    }
    if args.lazy && !args.force {
        return Ok(());
    }
    let client = match &mut daemon {
        Ok(Some(client)) => client,
        Ok(None) => return Ok(()),
        Err(why) => {
            return Err(Failure::failed(format!(
                "{}: unmounted, but whether the image is clean is not known",
                why.message
            )));
        }
    };
    let elsewhere = mount_table::read().unwrap_or_default();
    if let Some(other) = elsewhere.iter().find(|m| m.dev == mount.dev) {
        say(&format!("{shown}: unmounted, but still mounted at {}", other.point.display()));
        return Ok(());
    }
    if !client.wait(PATIENCE) {
        warn(&format!(
            "{shown}: waiting for the daemon, which writes out or is held by another mount namespace"
        ));
    }
    let answer = client.answer();
    client.wait_for_exit();
    wait_for_claim(Path::new(&mount.source));
    match answer {
        Ok(_) => Ok(()),
        Err(ClientError::Refused(why)) => Err(Failure::failed(format!("{shown}: {why}"))),
        Err(ClientError::Gone(_)) => Err(Failure::failed(format!(
            "{shown}: the daemon died before the image was clean; the next mount replays its journal"
        ))),
    }
}

/// The daemon has let go of the image when it can be claimed again: the kernel takes a moment to
/// close what a process leaves behind, an io_uring above all.
fn wait_for_claim(image: &Path) {
    let how = OpenHow { engine: EngineName::Sync, ..OpenHow::default() };
    let end = Instant::now() + LAST_MOMENTS;
    while Instant::now() < end && matches!(FileDevice::open(image, how), Err(Error::InUse(_))) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Asks the daemon to tell us of its end.
fn listen(mount: &Mount) -> Result<Client, Failure> {
    let mut client = target::daemon(mount)?;
    client.ask("umount-wait").map_err(|e| target::refused(&mount.point, e))?;
    Ok(client)
}

/// Makes the kernel hand over the pages it holds while all can still be answered.
fn write_back(mount: &Mount) {
    use std::os::fd::AsRawFd;
    if let Ok(dir) = std::fs::File::open(&mount.point) {
        // SAFETY: a valid descriptor, open for the length of the call.
        unsafe { libc::syncfs(dir.as_raw_fd()) };
    }
}
