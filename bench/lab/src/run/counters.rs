//! What uext4 counts and the machine spends during a measurement.

use super::Live;
use crate::measures::Measured;
use bench_core::procs;
use std::collections::BTreeMap;
use std::time::Instant;

/// Policies whose passes are counted; what somebody waited for is not theirs.
const POLICIES: [&str; 4] = ["none", "dirty_pages", "fixed8", "extent"];

/// The state before.
pub struct Before {
    stats: BTreeMap<String, f64>,
    daemon: f64,
    busy: f64,
    total: f64,
    at: Instant,
}

/// `NAME VALUE` lines as numbers; what is no number is left out.
pub fn parse(text: &str) -> BTreeMap<String, f64> {
    text.lines()
        .filter_map(|l| {
            let (name, value) = l.split_once(' ')?;
            Some((name.to_string(), value.trim().parse().ok()?))
        })
        .collect()
}

fn stats(live: &Live) -> BTreeMap<String, f64> {
    let mut sum = BTreeMap::new();
    if live.has_counters() {
        for m in live.mounts() {
            for (name, v) in parse(&m.ctl(&["stats"]).unwrap_or_default()) {
                *sum.entry(name).or_insert(0.0) += v;
            }
        }
    }
    sum
}

impl Before {
    /// Now.
    pub fn now(live: &Live) -> Before {
        for m in live.mounts() {
            if let Some(pid) = m.daemon() {
                let _ = procs::forget_peak(pid);
            }
        }
        let stats = stats(live);
        let (busy, total) = procs::machine_cpu().unwrap_or_default();
        Before {
            stats,
            daemon: live.mounts().iter().map(|m| m.daemon_cpu().seconds()).sum(),
            busy: busy.as_secs_f64(),
            total: total.as_secs_f64(),
            at: Instant::now(),
        }
    }

    /// What has happened since, over `ops` operations if they were counted.
    pub fn since(&self, live: &Live, ops: Option<u64>) -> Vec<Measured> {
        let wall = self.at.elapsed().as_secs_f64();
        let daemon: f64 = live.mounts().iter().map(|m| m.daemon_cpu().seconds()).sum();
        let daemon = (daemon - self.daemon).max(0.0);
        let (busy, total) = procs::machine_cpu().unwrap_or_default();
        let (busy, total) = (busy.as_secs_f64() - self.busy, total.as_secs_f64() - self.total);
        let now = stats(live);
        let mut all = Vec::new();
        let mut put = |name: &str, value: f64| all.push(Measured::new(name, value));
        if let Some(ops) = ops.filter(|n| *n > 0)
            && live.mounts().iter().any(|m| m.daemon().is_some())
        {
            put("daemon_us_per_op", daemon * 1e6 / ops as f64);
        }
        if live.mounts().iter().any(|m| m.daemon().is_some()) {
            put("daemon_cpu_percent", daemon / wall * 100.0);
            let rss: u64 =
                live.mounts().iter().map(bench_core::target::Mount::daemon_peak_rss).sum();
            put("daemon_rss_mib", rss as f64 / f64::from(1 << 20));
        }
        if total > 0.0 {
            put("busy_percent", busy / total * 100.0);
        }
        let delta = |name: &str| {
            now.get(name).unwrap_or(&0.0) - self.stats.get(name).copied().unwrap_or(0.0)
        };
        let of = |what: &str| -> f64 {
            POLICIES.iter().map(|p| delta(&format!("writeback_{p}_{what}"))).sum()
        };
        let all_of = |what: &str| of(what) + delta(&format!("writeback_waited_for_{what}"));
        let passes = of("passes");
        if passes > 0.0 {
            put("passes", passes);
            put("pages_asked_per_pass", of("asked") / passes);
            put("pages_per_pass", of("written") / passes);
            put("pages_counted_per_page", of("counted") / of("written").max(1.0));
        }
        if all_of("requests") > 0.0 {
            put("allocations", all_of("allocations"));
            put("new_extents", all_of("extents"));
            put("kib_per_request", all_of("bytes") / 1024.0 / all_of("requests"));
        }
        if !now.is_empty() {
            put("device_reads", delta("device_reads"));
            put("device_writes", delta("device_writes"));
            put("device_write_mib", delta("device_write_bytes") / f64::from(1 << 20));
            if delta("device_writes") > 0.0 {
                put(
                    "device_kib_per_write",
                    delta("device_write_bytes") / 1024.0 / delta("device_writes"),
                );
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn counters_are_lines() {
        let all = parse("a 1\nsizes 4k:1 8k:2\nb 2.5\nc\n");
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [("a".into(), 1.0), ("b".into(), 2.5)]);
    }
}
