//! What a directory entry holds besides inode and name: the kind of the file and the length of
//! the record.

use super::inode::FileKind;

/// The `file_type` code of a kind of file.
pub fn file_type_code(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}

/// The kind that a `file_type` code means; `None` for "unknown" (look at the inode).
pub fn file_type_kind(code: u8) -> Option<FileKind> {
    Some(match code {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rec_len_of_64k_blocks() {
        assert_eq!(decode_rec_len(65535, 65536), 65536);
        assert_eq!(decode_rec_len(0, 65536), 65536);
        assert_eq!(decode_rec_len(65524, 65536), 65524);
        assert_eq!(decode_rec_len(0, 4096), 0);
        assert_eq!(decode_rec_len(4096, 4096), 4096);
    }

    #[test]
    fn codes() {
        for code in 1..=7 {
            assert_eq!(file_type_kind(code).map(file_type_code), Some(code));
        }
        assert_eq!(file_type_kind(0), None);
        assert_eq!(file_type_kind(8), None);
    }
}
