//! `results.json`: everything that was measured, value by value.

use crate::machine::Machine;
use crate::stats::{self, Estimate};
use crate::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The version of the format.
pub const SCHEMA: u32 = 1;

/// One run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was run.
    pub name: String,
    /// The same for people.
    pub title: String,
    /// How much of it: `quick` or `full`.
    pub scale: String,
    /// Seconds since 1970.
    pub started: u64,
    /// How long it took.
    pub seconds: f64,
    /// False if it was interrupted: what there is counts, but not all is there.
    pub complete: bool,
    /// The machine.
    pub machine: Machine,
    /// The variants in order; the first is what the others are compared with.
    pub variants: Vec<Variant>,
    /// What was measured, by variant and parameters.
    pub points: Vec<Point>,
    /// What the reader has to know, such as warnings.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Whatever else the run has to tell, by name.
    #[serde(default)]
    pub extra: BTreeMap<String, serde_json::Value>,
}

/// A thing compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Short.
    pub name: String,
    /// What makes it different, such as its mount options.
    pub detail: String,
}

/// One variant under one set of parameters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// [`Variant::name`].
    pub variant: String,
    /// Parameters by name, such as `block` = `4k`.
    pub params: BTreeMap<String, String>,
    /// What was measured, by name.
    pub measures: BTreeMap<String, Measure>,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// As throughput.
    Higher,
    /// As latency.
    Lower,
    /// Neither.
    #[default]
    Neither,
}

/// Values of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// As `MB/s`.
    pub unit: String,
    /// Which way is better.
    #[serde(default)]
    pub better: Better,
    /// Repetition and value.
    pub samples: Vec<(usize, f64)>,
}

impl Measure {
    /// The values.
    pub fn values(&self) -> Vec<f64> {
        self.samples.iter().map(|s| s.1).collect()
    }
    /// Their median and its interval.
    pub fn estimate(&self) -> Option<Estimate> {
        stats::estimate(&self.values())
    }
    /// Ratio to another, by the repetitions that both have.
    pub fn ratio_to(&self, other: &Measure) -> Option<Estimate> {
        stats::ratio(&self.pairs_with(other))
    }
    /// Values of the same repetition, side by side.
    pub fn pairs_with(&self, other: &Measure) -> Vec<(f64, f64)> {
        let theirs: BTreeMap<usize, f64> = other.samples.iter().copied().collect();
        self.samples.iter().filter_map(|(r, v)| Some((*v, *theirs.get(r)?))).collect()
    }
}

/// Parameters from pairs.
pub fn params<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(n, v)| (n.to_string(), v)).collect()
}

impl Results {
    /// Nothing measured yet; the machine is this one.
    pub fn new(name: &str, title: &str, scale: &str) -> Results {
        Results {
            schema: SCHEMA,
            name: name.into(),
            title: title.into(),
            scale: scale.into(),
            started: crate::machine::now(),
            machine: Machine::here(),
            ..Results::default()
        }
    }

    /// Adds a value.
    #[expect(clippy::too_many_arguments, reason = "a value is this many things")]
    pub fn add(
        &mut self,
        variant: &str,
        params: &BTreeMap<String, String>,
        rep: usize,
        measure: &str,
        unit: &str,
        better: Better,
        value: f64,
    ) {
        let found =
            self.points.iter_mut().position(|p| p.variant == variant && p.params == *params);
        let at = found.unwrap_or_else(|| {
            self.points.push(Point {
                variant: variant.into(),
                params: params.clone(),
                measures: BTreeMap::new(),
            });
            self.points.len() - 1
        });
        let m = self.points[at].measures.entry(measure.into()).or_insert_with(|| Measure {
            unit: unit.into(),
            better,
            samples: Vec::new(),
        });
        m.samples.push((rep, value));
    }

    /// What was measured of a variant under these parameters.
    pub fn measure(
        &self,
        variant: &str,
        params: &BTreeMap<String, String>,
        measure: &str,
    ) -> Option<&Measure> {
        let p = self.points.iter().find(|p| p.variant == variant && p.params == *params)?;
        p.measures.get(measure)
    }

    /// Its median.
    pub fn median(
        &self,
        variant: &str,
        params: &BTreeMap<String, String>,
        measure: &str,
    ) -> Option<f64> {
        stats::median(&self.measure(variant, params, measure)?.values())
    }

    /// Writes it as JSON; the file is never half there.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        let half = path.with_extension("json.part");
        std::fs::write(&half, text + "\n").with_context(|| half.display().to_string())?;
        std::fs::rename(&half, path).with_context(|| path.display().to_string())
    }

    /// Reads it back.
    pub fn load(path: &Path) -> Result<Results> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| shown.clone())?;
        let r: Results = serde_json::from_str(&text).with_context(|| shown.clone())?;
        if r.schema != SCHEMA {
            bail!("{shown}: format {} where {SCHEMA} is expected", r.schema);
        }
        Ok(r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_survives_its_file() {
        let mut r = Results::new("x", "X", "quick");
        let p = params([("block", "4k".to_string())]);
        for (rep, (a, b)) in [(10.0, 5.0), (12.0, 6.0), (8.0, 4.0)].into_iter().enumerate() {
            r.add("a", &p, rep, "read", "MB/s", Better::Higher, a);
            r.add("b", &p, rep, "read", "MB/s", Better::Higher, b);
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.json");
        r.save(&path).unwrap();
        assert_eq!(Results::load(&path).unwrap(), r);
        assert_eq!(r.median("a", &p, "read"), Some(10.0));
        let ratio =
            r.measure("a", &p, "read").unwrap().ratio_to(r.measure("b", &p, "read").unwrap());
        assert_eq!(ratio.map(|e| (e.median, e.low, e.high, e.n)), Some((2.0, 2.0, 2.0, 3)));
        std::fs::write(&path, "{}").unwrap();
        assert!(Results::load(&path).unwrap_err().to_string().contains("results.json"));
    }

    #[test]
    fn pairs_are_those_of_one_repetition() {
        let m = |s: &[(usize, f64)]| Measure { samples: s.to_vec(), ..Measure::default() };
        let pairs =
            m(&[(0, 1.0), (2, 3.0), (3, 4.0)]).pairs_with(&m(&[(2, 30.0), (0, 10.0), (1, 20.0)]));
        assert_eq!(pairs, [(1.0, 10.0), (3.0, 30.0)]);
    }
}
