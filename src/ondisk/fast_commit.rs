//! The fast-commit area at the end of a journal: a log of tag, length, value.

use super::bytes::{array, le16, le32};
use super::csum::crc32c;
use super::extent::Extent;
use crate::types::{Ino, LBlock, Tid};

/// Bytes of tag and length.
const TAG_HEADER: usize = 4;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FcTag<'a> {
    /// Begins a fast commit's first block.
    Head {
        /// Features needed to replay; none are defined.
        features: u32,
        /// The transaction after which it applies.
        tid: Tid,
    },
    /// The inode has this extent.
    AddRange(Ino, Extent),
    /// The inode has nothing in `len` blocks from `lblock`.
    DelRange {
        /// The inode.
        ino: Ino,
        /// First logical block.
        lblock: LBlock,
        /// Blocks.
        len: u32,
    },
    /// The inode was created under this name.
    Creat(FcDentry<'a>),
    /// The inode has this name.
    Link(FcDentry<'a>),
    /// The inode no longer has this name.
    Unlink(FcDentry<'a>),
    /// The inode's slot, as many bytes as were in use.
    Inode(Ino, &'a [u8]),
    /// Nothing, to the end of the block.
    Pad,
    /// Ends a fast commit.
    Tail {
        /// The transaction after which it applies.
        tid: Tid,
        /// CRC-32C of everything since the tail before.
        crc: u32,
    },
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FcDentry<'a> {
    /// The directory.
    pub parent: Ino,
    /// The inode named.
    pub ino: Ino,
    /// The name.
    pub name: &'a [u8],
}

/// Iterator over the records of one block: each with all its bytes, header
/// included. It ends at the end of the block; a record it cannot read comes as `Err(())`.
#[derive(Clone, Debug)]
pub struct FcTags<'a> {
    data: &'a [u8],
    at: usize,
}

/// Begins reading the records of a block of the area.
pub fn tags(block: &[u8]) -> FcTags<'_> {
    FcTags { data: block, at: 0 }
}

/// Whether a block of the area begins a fast commit that follows transaction `next - 1`.
pub fn is_head(block: &[u8], next: Tid) -> bool {
    matches!(tags(block).next(), Some(Ok((FcTag::Head { tid, .. }, _))) if tid == next)
}

/// A record that is none, or does not fit its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTag;

impl<'a> Iterator for FcTags<'a> {
    type Item = Result<(FcTag<'a>, &'a [u8]), BadTag>;

    fn next(&mut self) -> Option<Self::Item> {
        let tag = le16(self.data, self.at)?;
        let len = usize::from(le16(self.data, self.at + 2)?);
        let start = self.at;
        let end = start + TAG_HEADER + len;
        let Some(whole) = self.data.get(start..end) else {
            self.at = self.data.len();
            return Some(Err(BadTag));
        };
        match decode(tag, whole.get(TAG_HEADER..).unwrap_or_default()) {
            Some(t) => {
                self.at = end;
                Some(Ok((t, whole)))
            }
            None => {
                self.at = self.data.len();
                Some(Err(BadTag))
            }
        }
    }
}

fn decode(tag: u16, v: &[u8]) -> Option<FcTag<'_>> {
    let exact = |n: usize| (v.len() == n).then_some(());
    let dentry = || {
        let name = v.get(8..)?;
        (1..=255).contains(&name.len()).then_some(())?;
        Some(FcDentry { parent: Ino(le32(v, 0)?), ino: Ino(le32(v, 4)?), name })
    };
    Some(match tag {
        1 => {
            exact(16)?;
            FcTag::AddRange(Ino(le32(v, 0)?), Extent::decode(array(v, 4)?))
        }
        2 => {
            exact(12)?;
            FcTag::DelRange { ino: Ino(le32(v, 0)?), lblock: LBlock(le32(v, 4)?), len: le32(v, 8)? }
        }
        3 => FcTag::Creat(dentry()?),
        4 => FcTag::Link(dentry()?),
        5 => FcTag::Unlink(dentry()?),
        6 => {
            let slot = v.get(4..)?;
            (128..=1 << 16).contains(&slot.len()).then_some(())?;
            FcTag::Inode(Ino(le32(v, 0)?), slot)
        }
        7 => FcTag::Pad,
        8 => FcTag::Tail { tid: Tid(le32(v, 0)?), crc: le32(v, 4)? },
        9 => {
            exact(8)?;
            FcTag::Head { features: le32(v, 0)?, tid: Tid(le32(v, 4)?) }
        }
        _ => return None,
    })
}

/// Reads the area block by block and finds how many records are sound: those up
/// to the last tail whose checksum holds.
#[derive(Clone, Debug)]
pub struct FcScan {
    expected: Tid,
    seen: u64,
    sound: u64,
    crc: u32,
    done: bool,
    unsupported: u32,
}

impl FcScan {
    /// For fast commits that follow the last full commit; `expected` is its tid + 1.
    pub fn new(expected: Tid) -> FcScan {
        FcScan { expected, seen: 0, sound: 0, crc: 0, done: false, unsupported: 0 }
    }

    /// Takes the next block of the area; `false` when no later one matters.
    pub fn block(&mut self, data: &[u8]) -> bool {
        if self.seen == 0 && !matches!(tags(data).next(), Some(Ok((FcTag::Head { .. }, _)))) {
            self.done = true;
        }
        for record in tags(data) {
            if self.done {
                break;
            }
            match record {
                Ok((tag, bytes)) => self.record(tag, bytes),
                Err(BadTag) => self.done = true,
            }
        }
        !self.done
    }

    fn record(&mut self, tag: FcTag<'_>, bytes: &[u8]) {
        match tag {
            FcTag::Head { features, tid } => {
                self.unsupported = features;
                if features != 0 || tid != self.expected {
                    self.done = true;
                    return;
                }
            }
            FcTag::Tail { tid, crc } => {
                // Up to the tid; the checksum itself is left out.
                let sum = crc32c(self.crc, bytes.get(..TAG_HEADER + 4).unwrap_or_default());
                self.crc = 0;
                self.seen += 1;
                if tid == self.expected && crc == sum {
                    self.sound = self.seen;
                } else {
                    self.done = true;
                }
                return;
            }
            _ => {}
        }
        self.crc = crc32c(self.crc, bytes);
        self.seen += 1;
    }

    /// Records to replay, counted over the blocks given from the first.
    pub fn sound_records(&self) -> u64 {
        self.sound
    }
    /// Features that the area asks for and nobody knows; 0 if none.
    pub fn unsupported(&self) -> u32 {
        self.unsupported
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(tag: u16, value: &[u8]) -> Vec<u8> {
        let mut r = tag.to_le_bytes().to_vec();
        r.extend((value.len() as u16).to_le_bytes());
        r.extend(value);
        r
    }

    fn words(list: &[u32]) -> Vec<u8> {
        list.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn commit(tid: u32) -> Vec<u8> {
        let mut b = record(9, &words(&[0, tid]));
        b.extend(record(2, &words(&[12, 3, 4])));
        let mut name = words(&[2, 12]);
        name.extend(b"file");
        b.extend(record(3, &name));
        let mut tail = 8u16.to_le_bytes().to_vec();
        tail.extend(8u16.to_le_bytes());
        tail.extend(tid.to_le_bytes());
        let crc = crc32c(crc32c(0, &b), &tail);
        tail.extend(crc.to_le_bytes());
        b.extend(tail);
        b
    }

    #[test]
    fn scan() {
        let mut block = commit(7);
        let got: Vec<_> = tags(&block).map(|t| t.unwrap().0).collect();
        assert_eq!(got[1], FcTag::DelRange { ino: Ino(12), lblock: LBlock(3), len: 4 });
        assert_eq!(got[2], FcTag::Creat(FcDentry { parent: Ino(2), ino: Ino(12), name: b"file" }));
        block.resize(1024, 0);
        let mut s = FcScan::new(Tid(7));
        assert!(!s.block(&block), "tag 0 is none");
        assert_eq!(s.sound_records(), 4);
        let mut s = FcScan::new(Tid(8));
        assert!(!s.block(&block));
        assert_eq!(s.sound_records(), 0);
        block[17] ^= 1;
        let mut s = FcScan::new(Tid(7));
        s.block(&block);
        assert_eq!(s.sound_records(), 0);
    }

    proptest! {
        #[test]
        fn no_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let data: Vec<u8> = data.into_iter().map(|b| b % 20).collect();
            prop_assert!(tags(&data).count() <= 50);
            FcScan::new(Tid(1)).block(&data);
        }
    }
}
