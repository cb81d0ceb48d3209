//! The control socket: how `uext4 ctl`, `trace`, `umount` and a remount reach the
//! daemon of a mount, past the FUSE queue. Found by the mount's device number.
//!
//! A request is one line; an answer is a line `ok LENGTH` or `err LENGTH` and then
//! that many bytes. `trace` answers `ok 0` and then lines without end.
//!
//! ```text
//! list                      names, one a line: NAME, then "w" and "i" if settable and per inode
//! [inode N] get NAME        its value
//! [inode N] set NAME VALUE
//! remount OPTIONS           warnings, one a line
//! sync
//! shutdown MODE
//! trace FILTER
//! pid                       the daemon's process id
//! umount-wait               ok 0 at once; a second answer when the daemon has let go of the image
//! ```

use crate::options::{Control, ControlError, Scope, Shutdown, TraceNext};
use crate::types::Ino;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A request line may not be longer.
const MAX_LINE: u64 = 64 * 1024;
/// An answer may not be longer.
const MAX_ANSWER: usize = 64 << 20;
const MAX_CLIENTS: usize = 64;

/// The directories that the sockets of mounts by user `uid` are in.
fn directories(uid: u32) -> Vec<PathBuf> {
    let mut all = vec![];
    if uid == 0 {
        all.push("/run/uext4".into());
    }
    if nix::unistd::geteuid().as_raw() == uid
        && let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR")
    {
        all.push(Path::new(&dir).join("uext4"));
    }
    all.push(format!("/run/user/{uid}/uext4").into());
    all
}

/// Where none of the directories can be had: a name without a file.
fn abstract_name(dev: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("uext4/{dev}"))
}

/// A directory only its owner may use, and no symbolic link.
fn is_private(dir: &Path, uid: u32) -> bool {
    dir.symlink_metadata()
        .is_ok_and(|m| m.is_dir() && m.uid() == uid && m.permissions().mode() & 0o022 == 0)
}

/// Listens for the mount with this device number; also the socket's path, if it has one.
pub fn bind(dev: &str) -> io::Result<(UnixListener, Option<PathBuf>)> {
    let uid = nix::unistd::geteuid().as_raw();
    for dir in directories(uid) {
        match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => continue,
            _ if !is_private(&dir, uid) => continue,
            _ => {}
        }
        let path = dir.join(dev.replace(':', "-"));
        // Whoever had this number before is gone: the mount that has it is ours.
        let _ = std::fs::remove_file(&path);
        if let Ok(listener) = UnixListener::bind(&path) {
            let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600));
            return Ok((listener, Some(path)));
        }
    }
    Ok((UnixListener::bind_addr(&abstract_name(dev)?)?, None))
}

/// A client's end.
pub struct Client(BufReader<UnixStream>);

/// Why a request got no value.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The daemon refused; its own words.
    #[error("{0}")]
    Refused(String),
    /// No daemon answers.
    #[error("the daemon does not answer: {0}")]
    Gone(io::Error),
}

impl Client {
    /// Connects to the daemon of the mount with device number `dev`, made by user `owner`.
    pub fn connect(dev: &str, owner: u32) -> io::Result<Client> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for dir in directories(owner) {
            if !is_private(&dir, owner) {
                // Denied and absent look alike here; the first says more.
                if let Err(e) = dir.symlink_metadata()
                    && e.kind() != io::ErrorKind::NotFound
                {
                    last = e;
                }
                continue;
            }
            match UnixStream::connect(dir.join(dev.replace(':', "-"))) {
                Ok(stream) => return Ok(Client(BufReader::new(stream))),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => last = e,
            }
        }
        // Anybody may take an abstract name: only the mount's owner or root is believed.
        match UnixStream::connect_addr(&abstract_name(dev)?) {
            Ok(stream) if peer(&stream).is_some_and(|uid| uid == 0 || uid == owner) => {
                Ok(Client(BufReader::new(stream)))
            }
            _ => Err(last),
        }
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, request: &str) -> Result<String, ClientError> {
        let line = format!("{}\n", request.replace('\n', " "));
        self.0.get_mut().write_all(line.as_bytes()).map_err(ClientError::Gone)?;
        self.answer()
    }

    /// Waits for a (further) answer.
    pub fn answer(&mut self) -> Result<String, ClientError> {
        let invalid = || ClientError::Gone(io::Error::from(io::ErrorKind::InvalidData));
        let mut head = String::new();
        if self.0.by_ref().take(64).read_line(&mut head).map_err(ClientError::Gone)? == 0 {
            return Err(ClientError::Gone(io::ErrorKind::UnexpectedEof.into()));
        }
        let (word, length) = head.trim_end().split_once(' ').ok_or_else(invalid)?;
        let length: usize = length.parse().map_err(|_| invalid())?;
        if length > MAX_ANSWER {
            return Err(invalid());
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).map_err(ClientError::Gone)?;
        let body = String::from_utf8_lossy(&body).into_owned();
        if word == "ok" { Ok(body) } else { Err(ClientError::Refused(body)) }
    }

    /// Waits until the daemon's process has ended.
    pub fn wait_for_exit(&mut self) {
        let _ = self.0.read_to_end(&mut Vec::new());
    }

    /// Waits until something arrives or `timeout` passes; false if it passed.
    pub fn wait(&self, timeout: Duration) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd;
        if !self.0.buffer().is_empty() {
            return true;
        }
        let ms = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        !matches!(poll(&mut [PollFd::new(self.0.get_ref().as_fd(), PollFlags::POLLIN)], ms), Ok(0))
    }

    /// After `trace`: copies what comes to `out` until either end closes.
    pub fn copy_to(mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = Vec::new();
        while self.0.read_until(b'\n', &mut line)? != 0 {
            out.write_all(&line)?;
            out.flush()?;
            line.clear();
        }
        Ok(())
    }
}

/// The daemon's end.
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    control: Arc<dyn Control>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    clients: usize,
    /// Clients that wait for the end.
    waiting: usize,
    /// Set once the image has been let go of: how that went.
    end: Option<Result<(), String>>,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Starts the thread that accepts.
    pub fn start(listener: UnixListener, control: Arc<dyn Control>) -> io::Result<Server> {
        let shared = Arc::new(Shared {
            control,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        });
        let for_thread = shared.clone();
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&listener, &for_thread))?;
        Ok(Server { shared })
    }

    /// Tells those who wait that the image is free, or why it is not clean, and
    /// gives them a moment to hear it.
    pub fn finish(self, how: Result<(), String>) {
        let mut state = self.shared.state();
        state.end = Some(how);
        self.shared.changed.notify_all();
        let patience = Duration::from_secs(2);
        let _ = self.shared.changed.wait_timeout_while(state, patience, |s| s.waiting > 0);
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) => {
                log::warn!("control socket: {e}");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if !may_use(&stream) || shared.state().clients >= MAX_CLIENTS {
            continue;
        }
        shared.state().clients += 1;
        let for_thread = shared.clone();
        let started = std::thread::Builder::new().name("control-client".into()).spawn(move || {
            if let Err(e) = serve(stream, &for_thread) {
                log::debug!("control socket: {e}");
            }
            for_thread.state().clients -= 1;
        });
        if started.is_err() {
            shared.state().clients -= 1;
        }
    }
}

/// Root and the daemon's own user may.
fn may_use(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    peer(stream).is_some_and(|uid| uid == 0 || uid == own)
}

/// The user at the other end.
fn peer(stream: &UnixStream) -> Option<u32> {
    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
    getsockopt(stream, PeerCredentials).ok().map(|c| c.uid())
}

fn put(stream: &mut UnixStream, answer: &Result<String, ControlError>) -> io::Result<()> {
    let (word, body) = match answer {
        Ok(text) => ("ok", text.as_str()),
        Err(e) => ("err", e.message.as_str()),
    };
    let mut bytes = format!("{word} {}\n", body.len()).into_bytes();
    bytes.extend_from_slice(body.as_bytes());
    stream.write_all(&bytes)
}

fn serve(stream: UnixStream, shared: &Shared) -> io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        if lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            return put(&mut out, &Err(ControlError::refused("request too long")));
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "trace" => return trace(&mut out, shared, rest),
            "umount-wait" => {
                shared.state().waiting += 1;
                let end =
                    put(&mut out, &Ok(String::new())).and_then(|()| wait_for_end(&out, shared));
                let told = end.and_then(|end| {
                    put(&mut out, &end.map(|()| String::new()).map_err(ControlError::refused))
                });
                shared.state().waiting -= 1;
                shared.changed.notify_all();
                told?;
                // Left open: its end tells the client of the end of the process.
                let _ = lines.read_to_end(&mut Vec::new());
                return Ok(());
            }
            _ => put(&mut out, &answer(&*shared.control, line))?,
        }
    }
}

fn wait_for_end(out: &UnixStream, shared: &Shared) -> io::Result<Result<(), String>> {
    let mut state = shared.state();
    loop {
        if let Some(end) = &state.end {
            return Ok(end.clone());
        }
        let (next, timeout) = shared
            .changed
            .wait_timeout(state, Duration::from_secs(1))
            .unwrap_or_else(PoisonError::into_inner);
        state = next;
        if timeout.timed_out() && hung_up(out) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
}

fn hung_up(stream: &UnixStream) -> bool {
    let mut fd = libc::pollfd { fd: stream.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one valid pollfd, and no wait.
    let n = unsafe { libc::poll(&mut fd, 1, 0) };
    n > 0 && fd.revents & (libc::POLLHUP | libc::POLLERR) != 0
}

fn trace(out: &mut UnixStream, shared: &Shared, filter: &str) -> io::Result<()> {
    let mut events = match shared.control.trace(filter) {
        Ok(events) => events,
        Err(e) => return put(out, &Err(e)),
    };
    put(out, &Ok(String::new()))?;
    loop {
        match events.next(Duration::from_millis(500)) {
            TraceNext::Line(line) => out.write_all(format!("{line}\n").as_bytes())?,
            TraceNext::Idle if hung_up(out) => return Ok(()),
            TraceNext::Idle => {}
            TraceNext::End => return Ok(()),
        }
    }
}

fn answer(control: &dyn Control, line: &str) -> Result<String, ControlError> {
    let malformed = || ControlError::refused(format!("malformed request \"{line}\""));
    let mut scope = Scope::Mount;
    let mut request = line;
    if let Some(rest) = line.strip_prefix("inode ") {
        let (number, rest) = rest.split_once(' ').ok_or_else(malformed)?;
        scope = Scope::Inode(Ino(number.parse().map_err(|_| malformed())?));
        request = rest;
    }
    let (word, rest) = request.split_once(' ').unwrap_or((request, ""));
    let rest = rest.trim();
    match (word, scope) {
        ("get", _) if !rest.is_empty() => control.get(scope, rest),
        ("set", _) => {
            let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
            control.set(scope, name, value.trim()).map(|()| String::new())
        }
        ("list", _) => {
            let mut text = String::new();
            for n in control.names() {
                let writable = if n.writable { " w" } else { "" };
                let per_inode = if n.per_inode { " i" } else { "" };
                text.push_str(&format!("{}{writable}{per_inode}\n", n.name));
            }
            Ok(text)
        }
        ("remount", Scope::Mount) => control.remount(rest).map(|warnings| warnings.join("\n")),
        ("sync", Scope::Mount) => control.sync().map(|()| String::new()),
        ("shutdown", Scope::Mount) => match Shutdown::parse(rest) {
            Some(how) => control.shutdown(how).map(|()| String::new()),
            None => Err(ControlError::invalid(
                "shutdown",
                rest,
                "must be default, logflush or nologflush",
            )),
        },
        ("pid", Scope::Mount) => Ok(std::process::id().to_string()),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests;
