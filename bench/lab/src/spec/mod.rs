//! An experiment as its TOML file says it. docs/lab/experiments.md describes the format;
//! [`check`] finds what the types cannot.

mod check;
pub mod value;

use bench_core::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;
pub use value::{PerScale, Scale, Value};

/// An experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// A short name, which file names may hold.
    pub name: Spanned<String>,
    /// The same for people.
    pub title: String,
    /// Who asked it first, and where.
    #[serde(default)]
    pub source: String,
    /// What it asks.
    #[serde(default)]
    pub ask: String,
    /// What to look for, and why.
    #[serde(default)]
    pub look_for: String,
    /// Where the outcome differs from the source, and why.
    #[serde(default)]
    pub differs: String,
    /// The image that every variant gets a copy of.
    pub image: ImageSpec,
    /// Files that are in the image before anything is measured.
    #[serde(default)]
    pub files: Vec<FileSpec>,
    /// Mount options of all variants of uext4.
    #[serde(default)]
    pub options: String,
    /// How many images each variant has mounted.
    #[serde(default = "one")]
    pub mounts: usize,
    /// How long a measurement lasts; `{runtime}` is the same as fio wants it.
    #[serde(default = "a_second")]
    pub seconds: PerScale<f64>,
    /// How often each is repeated.
    pub repetitions: PerScale<usize>,
    /// Values for placeholders, by name.
    #[serde(default)]
    pub values: BTreeMap<String, PerScale<Value>>,
    /// What is varied, by name; a job goes through all combinations of those that it names.
    #[serde(default)]
    pub params: BTreeMap<String, PerScale<Vec<Value>>>,
    /// What is compared; the first is what the others are compared with, unless `baseline` says.
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
    /// The variant that the others are compared with.
    pub baseline: Option<Spanned<String>>,
    /// What is done.
    #[serde(rename = "job")]
    pub jobs: Vec<Job>,
    /// Pictures.
    #[serde(default, rename = "chart")]
    pub charts: Vec<Chart>,
    /// What others measured.
    #[serde(default, rename = "published")]
    pub published: Vec<Published>,
    /// What has to be seen.
    #[serde(default, rename = "shape")]
    pub shapes: Vec<Shape>,
}

fn one() -> usize {
    1
}

fn a_second() -> PerScale<f64> {
    PerScale::both(1.0)
}

/// An image.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSpec {
    /// As `1g`.
    pub size: PerScale<Value>,
    /// Arguments for mkfs.ext4.
    #[serde(default)]
    pub mkfs: Vec<String>,
}

/// A file, or several with a number in the name, full of bytes that do not compress.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// Its name; with `count`, its number follows.
    pub name: String,
    /// As `512m`.
    pub size: PerScale<Value>,
    /// How many.
    #[serde(default = "one_file")]
    pub count: PerScale<usize>,
    /// Put into so many directories in turn.
    #[serde(default)]
    pub directories: usize,
}

fn one_file() -> PerScale<usize> {
    PerScale::both(1)
}

/// A thing compared.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Short.
    pub name: Spanned<String>,
    /// `uext4`, `raw`, `kernel`, `kernel-buffered`, `fuse2fs` or `bare`.
    #[serde(default = "uext4")]
    pub target: Spanned<String>,
    /// Mount options of its own.
    #[serde(default)]
    pub options: String,
}

fn uext4() -> Spanned<String> {
    Spanned::new(0..0, "uext4".into())
}

/// Something that is done and measured: jobs for fio, or work that fio cannot do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Short.
    pub name: Spanned<String>,
    /// What of it is shown first.
    #[serde(default)]
    pub show: Vec<Spanned<String>>,
    /// Which of the experiment's parameters it goes through.
    #[serde(default)]
    pub params: Vec<Spanned<String>>,
    /// Keeps a parameter to these of its values.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<Value>>,
    /// Mounts again before each measurement, so that nothing is cached.
    #[serde(default)]
    pub fresh: bool,
    /// Options of all fio jobs.
    #[serde(default)]
    pub fio: BTreeMap<String, Spanned<Value>>,
    /// fio jobs that run at the same time: a name and their options. Without any, `fio` is the job.
    #[serde(default)]
    pub parts: BTreeMap<String, BTreeMap<String, Spanned<Value>>>,
    /// Work of our own instead: its name.
    pub work: Option<Spanned<String>>,
    /// What that work takes.
    #[serde(default, rename = "with")]
    pub args: BTreeMap<String, Spanned<Value>>,
}

/// A picture.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Of which job.
    pub job: Spanned<String>,
    /// The parameter across.
    pub x: Spanned<String>,
    /// The measures up.
    pub y: Vec<Spanned<String>>,
    /// The label up.
    #[serde(default)]
    pub label: String,
    /// One picture for each value of this parameter.
    pub each: Option<Spanned<String>>,
    /// `bars` or `lines`.
    #[serde(default)]
    pub kind: Kind,
    /// Which axes are logarithmic: `x`, `y`, `xy`.
    #[serde(default)]
    pub log: String,
    /// Only these variants.
    #[serde(default)]
    pub variants: Vec<Spanned<String>>,
    /// Only where these parameters have these values.
    #[serde(default, rename = "where")]
    pub only: BTreeMap<String, Value>,
}

/// How a chart is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Lines over an axis.
    #[default]
    Lines,
    /// Bars in groups.
    Bars,
}

/// What somebody measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What it says.
    pub title: String,
    /// The job that does the same here.
    pub job: Option<Spanned<String>>,
    /// Parameters, and measures as `VARIANT.MEASURE`; anything else is only shown.
    pub columns: Vec<String>,
    /// One for each set of parameters.
    pub rows: Vec<Vec<Value>>,
}

/// A relation that has to be seen: LEFT / RIGHT within limits.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// In words.
    pub says: String,
    /// Of which job.
    pub job: Spanned<String>,
    /// `VARIANT.MEASURE`.
    pub left: Spanned<String>,
    /// `VARIANT.MEASURE`.
    pub right: Spanned<String>,
    /// The parameters.
    #[serde(default, rename = "where")]
    pub only: BTreeMap<String, Value>,
    /// Of the right side, where they differ.
    #[serde(default)]
    pub right_where: BTreeMap<String, Value>,
    /// The ratio is no less.
    pub at_least: Option<f64>,
    /// The ratio is no more.
    pub at_most: Option<f64>,
    /// The ratio that was published.
    pub published: Option<f64>,
}

impl Experiment {
    /// Takes a file's text apart. Errors name the file, the line and the key.
    pub fn parse(file: &str, text: &str) -> Result<Experiment> {
        let experiment: Experiment = match toml::from_str(text) {
            Ok(e) => e,
            Err(e) => {
                let line = e.span().map_or(1, |s| line_of(text, s.start));
                let near = text.lines().nth(line - 1).unwrap_or_default().trim();
                bail!("{file}:{line}: {}: {near}", e.message().trim());
            }
        };
        check::check(&experiment, &check::At { file, text })?;
        Ok(experiment)
    }

    /// Reads a file.
    pub fn read(path: &std::path::Path) -> Result<Experiment> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| shown.clone())?;
        Experiment::parse(&shown, &text)
    }

    /// The name of the variant that others are compared with.
    pub fn baseline(&self) -> &str {
        match &self.baseline {
            Some(b) => b.get_ref(),
            None => self.variants.first().map_or("", |v| v.name.get_ref()),
        }
    }

    /// The job of that name.
    pub fn job(&self, name: &str) -> Option<&Job> {
        self.jobs.iter().find(|j| j.name.get_ref() == name)
    }

    /// The values of a parameter for a job.
    pub fn values_of(&self, job: &Job, param: &str, scale: Scale) -> Vec<String> {
        let all = self.params.get(param).map(|p| p.at(scale).as_slice()).unwrap_or_default();
        let only = job.only.get(param);
        all.iter().filter(|v| only.is_none_or(|o| o.contains(v))).map(|v| v.0.clone()).collect()
    }
}

/// Counted from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|b| *b == b'\n').count() + 1
}

/// `VARIANT.MEASURE` taken apart.
pub fn split_measure(text: &str) -> Option<(&str, &str)> {
    text.split_once('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "x"
title = "X"
repetitions = { quick = 1, full = 3 }
image = { size = "64m" }
[params]
block = ["4k", 8192]
[[variant]]
name = "a"
[[job]]
name = "read"
params = ["block"]
show = ["read"]
fio = { rw = "read", bs = "{block}", runtime = "{runtime}", filename = "{dir}/f" }
"#;

    fn error(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        format!("{:#}", Experiment::parse("x.toml", &GOOD.replacen(from, to, 1)).unwrap_err())
    }

    #[test]
    fn a_small_experiment() {
        let e = Experiment::parse("x.toml", GOOD).unwrap();
        assert_eq!(e.baseline(), "a");
        assert_eq!(e.values_of(&e.jobs[0], "block", Scale::Quick), ["4k", "8192"]);
        assert_eq!((*e.repetitions.at(Scale::Quick), *e.repetitions.at(Scale::Full)), (1, 3));
    }

    #[test]
    fn errors_name_line_and_key() {
        for (from, to, wants) in [
            ("title", "titel", &["x.toml:3:", "titel"][..]),
            ("\"64m\"", "\"64q\"", &["x.toml:5:", "image.size", "64q"]),
            ("quick = 1", "quick = 0", &["x.toml:4:", "repetitions"]),
            ("quick = 1, full = 3", "quick = 1", &["x.toml:4:", "full"]),
            ("params = [\"block\"]", "params = [\"blok\"]", &["x.toml:12:", "blok"]),
            ("{block}", "{blok}", &["x.toml:14:", "fio.bs", "{blok}"]),
            ("name = \"a\"", "name = \"a\"\ntarget = \"zfs\"", &["x.toml:10:", "target", "zfs"]),
            (
                "name = \"a\"",
                "name = \"a\"\n[[variant]]\nname = \"a\"",
                &["x.toml:11:", "\"a\"", "twice"],
            ),
            ("name = \"x\"", "name = \"x/y\"", &["x.toml:2:", "name", "x/y"]),
            ("fio = {", "work = \"dance\" # {", &["x.toml:14:", "work", "dance"]),
            ("fio = {", "fia = {", &["x.toml:14:", "fia"]),
            ("[[job]]", "[[jobs]]", &["x.toml:10:", "jobs"]),
            ("show = [\"read\"]", "show = [\"write_speed\"]", &["x.toml:13:", "write_speed"]),
            ("\"X\"", "\"X\n", &["x.toml:3:"]),
        ] {
            let e = error(from, to);
            for want in wants {
                assert!(e.contains(want), "{from} -> {to}: {e}");
            }
            assert!(!e.contains('\n'), "{e}");
        }
    }

    #[test]
    fn charts_and_shapes_speak_of_what_there_is() {
        let add = |more: &str| {
            format!("{:#}", Experiment::parse("x.toml", &format!("{GOOD}{more}")).unwrap_err())
        };
        let chart = "[[chart]]\ntitle = \"t\"\njob = \"read\"\nx = \"block\"\ny = [\"read\"]\n";
        assert!(Experiment::parse("x.toml", &format!("{GOOD}{chart}")).is_ok());
        assert!(
            add(&chart.replace("job = \"read\"", "job = \"raed\""))
                .contains("x.toml:17: chart.job")
        );
        assert!(add(&chart.replace("\"block\"", "\"blocks\"")).contains("x.toml:18: chart.x"));
        let shape = "[[shape]]\nsays = \"s\"\njob = \"read\"\nleft = \"a.read\"\nright = \"b.read\"\nat_least = 2\n";
        assert!(add(shape).contains("x.toml:19: shape.right: no variant \"b\""));
        assert!(
            add(&shape.replace("b.read", "a.read").replace("at_least = 2\n", ""))
                .contains("at_least")
        );
    }
}
