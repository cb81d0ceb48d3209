//! A large file written from its beginning to its end, as dd does, until the last page of it has
//! been written out by the flusher.

use super::{Context, Done, extents, pieces_of};
use crate::measures::Measured;
use bench_core::{Context as _, Result, bail, interrupt};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the flusher may need for what is left.
const PATIENCE: Duration = Duration::from_secs(120);

/// With `size` and `block`.
pub fn run(context: &Context<'_>) -> Result<Done> {
    let (size, block) = (context.bytes("size")?, context.bytes("block")?);
    if block == 0 || size < block {
        bail!("with: block may not be 0, nor more than size");
    }
    let mount = context.live.mounts().first().context("not mounted")?;
    let name = Path::new("stream");
    let path = mount.dir().join(name);
    let data = vec![0u8; usize::try_from(block)?];
    let mut file = File::create(&path).with_context(|| path.display().to_string())?;
    let start = Instant::now();
    for _ in 0..size / block {
        interrupt::check()?;
        file.write_all(&data)?;
    }
    while mount.ctl(&["dirty_now"])?.trim() != "0" {
        interrupt::check()?;
        if start.elapsed() > PATIENCE {
            bail!("the flusher does not come to an end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let seconds = start.elapsed().as_secs_f64();
    let pieces = pieces_of(&extents(&mount.ctl_of(name, &["extents"])?));
    drop(file);
    fs::remove_file(&path)?;
    mount.ctl(&["sync"])?;
    let measured = vec![
        Measured::new("write", (size / block * block) as f64 / 1e6 / seconds),
        Measured::new("fragments_per_file", pieces as f64),
    ];
    Ok(Done { rows: vec![(BTreeMap::new(), measured)], extra: Vec::new() })
}
