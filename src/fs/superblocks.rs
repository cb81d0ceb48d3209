//! Which superblock a mount goes by: the primary, or the one that `sb=` names.

use crate::{
    device::{BlockDevice, Overlay},
    error::{Error, Result},
    ondisk::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock},
    options::MountOptions,
};
use std::sync::Arc;

/// Block size and, in bytes, where mke2fs puts the first backup with it.
const FIRST_BACKUPS: [(u64, u64); 7] = [
    (4096, 32768 * 4096),
    (1024, 8193 * 1024),
    (2048, 16384 * 2048),
    (8192, 65528 * 8192),
    (16384, 65528 * 16384),
    (32768, 65528 * 32768),
    (65536, 65528 * 65536),
];

/// The superblock to mount by, and whether it is not the primary one.
///
/// # Errors
/// `Unmountable` if there is none at that place, or a damaged one: a damaged primary is never passed
/// over unasked, for a backup knows nothing of orphans and errors. `Io`.
pub(super) fn read(dev: &dyn BlockDevice, opts: &MountOptions) -> Result<(Superblock, bool)> {
    let Some(kib) = opts.sb else {
        return match at(dev, SUPERBLOCK_OFFSET) {
            Ok(sb) => Ok((sb, false)),
            Err(e @ Error::Io { .. }) => Err(e),
            Err(e) => Err(primary_is_bad(dev, &e)),
        };
    };
    let offset = kib.saturating_mul(1024);
    match at(dev, offset) {
        Ok(sb) => Ok((sb, offset != SUPERBLOCK_OFFSET)),
        Err(e @ Error::Io { .. }) => Err(e),
        Err(e) => Err(Error::Unmountable(format!("superblock at {kib} KiB (sb=): {e}"))),
    }
}

/// Names the backup that could be used instead, if there is one.
fn primary_is_bad(dev: &dyn BlockDevice, e: &Error) -> Error {
    let backup = FIRST_BACKUPS.iter().find(|(block_size, offset)| {
        at(dev, *offset).is_ok_and(|sb| {
            sb.block_size().bytes64() == *block_size && sb.raw().s_block_group_nr.get() == 1
        })
    });
    Error::Unmountable(match (backup, e) {
        (Some((_, offset)), _) => {
            format!("{e}; there is a good backup: -o sb={} mounts by it", offset / 1024)
        }
        (None, Error::Corrupt(_)) => {
            format!("{e}; if there is a backup at block N (of 1 KiB), -o sb=N mounts by it")
        }
        _ => e.to_string(),
    })
}

fn at(dev: &dyn BlockDevice, off: u64) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if off.saturating_add(bytes.len() as u64) > dev.size() {
        return Err(Error::Unmountable("the image is too small to hold a superblock".into()));
    }
    dev.read_at(&mut bytes, off)?;
    Superblock::parse(&bytes)
}

/// After the replay: the device on which the primary superblock is good, and the superblock.
///
/// A primary that the replay brought back is kept, for it knows more than the backup it was replaced
/// by; else the backup takes its place, for a read-only mount in memory.
///
/// # Errors
/// As [`read`].
pub(super) fn settle(
    dev: Arc<dyn BlockDevice>,
    opts: &MountOptions,
) -> Result<(Arc<dyn BlockDevice>, Superblock)> {
    let (mut backup, from_backup) = read(&*dev, opts)?;
    if !from_backup {
        return Ok((dev, backup));
    }
    if let Ok(primary) = at(&*dev, SUPERBLOCK_OFFSET)
        && (primary.metadata_csum() || same_layout(&primary, &backup))
    {
        log::warn!("sb=: the primary superblock is good and stays in use");
        return Ok((dev, primary));
    }
    backup.set_block_group_nr(0);
    let kib = opts.sb.unwrap_or_default();
    if opts.read_only {
        log::warn!("mounted by the superblock at {kib} KiB (sb=)");
        let over = Overlay::new(dev, SUPERBLOCK_OFFSET << 3);
        over.write_at(&backup.encode(), SUPERBLOCK_OFFSET)?;
        return Ok((Arc::new(over), backup));
    }
    log::warn!("mounted by the superblock at {kib} KiB (sb=), which replaces the damaged primary");
    dev.write_at(&backup.encode(), SUPERBLOCK_OFFSET)?;
    dev.flush()?;
    Ok((dev, backup))
}

/// Whether both describe the same groups, where no checksum vouches for the primary.
fn same_layout(a: &Superblock, b: &Superblock) -> bool {
    let key = |s: &Superblock| {
        let r = s.raw();
        (
            r.s_uuid,
            s.block_size(),
            s.blocks_count(),
            r.s_inodes_count.get(),
            r.s_blocks_per_group.get(),
            (s.inode_size(), s.desc_size(), r.s_first_meta_bg.get()),
        )
    };
    key(a) == key(b)
}
