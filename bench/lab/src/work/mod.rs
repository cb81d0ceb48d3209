//! Work that fio cannot do, by name. Each says what it measures.

mod age;
mod crash;
mod pieces;
mod stream;

use crate::measures::Measured;
use crate::run::Live;
use bench_core::image::{Image, Workdir};
use bench_core::{Context as _, Result, bail};
use std::collections::BTreeMap;

/// Names, as files have them.
pub const NAMES: [&str; 4] = ["pieces", "stream", "crash", "age"];

/// What work gets.
pub struct Context<'a> {
    /// The variant; mounted if [`uses_mounts`].
    pub live: &'a Live,
    /// The image that all variants have a copy of.
    pub master: &'a Image,
    /// For images and mounts of its own.
    pub dir: &'a Workdir,
    /// `with` in the file, with its placeholders filled.
    pub args: &'a BTreeMap<String, String>,
    /// How long it may last.
    pub seconds: f64,
    /// Which repetition.
    pub rep: usize,
}

/// What was measured under further parameters.
pub type Row = (BTreeMap<String, String>, Vec<Measured>);

/// What work gives.
#[derive(Default)]
pub struct Done {
    /// Measurements.
    pub rows: Vec<Row>,
    /// Whatever else the report shows, by name.
    pub extra: Vec<(String, serde_json::Value)>,
}

/// What it measures.
pub fn measures(name: &str) -> &'static [&'static str] {
    match name {
        "pieces" => &["read", "readall"],
        "stream" => &["write", "fragments_per_file"],
        "crash" => &["old", "new", "lost", "empty", "zeros", "mixed"],
        "age" => &["fragments_per_file", "files_in_pieces", "free_runs", "free_run_mean_kib"],
        _ => &[],
    }
}

/// Whether it works on the mounts that the experiment has; otherwise it makes its own.
pub fn uses_mounts(name: &str) -> bool {
    matches!(name, "pieces" | "stream")
}

/// Does it.
pub fn run(name: &str, context: &Context<'_>) -> Result<Done> {
    match name {
        "pieces" => pieces::run(context),
        "stream" => stream::run(context),
        "crash" => crash::run(context),
        "age" => age::run(context),
        _ => bail!("no work {name}"),
    }
}

impl Context<'_> {
    fn text(&self, name: &str) -> Result<&str> {
        self.args.get(name).map(String::as_str).with_context(|| format!("with.{name} is missing"))
    }

    fn number(&self, name: &str) -> Result<usize> {
        let text = self.text(name)?;
        text.parse().with_context(|| format!("with.{name}: \"{text}\" is no number"))
    }

    fn bytes(&self, name: &str) -> Result<u64> {
        let text = self.text(name)?;
        crate::spec::value::bytes(text)
            .with_context(|| format!("with.{name}: \"{text}\" is no size"))
    }
}

/// Where a file's blocks are, from `uext4 ctl FILE extents`: block number and count.
pub fn extents(text: &str) -> Vec<(u64, u64)> {
    let number = |w: &str| w.parse::<u64>().ok();
    text.lines()
        .skip(1)
        .filter_map(|l| {
            let mut words = l.split(' ');
            let (_, len, at) =
                (number(words.next()?)?, number(words.next()?)?, number(words.next()?)?);
            (at > 0).then_some((at, len))
        })
        .collect()
}

/// How many pieces that is: runs that do not continue on the device.
pub fn pieces_of(extents: &[(u64, u64)]) -> usize {
    let breaks = extents.windows(2).filter(|w| w[0].0 + w[0].1 != w[1].0).count();
    if extents.is_empty() { 0 } else { breaks + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_read_and_joined() {
        let all =
            extents("size 16384 block 4096\n0 1 100 \n1 1 101 \n2 1 300 last\n3 1 0 delalloc\n");
        assert_eq!(all, [(100, 1), (101, 1), (300, 1)]);
        assert_eq!((pieces_of(&all), pieces_of(&[])), (2, 0));
    }

    #[test]
    fn every_work_measures_something() {
        assert!(NAMES.iter().all(|n| !measures(n).is_empty()));
    }
}
