//! The blocks of the log: descriptor, revoke and commit blocks, and their checksums.

use super::bytes::{array, be32, put};
use super::csum::crc32c;
use super::jbd2::JBD2_MAGIC;
use crate::error::{Corrupt, Result};
use crate::types::{Block, Tid};

const HEADER: usize = 12;
const REVOKE_HEADER: usize = 16;
const UUID: usize = 16;
/// Where `h_chksum[0]` lies in a commit block.
const COMMIT_CSUM: usize = 16;

/// What the journal's features say about the blocks of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFormat {
    /// Bytes in a block.
    pub block_bytes: usize,
    /// Block numbers have 64 bits.
    pub bit64: bool,
    /// Checksum v2: 16 bits in a tag.
    pub csum_v2: bool,
    /// Checksum v3: 32 bits in a tag.
    pub csum_v3: bool,
    /// The commit block holds a CRC-32 over the transaction (`JBD2_FEATURE_COMPAT_CHECKSUM`).
    pub csum_v1: bool,
    /// `s_uuid` of the journal.
    pub uuid: [u8; 16],
    /// Seed of v2 and v3 checksums.
    pub seed: u32,
}

/// Kind of a block of the log, `h_blocktype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// 1: tags, then the data blocks they describe.
    Descriptor,
    /// 2: the transaction is complete.
    Commit,
    /// 3 or 4.
    Superblock,
    /// 5: blocks not to be replayed from earlier transactions.
    Revoke,
}

/// The header of a block of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// `h_blocktype`
    pub kind: BlockKind,
    /// `h_sequence`
    pub tid: Tid,
}

impl BlockHeader {
    /// `None` if the block does not begin with the magic and a known type: then
    /// it is no block of the log's own (recovery ends there).
    pub fn parse(block: &[u8]) -> Option<BlockHeader> {
        if be32(block, 0)? != JBD2_MAGIC {
            return None;
        }
        let kind = match be32(block, 4)? {
            1 => BlockKind::Descriptor,
            2 => BlockKind::Commit,
            3 | 4 => BlockKind::Superblock,
            5 => BlockKind::Revoke,
            _ => return None,
        };
        Some(BlockHeader { kind, tid: Tid(be32(block, 8)?) })
    }

    fn write(block: &mut [u8], kind: u32, tid: Tid) {
        block.fill(0);
        let mut h = [0; HEADER];
        h[..4].copy_from_slice(&JBD2_MAGIC.to_be_bytes());
        h[4..8].copy_from_slice(&kind.to_be_bytes());
        h[8..].copy_from_slice(&tid.0.to_be_bytes());
        let done = put(block, 0, &h);
        debug_assert!(done, "a block holds a header");
    }
}

bitflags::bitflags! {
    /// `t_flags` of a tag.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TagFlags: u32 {
        /// The first four bytes of the block were the magic and are zeroed in the log.
        const ESCAPE = 1;
        /// No UUID follows: it is that of the tag before.
        const SAME_UUID = 2;
        /// Deleted by this transaction (unused).
        const DELETED = 4;
        /// The last tag of this descriptor.
        const LAST_TAG = 8;
    }
}

/// One tag of a descriptor block: where a logged block belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Its home. Not checked against the file system's size.
    pub block: Block,
    /// `t_flags`
    pub flags: TagFlags,
    /// 32 bits with checksum v3, 16 with v2, else 0. See [`LogFormat::verify_tag`].
    pub checksum: u32,
}

/// Iterator over the tags of a descriptor block. It ends at the last tag, or
/// where the block ends.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    format: LogFormat,
    data: &'a [u8],
    at: usize,
    end: usize,
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let size = self.format.tag_bytes();
        if self.at + size > self.end {
            return None;
        }
        let lo = be32(self.data, self.at)?;
        let (flags, checksum, hi_at) = if self.format.csum_v3 {
            (be32(self.data, self.at + 4)?, be32(self.data, self.at + 12)?, self.at + 8)
        } else {
            let sum = u16::from_be_bytes(array(self.data, self.at + 4)?);
            let flags = u16::from_be_bytes(array(self.data, self.at + 6)?);
            (u32::from(flags), u32::from(sum), self.at + 8)
        };
        let hi = if self.format.bit64 { be32(self.data, hi_at)? } else { 0 };
        let flags = TagFlags::from_bits_retain(flags);
        self.at += size;
        if !flags.contains(TagFlags::SAME_UUID) {
            self.at += UUID;
        }
        if flags.contains(TagFlags::LAST_TAG) {
            self.at = self.end;
        }
        Some(Tag { block: Block(u64::from(hi) << 32 | u64::from(lo)), flags, checksum })
    }
}

/// Iterator over the blocks that a revoke block names.
#[derive(Clone, Debug)]
pub struct Revokes<'a> {
    data: &'a [u8],
    bit64: bool,
}

impl Iterator for Revokes<'_> {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        let n = if self.bit64 { 8 } else { 4 };
        let block = if self.bit64 {
            u64::from_be_bytes(array(self.data, 0)?)
        } else {
            u64::from(be32(self.data, 0)?)
        };
        self.data = self.data.get(n..)?;
        Some(Block(block))
    }
}

/// What a commit block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The transaction that is complete.
    pub tid: Tid,
    /// Time of the commit, seconds.
    pub sec: u64,
    /// Time of the commit, nanoseconds.
    pub nsec: u32,
    /// `(h_chksum_type, h_chksum_size, h_chksum[0])`: checksum v1's fields.
    pub v1_checksum: (u8, u8, u32),
}

impl LogFormat {
    /// Whether log blocks carry checksums of their own (v2 or v3).
    pub fn csum(&self) -> bool {
        self.csum_v2 || self.csum_v3
    }
    /// Bytes in a tag, its UUID not counted.
    pub fn tag_bytes(&self) -> usize {
        match (self.csum_v3, self.csum_v2, self.bit64) {
            (true, _, _) => 16,
            (false, true, true) => 14,
            (false, true, false) => 10,
            (false, false, true) => 12,
            (false, false, false) => 8,
        }
    }
    /// Bytes of the checksum tail of descriptor and revoke blocks.
    pub fn tail_bytes(&self) -> usize {
        if self.csum() { 4 } else { 0 }
    }
    /// Tags that fit a descriptor block.
    pub fn tags_per_block(&self) -> usize {
        let room = self.block_bytes - HEADER - UUID - self.tail_bytes();
        room / self.tag_bytes()
    }
    /// Blocks that fit a revoke block.
    pub fn revokes_per_block(&self) -> usize {
        (self.block_bytes - REVOKE_HEADER - self.tail_bytes()) / if self.bit64 { 8 } else { 4 }
    }

    /// The tags of a descriptor block, its checksum checked.
    ///
    /// # Errors
    /// `Corrupt` for a bad checksum.
    pub fn tags<'a>(&self, data: &'a [u8]) -> Result<Tags<'a>> {
        self.verify_tail("journal descriptor block", data)?;
        let end = data.len().saturating_sub(self.tail_bytes());
        Ok(Tags { format: *self, data, at: HEADER, end })
    }

    /// The blocks named by a revoke block, its checksum checked.
    ///
    /// # Errors
    /// `Corrupt` for a bad checksum or an impossible length.
    pub fn revokes<'a>(&self, data: &'a [u8]) -> Result<Revokes<'a>> {
        self.verify_tail("journal revoke block", data)?;
        let used = be32(data, HEADER).unwrap_or(0) as usize;
        let max = data.len().saturating_sub(self.tail_bytes());
        match data.get(REVOKE_HEADER..used) {
            Some(records) if used <= max => Ok(Revokes { data: records, bit64: self.bit64 }),
            _ => Err(Corrupt::new("journal revoke block length").value(used as u64).into()),
        }
    }

    /// Reads a commit block and checks its v2 or v3 checksum.
    ///
    /// # Errors
    /// `Corrupt` for a bad checksum or a short block.
    pub fn commit(&self, data: &[u8]) -> Result<Commit> {
        if self.csum() {
            let stored = be32(data, COMMIT_CSUM).unwrap_or(0);
            if stored != self.sum_without(data, COMMIT_CSUM) {
                return Err(Corrupt::checksum("journal commit block")
                    .value(u64::from(stored))
                    .into());
            }
        }
        let parse = || {
            Some(Commit {
                tid: Tid(be32(data, 8)?),
                sec: u64::from_be_bytes(array(data, 48)?),
                nsec: be32(data, 56)?,
                v1_checksum: (*data.get(12)?, *data.get(13)?, be32(data, COMMIT_CSUM)?),
            })
        };
        parse().ok_or_else(|| Corrupt::new("journal commit block size").into())
    }

    /// Fills `block` with a commit block. `v1_sum` is the CRC-32 of the
    /// transaction, used with `csum_v1` only.
    pub fn write_commit(&self, block: &mut [u8], tid: Tid, sec: u64, nsec: u32, v1_sum: u32) {
        BlockHeader::write(block, 2, tid);
        let mut done = put(block, 48, &sec.to_be_bytes()) && put(block, 56, &nsec.to_be_bytes());
        if self.csum_v1 {
            // JBD2_CRC32_CHKSUM, four bytes.
            done &= put(block, 12, &[1, 4]) && put(block, COMMIT_CSUM, &v1_sum.to_be_bytes());
        }
        if self.csum() {
            let sum = self.sum_without(block, COMMIT_CSUM);
            done &= put(block, COMMIT_CSUM, &sum.to_be_bytes());
        }
        debug_assert!(done, "a block holds a commit header");
    }

    /// Checksum of a logged block (as it lies in the log, escaped) for its tag.
    pub fn tag_checksum(&self, tid: Tid, data: &[u8]) -> u32 {
        if !self.csum() {
            return 0;
        }
        let sum = crc32c(crc32c(self.seed, &tid.0.to_be_bytes()), data);
        if self.csum_v3 { sum } else { sum & 0xffff }
    }

    /// Whether a logged block matches its tag's checksum (true where there is none).
    pub fn verify_tag(&self, tid: Tid, tag: &Tag, data: &[u8]) -> bool {
        !self.csum() || tag.checksum == self.tag_checksum(tid, data)
    }

    fn verify_tail(&self, what: &'static str, data: &[u8]) -> Result<()> {
        if !self.csum() {
            return Ok(());
        }
        let at = data.len().saturating_sub(4);
        let stored = be32(data, at).unwrap_or(0);
        if stored == self.sum_without(data, at) {
            return Ok(());
        }
        Err(Corrupt::checksum(what).value(u64::from(stored)).into())
    }

    fn seal_tail(&self, block: &mut [u8]) {
        if !self.csum() {
            return;
        }
        let at = block.len().saturating_sub(4);
        let sum = self.sum_without(block, at);
        let done = put(block, at, &sum.to_be_bytes());
        debug_assert!(done, "a block holds a tail");
    }

    /// Checksum of a block with the four bytes at `at` taken as zero.
    fn sum_without(&self, data: &[u8], at: usize) -> u32 {
        let sum = crc32c(self.seed, data.get(..at).unwrap_or_default());
        crc32c(crc32c(sum, &[0; 4]), data.get(at + 4..).unwrap_or_default())
    }
}

/// Fills a descriptor block tag by tag.
#[derive(Debug)]
pub struct DescriptorWriter<'a> {
    format: LogFormat,
    block: &'a mut [u8],
    at: usize,
    last: Option<usize>,
}

impl<'a> DescriptorWriter<'a> {
    /// Starts an empty descriptor in `block` (one block of the journal).
    pub fn new(format: LogFormat, block: &'a mut [u8], tid: Tid) -> DescriptorWriter<'a> {
        BlockHeader::write(block, 1, tid);
        DescriptorWriter { format, block, at: HEADER, last: None }
    }

    /// Adds a tag; `checksum` from [`LogFormat::tag_checksum`]. `false`, and
    /// nothing added, if the block is full.
    #[must_use]
    pub fn push(&mut self, home: Block, escaped: bool, checksum: u32) -> bool {
        let f = self.format;
        let size = f.tag_bytes();
        let uuid = if self.last.is_none() { UUID } else { 0 };
        if self.at + size + uuid > self.block.len().saturating_sub(f.tail_bytes()) {
            return false;
        }
        let mut flags = TagFlags::empty();
        flags.set(TagFlags::ESCAPE, escaped);
        flags.set(TagFlags::SAME_UUID, uuid == 0);
        let mut tag = [0; 16];
        tag[..4].copy_from_slice(&(home.0 as u32).to_be_bytes());
        let high = (home.0 >> 32) as u32;
        if f.csum_v3 {
            tag[4..8].copy_from_slice(&flags.bits().to_be_bytes());
            tag[12..].copy_from_slice(&checksum.to_be_bytes());
        } else {
            tag[4..6].copy_from_slice(&(checksum as u16).to_be_bytes());
            tag[6..8].copy_from_slice(&(flags.bits() as u16).to_be_bytes());
        }
        if f.bit64 {
            tag[8..12].copy_from_slice(&high.to_be_bytes());
        }
        let mut done = put(self.block, self.at, tag.get(..size).unwrap_or_default());
        if uuid > 0 {
            done &= put(self.block, self.at + size, &f.uuid);
        }
        debug_assert!(done, "room was checked");
        self.last = Some(self.at);
        self.at += size + uuid;
        true
    }

    /// Marks the last tag and makes the checksum. A descriptor without tags is not valid.
    pub fn finish(self) {
        debug_assert!(self.last.is_some(), "a descriptor has a tag");
        if let Some(at) = self.last {
            // The flags' low byte, in both layouts the byte at 7.
            if let Some(b) = self.block.get_mut(at + 7) {
                *b |= TagFlags::LAST_TAG.bits() as u8;
            }
        }
        self.format.seal_tail(self.block);
    }
}

/// Fills a revoke block.
#[derive(Debug)]
pub struct RevokeWriter<'a> {
    format: LogFormat,
    block: &'a mut [u8],
    at: usize,
}

impl<'a> RevokeWriter<'a> {
    /// Starts an empty revoke block in `block` (one block of the journal).
    pub fn new(format: LogFormat, block: &'a mut [u8], tid: Tid) -> RevokeWriter<'a> {
        BlockHeader::write(block, 5, tid);
        RevokeWriter { format, block, at: REVOKE_HEADER }
    }

    /// Adds a block; `false`, and nothing added, if the revoke block is full.
    #[must_use]
    pub fn push(&mut self, b: Block) -> bool {
        let size = if self.format.bit64 { 8 } else { 4 };
        if self.at + size > self.block.len().saturating_sub(self.format.tail_bytes()) {
            return false;
        }
        let wide = b.0.to_be_bytes();
        let done = put(self.block, self.at, wide.get(8 - size..).unwrap_or_default());
        debug_assert!(done, "room was checked");
        self.at += size;
        true
    }

    /// Writes the length and makes the checksum.
    pub fn finish(self) {
        let done = put(self.block, HEADER, &(self.at as u32).to_be_bytes());
        debug_assert!(done, "a block holds a revoke header");
        self.format.seal_tail(self.block);
    }
}

/// Whether a block to be logged begins with the journal's magic and must be escaped.
pub fn needs_escape(data: &[u8]) -> bool {
    data.first_chunk() == Some(&JBD2_MAGIC.to_be_bytes())
}

/// Escapes the (private) copy of a block that [`needs_escape`].
pub fn escape(data: &mut [u8]) {
    if let Some(head) = data.first_chunk_mut::<4>() {
        *head = [0; 4];
    }
}

/// Undoes [`escape`] on replay.
pub fn unescape(data: &mut [u8]) {
    if let Some(head) = data.first_chunk_mut::<4>() {
        *head = JBD2_MAGIC.to_be_bytes();
    }
}

/// CRC-32, most significant bit first (polynomial 0x04c11db7), not inverted: checksum v1.
/// Start with `!0`; it covers each descriptor block and each logged block after it.
pub fn crc32_be(crc: u32, data: &[u8]) -> u32 {
    data.iter().fold(crc, |c, &b| {
        (0..8).fold(c ^ u32::from(b) << 24, |c, _| {
            if c >> 31 == 1 { c << 1 ^ 0x04c1_1db7 } else { c << 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn formats() -> impl Iterator<Item = LogFormat> {
        (0..6).map(|i| LogFormat {
            block_bytes: 1024,
            bit64: i % 2 == 1,
            csum_v2: i / 2 == 1,
            csum_v3: i / 2 == 2,
            csum_v1: i == 0,
            uuid: [7; 16],
            seed: crc32c(!0, &[7; 16]),
        })
    }

    #[test]
    fn crc32_be_check_value() {
        // CRC-32/BZIP2 of "123456789", whose final inversion is undone.
        assert_eq!(!crc32_be(!0, b"123456789"), 0xfc89_1918);
    }

    #[test]
    fn descriptors_come_back() {
        for f in formats() {
            let mut block = vec![0xaa; 1024];
            let mut w = DescriptorWriter::new(f, &mut block, Tid(9));
            let high = if f.bit64 { 5 << 32 } else { 0 };
            let mut n = 0;
            let sum = |i: u64| f.tag_checksum(Tid(9), &i.to_le_bytes());
            while w.push(Block(high + n), n % 3 == 0, sum(n)) {
                n += 1;
            }
            w.finish();
            assert_eq!(n as usize, f.tags_per_block(), "{f:?}");
            let header = BlockHeader { kind: BlockKind::Descriptor, tid: Tid(9) };
            assert_eq!(BlockHeader::parse(&block), Some(header));
            let tags: Vec<_> = f.tags(&block).unwrap().collect();
            assert_eq!(tags.len(), n as usize, "{f:?}");
            for (i, t) in tags.iter().enumerate() {
                assert_eq!(t.block, Block(high + i as u64));
                assert_eq!(t.flags.contains(TagFlags::ESCAPE), i % 3 == 0);
                assert_eq!(t.flags.contains(TagFlags::LAST_TAG), i + 1 == tags.len());
                assert!(f.verify_tag(Tid(9), t, &(i as u64).to_le_bytes()));
                assert_eq!(f.verify_tag(Tid(8), t, &(i as u64).to_le_bytes()), !f.csum());
            }
            block[500] ^= 1;
            assert_eq!(f.tags(&block).is_err(), f.csum());
        }
    }

    #[test]
    fn revokes_and_commits_come_back() {
        for f in formats() {
            let mut block = vec![0xaa; 1024];
            let mut w = RevokeWriter::new(f, &mut block, Tid(3));
            let mut n = 0;
            while w.push(Block(1000 + n)) {
                n += 1;
            }
            w.finish();
            assert_eq!(n as usize, f.revokes_per_block());
            let back: Vec<_> = f.revokes(&block).unwrap().collect();
            assert_eq!(back, (0..n).map(|i| Block(1000 + i)).collect::<Vec<_>>());

            f.write_commit(&mut block, Tid(4), 77, 88, 99);
            let c = f.commit(&block).unwrap();
            assert_eq!((c.tid, c.sec, c.nsec), (Tid(4), 77, 88));
            if f.csum_v1 {
                assert_eq!(c.v1_checksum, (1, 4, 99));
            }
            block[50] ^= 1;
            assert_eq!(f.commit(&block).is_err(), f.csum());
        }
    }

    #[test]
    fn escaping() {
        let mut b = JBD2_MAGIC.to_be_bytes().to_vec();
        b.push(1);
        assert!(needs_escape(&b));
        escape(&mut b);
        assert_eq!(b, [0, 0, 0, 0, 1]);
        unescape(&mut b);
        assert!(needs_escape(&b));
        assert!(!needs_escape(&b[..3]));
    }

    proptest! {
        #[test]
        fn no_panic(data in proptest::collection::vec(any::<u8>(), 0..1100)) {
            for f in formats() {
                let _ = BlockHeader::parse(&data);
                let _ = f.tags(&data).map(Iterator::count);
                let _ = f.revokes(&data).map(Iterator::count);
                let _ = f.commit(&data);
            }
        }
    }
}
