//! The process that serves a mount, from the claim on the image to its release.
//!
//! The order matters: the supervisor is forked while there is one thread; the
//! image is opened before anything is locked away and parsed only afterwards;
//! the mount appears when the file system behind it is ready to answer.

use super::Failure;
use super::args::warn;
use super::logging;
use super::mount::{Plan, report};
use crate::fuse::control_socket::Server;
use crate::fuse::mount::{MountRequest, Unmount, plain};
use crate::fuse::sandbox;
use crate::fuse::supervisor::{Mounted, Signals, Supervisor, detach_standard_streams};
use crate::options::{Control, MountOptions};
use fuser::{Notifier, Session, SessionACL};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What is mounted. The errors are one line for the user, without the source's name.
pub trait Backend: Send + 'static {
    /// What answers the kernel.
    type Filesystem: fuser::Filesystem + Send + 'static;
    /// Opens and claims the image, and whatever else of the host is needed; reads
    /// nothing of what it says. Starts no thread: it would keep rights that are given up next.
    fn open(&mut self, source: &Path, options: &MountOptions) -> Result<(), String>;
    /// Reads the image, replays its journal, starts threads.
    fn start(&mut self, options: &MountOptions) -> Result<Started<Self::Filesystem>, String>;
    /// The kernel has let go (or never came): write everything out, let go of the image.
    fn end(self) -> Result<(), String>;
}

/// A file system ready to be mounted.
pub struct Started<F> {
    /// What answers the kernel.
    pub filesystem: F,
    /// What answers the operator.
    pub control: Arc<dyn Control>,
    /// Filled once there is a session: what the file system tells the kernel unasked.
    pub notifier: Arc<OnceLock<Notifier>>,
    /// Things worth telling the user.
    pub warnings: Vec<String>,
    /// The image turned out to be mountable only for reading.
    pub read_only: bool,
}

/// Who waits for the mount.
pub enum Ready {
    /// Nobody.
    Foreground,
    /// The parent, at the other end of a pipe.
    Parent(OwnedFd),
}

/// What remains to be done once the mount is gone; whoever takes it does it.
struct Rest<B> {
    backend: B,
    server: Option<Server>,
}

struct Daemon<B> {
    supervisor: Supervisor,
    rest: Mutex<Option<Rest<B>>>,
    session_ended: AtomicBool,
}

/// How long a session may take to end after its mount was taken away by a signal.
const ENDING_PATIENCE: Duration = Duration::from_secs(5);

/// Mounts and serves until unmounted.
pub fn serve<B: Backend>(plan: Plan, backend: B, ready: Ready) -> Result<(), Failure> {
    die_of_panics();
    let in_background = matches!(ready, Ready::Parent(_));
    let fail = |ready: Ready, failure: Failure| {
        let _ = report(ready, Err(&failure));
        let message = if in_background { String::new() } else { failure.message };
        Err(Failure { code: failure.code, message })
    };
    let mounted = match mount(&plan, backend, &ready) {
        Ok(mounted) => mounted,
        Err(failure) => return fail(ready, failure),
    };
    let Running { daemon, session, signals, control } = mounted;
    let for_thread = daemon.clone();
    let sandbox = plan.options.sandbox;
    let minding = std::thread::Builder::new().name("signals".into()).spawn(move || {
        for_thread.announce(ready, sandbox);
        for_thread.obey(&signals, &*control);
    });
    if let Err(e) = minding {
        log::error!("cannot start a thread: {}", plain(&e));
        let _ = daemon.supervisor.unmount(Unmount::Force);
    }
    let run = session.run();
    daemon.session_ended.store(true, SeqCst);
    if let Err(e) = run {
        log::error!("{}: {e}", plan.point.display());
    }
    let ended = daemon.end();
    if let Err(e) = &ended {
        log::error!("{}", e.message);
    }
    ended
}

struct Running<B: Backend> {
    daemon: Arc<Daemon<B>>,
    session: Session<B::Filesystem>,
    signals: Signals,
    control: Arc<dyn Control>,
}

fn mount<B: Backend>(plan: &Plan, mut backend: B, ready: &Ready) -> Result<Running<B>, Failure> {
    let options = &plan.options;
    let about = |text: String| {
        let source = plan.source.display().to_string();
        let text = text.strip_prefix(&source).map_or(text.as_str(), |t| t.trim_start_matches(':'));
        Failure::failed(format!("{source}: {}", text.trim_start()))
    };
    let system = |what: &str, e: io::Error| Failure::system(format!("{what}: {}", plain(&e)));
    let pipe = match ready {
        Ready::Parent(pipe) => Some(pipe.as_raw_fd()),
        Ready::Foreground => None,
    };
    let shown = options.fsname.clone().map_or_else(|| plan.source.clone().into(), Into::into);
    let request = MountRequest::new(shown, plan.point.clone(), options);
    let signals = Signals::block().map_err(|e| system("signals", e))?;
    let supervisor = Supervisor::start(request, options.read_ahead_kb, pipe.as_slice())
        .map_err(|e| system("cannot start the supervisor", e))?;
    let _ = std::env::set_current_dir("/");

    let started = match prepare(&mut backend, plan) {
        Ok(started) => started,
        Err(text) => {
            supervisor.finish();
            return Err(about(text));
        }
    };
    for text in &started.warnings {
        warn(&format!("{}: {text}", plan.source.display()));
    }
    let attached = attach(&supervisor, started.filesystem, started.read_only, options);
    let (session, mounted) = match attached {
        Ok(done) => {
            let _ = started.notifier.set(done.0.notifier());
            done
        }
        Err(text) => {
            let _ = backend.end();
            supervisor.finish();
            return Err(Failure::failed(format!("{}: {text}", plan.point.display())));
        }
    };
    let control = started.control;
    let server = mounted.control.and_then(|listener| Server::start(listener, control.clone()).ok());
    if server.is_none() {
        warn("no control socket: uext4 umount cannot wait for the end, ctl and remount do nothing");
    }
    if let Err(e) = supervisor.set_read_ahead()
        && options.is_given("read_ahead_kb")
    {
        warn(&format!("read_ahead_kb: {e}"));
    }
    let daemon = Arc::new(Daemon {
        supervisor,
        rest: Mutex::new(Some(Rest { backend, server })),
        session_ended: AtomicBool::new(false),
    });
    Ok(Running { daemon, session, signals, control })
}

/// Opens the image, then reads it, giving up rights on the way.
fn prepare<B: Backend>(backend: &mut B, plan: &Plan) -> Result<Started<B::Filesystem>, String> {
    let options = &plan.options;
    if options.sandbox {
        sandbox::before_opening(&plan.source, options)?;
    }
    backend.open(&plan.source, options)?;
    if options.sandbox {
        sandbox::before_parsing()?;
    }
    backend.start(options)
}

type Attached<F> = (Session<F>, Mounted);

fn attach<F: fuser::Filesystem>(
    supervisor: &Supervisor,
    filesystem: F,
    read_only: bool,
    options: &MountOptions,
) -> Result<Attached<F>, String> {
    let mut mounted = supervisor.mount(read_only)?;
    let mut config = fuser::Config::default();
    config.acl = SessionACL::All;
    config.n_threads = usize::try_from(options.threads).ok();
    config.clone_fd = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    let fuse = mounted.take_fuse().ok_or("no FUSE connection")?;
    // The kernel lets us in whom the mount's allow_other lets in.
    let session = Session::from_fd(filesystem, fuse, SessionACL::All, config)
        .map_err(|e| format!("the kernel's FUSE: {e}"))?;
    Ok((session, mounted))
}

impl<B: Backend> Daemon<B> {
    /// Once the mount answers: closes the last door, lets go of the terminal and
    /// tells whoever waits.
    fn announce(&self, ready: Ready, sandbox: bool) {
        if let Err(text) = self.supervisor.answers() {
            let _ = report(ready, Err(&Failure::failed(text)));
            let _ = self.supervisor.unmount(Unmount::Force);
            return;
        }
        if matches!(ready, Ready::Parent(_)) {
            logging::to_system_log();
            detach_standard_streams();
        }
        // All workers run by now, so nobody opens /dev/fuse again.
        if sandbox && let Err(text) = sandbox::when_serving() {
            log::warn!("{text}");
        }
        if report(ready, Ok(())).is_err() {
            log::warn!("whoever asked for the mount is gone: unmounting");
            let _ = self.supervisor.unmount(Unmount::Force);
        }
    }

    /// Writes everything out and lets go of the image, once.
    fn end(&self) -> Result<(), Failure> {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(rest) = rest else {
            // The signal thread is at it and ends the process.
            loop {
                std::thread::park();
            }
        };
        let how = rest.backend.end();
        self.supervisor.finish();
        if let Some(server) = rest.server {
            server.finish(how.clone());
        }
        how.map_err(Failure::failed)
    }

    /// Ends the mount in good order when a signal asks for it.
    fn obey(&self, signals: &Signals, control: &dyn Control) {
        while !self.session_ended.load(SeqCst) {
            let Some(signal) = signals.wait(Duration::from_secs(1)) else { continue };
            log::info!("signal {signal}: unmounting");
            if let Err(e) = control.sync() {
                log::error!("before unmounting: {e}");
            }
            if self.supervisor.unmount(Unmount::IfIdle).is_err()
                && let Err(e) = self.supervisor.unmount(Unmount::Force)
            {
                log::error!("cannot unmount: {e}");
            }
            let start = Instant::now();
            while start.elapsed() < ENDING_PATIENCE {
                if self.session_ended.load(SeqCst) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            // Somebody still holds the mount; the image is made clean under him.
            let ended = self.end();
            if let Err(e) = &ended {
                log::error!("{}", e.message);
            }
            std::process::exit(ended.err().map_or(0, |f| f.code.into()));
        }
    }
}

/// A panic anywhere means that nothing can be believed any more: like a crash of
/// the machine, and the journal is there for that.
fn die_of_panics() {
    std::panic::set_hook(Box::new(|info| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed").to_string();
        log::error!("internal error in thread {name}, stopping at once: {info}");
        std::process::abort();
    }));
}
