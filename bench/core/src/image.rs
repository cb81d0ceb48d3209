//! Images: sparse files with a file system made by mkfs.ext4.

use crate::{Context, Result, command, tools};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// An image file; removed when dropped.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    size: u64,
}

impl Image {
    /// A sparse file of `size` bytes with no file system in it.
    pub fn blank(path: impl Into<PathBuf>, size: u64) -> Result<Image> {
        let path = path.into();
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        file.set_len(size).with_context(|| path.display().to_string())?;
        Ok(Image { path, size })
    }

    /// With ext4 in it, by `mkfs.ext4 -qF MKFS... PATH`; owned by the present user.
    pub fn ext4(path: impl Into<PathBuf>, size: u64, mkfs: &[String]) -> Result<Image> {
        let image = Image::blank(path, size)?;
        let mut make = Command::new(tools::need("mkfs.ext4", "e2fsprogs")?);
        make.arg("-qF");
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        if !uid.is_root() {
            make.args(["-E", &format!("root_owner={uid}:{gid}")]);
        }
        command::run(make.args(mkfs).arg(&image.path))?;
        Ok(image)
    }

    /// A copy, sparse where this is.
    pub fn copy(&self, path: impl Into<PathBuf>) -> Result<Image> {
        let image = Image { path: path.into(), size: self.size };
        let mut cp = Command::new("cp");
        command::run(
            cp.args(["--sparse=always", "--reflink=auto"]).args([&self.path, &image.path]),
        )?;
        Ok(image)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// In bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What `e2fsck -fn` has against it; nothing if it is clean.
    pub fn fsck(&self) -> Result<Option<String>> {
        let fsck = tools::need("e2fsck", "e2fsprogs")?;
        let out = command::output(Command::new(fsck).arg("-fn").arg(&self.path))?;
        let clean = out.status.code() == Some(0);
        Ok((!clean).then(|| command::last_words(&out)))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

static BASE: OnceLock<PathBuf> = OnceLock::new();

/// Where [`Workdir::new`] makes its directories: the first call counts.
pub fn put_in(dir: &Path) {
    let _ = BASE.set(dir.to_path_buf());
}

/// The directory for directories: as [`put_in`] said, or `$UEXT4_BENCH_DIR`, or `$TMPDIR`.
pub fn base() -> PathBuf {
    let named =
        || std::env::var_os("UEXT4_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    BASE.get().cloned().unwrap_or_else(named)
}

/// A directory for images and mount points that goes away with everything in it, unless something
/// is still mounted below it.
#[derive(Debug)]
pub struct Workdir(PathBuf);

impl Workdir {
    /// A new one in [`base`].
    pub fn new(name: &str) -> Result<Workdir> {
        let base = base();
        for n in 0.. {
            let path = base.join(format!("uext4-{name}.{}.{n}", std::process::id()));
            match std::fs::create_dir(&path) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => {
                    made.with_context(|| path.display().to_string())?;
                    return Ok(Workdir(path.canonicalize()?));
                }
            }
        }
        unreachable!("the counter has no end")
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if !mounts.contains(&format!(" {}/", self.0.display())) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_comes_and_goes() {
        let dir = Workdir::new("image-test").unwrap();
        let path = dir.join("a.img");
        let image = Image::ext4(&path, 16 << 20, &["-b".into(), "1024".into()]).unwrap();
        assert_eq!(image.fsck().unwrap(), None);
        let copy = image.copy(dir.join("b.img")).unwrap();
        assert_eq!(copy.fsck().unwrap(), None);
        let blank = Image::blank(dir.join("c.img"), 1 << 20).unwrap();
        assert!(blank.fsck().unwrap().is_some());
        drop((image, copy, blank));
        assert!(!path.exists());
        let where_ = dir.path().to_path_buf();
        drop(dir);
        assert!(!where_.exists());
    }
}
