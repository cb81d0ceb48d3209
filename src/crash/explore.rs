//! Going through the states of a history within a budget.

use super::check::{Checker, Wrong};
use super::history::{History, Point};
use super::rng::{Rng, mix};
use super::state::State;
use super::{e2fsck, kernel};
use crate::device::MemDevice;
use crate::device::reclog::Kind;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much is tried.
#[derive(Clone, Debug)]
pub struct Budget {
    /// States at most, spread over the log.
    pub states: usize,
    /// Time at most.
    pub time: Duration,
    /// Chooses among the states.
    pub seed: u64,
    /// Every how many states e2fsck judges; 0 for never.
    pub fsck_every: usize,
    /// Every how many states the kernel replays; 0 for never.
    pub kernel_every: usize,
    /// Every how many states the recovery is interrupted; 0 for never.
    pub interrupt_every: usize,
    /// Stop after so many failing states.
    pub failures: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            states: 1000,
            time: Duration::from_secs(3600),
            seed: 1,
            fsck_every: 8,
            kernel_every: 0,
            interrupt_every: 8,
            failures: 1,
        }
    }
}

/// A state that is wrong.
#[derive(Clone, Debug)]
pub struct Failing {
    /// The state, made as small as it goes.
    pub state: State,
    /// What is wrong with it.
    pub wrong: Wrong,
    /// The writes that were lost or torn, and the marks around the crash.
    pub story: Vec<String>,
}

/// What an exploration found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Distinct states tried.
    pub states: usize,
    /// Of them, judged by e2fsck.
    pub fscks: usize,
    /// Of them, replayed by the kernel.
    pub kernels: usize,
    /// Recoveries interrupted.
    pub interrupted: usize,
    /// Instants of the log.
    pub points: usize,
    /// How long it took.
    pub time: Duration,
    /// What is wrong.
    pub failing: Vec<Failing>,
}

impl Report {
    /// States per second.
    pub fn rate(&self) -> f64 {
        self.states as f64 / self.time.as_secs_f64().max(0.001)
    }

    /// Adds another report's numbers and failures.
    pub fn add(&mut self, other: Report) {
        self.states += other.states;
        self.fscks += other.fscks;
        self.kernels += other.kernels;
        self.interrupted += other.interrupted;
        self.points += other.points;
        self.time += other.time;
        self.failing.extend(other.failing);
    }
}

/// Which judges beside the checker a state meets.
#[derive(Clone, Copy, Default)]
struct Judges {
    fsck: bool,
    kernel: bool,
    interrupt: Option<u64>,
}

/// Tries the states of `history`. `progress` is called after each with how many were tried and how many
/// there will be at most.
///
/// # Errors
/// Of the scratch directory and the judges; the states themselves go to the report.
pub fn explore(
    history: &History,
    checker: &Checker,
    budget: &Budget,
    scratch: &Path,
    progress: &mut dyn FnMut(usize, usize),
) -> io::Result<Report> {
    let began = Instant::now();
    let points = &history.points;
    let mut report = Report { points: points.len(), ..Report::default() };
    let disk = history.base.snapshot();
    let mut left = budget.states;
    for (i, point) in points.iter().enumerate() {
        history.settle(&disk, point).map_err(io::Error::other)?;
        let mut rng = Rng::new(mix(budget.seed ^ mix(i as u64)));
        // The shares of instants with nothing in doubt go to the others.
        let doubtful = points[i..].iter().filter(|p| !p.pending.is_empty()).count().max(1);
        let sure = points.len() - i - doubtful.min(points.len() - i);
        let share = left.saturating_sub(sure) / doubtful;
        // More instants than states: some are left out.
        let ahead = (points.len() - i) as u64;
        if left == 0 || (left as u64) < ahead && rng.below(ahead) >= left as u64 {
            continue;
        }
        let share = if point.pending.is_empty() { 1 } else { share.max(1) };
        let states = history.states(point, share, &mut rng);
        for state in states.into_iter().take(left) {
            let n = report.states + 1;
            let due = |every: usize| every != 0 && n.is_multiple_of(every);
            let judges = Judges {
                fsck: due(budget.fsck_every),
                kernel: due(budget.kernel_every),
                interrupt: due(budget.interrupt_every).then(|| 1 + rng.below(24)),
            };
            left -= 1;
            report.states = n;
            report.fscks += usize::from(judges.fsck);
            report.kernels += usize::from(judges.kernel);
            report.interrupted += usize::from(judges.interrupt.is_some());
            let wrong = judge(history, checker, &disk, &state, judges, scratch)?;
            if !wrong.is_empty() {
                let found =
                    smallest(history, checker, &disk, point, state, judges, scratch, wrong)?;
                report.failing.push(found);
            }
            progress(n, budget.states);
            if report.failing.len() >= budget.failures || began.elapsed() >= budget.time {
                report.time = began.elapsed();
                return Ok(report);
            }
        }
    }
    report.time = began.elapsed();
    Ok(report)
}

/// Tries one state, with e2fsck and (if asked) the kernel.
///
/// # Errors
/// As [`explore`].
pub fn try_state(
    history: &History,
    checker: &Checker,
    state: &State,
    with_kernel: bool,
    scratch: &Path,
) -> io::Result<(Wrong, Vec<String>)> {
    let (point, disk) = history.stable_at(state.at).map_err(io::Error::other)?;
    let judges = Judges { fsck: true, kernel: with_kernel, interrupt: None };
    let wrong = judge(history, checker, &disk, state, judges, scratch)?;
    let pending = point.map_or(&[][..], |p| &p.pending);
    Ok((wrong, story(history, state, pending)))
}

fn judge(
    history: &History,
    checker: &Checker,
    stable: &MemDevice,
    state: &State,
    judges: Judges,
    scratch: &Path,
) -> io::Result<Wrong> {
    let disk = Arc::new(history.disk(stable, state).map_err(io::Error::other)?);
    let crashed = judges.kernel.then(|| disk.snapshot());
    let mut wrong = match judges.interrupt {
        Some(n) => checker.check_interrupted(&disk, state.at, n),
        None => checker.check(&disk, state.at),
    };
    if judges.fsck {
        wrong.extend(e2fsck(&disk, scratch, "fsck.img")?);
    }
    if let Some(crashed) = crashed {
        let (said, left) = kernel(&crashed, scratch, "kernel.img")?;
        wrong.extend(said);
        if let Some(left) = left.filter(|_| wrong.is_empty()) {
            wrong.extend(checker.differences(&disk, &Arc::new(left)));
        }
    }
    Ok(wrong)
}

/// Gives back lost writes one by one as long as the state stays wrong.
#[allow(clippy::too_many_arguments)]
fn smallest(
    history: &History,
    checker: &Checker,
    stable: &MemDevice,
    point: &Point,
    mut state: State,
    judges: Judges,
    scratch: &Path,
    mut wrong: Wrong,
) -> io::Result<Failing> {
    let mut tries = 400;
    let mut attempt = |s: &State| -> io::Result<Option<Wrong>> {
        if tries == 0 {
            return Ok(None);
        }
        tries -= 1;
        let w = judge(history, checker, stable, s, judges, scratch)?;
        Ok((!w.is_empty()).then_some(w))
    };
    for t in state.torn.clone() {
        let mut s = state.clone();
        s.torn.retain(|x| *x != t);
        if let Some(w) = attempt(&s)? {
            (state, wrong) = (s, w);
        }
    }
    for p in &point.pending {
        if state.keep.contains(p) {
            continue;
        }
        let mut s = state.clone();
        s.keep.push(*p);
        s.keep.sort_unstable();
        if let Some(w) = attempt(&s)? {
            (state, wrong) = (s, w);
        }
    }
    let mut story = story(history, &state, &point.pending);
    if let Some(n) = judges.interrupt {
        story.push(format!("the recovery was interrupted at its write {n}"));
    }
    Ok(Failing { state, wrong, story })
}

fn story(history: &History, state: &State, pending: &[u64]) -> Vec<String> {
    let mut out = Vec::new();
    let lost: Vec<u64> = pending.iter().copied().filter(|p| !state.keep.contains(p)).collect();
    out.push(format!(
        "crash before entry {}: of {} writes in doubt {} lost, {} torn",
        history.describe(state.at),
        pending.len(),
        lost.len(),
        state.torn.len()
    ));
    out.extend(lost.iter().take(12).map(|s| format!("lost  {}", history.describe(*s))));
    out.extend(
        state.torn.iter().map(|(s, m)| format!("torn  {} (sectors {m:x})", history.describe(*s))),
    );
    let kept = state.keep.iter().filter(|s| !state.torn.iter().any(|t| t.0 == **s));
    out.extend(kept.take(12).map(|s| format!("kept  {}", history.describe(*s))));
    out.extend(history.marks_before(state.at, 10).into_iter().map(|m| format!("mark {m}")));
    let after = history.entries.iter().skip(state.at as usize).find(|e| e.kind == Kind::Mark);
    out.extend(after.map(|e| format!("then {:>6} {}", e.seq, e.text())));
    out
}
