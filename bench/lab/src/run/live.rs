//! The variants, each with images of its own, mounted side by side.

use crate::spec::{Experiment, Scale, Variant, value};
use bench_core::image::{Image, Workdir};
use bench_core::target::{Mount, Target};
use bench_core::{Context, Result, bail};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// How the user wants it run.
#[derive(Debug, Clone)]
pub struct How {
    /// How much.
    pub scale: Scale,
    /// Without the disk model, around the page cache: what the images are on is what is measured.
    pub real: bool,
    /// Chooses the order.
    pub seed: u64,
    /// Instead of the experiment's.
    pub repetitions: Option<usize>,
    /// Instead of the experiment's.
    pub seconds: Option<f64>,
}

/// A variant with its images.
pub struct Live {
    /// Its name.
    pub name: String,
    /// What is mounted.
    pub target: Target,
    /// Names the file that is measured, by its name in the image.
    first_file: String,
    /// One for each mount.
    images: Vec<Image>,
    dirs: Vec<PathBuf>,
    mounts: Vec<Mount>,
}

/// Two lists of options in one.
fn join(a: &str, b: &str) -> String {
    [a, b].into_iter().filter(|o| !o.is_empty()).collect::<Vec<_>>().join(",")
}

/// What a variant mounts.
pub fn target(e: &Experiment, v: &Variant, real: bool) -> Result<Target> {
    let mut common = e.options.clone();
    if real {
        let kept = common.split(',').filter(|o| !o.starts_with("disk_"));
        common = join(&kept.collect::<Vec<_>>().join(","), "backing=direct");
    }
    let own = v.options.clone();
    Ok(match v.target.get_ref().as_str() {
        "uext4" => Target::Uext4 { options: join(&common, &own) },
        "raw" => Target::Uext4Raw { options: join(&common, &own) },
        "kernel" => Target::Kernel { options: own, direct: true },
        "kernel-buffered" => Target::Kernel { options: own, direct: false },
        "fuse2fs" => Target::Fuse2fs { options: own },
        "bare" => Target::Bare,
        other => bail!("no target {other}"),
    })
}

/// The image that all variants get a copy of: made and filled once, so that no variant is better
/// off by its layout.
pub fn master(e: &Experiment, dir: &Workdir, scale: Scale) -> Result<Image> {
    let size = value::bytes(&e.image.size.at(scale).0).context("image.size")?;
    let image = Image::ext4(dir.join("master.img"), size, &e.image.mkfs)?;
    if !e.files.is_empty() {
        let mount = Target::Uext4 { options: String::new() }.mount(&image, &dir.join("master"))?;
        for f in &e.files {
            let size = value::bytes(&f.size.at(scale).0).context("files.size")?;
            let count = *f.count.at(scale);
            for n in 0..count {
                let mut path = mount.dir().to_path_buf();
                if f.directories > 0 {
                    path.push(format!("d{}", n % f.directories));
                    fs::create_dir_all(&path)?;
                }
                path.push(if count == 1 { f.name.clone() } else { format!("{}{n}", f.name) });
                fill(&path, size).with_context(|| path.display().to_string())?;
            }
        }
        mount.unmount()?;
    }
    Ok(image)
}

/// A file of bytes that do not compress.
fn fill(path: &Path, size: u64) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(size);
    let mut block = vec![0; 1 << 20];
    rng.fill(&mut block);
    let mut file = File::create(path)?;
    let mut left = size;
    while left > 0 {
        bench_core::interrupt::check()?;
        let n = usize::try_from(left.min(1 << 20))?;
        block[..8].copy_from_slice(&left.to_le_bytes());
        file.write_all(&block[..n])?;
        left -= n as u64;
    }
    Ok(file.sync_all()?)
}

impl Live {
    /// Copies the image; nothing is mounted yet.
    pub fn new(
        e: &Experiment,
        v: &Variant,
        master: &Image,
        dir: &Workdir,
        real: bool,
    ) -> Result<Live> {
        let name = v.name.get_ref().clone();
        let mut live = Live {
            target: target(e, v, real)?,
            first_file: e.files.first().map_or_else(|| "file".into(), |f| f.name.clone()),
            images: Vec::new(),
            dirs: Vec::new(),
            mounts: Vec::new(),
            name,
        };
        for n in 0..e.mounts {
            live.images.push(master.copy(dir.join(format!("{}.{n}.img", live.name)))?);
            live.dirs.push(dir.join(format!("{}.{n}", live.name)));
        }
        Ok(live)
    }

    /// Mounts what is not mounted.
    pub fn mount(&mut self) -> Result<()> {
        for n in self.mounts.len()..self.images.len() {
            let mount = self.target.mount(&self.images[n], &self.dirs[n]);
            self.mounts.push(mount.with_context(|| format!("variant {}", self.name))?);
        }
        Ok(())
    }

    /// Unmounts, and what is left is checked: a measurement on a broken file system is none.
    pub fn unmount(&mut self) -> Result<()> {
        for m in self.mounts.drain(..) {
            m.unmount().with_context(|| format!("variant {}", self.name))?;
        }
        Ok(())
    }

    /// Unmounts for good and asks e2fsck.
    pub fn finish(mut self) -> Result<Option<String>> {
        self.unmount()?;
        if matches!(self.target, Target::Uext4Raw { .. } | Target::Bare) {
            return Ok(None);
        }
        for image in &self.images {
            if let Some(wrong) = image.fsck()? {
                return Ok(Some(format!("variant {}: e2fsck: {wrong}", self.name)));
            }
        }
        Ok(None)
    }

    /// What is mounted.
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The placeholders `{dir}`, `{dir2}` and `{file}`.
    pub fn places(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (n, m) in self.mounts.iter().enumerate() {
            let name = if n == 0 { "dir".to_string() } else { format!("dir{}", n + 1) };
            all.push((name, m.dir().display().to_string()));
        }
        if let Some(m) = self.mounts.first() {
            let file = match self.target {
                Target::Uext4Raw { .. } => m.join("disk"),
                _ => m.join(&self.first_file),
            };
            all.push(("file".into(), file.display().to_string()));
        }
        all
    }

    /// Whether uext4's counters can be asked.
    pub fn has_counters(&self) -> bool {
        matches!(self.target, Target::Uext4 { .. })
    }
}
