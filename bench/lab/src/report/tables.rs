//! The tables of an experiment.

use super::view::{Params, View};
use crate::measures;
use crate::spec::{Experiment, Published};
use bench_core::results::Results;
use bench_core::stats::{self, Verdict};
use bench_core::table::{self, Table, number};

/// A job's table, with ratios to the baseline, and what noise there is.
pub struct JobTable {
    /// The job.
    pub job: String,
    /// What it shows.
    pub table: Table,
    /// What of it noise swallows.
    pub warnings: Vec<String>,
}

/// A spread beyond this is worth a word.
const NOISY: f64 = 0.2;

/// One for each job that has results.
pub fn jobs(e: &Experiment, results: &Results) -> Vec<JobTable> {
    e.jobs
        .iter()
        .filter_map(|j| {
            let view = View::new(e, results, j.name.get_ref());
            let mut show: Vec<String> = j.show.iter().map(|s| s.get_ref().clone()).collect();
            if show.is_empty() {
                let all = view.measures();
                show = ["read", "write"]
                    .map(String::from)
                    .into_iter()
                    .filter(|m| all.contains(m))
                    .collect();
            }
            (!view.rows.is_empty()).then(|| one(e, &view, &show))
        })
        .collect()
}

fn one(e: &Experiment, view: &View<'_>, show: &[String]) -> JobTable {
    if view.names.is_empty() {
        return by_variant(e, view, show);
    }
    let variants: Vec<&str> = e.variants.iter().map(|v| v.name.get_ref().as_str()).collect();
    let base = e.baseline();
    let mut head: Vec<String> = view.names.clone();
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for v in &variants {
        for m in show.iter().filter(|m| view.has(v, m)) {
            columns.push((v, m));
            head.push(format!("{v}: {}", measures::head(m)));
        }
    }
    let compared: Vec<(&str, &str)> = columns
        .iter()
        .filter(|(v, m)| *v != base && show.first().is_some_and(|f| f == m) && view.has(base, m))
        .copied()
        .collect();
    head.extend(compared.iter().map(|(v, m)| format!("{v} / {base}: {}", m.replace('_', " "))));
    let mut t = Table::new(head);
    t.left = view.names.len();
    let (mut noise, mut pairs, mut wide) = (0, 0, Vec::new());
    for row in &view.rows {
        let mut cells: Vec<String> =
            view.names.iter().map(|n| row.get(n).cloned().unwrap_or_default()).collect();
        for (v, m) in &columns {
            let estimate = view.get(v, row, m).and_then(|m| m.estimate());
            cells.push(estimate.map_or("-".into(), |x| {
                if x.spread() > NOISY && x.n > 1 {
                    wide.push(format!("{v} {} ±{:.0} %", row_name(row), x.spread() * 100.0));
                }
                if x.n > 1 { table::with_spread(&x) } else { number(x.median) }
            }));
        }
        for (v, m) in &compared {
            let ratio =
                view.get(v, row, m).zip(view.get(base, row, m)).and_then(|(a, b)| a.ratio_to(b));
            if let Some(r) = &ratio {
                pairs += 1;
                noise += usize::from(matches!(stats::verdict(r), Verdict::Noise | Verdict::TooFew));
            }
            cells.push(ratio.map_or("-".into(), |r| table::ratio(&r)));
        }
        t.row(cells);
    }
    let mut warnings = Vec::new();
    if noise > 0 {
        warnings.push(format!(
            "{}: in {noise} of {pairs} comparisons the difference is not beyond the noise (the interval of the \
             ratio holds 1, or there were fewer than {} pairs)",
            view.job,
            stats::MIN_PAIRS
        ));
    }
    if !wide.is_empty() {
        let shown: Vec<&str> = wide.iter().take(4).map(String::as_str).collect();
        let more =
            if wide.len() > 4 { format!(", and {} more", wide.len() - 4) } else { String::new() };
        warnings.push(format!("{}: wide intervals: {}{more}", view.job, shown.join("; ")));
    }
    JobTable { job: view.job.to_string(), table: t, warnings }
}

/// Of a job without parameters: a row for each variant.
fn by_variant(e: &Experiment, view: &View<'_>, show: &[String]) -> JobTable {
    let base = e.baseline();
    let row = Params::new();
    let mut head = vec!["variant".to_string()];
    head.extend(show.iter().map(|m| measures::head(m)));
    let first = show.first().cloned().unwrap_or_default();
    head.push(format!("{} / that of {base}", first.replace('_', " ")));
    let mut t = Table::new(head);
    let mut warnings = Vec::new();
    for v in e.variants.iter().map(|v| v.name.get_ref().as_str()) {
        let estimate = |m: &str| view.get(v, &row, m).and_then(|m| m.estimate());
        if show.iter().all(|m| estimate(m).is_none()) {
            continue;
        }
        let cell = |m: &String| {
            estimate(m).map_or("-".into(), |x| {
                if x.n > 1 { table::with_spread(&x) } else { number(x.median) }
            })
        };
        let mut cells = vec![v.to_string()];
        cells.extend(show.iter().map(cell));
        let ratio = view
            .get(v, &row, &first)
            .zip(view.get(base, &row, &first))
            .and_then(|(a, b)| a.ratio_to(b));
        if let Some(r) = ratio.as_ref().filter(|_| v != base) {
            let job = view.job;
            match stats::verdict(r) {
                Verdict::Noise => {
                    warnings.push(format!("{job}: {v} and {base} differ by no more than the noise"))
                }
                Verdict::TooFew => warnings.push(format!(
                    "{job}: {v} and {base}: fewer than {} pairs say nothing certain",
                    stats::MIN_PAIRS
                )),
                _ => {}
            }
        }
        cells.push(match ratio {
            Some(r) if v != base => table::ratio(&r),
            _ => String::new(),
        });
        t.row(cells);
    }
    JobTable { job: view.job.to_string(), table: t, warnings }
}

/// Parameters in a few words.
pub fn row_name(row: &Params) -> String {
    row.iter().map(|(n, v)| format!("{n} {v}")).collect::<Vec<_>>().join(", ")
}

/// What was published, with what was measured here beside each number that has its like.
pub fn published(e: &Experiment, results: &Results, p: &Published) -> Table {
    let view = p.job.as_ref().map(|j| View::new(e, results, j.get_ref()));
    let ours = |column: &str, row: &Params| -> Option<String> {
        let (variant, measure) = crate::spec::split_measure(column)?;
        let x = view.as_ref()?.get(variant, row, measure)?.estimate()?;
        Some(number(x.median))
    };
    let is_param = |c: &str| view.as_ref().is_some_and(|v| v.names.iter().any(|n| n == c));
    let has_ours: Vec<bool> = p
        .columns
        .iter()
        .map(|c| p.rows.iter().any(|r| ours(c, &params(p, r, &is_param)).is_some()))
        .collect();
    let mut head = Vec::new();
    for (c, has) in p.columns.iter().zip(&has_ours) {
        head.push(if *has {
            format!("{}, published", c.replace('.', ": ").replace('_', " "))
        } else {
            c.replace('.', ": ").replace('_', " ")
        });
        if *has {
            head.push("here".into());
        }
    }
    let mut t = Table::new(head);
    t.left = p.columns.iter().take_while(|c| is_param(c)).count();
    for row in &p.rows {
        let key = params(p, row, &is_param);
        let mut cells = Vec::new();
        for ((c, v), has) in p.columns.iter().zip(row).zip(&has_ours) {
            cells.push(v.0.clone());
            if *has {
                cells.push(ours(c, &key).unwrap_or_default());
            }
        }
        t.row(cells);
    }
    t
}

fn params(p: &Published, row: &[crate::spec::Value], is_param: &dyn Fn(&str) -> bool) -> Params {
    let all = p.columns.iter().zip(row).filter(|(c, _)| is_param(c));
    all.map(|(c, v)| (c.clone(), v.0.clone())).collect()
}
