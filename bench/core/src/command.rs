//! Running a program to its end: its output, its time, its CPU.

use crate::interrupt::{self, Watched};
use crate::procs::{Cpu, children_cpu};
use crate::{Context, Result, bail};
use shared_child::SharedChild;
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a program left.
#[derive(Debug)]
pub struct Output {
    /// Its exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// From start to end.
    pub wall: Duration,
    /// Of it and its children; of other children of ours that ended meanwhile, too.
    pub cpu: Cpu,
}

/// Runs a program, whatever its exit status. An interrupt kills it and is an error.
pub fn output(command: &mut Command) -> Result<Output> {
    interrupt::check()?;
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let before = children_cpu();
    let start = Instant::now();
    let child = Arc::new(SharedChild::spawn(command).with_context(|| name.clone())?);
    let watched = Watched::new(child.clone());
    let err = child.take_stderr();
    let collector = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut err) = err {
            let _ = err.read_to_end(&mut bytes);
        }
        bytes
    });
    let mut stdout = Vec::new();
    if let Some(mut out) = child.take_stdout() {
        out.read_to_end(&mut stdout)?;
    }
    let status = child.wait().with_context(|| name.clone())?;
    let wall = start.elapsed();
    drop(watched);
    let stderr = collector.join().unwrap_or_default();
    interrupt::check()?;
    Ok(Output { status, stdout, stderr, wall, cpu: children_cpu() - before })
}

/// Runs a program that has to succeed; otherwise the error has its last words.
pub fn run(command: &mut Command) -> Result<Output> {
    let out = output(command)?;
    if !out.status.success() {
        let line = format!("{command:?}").replace('"', "");
        bail!("{line}: {}: {}", out.status, last_words(&out));
    }
    Ok(out)
}

/// What a failed program said, in one line.
pub(crate) fn last_words(out: &Output) -> String {
    let text = if out.stderr.trim_ascii().is_empty() { &out.stdout } else { &out.stderr };
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

/// A program that goes on in the background; killed when dropped.
pub struct Background {
    child: Arc<SharedChild>,
    _watched: Watched,
}

impl Background {
    /// Starts it; its standard error is ours.
    pub fn start(command: &mut Command) -> Result<Background> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = Arc::new(SharedChild::spawn(command).with_context(|| name)?);
        Ok(Background { _watched: Watched::new(child.clone()), child })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until it ends by itself.
    pub fn wait(&self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }

    /// Waits for its end, up to a limit; false if it goes on.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            if self.ended().is_some() {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_last_words() {
        let e = run(Command::new("sh").args(["-c", "echo no such luck >&2; exit 3"])).unwrap_err();
        assert!(e.to_string().contains("no such luck") && e.to_string().contains('3'), "{e}");
        let out = run(Command::new("sh").args(["-c", "echo yes"])).unwrap();
        assert_eq!(out.stdout, b"yes\n");
    }

    #[test]
    fn cpu_of_a_child_is_counted() {
        let out =
            run(Command::new("sh")
                .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]));
        assert!(out.unwrap().cpu.total() > Duration::from_millis(5));
    }

    #[test]
    fn what_runs_in_the_background_ends_with_its_guard() {
        let b = Background::start(Command::new("sleep").arg("100")).unwrap();
        assert!(b.ended().is_none());
        let pid = b.id();
        drop(b);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
