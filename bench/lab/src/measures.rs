//! What can be measured: names, units, which way is better, and how a table calls it.

use bench_core::results::Better;

/// A measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// As files call it.
    pub name: String,
    /// As `MB/s`.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// The value.
    pub value: f64,
}

impl Measured {
    /// A value.
    pub fn new(name: impl Into<String>, value: f64) -> Measured {
        let name = name.into();
        let (unit, better) = kind(&name);
        Measured { name, unit, better, value }
    }
}

/// Of each direction of fio's.
const OF_FIO: [&str; 8] = [
    "read",
    "write",
    "read_iops",
    "write_iops",
    "read_mean_us",
    "write_mean_us",
    "read_p99_us",
    "write_p99_us",
];

/// Beside every measurement.
const COMMON: [&str; 17] = [
    "daemon_us_per_op",
    "client_us_per_op",
    "busy_percent",
    "daemon_rss_mib",
    "passes",
    "pages_asked_per_pass",
    "pages_per_pass",
    "pages_counted_per_page",
    "kib_per_request",
    "allocations",
    "new_extents",
    "device_reads",
    "device_writes",
    "device_write_mib",
    "device_kib_per_write",
    "seconds",
    "daemon_cpu_percent",
];

/// Whether fio's output gives it; of a job with parts also as `PART_read`.
pub fn is_of_fio(name: &str, parts: &[&str]) -> bool {
    let own = |n: &str| OF_FIO.contains(&n);
    own(name)
        || parts
            .iter()
            .any(|p| name.strip_prefix(p).and_then(|n| n.strip_prefix('_')).is_some_and(own))
}

/// Whether it stands beside every measurement.
pub fn is_common(name: &str) -> bool {
    COMMON.contains(&name)
}

fn kind(name: &str) -> (&'static str, Better) {
    let ends = |s: &str| name.ends_with(s);
    if ends("_iops") {
        ("1/s", Better::Higher)
    } else if ends("_us_per_op") {
        ("us/op", Better::Lower)
    } else if ends("_us") {
        ("us", Better::Lower)
    } else if ends("_mib") {
        ("MiB", Better::Neither)
    } else if name.contains("kib_per") {
        ("KiB", Better::Neither)
    } else if ends("percent") {
        ("%", Better::Neither)
    } else if ends("seconds") {
        ("s", Better::Lower)
    } else if ends("read") || ends("write") || ends("readall") {
        ("MB/s", Better::Higher)
    } else if [
        "fragments_per_file",
        "files_in_pieces",
        "lost",
        "empty",
        "zeros",
        "mixed",
        "new_extents",
    ]
    .contains(&name)
    {
        ("", Better::Lower)
    } else {
        ("", Better::Neither)
    }
}

/// As a table's head.
pub fn head(name: &str) -> String {
    let (unit, _) = kind(name);
    let mut words = name.replace('_', " ");
    for (from, to) in [
        (" us per op", " CPU"),
        (" p99 us", " p99"),
        (" mean us", " mean"),
        (" mib", ""),
        ("kib per", "size of a"),
        ("rss", "memory"),
        (" percent", ""),
        (" iops", " operations"),
        ("size of a write", "size of a write"),
    ] {
        words = words.replace(from, to);
    }
    if unit.is_empty() { words } else { format!("{words}, {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_are() {
        assert!(is_of_fio("read", &[]) && is_of_fio("readers_read_p99_us", &["readers"]));
        assert!(!is_of_fio("readers_read", &["writers"]) && !is_of_fio("frobs", &[]));
        assert_eq!(Measured::new("read_p99_us", 1.0).unit, "us");
        assert_eq!(Measured::new("readers_read", 1.0).better, Better::Higher);
        assert_eq!(head("daemon_us_per_op"), "daemon CPU, us/op");
        assert_eq!(head("write"), "write, MB/s");
    }
}
