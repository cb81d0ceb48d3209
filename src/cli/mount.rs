//! `uext4 mount`: checks what can be checked, goes into the background unless told
//! otherwise, and reports how it went.

use super::args::{MountArgs, print, warn};
use super::daemon::{self, Ready};
use super::failure::say;
use super::{Backend, Failure, logging, remount, target};
use crate::fuse::mount::{self, plain};
use crate::fuse::mount_table;
use crate::options::{self, MountOptions};
use nix::unistd::ForkResult;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a dead mount at the mount point may take to vanish.
const DEAD_MOUNT_PATIENCE: Duration = Duration::from_secs(3);

/// A mount to be made.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The image or block device.
    pub source: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// All options.
    pub options: MountOptions,
    /// The same as they were given.
    pub given: Vec<String>,
    /// Stay in the foreground.
    pub foreground: bool,
    /// Say what is done.
    pub verbose: bool,
}

impl Plan {
    /// With the options parsed; `sloppy` tolerates unknown ones.
    pub fn new(
        source: &Path,
        point: &Path,
        given: &[String],
        sloppy: bool,
    ) -> Result<Plan, Failure> {
        let parsed =
            if sloppy { MountOptions::parse_sloppy(given) } else { MountOptions::parse(given) };
        Ok(Plan {
            source: source.into(),
            point: point.into(),
            options: parsed.map_err(|e| Failure::usage(e.to_string()))?,
            given: given.to_vec(),
            foreground: false,
            verbose: false,
        })
    }
}

/// Mounts, remounts, or prints the options.
pub fn run_args<B: Backend>(args: MountArgs, backend: B) -> Result<(), Failure> {
    if args.options.iter().any(|o| o.split(',').any(|o| o == "help")) {
        return print(&options::help());
    }
    let mut given = args.options;
    if args.read_only {
        given.push("ro".into());
    }
    let (source, point) = match (args.source, args.point) {
        (Some(source), Some(point)) => (source, point),
        (Some(point), None) if given.iter().any(|o| o.split(',').any(|o| o == "remount")) => {
            (PathBuf::new(), point)
        }
        (Some(_), None) => return Err(Failure::usage("no mount point given")),
        _ => return Err(Failure::usage("no image and no mount point given")),
    };
    let plan = Plan::new(&source, &point, &given, false)?;
    run(Plan { foreground: args.foreground, verbose: args.verbose, ..plan }, backend)
}

/// Carries the plan out.
pub fn run<B: Backend>(mut plan: Plan, backend: B) -> Result<(), Failure> {
    if plan.options.remount {
        return remount::run(&plan.point, &plan.given);
    }
    logging::start();
    plan.options.decide_for(mount::is_root());
    for warning in plan.options.warnings() {
        warn(warning);
    }
    plan.source = check_source(&plan.source)?;
    plan.point = check_point(&plan)?;
    if let Some(record) = &mut plan.options.record {
        let shown = record.display().to_string();
        *record = std::path::absolute(&*record)
            .map_err(|e| Failure::usage(format!("record={shown}: {}", plain(&e))))?;
    }
    if plan.foreground {
        return daemon::serve(plan, backend, Ready::Foreground);
    }
    in_background(plan, backend)
}

fn check_source(source: &Path) -> Result<PathBuf, Failure> {
    let failed = |why: &str| Failure::failed(format!("{}: {why}", source.display()));
    let whole = source.canonicalize().map_err(|e| failed(&plain(&e)))?;
    let kind = whole.metadata().map_err(|e| failed(&plain(&e)))?.file_type();
    if kind.is_dir() {
        return Err(failed("is a directory, not an image or block device"));
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(failed("is neither a regular file nor a block device"));
    }
    Ok(whole)
}

fn check_point(plan: &Plan) -> Result<PathBuf, Failure> {
    let point = &plan.point;
    let failed = |why: &str| Failure::failed(format!("{}: {why}", point.display()));
    let start = Instant::now();
    let whole = loop {
        let found = point.canonicalize().and_then(|whole| Ok((whole.metadata()?, whole)));
        match found {
            Ok((meta, _)) if !meta.is_dir() => return Err(failed("is not a directory")),
            Ok((_, whole)) => match mount_table::at(&whole) {
                Ok(Some(m)) if m.is_uext4() && Path::new(&m.source) == plan.source => {
                    if target::daemon(&m).is_ok_and(|mut client| client.ask("pid").is_ok()) {
                        let source = plan.source.display();
                        return Err(failed(&format!("{source} is already mounted here")));
                    }
                }
                _ => break whole,
            },
            Err(e) if e.raw_os_error() == Some(libc::ENOTCONN) => {}
            Err(e) => return Err(failed(&plain(&e))),
        }
        // A daemon that was killed leaves its mount until its supervisor has cleaned up.
        if start.elapsed() > DEAD_MOUNT_PATIENCE {
            return Err(failed("a dead mount is in the way (umount -l removes it)"));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let has_entries = std::fs::read_dir(&whole).is_ok_and(|mut d| d.next().is_some());
    if has_entries && !plan.options.nonempty {
        return Err(failed("is not empty (-o nonempty mounts over it)"));
    }
    Ok(whole)
}

/// Forks the daemon and waits until its mount answers.
fn in_background<B: Backend>(plan: Plan, backend: B) -> Result<(), Failure> {
    let system = |e: io::Error| Failure::system(format!("cannot start the daemon: {}", plain(&e)));
    let (mut from_daemon, to_parent) = io::pipe().map_err(system)?;
    // SAFETY: this process has one thread, so the child may run any code.
    match unsafe { nix::unistd::fork() }.map_err(|e| system(e.into()))? {
        ForkResult::Parent { child } => {
            drop(to_parent);
            let mut report = vec![];
            let _ = from_daemon.read_to_end(&mut report);
            if report.first() != Some(&0) {
                // So that the image is free again when we say that it failed.
                let _ = nix::sys::wait::waitpid(child, None);
            }
            match report.split_first() {
                Some((0, _)) => answers(&plan),
                Some((&code, text)) => {
                    Err(Failure { code, message: String::from_utf8_lossy(text).into_owned() })
                }
                None => Err(Failure::system("the daemon died while mounting")),
            }
        }
        ForkResult::Child => {
            drop(from_daemon);
            let pipe = OwnedFd::from(to_parent);
            let _ = nix::unistd::setsid();
            close_inherited(&pipe);
            let failed = daemon::serve(plan, backend, Ready::Parent(pipe)).err();
            std::process::exit(failed.map_or(0, |f| f.code.into()));
        }
    }
}

/// Asks the mount something, so that success means that it works.
fn answers(plan: &Plan) -> Result<(), Failure> {
    let shown = plan.point.display();
    plan.point.metadata().map_err(|e| Failure::failed(format!("{shown}: {}", plain(&e))))?;
    if plan.verbose {
        say(&format!("{} mounted on {shown}", plan.source.display()));
    }
    Ok(())
}

/// Closes what the caller left open, such as its locks and pipes, but for the
/// standard streams and `keep`.
fn close_inherited(keep: &OwnedFd) {
    let Ok(keep) = u32::try_from(keep.as_raw_fd()) else { return };
    for (first, last) in [(3, keep.saturating_sub(1)), (keep.saturating_add(1), u32::MAX)] {
        if first <= last {
            // SAFETY: nothing of ours is open there yet but `keep`, which is outside the range.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Tells the parent how it went.
pub fn report(ready: Ready, how: Result<(), &Failure>) -> io::Result<()> {
    let Ready::Parent(pipe) = ready else { return Ok(()) };
    let mut bytes = vec![];
    match how {
        Ok(()) => bytes.push(0),
        Err(failure) => {
            bytes.push(failure.code.max(1));
            bytes.extend_from_slice(failure.message.as_bytes());
        }
    }
    std::fs::File::from(pipe).write_all(&bytes)
}
