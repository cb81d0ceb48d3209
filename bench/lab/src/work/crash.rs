//! Files are replaced, the way programs replace them, and at time t the machine stops: nothing
//! more reaches the disk. What does the next mount find under the old names?
//!
//! A stop is `shutdown=nologflush`: what had been handed to the device is on it. (What a device that loses
//! its cache leaves is the crash explorer's affair.) All times are tried at once, each on a mount of its own.

use super::{Context, Done, Row};
use crate::measures::Measured;
use bench_core::target::{Mount, Target};
use bench_core::{Context as _, Result, bail, interrupt};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const OLD: u8 = b'o';
const NEW: u8 = b'n';

/// How a program puts a new version in the place of an old one.
#[derive(Clone, Copy)]
enum Replace {
    /// Write a new file, rename it over the old one; no fsync.
    Rename,
    /// Truncate the old one and write it again; no fsync.
    Truncate,
    /// As the first, with fsync before the rename.
    Fsync,
}

/// With `times` (seconds, separated by blanks), `how` (rename, truncate, fsync), `files` and `size`.
pub fn run(context: &Context<'_>) -> Result<Done> {
    let how = match context.text("how")? {
        "rename" => Replace::Rename,
        "truncate" => Replace::Truncate,
        "fsync" => Replace::Fsync,
        other => bail!("with.how: \"{other}\": rename, truncate or fsync"),
    };
    let times: Vec<(String, f64)> = context
        .text("times")?
        .split_whitespace()
        .map(|t| Ok((t.to_string(), t.parse().with_context(|| format!("with.times: \"{t}\""))?)))
        .collect::<Result<_>>()?;
    let (files, size) = (context.number("files")?, usize::try_from(context.bytes("size")?)?);
    let one = |t: f64, label: &str| at_time(context, how, t, label, files, size);
    let rows: Vec<Result<Row>> = std::thread::scope(|scope| {
        let all: Vec<_> = times
            .iter()
            .map(|(label, t)| {
                let one = &one;
                scope.spawn(move || {
                    let measured = one(*t, label)?;
                    Ok(([("time".to_string(), label.clone())].into(), measured))
                })
            })
            .collect();
        all.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a thread panicked"))).collect()
    });
    Ok(Done { rows: rows.into_iter().collect::<Result<_>>()?, extra: Vec::new() })
}

fn at_time(
    context: &Context<'_>,
    how: Replace,
    time: f64,
    label: &str,
    files: usize,
    size: usize,
) -> Result<Vec<Measured>> {
    let name = format!("crash-{}-{label}", context.live.name);
    let image = context.master.copy(context.dir.join(format!("{name}.img")))?;
    let point = context.dir.join(&name);
    let mount = context.live.target.mount(&image, &point)?;
    for n in 0..files {
        write(&mount.dir().join(format!("f{n}")), OLD, size, false)?;
    }
    mount.ctl(&["sync"])?;
    let start = Instant::now();
    for n in 0..files {
        let old = mount.dir().join(format!("f{n}"));
        match how {
            Replace::Truncate => write(&old, NEW, size, false)?,
            Replace::Rename | Replace::Fsync => {
                let new = mount.dir().join(format!("f{n}.new"));
                write(&new, NEW, size, matches!(how, Replace::Fsync))?;
                fs::rename(&new, &old)?;
            }
        }
    }
    let end = start + Duration::from_secs_f64(time);
    while Instant::now() < end {
        interrupt::check()?;
        std::thread::sleep(
            end.saturating_duration_since(Instant::now()).min(Duration::from_millis(20)),
        );
    }
    mount.ctl(&["shutdown=nologflush"])?;
    // It cannot be made clean, and says so; that it is gone is enough.
    let daemon = mount.daemon();
    let _ = mount.unmount();
    wait_for_end(daemon)?;
    let again: Mount = again(&context.live.target).mount(&image, &point)?;
    let mut found = [0usize; 5];
    for n in 0..files {
        let bytes = fs::read(again.dir().join(format!("f{n}"))).unwrap_or_default();
        found[kind(&bytes, size) as usize] += 1;
    }
    again.unmount()?;
    if let Some(wrong) = image.fsck()? {
        bail!("after the crash at {label} s: e2fsck: {wrong}");
    }
    let percent = |n: usize| n as f64 * 100.0 / files as f64;
    let [old, new, empty, zeros, mixed] = found;
    Ok(vec![
        Measured::new("old", percent(old)),
        Measured::new("new", percent(new)),
        Measured::new("empty", percent(empty)),
        Measured::new("zeros", percent(zeros)),
        Measured::new("mixed", percent(mixed)),
        Measured::new("lost", percent(empty + zeros + mixed)),
    ])
}

/// The daemon has let go of the image.
fn wait_for_end(daemon: Option<u32>) -> Result<()> {
    let Some(pid) = daemon else { return Ok(()) };
    let end = Instant::now() + Duration::from_secs(30);
    while Path::new(&format!("/proc/{pid}")).exists() {
        if Instant::now() > end {
            bail!("the daemon does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// To look at what is left, no imitated disk is needed.
fn again(target: &Target) -> Target {
    match target {
        Target::Uext4 { .. } => Target::Uext4 { options: String::new() },
        other => other.clone(),
    }
}

fn write(path: &Path, byte: u8, size: usize, sync: bool) -> Result<()> {
    let mut file = File::create(path).with_context(|| path.display().to_string())?;
    file.write_all(&vec![byte; size])?;
    if sync {
        file.sync_all()?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Old,
    New,
    Empty,
    Zeros,
    Mixed,
}

fn kind(bytes: &[u8], size: usize) -> Kind {
    match bytes {
        [] => Kind::Empty,
        b if b.len() == size && b.iter().all(|x| *x == OLD) => Kind::Old,
        b if b.len() == size && b.iter().all(|x| *x == NEW) => Kind::New,
        b if b.iter().all(|x| *x == 0) => Kind::Zeros,
        _ => Kind::Mixed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_has_a_name() {
        for (bytes, want) in [
            (&b""[..], Kind::Empty),
            (b"oooo", Kind::Old),
            (b"nnnn", Kind::New),
            (b"nnn", Kind::Mixed),
            (b"nn\0\0", Kind::Mixed),
            (b"\0\0\0\0", Kind::Zeros),
        ] {
            assert_eq!(kind(bytes, 4), want);
        }
    }
}
