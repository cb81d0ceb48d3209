//! The journal's superblock, and what its features say about the blocks of the log.

use super::csum::crc32c;
use crate::error::{Corrupt, Error, Result};
use crate::types::{BlockSize, Tid};
use std::mem::{offset_of, size_of};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use super::jbd2_log::{
    BlockHeader, BlockKind, Commit, DescriptorWriter, LogFormat, RevokeWriter, Revokes, Tag,
    TagFlags, Tags, crc32_be, escape, needs_escape, unescape,
};

/// `JBD2_MAGIC_NUMBER`
pub const JBD2_MAGIC: u32 = 0xc03b_3998;
/// `JBD2_MIN_JOURNAL_BLOCKS`
pub const JBD2_MIN_JOURNAL_BLOCKS: u32 = 1024;
/// Fast-commit blocks when `s_num_fc_blks` is 0.
pub const JBD2_DEFAULT_FC_BLOCKS: u32 = 256;
/// Bytes in a journal superblock; the rest of its block is unused.
pub const JOURNAL_SUPER_SIZE: usize = 1024;

bitflags::bitflags! {
    /// `s_feature_compat` of the journal.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct JCompat: u32 {
        /// Commit blocks carry a CRC-32 of their transaction (the first checksum format).
        const CHECKSUM = 1;
    }

    /// `s_feature_incompat` of the journal.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct JIncompat: u32 {
        /// The log may hold revoke records.
        const REVOKE = 1;
        /// Block numbers have 64 bits.
        const BIT64 = 2;
        /// The commit block is written without waiting for the blocks before it.
        const ASYNC_COMMIT = 4;
        /// Checksums, 16 bits in each tag.
        const CSUM_V2 = 8;
        /// Checksums, 32 bits in each tag.
        const CSUM_V3 = 16;
        /// The end of the journal is a fast-commit area.
        const FAST_COMMIT = 32;
    }
}

/// `journal_superblock_t`
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawJournalSuper {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 40],
    pub s_checksum: U32,
    pub s_users: [u8; 768],
}

const _: () = {
    assert!(size_of::<RawJournalSuper>() == JOURNAL_SUPER_SIZE);
    assert!(offset_of!(RawJournalSuper, s_start) == 0x1c);
    assert!(offset_of!(RawJournalSuper, s_feature_incompat) == 0x28);
    assert!(offset_of!(RawJournalSuper, s_uuid) == 0x30);
    assert!(offset_of!(RawJournalSuper, s_checksum_type) == 0x50);
    assert!(offset_of!(RawJournalSuper, s_num_fc_blks) == 0x54);
    assert!(offset_of!(RawJournalSuper, s_head) == 0x58);
    assert!(offset_of!(RawJournalSuper, s_checksum) == 0xfc);
};

/// A checked journal superblock. Unknown bytes survive [`JournalSuper::encode`].
#[derive(Clone, Debug)]
pub struct JournalSuper {
    raw: RawJournalSuper,
    compat: JCompat,
    incompat: JIncompat,
    v1: bool,
}

fn bad(what: &'static str, value: u32) -> Error {
    Corrupt::new(what).value(u64::from(value)).into()
}

impl JournalSuper {
    /// Parses the first block of the journal. `journal_blocks` is the length of
    /// the journal inode (or device) in blocks.
    ///
    /// # Errors
    /// `Unmountable` for unknown features, `Corrupt` for contradictions and a bad checksum.
    pub fn parse(bytes: &[u8], block_size: BlockSize, journal_blocks: u64) -> Result<JournalSuper> {
        let (raw, _) = RawJournalSuper::read_from_prefix(bytes)
            .map_err(|_| bad("journal superblock size", bytes.len() as u32))?;
        if raw.h_magic.get() != JBD2_MAGIC {
            return Err(bad("no journal superblock magic", raw.h_magic.get()));
        }
        let v1 = match raw.h_blocktype.get() {
            3 => true,
            4 => false,
            n => return Err(bad("journal superblock type", n)),
        };
        let word = |w: U32| if v1 { 0 } else { w.get() };
        let compat = JCompat::from_bits_retain(word(raw.s_feature_compat));
        let incompat = JIncompat::from_bits_retain(word(raw.s_feature_incompat));
        let unknown = incompat.bits() & !JIncompat::all().bits();
        let unknown_ro = word(raw.s_feature_ro_compat);
        if unknown != 0 || unknown_ro != 0 {
            return Err(Error::Unmountable(format!(
                "unknown journal features: incompat {unknown:#x}, ro_compat {unknown_ro:#x}"
            )));
        }
        let js = JournalSuper { raw, compat, incompat, v1 };
        js.check_checksum()?;
        js.check_layout(block_size, journal_blocks)?;
        Ok(js)
    }

    fn check_checksum(&self) -> Result<()> {
        let v2 = self.incompat.contains(JIncompat::CSUM_V2);
        let v3 = self.incompat.contains(JIncompat::CSUM_V3);
        if v2 && v3 {
            return Err(bad("journal has both checksum v2 and v3", self.incompat.bits()));
        }
        if (v2 || v3) && self.compat.contains(JCompat::CHECKSUM) {
            return Err(bad("journal has both checksum v1 and a later one", self.compat.bits()));
        }
        if !(v2 || v3) {
            return Ok(());
        }
        if self.raw.s_checksum_type != 4 {
            return Err(bad("journal checksum type", u32::from(self.raw.s_checksum_type)));
        }
        let stored = self.raw.s_checksum.get();
        if stored != super_csum(&self.raw) {
            return Err(Corrupt::checksum("journal superblock").value(u64::from(stored)).into());
        }
        Ok(())
    }

    fn check_layout(&self, block_size: BlockSize, journal_blocks: u64) -> Result<()> {
        let r = &self.raw;
        if r.s_blocksize.get() as usize != block_size.bytes() {
            return Err(bad("journal block size", r.s_blocksize.get()));
        }
        let len = r.s_maxlen.get();
        if u64::from(len) > journal_blocks {
            return Err(bad("journal shorter than its superblock says", len));
        }
        if len < JBD2_MIN_JOURNAL_BLOCKS {
            return Err(bad("journal too short", len));
        }
        let first = r.s_first.get();
        if first == 0 || first >= self.log_end() {
            return Err(bad("journal s_first", first));
        }
        let start = r.s_start.get();
        if start != 0 && !(first..self.log_end()).contains(&start) {
            return Err(bad("journal s_start", start));
        }
        Ok(())
    }

    /// The 1024 bytes to write, with the checksum made where there is one.
    pub fn encode(&self) -> [u8; JOURNAL_SUPER_SIZE] {
        let mut raw = self.raw.clone();
        if self.incompat.intersects(JIncompat::CSUM_V2 | JIncompat::CSUM_V3) {
            let sum = super_csum(&raw);
            raw.s_checksum.set(sum);
        }
        let mut out = [0; JOURNAL_SUPER_SIZE];
        out.copy_from_slice(raw.as_bytes());
        out
    }

    /// The raw fields, by their on-disk names.
    pub fn raw(&self) -> &RawJournalSuper {
        &self.raw
    }
    /// Whether it is a version 1 superblock, which cannot have features.
    pub fn is_v1(&self) -> bool {
        self.v1
    }
    /// Compat features.
    pub fn compat(&self) -> JCompat {
        self.compat
    }
    /// Incompat features.
    pub fn incompat(&self) -> JIncompat {
        self.incompat
    }
    /// Blocks in the journal, its superblock and fast-commit area included.
    pub fn maxlen(&self) -> u32 {
        self.raw.s_maxlen.get()
    }
    /// First block of the log.
    pub fn first(&self) -> u32 {
        self.raw.s_first.get()
    }
    /// Block after the last one of the log: where it wraps to [`Self::first`].
    pub fn log_end(&self) -> u32 {
        self.maxlen() - self.fc_blocks()
    }
    /// Fast-commit area, `(first block, block after the last)`; `None` without one.
    pub fn fc_area(&self) -> Option<(u32, u32)> {
        let n = self.fc_blocks();
        // The block at `log_end` itself stays unused, as in the kernel.
        (n > 1).then(|| (self.log_end() + 1, self.maxlen()))
    }
    fn fc_blocks(&self) -> u32 {
        if !self.incompat.contains(JIncompat::FAST_COMMIT) {
            return 0;
        }
        let n = match self.raw.s_num_fc_blks.get() {
            0 => JBD2_DEFAULT_FC_BLOCKS,
            n => n,
        };
        match self.maxlen().checked_sub(n) {
            Some(left) if left >= JBD2_MIN_JOURNAL_BLOCKS => n,
            _ => 0,
        }
    }
    /// The first transaction expected in the log.
    pub fn sequence(&self) -> Tid {
        Tid(self.raw.s_sequence.get())
    }
    /// Block where the log starts; 0 means that the log is empty.
    pub fn start(&self) -> u32 {
        self.raw.s_start.get()
    }
    /// The error that aborted the journal, as a positive errno; 0 for none.
    pub fn errno(&self) -> u32 {
        (self.raw.s_errno.get() as i32).unsigned_abs()
    }
    /// `s_head`: where the log ended when it was last emptied, if recorded.
    pub fn head(&self) -> u32 {
        self.raw.s_head.get()
    }
    /// File systems that use this journal.
    pub fn nr_users(&self) -> u32 {
        self.raw.s_nr_users.get()
    }

    /// Sets the tail of the log: the first transaction in it, and its block (0: empty).
    pub fn set_tail(&mut self, sequence: Tid, start: u32) {
        self.raw.s_sequence.set(sequence.0);
        self.raw.s_start.set(start);
    }
    /// Sets `s_head`.
    pub fn set_head(&mut self, block: u32) {
        self.raw.s_head.set(block);
    }
    /// Records the error (a positive errno) that aborted the journal; 0 clears it.
    pub fn set_errno(&mut self, errno: u32) {
        self.raw.s_errno.set((errno as i32).wrapping_neg() as u32);
    }
    /// Changes features; `CSUM_V2` or `CSUM_V3` also set the checksum type. A
    /// version 1 superblock becomes version 2. Only with an empty log.
    pub fn set_features(&mut self, compat: JCompat, incompat: JIncompat) {
        if self.v1 {
            self.v1 = false;
            self.raw.h_blocktype.set(4);
            self.raw.s_feature_ro_compat.set(0);
        }
        self.compat = compat;
        self.incompat = incompat;
        self.raw.s_feature_compat.set(compat.bits());
        self.raw.s_feature_incompat.set(incompat.bits());
        if incompat.intersects(JIncompat::CSUM_V2 | JIncompat::CSUM_V3) {
            self.raw.s_checksum_type = 4;
        }
    }

    /// How the blocks of this journal's log are laid out and checksummed.
    pub fn log_format(&self) -> LogFormat {
        LogFormat {
            block_bytes: self.raw.s_blocksize.get() as usize,
            bit64: self.incompat.contains(JIncompat::BIT64),
            csum_v2: self.incompat.contains(JIncompat::CSUM_V2),
            csum_v3: self.incompat.contains(JIncompat::CSUM_V3),
            csum_v1: self.compat.contains(JCompat::CHECKSUM),
            uuid: self.raw.s_uuid,
            seed: crc32c(!0, &self.raw.s_uuid),
        }
    }
}

fn super_csum(raw: &RawJournalSuper) -> u32 {
    let mut raw = raw.clone();
    raw.s_checksum.set(0);
    crc32c(!0, raw.as_bytes())
}
