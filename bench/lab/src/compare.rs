//! Two runs side by side: what changed, and whether it is more than noise.

use bench_core::results::{Better, Measure, Results};
use bench_core::stats::{self, Estimate, Verdict};
use bench_core::table::{self, Table, number};

/// A difference between two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Variant, parameters, measure.
    pub what: String,
    /// In the first run.
    pub a: f64,
    /// In the second.
    pub b: f64,
    /// Second to first.
    pub ratio: Estimate,
    /// What that says.
    pub verdict: Verdict,
    /// Which way is better.
    pub better: Better,
}

impl Change {
    fn word(&self) -> &'static str {
        match (self.verdict, self.better) {
            (Verdict::TooFew, _) => "too few repetitions to say",
            (Verdict::Noise, _) => "within noise",
            (Verdict::More, Better::Higher) | (Verdict::Less, Better::Lower) => "better",
            (Verdict::Less, Better::Higher) | (Verdict::More, Better::Lower) => "worse",
            (Verdict::More, Better::Neither) => "more",
            (Verdict::Less, Better::Neither) => "less",
        }
    }
}

/// Everything that both runs measured.
pub fn changes(a: &Results, b: &Results) -> Vec<Change> {
    let mut all = Vec::new();
    for p in &a.points {
        let Some(q) = b.points.iter().find(|q| q.variant == p.variant && q.params == p.params)
        else {
            continue;
        };
        for (name, m) in &p.measures {
            let Some(change) = q.measures.get(name).and_then(|n| one(m, n)) else { continue };
            let place: Vec<&str> = p.params.values().map(String::as_str).collect();
            let what = format!("{} {} {}", p.variant, place.join(" "), name.replace('_', " "));
            all.push(Change { what, ..change });
        }
    }
    all
}

fn one(m: &Measure, n: &Measure) -> Option<Change> {
    let (a, b) = (stats::median(&m.values())?, stats::median(&n.values())?);
    let ratio = stats::unpaired_ratio(&n.values(), &m.values())?;
    let (better, verdict) = (m.better, stats::verdict(&ratio));
    Some(Change { what: String::new(), a, b, ratio, verdict, better })
}

/// As text: what changed by more than noise, the largest changes first.
pub fn text(a: &Results, b: &Results) -> String {
    let mut out = String::new();
    if a.name != b.name {
        out += &format!("! these are different experiments: {} and {}\n", a.name, b.name);
    }
    if a.scale != b.scale {
        out += &format!("! at different scales: {} and {}\n", a.scale, b.scale);
    }
    let (mut ma, mut mb) = (a.machine.clone(), b.machine.clone());
    (ma.load, mb.load) = (0.0, 0.0);
    if ma != mb {
        out += &format!("! on different machines or versions:\n  {}\n  {}\n", ma.line(), mb.line());
    }
    let all = changes(a, b);
    let judged = |c: &&Change| c.better != Better::Neither;
    let of = |word: &str| all.iter().filter(judged).filter(|c| c.word() == word).count();
    out += &format!(
        "{} measures in both runs: {} better, {} worse, {} within noise, {} with too few repetitions to say\n",
        all.iter().filter(judged).count(),
        of("better"),
        of("worse"),
        of("within noise"),
        of("too few repetitions to say")
    );
    let mut changed: Vec<&Change> = all
        .iter()
        .filter(judged)
        .filter(|c| matches!(c.verdict, Verdict::More | Verdict::Less))
        .collect();
    changed.sort_by(|x, y| y.ratio.median.ln().abs().total_cmp(&x.ratio.median.ln().abs()));
    if !changed.is_empty() {
        let mut t = Table::new(["what", "first", "second", "second / first", ""]);
        for c in changed {
            t.row([c.what.as_str(), &number(c.a), &number(c.b), &table::ratio(&c.ratio), c.word()]);
        }
        out += &format!("{}\n", t.text());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(values: &[f64]) -> Results {
        let mut r = Results::new("x", "X", "quick");
        let p = bench_core::results::params([("block", "4k".to_string())]);
        for (rep, v) in values.iter().enumerate() {
            r.add("a", &p, rep, "read", "MB/s", Better::Higher, *v);
            r.add("a", &p, rep, "read_p99_us", "us", Better::Lower, 1000.0 / v);
            r.add("a", &p, rep, "passes", "", Better::Neither, *v);
        }
        r
    }

    #[test]
    fn a_change_is_told_from_noise() {
        let (slow, fast) = (run(&[10.0, 11.0, 10.5, 10.2]), run(&[20.0, 21.0, 20.5, 20.2]));
        let text = text(&slow, &fast);
        assert!(text.contains("2 measures in both runs: 2 better, 0 worse"), "{text}");
        let back = super::text(&fast, &slow);
        assert!(back.contains("0 better, 2 worse"), "{back}");
        let same = super::text(&slow, &run(&[10.1, 10.9, 10.6, 10.0]));
        assert!(same.contains("2 within noise"), "{same}");
        assert!(super::text(&slow, &run(&[20.0])).contains("2 with too few"));
    }
}
