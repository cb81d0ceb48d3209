//! The `uext4` command: one file for each subcommand, [`daemon`] for the process
//! that serves a mount, [`helper`] for what mount(8) and umount(8) run.
//!
//! A command fails with a [`Failure`]: mount(8)'s exit code and one line on
//! standard error. What a mount serves comes through [`Backend`], so that the
//! plumbing can be tried without an image.

mod args;
mod backend;
mod crash;
mod ctl;
mod daemon;
mod extents;
mod failure;
mod helper;
mod lab;
mod logging;
mod mount;
mod raw;
mod remount;
mod target;
mod trace;
mod umount;

pub use daemon::{Backend, Started};
pub use failure::Failure;

use args::Command;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command with an ext4 image as what is mounted.
pub fn main() -> ExitCode {
    run(std::env::args_os().collect(), backend::Ext4::default())
}

/// Runs the command; `backend` is what a mount serves. The exit code is mount(8)'s.
pub fn run<B: Backend>(argv: Vec<OsString>, backend: B) -> ExitCode {
    match dispatch(argv, backend) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch<B: Backend>(argv: Vec<OsString>, backend: B) -> Result<(), Failure> {
    if let Some(helper) = helper::parse(&argv)? {
        return helper.run(backend);
    }
    match args::parse(argv)? {
        Some(Command::Mount(a)) => mount::run_args(a, backend),
        Some(Command::Raw(a)) => mount::run_args(a, raw::Device::default()),
        Some(Command::Umount(a)) => umount::run(&a),
        Some(Command::Ctl(a)) => ctl::run(&a),
        Some(Command::Trace(a)) => trace::run(&a),
        Some(Command::Extents(a)) => extents::run(&a),
        Some(Command::Crash(a)) => crash::run(&a),
        Some(Command::Lab(a)) => lab::run("lab", &a.args),
        Some(Command::Top(a)) => lab::run("top", &a.args),
        None => Ok(()),
    }
}
