//! The log: standard error in the foreground and while mounting, the system log
//! (/dev/log) once in the background. `UEXT4_LOG` says what is logged, in
//! env_logger's words; warnings and errors by default.

use log::Level;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::{Mutex, PoisonError};

enum Sink {
    StandardError,
    System(Option<UnixDatagram>),
}

static SINK: Mutex<Sink> = Mutex::new(Sink::StandardError);

fn sink() -> std::sync::MutexGuard<'static, Sink> {
    SINK.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Writer;

/// env_logger writes each record at once: the syslog severity digit, then the text.
impl Write for Writer {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let (severity, text) = record.split_first().unwrap_or((&b'4', record));
        match &mut *sink() {
            Sink::StandardError => io::stderr().write_all(text)?,
            Sink::System(socket) => {
                // Facility "daemon" is 3.
                let priority = 3 * 8 + severity.saturating_sub(b'0');
                let text = String::from_utf8_lossy(text);
                let line = text.trim_end().strip_prefix("uext4: ").unwrap_or(text.trim_end());
                let packet = format!("<{priority}>uext4[{}]: {line}", std::process::id());
                let sent = socket.as_ref().is_some_and(|s| s.send(packet.as_bytes()).is_ok());
                if !sent && let Some(fresh) = connect() {
                    let _ = fresh.send(packet.as_bytes());
                    *socket = Some(fresh);
                }
            }
        }
        Ok(record.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn connect() -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect("/dev/log").ok()?;
    Some(socket)
}

fn severity(level: Level) -> char {
    match level {
        Level::Error => '3',
        Level::Warn => '4',
        Level::Info => '6',
        Level::Debug | Level::Trace => '7',
    }
}

/// Starts logging to standard error; a second call changes nothing.
pub fn start() {
    let env = env_logger::Env::new().filter_or("UEXT4_LOG", "warn");
    let _ = env_logger::Builder::from_env(env)
        .target(env_logger::Target::Pipe(Box::new(Writer)))
        .format(|out, record| {
            let digit = severity(record.level());
            let word = match record.level() {
                Level::Error => "error: ",
                Level::Warn => "warning: ",
                Level::Info => "",
                Level::Debug => "debug: ",
                Level::Trace => "trace: ",
            };
            writeln!(out, "{digit}uext4: {word}{}", record.args())
        })
        .try_init();
}

/// From now on to the system log. Opens it, so call it before a sandbox closes.
pub fn to_system_log() {
    *sink() = Sink::System(connect());
}
