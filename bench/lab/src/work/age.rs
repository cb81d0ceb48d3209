//! Ageing: many files grow at the same time in small pieces, half of them are deleted, more grow
//! in the holes. Then: in how many pieces are the files, and what is left free?

use super::{Context, Done, extents, pieces_of};
use crate::measures::Measured;
use bench_core::target::Mount;
use bench_core::{Result, bail, interrupt};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// With `files` a round, `streams` at a time, `rounds`, `largest` and `piece` (sizes).
pub fn run(context: &Context<'_>) -> Result<Done> {
    let (files, streams, rounds) =
        (context.number("files")?, context.number("streams")?, context.number("rounds")?);
    let (largest, piece) = (context.bytes("largest")?, context.bytes("piece")?);
    if [files, streams, rounds].contains(&0) || piece == 0 || largest < piece {
        bail!("with: nothing may be 0, nor largest less than piece");
    }
    let name = format!("age-{}", context.live.name);
    let image = context.master.copy(context.dir.join(format!("{name}.img")))?;
    let mount = context.live.target.mount(&image, &context.dir.join(&name))?;
    // The same for every variant.
    let mut rng = fastrand::Rng::with_seed(context.rep as u64 + 1);
    let mut there: Vec<PathBuf> = Vec::new();
    let mut maps = Vec::new();
    for round in 0..rounds {
        if round > 0 {
            rng.shuffle(&mut there);
            for gone in there.drain(..files / 2) {
                fs::remove_file(gone)?;
            }
        }
        let wanted = if round == 0 { files } else { files / 2 };
        let mut growing: Vec<(PathBuf, File, u64)> = Vec::new();
        let mut made = 0;
        while made < wanted || !growing.is_empty() {
            interrupt::check()?;
            while growing.len() < streams && made < wanted {
                let path = mount.dir().join(format!("r{round}f{made}"));
                let file = OpenOptions::new().create_new(true).append(true).open(&path)?;
                growing.push((path, file, rng.u64(piece..=largest)));
                made += 1;
            }
            let n = rng.usize(..growing.len());
            let (_, file, left) = &mut growing[n];
            let size = piece.min(*left);
            file.write_all(&vec![round as u8 + 1; usize::try_from(size)?])?;
            *left -= size;
            if *left == 0 {
                let (path, ..) = growing.swap_remove(n);
                there.push(path);
            }
        }
        mount.ctl(&["sync"])?;
        if round == 0 || round + 1 == rounds {
            maps.push(map(&mount, &there, image.size())?);
        }
    }
    let mut pieces = Vec::new();
    let mut used = Vec::new();
    for path in &there {
        let all = of(&mount, path)?;
        pieces.push(pieces_of(&all));
        used.extend(all);
    }
    let free = free_runs(&mount)?;
    mount.unmount()?;
    if let Some(wrong) = image.fsck()? {
        bail!("after ageing: e2fsck: {wrong}");
    }
    let block = free.block as f64 / 1024.0;
    let runs: u64 = free.runs.iter().sum();
    let measured = vec![
        Measured::new(
            "fragments_per_file",
            pieces.iter().sum::<usize>() as f64 / pieces.len().max(1) as f64,
        ),
        Measured::new(
            "files_in_pieces",
            pieces.iter().filter(|p| **p > 1).count() as f64 * 100.0 / pieces.len().max(1) as f64,
        ),
        Measured::new("free_runs", runs as f64),
        Measured::new("free_run_mean_kib", free.blocks as f64 * block / runs.max(1) as f64),
    ];
    let after = maps.pop().unwrap_or_default();
    let extra = vec![
        ("disk".to_string(), json!({ "before": maps.pop().unwrap_or_default(), "after": after })),
        ("free".to_string(), json!({ "block": free.block, "runs_by_order": free.runs })),
    ];
    Ok(Done { rows: vec![(BTreeMap::new(), measured)], extra })
}

fn of(mount: &Mount, path: &Path) -> Result<Vec<(u64, u64)>> {
    let name = path.strip_prefix(mount.dir())?;
    Ok(extents(&mount.ctl_of(name, &["extents"])?))
}

/// A picture of the disk: for each file a list of its extents.
fn map(mount: &Mount, files: &[PathBuf], size: u64) -> Result<serde_json::Value> {
    let mut all: Vec<(String, Vec<(u64, u64)>)> = Vec::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        all.push((name, of(mount, path)?));
    }
    all.sort();
    Ok(json!({ "size": size, "block": 4096, "files": all }))
}

/// Free space by the length of its runs.
struct Free {
    block: u64,
    blocks: u64,
    /// Buddies by order, as mb_groups shows them.
    runs: Vec<u64>,
}

/// From `mb_groups`: `#GROUP: FREE FRAGMENTS FIRST [ BUDDIES BY ORDER ]`.
fn free_runs(mount: &Mount) -> Result<Free> {
    parse_groups(&mount.ctl(&["mb_groups"])?)
}

fn parse_groups(text: &str) -> Result<Free> {
    let mut free = Free { block: 4096, blocks: 0, runs: Vec::new() };
    for line in text.lines().filter(|l| l.starts_with('#') && l.contains('[')) {
        let Some((head, orders)) = line.split_once('[') else { continue };
        let Some((_, numbers)) = head.split_once(':') else { continue };
        let Some(blocks) = numbers.split_whitespace().next().and_then(|n| n.parse::<u64>().ok())
        else {
            continue;
        };
        free.blocks += blocks;
        let orders = orders.split(']').next().unwrap_or_default().split_whitespace();
        for (n, count) in orders.filter_map(|n| n.parse::<u64>().ok()).enumerate() {
            if free.runs.len() <= n {
                free.runs.push(0);
            }
            free.runs[n] += count;
        }
    }
    if free.runs.is_empty() {
        bail!("mb_groups says nothing that can be read");
    }
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::parse_groups;

    #[test]
    fn groups_are_added_up() {
        let text = "#group: free  frags first [ 2^0   2^1   2^2 ]\n\
                    #0    : 7     3     10    [ 1     1     1   ]\n\
                    #1    : 4     1     0     [ 0     0     1   ]\n";
        let free = parse_groups(text).unwrap();
        assert_eq!((free.blocks, free.runs), (11, vec![1, 1, 2]));
        assert!(parse_groups("nonsense").is_err());
    }
}
