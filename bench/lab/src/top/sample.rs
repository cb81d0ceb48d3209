//! One look at a mount, and what changed since the one before.

use bench_core::{Context, Result, bail};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What is asked each time; a daemon may not have all of them.
const NAMES: [&str; 8] = [
    "dirty_now",
    "dirty_bytes",
    "dirty_background_bytes",
    "delayed_allocation_blocks",
    "writeback_policy",
    "dioread_mode",
    "journal",
    "requests",
];
/// Of these the values are several lines.
const LONG: [&str; 2] = ["stats", "locks"];
/// How many looks the lines of the past are long.
const PAST: usize = 120;

/// Where the numbers come from.
pub struct Source {
    program: PathBuf,
    path: PathBuf,
    names: Vec<&'static str>,
    before: Option<(Instant, BTreeMap<String, f64>)>,
    past: VecDeque<(u64, u64)>,
}

/// What is shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Panel {
    /// The mount point.
    pub place: String,
    /// Values of one line, by name.
    pub values: BTreeMap<String, String>,
    /// Counters, since the mount.
    pub counters: BTreeMap<String, f64>,
    /// The same, a second.
    pub rates: BTreeMap<String, f64>,
    /// Locks held and waited for.
    pub locks: Vec<String>,
    /// Requests by operation: name, a second, mean and longest in microseconds.
    pub requests: Vec<(String, f64, f64, f64)>,
    /// Dirty bytes and bytes written to the device a second, look by look.
    pub past: Vec<(u64, u64)>,
    /// Large files: name, bytes, pieces.
    pub files: Vec<(String, u64, usize)>,
}

impl Source {
    /// Finds out what the daemon can say.
    pub fn new(program: &Path, path: &Path) -> Result<Source> {
        let mut source = Source {
            program: program.to_path_buf(),
            path: path.to_path_buf(),
            names: Vec::new(),
            before: None,
            past: VecDeque::new(),
        };
        source.ask(Path::new(""), &["dirty_now"])?;
        for name in NAMES.into_iter().chain(LONG) {
            if source.ask(Path::new(""), &[name]).is_ok() {
                source.names.push(name);
            }
        }
        Ok(source)
    }

    /// `uext4 ctl` of a file of the mount, or of the mount itself.
    pub fn ask(&self, file: &Path, items: &[&str]) -> Result<String> {
        let path = if file.as_os_str().is_empty() { self.path.clone() } else { file.to_path_buf() };
        let out = Command::new(&self.program).arg("ctl").arg(path).args(items).output();
        let out = out.with_context(|| self.program.display().to_string())?;
        if !out.status.success() {
            bail!("{}", String::from_utf8_lossy(&out.stderr).trim().trim_start_matches("uext4: "));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Looks.
    pub fn look(&mut self) -> Result<Panel> {
        let all = parse(&self.ask(Path::new(""), &self.names)?);
        let now = Instant::now();
        let mut panel = Panel { place: self.path.display().to_string(), ..Panel::default() };
        for (name, lines) in all {
            match (name.as_str(), lines.as_slice()) {
                ("locks", lines) => {
                    panel.locks = lines.iter().filter(|l| !l.is_empty()).cloned().collect()
                }
                ("stats" | "journal" | "requests", lines) => panel.counters.extend(numbers(lines)),
                (_, [one]) => {
                    panel.values.insert(name, one.clone());
                }
                _ => {}
            }
        }
        if let Some((then, before)) = &self.before {
            let seconds = now.duration_since(*then).as_secs_f64().max(1e-3);
            for (name, v) in &panel.counters {
                let was = before.get(name).copied().unwrap_or(0.0);
                panel.rates.insert(name.clone(), (v - was).max(0.0) / seconds);
            }
            panel.requests = requests(&panel.counters, before, seconds);
        }
        self.before = Some((now, panel.counters.clone()));
        let number =
            |name: &str| panel.values.get(name).and_then(|v| v.parse().ok()).unwrap_or(0u64);
        let written = panel.rates.get("device_write_bytes").copied().unwrap_or(0.0);
        self.past.push_back((number("dirty_now"), written as u64));
        if self.past.len() > PAST {
            self.past.pop_front();
        }
        panel.past = self.past.iter().copied().collect();
        Ok(panel)
    }
}

/// `OP_count`, `OP_us` and `OP_max_us` of each operation.
fn requests(
    now: &BTreeMap<String, f64>,
    before: &BTreeMap<String, f64>,
    seconds: f64,
) -> Vec<(String, f64, f64, f64)> {
    let delta = |name: &str| {
        now.get(name).copied().unwrap_or(0.0) - before.get(name).copied().unwrap_or(0.0)
    };
    let mut all: Vec<_> = now
        .keys()
        .filter_map(|n| n.strip_prefix("request_")?.strip_suffix("_count"))
        .filter_map(|op| {
            let count = delta(&format!("request_{op}_count"));
            let mean = delta(&format!("request_{op}_us")) / count;
            let max = now.get(&format!("request_{op}_max_us")).copied().unwrap_or(0.0);
            (count > 0.0).then(|| (op.replace('_', " "), count / seconds, mean, max))
        })
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

/// `NAME VALUE` lines.
fn numbers(lines: &[String]) -> impl Iterator<Item = (String, f64)> + '_ {
    lines.iter().filter_map(|l| {
        let (name, v) = l.trim().split_once(' ')?;
        Some((name.to_string(), v.parse().ok()?))
    })
}

/// What `uext4 ctl` prints of several names: `NAME=VALUE`, or `NAME:` and indented lines.
fn parse(text: &str) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        if let Some(more) = line.strip_prefix("    ") {
            if let Some((_, lines)) = all.last_mut() {
                lines.push(more.to_string());
            }
        } else if let Some((name, value)) = line.split_once('=') {
            all.push((name.to_string(), vec![value.to_string()]));
        } else if let Some(name) = line.strip_suffix(':') {
            all.push((name.to_string(), Vec::new()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ctl_prints_is_read() {
        let all = parse("a=1\nstats:\n    x 1\n    y 2.5\n    sizes 4k:1\nlocks=\n");
        assert_eq!(all[0], ("a".into(), vec!["1".into()]));
        assert_eq!(numbers(&all[1].1).collect::<Vec<_>>(), [("x".into(), 1.0), ("y".into(), 2.5)]);
        assert_eq!(all[2], ("locks".into(), vec![String::new()]));
    }

    #[test]
    fn requests_are_a_second_and_on_average() {
        let map = |all: &[(&str, f64)]| all.iter().map(|(n, v)| (n.to_string(), *v)).collect();
        let before = map(&[("request_read_count", 10.0), ("request_read_us", 100.0)]);
        let now = map(&[
            ("request_read_count", 30.0),
            ("request_read_us", 300.0),
            ("request_read_max_us", 50.0),
            ("request_stat_count", 0.0),
        ]);
        assert_eq!(requests(&now, &before, 2.0), [("read".to_string(), 10.0, 10.0, 50.0)]);
    }
}
