//! `uext4 lab`: repeatable experiments over live mounts; `uext4 top`: a live view of one.
//! The `uext4` command runs this program from beside itself.

mod compare;
mod experiments;
mod measures;
mod report;
mod run;
mod spec;
mod top;
mod work;

use bench_core::results::Results;
use bench_core::table::Table;
use bench_core::{Result, bail, interrupt};
use clap::{Args, Parser, Subcommand};
use spec::{Experiment, Scale};
use std::path::PathBuf;
use std::process::ExitCode;

/// Repeatable experiments over live mounts of uext4, and a live view of one.
#[derive(Parser)]
#[command(name = "uext4", bin_name = "uext4", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Repeatable experiments
    #[command(subcommand)]
    Lab(Lab),
    /// A live view of a mount
    Top(top::TopArgs),
}

#[derive(Subcommand)]
enum Lab {
    /// Print the built-in experiments
    List,
    /// Print an experiment's file, to be copied and changed
    Show {
        /// The name of a built-in experiment
        name: String,
    },
    /// Run experiments and write a report
    Run(RunArgs),
    /// What changed between two runs, and whether it is more than noise
    Compare {
        /// results.json of the first run
        a: PathBuf,
        /// results.json of the second
        b: PathBuf,
    },
}

#[derive(Args)]
struct RunArgs {
    /// Names of built-in experiments, files, or all
    #[arg(required = true)]
    what: Vec<String>,
    /// How much: quick is under two minutes each
    #[arg(long, value_enum, default_value = "quick")]
    scale: Scale,
    /// Where the report goes
    #[arg(long, default_value = "lab-results")]
    out: PathBuf,
    /// Where the images are put, such as a directory on the disk in question [default: /dev/shm]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Without the disk model and around the page cache: measures what --dir is on
    #[arg(long)]
    real: bool,
    /// So many repetitions instead
    #[arg(long)]
    repetitions: Option<usize>,
    /// So many seconds for each measurement instead
    #[arg(long)]
    seconds: Option<f64>,
    /// Chooses the order of measurements
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Lab(Lab::List) => list(),
        Command::Lab(Lab::Show { name }) => experiments::text(&name).map(|t| print!("{t}")),
        Command::Lab(Lab::Run(args)) => run(&args),
        Command::Lab(Lab::Compare { a, b }) => compare(&a, &b),
        Command::Top(args) => top::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if interrupt::is_interrupt(&e) => ExitCode::from(130),
        Err(e) => {
            eprintln!("uext4: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn list() -> Result<()> {
    let mut t = Table::new(["experiment", "what it asks"]);
    t.left = 2;
    for e in experiments::all()? {
        t.row([e.name.get_ref().clone(), e.title]);
    }
    println!("{}\nuext4 lab run NAME, or all; uext4 lab show NAME prints its file", t.text());
    Ok(())
}

fn compare(a: &std::path::Path, b: &std::path::Path) -> Result<()> {
    print!("{}", compare::text(&Results::load(a)?, &Results::load(b)?));
    Ok(())
}

fn chosen(what: &[String]) -> Result<Vec<Experiment>> {
    let mut all = Vec::new();
    for w in what {
        if w == "all" {
            all.extend(experiments::all()?);
        } else if w.ends_with(".toml") || w.contains('/') {
            all.push(Experiment::read(std::path::Path::new(w))?);
        } else {
            all.push(experiments::named(w)?);
        }
    }
    Ok(all)
}

fn run(args: &RunArgs) -> Result<()> {
    let experiments = chosen(&args.what)?;
    if args.repetitions == Some(0) || args.seconds.is_some_and(|s| s.is_nan() || s <= 0.0) {
        bail!("--repetitions and --seconds are more than 0");
    }
    let how = run::How {
        scale: args.scale,
        real: args.real,
        seed: args.seed,
        repetitions: args.repetitions,
        seconds: args.seconds,
    };
    let shm = PathBuf::from("/dev/shm");
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None if shm.is_dir() => shm,
        None => std::env::temp_dir(),
    };
    if !dir.is_dir() {
        bail!("--dir: no such directory: {}", dir.display());
    }
    bench_core::image::put_in(&dir);
    bench_core::tools::uext4()?;
    bench_core::tools::need("fio", "fio")?;
    bench_core::tools::need("mkfs.ext4", "e2fsprogs")?;
    interrupt::catch()?;
    let mut done: Vec<(Experiment, Results)> = Vec::new();
    let mut failed = Vec::new();
    for e in experiments {
        let results = match run::run(&e, &how) {
            Ok(results) => results,
            Err(err) => {
                eprintln!("uext4: {}: {err:#}", e.name.get_ref());
                failed.push(e.name.into_inner());
                continue;
            }
        };
        report::write(&e, &results, &args.out.join(e.name.get_ref()))?;
        print!("{}", report::text(&e, &results));
        done.push((e, results));
        if interrupt::stopped() {
            break;
        }
    }
    std::fs::create_dir_all(&args.out)?;
    let page = args.out.join("report.html");
    std::fs::write(&page, report::together(&done).html())?;
    println!("\nreport: {}", page.display());
    interrupt::check()?;
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}
