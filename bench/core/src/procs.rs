//! CPU time and memory of processes, from /proc and getrusage.

use crate::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};
use std::time::Duration;

/// CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// In the program.
    pub user: Duration,
    /// In the kernel on its behalf.
    pub system: Duration,
}

impl Cpu {
    /// Both.
    pub fn total(&self) -> Duration {
        self.user + self.system
    }
    /// Both, in seconds.
    pub fn seconds(&self) -> f64 {
        self.total().as_secs_f64()
    }
}

impl Sub for Cpu {
    type Output = Cpu;
    fn sub(self, o: Cpu) -> Cpu {
        Cpu { user: self.user.saturating_sub(o.user), system: self.system.saturating_sub(o.system) }
    }
}

impl Add for Cpu {
    type Output = Cpu;
    fn add(self, o: Cpu) -> Cpu {
        Cpu { user: self.user + o.user, system: self.system + o.system }
    }
}

/// Of our children that have ended, theirs included.
pub fn children_cpu() -> Cpu {
    let Ok(u) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Cpu::default() };
    let of = |t: nix::sys::time::TimeVal| {
        Duration::from_micros(u64::try_from(t.num_microseconds()).unwrap_or(0))
    };
    Cpu { user: of(u.user_time()), system: of(u.system_time()) }
}

/// Of a process with all its threads, so far; in steps of 10 ms.
pub fn process_cpu(pid: u32) -> Result<Cpu> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).context(path)?;
    parse_stat(&text).context("/proc/PID/stat cannot be read")
}

/// The command name may hold anything: what counts is after its last parenthesis.
fn parse_stat(text: &str) -> Option<Cpu> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Cpu { user: ticks(fields.get(11)?)?, system: ticks(fields.get(12)?)? })
}

/// USER_HZ is 100 on every architecture that matters here.
fn ticks(text: &str) -> Option<Duration> {
    Some(Duration::from_millis(text.parse::<u64>().ok()?.saturating_mul(10)))
}

/// CPU time that the whole machine was busy since boot, and that passed on all its CPUs.
/// What the kernel does for a file system of its own shows only here.
pub fn machine_cpu() -> Result<(Duration, Duration)> {
    let text = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let first = text.lines().next().context("/proc/stat is empty")?;
    let all: Vec<Duration> = first.split_whitespace().skip(1).take(8).filter_map(ticks).collect();
    let total: Duration = all.iter().sum();
    let idle: Duration = all.iter().skip(3).take(2).sum();
    Ok((total.saturating_sub(idle), total))
}

/// The most memory that a process had resident, in bytes, since it began or since
/// [`forget_peak`].
pub fn peak_rss(pid: u32) -> Result<u64> {
    status(pid, "VmHWM")
}

/// The memory that a process has resident now, in bytes.
pub fn rss(pid: u32) -> Result<u64> {
    status(pid, "VmRSS")
}

/// The peak starts again from the present.
pub fn forget_peak(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, "5").context(path)
}

fn status(pid: u32, field: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).context(path)?;
    let kib = text
        .lines()
        .find_map(|l| l.strip_prefix(field)?.strip_prefix(':')?.split_whitespace().next())
        .and_then(|n| n.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("no {field}"))? << 10)
}

/// Writes everything out and drops what the machine caches of files. Needs root.
pub fn drop_caches() -> Result<()> {
    nix::unistd::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("/proc/sys/vm/drop_caches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_no_trap() {
        let line = "42 (a) b) 7 7) S 1 2 3 4 5 6 7 8 9 10 123 45 0 0 20 0 1 0";
        let cpu = parse_stat(line).unwrap();
        assert_eq!((cpu.user.as_millis(), cpu.system.as_millis()), (1230, 450));
        assert!(parse_stat("nonsense").is_none());
    }

    #[test]
    fn we_are_a_process() {
        let me = std::process::id();
        assert!(process_cpu(me).is_ok());
        assert!(peak_rss(me).unwrap() >= rss(me).unwrap());
        let (busy, total) = machine_cpu().unwrap();
        assert!(busy <= total && total > Duration::ZERO);
    }
}
