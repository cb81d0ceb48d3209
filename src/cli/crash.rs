//! `uext4 crash`: the crash explorer over a recorded log, and over workloads of its own.

use super::Failure;
use super::args::{CrashArgs, CrashCommand, ExploreArgs, RunArgs, print};
use crate::crash::{
    Budget, Checker, History, ImageSpec, Op, Promise, Report, Setup, State, explore, matrix,
    record, try_state, workloads,
};
use parking_lot::Mutex;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Runs `uext4 crash`.
pub fn run(args: &CrashArgs) -> Result<(), Failure> {
    // States are damaged on purpose: what a mount says of them is shown only if asked for.
    if std::env::var_os("UEXT4_LOG").is_some() {
        super::logging::start();
    }
    match &args.command {
        CrashCommand::Explore(a) => explore_log(a),
        CrashCommand::Run(a) => run_workloads(a),
        CrashCommand::List => print(&format!("{}\nrandom:SEED\n", workloads::NAMES.join("\n"))),
    }
}

fn failed(e: impl std::fmt::Display) -> Failure {
    Failure::failed(e.to_string())
}

/// A directory that goes when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Failure> {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let dir = base.join(format!("uext4-crash-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(failed)?;
        Ok(Scratch(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A line on standard error that is rewritten, where that is a terminal.
struct Bar {
    shown: Option<Instant>,
    label: String,
}

impl Bar {
    fn new(label: &str) -> Bar {
        Bar { shown: std::io::stderr().is_terminal().then(Instant::now), label: label.into() }
    }

    fn show(&mut self, done: usize, of: usize) {
        let Some(last) = self.shown else { return };
        if last.elapsed() > Duration::from_millis(100) {
            self.shown = Some(Instant::now());
            let width = 30;
            let full = (done * width).checked_div(of).unwrap_or(width).min(width);
            let _ = write!(
                std::io::stderr(),
                "\r{} [{}{}] {done}/{of} ",
                self.label,
                "#".repeat(full),
                "-".repeat(width - full)
            );
        }
    }

    fn end(&self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn budget(a: &super::args::BudgetArgs) -> Budget {
    Budget {
        states: a.states,
        time: Duration::from_secs(a.time),
        seed: a.seed,
        fsck_every: a.fsck_every,
        kernel_every: a.kernel_every,
        interrupt_every: a.interrupt_every,
        failures: a.failures,
    }
}

fn summary(report: &Report) -> String {
    format!(
        "{} states at {} instants, {:.0} per second; e2fsck {}, kernel {}, interrupted recoveries {}; {} wrong",
        report.states,
        report.points,
        report.rate(),
        report.fscks,
        report.kernels,
        report.interrupted,
        report.failing.len()
    )
}

fn show_failing(report: &Report) -> Result<(), Failure> {
    for f in &report.failing {
        let mut text = format!("WRONG in state {}\n", f.state);
        f.wrong.iter().for_each(|w| text += &format!("  {w}\n"));
        f.story.iter().for_each(|w| text += &format!("    {w}\n"));
        print(&text)?;
    }
    Ok(())
}

fn explore_log(a: &ExploreArgs) -> Result<(), Failure> {
    let scratch = Scratch::new()?;
    let history = History::load(&a.log, &a.image).map_err(failed)?;
    let promise = if a.stale_ok { Promise::Nothing } else { Promise::NoStale };
    let checker = Checker::new(&history.base, &history.entries, promise).map_err(failed)?;
    if let Some(state) = &a.state {
        let state = State::parse(state).ok_or_else(|| Failure::usage("not a state"))?;
        let with_kernel = a.budget.kernel_every != 0;
        let (wrong, story) =
            try_state(&history, &checker, &state, with_kernel, &scratch.0).map_err(failed)?;
        print(&format!("{}\n", story.join("\n")))?;
        return if wrong.is_empty() {
            print("nothing wrong\n")
        } else {
            print(&format!("{}\n", wrong.join("\n")))?;
            Err(Failure::failed(""))
        };
    }
    let mut bar = Bar::new("exploring");
    let report =
        explore(&history, &checker, &budget(&a.budget), &scratch.0, &mut |n, of| bar.show(n, of))
            .map_err(failed)?;
    bar.end();
    show_failing(&report)?;
    print(&format!("{}; seed {}\n", summary(&report), a.budget.seed))?;
    if report.failing.is_empty() { Ok(()) } else { Err(Failure::failed("")) }
}

/// The workloads asked for: names, or files of operations.
fn workload(name: &str, block: u64) -> Result<Vec<(String, Vec<Op>)>, Failure> {
    if name == "all" {
        let of = |n: &&str| workloads::by_name(n, block).map(|ops| (n.to_string(), ops));
        return Ok(workloads::NAMES.iter().filter_map(of).collect());
    }
    if let Some(ops) = workloads::by_name(name, block) {
        return Ok(vec![(name.to_string(), ops)]);
    }
    let text = std::fs::read_to_string(name).map_err(|e| {
        Failure::usage(format!("{name}: no workload of that name, and no file: {e}"))
    })?;
    let ops = Op::parse_all(&text).map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    Ok(vec![(name.to_string(), ops)])
}

/// One workload on one image with one set of options.
struct Task {
    number: usize,
    name: String,
    ops: Vec<Op>,
    setup: Setup,
}

fn tasks(a: &RunArgs) -> Result<Vec<Task>, Failure> {
    let setups = if a.matrix {
        matrix::setups()
    } else {
        let image = ImageSpec { size: a.size << 20, mkfs: a.mkfs.clone() };
        vec![Setup { image, options: a.options.clone() }]
    };
    let mut tasks = Vec::new();
    for setup in setups {
        let block = matrix::block_size(&setup.image.mkfs);
        for name in &a.workloads {
            for (name, ops) in workload(name, block)? {
                tasks.push(Task { number: tasks.len() + 1, name, ops, setup: setup.clone() });
            }
        }
    }
    Ok(tasks)
}

fn run_task(a: &RunArgs, task: &Task, alone: bool, scratch: &Path) -> std::io::Result<Report> {
    let recorded = record(&task.setup, &task.ops, scratch)?;
    if a.budget.verbose {
        recorded.failed.iter().for_each(|f| eprintln!("    failed: {f}"));
    }
    let keep = |path: &Path, image: &crate::device::MemDevice| {
        image.save(&with_suffix(path, ".img"))?;
        std::fs::copy(&recorded.log, with_suffix(path, ".log")).map(drop)
    };
    if let Some(path) = a.keep.as_deref().filter(|_| alone) {
        keep(path, &recorded.image)?;
    }
    let history = History::new(recorded.image, &recorded.log)?;
    let checker = Checker::new(&history.base, &history.entries, recorded.promise);
    let checker = checker.map_err(std::io::Error::other)?;
    let mut bar = Bar::new(&task.name);
    let report = explore(&history, &checker, &budget(&a.budget), scratch, &mut |n, of| {
        if alone {
            bar.show(n, of);
        }
    })?;
    bar.end();
    if let Some(path) = a.keep.as_deref().filter(|_| !alone && !report.failing.is_empty()) {
        keep(&with_suffix(path, &format!("-{}", task.number)), &history.base)?;
    }
    Ok(report)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What the threads that run tasks share.
struct Progress {
    total: Report,
    done: usize,
    bar: Bar,
    broken: Option<Failure>,
}

fn run_workloads(a: &RunArgs) -> Result<(), Failure> {
    let began = Instant::now();
    let scratch = Scratch::new()?;
    let all = tasks(a)?;
    let of = all.len();
    let todo = all.get(a.from.saturating_sub(1)..).unwrap_or_default();
    let jobs = match a.jobs {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        n => n,
    };
    let next = AtomicUsize::new(0);
    let progress = Mutex::new(Progress {
        total: Report::default(),
        done: 0,
        bar: Bar::new("runs"),
        broken: None,
    });
    std::thread::scope(|scope| {
        for job in 0..jobs.min(todo.len()) {
            let (next, progress, scratch) = (&next, &progress, scratch.0.join(job.to_string()));
            scope.spawn(move || {
                while let Some(task) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = std::fs::create_dir_all(&scratch)
                        .and_then(|()| run_task(a, task, todo.len() == 1, &scratch));
                    let mut p = progress.lock();
                    if let Err(e) = p.took(task, of, report) {
                        p.broken.get_or_insert(e);
                        next.store(todo.len(), Ordering::Relaxed);
                    }
                    let done = p.done;
                    p.bar.show(done, todo.len());
                }
            });
        }
    });
    let p = progress.into_inner();
    p.bar.end();
    if let Some(e) = p.broken {
        return Err(e);
    }
    let spent = began.elapsed().as_secs();
    print(&format!(
        "all {} runs: {}; seed {}; {spent} s\n",
        p.done,
        summary(&p.total),
        a.budget.seed
    ))?;
    if p.total.failing.is_empty() { Ok(()) } else { Err(Failure::failed("")) }
}

impl Progress {
    fn took(
        &mut self,
        task: &Task,
        of: usize,
        report: std::io::Result<Report>,
    ) -> Result<(), Failure> {
        let Task { number, name, setup, .. } = task;
        let label = format!("{number}/{of} {name} [{}] [{}]", setup.image.mkfs, setup.options);
        let report =
            report.map_err(|e| failed(format!("{label}: {e}; resume with --from {number}")))?;
        self.bar.end();
        print(&format!("{label}: {}\n", summary(&report)))?;
        show_failing(&report)?;
        self.total.add(report);
        self.done += 1;
        Ok(())
    }
}
