//! What is made of results: text for the terminal, a page, pictures.

mod charts;
mod disk;
#[cfg(test)]
mod page_tests;
mod shapes;
mod tables;
mod view;

use crate::spec::Experiment;
use bench_core::machine;
use bench_core::page::Page;
use bench_core::results::Results;
use bench_core::svg::Svg;
use bench_core::table::{Table, number};
use bench_core::{Context, Result};
use serde_json::Value as Json;
use std::fs;
use std::path::Path;

/// As text.
pub fn text(e: &Experiment, r: &Results) -> String {
    let mut out = format!("\n{}: {}\n", e.name.get_ref(), e.title);
    for t in tables::jobs(e, r) {
        out += &format!("\n{}\n{}\n", t.job, t.table.text());
        for w in &t.warnings {
            out += &format!("! {w}\n");
        }
    }
    let seen = shapes::all(e, r);
    if !seen.is_empty() {
        out += &format!("\nwhat has to be seen\n{}\n", shape_table(&seen).text());
    }
    for n in &r.notes {
        out += &format!("! {n}\n");
    }
    out
}

/// How many of the relations were seen: seen, and all that were measured.
pub fn score(e: &Experiment, r: &Results) -> (usize, usize) {
    let seen = shapes::all(e, r);
    let of = |what: Option<bool>| seen.iter().filter(|s| s.holds == what).count();
    (of(Some(true)), of(Some(true)) + of(Some(false)))
}

fn shape_table(seen: &[shapes::Seen]) -> Table {
    let mut t = Table::new(["what the source saw", "", "ratio here", "wanted", "published"]);
    t.left = 2;
    for s in seen {
        t.row([s.says.as_str(), s.word(), &s.here, &s.wanted, &s.published]);
    }
    t
}

/// Everything about one experiment, as a page of its own.
pub fn page(e: &Experiment, r: &Results) -> Page {
    let sub = format!(
        "{}, {} scale, {}, {:.0} s{}. {}",
        e.name.get_ref(),
        r.scale,
        machine::date(r.started),
        r.seconds,
        if r.complete { "" } else { ", interrupted" },
        r.machine.line()
    );
    let mut p = Page::new(&e.title, &sub);
    p.text(&e.ask);
    if !e.source.is_empty() {
        p.small(&format!("Source: {}", e.source));
    }
    for n in &r.notes {
        p.note(n);
    }
    let seen = shapes::all(e, r);
    if !seen.is_empty() {
        let (yes, all) = score(e, r);
        p.heading("What has to be seen");
        p.text(&e.look_for);
        p.found(&format!("{yes} of {all} relations of the source are seen here."));
        p.table(
            &shape_table(&seen),
            "Each is a ratio of two medians (with its 95 % bootstrap interval over pairs of repetitions). \
             Absolute figures depend on the machine; these should not.",
        );
    } else {
        p.text(&e.look_for);
    }
    if !e.differs.is_empty() {
        p.heading("Where it differs from the source, and why");
        p.text(&e.differs);
    }
    for c in charts::all(e, r) {
        p.figure(&c.svg, "");
    }
    for (title, svg) in disks(e, r) {
        p.figure(
            &svg,
            if title.contains("before") {
                ""
            } else {
                "Block groups as rows, files in colours; grey is free (or metadata)."
            },
        );
    }
    if let Some(t) = free_table(e, r) {
        p.table(&t, "Free space after ageing: buddies of each size.");
    }
    p.heading("Measured here");
    for t in tables::jobs(e, r) {
        p.table(&t.table, &format!("{}: medians with half the width of their interval; ratios of pairs with their interval", t.job));
        for w in &t.warnings {
            p.note(w);
        }
    }
    if !e.published.is_empty() {
        p.heading("Published, and here");
        for t in &e.published {
            p.table(&tables::published(e, r, t), &t.title);
        }
    }
    p.heading("Variants");
    let mut t = Table::new(["variant", "what it is"]);
    t.left = 2;
    for v in &r.variants {
        t.row([v.name.as_str(), v.detail.as_str()]);
    }
    p.table(&t, "");
    p.folded("Everything that was counted", &counted(r).text());
    p
}

/// All medians.
fn counted(r: &Results) -> Table {
    let mut t = Table::new(["variant", "where", "measure", "median", "n"]);
    t.left = 3;
    for p in &r.points {
        for (name, m) in &p.measures {
            let median = m.estimate().map_or("-".into(), |x| number(x.median));
            let place = p.params.values().cloned().collect::<Vec<_>>().join(" ");
            t.row([p.variant.clone(), place, name.clone(), median, m.samples.len().to_string()]);
        }
    }
    t
}

fn disks(e: &Experiment, r: &Results) -> Vec<(String, Svg)> {
    let mut out = Vec::new();
    for v in &e.variants {
        let Some(both) = r.extra.get(&format!("disk:{}", v.name.get_ref())) else { continue };
        for when in ["before", "after"] {
            if let Some(d) =
                both.get(when).and_then(|d| serde_json::from_value::<disk::Disk>(d.clone()).ok())
            {
                let title = format!("{}, {when} ageing", v.name.get_ref());
                out.push((title.clone(), disk::draw(&title, &d)));
            }
        }
    }
    out
}

fn free_table(e: &Experiment, r: &Results) -> Option<Table> {
    let of = |name: &str| -> Option<(u64, Vec<u64>)> {
        let v = r.extra.get(&format!("free:{name}"))?;
        let runs = v.get("runs_by_order")?.as_array()?.iter().filter_map(Json::as_u64).collect();
        Some((v.get("block")?.as_u64()?, runs))
    };
    let all: Vec<(String, u64, Vec<u64>)> = e
        .variants
        .iter()
        .filter_map(|v| of(v.name.get_ref()).map(|(b, r)| (v.name.get_ref().clone(), b, r)))
        .collect();
    let (_, block, _) = all.first()?;
    let orders = all.iter().map(|a| a.2.len()).max()?;
    let head = std::iter::once("free run of".to_string()).chain(all.iter().map(|a| a.0.clone()));
    let mut t = Table::new(head);
    for order in 0..orders {
        let size = format!("{} KiB", (block << order) / 1024);
        let counts = all.iter().map(|a| a.2.get(order).copied().unwrap_or(0).to_string());
        t.row(std::iter::once(size).chain(counts));
    }
    Some(t)
}

/// Writes results, page and pictures of one experiment into a directory.
pub fn write(e: &Experiment, r: &Results, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    r.save(&dir.join("results.json"))?;
    let put = |name: String, text: String| {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())
    };
    put("report.html".into(), page(e, r).html())?;
    for c in charts::all(e, r) {
        put(format!("{}.svg", c.name), c.svg.file())?;
    }
    for (title, svg) in disks(e, r) {
        put(format!("disk-{}.svg", title.replace([',', ' '], "-").replace("--", "-")), svg.file())?;
    }
    Ok(())
}

/// One page for several experiments.
pub fn together(all: &[(Experiment, Results)]) -> Page {
    let first = all.first().map_or_else(String::new, |(_, r)| {
        format!("{} scale, {}. {}", r.scale, machine::date(r.started), r.machine.line())
    });
    let mut p = Page::new("uext4 lab", &first);
    p.text(
        "uext4 is ext4 in user space. Its lab repeats, over live mounts, measurements that people argued about on the \
         mailing lists of Linux. The variants of each experiment differ in one option only and are measured in turn, \
         in random order; a ratio is of measurements made next to each other.",
    );
    let links: Vec<(String, String)> =
        all.iter().map(|(e, _)| (e.name.get_ref().clone(), e.name.get_ref().clone())).collect();
    p.contents(&links);
    let mut t = Table::new(["experiment", "relations of the source seen here", "seconds"]);
    for (e, r) in all {
        let (yes, of) = score(e, r);
        t.row([e.title.clone(), format!("{yes} of {of}"), format!("{:.0}", r.seconds)]);
    }
    p.table(&t, "");
    for (e, r) in all {
        p.section(e.name.get_ref(), &e.title);
        p.append(&page(e, r));
    }
    p
}
