//! Whether what the source saw is seen here.

use super::view::{Params, View};
use crate::spec::{Experiment, Shape, Value, split_measure};
use bench_core::results::Results;
use bench_core::stats;
use bench_core::table::number;
use std::collections::BTreeMap;

/// A relation, looked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// In words.
    pub says: String,
    /// Here: the ratio, with its interval.
    pub here: String,
    /// What was wanted.
    pub wanted: String,
    /// The published ratio.
    pub published: String,
    /// Whether it is so; `None` if it was not measured.
    pub holds: Option<bool>,
}

impl Seen {
    /// In a word.
    pub fn word(&self) -> &'static str {
        match self.holds {
            Some(true) => "seen",
            Some(false) => "not seen",
            None => "not measured",
        }
    }
}

/// All of an experiment.
pub fn all(e: &Experiment, results: &Results) -> Vec<Seen> {
    e.shapes.iter().map(|s| one(e, results, s)).collect()
}

fn one(e: &Experiment, results: &Results, s: &Shape) -> Seen {
    let wanted = match (s.at_least, s.at_most) {
        (Some(a), Some(b)) => format!("{} to {}", number(a), number(b)),
        (Some(a), None) => format!("at least {}", number(a)),
        (None, Some(b)) => format!("at most {}", number(b)),
        (None, None) => String::new(),
    };
    let found = ratio(e, results, s);
    let holds = found.as_ref().map(|f| {
        s.at_least.is_none_or(|a| f.median >= a) && s.at_most.is_none_or(|b| f.median <= b)
    });
    Seen {
        says: s.says.clone(),
        here: match &found {
            None => "-".into(),
            Some(r) if r.median.is_infinite() => "right side is 0".into(),
            Some(r) if r.n > 1 => {
                format!("{} ({}-{})", number(r.median), number(r.low), number(r.high))
            }
            Some(r) => number(r.median),
        },
        wanted,
        published: s.published.map_or(String::new(), number),
        holds,
    }
}

fn ratio(e: &Experiment, results: &Results, s: &Shape) -> Option<stats::Estimate> {
    let view = View::new(e, results, s.job.get_ref());
    let (lv, lm) = split_measure(s.left.get_ref())?;
    let (rv, rm) = split_measure(s.right.get_ref())?;
    let left = view.get(lv, &row(&view, &s.only)?, lm)?;
    let mut right_only = s.only.clone();
    right_only.extend(s.right_where.clone());
    let right = view.get(rv, &row(&view, &right_only)?, rm)?;
    let (a, b) = (stats::median(&left.values())?, stats::median(&right.values())?);
    if b == 0.0 {
        let r = if a > 0.0 { f64::INFINITY } else { 1.0 };
        return Some(stats::Estimate { median: r, low: r, high: r, n: 1 });
    }
    if s.right_where.is_empty() {
        left.ratio_to(right)
    } else {
        stats::unpaired_ratio(&left.values(), &right.values())
    }
}

/// The row with these parameters; those that are not named may be anything if there is only one.
fn row(view: &View<'_>, only: &BTreeMap<String, Value>) -> Option<Params> {
    let mut fit = view.rows.iter().filter(|r| only.iter().all(|(n, v)| r.get(n) == Some(&v.0)));
    let first = fit.next()?;
    fit.next().is_none().then(|| first.clone())
}
