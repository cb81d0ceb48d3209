//! What was measured on: machine and versions.

use crate::{command, tools};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine and the versions of what ran on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor, as it calls itself.
    pub cpu: String,
    /// How many of them this process may use.
    pub cpus: usize,
    /// In bytes.
    pub memory: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// Load of the last minute when the run began: others' work is noise.
    pub load: f64,
    /// What the temporary directory is on.
    pub scratch: String,
    /// Versions by program.
    pub versions: BTreeMap<String, String>,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        let line = |path: &str| read_to_string(path).unwrap_or_default().trim().to_string();
        let field = |path: &str, name: &str, sep: char| {
            let text = read_to_string(path).unwrap_or_default();
            let value = text.lines().find_map(|l| {
                let (n, v) = l.split_once(sep)?;
                (n.trim() == name).then(|| v.trim().trim_matches('"').to_string())
            });
            value.unwrap_or_default()
        };
        let memory = field("/proc/meminfo", "MemTotal", ':');
        let memory = memory.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        let load = line("/proc/loadavg");
        Machine {
            cpu: field("/proc/cpuinfo", "model name", ':'),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory << 10,
            kernel: line("/proc/sys/kernel/osrelease"),
            system: field("/etc/os-release", "PRETTY_NAME", '='),
            load: load.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0),
            scratch: scratch(),
            versions: versions(),
        }
    }

    /// In a line.
    pub fn line(&self) -> String {
        let gib = self.memory as f64 / f64::from(1 << 30);
        let cpu = if self.cpu.is_empty() { "unknown processor" } else { &self.cpu };
        let versions: Vec<String> = self.versions.iter().map(|(n, v)| format!("{n} {v}")).collect();
        format!(
            "{} x {cpu}, {gib:.0} GiB, Linux {}, {}; images on {}; {}",
            self.cpus,
            self.kernel,
            self.system,
            self.scratch,
            versions.join(", ")
        )
    }

    /// What speaks against trusting the numbers.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.load > 0.5 * self.cpus as f64 {
            all.push(format!(
                "the machine was busy when the run began: load {:.1} on {} processors",
                self.load, self.cpus
            ));
        }
        all
    }
}

fn scratch() -> String {
    let stat = Command::new("stat").args(["-f", "-c", "%T"]).arg(crate::image::base()).output();
    stat.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string()).unwrap_or_default()
}

fn versions() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut ask = |name: &str, program: Option<std::path::PathBuf>, arg: &str| {
        let Some(program) = program else { return };
        let Ok(out) = command::output(Command::new(program).arg(arg)) else { return };
        let text = [out.stdout, out.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let word = text.split([' ', '\n']).find_map(|w| {
            let w = w.trim_start_matches("fio-");
            w.starts_with(|c: char| c.is_ascii_digit()).then(|| w.to_string())
        });
        if let Some(word) = word {
            all.insert(name.to_string(), word);
        }
    };
    ask("uext4", tools::uext4().ok(), "--version");
    ask("fio", tools::find("fio"), "--version");
    ask("e2fsprogs", tools::find("mkfs.ext4"), "-V");
    all
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// A time in seconds since 1970 as `2011-08-19 14:03 UTC`.
pub fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to a date, after Howard Hinnant's civil_from_days.
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(1_313_762_580), "2011-08-19 14:03 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
    }

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let m = Machine::here();
        assert!(m.cpus > 0 && m.memory > 0 && !m.kernel.is_empty());
        assert!(m.line().contains(&m.kernel));
    }
}
