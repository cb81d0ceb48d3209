//! How a command fails.

/// mount(8)'s exit codes.
pub const USAGE: u8 = 1;
/// Out of memory, cannot fork, and the like.
pub const SYSTEM: u8 = 2;
/// The mount, unmount or request failed.
pub const FAILED: u8 = 32;

/// An exit code and one line for standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// The line, without the program's name; empty if all has been said.
    pub message: String,
}

impl Failure {
    /// The command was called wrongly.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: USAGE, message: message.into() }
    }
    /// The system let us down.
    pub fn system(message: impl Into<String>) -> Failure {
        Failure { code: SYSTEM, message: message.into() }
    }
    /// What was asked for failed.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure { code: FAILED, message: message.into() }
    }

    /// Prints the line; line breaks within become spaces.
    pub fn report(&self) {
        if !self.message.is_empty() {
            say(&self.message);
        }
    }
}

/// One line on standard error.
pub fn say(message: &str) {
    use std::io::Write;
    let line = message.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
    let _ = writeln!(std::io::stderr(), "uext4: {line}");
}
