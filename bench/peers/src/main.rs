//! `uext4-bench`: how fast uext4 is beside its peers, all measured side by side in one run.

mod flat;
mod meta;
mod peer;
mod record;
mod report;
mod tree;
mod workloads;

use bench_core::image::Workdir;
use bench_core::plan::{self, Progress};
use bench_core::results::{Results, Variant};
use bench_core::{Context, Result, bail, interrupt, tools};
use clap::{Args, Parser, Subcommand};
use peer::{Kind, Peer};
use record::Recorder;
use std::path::{Path, PathBuf};
use std::time::Instant;
use workloads::{SCENARIOS, Scale};

#[derive(Parser)]
#[command(name = "uext4-bench", version, about = "How fast uext4 is beside its peers")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Measure, and write results.json and page.html
    Run(RunArgs),
    /// Print the table of a results.json, and write the page beside it
    Report {
        /// The file
        results: PathBuf,
    },
    /// One kind of metadata operation on many files; prints the seconds it took
    Meta {
        /// create, mknod, stat, rename, rename-back or unlink
        op: String,
        /// The directory
        dir: PathBuf,
        /// The number of the first file
        first: u64,
        /// How many
        count: u64,
        /// From how many threads
        clients: u64,
    },
}

#[derive(Args)]
struct RunArgs {
    /// Small files and short loads
    #[arg(long)]
    quick: bool,
    /// Repetitions [default: 3; quick: 1]
    #[arg(long)]
    reps: Option<usize>,
    /// Only these scenarios: stream, small, direct, fsync, meta1, meta4, tree, sqlite, many,
    /// extents, mount
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these peers: uext4, emptyfs, kernel, fuse2fs, image
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Where results.json and page.html go
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Size of each image in MiB
    #[arg(long, default_value_t = 4096)]
    image_mib: u64,
}

fn main() {
    let done = match Cli::parse().what {
        What::Run(args) => run(&args),
        What::Report { results } => report(&results),
        What::Meta { op, dir, first, count, clients } => client(&op, &dir, first, count, clients),
    };
    if let Err(e) = done {
        eprintln!("uext4-bench: {e:#}");
        std::process::exit(1);
    }
}

fn client(op: &str, dir: &Path, first: u64, count: u64, clients: u64) -> Result<()> {
    let which = meta::Op::by_name(op).with_context(|| format!("{op}: no such operation"))?;
    let took = meta::run(which, dir, first, count, clients.max(1))
        .with_context(|| format!("{op} in {}", dir.display()))?;
    println!("{:.6}", took.as_secs_f64());
    Ok(())
}

fn report(path: &Path) -> Result<()> {
    let r = Results::load(path)?;
    println!("{}", report::table(&r).text());
    std::fs::write(path.with_file_name("page.html"), report::page(&r).html())?;
    Ok(())
}

fn run(args: &RunArgs) -> Result<()> {
    interrupt::catch()?;
    tools::need_root("measuring beside the kernel's ext4 over a loop device")?;
    let scale = if args.quick { Scale::QUICK } else { Scale::FULL };
    let reps = args.reps.unwrap_or(if args.quick { 1 } else { 3 }).max(1);
    let kinds: Vec<Kind> = match args.peers.is_empty() {
        true => Kind::ALL.to_vec(),
        false => args.peers.iter().map(|p| Kind::by_name(p)).collect::<Result<_>>()?,
    };
    let scenarios: Vec<_> = SCENARIOS
        .into_iter()
        .filter(|(name, _)| args.only.is_empty() || args.only.iter().any(|o| o == name))
        .collect();
    if scenarios.is_empty() {
        bail!("no such scenario: {}", args.only.join(", "));
    }
    std::fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let begun = Instant::now();
    let mut results =
        Results::new("bench", "uext4 beside its peers", if args.quick { "quick" } else { "full" });
    for k in &kinds {
        results.variants.push(Variant { name: k.name().into(), detail: k.detail().into() });
    }
    let dir = Workdir::new("bench")?;
    let mib = if args.quick { args.image_mib.min(1024) } else { args.image_mib };
    let mut peers = Vec::new();
    for kind in &kinds {
        peers.push(Peer::new(*kind, &dir, mib << 20)?);
    }
    workloads::warm_memory(if args.quick { 512 << 20 } else { 4 << 30 })?;
    for p in &peers {
        workloads::at_rest(p, &mut Recorder::new(&mut results, 0, p));
    }
    let steps = plan::interleaved(peers.len(), scenarios.len(), reps, 1);
    let progress = Progress::new("bench", steps.len());
    let ended = plan::walk(&steps, &progress, |step| {
        let (name, scenario) = scenarios[step.cell];
        let peer = &mut peers[step.variant];
        progress.say(format!("{name}: {}", peer.kind.name()));
        peer::settle();
        peer.forget_peak();
        let mut recorder = Recorder::new(&mut results, step.rep, peer);
        scenario(peer, &scale, &mut recorder)
            .with_context(|| format!("{name} on {}", peer.kind.name()))
    });
    drop(progress);
    tree::clean_up();
    for peer in peers {
        if let Err(e) = peer.end() {
            results.notes.push(format!("{e:#}"));
        }
    }
    results.complete = ended? == plan::Ended::Complete;
    results.seconds = begun.elapsed().as_secs_f64();
    let path = args.out.join("results.json");
    results.save(&path)?;
    for n in &results.notes {
        eprintln!("uext4-bench: {n}");
    }
    report(&path)?;
    println!("{}", path.with_file_name("page.html").display());
    Ok(())
}
