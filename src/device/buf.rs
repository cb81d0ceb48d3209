//! Aligned buffers for I/O, recycled.
//!
//! Memory touched for the first time costs the kernel a page fault and a zeroed page, which is far
//! slower than writing to memory that is there already. So buffers are never given back to the
//! allocator: they are carved from large mappings, one free list per power-of-two size. Up to a bound
//! ([`pool_limit`]) freed buffers stay as they are; beyond it their pages go back to the kernel and
//! only the address space is kept.

use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{fmt, slice};

/// Alignment of every buffer of at least this size; a smaller one is aligned to its size rounded up
/// to a power of two.
pub const ALIGN: usize = 4096;

const MIN_SHIFT: u32 = 9;
const MAX_SHIFT: u32 = 22;
const CLASSES: usize = (MAX_SHIFT - MIN_SHIFT + 1) as usize;
const REGION: usize = 4 << 20;
/// Default bound on memory kept in free lists, in bytes: what a busy writer frees and takes again
/// between two turns of the flusher.
pub const DEFAULT_POOL_LIMIT: usize = 128 << 20;

/// Free buffers of one size. `hot` have their pages; `cold` read as zeros when touched.
struct Class {
    hot: Vec<Raw>,
    cold: Vec<Raw>,
}

struct Pool {
    classes: [Mutex<Class>; CLASSES],
    hot_bytes: AtomicUsize,
    limit: AtomicUsize,
}

static POOL: Pool = Pool {
    classes: [const { Mutex::new(Class { hot: Vec::new(), cold: Vec::new() }) }; CLASSES],
    hot_bytes: AtomicUsize::new(0),
    limit: AtomicUsize::new(DEFAULT_POOL_LIMIT),
};

/// An owned piece of anonymous memory of `cap` bytes.
struct Raw {
    ptr: NonNull<u8>,
    cap: usize,
}

// SAFETY: a Raw is the only owner of the memory it points to, like a Box<[u8]>.
unsafe impl Send for Raw {}
// SAFETY: through &Raw the memory is only read.
unsafe impl Sync for Raw {}

/// Maps `len` bytes of zeroed memory; aborts when there is no address space, as every allocation does.
fn map(len: usize) -> NonNull<u8> {
    // SAFETY: a new anonymous private mapping aliases nothing.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    match NonNull::new(p.cast::<u8>()) {
        Some(p) if p.as_ptr().cast() != libc::MAP_FAILED => p,
        _ => std::alloc::handle_alloc_error(
            std::alloc::Layout::from_size_align(len, ALIGN)
                .unwrap_or(std::alloc::Layout::new::<u8>()),
        ),
    }
}

fn class_of(len: usize) -> Option<(usize, usize)> {
    let cap = len.max(1 << MIN_SHIFT).next_power_of_two();
    let shift = cap.trailing_zeros();
    (shift <= MAX_SHIFT).then_some(((shift - MIN_SHIFT) as usize, cap))
}

/// Memory of at least `len` bytes, and whether it is known to be all zeros.
fn take(len: usize) -> (Raw, bool) {
    let Some((class, cap)) = class_of(len) else {
        let cap = len.next_multiple_of(ALIGN);
        return (Raw { ptr: map(cap), cap }, true);
    };
    let mut c = POOL.classes[class].lock();
    if let Some(r) = c.hot.pop() {
        POOL.hot_bytes.fetch_sub(cap, Relaxed);
        return (r, false);
    }
    if let Some(r) = c.cold.pop() {
        return (r, true);
    }
    let region = map(REGION);
    c.cold.reserve(REGION / cap);
    for at in (cap..REGION).step_by(cap).rev() {
        // SAFETY: at < REGION, within the mapping; the pieces are disjoint.
        c.cold.push(Raw { ptr: unsafe { region.add(at) }, cap });
    }
    (Raw { ptr: region, cap }, true)
}

fn give(r: Raw) {
    let Some((class, cap)) = class_of(r.cap).filter(|&(_, cap)| cap == r.cap) else {
        // SAFETY: `r` came from `map` with exactly this length (only sizes above the largest class
        // get here), and nothing refers to it any more.
        unsafe { libc::munmap(r.ptr.as_ptr().cast(), r.cap) };
        return;
    };
    // Pieces of a page cannot go back to the kernel: they stay.
    if cap < ALIGN || POOL.hot_bytes.load(Relaxed).saturating_add(cap) <= POOL.limit.load(Relaxed) {
        POOL.hot_bytes.fetch_add(cap, Relaxed);
        POOL.classes[class].lock().hot.push(r);
    } else if cool(&r) {
        POOL.classes[class].lock().cold.push(r);
    } else {
        POOL.hot_bytes.fetch_add(cap, Relaxed);
        POOL.classes[class].lock().hot.push(r);
    }
}

/// Gives the pages of free memory back to the kernel; true if it now reads as zeros.
fn cool(r: &Raw) -> bool {
    // SAFETY: the range is ours, page-aligned, anonymous and private, and nobody refers to it.
    unsafe { libc::madvise(r.ptr.as_ptr().cast(), r.cap, libc::MADV_DONTNEED) == 0 }
}

/// Bound on the memory kept in free lists, in bytes.
pub fn pool_limit() -> usize {
    POOL.limit.load(Relaxed)
}

/// Sets the bound; what is above it already is given back by [`pool_shrink`] only.
pub fn set_pool_limit(bytes: usize) {
    POOL.limit.store(bytes, Relaxed);
}

/// Memory in free lists now, in bytes.
pub fn pool_bytes() -> usize {
    POOL.hot_bytes.load(Relaxed)
}

/// Gives free memory back to the kernel until at most `keep` bytes stay in the free lists (pieces
/// smaller than a page always stay).
pub fn pool_shrink(keep: usize) {
    for (i, class) in POOL.classes.iter().enumerate().rev() {
        let cap = 1usize << (MIN_SHIFT as usize + i);
        if cap < ALIGN {
            break;
        }
        while POOL.hot_bytes.load(Relaxed) > keep {
            let mut c = class.lock();
            let Some(r) = c.hot.pop() else { break };
            if !cool(&r) {
                c.hot.push(r);
                return;
            }
            POOL.hot_bytes.fetch_sub(cap, Relaxed);
            c.cold.push(r);
        }
    }
}

/// A buffer aligned to [`ALIGN`] (a smaller one to its size), owned, from the pool and back to it.
pub struct AlignedBuf {
    /// `None` if and only if `len` is 0.
    raw: Option<Raw>,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let (mut b, zero) = AlignedBuf::get(len);
        if !zero {
            b.fill(0);
        }
        b
    }

    /// `len` bytes that hold anything, such as what another file's block once was: for a buffer that
    /// is about to be overwritten whole.
    pub fn for_overwrite(len: usize) -> AlignedBuf {
        AlignedBuf::get(len).0
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let mut b = AlignedBuf::for_overwrite(bytes.len());
        b.copy_from_slice(bytes);
        b
    }

    fn get(len: usize) -> (AlignedBuf, bool) {
        if len == 0 {
            return (AlignedBuf { raw: None, len: 0 }, true);
        }
        let (raw, zero) = take(len);
        (AlignedBuf { raw: Some(raw), len }, zero)
    }

    /// Shortens to `len` bytes; does nothing if it is not longer.
    pub fn truncate(&mut self, len: usize) {
        if len == 0 {
            *self = AlignedBuf { raw: None, len: 0 };
        } else {
            self.len = self.len.min(len);
        }
    }

    /// Cuts the buffer into disjoint parts of the given lengths, so that several requests can fill
    /// one buffer. `None` unless the lengths add up to the buffer's.
    pub fn into_parts(self, lens: &[usize]) -> Option<Vec<BufPart>> {
        let total = lens.iter().try_fold(0usize, |a, &n| a.checked_add(n))?;
        if total != self.len {
            return None;
        }
        let whole = Arc::new(self);
        let mut start = 0;
        let mut parts = Vec::with_capacity(lens.len());
        for &len in lens {
            parts.push(BufPart { whole: Arc::clone(&whole), start, len });
            start += len;
        }
        Some(parts)
    }

    fn ptr(&self) -> *mut u8 {
        self.raw.as_ref().map_or(NonNull::dangling().as_ptr(), |r| r.ptr.as_ptr())
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(r) = self.raw.take() {
            give(r);
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `raw` owns at least `len` bytes, all initialised (mapped memory starts as zeros);
        // with no `raw`, `len` is 0.
        unsafe { slice::from_raw_parts(self.ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes it the only reference: a buffer cut into parts
        // is owned by them and cannot be reached as a whole.
        unsafe { slice::from_raw_parts_mut(self.ptr(), self.len) }
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> AlignedBuf {
        AlignedBuf::copy_of(self)
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

impl PartialEq for AlignedBuf {
    fn eq(&self, other: &AlignedBuf) -> bool {
        **self == **other
    }
}

impl Eq for AlignedBuf {}

/// One of the disjoint parts of a buffer: see [`AlignedBuf::into_parts`].
pub struct BufPart {
    whole: Arc<AlignedBuf>,
    start: usize,
    len: usize,
}

impl BufPart {
    /// Where the part begins in its buffer.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Puts the whole together again, given all of its parts, in
    /// any order; else `None`, and the parts are dropped.
    pub fn join(parts: impl IntoIterator<Item = BufPart>) -> Option<AlignedBuf> {
        let mut parts = parts.into_iter();
        let whole = parts.next()?.whole;
        for p in parts {
            if !Arc::ptr_eq(&whole, &p.whole) {
                return None;
            }
        }
        Arc::into_inner(whole)
    }
}

impl Deref for BufPart {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: start + len <= whole.len (into_parts), the bytes are initialised, and no other
        // part overlaps; the whole is reachable only through its parts.
        unsafe { slice::from_raw_parts(self.whole.ptr().add(self.start), self.len) }
    }
}

impl DerefMut for BufPart {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; this part is not Clone and `&mut self` is the only way to its bytes.
        unsafe { slice::from_raw_parts_mut(self.whole.ptr().add(self.start), self.len) }
    }
}

impl fmt::Debug for BufPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufPart({} bytes from {} of {})", self.len, self.start, self.whole.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_zeroed_even_when_recycled() {
        for len in [1, 512, 1000, 4096, 4097, 65536, 1 << 20, (4 << 20) + 1] {
            let mut b = AlignedBuf::for_overwrite(len);
            let align = len.next_power_of_two().clamp(512, ALIGN);
            assert_eq!(b.as_ptr() as usize % align, 0, "{len}");
            b.fill(0xa5);
            drop(b);
            assert!(AlignedBuf::zeroed(len).iter().all(|&x| x == 0), "{len}");
        }
        assert!(AlignedBuf::zeroed(0).is_empty());
    }

    #[test]
    fn clone_copies() {
        let mut a = AlignedBuf::copy_of(b"hello");
        let b = a.clone();
        a[0] = b'j';
        assert_eq!(&b[..], b"hello");
        assert_eq!(&a[..], b"jello");
        a.truncate(2);
        assert_eq!(&a[..], b"je");
    }

    #[test]
    fn parts_fill_one_buffer() {
        let b = AlignedBuf::zeroed(3000);
        assert!(AlignedBuf::zeroed(10).into_parts(&[4, 5]).is_none());
        let mut parts = b.into_parts(&[1000, 0, 2000]).unwrap();
        parts[0].fill(1);
        parts[2].fill(2);
        parts.reverse();
        let b = BufPart::join(parts).unwrap();
        assert!(b[..1000].iter().all(|&x| x == 1) && b[1000..].iter().all(|&x| x == 2));
        let mut parts = b.into_parts(&[1000, 2000]).unwrap();
        let _kept = parts.pop();
        assert!(BufPart::join(parts).is_none(), "a part is missing");
    }

    #[test]
    fn memory_is_recycled_and_bounded() {
        // 2 MiB buffers: no other test uses them.
        let p = {
            let b = AlignedBuf::for_overwrite(2 << 20);
            b.as_ptr() as usize
        };
        let again = AlignedBuf::for_overwrite(2 << 20);
        assert_eq!(again.as_ptr() as usize, p);
        drop(again);
        let many: Vec<_> = (0..40).map(|_| AlignedBuf::zeroed(2 << 20)).collect();
        drop(many);
        // Other tests run beside this one; small pieces always stay.
        assert!(pool_bytes() <= pool_limit() + (8 << 20), "{}", pool_bytes());
        pool_shrink(0);
        assert!(pool_bytes() < 16 << 20, "{}", pool_bytes());
    }
}
