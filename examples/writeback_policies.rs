//! What the write-out policies ask for and get, side by side: a sequential writer with the flusher close
//! behind it, each policy in turn on one image in memory.
//!
//! `cargo run --release --example writeback_policies [FILE_MIB] [DISK_MODEL SCALE]`, such as
//! `256 raid5-8 20`. Needs mkfs.ext4.

use std::{process::Command, sync::Arc, time::Instant};
use uext4::{
    device::{BlockDevice, MemDevice, ModelDevice, model::presets},
    error::Result,
    fs::{Cred, Fs, WriteHow},
    options::{Control, MountOptions, PolicyName, Scope},
    types::Ino,
    writeback::policy,
};

const CHUNK: usize = 128 << 10;

fn image(mib: u64) -> std::io::Result<MemDevice> {
    let path = std::env::temp_dir().join(format!("uext4-policies-{}", std::process::id()));
    std::fs::File::create(&path)?.set_len(mib << 20)?;
    let made = Command::new("mkfs.ext4").args(["-qF", "-b", "4096"]).arg(&path).status()?;
    assert!(made.success(), "mkfs.ext4 failed");
    let dev = MemDevice::load(&path);
    std::fs::remove_file(&path)?;
    dev
}

/// Writes a file of `mib` MiB and prints a line of the table. Returns the pages asked for and those
/// written in a pass.
fn one(fs: &Fs, name: PolicyName, mib: u64) -> Result<(f64, f64)> {
    fs.wb.set_policy(name);
    let f = fs.mknod(Cred::ROOT, Ino::ROOT, name.as_str().as_bytes(), 0o100644, 0, 0)?.ino;
    let stats = fs.wb.stats.of(Some(name));
    let before = stats.get();
    let data = vec![0x5a; CHUNK];
    let start = Instant::now();
    for at in (0..mib << 20).step_by(CHUNK) {
        fs.write(Cred::ROOT, f, at, &data, WriteHow::default())?;
    }
    let wrote = start.elapsed();
    // What is left goes the same way, so that every page is counted.
    while fs.wb.dirty_bytes() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let all = start.elapsed();
    let c = stats.get().since(&before);
    let per = |n: u64, of: u64| n as f64 / of.max(1) as f64;
    let extents = Control::get(fs, Scope::Inode(f), "extents").map_or(0, |t| t.lines().count() - 1);
    println!(
        "{:<12} {:>7} {:>10.0} {:>10.0} {:>10.0} {:>9} {:>8} {:>9} {:>9.0} {:>7.0} {:>7.0}",
        name.as_str(),
        c.passes,
        per(c.asked, c.passes),
        per(c.written, c.passes),
        per(c.counted, c.passes),
        c.allocations,
        extents,
        c.requests,
        per(c.bytes >> 10, c.requests),
        mib as f64 / wrote.as_secs_f64(),
        mib as f64 / all.as_secs_f64(),
    );
    fs.unlink(Ino::ROOT, name.as_str().as_bytes())?;
    fs.forget(f, 1);
    fs.sync()?;
    Ok((per(c.asked, c.passes), per(c.written, c.passes)))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mib: u64 = args.first().map_or(Ok(256), |a| a.parse())?;
    let mut dev: Arc<dyn BlockDevice> = Arc::new(image(mib * 2 + 128)?);
    if let Some(model) = args.get(1) {
        let spec = presets::by_name(model).ok_or("no such disk model")?;
        let scale = args.get(2).map_or(Ok(20.0), |a| a.parse())?;
        dev = Arc::new(ModelDevice::new(dev, spec, scale, 1));
    }
    // Close behind: the flusher starts at once and the writer may not get far ahead.
    let o = "dirty_background_bytes=1m,dirty_bytes=128m,dirty_writeback=0.01,dirty_expire=0.05";
    let fs = Fs::mount(dev, &MountOptions::parse(&[o])?)?;
    println!(
        "{mib} MiB, sequential, a page is 4 KiB; asked, written, counted: pages for each pass"
    );
    println!(
        "{:<12} {:>7} {:>10} {:>10} {:>10} {:>9} {:>8} {:>9} {:>9} {:>7} {:>7}",
        "policy",
        "passes",
        "asked",
        "written",
        "counted",
        "mballocs",
        "extents",
        "requests",
        "KiB/req",
        "MB/s in",
        "MB/s"
    );
    let mut passes = Vec::new();
    for name in policy::NAMES {
        passes.push((name.as_str(), one(&fs, name, mib)?));
    }
    let (_, first) = passes[0];
    println!("\nPages for each pass, as a ratio to `{}`:", passes[0].0);
    for (name, (asked, written)) in &passes {
        println!("{name:<12} asked {:>5.2}  written {:>5.2}", asked / first.0, written / first.1);
    }
    fs.unmount()?;
    Ok(())
}
