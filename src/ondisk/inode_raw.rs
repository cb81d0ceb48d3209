//! The inode as it lies on the disk.

use std::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `struct ext4_inode`: the 128 bytes every inode has and the 32 that follow in
/// larger ones, of which `i_extra_isize` says how many are in use.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawInode {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    pub i_version: U32,
    pub i_block: [u8; 60],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_obso_faddr: U32,
    pub i_blocks_high: U16,
    pub i_file_acl_high: U16,
    pub i_uid_high: U16,
    pub i_gid_high: U16,
    pub i_checksum_lo: U16,
    pub i_reserved: U16,
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
}

/// Bytes of an inode before the extra fields.
pub const GOOD_OLD_INODE_SIZE: usize = 128;
/// Bytes of the extra fields known here: the `i_extra_isize` of new inodes.
pub const EXTRA_ISIZE: u16 = (size_of::<RawInode>() - GOOD_OLD_INODE_SIZE) as u16;
/// Byte offset of `i_block`.
pub const I_BLOCK_OFFSET: usize = offset_of!(RawInode, i_block);
/// Byte offset of `i_dtime`, which links the orphan list.
pub const I_DTIME_OFFSET: usize = offset_of!(RawInode, i_dtime);
/// Byte offset of `i_generation`.
pub const I_GENERATION_OFFSET: usize = offset_of!(RawInode, i_generation);
/// Byte offset of `i_checksum_lo`.
pub const I_CHECKSUM_LO_OFFSET: usize = offset_of!(RawInode, i_checksum_lo);
/// Byte offset of `i_checksum_hi`, where the inode has it.
pub const I_CHECKSUM_HI_OFFSET: usize = offset_of!(RawInode, i_checksum_hi);
/// Byte offset of `i_extra_isize`, where the inode has it.
pub const I_EXTRA_ISIZE_OFFSET: usize = offset_of!(RawInode, i_extra_isize);

const _: () = {
    assert!(size_of::<RawInode>() == 160);
    assert!(offset_of!(RawInode, i_flags) == 0x20);
    assert!(I_BLOCK_OFFSET == 0x28);
    assert!(I_GENERATION_OFFSET == 0x64);
    assert!(offset_of!(RawInode, i_blocks_high) == 0x74);
    assert!(I_CHECKSUM_LO_OFFSET == 0x7c);
    assert!(I_EXTRA_ISIZE_OFFSET == 0x80);
    assert!(I_CHECKSUM_HI_OFFSET == 0x82);
    assert!(offset_of!(RawInode, i_crtime) == 0x90);
    assert!(offset_of!(RawInode, i_projid) == 0x9c);
};
