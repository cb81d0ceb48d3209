//! Newtypes for the address spaces of a file system, so that a logical block
//! can never be used where a device block is meant.

use std::fmt;

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty), $label:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, " {}"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

newtype!(
    /// A block of the file system, counted in file-system blocks from the
    /// start of the device ("physical block" in the ext4 documentation).
    Block(u64), "block"
);
newtype!(
    /// A block of a file, counted in file-system blocks from the file's start.
    LBlock(u32), "logical block"
);
newtype!(
    /// A block group.
    Group(u32), "group"
);
newtype!(
    /// An inode number as ext4 counts them: 1 is the bad-blocks inode, 2 the root.
    Ino(u32), "inode"
);
newtype!(
    /// A jbd2 transaction number. Compare with [`Tid::after`]: it wraps.
    Tid(u32), "transaction"
);

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(2);
    /// The journal, when it is internal (`s_journal_inum` of every mke2fs image).
    pub const JOURNAL: Ino = Ino(8);
}

impl Tid {
    /// Whether `self` is later than `other`, in jbd2's wrapping order (`tid_gt`).
    pub fn after(self, other: Tid) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }
    /// The transaction that follows this one.
    pub fn next(self) -> Tid {
        Tid(self.0.wrapping_add(1))
    }
}

impl Block {
    /// `self + n` blocks; saturates, so that a hostile sum is out of range rather than wrapped.
    pub fn plus(self, n: u64) -> Block {
        Block(self.0.saturating_add(n))
    }
}

/// Block size of a file system in bytes, as a power of two from 1 KiB to 64 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSize {
    log2: u32,
}

impl BlockSize {
    /// From `s_log_block_size` (0 means 1 KiB); `None` above 64 KiB.
    pub fn from_log(s_log_block_size: u32) -> Option<BlockSize> {
        (s_log_block_size <= 6).then(|| BlockSize { log2: s_log_block_size + 10 })
    }
    /// Bytes in a block.
    pub fn bytes(self) -> usize {
        1 << self.log2
    }
    /// Bytes in a block, as `u64`.
    pub fn bytes64(self) -> u64 {
        1 << self.log2
    }
    /// log2 of the bytes in a block.
    pub fn log2(self) -> u32 {
        self.log2
    }
    /// Byte offset on the device of a block. Callers pass checked block numbers.
    pub fn offset(self, b: Block) -> u64 {
        b.0 << self.log2
    }
    /// Blocks needed to hold `bytes`.
    pub fn blocks_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes64())
    }
    /// The offset of byte `pos` inside its block.
    pub fn within(self, pos: u64) -> usize {
        (pos & (self.bytes64() - 1)) as usize
    }
    /// The block that byte `pos` lies in, in blocks from the start.
    pub fn index(self, pos: u64) -> u64 {
        pos >> self.log2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_log_of_a_block_size() {
        assert_eq!(BlockSize::from_log(0).map(BlockSize::bytes), Some(1024));
        assert_eq!(BlockSize::from_log(6).map(BlockSize::bytes), Some(65_536));
        for log in [7, 30, 0xffff_fff8, u32::MAX] {
            assert_eq!(BlockSize::from_log(log), None);
        }
    }
}
