//! The order in which things are measured: every repetition goes through all cells in an order of
//! its own, and through the variants of a cell one right after the other, in random order. A
//! machine that slows down then slows all of them down.

use crate::{Result, interrupt};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// 0 and up. Values of one repetition and cell were measured next to each other.
    pub rep: usize,
    /// What is measured.
    pub cell: usize,
    /// On which variant.
    pub variant: usize,
}

/// All measurements of `reps` repetitions. The same seed gives the same order.
pub fn interleaved(variants: usize, cells: usize, reps: usize, seed: u64) -> Vec<Step> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut steps = Vec::with_capacity(variants * cells * reps);
    for rep in 0..reps {
        let mut order: Vec<usize> = (0..cells).collect();
        rng.shuffle(&mut order);
        for cell in order {
            let mut order: Vec<usize> = (0..variants).collect();
            rng.shuffle(&mut order);
            steps.extend(order.into_iter().map(|variant| Step { rep, cell, variant }));
        }
    }
    steps
}

/// A progress bar with the time left, on standard error; silent if that is no terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// For so many steps.
    pub fn new(title: &str, steps: usize) -> Progress {
        let bar = ProgressBar::new(steps as u64);
        let style = "{prefix} {wide_bar:.cyan/dim} {pos}/{len} {elapsed_precise}, left {eta_precise}  {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_prefix(title.to_string());
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress(bar)
    }

    /// What is being done now.
    pub fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// A line above the bar.
    pub fn note(&self, what: &str) {
        if self.0.is_hidden() {
            eprintln!("{what}");
        } else {
            self.0.println(what);
        }
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Whether a run went through to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All steps are done.
    Complete,
    /// The user stopped it.
    Interrupted,
}

/// Goes through the steps. An interrupt ends it without an error; any other error is returned.
pub fn walk(
    steps: &[Step],
    progress: &Progress,
    mut each: impl FnMut(Step) -> Result<()>,
) -> Result<Ended> {
    for step in steps {
        if interrupt::stopped() {
            return Ok(Ended::Interrupted);
        }
        match each(*step) {
            Err(e) if interrupt::is_interrupt(&e) => return Ok(Ended::Interrupted),
            done => done?,
        }
        progress.step();
    }
    Ok(Ended::Complete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn everything_once_and_variants_side_by_side() {
        let steps = interleaved(3, 7, 4, 1);
        assert_eq!(steps.len(), 84);
        assert_eq!(steps.iter().collect::<HashSet<_>>().len(), 84);
        for group in steps.chunks(3) {
            assert!(group.iter().all(|s| (s.rep, s.cell) == (group[0].rep, group[0].cell)));
        }
        assert!(steps.windows(2).all(|w| w[0].rep <= w[1].rep));
        assert_eq!(steps, interleaved(3, 7, 4, 1));
        assert_ne!(steps, interleaved(3, 7, 4, 2));
        let firsts: HashSet<usize> = steps.chunks(3).map(|g| g[0].variant).collect();
        assert_eq!(firsts.len(), 3);
    }

    #[test]
    fn an_error_stops_the_walk() {
        let progress = Progress::new("test", 4);
        let mut seen = 0;
        let r = walk(&interleaved(1, 4, 1, 1), &progress, |_| {
            seen += 1;
            if seen == 2 { Err(crate::anyhow!("broken")) } else { Ok(()) }
        });
        assert_eq!((r.unwrap_err().to_string().as_str(), seen), ("broken", 2));
        let r = walk(&interleaved(1, 4, 1, 1), &progress, |_| Err(interrupt::Interrupted.into()));
        assert_eq!(r.unwrap(), Ended::Interrupted);
    }
}
