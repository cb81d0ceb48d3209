//! What ffsb did in 2010: each thread reads either a whole file or a piece of one at a random
//! place, in small direct reads; as often the one as the other.

use super::{Context, Done};
use crate::measures::Measured;
use bench_core::{Context as _, Result, bail, interrupt};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Direct I/O wants its memory aligned.
const ALIGN: usize = 4096;

/// With `threads`, `piece` and `block`.
pub fn run(context: &Context<'_>) -> Result<Done> {
    let (threads, piece, block) =
        (context.number("threads")?, context.bytes("piece")?, context.bytes("block")?);
    if block == 0 || piece < block || threads == 0 {
        bail!("with: threads and block may not be 0, nor piece less than block");
    }
    let mount = context.live.mounts().first().context("not mounted")?;
    let mut files = Vec::new();
    collect(mount.dir(), &mut files)?;
    if files.is_empty() {
        bail!("pieces: the image has no files");
    }
    let (read, readall) = (AtomicU64::new(0), AtomicU64::new(0));
    let time = Duration::from_secs_f64(context.seconds);
    let start_together = Barrier::new(threads + 1);
    let mut begun = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let mut all = Vec::new();
        for n in 0..threads {
            let (files, read, readall, together) = (&files, &read, &readall, &start_together);
            let seed = (context.rep * threads + n) as u64;
            let job = Job { files, piece, block, time, seed };
            let builder = std::thread::Builder::new().stack_size(128 << 10);
            all.push(builder.spawn_scoped(scope, move || {
                together.wait();
                job.run(read, readall)
            })?);
        }
        start_together.wait();
        begun = Instant::now();
        for t in all {
            t.join().unwrap_or_else(|_| bail!("a reader panicked"))?;
        }
        Ok(())
    })?;
    interrupt::check()?;
    let seconds = begun.elapsed().as_secs_f64();
    let mb = |n: &AtomicU64| n.load(Relaxed) as f64 / 1e6 / seconds;
    let measured = vec![Measured::new("read", mb(&read)), Measured::new("readall", mb(&readall))];
    Ok(Done { rows: vec![(BTreeMap::new(), measured)], extra: Vec::new() })
}

struct Job<'a> {
    files: &'a [(PathBuf, u64)],
    piece: u64,
    block: u64,
    time: Duration,
    seed: u64,
}

impl Job<'_> {
    fn run(&self, read: &AtomicU64, readall: &AtomicU64) -> Result<()> {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let size = usize::try_from(self.block)?;
        let mut memory = vec![0u8; size + ALIGN];
        let from = memory.as_ptr().align_offset(ALIGN);
        let buf = &mut memory[from..from + size];
        let end = Instant::now() + self.time;
        while Instant::now() < end && !interrupt::stopped() {
            let (path, len) = &self.files[rng.usize(..self.files.len())];
            let file = open(path)?;
            let (start, stop, count) = if rng.bool() {
                (0, *len, readall)
            } else {
                let last = len.saturating_sub(self.piece) / self.block;
                let start = rng.u64(..=last) * self.block;
                (start, (start + self.piece).min(*len), read)
            };
            let mut at = start;
            while at < stop && Instant::now() < end {
                let n = file.read_at(buf, at).with_context(|| path.display().to_string())?;
                if n == 0 {
                    bail!("{}: shorter than it was", path.display());
                }
                count.fetch_add(n as u64, Relaxed);
                at += n as u64;
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> Result<File> {
    let direct = nix::fcntl::OFlag::O_DIRECT.bits();
    let file = OpenOptions::new().read(true).custom_flags(direct).open(path);
    file.with_context(|| path.display().to_string())
}

fn collect(dir: &Path, into: &mut Vec<(PathBuf, u64)>) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(dir)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for e in entries {
        let kind = e.file_type()?;
        if kind.is_dir() && e.file_name() != "lost+found" {
            collect(&e.path(), into)?;
        } else if kind.is_file() && e.metadata()?.len() > 0 {
            into.push((e.path(), e.metadata()?.len()));
        }
    }
    Ok(())
}
