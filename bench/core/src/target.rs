//! What is measured: uext4, its peers, or the image itself, mounted and unmounted the same way.

use crate::command::{self, Background};
use crate::image::Image;
use crate::procs::{self, Cpu};
use crate::{Context, Result, bail, interrupt, tools};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A file system, or what stands in its place.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// `uext4 mount IMAGE DIR -o OPTIONS`.
    Uext4 {
        /// Mount options, comma-separated; may be empty.
        options: String,
    },
    /// The device alone behind FUSE, as one file: `uext4 raw IMAGE DIR -o OPTIONS`.
    Uext4Raw {
        /// Mount options, comma-separated; may be empty.
        options: String,
    },
    /// The kernel's ext4 over a loop device. Needs root.
    Kernel {
        /// Mount options, comma-separated; may be empty.
        options: String,
        /// Whether the loop device goes around the page cache (`losetup --direct-io=on`).
        direct: bool,
    },
    /// Debian's fuse2fs.
    Fuse2fs {
        /// Mount options, comma-separated; may be empty.
        options: String,
    },
    /// A FUSE server that stays in the foreground: the arguments, then the mount point.
    Foreground {
        /// The program.
        program: PathBuf,
        /// Arguments before the mount point; `{image}` stands for the image's path.
        args: Vec<String>,
    },
    /// No file system: the image file itself.
    Bare,
}

/// A mounted [`Target`]; dropping it unmounts as well as it can.
pub struct Mount {
    dir: PathBuf,
    kind: Kind,
    daemon: Option<u32>,
    mounted: bool,
}

enum Kind {
    Uext4(PathBuf),
    /// With the loop device.
    Kernel(PathBuf),
    Child(Background),
    Bare(PathBuf),
}

/// How long a mount or the end of a daemon may take.
const PATIENCE: Duration = Duration::from_secs(60);

impl Target {
    /// Mounts the image at a directory, which is made if it is missing.
    pub fn mount(&self, image: &Image, dir: &Path) -> Result<Mount> {
        interrupt::check()?;
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let dir = dir.canonicalize()?;
        let mount = |kind, daemon| Mount { dir: dir.clone(), kind, daemon, mounted: true };
        match self {
            Target::Uext4 { options } => uext4("mount", options, image, &dir),
            Target::Uext4Raw { options } => uext4("raw", options, image, &dir),
            Target::Kernel { options, direct } => {
                tools::need_root("the kernel's ext4 over a loop device")?;
                let dev = attach(image.path(), *direct)?;
                let mut cmd = Command::new("mount");
                cmd.args(["-t", "ext4"]);
                if !options.is_empty() {
                    cmd.args(["-o", options]);
                }
                if let Err(e) = command::run(cmd.arg(&dev).arg(&dir)) {
                    detach(&dev);
                    return Err(e);
                }
                Ok(mount(Kind::Kernel(dev), None))
            }
            Target::Fuse2fs { options } => {
                let mut cmd = Command::new(tools::need("fuse2fs", "fuse2fs")?);
                let options: Vec<&str> =
                    [options.as_str(), "fakeroot"].into_iter().filter(|o| !o.is_empty()).collect();
                cmd.arg("-f").args(["-o", &options.join(",")]).arg(image.path());
                foreground(cmd, &dir)
            }
            Target::Foreground { program, args } => {
                let path = image.path().to_string_lossy();
                let mut cmd = Command::new(program);
                cmd.args(args.iter().map(|a| a.replace("{image}", &path)));
                foreground(cmd, &dir)
            }
            Target::Bare => Ok(mount(Kind::Bare(image.path().to_path_buf()), None)),
        }
    }
}

fn uext4(what: &str, options: &str, image: &Image, dir: &Path) -> Result<Mount> {
    let program = tools::uext4()?;
    let mut cmd = Command::new(&program);
    cmd.arg(what).arg(image.path()).arg(dir);
    if !options.is_empty() {
        cmd.args(["-o", options]);
    }
    command::run(&mut cmd)?;
    let mut mount =
        Mount { dir: dir.to_path_buf(), kind: Kind::Uext4(program), daemon: None, mounted: true };
    let pid = mount.ctl(&["pid"])?;
    let pid = pid.trim().trim_start_matches("pid=");
    mount.daemon = Some(pid.parse().with_context(|| format!("not a process id: {pid}"))?);
    Ok(mount)
}

fn foreground(mut cmd: Command, dir: &Path) -> Result<Mount> {
    let outside = dir.parent().map(device).transpose()?;
    let child = Background::start(cmd.arg(dir))?;
    let end = Instant::now() + PATIENCE;
    while device(dir).ok() == outside {
        if let Some(status) = child.ended() {
            bail!("{cmd:?} did not mount: {status}");
        }
        if Instant::now() > end {
            bail!("{cmd:?} did not mount within {} s", PATIENCE.as_secs());
        }
        interrupt::check()?;
        std::thread::sleep(Duration::from_millis(5));
    }
    let daemon = Some(child.id());
    Ok(Mount { dir: dir.to_path_buf(), kind: Kind::Child(child), daemon, mounted: true })
}

fn device(path: &Path) -> Result<u64> {
    Ok(path.metadata().with_context(|| path.display().to_string())?.dev())
}

fn attach(image: &Path, direct: bool) -> Result<PathBuf> {
    let mut cmd = Command::new(tools::need("losetup", "mount")?);
    cmd.args(["--find", "--show"]);
    if direct {
        cmd.arg("--direct-io=on");
    }
    let out = command::run(cmd.arg(image))?;
    Ok(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim()))
}

fn detach(dev: &Path) {
    let _ = Command::new("losetup").arg("--detach").arg(dev).status();
}

impl Mount {
    /// The root of the file system; of [`Target::Bare`], an empty directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path in it; of [`Target::Bare`] always the image.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        match &self.kind {
            Kind::Bare(image) => image.clone(),
            _ => self.dir.join(name),
        }
    }

    /// The process that serves it, if there is one.
    pub fn daemon(&self) -> Option<u32> {
        self.daemon
    }

    /// CPU time that the daemon has used; none if there is none.
    pub fn daemon_cpu(&self) -> Cpu {
        self.daemon.and_then(|pid| procs::process_cpu(pid).ok()).unwrap_or_default()
    }

    /// The most memory that the daemon had, in bytes; 0 if there is none.
    pub fn daemon_peak_rss(&self) -> u64 {
        self.daemon.and_then(|pid| procs::peak_rss(pid).ok()).unwrap_or_default()
    }

    /// `uext4 ctl DIR ITEMS...`: what it printed.
    pub fn ctl(&self, items: &[&str]) -> Result<String> {
        self.ctl_of(Path::new(""), items)
    }

    /// The same of one file.
    pub fn ctl_of(&self, name: &Path, items: &[&str]) -> Result<String> {
        let Kind::Uext4(program) = &self.kind else { bail!("only uext4 has uext4 ctl") };
        let path = if name.as_os_str().is_empty() { self.dir.clone() } else { self.dir.join(name) };
        let out = command::run(Command::new(program).arg("ctl").arg(path).args(items))?;
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Unmounts; returns once the image is clean and nobody holds it.
    pub fn unmount(mut self) -> Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.mounted) {
            return Ok(());
        }
        // Not by `command::run`: after an interrupt this must still be done.
        match &self.kind {
            Kind::Bare(_) => Ok(()),
            Kind::Uext4(program) => {
                patiently(|| status(program, &["umount".into(), self.dir.clone().into()]))
            }
            Kind::Kernel(dev) => {
                let done = patiently(|| status(Path::new("umount"), &[self.dir.clone().into()]));
                detach(dev);
                done
            }
            Kind::Child(child) => {
                let root = nix::unistd::geteuid().is_root();
                let dir: OsString = self.dir.clone().into();
                patiently(|| match root {
                    true => status(Path::new("umount"), std::slice::from_ref(&dir)),
                    false => status(Path::new("fusermount3"), &["-u".into(), dir.clone()]),
                })?;
                if !child.wait_for(PATIENCE) {
                    bail!("{}: its daemon does not end", self.dir.display());
                }
                Ok(())
            }
        }
    }
}

/// Something may still be closing its files: tries for a few seconds.
fn patiently(mut what: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..20 {
        if what().is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    what()
}

fn status(program: &Path, args: &[OsString]) -> Result<()> {
    let out =
        Command::new(program).args(args).output().with_context(|| program.display().to_string())?;
    if !out.status.success() {
        bail!("{}: {}", program.display(), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(e) = self.take_down() {
            eprintln!("warning: {}: still mounted: {e:#}", self.dir.display());
        }
    }
}
