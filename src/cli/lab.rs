//! `uext4 lab` and `uext4 top`: another program, `uext4-lab`, from beside this one
//! or else from PATH.

use super::Failure;
use crate::fuse::mount::plain;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Becomes that program; returns only if there is none.
pub fn run(what: &str, args: &[OsString]) -> Result<(), Failure> {
    let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name("uext4-lab"));
    let mut last = io::Error::from_raw_os_error(libc::ENOENT);
    for program in beside.into_iter().chain(["uext4-lab".into()]) {
        last = Command::new(program).arg(what).args(args).exec();
        if last.kind() != io::ErrorKind::NotFound {
            break;
        }
    }
    Err(Failure::system(format!("uext4-lab, which does {what}: {}", plain(&last))))
}
