//! The workloads: each scenario measures one peer, and leaves it as it found it.

use crate::peer::{Kind, Peer};
use crate::record::{Figure, Recorder};
use crate::tree;
use bench_core::fio::{Report, Spec};
use bench_core::{Result, command, procs};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Bytes of a streamed file.
    pub stream: u64,
    /// Bytes of the file for random requests and small writes.
    pub file: u64,
    /// Seconds of each random load.
    pub seconds: f64,
    /// Files of a metadata load.
    pub files: u64,
    /// Files of a tree.
    pub tree: u64,
    /// Files of a large directory.
    pub many: u64,
    /// Rows of the database.
    pub rows: u64,
    /// Extents of a file of many.
    pub extents: u64,
    /// Bytes of an image that is only mounted.
    pub large: u64,
}

impl Scale {
    /// Of `make bench`.
    pub const FULL: Scale = Scale {
        stream: 2 << 30,
        file: 1 << 30,
        seconds: 3.0,
        files: 20_000,
        tree: 10_000,
        many: 200_000,
        rows: 20_000,
        extents: 100_000,
        large: 1 << 40,
    };
    /// Of `make bench-quick`.
    pub const QUICK: Scale = Scale {
        stream: 256 << 20,
        file: 256 << 20,
        seconds: 0.6,
        files: 2_000,
        tree: 1_000,
        many: 0,
        rows: 2_000,
        extents: 0,
        large: 0,
    };
}

/// Measures one peer.
pub type Run = fn(&mut Peer, &Scale, &mut Recorder<'_>) -> Result<()>;

/// The scenarios by name.
pub const SCENARIOS: [(&str, Run); 11] = [
    ("stream", stream),
    ("small", small),
    ("direct", direct),
    ("fsync", fsync),
    ("meta1", |p, s, r| meta(p, s, r, 1)),
    ("meta4", |p, s, r| meta(p, s, r, 4)),
    ("tree", tree::run),
    ("sqlite", sqlite),
    ("many", many),
    ("extents", crate::flat::extents),
    ("mount", crate::flat::mount),
];

pub(crate) fn fio(file: &Path, size: u64) -> Spec {
    Spec::new()
        .set("filename", file.display())
        .set("size", size)
        .set("ioengine", "psync")
        .set("fallocate", "none")
        .set("invalidate", 0)
        .set("norandommap", "")
        .set("randrepeat", 0)
}

pub(crate) fn job(spec: Spec, rw: &str) -> Result<Report> {
    spec.job("job", [("rw", rw.to_string())]).run()
}

/// How long fio's jobs ran: fio itself takes a while to start.
pub(crate) fn ran(r: &Report) -> Option<Duration> {
    let ms = r.jobs.iter().map(|j| j.read.runtime.max(j.write.runtime)).max()?;
    (ms > 0).then(|| Duration::from_millis(ms))
}

pub(crate) fn remove(peer: &Peer, name: &str) {
    if peer.kind != Kind::Bare {
        let _ = std::fs::remove_file(peer.path(name));
    }
}

fn stream(peer: &mut Peer, s: &Scale, r: &mut Recorder<'_>) -> Result<()> {
    let file = peer.path("stream");
    let size =
        if peer.kind == Kind::Bare { s.stream.min(file.metadata()?.len()) } else { s.stream };
    let spec = || fio(&file, size).set("bs", "1m");
    let write = |spec: Spec| -> Result<(Figure, Option<Duration>)> {
        let report = job(spec.set("end_fsync", 1), "write")?;
        Ok((Figure::Bytes(size, 1 << 20), ran(&report)))
    };
    // The first touch of memory is far slower than the second.
    r.timed(peer, "write 1m + fsync", || write(spec()))?;
    r.timed(peer, "rewrite 1m + fsync", || write(spec().set("overwrite", 1)))?;
    peer.cool()?;
    r.timed(peer, "read 1m, cold", || {
        let report = job(spec(), "read")?;
        Ok((Figure::Bytes(size, 1 << 20), ran(&report)))
    })?;
    if let Some((_, peak)) = peer.memory() {
        let peak = peak as f64 / f64::from(1 << 20);
        r.put("memory, streaming", "peak", "MiB", bench_core::results::Better::Lower, peak);
    }
    remove(peer, "stream");
    Ok(())
}

fn small(peer: &mut Peer, s: &Scale, r: &mut Recorder<'_>) -> Result<()> {
    if !peer.has_names() {
        return Ok(());
    }
    let file = peer.path("small");
    let size = s.file / 4;
    let spec = || fio(&file, size).set("bs", "4k");
    for (workload, rw) in [("write 4k", "write"), ("reread 4k", "read")] {
        r.timed(peer, workload, || {
            let report = job(spec(), rw)?;
            Ok((Figure::Rate(report.ops()), ran(&report)))
        })?;
    }
    remove(peer, "small");
    Ok(())
}

/// Lays a file out whole, on the device.
fn lay_out(file: &Path, size: u64) -> Result<()> {
    job(fio(file, size).set("bs", "1m").set("end_fsync", 1), "write").map(|_| ())
}

fn direct(peer: &mut Peer, s: &Scale, r: &mut Recorder<'_>) -> Result<()> {
    let file = peer.path("direct");
    if peer.has_names() {
        lay_out(&file, s.file)?;
    }
    let spec = |engine: &str, depth: u32, jobs: u32| {
        fio(&file, s.file)
            .set("bs", "4k")
            .set("direct", 1)
            .set("ioengine", engine)
            .set("iodepth", depth)
            .set("numjobs", jobs)
            .set("group_reporting", "")
            .set("time_based", "")
            .set("runtime", format!("{}ms", (s.seconds * 1e3) as u64))
    };
    for rw in ["randread", "randwrite"] {
        for (what, engine, depth, jobs) in [
            ("depth 1", "psync", 1, 1),
            ("depth 32", "libaio", 32, 1),
            ("depth 128", "libaio", 128, 1),
            ("16 processes", "psync", 1, 16),
        ] {
            r.timed(peer, &format!("{rw} 4k direct, {what}"), || {
                let report = job(spec(engine, depth, jobs), rw)?;
                Ok((Figure::Rate(report.ops()), ran(&report)))
            })?;
        }
    }
    for n in [1, 4] {
        let both = spec("psync", 1, n)
            .job("read", [("rw", "randread".to_string())])
            .job("write", [("rw", "randwrite".to_string())]);
        let name = format!("direct readers beside writers, {n} and {n}");
        let mut report = Report::default();
        r.timed(peer, &name, || {
            report = both.run()?;
            Ok((Figure::Rate(report.ops()), ran(&report)))
        })?;
        let up = bench_core::results::Better::Higher;
        r.put(&name, "reads", "/s", up, report.jobs.iter().map(|j| j.read.iops).sum());
        r.put(&name, "writes", "/s", up, report.jobs.iter().map(|j| j.write.iops).sum());
    }
    remove(peer, "direct");
    Ok(())
}

fn fsync(peer: &mut Peer, s: &Scale, r: &mut Recorder<'_>) -> Result<()> {
    let file = peer.path("fsync");
    if peer.has_names() {
        lay_out(&file, 64 << 20)?;
    }
    let spec = || {
        fio(&file, 64 << 20)
            .set("bs", "4k")
            .set("fsync", 1)
            .set("time_based", "")
            .set("runtime", format!("{}ms", (s.seconds * 1e3) as u64))
    };
    r.timed(peer, "randwrite 4k + fsync", || {
        let report = job(spec(), "randwrite")?;
        Ok((Figure::Rate(report.ops()), ran(&report)))
    })?;
    remove(peer, "fsync");
    if !peer.has_names() {
        return Ok(());
    }
    // Appending: the size changes, so that each is a commit.
    r.timed(peer, "append 4k + fsync", || {
        let report = job(spec().set("size", 1 << 30), "write")?;
        Ok((Figure::Rate(report.ops()), ran(&report)))
    })?;
    remove(peer, "fsync");
    Ok(())
}

/// One kind of metadata operation, by a process of its own.
fn client(op: &str, dir: &Path, first: u64, count: u64, clients: u64) -> Result<Duration> {
    let mut cmd = Command::new(std::env::current_exe()?);
    cmd.args(["meta", op]).arg(dir);
    cmd.args([first, count, clients].map(|n| n.to_string()));
    let out = command::run(&mut cmd)?;
    Ok(Duration::from_secs_f64(String::from_utf8_lossy(&out.stdout).trim().parse()?))
}

fn meta(peer: &mut Peer, s: &Scale, r: &mut Recorder<'_>, clients: u64) -> Result<()> {
    if !peer.has_names() {
        return Ok(());
    }
    let dir = peer.path("meta");
    std::fs::create_dir(&dir)?;
    let mut step = |peer: &Peer, op: &str, name: &str| {
        let name = match clients {
            1 => format!("{name}, 1 client"),
            n => format!("{name}, {n} clients"),
        };
        r.timed(peer, &name, || {
            Ok((Figure::Rate(s.files), Some(client(op, &dir, 0, s.files, clients)?)))
        })
    };
    step(peer, "create", "create")?;
    step(peer, "stat", "stat, warm")?;
    peer.cool()?;
    step(peer, "stat", "stat, cold")?;
    step(peer, "rename", "rename")?;
    client("rename-back", &dir, 0, s.files, clients)?;
    step(peer, "unlink", "unlink")?;
    std::fs::remove_dir(&dir)?;
    Ok(())
}

/// Many files in one directory: the last ones must not cost more than the first.
fn many(peer: &mut Peer, s: &Scale, r: &mut Recorder<'_>) -> Result<()> {
    // fuse2fs looks through the whole directory for each.
    if !peer.has_names() || peer.kind == Kind::Fuse2fs || s.many < 10_000 {
        return Ok(());
    }
    let dir = peer.path("many");
    std::fs::create_dir(&dir)?;
    let part = 4_000;
    let mut step = |peer: &Peer, what: &str, first: u64, count: u64| {
        r.timed(peer, what, || {
            Ok((Figure::Rate(count), Some(client("create", &dir, first, count, 1)?)))
        })
    };
    client("create", &dir, 0, 2_000, 1)?;
    step(peer, "create at 2,000 entries", 2_000, part)?;
    client("create", &dir, 2_000 + part, s.many - 2_000 - 2 * part, 1)?;
    step(peer, &format!("create at {} entries", s.many), s.many - part, part)?;
    client("unlink", &dir, 0, s.many, 1)?;
    std::fs::remove_dir(&dir)?;
    Ok(())
}

fn sqlite(peer: &mut Peer, s: &Scale, r: &mut Recorder<'_>) -> Result<()> {
    if !peer.has_names() {
        return Ok(());
    }
    let file = peer.path("rows.db");
    let transactions = (s.rows / 100).max(1);
    let mut script =
        String::from("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, data BLOB);\n");
    for t in 0..transactions {
        script.push_str("BEGIN;\n");
        for i in 0..100 {
            let id = t * 100 + i;
            script += &format!("INSERT INTO t VALUES({id}, 'name {id}', randomblob(200));\n");
        }
        script.push_str("COMMIT;\n");
    }
    let from = std::env::temp_dir().join(format!("uext4-bench.{}.sql", std::process::id()));
    std::fs::write(&from, script)?;
    let done = r.timed(peer, "sqlite inserts, 100 a transaction", || {
        let mut cmd = Command::new("sqlite3");
        cmd.arg(&file).arg(format!(".read {}", from.display()));
        command::run(&mut cmd)?;
        Ok((Figure::Rate(s.rows), None))
    });
    let _ = std::fs::remove_file(&from);
    done?;
    remove(peer, "rows.db");
    Ok(())
}

/// Memory at rest, before anything was asked of the peer.
pub fn at_rest(peer: &Peer, r: &mut Recorder<'_>) {
    if let Some((now, _)) = peer.memory() {
        let mib = now as f64 / f64::from(1 << 20);
        r.put("memory, at rest", "resident", "MiB", bench_core::results::Better::Lower, mib);
    }
}

/// Warms the machine's memory: the first touch of a page is 30 times slower than the second here.
pub fn warm_memory(bytes: usize) -> Result<()> {
    let mut v = vec![0u8; bytes];
    for b in v.iter_mut().step_by(4096) {
        *b = 1;
    }
    std::hint::black_box(&v);
    procs::drop_caches()
}
