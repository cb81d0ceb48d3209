//! The pictures of an experiment.

use super::view::{Params, View, number};
use crate::measures;
use crate::spec::{Chart, Experiment, Kind};
use bench_core::chart::{Axis, Bars, Dot, Lines, Scale, Series};
use bench_core::results::Results;
use bench_core::svg::Svg;

/// A picture with a name for its file.
pub struct Picture {
    /// Fit for a file.
    pub name: String,
    /// The picture.
    pub svg: Svg,
}

/// All of an experiment.
pub fn all(e: &Experiment, results: &Results) -> Vec<Picture> {
    let mut out = Vec::new();
    for c in &e.charts {
        let view = View::new(e, results, c.job.get_ref());
        let mut values: Vec<Option<String>> = vec![None];
        if let Some(each) = &c.each {
            values.clear();
            for r in &view.rows {
                let v = r.get(each.get_ref()).cloned();
                if !values.contains(&v) {
                    values.push(v);
                }
            }
        }
        for v in values {
            if let Some(svg) = one(e, c, &view, v.as_deref()) {
                let name = format!("chart-{:02}", out.len() + 1);
                out.push(Picture { name, svg });
            }
        }
    }
    out
}

/// Name, colour, whether broken, and the points: place, median and interval.
type Line = (String, usize, bool, Vec<(String, f64, f64, f64)>);

/// Where along the axis a row is; of a job without parameters there is one place.
fn place_of(c: &Chart, row: &Params) -> String {
    row.get(c.x.get_ref()).unwrap_or(c.job.get_ref()).clone()
}

fn one(e: &Experiment, c: &Chart, view: &View<'_>, each: Option<&str>) -> Option<Svg> {
    let fits = |r: &&Params| {
        let this = c
            .each
            .as_ref()
            .zip(each)
            .is_none_or(|(n, v)| r.get(n.get_ref()).is_some_and(|x| x == v));
        this && c.only.iter().all(|(n, v)| r.get(n) == Some(&v.0))
    };
    let rows: Vec<&Params> = view.rows.iter().filter(fits).collect();
    let mut title = c.title.clone();
    if let (Some(n), Some(v)) = (&c.each, each) {
        title = title.replace(&format!("{{{}}}", n.get_ref()), v);
    }
    let wanted =
        |name: &str| c.variants.is_empty() || c.variants.iter().any(|v| v.get_ref() == name);
    let mut series: Vec<Line> = Vec::new();
    for (n, v) in e.variants.iter().enumerate().filter(|(_, v)| wanted(v.name.get_ref())) {
        for (k, m) in c.y.iter().enumerate() {
            let points: Vec<_> = rows
                .iter()
                .filter_map(|r| {
                    let x = view.get(v.name.get_ref(), r, m.get_ref())?.estimate()?;
                    Some((place_of(c, r), x.median, x.low, x.high))
                })
                .collect();
            let name = match c.y.len() {
                1 => v.name.get_ref().clone(),
                _ => format!("{}: {}", v.name.get_ref(), m.get_ref().replace('_', " ")),
            };
            if !points.is_empty() {
                series.push((name, n, k > 0, points));
            }
        }
    }
    if series.is_empty() {
        return None;
    }
    let label = match (c.label.as_str(), c.y.first()) {
        ("", Some(m)) => measures::head(m.get_ref()),
        (l, _) => l.to_string(),
    };
    let scale = |axis: char| if c.log.contains(axis) { Scale::Log } else { Scale::Linear };
    let y = Axis { label, scale: scale('y'), ticks: Vec::new() };
    let mut groups: Vec<String> = Vec::new();
    for r in &rows {
        let v = place_of(c, r);
        if !groups.contains(&v) {
            groups.push(v);
        }
    }
    let numeric = groups.iter().all(|g| number(g).is_some());
    if c.kind == Kind::Bars || !numeric || groups.len() < 2 {
        let several = series.iter().any(|s| s.2);
        let series = series
            .into_iter()
            .enumerate()
            .map(|(n, (name, colour, _, points))| {
                let values = groups
                    .iter()
                    .map(|g| points.iter().find(|p| p.0 == *g).map(|p| (p.1, p.2, p.3)))
                    .collect();
                (name, if several { n } else { colour }, values)
            })
            .collect();
        if c.x.get_ref() != "job" {
            groups = groups.iter().map(|g| format!("{} {g}", c.x.get_ref())).collect();
        }
        return Some(Bars { title, y, groups, series }.draw());
    }
    let log_x = scale('x') == Scale::Log;
    let low = groups.iter().filter_map(|g| number(g)).filter(|v| *v > 0.0).fold(f64::MAX, f64::min);
    let place = |g: &str| number(g).map(|v| if log_x { v.max(low / 2.0) } else { v });
    let ticks = groups.iter().filter_map(|g| Some((place(g)?, g.clone())));
    let x = Axis { label: c.x.get_ref().clone(), scale: scale('x'), ticks: ticks.collect() };
    let series = series
        .into_iter()
        .map(|(name, colour, dashed, points)| Series {
            name,
            colour,
            dashed,
            dots: points
                .iter()
                .filter_map(|(g, y, low, high)| {
                    Some(Dot { x: place(g)?, y: *y, low: *low, high: *high })
                })
                .collect(),
        })
        .collect();
    Some(Lines { title, x, y, series }.draw())
}
