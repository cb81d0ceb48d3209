//! Direct I/O: the three lock modes, live switches, the engines and the disk model, through real mounts,
//! with fio and fsx as the ones who know what was written.
//!
//! `UEXT4_TEST_SCALE=full` runs the sizes and times of the experiments; the default is minutes.

#[path = "../common/mod.rs"]
mod common;

mod aligned;
mod backing;
mod engines;
mod fio;
mod flips;
mod fsx;
mod in_flight;
mod mapped;
mod mix;
mod poison;
mod remount;
mod stale;
mod starvation;
mod sub_block;
mod verify;

use common::{Mount, run, tool, uext4};

/// The three lock modes.
const MODES: [&str; 3] = ["lock", "shared", "nolock"];

/// Sets a name of the mount, or of a file in it.
#[track_caller]
fn ctl(path: &std::path::Path, item: &str) -> String {
    run(std::process::Command::new(uext4()).arg("ctl").arg(path).arg(item))
}

/// A counter of `stats`.
#[track_caller]
fn counter(mount: &Mount, name: &str) -> u64 {
    let stats = ctl(mount.path(), "stats");
    let line = stats.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {stats}")).parse().unwrap()
}

/// A file of `size` whose blocks are all written, in one piece if there is room.
#[track_caller]
fn written_file(mount: &Mount, name: &str, size: u64) -> std::path::PathBuf {
    let path = mount.join(name);
    let mib = size >> 20;
    run(tool("dd")
        .args(["if=/dev/zero", "bs=1M", "conv=fsync", "status=none"])
        .args([format!("count={mib}"), format!("of={}", path.display())]));
    path
}
