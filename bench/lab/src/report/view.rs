//! Results by job: which parameters there are, in what order, and what was measured of each.

use crate::spec::{Experiment, value};
use bench_core::results::{Measure, Point, Results};
use std::collections::BTreeMap;

/// The parameters of a row, the job's name aside.
pub type Params = BTreeMap<String, String>;

/// The results of one job.
pub struct View<'a> {
    results: &'a Results,
    /// The job's name.
    pub job: &'a str,
    /// The names of the parameters, in the experiment's order.
    pub names: Vec<String>,
    /// Every set of parameters that was measured, in order.
    pub rows: Vec<Params>,
}

/// What a value sorts by: a number if it is one.
pub fn number(text: &str) -> Option<f64> {
    text.parse().ok().or_else(|| value::bytes(text).map(|n| n as f64))
}

impl<'a> View<'a> {
    /// Of a job.
    pub fn new(e: &Experiment, results: &'a Results, job: &'a str) -> View<'a> {
        let points =
            || results.points.iter().filter(|p| p.params.get("job").is_some_and(|j| j == job));
        let mut names: Vec<String> = e
            .job(job)
            .map(|j| j.params.iter().map(|p| p.get_ref().clone()).collect())
            .unwrap_or_default();
        let mut rows: Vec<Params> = Vec::new();
        for p in points() {
            let row: Params = p
                .params
                .iter()
                .filter(|(n, _)| *n != "job")
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect();
            for n in row.keys() {
                if !names.contains(n) {
                    names.push(n.clone());
                }
            }
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        let key = |r: &Params| -> Vec<(bool, f64, String)> {
            names
                .iter()
                .map(|n| {
                    let v = r.get(n).cloned().unwrap_or_default();
                    let as_number = number(&v);
                    (as_number.is_none(), as_number.unwrap_or(0.0), v)
                })
                .collect()
        };
        rows.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
        View { results, job, names, rows }
    }

    fn point(&self, variant: &str, row: &Params) -> Option<&'a Point> {
        self.results.points.iter().find(|p| {
            p.variant == variant
                && p.params.get("job").is_some_and(|j| j == self.job)
                && p.params.len() == row.len() + 1
                && row.iter().all(|(n, v)| p.params.get(n) == Some(v))
        })
    }

    /// What was measured of a variant in a row.
    pub fn get(&self, variant: &str, row: &Params, measure: &str) -> Option<&'a Measure> {
        self.point(variant, row)?.measures.get(measure)
    }

    /// Whether anything was measured of a variant.
    pub fn has(&self, variant: &str, measure: &str) -> bool {
        self.rows.iter().any(|r| self.get(variant, r, measure).is_some())
    }

    /// Every measure that there is.
    pub fn measures(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for p in self
            .results
            .points
            .iter()
            .filter(|p| p.params.get("job").is_some_and(|j| j == self.job))
        {
            for m in p.measures.keys() {
                if !all.contains(m) {
                    all.push(m.clone());
                }
            }
        }
        all
    }
}
