//! The inode as a checked record, and how it goes into and out of its slot.

use super::features::{Incompat, RoCompat};
use super::geometry::Geometry;
use super::inode_flags::InodeFlags;
use super::inode_raw::{EXTRA_ISIZE, GOOD_OLD_INODE_SIZE, RawInode};
use super::timestamp::Timestamp;
use crate::error::{Corrupt, Error, Result};
use crate::types::{Block, Ino};
use std::ops::Range;
use zerocopy::{FromZeros, IntoBytes};

/// Byte offset of `i_dtime` in a slot: the orphan list is linked through it.
pub const DTIME_OFFSET: usize = super::inode_raw::I_DTIME_OFFSET;

/// The kind of a file, from the top four bits of `i_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileKind {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    Regular,
    Symlink,
    Socket,
}

/// `S_IFMT`
pub const S_IFMT: u16 = 0o170000;

impl FileKind {
    /// From `i_mode`; `None` if the kind bits are none of POSIX's.
    pub fn from_mode(mode: u16) -> Option<FileKind> {
        Some(match mode & S_IFMT {
            0o010000 => FileKind::Fifo,
            0o020000 => FileKind::CharDevice,
            0o040000 => FileKind::Directory,
            0o060000 => FileKind::BlockDevice,
            0o100000 => FileKind::Regular,
            0o120000 => FileKind::Symlink,
            0o140000 => FileKind::Socket,
            _ => return None,
        })
    }
    /// The kind bits of `i_mode`.
    pub fn mode_bits(self) -> u16 {
        match self {
            FileKind::Fifo => 0o010000,
            FileKind::CharDevice => 0o020000,
            FileKind::Directory => 0o040000,
            FileKind::BlockDevice => 0o060000,
            FileKind::Regular => 0o100000,
            FileKind::Symlink => 0o120000,
            FileKind::Socket => 0o140000,
        }
    }
    /// Whether it is a device special file.
    pub fn is_device(self) -> bool {
        matches!(self, FileKind::CharDevice | FileKind::BlockDevice)
    }
}

/// An inode, decoded. Bytes of the slot that it does not name survive [`InodeRecord::encode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InodeRecord {
    /// Kind and permission bits. 0 in an unused inode.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes on the disk (`i_disksize`); at most `i64::MAX`.
    pub size: u64,
    /// Hard links. In a directory 1 means "65,000 or more" with `dir_nlink`.
    pub links_count: u16,
    /// Space taken, in units of 512 bytes, however it is encoded.
    pub blocks: u64,
    /// `i_flags`; `HUGE_FILE` is the codec's and set again by `encode`.
    pub flags: InodeFlags,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Creation; the epoch where the inode has no room for it.
    pub crtime: Timestamp,
    /// Deletion time in seconds, or the next inode of the orphan list.
    pub dtime: u32,
    /// NFS generation.
    pub generation: u32,
    /// The xattr block, 0 for none; inside the file system.
    pub file_acl: u64,
    /// Change counter (64 bits where the inode has room, else 32).
    pub i_version: u64,
    /// Project, 0 without the `project` feature.
    pub projid: u32,
    /// Block map, extent root, inline data, short symlink or device number.
    pub i_block: [u8; 60],
    /// Bytes in use past the first 128; 0 in 128-byte inodes.
    pub extra_isize: u16,
}

impl InodeRecord {
    /// An inode in its first state: everything zero but what is given. The
    /// extent root or other contents of `i_block` are the caller's.
    pub fn new(geo: &Geometry, mode: u16, uid: u32, gid: u32, now: Timestamp) -> InodeRecord {
        InodeRecord {
            mode,
            uid,
            gid,
            size: 0,
            links_count: 0,
            blocks: 0,
            flags: InodeFlags::empty(),
            atime: now,
            ctime: now,
            mtime: now,
            crtime: now,
            dtime: 0,
            generation: 0,
            file_acl: 0,
            i_version: 0,
            projid: 0,
            i_block: [0; 60],
            extra_isize: InodeRecord::wanted_extra_isize(geo),
        }
    }

    /// The `i_extra_isize` of new inodes: the fields that the kernel knows, or more if the superblock
    /// wants.
    pub fn wanted_extra_isize(geo: &Geometry) -> u16 {
        let room = geo.inode_size.saturating_sub(GOOD_OLD_INODE_SIZE as u16);
        let want = geo.extra_isize.1.max(geo.extra_isize.0).max(EXTRA_ISIZE);
        let want = if want.is_multiple_of(4) && want <= room { want } else { EXTRA_ISIZE };
        want.min(room)
    }

    /// Gives an inode whose extra fields end early, and `ibody`, the attribute area behind them, the
    /// shape of a new one. `false`, and nothing changed, if the attributes leave no room for that.
    pub fn expand_extra_isize(&mut self, geo: &Geometry, ibody: &mut Vec<u8>) -> Result<bool> {
        let want = InodeRecord::wanted_extra_isize(geo);
        if self.extra_isize >= want {
            return Ok(true);
        }
        let old = std::mem::replace(&mut self.extra_isize, want);
        let mut new = vec![0; self.ibody_range(geo).len()];
        let moved = super::inline::copy_area(ibody, &mut new);
        if matches!(moved, Ok(true)) {
            *ibody = new;
        } else {
            self.extra_isize = old;
        }
        Ok(moved?)
    }

    /// Decodes the slot of inode `ino` (`inode_size` bytes), checking what the
    /// kernel checks before it trusts an inode. The checksum is [`super::seal`]'s affair.
    ///
    /// # Errors
    /// `Corrupt` naming the field.
    pub fn parse(geo: &Geometry, ino: Ino, bytes: &[u8]) -> Result<InodeRecord> {
        let bad = |what, value: u64| -> Error { Corrupt::new(what).ino(ino).value(value).into() };
        let slot = bytes
            .get(..usize::from(geo.inode_size))
            .ok_or_else(|| bad("inode slot size", bytes.len() as u64))?;
        let (raw, extra) = load(slot);
        let extra_isize = if extra { raw.i_extra_isize.get() } else { 0 };
        let end = GOOD_OLD_INODE_SIZE + usize::from(extra_isize);
        if end > slot.len() || !extra_isize.is_multiple_of(4) {
            return Err(bad("i_extra_isize", u64::from(extra_isize)));
        }
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let mode = raw.i_mode.get();
        let kind = FileKind::from_mode(mode);

        let wide = kind == Some(FileKind::Regular) || geo.has_incompat(Incompat::LARGEDIR);
        let size_high = if wide { raw.i_size_high.get() } else { 0 };
        let size = u64::from(size_high) << 32 | u64::from(raw.i_size_lo.get());
        if size > i64::MAX as u64 {
            return Err(bad("i_size", size));
        }
        let acl_high =
            if geo.has_incompat(Incompat::BIT64) { raw.i_file_acl_high.get() } else { 0 };
        let file_acl = u64::from(acl_high) << 32 | u64::from(raw.i_file_acl_lo.get());
        if file_acl != 0 && !geo.is_valid_block(Block(file_acl), 1) {
            return Err(bad("i_file_acl", file_acl));
        }
        let fits = |field_end: usize| end >= field_end;
        let stamp = |sec: u32, extra: u32, field_end| {
            Timestamp::decode(sec, fits(field_end).then_some(extra))
        };
        let version_hi = if fits(0x9c) { raw.i_version_hi.get() } else { 0 };
        Ok(InodeRecord {
            mode,
            uid: u32::from(raw.i_uid_high.get()) << 16 | u32::from(raw.i_uid.get()),
            gid: u32::from(raw.i_gid_high.get()) << 16 | u32::from(raw.i_gid.get()),
            size,
            links_count: raw.i_links_count.get(),
            blocks: decode_blocks(geo, &raw, flags),
            flags,
            atime: stamp(raw.i_atime.get(), raw.i_atime_extra.get(), 0x90),
            ctime: stamp(raw.i_ctime.get(), raw.i_ctime_extra.get(), 0x88),
            mtime: stamp(raw.i_mtime.get(), raw.i_mtime_extra.get(), 0x8c),
            crtime: if fits(0x94) {
                stamp(raw.i_crtime.get(), raw.i_crtime_extra.get(), 0x98)
            } else {
                Timestamp::default()
            },
            dtime: raw.i_dtime.get(),
            generation: raw.i_generation.get(),
            file_acl,
            i_version: u64::from(version_hi) << 32 | u64::from(raw.i_version.get()),
            projid: if fits(0xa0) && geo.has_ro_compat(RoCompat::PROJECT) {
                raw.i_projid.get()
            } else {
                0
            },
            i_block: raw.i_block,
            extra_isize,
        })
    }

    /// Writes the record into its slot, leaving every byte it does not name. The
    /// slot must be sealed afterwards. A new inode starts from a zeroed slot.
    ///
    /// # Errors
    /// `TooBig` if `blocks` cannot be encoded with the features at hand;
    /// `Corrupt` if the slot is too short.
    pub fn encode(&self, geo: &Geometry, bytes: &mut [u8]) -> Result<()> {
        let slot =
            bytes.get_mut(..usize::from(geo.inode_size)).ok_or(Corrupt::new("inode slot size"))?;
        let (mut raw, extra) = load(slot);
        let end = GOOD_OLD_INODE_SIZE + if extra { usize::from(self.extra_isize) } else { 0 };
        let fits = |field_end: usize| extra && end >= field_end;

        raw.i_mode.set(self.mode);
        raw.i_uid.set(self.uid as u16);
        raw.i_uid_high.set((self.uid >> 16) as u16);
        raw.i_gid.set(self.gid as u16);
        raw.i_gid_high.set((self.gid >> 16) as u16);
        raw.i_size_lo.set(self.size as u32);
        raw.i_size_high.set((self.size >> 32) as u32);
        raw.i_links_count.set(self.links_count);
        let huge = encode_blocks(geo, &mut raw, self.blocks)?;
        let mut flags = self.flags;
        flags.set(InodeFlags::HUGE_FILE, huge);
        raw.i_flags.set(flags.bits());
        raw.i_dtime.set(self.dtime);
        raw.i_generation.set(self.generation);
        raw.i_file_acl_lo.set(self.file_acl as u32);
        if geo.has_incompat(Incompat::BIT64) {
            raw.i_file_acl_high.set((self.file_acl >> 32) as u16);
        }
        raw.i_version.set(self.i_version as u32);
        raw.i_block = self.i_block;
        if extra {
            raw.i_extra_isize.set(self.extra_isize);
        }
        let (sec, x) = self.atime.encode(fits(0x90));
        raw.i_atime.set(sec);
        if fits(0x90) {
            raw.i_atime_extra.set(x);
        }
        let (sec, x) = self.ctime.encode(fits(0x88));
        raw.i_ctime.set(sec);
        if fits(0x88) {
            raw.i_ctime_extra.set(x);
        }
        let (sec, x) = self.mtime.encode(fits(0x8c));
        raw.i_mtime.set(sec);
        if fits(0x8c) {
            raw.i_mtime_extra.set(x);
        }
        if fits(0x94) {
            let (sec, x) = self.crtime.encode(fits(0x98));
            raw.i_crtime.set(sec);
            if fits(0x98) {
                raw.i_crtime_extra.set(x);
            }
        }
        if fits(0x9c) {
            raw.i_version_hi.set((self.i_version >> 32) as u32);
        }
        if fits(0xa0) && geo.has_ro_compat(RoCompat::PROJECT) {
            raw.i_projid.set(self.projid);
        }
        slot.iter_mut().zip(raw.as_bytes()).for_each(|(d, s)| *d = *s);
        Ok(())
    }

    /// The kind of file; `None` in an unused or broken inode.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }
    /// Where in its slot the in-inode xattrs lie; empty if there is no room for any.
    /// They are there if the region begins with the xattr magic.
    pub fn ibody_range(&self, geo: &Geometry) -> Range<usize> {
        let end = usize::from(geo.inode_size);
        if self.extra_isize == 0 {
            return end..end;
        }
        (GOOD_OLD_INODE_SIZE + usize::from(self.extra_isize)).min(end)..end
    }
    /// Whether a symlink's target lies in `i_block`: it takes no blocks other
    /// than an xattr block, and is short enough.
    pub fn is_fast_symlink(&self, geo: &Geometry) -> bool {
        if self.kind() != Some(FileKind::Symlink)
            || self.flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
        {
            return false;
        }
        let cluster = geo.block_size.bytes64() << geo.cluster_bits;
        let xattr = if self.file_acl == 0 { 0 } else { cluster >> 9 };
        self.blocks <= xattr && self.size < 60
    }
    /// The device number of a device special file.
    pub fn rdev(&self) -> Option<(u32, u32)> {
        self.kind().filter(|k| k.is_device()).map(|_| decode_rdev(&self.i_block))
    }
}

/// The known part of a slot, and whether the slot has the extra fields.
fn load(slot: &[u8]) -> (RawInode, bool) {
    let mut raw = RawInode::new_zeroed();
    raw.as_mut_bytes().iter_mut().zip(slot).for_each(|(d, s)| *d = *s);
    (raw, slot.len() > GOOD_OLD_INODE_SIZE)
}

fn decode_blocks(geo: &Geometry, raw: &RawInode, flags: InodeFlags) -> u64 {
    let lo = u64::from(raw.i_blocks_lo.get());
    if !geo.has_ro_compat(RoCompat::HUGE_FILE) {
        return lo;
    }
    let n = u64::from(raw.i_blocks_high.get()) << 32 | lo;
    if flags.contains(InodeFlags::HUGE_FILE) { n << (geo.block_size.log2() - 9) } else { n }
}

/// Returns whether the count went in as file-system blocks (`HUGE_FILE`).
fn encode_blocks(geo: &Geometry, raw: &mut RawInode, blocks: u64) -> Result<bool> {
    if blocks <= u64::from(u32::MAX) {
        raw.i_blocks_lo.set(blocks as u32);
        if geo.has_ro_compat(RoCompat::HUGE_FILE) {
            raw.i_blocks_high.set(0);
        }
        return Ok(false);
    }
    if !geo.has_ro_compat(RoCompat::HUGE_FILE) {
        return Err(Error::TooBig);
    }
    let (n, huge) = if blocks < 1 << 48 {
        (blocks, false)
    } else {
        (blocks >> (geo.block_size.log2() - 9), true)
    };
    if n >= 1 << 48 {
        return Err(Error::TooBig);
    }
    raw.i_blocks_lo.set(n as u32);
    raw.i_blocks_high.set((n >> 32) as u16);
    Ok(huge)
}

/// Major and minor of the device number in `i_block`: the old 16-bit form in
/// the first word, else the new 32-bit form in the second.
pub fn decode_rdev(i_block: &[u8; 60]) -> (u32, u32) {
    let old = super::bytes::le32(i_block, 0).unwrap_or(0);
    if old != 0 {
        return (old >> 8 & 0xff, old & 0xff);
    }
    let new = super::bytes::le32(i_block, 4).unwrap_or(0);
    ((new & 0xf_ff00) >> 8, (new & 0xff) | (new >> 12 & 0xf_ff00))
}

/// Writes a device number into `i_block`, in the old form where it fits (both below 256).
///
/// # Errors
/// `Overflow` if the major needs more than 12 bits or the minor more than 20.
pub fn encode_rdev(i_block: &mut [u8; 60], major: u32, minor: u32) -> Result<()> {
    if major >= 1 << 12 || minor >= 1 << 20 {
        return Err(Error::Overflow);
    }
    let (old, new) = if major < 256 && minor < 256 {
        (major << 8 | minor, 0)
    } else {
        (0, (minor & 0xff) | major << 8 | (minor & !0xff) << 12)
    };
    i_block[..4].copy_from_slice(&old.to_le_bytes());
    i_block[4..8].copy_from_slice(&new.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers() {
        for (major, minor) in [(8, 1), (255, 255), (259, 0), (8, 256), (4095, 0xf_ffff), (0, 0)] {
            let mut b = [0; 60];
            encode_rdev(&mut b, major, minor).unwrap();
            assert_eq!(decode_rdev(&b), (major, minor));
        }
        assert!(matches!(encode_rdev(&mut [0; 60], 4096, 0), Err(Error::Overflow)));
    }
}
