//! What is wrong with an experiment although its file can be read.

use super::{Experiment, Job, PerScale, Scale, Value, line_of, split_measure, value};
use crate::measures;
use crate::work;
use bench_core::{Result, bail};
use std::collections::BTreeMap;
use toml::Spanned;

/// Where it stands.
pub struct At<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

impl At<'_> {
    fn wrong<T>(&self, at: &Spanned<T>, key: &str, why: &str) -> Result<()> {
        bail!("{}:{}: {key}: {why}", self.file, line_of(self.text, at.span().start))
    }

    /// Of things without a place of their own: the first line that begins with the key.
    fn wrong_key(&self, key: &str, why: &str) -> Result<()> {
        let last = key.rsplit('.').next().unwrap_or(key);
        let first = key.split('.').next().unwrap_or(key);
        let at = |word: &str| {
            self.text.lines().position(|l| l.trim_start().trim_start_matches('[').starts_with(word))
        };
        let line = at(first).or_else(|| at(last)).map_or(1, |n| n + 1);
        bail!("{}:{line}: {key}: {why}", self.file)
    }
}

/// Targets by the name they have in a file.
pub const TARGETS: [&str; 6] = ["uext4", "raw", "kernel", "kernel-buffered", "fuse2fs", "bare"];

/// Placeholders that are always there.
const ALWAYS: [&str; 4] = ["dir", "dir2", "file", "runtime"];

/// Finds the first thing that is wrong.
pub fn check(e: &Experiment, at: &At<'_>) -> Result<()> {
    let fit = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let name = e.name.get_ref();
    if name.is_empty() || !name.chars().all(fit) {
        at.wrong(&e.name, "name", &format!("\"{name}\": letters, digits, - and _ only"))?;
    }
    size(at, "image.size", &e.image.size)?;
    for f in &e.files {
        size(at, "files.size", &f.size)?;
        if f.name.is_empty() || f.name.contains(['/', '\0']) || f.name.starts_with('.') {
            at.wrong_key("files.name", &format!("\"{}\" is no file name", f.name))?;
        }
    }
    if !(1..=2).contains(&e.mounts) {
        at.wrong_key("mounts", "1 or 2")?;
    }
    if e.variants.is_empty() {
        at.wrong_key("variant", "there is none")?;
    }
    unique(at, "variant.name", e.variants.iter().map(|v| &v.name))?;
    unique(at, "job.name", e.jobs.iter().map(|j| &j.name))?;
    for v in &e.variants {
        if !TARGETS.contains(&v.target.get_ref().as_str()) {
            let why = format!("no target \"{}\": {}", v.target.get_ref(), TARGETS.join(", "));
            at.wrong(&v.target, "variant.target", &why)?;
        }
        if v.name.get_ref().contains('.') {
            at.wrong(&v.name, "variant.name", "no full stops")?;
        }
    }
    if let Some(b) = &e.baseline {
        variant(e, at, "baseline", b, b.get_ref())?;
    }
    e.jobs.iter().try_for_each(|j| job(e, at, j))?;
    for c in &e.charts {
        let j = found(e, at, "chart.job", &c.job)?;
        let own = j.work.is_some();
        for (key, p) in [("chart.x", Some(&c.x)), ("chart.each", c.each.as_ref())] {
            if let Some(p) = p
                && !own
                && p.get_ref() != "job"
                && !j.params.iter().any(|q| q.get_ref() == p.get_ref())
            {
                at.wrong(
                    p,
                    key,
                    &format!("job {} has no parameter \"{}\"", j.name.get_ref(), p.get_ref()),
                )?;
            }
        }
        c.y.iter().try_for_each(|m| measure(at, j, "chart.y", m, m.get_ref()))?;
        c.variants.iter().try_for_each(|v| variant(e, at, "chart.variants", v, v.get_ref()))?;
    }
    for p in &e.published {
        if let Some(j) = &p.job {
            found(e, at, "published.job", j)?;
        }
        if let Some(row) = p.rows.iter().find(|r| r.len() != p.columns.len()) {
            let (have, want) = (row.len(), p.columns.len());
            at.wrong_key("published.rows", &format!("{have} values in a row for {want} columns"))?;
        }
    }
    for s in &e.shapes {
        let j = found(e, at, "shape.job", &s.job)?;
        for (key, side) in [("shape.left", &s.left), ("shape.right", &s.right)] {
            let Some((v, m)) = split_measure(side.get_ref()) else {
                return at.wrong(side, key, "VARIANT.MEASURE is expected");
            };
            variant(e, at, key, side, v)?;
            measure(at, j, key, side, m)?;
        }
        if s.at_least.is_none() && s.at_most.is_none() {
            at.wrong(&s.left, "shape", "at_least or at_most is missing")?;
        }
    }
    Ok(())
}

fn size(at: &At<'_>, key: &str, size: &PerScale<Value>) -> Result<()> {
    for scale in [Scale::Quick, Scale::Full] {
        let text = &size.at(scale).0;
        if value::bytes(text).is_none_or(|n| n == 0) {
            at.wrong_key(key, &format!("\"{text}\" is no size such as 512m"))?;
        }
    }
    Ok(())
}

fn unique<'a>(
    at: &At<'_>,
    key: &str,
    names: impl Iterator<Item = &'a Spanned<String>>,
) -> Result<()> {
    let mut seen = Vec::new();
    for n in names {
        if seen.contains(&n.get_ref()) {
            at.wrong(n, key, &format!("\"{}\" is there twice", n.get_ref()))?;
        }
        seen.push(n.get_ref());
    }
    Ok(())
}

fn variant<T>(
    e: &Experiment,
    at: &At<'_>,
    key: &str,
    place: &Spanned<T>,
    name: &str,
) -> Result<()> {
    if e.variants.iter().any(|v| v.name.get_ref() == name) {
        return Ok(());
    }
    at.wrong(place, key, &format!("no variant \"{name}\""))
}

fn found<'a>(e: &'a Experiment, at: &At<'_>, key: &str, name: &Spanned<String>) -> Result<&'a Job> {
    match e.job(name.get_ref()) {
        Some(j) => Ok(j),
        None => {
            at.wrong(name, key, &format!("no job \"{}\"", name.get_ref()))?;
            unreachable!("wrong() is always an error")
        }
    }
}

fn measure<T>(at: &At<'_>, job: &Job, key: &str, place: &Spanned<T>, name: &str) -> Result<()> {
    let parts: Vec<&str> = job.parts.keys().map(String::as_str).collect();
    let known = match &job.work {
        Some(w) => work::measures(w.get_ref()).contains(&name) || measures::is_common(name),
        None => measures::is_of_fio(name, &parts) || measures::is_common(name),
    };
    if known {
        return Ok(());
    }
    at.wrong(place, key, &format!("nothing measures \"{name}\""))
}

fn job(e: &Experiment, at: &At<'_>, j: &Job) -> Result<()> {
    for p in &j.params {
        if !e.params.contains_key(p.get_ref()) {
            at.wrong(p, "job.params", &format!("no parameter \"{}\" in [params]", p.get_ref()))?;
        }
    }
    for p in j.only.keys() {
        if !j.params.iter().any(|q| q.get_ref() == p) {
            at.wrong(&j.name, "job.only", &format!("job.params does not have \"{p}\""))?;
        }
    }
    match &j.work {
        Some(w) if !work::NAMES.contains(&w.get_ref().as_str()) => {
            let why = format!("no work \"{}\": {}", w.get_ref(), work::NAMES.join(", "));
            at.wrong(w, "job.work", &why)?;
        }
        Some(w) if !j.fio.is_empty() || !j.parts.is_empty() => {
            at.wrong(w, "job.work", "either work or fio")?;
        }
        None if j.fio.is_empty() && j.parts.is_empty() => {
            at.wrong(&j.name, "job", "neither fio nor work")?;
        }
        _ => {}
    }
    let text = |all: &BTreeMap<String, Spanned<Value>>, key: &str| -> Result<()> {
        for (name, v) in all {
            for p in placeholders(&v.get_ref().0) {
                let known = ALWAYS.contains(&p)
                    || e.values.contains_key(p)
                    || j.params.iter().any(|q| q.get_ref() == p);
                if !known {
                    let why = format!(
                        "{{{p}}} stands for nothing: [values], a parameter of the job, or {}",
                        ALWAYS.join(", ")
                    );
                    at.wrong(v, &format!("{key}.{name}"), &why)?;
                }
            }
        }
        Ok(())
    };
    text(&j.fio, "fio")?;
    text(&j.args, "with")?;
    j.parts.values().try_for_each(|p| text(p, "parts"))?;
    j.show.iter().try_for_each(|m| measure(at, j, "job.show", m, m.get_ref()))
}

/// The names between braces.
fn placeholders(text: &str) -> Vec<&str> {
    text.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0)).collect()
}
