//! fio: jobs in, its JSON out.

use crate::command;
use crate::procs::Cpu;
use crate::{Context, Result, bail, tools};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// What fio is to do: options for all jobs, then the jobs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spec {
    /// Options of all jobs, in fio's names.
    pub global: Vec<(String, String)>,
    /// The jobs: a name and its options.
    pub jobs: Vec<(String, Vec<(String, String)>)>,
}

impl Spec {
    /// No jobs yet.
    pub fn new() -> Spec {
        Spec::default()
    }

    /// An option of all jobs; `""` for an option without a value.
    pub fn set(mut self, name: &str, value: impl ToString) -> Spec {
        self.global.push((name.into(), value.to_string()));
        self
    }

    /// A job.
    pub fn job<'a>(
        mut self,
        name: &str,
        options: impl IntoIterator<Item = (&'a str, String)>,
    ) -> Spec {
        let options = options.into_iter().map(|(n, v)| (n.to_string(), v)).collect();
        self.jobs.push((name.into(), options));
        self
    }

    /// The job file.
    pub fn text(&self) -> String {
        let mut s = String::from("[global]\n");
        let line = |s: &mut String, (name, value): &(String, String)| {
            s.push_str(name);
            if !value.is_empty() {
                s.push('=');
                s.push_str(value);
            }
            s.push('\n');
        };
        self.global.iter().for_each(|o| line(&mut s, o));
        for (name, options) in &self.jobs {
            s.push_str(&format!("[{name}]\n"));
            options.iter().for_each(|o| line(&mut s, o));
        }
        s
    }

    /// Runs it.
    pub fn run(&self) -> Result<Report> {
        let fio = tools::need("fio", "fio")?;
        let file =
            std::env::temp_dir().join(format!("uext4-fio.{}.{}", std::process::id(), unique()));
        std::fs::write(&file, self.text()).with_context(|| file.display().to_string())?;
        let out = command::output(
            Command::new(fio).args(["--output-format=json", "--eta=never"]).arg(&file),
        );
        let _ = std::fs::remove_file(&file);
        let out = out?;
        let mut report = match parse(&out.stdout) {
            Ok(report) if out.status.success() => report,
            _ => bail!("fio: {}: {}\n{}", out.status, command::last_words(&out), self.text()),
        };
        report.cpu = out.cpu;
        report.wall = out.wall;
        if let Some(job) = report.jobs.iter().find(|j| j.error != 0) {
            bail!("fio: job {}: {}", job.name, std::io::Error::from_raw_os_error(job.error));
        }
        Ok(report)
    }
}

fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// What fio measured.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Report {
    /// Its version, as `fio-3.33`.
    #[serde(rename = "fio version", default)]
    pub version: String,
    /// One for each job, or for each group with `group_reporting`.
    pub jobs: Vec<Job>,
    /// CPU time of fio with all its processes.
    #[serde(skip)]
    pub cpu: Cpu,
    /// From its start to its end, which is more than the jobs took.
    #[serde(skip)]
    pub wall: Duration,
}

/// What fio measured of one job.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Job {
    /// As it is called in the job file.
    #[serde(rename = "jobname")]
    pub name: String,
    /// An errno, or 0.
    #[serde(default)]
    pub error: i32,
    /// Reads.
    #[serde(default)]
    pub read: Direction,
    /// Writes.
    #[serde(default)]
    pub write: Direction,
    /// Milliseconds that its processes ran, added up.
    #[serde(default, rename = "job_runtime")]
    pub run_time: u64,
    /// Per cent of the job's time in the program.
    #[serde(default)]
    pub usr_cpu: f64,
    /// Per cent of the job's time in the kernel.
    #[serde(default)]
    pub sys_cpu: f64,
}

/// Reads or writes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Direction {
    /// Bytes moved.
    #[serde(rename = "io_bytes")]
    pub bytes: u64,
    /// Bytes a second.
    #[serde(rename = "bw_bytes")]
    pub bytes_per_s: f64,
    /// Operations a second.
    pub iops: f64,
    /// Operations.
    #[serde(rename = "total_ios")]
    pub ops: u64,
    /// Milliseconds that it took.
    pub runtime: u64,
    #[serde(rename = "clat_ns")]
    clat: Latency,
    #[serde(rename = "lat_ns")]
    lat: Latency,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Latency {
    min: f64,
    max: f64,
    mean: f64,
    stddev: f64,
    percentile: BTreeMap<String, f64>,
}

impl Direction {
    /// Megabytes (of 10^6 bytes) a second.
    pub fn mb_per_s(&self) -> f64 {
        self.bytes_per_s / 1e6
    }
    /// The mean latency of an operation, in microseconds, submission included.
    pub fn mean_us(&self) -> f64 {
        self.lat.mean / 1e3
    }
    /// The longest latency, in microseconds.
    pub fn max_us(&self) -> f64 {
        self.lat.max / 1e3
    }
    /// The shortest latency, in microseconds.
    pub fn min_us(&self) -> f64 {
        self.lat.min / 1e3
    }
    /// The standard deviation of the latency, in microseconds.
    pub fn stddev_us(&self) -> f64 {
        self.lat.stddev / 1e3
    }
    /// The latency below which `p` per cent completed, in microseconds.
    pub fn percentile_us(&self, p: f64) -> Option<f64> {
        self.percentiles_us().into_iter().find(|(q, _)| (q - p).abs() < 1e-6).map(|(_, us)| us)
    }
    /// Every percentile that fio reports: per cent and microseconds.
    pub fn percentiles_us(&self) -> Vec<(f64, f64)> {
        let all = self.clat.percentile.iter();
        let mut all: Vec<_> = all.filter_map(|(p, ns)| Some((p.parse().ok()?, ns / 1e3))).collect();
        all.sort_by(|a: &(f64, f64), b| a.0.total_cmp(&b.0));
        all
    }
}

impl Job {
    /// CPU time of its processes while they ran, in seconds; fio's own start and end aside.
    pub fn cpu_seconds(&self) -> f64 {
        (self.usr_cpu + self.sys_cpu) / 100.0 * self.run_time as f64 / 1e3
    }
}

impl Report {
    /// The job of that name.
    pub fn job(&self, name: &str) -> Result<&Job> {
        let job = self.jobs.iter().find(|j| j.name == name);
        job.with_context(|| format!("fio reports no job {name}"))
    }

    /// Reads of all jobs together, in MB a second.
    pub fn read_mb_per_s(&self) -> f64 {
        self.jobs.iter().map(|j| j.read.mb_per_s()).sum()
    }
    /// Writes of all jobs together, in MB a second.
    pub fn write_mb_per_s(&self) -> f64 {
        self.jobs.iter().map(|j| j.write.mb_per_s()).sum()
    }
    /// Operations of all jobs together.
    pub fn ops(&self) -> u64 {
        self.jobs.iter().map(|j| j.read.ops + j.write.ops).sum()
    }
    /// Operations a second of all jobs together.
    pub fn iops(&self) -> f64 {
        self.jobs.iter().map(|j| j.read.iops + j.write.iops).sum()
    }
}

/// Takes fio's JSON apart. Notes that fio puts before it are skipped.
pub fn parse(stdout: &[u8]) -> Result<Report> {
    let text = String::from_utf8_lossy(stdout);
    let start = text.find("\n{").map_or_else(|| text.find('{'), |n| Some(n + 1));
    let start = if text.starts_with('{') { Some(0) } else { start };
    let json = &text[start.context("fio printed no JSON")?..];
    let mut stream = serde_json::Deserializer::from_str(json).into_iter::<Report>();
    Ok(stream.next().context("fio printed no JSON")??)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"fio: note: both iodepth >= 1 and synchronous I/O engine are selected
{
  "fio version" : "fio-3.33", "timestamp" : 1,
  "jobs" : [ { "jobname" : "r", "groupid" : 0, "error" : 0,
    "read" : { "io_bytes" : 118345728, "bw_bytes" : 39396047, "iops" : 9618.176, "runtime" : 3004,
      "total_ios" : 28893,
      "clat_ns" : { "min" : 65320, "max" : 17270815, "mean" : 3323567.3, "stddev" : 3169600.2, "N" : 28893,
        "percentile" : { "1.000000" : 477184, "50.000000" : 1482752, "99.000000" : 12255232, "100.000000": 5 } },
      "lat_ns" : { "min" : 72209, "max" : 17272359, "mean" : 3325219.2, "stddev" : 3169483.4, "N" : 28893 } },
    "write" : { "io_bytes" : 0, "bw_bytes" : 0, "iops" : 0.0, "runtime" : 0, "total_ios" : 0,
      "clat_ns" : { "min" : 0, "max" : 0, "mean" : 0.0, "stddev" : 0.0, "N" : 0 },
      "lat_ns" : { "min" : 0, "max" : 0, "mean" : 0.0, "stddev" : 0.0, "N" : 0 } },
    "usr_cpu" : 1.26, "sys_cpu" : 2.5 } ]
}
fio: a note after it
"#;

    #[test]
    fn json_among_notes_is_read() {
        let r = parse(OUTPUT.as_bytes()).unwrap();
        assert_eq!(r.version, "fio-3.33");
        let j = r.job("r").unwrap();
        assert_eq!((j.read.bytes, j.read.ops, j.write.ops), (118345728, 28893, 0));
        assert!((j.read.mb_per_s() - 39.396047).abs() < 1e-9);
        assert!((j.read.mean_us() - 3325.2192).abs() < 1e-6);
        assert_eq!(j.read.percentile_us(99.0), Some(12255.232));
        assert_eq!(j.read.percentile_us(98.0), None);
        let order: Vec<f64> = j.read.percentiles_us().iter().map(|p| p.0).collect();
        assert_eq!(order, [1.0, 50.0, 99.0, 100.0]);
        assert_eq!(r.job("w").unwrap_err().to_string(), "fio reports no job w");
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        assert!(parse(b"").is_err());
        assert!(parse(b"fio: pid=0, err=2/file:x").is_err());
        assert!(parse(b"{ \"jobs\" : [ { \"jobname\"").is_err());
    }

    #[test]
    fn a_job_file_is_written() {
        let s = Spec::new()
            .set("direct", 1)
            .set("time_based", "")
            .job("a", [("rw", "randread".to_string())]);
        assert_eq!(s.text(), "[global]\ndirect=1\ntime_based\n[a]\nrw=randread\n");
    }

    #[test]
    fn fio_runs() {
        let dir = tempfile::tempdir().unwrap();
        let s = Spec::new()
            .set("filename", dir.path().join("f").display())
            .set("size", "1m")
            .set("bs", "64k")
            .job("w", [("rw", "write".to_string())]);
        let r = s.run().unwrap();
        assert_eq!((r.job("w").unwrap().write.bytes, r.job("w").unwrap().write.ops), (1 << 20, 16));
        let e = s.set("rw", "sideways").run().unwrap_err().to_string();
        assert!(e.contains("sideways"), "{e}");
    }
}
