//! One metadata block in memory.

use crate::device::AlignedBuf;
use crate::ondisk::Seal;
use crate::types::{Block, Tid};
use parking_lot::RwLock;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// A metadata block. Its bytes are replaced, never changed, while anybody holds a snapshot of them.
pub struct Buffer {
    block: Block,
    /// Leaf lock: nothing is taken and no I/O is done under it.
    data: RwLock<Arc<AlignedBuf>>,
    /// The whole-block seal that was found good last, or that this program wrote: see `token`.
    verified: AtomicU64,
    /// A bitmap: it was found good against its descriptor, which this block cannot tell itself.
    checked: AtomicBool,
    /// CLOCK's second chance.
    pub(super) referenced: AtomicBool,
    /// 1 + the transaction that it last joined; 0 if none.
    joined: AtomicU64,
    /// Transactions and checkpoint entries that hold bytes not yet at home.
    dirty: AtomicU32,
}

impl Buffer {
    pub(super) fn new(block: Block, data: AlignedBuf) -> Buffer {
        Buffer {
            block,
            data: RwLock::new(Arc::new(data)),
            verified: AtomicU64::new(0),
            checked: AtomicBool::new(false),
            referenced: AtomicBool::new(false),
            joined: AtomicU64::new(0),
            dirty: AtomicU32::new(0),
        }
    }

    /// Where on the device it belongs.
    pub fn block(&self) -> Block {
        self.block
    }

    /// The bytes as they are now. Holding the snapshot costs the next writer a copy of the block.
    pub fn data(&self) -> Arc<AlignedBuf> {
        Arc::clone(&self.data.read())
    }

    /// Looks at the bytes under the read lock: keep `f` short, without I/O and other locks.
    pub fn read<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&self.data.read())
    }

    /// Changes the bytes. Only a journal handle that joined the buffer to its transaction may.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut data = self.data.write();
        let bytes: &mut AlignedBuf = Arc::make_mut(&mut data);
        f(bytes)
    }

    /// Replaces the bytes without copying the old ones.
    pub(crate) fn replace(&self, data: Arc<AlignedBuf>) {
        *self.data.write() = data;
    }

    /// Whether this very seal was found good since the block was read.
    pub(crate) fn is_verified(&self, seal: &Seal) -> bool {
        token(seal).is_some_and(|t| self.verified.load(Acquire) == t)
    }

    pub(crate) fn set_verified(&self, seal: &Seal) {
        if let Some(t) = token(seal) {
            self.verified.store(t, Release);
        }
    }

    /// Whether the bytes, read or written since, agree with what another block says of them.
    pub(crate) fn is_checked(&self) -> bool {
        self.checked.load(Acquire)
    }

    pub(crate) fn set_checked(&self) {
        self.checked.store(true, Release);
    }

    pub(crate) fn clear_verified(&self) {
        self.checked.store(false, Release);
        self.verified.store(0, Release);
    }

    pub(crate) fn joined(&self, tid: Tid) -> bool {
        self.joined.load(Acquire) == u64::from(tid.0) + 1
    }

    pub(crate) fn set_joined(&self, tid: Option<Tid>) {
        self.joined.store(tid.map_or(0, |t| u64::from(t.0) + 1), Release);
    }

    pub(crate) fn add_dirty(&self) {
        self.dirty.fetch_add(1, AcqRel);
    }

    pub(crate) fn drop_dirty(&self) {
        let before = self.dirty.fetch_sub(1, AcqRel);
        debug_assert!(before > 0, "dirty count of block {}", self.block);
    }

    /// Whether bytes of it are still on their way home.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(Acquire) != 0
    }
}

/// A number for a seal of a whole block, seed included; `None` for seals of slots, of which a block
/// carries several, and where there is nothing to verify.
fn token(seal: &Seal) -> Option<u64> {
    let (kind, seed) = match *seal {
        Seal::None | Seal::GroupDesc { .. } | Seal::Inode { .. } => return None,
        Seal::Superblock => (1, 0),
        Seal::ExtentBlock { seed } => (2, seed),
        Seal::DirLeaf { seed } => (3, seed),
        Seal::HtreeNode { seed } => (4, seed),
        Seal::XattrBlock => (5, 0),
        Seal::OrphanBlock { seed } => (6, seed),
        Seal::Mmp => (7, 0),
    };
    Some(u64::from(seed) << 32 | kind)
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({})", self.block)
    }
}
