//! What was measured, as a table and as a page: each figure of uext4 beside its ratio to each peer.

use crate::peer::Kind;
use bench_core::chart::{Axis, Bars};
use bench_core::machine;
use bench_core::page::Page;
use bench_core::results::{Better, Measure, Results};
use bench_core::table::{Table, number, with_spread};
use std::collections::BTreeSet;

/// Workloads in the order in which they were first measured.
fn workloads(r: &Results) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let all = r.points.iter().filter_map(|p| p.params.get("workload").cloned());
    let mut v: Vec<String> = all.filter(|w| seen.insert(w.clone())).collect();
    v.sort_by_key(|w| rank(w));
    v
}

/// Like beside like.
fn rank(w: &str) -> usize {
    const ORDER: [&str; 16] = [
        "write 1m",
        "rewrite",
        "read 1m",
        "write 4k",
        "reread",
        "randread",
        "randwrite 4k direct",
        "direct readers",
        "randwrite 4k + fsync",
        "append",
        "sqlite",
        "create",
        "stat",
        "rename",
        "unlink",
        "mount",
    ];
    ORDER.iter().position(|o| w.starts_with(o)).unwrap_or(ORDER.len())
}

fn find<'a>(r: &'a Results, peer: &str, workload: &str, measure: &str) -> Option<&'a Measure> {
    let is = |p: &&bench_core::results::Point| {
        p.variant == peer && p.params.get("workload").is_some_and(|w| w == workload)
    };
    r.points.iter().find(is)?.measures.get(measure)
}

/// How many times as fast as the peer, with the interval.
fn ratio_to(r: &Results, workload: &str, measure: &str, peer: Kind) -> String {
    let ours = find(r, Kind::Uext4.name(), workload, measure);
    let theirs = find(r, peer.name(), workload, measure);
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return String::new() };
    // Above 1 is better for uext4, whichever way the figure runs.
    let ratio = match ours.better {
        Better::Lower => theirs.ratio_to(ours),
        _ => ours.ratio_to(theirs),
    };
    ratio.map_or(String::new(), |e| {
        format!("{} ({}-{})", number(e.median), number(e.low), number(e.high))
    })
}

/// The figures: uext4's, its CPU time, and its speed as a multiple of each peer's.
pub fn table(r: &Results) -> Table {
    let peers: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|k| *k != Kind::Uext4 && r.variants.iter().any(|v| v.name == k.name()))
        .collect();
    let mut head = vec!["workload".to_string(), "uext4".into()];
    head.extend(peers.iter().map(|p| format!("x {}", p.name())));
    head.extend(["daemon us/op".into(), "client us/op".into()]);
    let mut t = Table::new(head);
    for w in workloads(r) {
        let Some(ours) = find(r, Kind::Uext4.name(), &w, "speed") else { continue };
        let Some(e) = ours.estimate() else { continue };
        let mut row = vec![w.clone(), format!("{} {}", with_spread(&e), ours.unit)];
        row.extend(peers.iter().map(|p| ratio_to(r, &w, "speed", *p)));
        for cpu in ["daemon CPU", "client CPU"] {
            let us = find(r, Kind::Uext4.name(), &w, cpu).and_then(Measure::estimate);
            row.push(us.map_or(String::new(), |e| number(e.median)));
        }
        t.row(row);
    }
    t
}

/// Every median of every peer.
pub fn medians(r: &Results) -> Table {
    let names: Vec<&str> = r.variants.iter().map(|v| v.name.as_str()).collect();
    let mut t = Table::new([vec!["workload", "measure", "unit"], names.clone()].concat());
    t.left = 3;
    for w in workloads(r) {
        let mut measures: Vec<(String, String)> = Vec::new();
        let of = r.points.iter().filter(|p| p.params.get("workload") == Some(&w));
        for (name, m) in of.flat_map(|p| &p.measures) {
            let pair = (name.clone(), m.unit.clone());
            if !measures.contains(&pair) {
                measures.push(pair);
            }
        }
        measures.sort_by_key(|m| m.0 != "speed");
        for (name, unit) in measures {
            let mut row = vec![w.clone(), name.clone(), unit];
            row.extend(names.iter().map(|p| {
                let e = find(r, p, &w, &name).and_then(Measure::estimate);
                e.map_or(String::new(), |e| with_spread(&e))
            }));
            t.row(row);
        }
    }
    t
}

/// The page.
pub fn page(r: &Results) -> Page {
    let sub = format!("{}, {}; {:.0} s", machine::date(r.started), r.machine.line(), r.seconds);
    let mut p = Page::new(&r.title, &sub);
    for w in r.machine.warnings().iter().chain(&r.notes) {
        p.note(w);
    }
    p.text(
        "Each peer does the same thing one right after the other, in random order, again in each \
         repetition. A ratio is of the two values of one repetition; shown are the median of the \
         ratios and its 95 % interval. Above 1 uext4 is the faster one.",
    );
    for v in &r.variants {
        p.small(&format!("{}: {}.", v.name, v.detail));
    }
    p.section("ratios", "uext4 beside its peers");
    p.table(&table(r), "");
    p.section("charts", "Ratios to the peers");
    for (group, starts) in [
        ("Streams and small buffered requests", &["write", "rewrite", "read", "reread"][..]),
        ("Direct and synchronous requests", &["rand", "direct", "append", "sqlite"][..]),
        ("Names", &["create", "stat", "rename", "unlink"][..]),
        ("Trees", &["untar", "find", "du", "git", "rm"][..]),
    ] {
        let all = workloads(r);
        let of: Vec<String> =
            all.into_iter().filter(|w| starts.iter().any(|s| w.starts_with(s))).collect();
        let bars = |peer: Kind| {
            of.iter()
                .map(|w| {
                    let ours = find(r, Kind::Uext4.name(), w, "speed")?;
                    let theirs = find(r, peer.name(), w, "speed")?;
                    let e = match ours.better {
                        Better::Lower => theirs.ratio_to(ours),
                        _ => ours.ratio_to(theirs),
                    }?;
                    Some((e.median, e.low, e.high))
                })
                .collect::<Vec<_>>()
        };
        let peers = [Kind::Empty, Kind::Kernel, Kind::Bare];
        let series = peers.iter().enumerate().map(|(i, k)| (k.name().to_string(), i, bars(*k)));
        let series: Vec<_> = series.filter(|s| s.2.iter().any(Option::is_some)).collect();
        if series.is_empty() {
            continue;
        }
        let chart = Bars {
            title: group.into(),
            y: Axis::linear("speed of uext4 as a multiple of the peer's"),
            groups: of.clone(),
            series,
        };
        p.figure(&chart.draw(), "");
    }
    p.section("all", "All figures");
    p.table(&medians(r), "Medians, with half the width of their 95 % interval.");
    p
}
