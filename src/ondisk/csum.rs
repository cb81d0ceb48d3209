//! The two checksum functions of ext4, with the kernel's conventions: no final
//! inversion, so that a result can seed the next call.

/// CRC-32C of `data` continuing from `crc`, not inverted at the end (`ext4_chksum`, `jbd2_chksum`).
pub fn crc32c(crc: u32, data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!crc, data)
}

const CRC16: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u16;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 == 1 { (c >> 1) ^ 0xa001 } else { c >> 1 };
            bit += 1;
        }
        table[i] = c;
        i += 1;
    }
    table
};

/// CRC-16 (polynomial 0x8005, reflected) of `data` continuing from `crc`: the
/// checksum of group descriptors with `uninit_bg`.
pub fn crc16(crc: u16, data: &[u8]) -> u16 {
    data.iter().fold(crc, |c, &b| (c >> 8) ^ CRC16[usize::from((c as u8) ^ b)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
    }
}
