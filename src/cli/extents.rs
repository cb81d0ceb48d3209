//! `uext4 extents FILE...`: what `filefrag -v` would print, delayed ranges included.

use super::Failure;
use super::args::{ExtentsArgs, print};
use super::target;

/// Prints the extents of each file.
pub fn run(args: &ExtentsArgs) -> Result<(), Failure> {
    for file in &args.files {
        let (mount, inode) = target::inode(file)?;
        let inode = inode.ok_or_else(|| {
            Failure::failed(format!("{}: a mount point, not a file in it", file.display()))
        })?;
        let mut client = target::daemon(&mount)?;
        let text = client
            .ask(&format!("inode {inode} get extents"))
            .map_err(|e| target::refused(file, e))?;
        print(&format!("{}:\n{text}", file.display()))?;
    }
    Ok(())
}
