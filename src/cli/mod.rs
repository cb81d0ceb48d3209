//! The `uext4` command line.

use std::process::ExitCode;

/// Runs the command; the exit code is mount(8)'s.
pub fn main() -> ExitCode {
    ExitCode::FAILURE
}
