//! What a mounted file system lets an operator see and turn. The control
//! directory and the control socket are two doors to one [`Control`].

use crate::error::Error;
use crate::types::Ino;
use std::fmt;
use std::time::Duration;

/// What a name is looked up on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The whole mount.
    Mount,
    /// One inode, such as a file's own lock mode.
    Inode(Ino),
}

/// How hard FS_IOC_SHUTDOWN stops the file system (ext4's `EXT4_GOING_FLAGS_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// Write everything out first (0).
    Default,
    /// Commit the journal, but write no data (1).
    LogFlush,
    /// Nothing more reaches the device (2).
    NoLogFlush,
}

impl Shutdown {
    /// By name (`default`, `logflush`, `nologflush`) or ext4's number.
    pub fn parse(text: &str) -> Option<Shutdown> {
        match text {
            "default" | "0" => Some(Shutdown::Default),
            "logflush" | "1" => Some(Shutdown::LogFlush),
            "nologflush" | "2" => Some(Shutdown::NoLogFlush),
            _ => None,
        }
    }
}

/// A refusal, with a text for the operator and an errno for the control directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlError {
    /// What write(2) in the control directory reports.
    pub errno: i32,
    /// One line that names the tunable and the value.
    pub message: String,
}

impl ControlError {
    /// There is no tunable of this name (ENOENT).
    pub fn unknown(name: &str) -> ControlError {
        ControlError { errno: libc::ENOENT, message: format!("no such tunable: \"{name}\"") }
    }
    /// The value does not fit the tunable (EINVAL).
    pub fn invalid(name: &str, value: &str, why: impl fmt::Display) -> ControlError {
        ControlError { errno: libc::EINVAL, message: format!("{name}={value}: {why}") }
    }
    /// The name can be read but not set (EACCES).
    pub fn read_only(name: &str) -> ControlError {
        ControlError { errno: libc::EACCES, message: format!("{name}: read-only") }
    }
    /// The request makes no sense now (EINVAL).
    pub fn refused(message: impl Into<String>) -> ControlError {
        ControlError { errno: libc::EINVAL, message: message.into() }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for ControlError {}

impl From<Error> for ControlError {
    fn from(e: Error) -> ControlError {
        ControlError { errno: e.errno(), message: e.to_string() }
    }
}

/// A tunable or statistic, as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlName {
    /// ext4's name under /sys/fs/ext4 or /proc/fs/ext4 where it has one.
    pub name: &'static str,
    /// Whether [`Control::set`] takes it.
    pub writable: bool,
    /// Whether it can be asked of one inode ([`Scope::Inode`]).
    pub per_inode: bool,
}

/// What waiting for a trace event gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceNext {
    /// One event, one line, without the newline.
    Line(String),
    /// Nothing happened within the time given.
    Idle,
    /// The file system is going away.
    End,
}

/// A running trace; dropping it ends it.
pub trait TraceStream: Send {
    /// Waits up to `timeout` for the next event.
    fn next(&mut self, timeout: Duration) -> TraceNext;
}

/// What `uext4 ctl`, the control directory and `mount -o remount` talk to.
/// Every method may be called from any thread at any time until unmount, holds
/// no lock of the file system when it is called, and may take long.
pub trait Control: Send + Sync {
    /// Everything that [`Control::get`] answers for the mount or for an inode.
    fn names(&self) -> Vec<ControlName>;
    /// The present value, with a newline at its end, as `cat` shows it.
    fn get(&self, scope: Scope, name: &str) -> Result<String, ControlError>;
    /// Changes it at once; `value` comes without surrounding white space.
    fn set(&self, scope: Scope, name: &str, value: &str) -> Result<(), ControlError>;
    /// `mount -o remount,OPTIONS`: all or nothing. Returns warnings, if any.
    fn remount(&self, options: &str) -> Result<Vec<String>, ControlError>;
    /// Everything written so far reaches the device, as sync(2).
    fn sync(&self) -> Result<(), ControlError>;
    /// FS_IOC_SHUTDOWN with its mode.
    fn shutdown(&self, how: Shutdown) -> Result<(), ControlError>;
    /// Starts a trace; `filter` is words such as `ext4_mballoc_alloc`, `ino=12`, `path=/a`, `json`.
    fn trace(&self, filter: &str) -> Result<Box<dyn TraceStream>, ControlError>;
}
