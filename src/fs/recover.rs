//! After the journal's replay: the orphans of the last mount.

use super::{Fs, reap};
use crate::{
    error::Result,
    inode::{Inode, Volume, mode, orphan::ORPHAN_CREDITS, truncate},
    ondisk::Superblock,
    types::{Ino, LBlock},
};
use std::{collections::HashSet, sync::Arc};

/// Finishes the inodes that the last mount left half done: without links they
/// are freed, with links their truncation is completed. A list that does not
/// make sense is reported and given up, as the kernel does.
pub(super) fn orphans(fs: &Fs, sb: &Superblock) -> Result<()> {
    let vol = &fs.vol;
    if let Some(ino) = sb.orphan_file_inum() {
        let file = vol.inodes.get(vol, ino)?;
        vol.orphans.use_file(vol, &file)?;
    }
    let in_file = vol.orphans.scan_file(vol);
    let listed = read_list(vol, sb);
    vol.orphans.adopt_list(&listed);
    let mut freed = 0;
    let mut truncated = 0;
    let from_file: Vec<Arc<Inode>> = in_file
        .iter()
        .filter_map(|ino| match fs.op("orphan", vol.inodes.get(vol, *ino)) {
            Ok(i) => Some(i),
            Err(e) => {
                log::error!("orphan inode {ino}: {e}");
                None
            }
        })
        .collect();
    for i in listed.iter().chain(&from_file) {
        let r = if i.nlink() == 0 {
            freed += 1;
            reap::end(vol, &fs.wb, i)
        } else {
            truncated += 1;
            finish_truncate(fs, i)
        };
        if let Err(e) = fs.op("orphan", r) {
            log::error!("orphan inode {}: {e}", i.ino);
        }
    }
    vol.orphans.set_found(Vec::new());
    if freed + truncated > 0 {
        log::info!("orphans: {freed} freed, {truncated} truncated");
    }
    Ok(())
}

/// The inodes of the on-disk list, youngest first.
pub(super) fn read_list(vol: &Volume, sb: &Superblock) -> Vec<Arc<Inode>> {
    let mut list = Vec::new();
    let mut seen = HashSet::new();
    let mut next = sb.last_orphan();
    while let Some(ino) = next {
        if !vol.geo.is_user_ino(ino) || !seen.insert(ino) {
            log::error!("orphan list: inode {ino} is out of range or on it twice; giving it up");
            break;
        }
        vol.orphans.set_found(vec![ino]);
        match vol.check("orphan", vol.inodes.get(vol, ino)) {
            Ok(i) => {
                let n = i.attrs().rec.dtime;
                next = (i.nlink() == 0 || n != 0).then_some(Ino(n)).filter(|n| n.0 != 0);
                list.push(i);
            }
            Err(e) => {
                log::error!("orphan list: inode {ino}: {e}; giving it up");
                break;
            }
        }
    }
    list
}

/// A truncation that a crash interrupted: blocks past the size go.
fn finish_truncate(fs: &Fs, i: &Arc<Inode>) -> Result<()> {
    let vol = &fs.vol;
    let credits = truncate::remove_credits(i) + ORPHAN_CREDITS;
    let mut h = vol.journal.start("orphan_truncate", credits)?;
    if i.has_map() && matches!(i.file_type(), mode::REG | mode::DIR) {
        let first = vol.geo.block_size.blocks_for(i.size());
        let from = LBlock(u32::try_from(first).unwrap_or(u32::MAX));
        truncate::remove_blocks(vol, &mut h, i, from, u64::MAX)?;
    }
    if !h.ensure(ORPHAN_CREDITS + 2)? {
        h.restart(ORPHAN_CREDITS + 2)?;
    }
    vol.orphans.remove(vol, &mut h, i)?;
    i.store(vol, &mut h)?;
    h.stop()
}
