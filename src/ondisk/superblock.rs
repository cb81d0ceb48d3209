//! The superblock, checked: what is parsed here can be computed with.

use super::csum::crc32c;
use super::features::{Compat, Features, Incompat, RoCompat};
use super::superblock_raw::RawSuperblock;
use crate::error::{Corrupt, Error, Result};
use crate::types::{Block, BlockSize, Ino};
use std::mem::offset_of;
use zerocopy::{FromBytes, IntoBytes};

/// Byte offset of the superblock on the device.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Bytes in the superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// `s_magic`
pub const EXT4_MAGIC: u16 = 0xef53;

bitflags::bitflags! {
    /// `s_state`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct State: u16 {
        /// `EXT4_VALID_FS`: unmounted cleanly.
        const VALID = 1;
        /// `EXT4_ERROR_FS`: errors were found.
        const ERROR = 2;
        /// `EXT4_ORPHAN_FS`: orphans are being recovered.
        const ORPHAN = 4;
        /// `EXT4_FC_REPLAY`: a fast-commit replay was under way.
        const FC_REPLAY = 0x20;
    }

    /// `s_flags`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SuperFlags: u32 {
        /// Directory hashes were computed with signed `char`.
        const SIGNED_HASH = 1;
        /// Directory hashes were computed with unsigned `char`.
        const UNSIGNED_HASH = 2;
        /// A test file system.
        const TEST_FILESYS = 4;
    }

    /// `s_default_mount_opts` (`EXT4_DEFM_*`); the two journal-mode bits are
    /// read with [`Superblock::default_data_mode`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DefaultOpts: u32 {
        /// `debug`
        const DEBUG = 0x1;
        /// `bsdgroups`
        const BSDGROUPS = 0x2;
        /// `user_xattr`
        const XATTR_USER = 0x4;
        /// `acl`
        const ACL = 0x8;
        /// `uid16`
        const UID16 = 0x10;
        /// `journal_data`
        const JMODE_DATA = 0x20;
        /// `journal_data_ordered`
        const JMODE_ORDERED = 0x40;
        /// `nobarrier`
        const NOBARRIER = 0x100;
        /// `block_validity`
        const BLOCK_VALIDITY = 0x200;
        /// `discard`
        const DISCARD = 0x400;
        /// `nodelalloc`
        const NODELALLOC = 0x800;
    }
}

/// The data mode that `s_default_mount_opts` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataMode {
    /// `journal_data`
    Journal,
    /// `journal_data_ordered`
    Ordered,
    /// `journal_data_writeback`
    Writeback,
}

/// `s_errors`: what to do when an error is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorsBehaviour {
    /// 1
    Continue,
    /// 2
    RemountRo,
    /// 3
    Panic,
}

/// One of the two error records (`s_first_error_*`, `s_last_error_*`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorRecord {
    /// Seconds since the epoch.
    pub time: u64,
    /// The inode concerned, or 0.
    pub ino: u32,
    /// The block concerned, or 0.
    pub block: u64,
    /// Source line, as the kernel records it.
    pub line: u32,
    /// Function name, at most 32 bytes are kept.
    pub func: String,
    /// `EXT4_ERR_*` code; see [`errcode`].
    pub errcode: u8,
}

/// `EXT4_ERR_*` for an errno, for [`ErrorRecord::errcode`].
pub fn errcode(errno: i32) -> u8 {
    match errno {
        libc::EIO => 2,
        libc::ENOMEM => 3,
        libc::EBADMSG => 4,
        libc::EUCLEAN => 5,
        libc::ENOSPC => 6,
        libc::ENOKEY => 7,
        libc::EROFS => 8,
        libc::EFBIG => 9,
        libc::EEXIST => 10,
        libc::ERANGE => 11,
        libc::EOVERFLOW => 12,
        libc::EBUSY => 13,
        libc::ENOTDIR => 14,
        libc::ENOTEMPTY => 15,
        libc::ESHUTDOWN => 16,
        libc::EFAULT => 17,
        _ => 1,
    }
}

/// A superblock that passed every check the kernel makes at mount, and those
/// that keep later arithmetic inside its types. The raw bytes are kept whole:
/// fields nobody here knows survive [`Superblock::encode`].
#[derive(Clone, Debug)]
pub struct Superblock {
    raw: RawSuperblock,
    features: Features,
    block_size: BlockSize,
    cluster_bits: u32,
    blocks_count: u64,
    groups_count: u32,
    inode_size: u16,
    desc_size: u16,
    csum_seed: u32,
}

fn bad(what: &'static str, value: u64) -> Error {
    Corrupt::new(what).value(value).into()
}

impl Superblock {
    /// Parses and checks the 1024 bytes at [`SUPERBLOCK_OFFSET`].
    ///
    /// # Errors
    /// `Unmountable` if this is no ext2/3/4 file system or one that cannot be
    /// computed with at all; `Corrupt` if it contradicts itself or its checksum.
    pub fn parse(bytes: &[u8; 1024]) -> Result<Superblock> {
        let raw =
            RawSuperblock::read_from_bytes(bytes).map_err(|_| Corrupt::new("superblock size"))?;
        let magic = raw.s_magic.get();
        if magic != EXT4_MAGIC {
            return Err(Error::Unmountable(format!(
                "not an ext2/ext3/ext4 file system (magic {magic:#06x}, expected {EXT4_MAGIC:#06x})"
            )));
        }
        let rev = raw.s_rev_level.get();
        if rev > 1 {
            return Err(Error::Unmountable(format!("unknown superblock revision {rev}")));
        }
        // Revision 0 has no feature words, and these bytes may hold anything.
        let features = if rev == 0 {
            Features::from_words(0, 0, 0)
        } else {
            Features::from_words(
                raw.s_feature_compat.get(),
                raw.s_feature_incompat.get(),
                raw.s_feature_ro_compat.get(),
            )
        };
        check_checksums(&raw, &features, bytes)?;
        if features.incompat.contains(Incompat::JOURNAL_DEV) {
            return Err(Error::Unmountable(
                "this is an external journal, not a file system".into(),
            ));
        }

        let log = raw.s_log_block_size.get();
        let block_size =
            BlockSize::from_log(log).ok_or_else(|| bad("s_log_block_size", u64::from(log)))?;
        let cluster_bits = cluster_bits(&raw, &features, block_size)?;
        let (inode_size, _) = inode_layout(&raw, rev, block_size)?;
        let desc_size = desc_size(&raw, &features)?;
        let blocks_count = blocks_count(&raw, &features);
        let groups_count =
            check_groups(&raw, &features, block_size, cluster_bits, inode_size, blocks_count)?;
        check_gdt(&raw, &features, block_size, desc_size, groups_count)?;
        check_special_inodes(&raw, &features)?;
        let csum_seed = if features.incompat.contains(Incompat::CSUM_SEED) {
            raw.s_checksum_seed.get()
        } else {
            crc32c(!0, &raw.s_uuid)
        };
        Ok(Superblock {
            raw,
            features,
            block_size,
            cluster_bits,
            blocks_count,
            groups_count,
            inode_size,
            desc_size,
            csum_seed,
        })
    }

    /// The 1024 bytes to write, with the checksum made (with `metadata_csum`).
    pub fn encode(&self) -> [u8; 1024] {
        let mut raw = self.raw.clone();
        if self.metadata_csum() {
            let n = offset_of!(RawSuperblock, s_checksum);
            let sum = crc32c(!0, raw.as_bytes().get(..n).unwrap_or_default());
            raw.s_checksum.set(sum);
        }
        let mut out = [0; 1024];
        out.copy_from_slice(raw.as_bytes());
        out
    }

    /// The raw fields, by their on-disk names.
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }
    /// The three feature words.
    pub fn features(&self) -> Features {
        self.features
    }
    /// Bytes in a block.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }
    /// log2 of the blocks in a cluster; 0 without `bigalloc`.
    pub fn cluster_bits(&self) -> u32 {
        self.cluster_bits
    }
    /// Blocks in the file system, counting from block 0.
    pub fn blocks_count(&self) -> u64 {
        self.blocks_count
    }
    /// Block groups.
    pub fn groups_count(&self) -> u32 {
        self.groups_count
    }
    /// Bytes in an inode, a power of two from 128 to the block size.
    pub fn inode_size(&self) -> u16 {
        self.inode_size
    }
    /// Bytes in a group descriptor: 32, or a power of two from 64 to 1024 with `64bit`.
    pub fn desc_size(&self) -> u16 {
        self.desc_size
    }
    /// The first inode that is not reserved.
    pub fn first_ino(&self) -> Ino {
        Ino(if self.raw.s_rev_level.get() == 0 { 11 } else { self.raw.s_first_ino.get() })
    }
    /// The seed of all metadata checksums.
    pub fn csum_seed(&self) -> u32 {
        self.csum_seed
    }
    /// Whether metadata carries CRC-32C checksums.
    pub fn metadata_csum(&self) -> bool {
        self.features.ro_compat.contains(RoCompat::METADATA_CSUM)
    }
    /// The inode of the internal journal, if the file system has one.
    pub fn journal_inum(&self) -> Option<Ino> {
        let ino = self.raw.s_journal_inum.get();
        (self.features.compat.contains(Compat::HAS_JOURNAL) && ino != 0).then_some(Ino(ino))
    }
    /// Whether the journal is on another device, which this driver does not open.
    pub fn external_journal(&self) -> bool {
        self.features.compat.contains(Compat::HAS_JOURNAL) && self.raw.s_journal_inum.get() == 0
    }
    /// Whether the journal holds transactions to replay (`needs_recovery`).
    pub fn needs_recovery(&self) -> bool {
        self.features.incompat.contains(Incompat::RECOVER)
    }
    /// `s_state`
    pub fn state(&self) -> State {
        State::from_bits_retain(self.raw.s_state.get())
    }
    /// `s_flags`
    pub fn flags(&self) -> SuperFlags {
        SuperFlags::from_bits_retain(self.raw.s_flags.get())
    }
    /// `s_default_mount_opts`
    pub fn default_opts(&self) -> DefaultOpts {
        DefaultOpts::from_bits_retain(self.raw.s_default_mount_opts.get())
    }
    /// The data mode in `s_default_mount_opts`, if it names one.
    pub fn default_data_mode(&self) -> Option<DataMode> {
        match self.raw.s_default_mount_opts.get() & 0x60 {
            0x20 => Some(DataMode::Journal),
            0x40 => Some(DataMode::Ordered),
            0x60 => Some(DataMode::Writeback),
            _ => None,
        }
    }
    /// `s_errors`; unknown values mean continue, as in the kernel.
    pub fn errors(&self) -> ErrorsBehaviour {
        match self.raw.s_errors.get() {
            2 => ErrorsBehaviour::RemountRo,
            3 => ErrorsBehaviour::Panic,
            _ => ErrorsBehaviour::Continue,
        }
    }
    /// Free blocks as last recorded (a hint: the descriptors are the truth).
    pub fn free_blocks_count(&self) -> u64 {
        let r = &self.raw;
        self.join(r.s_free_blocks_count_lo.get(), r.s_free_blocks_count_hi.get())
    }
    /// Blocks reserved for root; never above `blocks_count`.
    pub fn r_blocks_count(&self) -> u64 {
        let r = &self.raw;
        let n = self.join(r.s_r_blocks_count_lo.get(), r.s_r_blocks_count_hi.get());
        n.min(self.blocks_count)
    }
    /// Free inodes as last recorded (a hint: the descriptors are the truth).
    pub fn free_inodes_count(&self) -> u32 {
        self.raw.s_free_inodes_count.get()
    }
    /// Head of the on-disk orphan list, if there is one in range.
    pub fn last_orphan(&self) -> Option<Ino> {
        let ino = self.raw.s_last_orphan.get();
        (ino != 0).then_some(Ino(ino))
    }
    /// The orphan file, with `orphan_file`.
    pub fn orphan_file_inum(&self) -> Option<Ino> {
        let ino = self.raw.s_orphan_file_inum.get();
        (self.features.compat.contains(Compat::ORPHAN_FILE) && ino != 0).then_some(Ino(ino))
    }
    /// The MMP block, with `mmp`.
    pub fn mmp_block(&self) -> Option<Block> {
        self.features.incompat.contains(Incompat::MMP).then_some(Block(self.raw.s_mmp_block.get()))
    }
    /// KiB written over the life of the file system.
    pub fn kbytes_written(&self) -> u64 {
        self.raw.s_kbytes_written.get()
    }
    /// Errors recorded since the last fsck.
    pub fn error_count(&self) -> u32 {
        self.raw.s_error_count.get()
    }
    /// Uid and gid that may use the reserved blocks.
    pub fn reserved_ids(&self) -> (u32, u32) {
        (u32::from(self.raw.s_def_resuid.get()), u32::from(self.raw.s_def_resgid.get()))
    }
    /// Last write of the superblock, seconds since the epoch.
    pub fn wtime(&self) -> u64 {
        time(self.raw.s_wtime.get(), self.raw.s_wtime_hi)
    }
    /// Last mount, seconds since the epoch.
    pub fn mtime(&self) -> u64 {
        time(self.raw.s_mtime.get(), self.raw.s_mtime_hi)
    }
    /// Volume name and directory of the last mount, up to their first NUL.
    pub fn labels(&self) -> (&[u8], &[u8]) {
        (until_nul(&self.raw.s_volume_name), until_nul(&self.raw.s_last_mounted))
    }

    /// Sets the free counts.
    pub fn set_free(&mut self, blocks: u64, inodes: u32) {
        self.raw.s_free_blocks_count_lo.set(blocks as u32);
        if self.features.incompat.contains(Incompat::BIT64) {
            self.raw.s_free_blocks_count_hi.set((blocks >> 32) as u32);
        }
        self.raw.s_free_inodes_count.set(inodes);
    }
    /// Sets the time of the last write (seconds since the epoch, 40 bits are kept).
    pub fn set_wtime(&mut self, secs: u64) {
        self.raw.s_wtime.set(secs as u32);
        self.raw.s_wtime_hi = (secs >> 32) as u8;
    }
    /// Sets the time of the last mount (seconds since the epoch, 40 bits are kept).
    pub fn set_mtime(&mut self, secs: u64) {
        self.raw.s_mtime.set(secs as u32);
        self.raw.s_mtime_hi = (secs >> 32) as u8;
    }
    /// Sets the number of mounts since the last fsck.
    pub fn set_mnt_count(&mut self, n: u16) {
        self.raw.s_mnt_count.set(n);
    }
    /// Sets `s_state`.
    pub fn set_state(&mut self, state: State) {
        self.raw.s_state.set(state.bits());
    }
    /// Sets where it was last mounted; cut at 64 bytes.
    pub fn set_last_mounted(&mut self, dir: &[u8]) {
        self.raw.s_last_mounted = [0; 64];
        copy_cut(&mut self.raw.s_last_mounted, dir);
    }
    /// Sets the group that this copy lies in: 0 for the primary.
    pub fn set_block_group_nr(&mut self, group: u16) {
        self.raw.s_block_group_nr.set(group);
    }
    /// Sets the volume name; cut at 16 bytes.
    pub fn set_volume_name(&mut self, name: &[u8]) {
        self.raw.s_volume_name = [0; 16];
        copy_cut(&mut self.raw.s_volume_name, name);
    }
    /// Sets or clears incompat bits (`RECOVER` around journal use, `LARGEDIR`, ...).
    pub fn set_incompat(&mut self, bits: Incompat, on: bool) {
        self.features.incompat.set(bits, on);
        self.raw.s_feature_incompat.set(self.features.incompat.bits());
    }
    /// Sets or clears ro_compat bits (`LARGE_FILE`, `ORPHAN_PRESENT`).
    pub fn set_ro_compat(&mut self, bits: RoCompat, on: bool) {
        self.features.ro_compat.set(bits, on);
        self.raw.s_feature_ro_compat.set(self.features.ro_compat.bits());
    }
    /// Sets or clears compat bits.
    pub fn set_compat(&mut self, bits: Compat, on: bool) {
        self.features.compat.set(bits, on);
        self.raw.s_feature_compat.set(self.features.compat.bits());
    }
    /// Sets the head of the orphan list.
    pub fn set_last_orphan(&mut self, ino: Option<Ino>) {
        self.raw.s_last_orphan.set(ino.map_or(0, |i| i.0));
    }

    /// `s_last_orphan` in an encoded superblock; `None` if `bytes` is too short to be one.
    pub fn last_orphan_field(bytes: &mut [u8]) -> Option<&mut [u8; 4]> {
        let at = core::mem::offset_of!(super::superblock_raw::RawSuperblock, s_last_orphan);
        bytes.get_mut(at..)?.first_chunk_mut()
    }
    /// Sets the lifetime write counter, in KiB.
    pub fn set_kbytes_written(&mut self, kib: u64) {
        self.raw.s_kbytes_written.set(kib);
    }
    /// Sets the hash flags that say whether directory hashes use signed `char`.
    pub fn set_flags(&mut self, flags: SuperFlags) {
        self.raw.s_flags.set(flags.bits());
    }

    /// Counts an error: the last record always, the first one if there is none yet.
    pub fn record_error(&mut self, e: &ErrorRecord) {
        let r = &mut self.raw;
        r.s_state.set(r.s_state.get() | State::ERROR.bits());
        r.s_last_error_time.set(e.time as u32);
        r.s_last_error_time_hi = (e.time >> 32) as u8;
        r.s_last_error_ino.set(e.ino);
        r.s_last_error_block.set(e.block);
        r.s_last_error_line.set(e.line);
        r.s_last_error_errcode = e.errcode;
        r.s_last_error_func = [0; 32];
        copy_cut(&mut r.s_last_error_func, e.func.as_bytes());
        if r.s_first_error_time.get() == 0 && r.s_first_error_time_hi == 0 {
            r.s_first_error_time = r.s_last_error_time;
            r.s_first_error_time_hi = r.s_last_error_time_hi;
            r.s_first_error_ino = r.s_last_error_ino;
            r.s_first_error_block = r.s_last_error_block;
            r.s_first_error_line = r.s_last_error_line;
            r.s_first_error_errcode = r.s_last_error_errcode;
            r.s_first_error_func = r.s_last_error_func;
        }
        r.s_error_count.set(r.s_error_count.get().saturating_add(1));
    }

    /// The first and the last error recorded; `None` if there was none.
    pub fn error_records(&self) -> Option<(ErrorRecord, ErrorRecord)> {
        let r = &self.raw;
        if r.s_error_count.get() == 0 {
            return None;
        }
        let first = ErrorRecord {
            time: time(r.s_first_error_time.get(), r.s_first_error_time_hi),
            ino: r.s_first_error_ino.get(),
            block: r.s_first_error_block.get(),
            line: r.s_first_error_line.get(),
            func: String::from_utf8_lossy(until_nul(&r.s_first_error_func)).into_owned(),
            errcode: r.s_first_error_errcode,
        };
        let last = ErrorRecord {
            time: time(r.s_last_error_time.get(), r.s_last_error_time_hi),
            ino: r.s_last_error_ino.get(),
            block: r.s_last_error_block.get(),
            line: r.s_last_error_line.get(),
            func: String::from_utf8_lossy(until_nul(&r.s_last_error_func)).into_owned(),
            errcode: r.s_last_error_errcode,
        };
        Some((first, last))
    }

    fn join(&self, lo: u32, hi: u32) -> u64 {
        let hi = if self.features.incompat.contains(Incompat::BIT64) { hi } else { 0 };
        u64::from(hi) << 32 | u64::from(lo)
    }
}

fn time(lo: u32, hi: u8) -> u64 {
    u64::from(hi) << 32 | u64::from(lo)
}

fn until_nul(b: &[u8]) -> &[u8] {
    b.split(|&c| c == 0).next().unwrap_or_default()
}

fn copy_cut(dst: &mut [u8], src: &[u8]) {
    dst.iter_mut().zip(src).for_each(|(d, s)| *d = *s);
}

fn check_checksums(raw: &RawSuperblock, features: &Features, bytes: &[u8; 1024]) -> Result<()> {
    let ro = features.ro_compat;
    if !ro.contains(RoCompat::METADATA_CSUM) {
        if features.incompat.contains(Incompat::CSUM_SEED) {
            return Err(Corrupt::new("metadata_csum_seed without metadata_csum").into());
        }
        return Ok(());
    }
    if raw.s_checksum_type != 1 {
        return Err(bad("s_checksum_type", u64::from(raw.s_checksum_type)));
    }
    let n = offset_of!(RawSuperblock, s_checksum);
    let sum = crc32c(!0, bytes.get(..n).unwrap_or_default());
    if sum != raw.s_checksum.get() {
        return Err(Corrupt::checksum("superblock").value(raw.s_checksum.get().into()).into());
    }
    Ok(())
}

fn cluster_bits(raw: &RawSuperblock, features: &Features, bs: BlockSize) -> Result<u32> {
    if !features.ro_compat.contains(RoCompat::BIGALLOC) {
        return Ok(0);
    }
    let log = raw.s_log_cluster_size.get();
    // EXT4_MAX_CLUSTER_LOG_SIZE is 30, less the 10 that the field leaves out.
    if log > 20 {
        return Err(bad("s_log_cluster_size", u64::from(log)));
    }
    (log + 10)
        .checked_sub(bs.log2())
        .ok_or_else(|| bad("cluster size below block size", u64::from(log)))
}

fn inode_layout(raw: &RawSuperblock, rev: u32, bs: BlockSize) -> Result<(u16, u32)> {
    if rev == 0 {
        return Ok((128, 11));
    }
    let size = raw.s_inode_size.get();
    if size < 128 || !size.is_power_of_two() || usize::from(size) > bs.bytes() {
        return Err(bad("s_inode_size", u64::from(size)));
    }
    let first = raw.s_first_ino.get();
    if first < 11 {
        return Err(bad("s_first_ino", u64::from(first)));
    }
    Ok((size, first))
}

fn desc_size(raw: &RawSuperblock, features: &Features) -> Result<u16> {
    if !features.incompat.contains(Incompat::BIT64) {
        return Ok(32);
    }
    let size = raw.s_desc_size.get();
    if !(64..=1024).contains(&size) || !size.is_power_of_two() {
        return Err(bad("s_desc_size", u64::from(size)));
    }
    Ok(size)
}

fn blocks_count(raw: &RawSuperblock, features: &Features) -> u64 {
    let hi =
        if features.incompat.contains(Incompat::BIT64) { raw.s_blocks_count_hi.get() } else { 0 };
    u64::from(hi) << 32 | u64::from(raw.s_blocks_count_lo.get())
}

/// Checks the shape of a group and the number of groups; returns the latter.
fn check_groups(
    raw: &RawSuperblock,
    features: &Features,
    bs: BlockSize,
    cluster_bits: u32,
    inode_size: u16,
    blocks_count: u64,
) -> Result<u32> {
    let bits = bs.bytes64() * 8;
    let bpg = u64::from(raw.s_blocks_per_group.get());
    let cpg = u64::from(raw.s_clusters_per_group.get());
    let ipg = u64::from(raw.s_inodes_per_group.get());
    let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
    let clusters = if bigalloc { cpg } else { bpg };
    if clusters == 0 || clusters > bits {
        return Err(bad("clusters per group", clusters));
    }
    if bigalloc && bpg != cpg << cluster_bits {
        return Err(bad("s_blocks_per_group and s_clusters_per_group disagree", bpg));
    }
    // e2fsprogs demands it too; bitmap checksums cover whole bytes only.
    if !clusters.is_multiple_of(8) {
        return Err(bad("clusters per group not a multiple of 8", clusters));
    }
    let inodes_per_block = bs.bytes64() / u64::from(inode_size);
    if ipg < inodes_per_block || ipg > bits {
        return Err(bad("s_inodes_per_group", ipg));
    }
    let itable = ipg.div_ceil(inodes_per_block);
    if itable >= bpg {
        return Err(bad("inode table does not fit in a group", itable));
    }

    let first = u64::from(raw.s_first_data_block.get());
    let expected = u64::from(bs.bytes() == 1024 && cluster_bits == 0);
    // With 1k blocks and bigalloc the group starts at block 0, and block 0 is the boot block.
    if first != expected {
        return Err(bad("s_first_data_block", first));
    }
    if blocks_count <= first {
        return Err(bad("s_blocks_count", blocks_count));
    }
    // Byte offsets must fit an i64, and block numbers the 48 bits that extents have.
    if blocks_count > 1 << 48 || blocks_count > (i64::MAX as u64) >> bs.log2() {
        return Err(bad("s_blocks_count", blocks_count));
    }
    let groups = (blocks_count - first).div_ceil(bpg);
    let inodes = groups.saturating_mul(ipg);
    if groups > u64::from(u32::MAX) || inodes != u64::from(raw.s_inodes_count.get()) {
        return Err(bad("s_inodes_count", u64::from(raw.s_inodes_count.get())));
    }
    if inodes < u64::from(raw.s_first_ino.get()).min(11) {
        return Err(bad("s_inodes_count", inodes));
    }
    Ok(groups as u32)
}

/// The descriptor table, with what `resize_inode` reserved behind it, must leave room in group 0.
fn check_gdt(
    raw: &RawSuperblock,
    features: &Features,
    bs: BlockSize,
    desc_size: u16,
    groups: u32,
) -> Result<()> {
    let per_block = bs.bytes64() / u64::from(desc_size);
    let desc_blocks = u64::from(groups).div_ceil(per_block);
    let bpg = u64::from(raw.s_blocks_per_group.get());
    let reserved = u64::from(raw.s_reserved_gdt_blocks.get());
    if reserved > bs.bytes64() / 4 {
        return Err(bad("s_reserved_gdt_blocks", reserved));
    }
    if features.incompat.contains(Incompat::META_BG) {
        let first = u64::from(raw.s_first_meta_bg.get());
        if first > desc_blocks {
            return Err(bad("s_first_meta_bg", first));
        }
        if features.compat.contains(Compat::RESIZE_INODE) {
            return Err(Corrupt::new("resize_inode and meta_bg together").into());
        }
        if 1 + first + 1 >= bpg {
            return Err(bad("group descriptors do not fit in group 0", first));
        }
    } else if 1 + desc_blocks + reserved >= bpg {
        return Err(bad("group descriptors do not fit in group 0", desc_blocks));
    }
    // Without the upper halves, counts in a descriptor have 16 bits.
    let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
    let clusters = if bigalloc { u64::from(raw.s_clusters_per_group.get()) } else { bpg };
    if desc_size < 64 && clusters.max(u64::from(raw.s_inodes_per_group.get())) > 0xffff {
        return Err(bad("group too large for 32-byte descriptors", clusters));
    }
    Ok(())
}

fn check_special_inodes(raw: &RawSuperblock, features: &Features) -> Result<()> {
    let count = raw.s_inodes_count.get();
    let first = if raw.s_rev_level.get() == 0 { 11 } else { raw.s_first_ino.get() };
    let in_range = |ino: u32| (1..=count).contains(&ino);
    let journal = raw.s_journal_inum.get();
    if features.compat.contains(Compat::HAS_JOURNAL) && journal != 0 {
        // Root as the journal would let the log overwrite the tree.
        if !in_range(journal) || journal == Ino::ROOT.0 {
            return Err(bad("s_journal_inum", u64::from(journal)));
        }
    }
    if features.incompat.contains(Incompat::RECOVER)
        && !features.compat.contains(Compat::HAS_JOURNAL)
    {
        return Err(Corrupt::new("needs_recovery without has_journal").into());
    }
    let orphan = raw.s_orphan_file_inum.get();
    if features.compat.contains(Compat::ORPHAN_FILE)
        && (!in_range(orphan) || orphan == Ino::ROOT.0 || orphan == journal)
    {
        return Err(bad("s_orphan_file_inum", u64::from(orphan)));
    }
    if first > count {
        return Err(bad("s_first_ino", u64::from(first)));
    }
    Ok(())
}
