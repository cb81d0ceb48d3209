//! A small process beside the daemon that stays outside its sandbox: it mounts,
//! unmounts, binds the control socket, and cleans up when the daemon is gone,
//! however that came about. Forked while the daemon has one thread.
//!
//! The two talk over a socket pair that keeps message boundaries: one byte asks,
//! a line answers (empty means done), descriptors ride along.

use super::control_socket;
use super::mount::{self, MountRequest, Unmount};
use super::mount_table;
use nix::cmsg_space;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};
use nix::unistd::{ForkResult, Pid};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const MOUNT: u8 = b'm';
const MOUNT_READ_ONLY: u8 = b'o';
const ANSWERS: u8 = b'a';
const READ_AHEAD: u8 = b'r';
const UNMOUNT_IDLE: u8 = b'u';
const UNMOUNT_FORCE: u8 = b'f';
const UNMOUNT_LAZY: u8 = b'l';
const END: u8 = b'e';
/// How long a killed daemon's mount is left to whoever killed it.
const GRACE: Duration = Duration::from_millis(200);
const MAX_MESSAGE: usize = 4096;

/// The signals that end a mount cleanly; blocked in the daemon, read by [`Signals`].
fn ending() -> SigSet {
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP])
}

/// SIGTERM, SIGINT and SIGHUP as something to wait for.
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks them in this thread and in those it will start.
    pub fn block() -> io::Result<Signals> {
        let set = ending();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
        Ok(Signals(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?))
    }
    /// Waits for one, up to `timeout`; its number.
    pub fn wait(&self, timeout: Duration) -> Option<i32> {
        let ms = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], ms) {
            Ok(1..) => self.0.read_signal().ok().flatten().map(|s| s.ssi_signo as i32),
            _ => None,
        }
    }
}

/// What the supervisor handed over when it mounted.
#[derive(Debug)]
pub struct Mounted {
    /// The FUSE connection, for `Session::from_fd`.
    fuse: Option<OwnedFd>,
    /// The control socket, listening; `None` where no directory could be had for it.
    pub control: Option<UnixListener>,
    /// Device number of the mount, `major:minor`.
    pub dev: String,
    /// Whether the mount was made by `fusermount3`. Then /dev/fuse may be closed to us.
    pub by_fusermount: bool,
}

impl Mounted {
    /// The FUSE connection, once.
    pub fn take_fuse(&mut self) -> Option<OwnedFd> {
        self.fuse.take()
    }
}

/// The daemon's end.
pub struct Supervisor {
    socket: Mutex<OwnedFd>,
    pid: Pid,
}

impl Supervisor {
    /// Forks it. Call with one thread and before anything is open that must not
    /// outlive the daemon; `close` are descriptors it must not hold.
    pub fn start(request: MountRequest, read_ahead_kb: u32, close: &[RawFd]) -> io::Result<Self> {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let daemon = nix::unistd::getpid();
        // SAFETY: the caller has one thread, so the child may run any code.
        match unsafe { nix::unistd::fork() }? {
            ForkResult::Parent { child } => Ok(Supervisor { socket: Mutex::new(ours), pid: child }),
            ForkResult::Child => {
                drop(ours);
                for &fd in close {
                    // SAFETY: in the child these copies belong to nobody else.
                    unsafe { libc::close(fd) };
                }
                detach_standard_streams();
                let _ = nix::unistd::setsid();
                let _ = std::env::set_current_dir("/");
                let signals = Signals::block();
                Outside { request, read_ahead_kb, socket: theirs, made: None, daemon }.run(signals);
                std::process::exit(0);
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    fn ask(&self, what: u8) -> Result<(String, Vec<OwnedFd>), String> {
        let gone = |e: io::Error| format!("the supervisor is gone ({})", mount::plain(&e));
        let socket = self.socket.lock().unwrap_or_else(|e| e.into_inner());
        send(&socket, &[what], &[]).map_err(gone)?;
        receive(&socket)
            .map_err(gone)
            .map(|(bytes, fds)| (String::from_utf8_lossy(&bytes).into_owned(), fds))
    }

    fn ask_done(&self, what: u8) -> Result<(), String> {
        match self.ask(what)?.0 {
            text if text.is_empty() || text == "ok" => Ok(()),
            text => Err(text),
        }
    }

    /// Mounts; with `read_only`, so even if the options did not ask for it. The error
    /// is one line for the user.
    pub fn mount(&self, read_only: bool) -> Result<Mounted, String> {
        let (text, fds) = self.ask(if read_only { MOUNT_READ_ONLY } else { MOUNT })?;
        let Some(rest) = text.strip_prefix("mounted ") else { return Err(text) };
        let (by, dev) = rest.split_once(' ').unwrap_or(("mount", rest));
        let mut fds = fds.into_iter();
        Ok(Mounted {
            fuse: fds.next(),
            control: fds.next().map(UnixListener::from),
            dev: dev.to_string(),
            by_fusermount: by == "fusermount",
        })
    }

    /// Waits until the mount answers.
    pub fn answers(&self) -> Result<(), String> {
        self.ask_done(ANSWERS)
    }

    /// Sets the kernel's read-ahead; once INIT has been answered.
    pub fn set_read_ahead(&self) -> Result<(), String> {
        self.ask_done(READ_AHEAD)
    }

    /// Unmounts; an idle mount only, if so asked.
    pub fn unmount(&self, how: Unmount) -> Result<(), String> {
        self.ask_done(match how {
            Unmount::IfIdle => UNMOUNT_IDLE,
            Unmount::Lazy => UNMOUNT_LAZY,
            Unmount::Force => UNMOUNT_FORCE,
        })
    }

    /// The daemon is about to end in good order. Waits for the supervisor's end.
    pub fn finish(&self) {
        if self.ask_done(END).is_ok() {
            let _ = nix::sys::wait::waitpid(self.pid, None);
        }
    }
}

/// Puts /dev/null on the standard streams.
pub fn detach_standard_streams() {
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        for fd in 0..=2 {
            // SAFETY: both descriptors are plain numbers; dup2 closes what was there.
            unsafe { libc::dup2(null.as_raw_fd(), fd) };
        }
    }
}

/// The supervisor's own state.
struct Outside {
    request: MountRequest,
    read_ahead_kb: u32,
    socket: OwnedFd,
    made: Option<Made>,
    daemon: Pid,
}

struct Made {
    dev: String,
    /// The socket's path, and its inode: a later mount may have been given our number and put its own
    /// socket there.
    socket: Option<(PathBuf, u64)>,
}

fn inode(path: &Path) -> Option<u64> {
    path.symlink_metadata().ok().map(|m| m.ino())
}

impl Outside {
    fn run(mut self, signals: io::Result<Signals>) {
        loop {
            let mut fds = vec![PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            if let Ok(s) = &signals {
                fds.push(PollFd::new(s.0.as_fd(), PollFlags::POLLIN));
            }
            if let Err(e) = poll(&mut fds, PollTimeout::NONE)
                && e != nix::Error::EINTR
            {
                break;
            }
            let (asked, signalled) = (
                fds.first().and_then(PollFd::any).unwrap_or(false),
                fds.get(1).and_then(PollFd::any).unwrap_or(false),
            );
            if signalled
                && let Ok(s) = &signals
                && s.wait(Duration::ZERO).is_some()
                && nix::unistd::getppid() == self.daemon
            {
                // The daemon knows how to end: it writes out, then asks for the unmount.
                let _ = nix::sys::signal::kill(self.daemon, Signal::SIGTERM);
            }
            if asked {
                match receive(&self.socket) {
                    Ok((bytes, _)) if bytes.first() == Some(&END) => {
                        self.clean_up();
                        let _ = send(&self.socket, b"ok", &[]);
                        return;
                    }
                    Ok((bytes, _)) if !bytes.is_empty() => self.answer(bytes[0]),
                    _ => break,
                }
            }
        }
        // The daemon died. Whoever killed it may want to unmount by himself.
        if self.made.is_some() {
            let start = Instant::now();
            while start.elapsed() < GRACE && self.still_mounted() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.clean_up();
    }

    fn answer(&mut self, what: u8) {
        let done = |r: io::Result<()>| r.err().map(|e| mount::plain(&e)).unwrap_or_default();
        let text = match what {
            MOUNT => return self.mount(),
            MOUNT_READ_ONLY => {
                self.request.flags |= nix::mount::MsFlags::MS_RDONLY;
                return self.mount();
            }
            ANSWERS => done(self.request.point.metadata().map(drop)),
            READ_AHEAD => match &self.made {
                Some(made) => done(mount::set_read_ahead(&made.dev, self.read_ahead_kb)),
                None => "not mounted".into(),
            },
            UNMOUNT_IDLE => done(self.unmount(Unmount::IfIdle)),
            UNMOUNT_LAZY => done(self.unmount(Unmount::Lazy)),
            UNMOUNT_FORCE => done(self.unmount(Unmount::Force)),
            _ => "unknown request".into(),
        };
        let text = if text.is_empty() { "ok" } else { text.as_str() };
        let _ = send(&self.socket, text.as_bytes(), &[]);
    }

    fn mount(&mut self) {
        let connection = match mount::mount(&self.request) {
            Ok(c) => c,
            Err(text) => return drop(send(&self.socket, text.as_bytes(), &[])),
        };
        let dev = match mount::made(&self.request.point) {
            Ok(m) => m.dev,
            Err(text) => {
                let _ = mount::unmount(&self.request.point, Unmount::Lazy);
                return drop(send(&self.socket, text.as_bytes(), &[]));
            }
        };
        mount::note_in_utab(&self.request);
        let bound = control_socket::bind(&dev);
        let by = if connection.by_fusermount { "fusermount" } else { "mount" };
        let mut fds = vec![connection.fuse.as_raw_fd()];
        let mut socket = None;
        if let Ok((listener, path)) = &bound {
            fds.push(listener.as_raw_fd());
            socket = path.clone().and_then(|p| inode(&p).map(|i| (p, i)));
        }
        let text = format!("mounted {by} {dev}");
        let _ = send(&self.socket, text.as_bytes(), &fds);
        self.made = Some(Made { dev, socket });
    }

    /// Whether our mount is still at its place and on top.
    fn still_mounted(&self) -> bool {
        let Some(made) = &self.made else { return false };
        matches!(mount_table::read(), Ok(all) if all.iter().rev()
            .find(|m| m.point == self.request.point)
            .is_some_and(|m| m.dev == made.dev))
    }

    fn unmount(&self, how: Unmount) -> io::Result<()> {
        if self.still_mounted() { mount::unmount(&self.request.point, how) } else { Ok(()) }
    }

    fn clean_up(&mut self) {
        let _ = self.unmount(Unmount::Lazy);
        if let Some(made) = self.made.take() {
            if let Some((path, ours)) = made.socket
                && inode(&path) == Some(ours)
            {
                let _ = std::fs::remove_file(path);
            }
            mount::forget_in_utab(&self.request.point);
        }
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    let bytes = bytes.get(..MAX_MESSAGE).unwrap_or(bytes);
    let rights = [ControlMessage::ScmRights(fds)];
    let control = if fds.is_empty() { &rights[..0] } else { &rights[..] };
    let iov = [IoSlice::new(bytes)];
    sendmsg::<()>(socket.as_raw_fd(), &iov, control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MAX_MESSAGE];
    let mut space = cmsg_space!([RawFd; 2]);
    let mut fds = vec![];
    let n = {
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let message = loop {
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            match recvmsg::<()>(socket.as_raw_fd(), &mut iov, Some(&mut space), flags) {
                Err(nix::Error::EINTR) => {}
                other => break other?,
            }
        };
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(received) = control {
                for fd in received {
                    // SAFETY: just installed by the kernel for this call; nobody else owns it.
                    fds.push(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
        }
        message.bytes
    };
    if n == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(n);
    Ok((bytes, fds))
}
