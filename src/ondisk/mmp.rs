//! The block of multiple-mount protection.

use crate::error::{Corrupt, Error, Result};
use std::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `EXT4_MMP_MAGIC`
pub const MMP_MAGIC: u32 = 0x004d_4d50;
/// `mmp_seq` of a file system that is not mounted.
pub const MMP_SEQ_CLEAN: u32 = 0xff4d_4d50;
/// `mmp_seq` while e2fsck runs.
pub const MMP_SEQ_FSCK: u32 = 0xe24d_4d50;
/// Largest `mmp_seq` of a mount.
pub const MMP_SEQ_MAX: u32 = 0xe24d_4d4f;
/// Bounds of the interval between updates, in seconds.
pub const MMP_INTERVAL: std::ops::RangeInclusive<u16> = 5..=300;

/// `struct mmp_struct`: 1024 bytes at the start of its block. The checksum is
/// [`super::seal`]'s affair.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawMmp {
    pub mmp_magic: U32,
    pub mmp_seq: U32,
    pub mmp_time: U64,
    pub mmp_nodename: [u8; 64],
    pub mmp_bdevname: [u8; 32],
    pub mmp_check_interval: U16,
    pub mmp_pad1: U16,
    pub mmp_pad2: [U32; 226],
    pub mmp_checksum: U32,
}

const _: () = {
    assert!(size_of::<RawMmp>() == 1024);
    assert!(offset_of!(RawMmp, mmp_check_interval) == 0x70);
    assert!(offset_of!(RawMmp, mmp_checksum) == 0x3fc);
};

/// What the sequence number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmpState {
    /// Nobody has it mounted.
    Clean,
    /// e2fsck is at it.
    Fsck,
    /// Mounted, or was at a crash: only waiting tells.
    Active(u32),
}

impl RawMmp {
    /// Reads the block.
    ///
    /// # Errors
    /// `Corrupt` if it is too short or has no magic.
    pub fn parse(data: &[u8]) -> Result<RawMmp> {
        let (raw, _) = RawMmp::read_from_prefix(data)
            .map_err(|_| Corrupt::new("MMP block size").value(data.len() as u64))?;
        match raw.mmp_magic.get() {
            MMP_MAGIC => Ok(raw),
            m => Err(Corrupt::new("MMP magic").value(u64::from(m)).into()),
        }
    }

    /// What the sequence number says.
    ///
    /// # Errors
    /// `Corrupt` if it is none of those defined.
    pub fn state(&self) -> Result<MmpState> {
        match self.mmp_seq.get() {
            MMP_SEQ_CLEAN => Ok(MmpState::Clean),
            MMP_SEQ_FSCK => Ok(MmpState::Fsck),
            s if (1..=MMP_SEQ_MAX).contains(&s) => Ok(MmpState::Active(s)),
            s => Err(Error::from(Corrupt::new("MMP sequence").value(u64::from(s)))),
        }
    }

    /// Seconds between updates, within [`MMP_INTERVAL`].
    pub fn interval(&self) -> u16 {
        self.mmp_check_interval.get().clamp(*MMP_INTERVAL.start(), *MMP_INTERVAL.end())
    }

    /// Fills in what an update writes. Names are cut to their fields.
    pub fn update(&mut self, seq: u32, time: u64, node: &[u8], device: &[u8], interval: u16) {
        self.mmp_seq.set(seq);
        self.mmp_time.set(time);
        self.mmp_nodename = [0; 64];
        self.mmp_nodename.iter_mut().zip(node).for_each(|(d, s)| *d = *s);
        self.mmp_bdevname = [0; 32];
        self.mmp_bdevname.iter_mut().zip(device).for_each(|(d, s)| *d = *s);
        self.mmp_check_interval.set(interval);
    }
}
