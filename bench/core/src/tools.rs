//! The programs that are driven: where they are, and what package has them.

use crate::{Result, bail};
use std::path::{Path, PathBuf};

/// The `uext4` command: `$UEXT4`, or the one beside this program, or the one on PATH.
pub fn uext4() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("UEXT4") {
        let path = PathBuf::from(path);
        if !path.is_file() {
            bail!("$UEXT4: no such file: {}", path.display());
        }
        return Ok(std::path::absolute(path)?);
    }
    let beside = std::env::current_exe()?.with_file_name("uext4");
    if beside.is_file() {
        return Ok(beside);
    }
    match find("uext4") {
        Some(path) => Ok(path),
        None => bail!("uext4 is neither beside this program nor on PATH: run make, or set UEXT4"),
    }
}

/// A program on PATH or in one of the directories that an ordinary user's PATH lacks.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|p| is_program(p))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The program, or an error that names the package. As `need("mkfs.ext4", "e2fsprogs")`.
pub fn need(name: &str, package: &str) -> Result<PathBuf> {
    match find(name) {
        Some(path) => Ok(path),
        None => bail!("{name} is missing: on Debian, apt install {package}"),
    }
}

/// An error if this process is not root's.
pub fn need_root(what: &str) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("{what} needs root");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        assert!(need("sh", "dash").is_ok());
        let e = need("frobnicate-9", "frobnicator").unwrap_err().to_string();
        assert!(e.contains("frobnicate-9") && e.contains("apt install frobnicator"), "{e}");
    }
}
