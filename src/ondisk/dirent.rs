//! Directory entries.

/// Bytes of a record whose `rec_len` is stored as `raw`, in blocks of `block` bytes.
pub fn decode_rec_len(raw: u16, block: usize) -> usize {
    let n = usize::from(raw);
    if block < 1 << 16 {
        n
    } else if raw == 0 || raw == 65535 {
        block
    } else {
        // The two low bits, free in multiples of 4, carry bits 16 and 17.
        (n & 0xfffc) | (n & 3) << 16
    }
}
