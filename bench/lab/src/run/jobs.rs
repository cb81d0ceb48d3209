//! A job of an experiment, made into a job for fio.

use crate::measures::Measured;
use crate::spec::{Job, Value};
use bench_core::fio::{Report, Spec};
use std::collections::BTreeMap;
use toml::Spanned;

/// Puts values in the place of `{names}`.
pub fn filled(text: &str, values: &BTreeMap<String, String>) -> String {
    let mut out = text.to_string();
    for (name, v) in values {
        out = out.replace(&format!("{{{name}}}"), v);
    }
    out
}

/// All options, filled.
pub fn options(
    all: &BTreeMap<String, Spanned<Value>>,
    values: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    all.iter().map(|(n, v)| (n.clone(), filled(&v.get_ref().0, values))).collect()
}

/// Whether a pattern of fio's reads, and whether it writes.
fn directions(rw: &str) -> (bool, bool) {
    let kind = rw.split(':').next().unwrap_or_default();
    let both = matches!(kind, "rw" | "readwrite" | "randrw");
    (both || matches!(kind, "read" | "randread"), both || kind.ends_with("write"))
}

/// A job with its options, and which way each of its parts goes.
pub struct FioJob {
    spec: Spec,
    parts: Vec<(String, bool, bool)>,
}

impl FioJob {
    /// With the values for this measurement.
    pub fn new(job: &Job, values: &BTreeMap<String, String>, rep: usize) -> FioJob {
        let global = options(&job.fio, values);
        let mut spec = Spec::new();
        // What every job has unless it says otherwise. The same random numbers for every variant.
        let seed = (rep + 1).to_string();
        let defaults = [
            ("group_reporting", ""),
            ("thread", "1"),
            ("randseed", &seed),
            ("fallocate", "none"),
            ("norandommap", "1"),
        ];
        for (name, v) in defaults {
            if !global.contains_key(name) {
                spec = spec.set(name, v);
            }
        }
        // Options of an engine come after the engine.
        if let Some(engine) = global.get("ioengine") {
            spec = spec.set("ioengine", engine);
        }
        for (name, v) in global.iter().filter(|(n, _)| *n != "ioengine") {
            spec = spec.set(name, v);
        }
        let rw = global.get("rw").map_or("read", String::as_str);
        let mut parts = Vec::new();
        if job.parts.is_empty() {
            spec = spec.job(job.name.get_ref(), []);
            let (r, w) = directions(rw);
            parts.push((job.name.get_ref().clone(), r, w));
        }
        for (name, own) in &job.parts {
            let own = options(own, values);
            let (r, w) = directions(own.get("rw").map_or(rw, String::as_str));
            parts.push((name.clone(), r, w));
            let own = own.iter().map(|(n, v)| (n.as_str(), v.clone()));
            spec = spec.job(name, [("new_group", String::new())].into_iter().chain(own));
        }
        FioJob { spec, parts }
    }

    /// Runs it: what was measured, and how many operations it was.
    pub fn run(&self) -> bench_core::Result<(Vec<Measured>, u64)> {
        let report = self.spec.run()?;
        Ok((self.measured(&report)?, report.ops()))
    }

    fn measured(&self, report: &Report) -> bench_core::Result<Vec<Measured>> {
        let mut all = Vec::new();
        for reads in [true, false] {
            let way = if reads { "read" } else { "write" };
            let those: Vec<_> =
                self.parts.iter().filter(|p| if reads { p.1 } else { p.2 }).collect();
            let mut sum = (0.0, 0.0);
            for (name, ..) in &those {
                let job = report.job(name)?;
                let d = if reads { &job.read } else { &job.write };
                sum = (sum.0 + d.mb_per_s(), sum.1 + d.iops);
                let own = if self.parts.len() > 1 { format!("{name}_{way}") } else { way.into() };
                if self.parts.len() > 1 {
                    all.push(Measured::new(own.clone(), d.mb_per_s()));
                    all.push(Measured::new(format!("{own}_iops"), d.iops));
                }
                let mut latency = |own: &str| {
                    if d.ops > 0 {
                        all.push(Measured::new(format!("{own}_mean_us"), d.mean_us()));
                        if let Some(us) = d.percentile_us(99.0) {
                            all.push(Measured::new(format!("{own}_p99_us"), us));
                        }
                    }
                };
                latency(&own);
                if those.len() == 1 && own != way {
                    latency(way);
                }
            }
            if !those.is_empty() {
                all.push(Measured::new(way, sum.0));
                all.push(Measured::new(format!("{way}_iops"), sum.1));
            }
        }
        let cpu: f64 = report.jobs.iter().map(bench_core::fio::Job::cpu_seconds).sum();
        if report.ops() > 0 {
            all.push(Measured::new("client_us_per_op", cpu * 1e6 / report.ops() as f64));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_directions() {
        for (rw, want) in [
            ("read", (true, false)),
            ("randread:1024", (true, false)),
            ("write", (false, true)),
            ("randwrite", (false, true)),
            ("randrw", (true, true)),
            ("trimwrite", (false, true)),
        ] {
            assert_eq!(directions(rw), want, "{rw}");
        }
    }

    #[test]
    fn placeholders_are_filled() {
        let values = BTreeMap::from([("a".to_string(), "1".to_string())]);
        assert_eq!(filled("{a}{a} {b}", &values), "11 {b}");
    }
}
