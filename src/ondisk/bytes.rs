//! Reading and writing integers at byte offsets, without a way to panic.

/// The `N` bytes at `off`, if they are inside `b`.
pub fn array<const N: usize>(b: &[u8], off: usize) -> Option<[u8; N]> {
    b.get(off..)?.first_chunk::<N>().copied()
}

/// Little-endian `u16` at `off`.
pub fn le16(b: &[u8], off: usize) -> Option<u16> {
    array(b, off).map(u16::from_le_bytes)
}

/// Little-endian `u32` at `off`.
pub fn le32(b: &[u8], off: usize) -> Option<u32> {
    array(b, off).map(u32::from_le_bytes)
}

/// Little-endian `u64` at `off`.
pub fn le64(b: &[u8], off: usize) -> Option<u64> {
    array(b, off).map(u64::from_le_bytes)
}

/// Big-endian `u32` at `off`.
pub fn be32(b: &[u8], off: usize) -> Option<u32> {
    array(b, off).map(u32::from_be_bytes)
}

/// Copies `data` to `off`; `false`, and nothing changed, if it would not fit.
#[must_use]
pub fn put(b: &mut [u8], off: usize, data: &[u8]) -> bool {
    match off.checked_add(data.len()).and_then(|end| b.get_mut(off..end)) {
        Some(dst) => {
            dst.copy_from_slice(data);
            true
        }
        None => false,
    }
}
