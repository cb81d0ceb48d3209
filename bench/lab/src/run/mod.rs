//! Running an experiment: prepare the images, warm up, go through the plan, write down.

mod counters;
mod jobs;
mod live;

pub use live::{How, Live};

use crate::spec::{Experiment, Job};
use crate::work;
use bench_core::image::{Image, Workdir};
use bench_core::plan::{self, Ended, Progress, Step};
use bench_core::results::{Results, Variant};
use bench_core::{Context, Result, interrupt};
use std::collections::BTreeMap;
use std::time::Instant;

/// A job under one set of parameters.
struct Cell<'a> {
    job: &'a Job,
    params: BTreeMap<String, String>,
}

fn cells<'a>(e: &'a Experiment, how: &How) -> Vec<Cell<'a>> {
    let mut all = Vec::new();
    for job in &e.jobs {
        let name = [("job".to_string(), job.name.get_ref().clone())];
        let mut sets = vec![BTreeMap::from(name)];
        for p in &job.params {
            let values = e.values_of(job, p.get_ref(), how.scale);
            sets = sets
                .into_iter()
                .flat_map(|set| {
                    values.iter().map(move |v| {
                        let mut set: BTreeMap<String, String> = set.clone();
                        set.insert(p.get_ref().clone(), v.clone());
                        set
                    })
                })
                .collect();
        }
        all.extend(sets.into_iter().map(|params| Cell { job, params }));
    }
    all
}

struct Runner<'a> {
    e: &'a Experiment,
    how: &'a How,
    dir: &'a Workdir,
    master: &'a Image,
    live: Vec<Live>,
    results: Results,
}

/// Runs it. An interrupt ends it early, with what was measured until then.
pub fn run(e: &Experiment, how: &How) -> Result<Results> {
    let start = Instant::now();
    let mut results = Results::new(e.name.get_ref(), &e.title, how.scale.as_str());
    for v in &e.variants {
        let detail = match live::target(e, v, how.real)? {
            bench_core::target::Target::Uext4 { options } => format!("uext4 -o {options}"),
            bench_core::target::Target::Uext4Raw { options } => format!("uext4 raw -o {options}"),
            _ => format!("{} {}", v.target.get_ref(), v.options).trim().to_string(),
        };
        results.variants.push(Variant { name: v.name.get_ref().clone(), detail });
    }
    results.notes.extend(results.machine.warnings());
    let cells = cells(e, how);
    let reps = how.repetitions.unwrap_or(*e.repetitions.at(how.scale));
    let steps = plan::interleaved(e.variants.len(), cells.len(), reps, how.seed);
    let progress = Progress::new(e.name.get_ref(), steps.len());
    let dir = Workdir::new(&format!("lab-{}", e.name.get_ref()))?;
    let done = prepared(e, how, &dir, results, &cells, &steps, &progress);
    drop(progress);
    let mut results = done?;
    results.seconds = start.elapsed().as_secs_f64();
    Ok(results)
}

fn prepared(
    e: &Experiment,
    how: &How,
    dir: &Workdir,
    mut results: Results,
    cells: &[Cell<'_>],
    steps: &[Step],
    progress: &Progress,
) -> Result<Results> {
    progress.say("preparing the image");
    let master = match live::master(e, dir, how.scale) {
        Err(err) if interrupt::is_interrupt(&err) => return Ok(results),
        made => made?,
    };
    let mut live = Vec::new();
    for v in &e.variants {
        let mut one = Live::new(e, v, &master, dir, how.real)?;
        if e.jobs.iter().any(|j| j.work.as_ref().is_none_or(|w| work::uses_mounts(w.get_ref()))) {
            one.mount()?;
        }
        live.push(one);
    }
    let mut runner = Runner { e, how, dir, master: &master, live, results };
    let ended = runner.warm_up(cells, progress).and_then(|()| {
        plan::walk(steps, progress, |step| {
            let cell = cells.get(step.cell).context("no such cell")?;
            progress.say(format!(
                "{} {}",
                cell.params.values().cloned().collect::<Vec<_>>().join(" "),
                runner.live[step.variant].name
            ));
            runner.measure(cell, step)
        })
    });
    let ended = match ended {
        Err(err) if interrupt::is_interrupt(&err) => Ended::Interrupted,
        other => other?,
    };
    progress.say("unmounting");
    let Runner { live, results: measured, .. } = runner;
    results = measured;
    results.complete = ended == Ended::Complete;
    if !results.complete {
        results.notes.push("interrupted: not everything was measured".into());
    }
    for one in live {
        match one.finish() {
            Ok(None) => {}
            Ok(Some(wrong)) => results.notes.push(wrong),
            Err(err) if interrupt::is_interrupt(&err) => {}
            Err(err) => return Err(err),
        }
    }
    Ok(results)
}

impl Runner<'_> {
    /// Each variant does each job once; what that gives is thrown away.
    fn warm_up(&mut self, cells: &[Cell<'_>], progress: &Progress) -> Result<()> {
        for job in self.e.jobs.iter().filter(|j| j.work.is_none()) {
            let Some(cell) = cells.iter().find(|c| std::ptr::eq(c.job, job)) else { continue };
            for v in 0..self.live.len() {
                interrupt::check()?;
                progress.say(format!("warming up: {} {}", job.name.get_ref(), self.live[v].name));
                self.once(cell, v, 0)?;
            }
        }
        Ok(())
    }

    fn measure(&mut self, cell: &Cell<'_>, step: Step) -> Result<()> {
        let rows = self.once(cell, step.variant, step.rep)?;
        let name = self.live[step.variant].name.clone();
        for (more, measured) in rows {
            let mut params = cell.params.clone();
            params.extend(more);
            for m in measured {
                self.results.add(&name, &params, step.rep, &m.name, m.unit, m.better, m.value);
            }
        }
        Ok(())
    }

    fn once(&mut self, cell: &Cell<'_>, variant: usize, rep: usize) -> Result<Vec<work::Row>> {
        let seconds = self.how.seconds.unwrap_or(*self.e.seconds.at(self.how.scale));
        let live = &mut self.live[variant];
        if cell.job.fresh {
            live.unmount()?;
            live.mount()?;
        }
        let mut values = cell.params.clone();
        // fio reads 0.5s as 0.
        values.insert("runtime".into(), format!("{:.0}ms", (seconds * 1e3).max(1.0)));
        values
            .extend(self.e.values.iter().map(|(n, v)| (n.clone(), v.at(self.how.scale).0.clone())));
        values.extend(live.places());
        let shown = || {
            format!(
                "{}, variant {}",
                cell.params.values().cloned().collect::<Vec<_>>().join(" "),
                live.name
            )
        };
        if let Some(w) = &cell.job.work {
            let args = jobs::options(&cell.job.args, &values);
            let before = counters::Before::now(live);
            let context = work::Context {
                live,
                master: self.master,
                dir: self.dir,
                args: &args,
                seconds,
                rep,
            };
            let mut done = work::run(w.get_ref(), &context).with_context(shown)?;
            if work::uses_mounts(w.get_ref())
                && let [row] = done.rows.as_mut_slice()
            {
                row.1.extend(before.since(live, None));
            }
            for (name, value) in done.extra {
                self.results.extra.insert(format!("{name}:{}", live.name), value);
            }
            return Ok(done.rows);
        }
        let job = jobs::FioJob::new(cell.job, &values, rep);
        let before = counters::Before::now(live);
        let (mut measured, ops) = job.run().with_context(shown)?;
        measured.extend(before.since(live, Some(ops)));
        Ok(vec![(BTreeMap::new(), measured)])
    }
}
