//! Costs that must not grow with size: reads in a file of many extents, the mount of a large image.

use crate::peer::{Kind, Peer};
use crate::record::{Figure, Recorder};
use crate::workloads::{Scale, fio, job, ran, remove};
use bench_core::image::{Image, Workdir};
use bench_core::results::Better;
use bench_core::{Result, command, tools};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Instant;

/// Direct 4k random reads in a file of one extent, and in a sparse file of many, one a MiB.
pub fn extents(peer: &mut Peer, s: &Scale, r: &mut Recorder<'_>) -> Result<()> {
    if !matches!(peer.kind, Kind::Uext4 | Kind::Kernel) || s.extents == 0 {
        return Ok(());
    }
    let stride = 1 << 20;
    for (what, n) in [("1 extent", 1), ("many extents", s.extents)] {
        let file = peer.path("extents");
        let size = if n == 1 { s.extents * 4096 } else { n * stride };
        let f = std::fs::File::create(&file)?;
        f.set_len(size)?;
        if n == 1 {
            let piece = vec![7u8; 1 << 20];
            for at in (0..size).step_by(piece.len()) {
                f.write_all_at(&piece[..piece.len().min((size - at) as usize)], at)?;
            }
        } else {
            for i in 0..n {
                bench_core::interrupt::check()?;
                f.write_all_at(&[7u8; 4096], i * stride)?;
            }
        }
        f.sync_all()?;
        drop(f);
        let mut spec = fio(&file, size)
            .set("bs", "4k")
            .set("direct", 1)
            .set("time_based", "")
            .set("runtime", format!("{}ms", (s.seconds * 1e3) as u64));
        if n > 1 {
            spec = spec.set("blockalign", stride);
        }
        r.timed(peer, &format!("randread 4k direct, {what}"), || {
            let report = job(spec, "randread")?;
            Ok((Figure::Rate(report.ops()), ran(&report)))
        })?;
        remove(peer, "extents");
    }
    Ok(())
}

/// The mount of a large sparse image.
pub fn mount(peer: &mut Peer, s: &Scale, r: &mut Recorder<'_>) -> Result<()> {
    if !matches!(peer.kind, Kind::Uext4 | Kind::Kernel) || s.large == 0 {
        return Ok(());
    }
    let dir = Workdir::new("bench-large")?;
    let image = Image::blank(dir.join("large.img"), s.large)?;
    let mut mkfs = Command::new(tools::need("mkfs.ext4", "e2fsprogs")?);
    mkfs.args(["-qF", "-E", "lazy_itable_init=1,lazy_journal_init=1"]).arg(image.path());
    command::run(&mut mkfs)?;
    let begun = Instant::now();
    let mounted = peer.target().mount(&image, &dir.join("mnt"))?;
    let took = begun.elapsed().as_secs_f64();
    mounted.unmount()?;
    r.put("mount of a sparse 1 TiB image", "speed", "s", Better::Lower, took);
    Ok(())
}
