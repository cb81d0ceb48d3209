//! `uext4 crash`: the crash explorer over a recorded log, and over workloads of its own.

use super::Failure;
use super::args::{CrashArgs, CrashCommand, ExploreArgs, RunArgs, print};
use crate::crash::{
    Budget, Checker, History, ImageSpec, Op, Promise, Report, Setup, State, explore, record,
    try_state, workloads,
};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
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

/// The matrix: images with mkfs arguments, and mount options.
const IMAGES: &[(u64, &str)] = &[
    (12 << 20, "-b 1024 -J size=1"),
    (20 << 20, "-b 4096 -J size=4 -O orphan_file"),
    (12 << 20, "-b 1024 -J size=1 -O ^metadata_csum,^64bit"),
    (16 << 20, "-b 2048 -J size=2 -O inline_data,ea_inode -I 256"),
];
const OPTIONS: &[&str] = &[
    "dioread_nolock",
    "dioread_shared",
    "dioread_lock",
    "nodelalloc,dioread_nolock",
    "nodelalloc,dioread_lock",
    "data=writeback,dioread_nolock",
    "data=writeback,dioread_lock",
    "data=journal",
    "journal_async_commit,data=writeback",
];

fn run_workloads(a: &RunArgs) -> Result<(), Failure> {
    let scratch = Scratch::new()?;
    let mut setups = Vec::new();
    if a.matrix {
        for (size, mkfs) in IMAGES {
            for options in OPTIONS {
                let image = ImageSpec { size: *size, mkfs: mkfs.to_string() };
                setups.push(Setup { image, options: options.to_string() });
            }
        }
    } else {
        let image = ImageSpec { size: a.size << 20, mkfs: a.mkfs.clone() };
        setups.push(Setup { image, options: a.options.clone() });
    }
    let mut total = Report::default();
    for setup in &setups {
        let block = setup.image.mkfs.split_whitespace().skip_while(|w| *w != "-b").nth(1);
        let block = block.and_then(|b| b.parse().ok()).unwrap_or(4096);
        for name in &a.workloads {
            for (name, ops) in workload(name, block)? {
                let recorded = record(setup, &ops, &scratch.0).map_err(failed)?;
                if let Some(keep) = &a.keep {
                    recorded.image.save(&keep.with_extension("img")).map_err(failed)?;
                    std::fs::copy(&recorded.log, keep.with_extension("log")).map_err(failed)?;
                }
                if a.budget.verbose {
                    recorded
                        .failed
                        .iter()
                        .try_for_each(|f| print(&format!("    failed: {f}\n")))?;
                }
                let history = History::new(recorded.image, &recorded.log).map_err(failed)?;
                let checker = Checker::new(&history.base, &history.entries, recorded.promise)
                    .map_err(failed)?;
                let mut bar = Bar::new(&name);
                let report =
                    explore(&history, &checker, &budget(&a.budget), &scratch.0, &mut |n, of| {
                        bar.show(n, of);
                    })
                    .map_err(failed)?;
                bar.end();
                print(&format!(
                    "{name} [{}] [{}]: {}\n",
                    setup.image.mkfs,
                    setup.options,
                    summary(&report)
                ))?;
                show_failing(&report)?;
                total.add(report);
            }
        }
    }
    print(&format!("all: {}; seed {}\n", summary(&total), a.budget.seed))?;
    if total.failing.is_empty() { Ok(()) } else { Err(Failure::failed("")) }
}
