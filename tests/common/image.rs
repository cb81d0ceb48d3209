//! Images, and what e2fsprogs says of them.

use super::{run, tail, tool};
use std::path::{Path, PathBuf};

/// An image file.
pub struct Image {
    path: PathBuf,
}

impl Image {
    /// A sparse file of `size` (truncate(1)'s notation), formatted by `mkfs.ext4 ARGS`.
    #[track_caller]
    pub fn mkfs(path: PathBuf, size: &str, args: &[&str]) -> Image {
        let _ = std::fs::remove_file(&path);
        run(tool("truncate").args(["-s", size]).arg(&path));
        run(tool("mkfs.ext4").args(["-q", "-F"]).args(args).arg(&path));
        Image { path }
    }

    /// An image that is there already.
    pub fn existing(path: PathBuf) -> Image {
        assert!(path.exists(), "{path:?} is missing");
        Image { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A copy beside it, holes kept.
    #[track_caller]
    pub fn copy(&self, name: &str) -> Image {
        let path = self.path.with_file_name(name);
        run(tool("cp").args(["--sparse=always", "--reflink=auto"]).arg(&self.path).arg(&path));
        Image { path }
    }

    /// `e2fsck -fn` must have nothing to say.
    #[track_caller]
    pub fn fsck(&self) {
        let mut command = tool("e2fsck");
        let out = command.arg("-fn").arg(&self.path).output().unwrap();
        assert!(
            out.status.success(),
            "e2fsck -fn {}: {}\n{}",
            self.path.display(),
            out.status,
            tail(&String::from_utf8_lossy(&out.stdout))
        );
    }

    /// What `debugfs -R REQUEST` prints.
    #[track_caller]
    pub fn debugfs(&self, request: &str) -> String {
        run(tool("debugfs").args(["-R", request]).arg(&self.path))
    }

    /// A line of `dumpe2fs -h`, such as `Free blocks`.
    #[track_caller]
    pub fn header(&self, field: &str) -> String {
        let text = run(tool("dumpe2fs").arg("-h").arg(&self.path));
        let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("dumpe2fs says no {field}")).trim().to_string()
    }

    /// Whether the log still has to be replayed.
    pub fn needs_recovery(&self) -> bool {
        self.header("Filesystem features").contains("needs_recovery")
    }

    pub fn sha256(&self) -> String {
        run(tool("sha256sum").arg(&self.path)).split(' ').next().unwrap().to_string()
    }
}
