//! Images, and what e2fsprogs says of them.

use super::{run, tail, tool};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::FileExt;
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

    /// A hash of the length and of all that is not zero, with its places: holes cost nothing.
    #[track_caller]
    pub fn digest(&self) -> u64 {
        let file = File::open(&self.path).unwrap_or_else(|e| panic!("{:?}: {e}", self.path));
        let end = seek(&file, SeekFrom::End(0)).unwrap();
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(end);
        let mut chunk = vec![0; 1 << 16];
        let mut at = 0;
        while at < end {
            match seek(&file, SeekFrom::Data(at)) {
                Ok(data) => at = data & !(chunk.len() as u64 - 1),
                Err(Errno::NXIO) => break,
                // A block device: all of it is data.
                Err(Errno::INVAL) => {}
                Err(e) => panic!("{:?}: {e}", self.path),
            }
            let n = chunk.len().min((end - at) as usize);
            file.read_exact_at(&mut chunk[..n], at).unwrap();
            if chunk[..n].iter().any(|&b| b != 0) {
                hasher.write_u64(at);
                hasher.write(&chunk[..n]);
            }
            at += n as u64;
        }
        hasher.finish()
    }
}
