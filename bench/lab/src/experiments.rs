//! The experiments that come with the program.

use crate::spec::Experiment;
use bench_core::{Result, bail};

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        const ALL: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../experiments/", $name, ".toml")))),*];
    };
}

built_in!(
    "tokarev-2011",
    "wong-2010",
    "fink-2010",
    "pratt-2003",
    "axboe-2007",
    "delalloc-crash",
    "fragmentation",
    "tokarev-short",
);

/// Those that `all` means: the short form of one of them is not among them.
pub fn all() -> Result<Vec<Experiment>> {
    ALL.iter()
        .filter(|(n, _)| !n.ends_with("-short"))
        .map(|(n, t)| Experiment::parse(&format!("{n}.toml"), t))
        .collect()
}

/// The file of one.
pub fn text(name: &str) -> Result<&'static str> {
    match ALL.iter().find(|(n, _)| *n == name) {
        Some((_, text)) => Ok(text),
        None => {
            let names: Vec<&str> = ALL.iter().map(|(n, _)| *n).collect();
            bail!("no experiment {name}: {}, or a file that ends in .toml", names.join(", "))
        }
    }
}

/// One of them.
pub fn named(name: &str) -> Result<Experiment> {
    Experiment::parse(&format!("{name}.toml"), text(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_an_experiment_of_its_name() {
        for (name, _) in ALL {
            let e = named(name).unwrap_or_else(|e| panic!("{e:#}"));
            assert_eq!(e.name.get_ref(), name);
            assert!(!e.title.is_empty() && !e.shapes.is_empty(), "{name}");
        }
        assert_eq!(all().unwrap().len(), 7);
        let docs = include_str!("../../../docs/lab/fsync-beside-readers.toml");
        assert!(
            Experiment::parse("fsync-beside-readers.toml", docs).is_ok()
                && docs.lines().count() < 30
        );
        assert!(text("nosuch").unwrap_err().to_string().contains("tokarev-2011"));
    }
}
