//! What is compared: each peer with an image and a mount of its own, all mounted for the whole run.

use bench_core::image::{Image, Workdir};
use bench_core::procs::{self, Cpu};
use bench_core::target::{Mount, Target};
use bench_core::{Context, Result, bail, tools};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A peer by its short name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// uext4 with its default options.
    Uext4,
    /// The empty file system in memory on the same transport.
    Empty,
    /// The kernel's ext4 over a loop device with direct I/O.
    Kernel,
    /// Debian's fuse2fs.
    Fuse2fs,
    /// The image file itself, without a file system.
    Bare,
}

impl Kind {
    /// All, in the order of the report.
    pub const ALL: [Kind; 5] = [Kind::Uext4, Kind::Empty, Kind::Kernel, Kind::Fuse2fs, Kind::Bare];

    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Uext4 => "uext4",
            Kind::Empty => "emptyfs",
            Kind::Kernel => "kernel",
            Kind::Fuse2fs => "fuse2fs",
            Kind::Bare => "image",
        }
    }

    /// What it is, for a reader.
    pub fn detail(self) -> &'static str {
        match self {
            Kind::Uext4 => "uext4, default options",
            Kind::Empty => {
                "an empty file system in memory on the same FUSE settings: the transport's limit"
            }
            Kind::Kernel => "the kernel's ext4 over a loop device with direct I/O",
            Kind::Fuse2fs => "Debian's fuse2fs, -o kernel_cache",
            Kind::Bare => "the image file alone, without a file system",
        }
    }

    /// By its name.
    pub fn by_name(name: &str) -> Result<Kind> {
        let found = Kind::ALL.into_iter().find(|k| k.name() == name);
        found.with_context(|| {
            format!("no peer {name}: there are uext4, emptyfs, kernel, fuse2fs, image")
        })
    }

    fn target(self) -> Result<Target> {
        Ok(match self {
            Kind::Uext4 => Target::Uext4 { options: String::new() },
            Kind::Empty => {
                let beside = std::env::current_exe()?.with_file_name("emptyfs");
                let program = match beside.is_file() {
                    true => beside,
                    false => tools::need("emptyfs", "uext4")?,
                };
                Target::Foreground { program, args: Vec::new() }
            }
            Kind::Kernel => Target::Kernel { options: String::new(), direct: true },
            Kind::Fuse2fs => Target::Fuse2fs { options: "kernel_cache".into() },
            Kind::Bare => Target::Bare,
        })
    }
}

/// A peer, mounted.
pub struct Peer {
    /// Which.
    pub kind: Kind,
    target: Target,
    image: Image,
    point: PathBuf,
    mount: Option<Mount>,
    /// CPU of daemons that have ended.
    past: Cpu,
}

impl Peer {
    /// Makes its image, whose blocks are all written so that no host file system allocates while we
    /// measure, and mounts it.
    pub fn new(kind: Kind, dir: &Workdir, bytes: u64) -> Result<Peer> {
        let target = kind.target()?;
        let path = dir.join(format!("{}.img", kind.name()));
        let image = match kind {
            Kind::Empty => Image::blank(&path, 1 << 20)?,
            Kind::Bare => {
                let image = Image::blank(&path, bytes / 4)?;
                fill(&path, bytes / 4)?;
                image
            }
            _ => {
                let image = Image::blank(&path, bytes)?;
                fill(&path, bytes)?;
                let mut mkfs = std::process::Command::new(tools::need("mkfs.ext4", "e2fsprogs")?);
                mkfs.args(["-qF", "-E", "nodiscard", "-N", "400000"]).arg(&path);
                bench_core::command::run(&mut mkfs)?;
                image
            }
        };
        let point = dir.join(format!("{}.mnt", kind.name()));
        let mount = Some(target.mount(&image, &point)?);
        Ok(Peer { kind, target, image, point, mount, past: Cpu::default() })
    }

    /// A path in it; of the bare image always the image.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mount.as_ref().map_or_else(|| self.point.join(name), |m| m.join(name))
    }

    /// Forgets what is cached of it: the kernel's caches, and the daemon's by another mount.
    pub fn cool(&mut self) -> Result<()> {
        if matches!(self.kind, Kind::Uext4 | Kind::Kernel | Kind::Fuse2fs) {
            if let Some(m) = self.mount.take() {
                self.past = self.past + m.daemon_cpu();
                m.unmount()?;
            }
            procs::drop_caches()?;
            self.mount = Some(self.target.mount(&self.image, &self.point)?);
            return Ok(());
        }
        procs::drop_caches()
    }

    /// CPU time of its daemons so far.
    pub fn cpu(&self) -> Cpu {
        self.past + self.mount.as_ref().map(Mount::daemon_cpu).unwrap_or_default()
    }

    /// Memory of the daemon now and at most since [`Peer::forget_peak`], in bytes.
    pub fn memory(&self) -> Option<(u64, u64)> {
        let pid = self.mount.as_ref()?.daemon()?;
        Some((procs::rss(pid).ok()?, procs::peak_rss(pid).ok()?))
    }

    /// The peak of the memory begins again.
    pub fn forget_peak(&self) {
        if let Some(pid) = self.mount.as_ref().and_then(Mount::daemon) {
            let _ = procs::forget_peak(pid);
        }
    }

    /// What it mounts.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether file systems can be made use of, not only one file.
    pub fn has_names(&self) -> bool {
        self.kind != Kind::Bare
    }

    /// Unmounts and, where there is a file system in the image, lets e2fsck judge it.
    pub fn end(mut self) -> Result<()> {
        if let Some(m) = self.mount.take() {
            m.unmount()?;
        }
        if matches!(self.kind, Kind::Uext4 | Kind::Kernel)
            && let Some(complaint) = self.image.fsck()?
        {
            bail!("{}: e2fsck: {complaint}", self.kind.name());
        }
        Ok(())
    }
}

fn fill(path: &Path, bytes: u64) -> Result<()> {
    use std::io::Write;
    let mut f = std::fs::OpenOptions::new().write(true).open(path)?;
    let block = vec![0u8; 4 << 20];
    let mut left = bytes;
    while left > 0 {
        bench_core::interrupt::check()?;
        let n = left.min(block.len() as u64) as usize;
        f.write_all(&block[..n]).with_context(|| path.display().to_string())?;
        left -= n as u64;
    }
    f.sync_all()?;
    Ok(())
}

/// Lets things settle between two measurements.
pub fn settle() {
    std::thread::sleep(Duration::from_millis(50));
}
