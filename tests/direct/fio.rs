//! fio, and what it says.

use crate::common::{run, tool};
use std::path::Path;

/// One fio process, given its jobs on the command line.
pub struct Fio(std::process::Command);

/// What a job got.
#[derive(Debug, Clone, Copy, Default)]
pub struct Speed {
    /// MB/s (10^6).
    pub read: f64,
    pub write: f64,
    /// Read requests per second.
    pub read_iops: f64,
}

impl Fio {
    /// Options before the first job count for all jobs.
    pub fn new(file: &Path) -> Fio {
        let mut c = tool("fio");
        c.args(["--output-format=json", "--group_reporting=1", "--direct=1"]);
        c.arg(format!("--filename={}", file.display()));
        c.current_dir(std::env::temp_dir());
        Fio(c)
    }

    /// Adds `--NAME=VALUE` for each word of `options`.
    pub fn with(mut self, options: &str) -> Fio {
        self.0.args(options.split_whitespace().map(|o| format!("--{o}")));
        self
    }

    /// Runs it to the end; fails the test if fio says that anything is wrong.
    #[track_caller]
    pub fn run(mut self) -> Speed {
        let out = run(&mut self.0);
        let json = out.find('{').map(|i| &out[i..]).unwrap_or_default();
        let errors: u64 = sum(json, "\"error\"") as u64 + sum(json, "\"total_err\"") as u64;
        assert_eq!(errors, 0, "{:?}: {out}", self.0);
        let (read, write) = (section(json, "\"read\""), section(json, "\"write\""));
        Speed { read: read.0 / 1e6, write: write.0 / 1e6, read_iops: read.1 }
    }

    /// Starts it; its output is thrown away.
    pub fn start(mut self) -> std::process::Child {
        self.0.stdout(std::process::Stdio::null()).spawn().unwrap()
    }
}

/// The number after each `name :`.
fn numbers<'a>(json: &'a str, name: &'a str) -> impl Iterator<Item = f64> + 'a {
    json.match_indices(name).filter_map(move |(i, _)| {
        let rest = json[i + name.len()..].trim_start().strip_prefix(':')?.trim_start();
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        rest[..end].parse().ok()
    })
}

fn sum(json: &str, name: &str) -> f64 {
    numbers(json, name).sum()
}

/// `bw_bytes` and `iops` summed over the sections of that name.
fn section(json: &str, name: &str) -> (f64, f64) {
    let mut total = (0.0, 0.0);
    for (i, _) in json.match_indices(name) {
        let rest = &json[i..];
        if !rest[name.len()..].trim_start().trim_start_matches(':').trim_start().starts_with('{') {
            continue;
        }
        total.0 += numbers(rest, "\"bw_bytes\"").next().unwrap_or(0.0);
        total.1 += numbers(rest, "\"iops\"").next().unwrap_or(0.0);
    }
    total
}
