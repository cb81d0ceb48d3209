//! Directory entries in a block (or in inline data): checked iteration and edits in place.

use super::bytes::{le16, le32, put};
use super::features::{Incompat, RoCompat};
use super::geometry::Geometry;
use super::inode::FileKind;
use crate::error::{Corrupt, Error, Result};
use crate::types::Ino;

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Bytes before the name.
pub const DIRENT_HEADER: usize = 8;
/// Bytes of the checksum tail at the end of a directory block with `metadata_csum`.
pub const DIR_TAIL: usize = 12;
/// `file_type` of the checksum tail.
pub const FT_DIR_CSUM: u8 = 0xde;

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

/// Bytes that an entry with a name of `name_len` bytes takes.
pub fn entry_bytes(name_len: usize) -> usize {
    (DIRENT_HEADER + name_len).next_multiple_of(4)
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

/// How a record of `len` bytes (a multiple of 4, at most `block`) is stored.
pub fn encode_rec_len(len: usize, block: usize) -> u16 {
    debug_assert!(len % 4 == 0 && len <= block && block <= 1 << 16);
    if len < 1 << 16 { len as u16 } else { 65535 }
}

/// Whether a name may stand in a directory: 1 to 255 bytes, no `/`, no NUL.
pub fn is_valid_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && !name.iter().any(|&b| b == b'/' || b == 0)
}

/// How the entries of one directory block are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirentFormat {
    /// Entries carry file types.
    pub filetype: bool,
    /// The block ends in a checksum tail.
    pub tail: bool,
    /// Inode numbers are at most this.
    pub inodes_count: u32,
}

/// One entry, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// Byte offset in the block.
    pub offset: usize,
    /// Bytes to the next entry.
    pub rec_len: usize,
    /// The inode; `None` in an unused entry.
    pub ino: Option<Ino>,
    /// `file_type`, 0 without the feature.
    pub file_type: u8,
    /// The name; may be anything in an unused entry.
    pub name: &'a [u8],
}

impl Dirent<'_> {
    /// Byte offset of the next entry.
    pub fn end(&self) -> usize {
        self.offset + self.rec_len
    }
    /// Bytes it needs for itself; 0 if unused.
    pub fn used(&self) -> usize {
        if self.ino.is_some() { entry_bytes(self.name.len()) } else { 0 }
    }
}

/// Iterator over all entries of a block, unused ones too, the checksum tail
/// not. After an error it ends.
#[derive(Clone, Debug)]
pub struct Dirents<'a> {
    format: DirentFormat,
    data: &'a [u8],
    limit: usize,
    at: usize,
}

impl<'a> Iterator for Dirents<'a> {
    type Item = Result<Dirent<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.limit {
            return None;
        }
        let entry = self.format.read(self.data, self.at, self.limit);
        self.at = match &entry {
            Ok(e) => e.end(),
            Err(_) => self.limit,
        };
        Some(entry)
    }
}

fn bad(what: &'static str, offset: usize) -> Error {
    Corrupt::new(what).value(offset as u64).into()
}

impl DirentFormat {
    /// Of a linear directory block, or a leaf of a hashed directory.
    pub fn leaf(geo: &Geometry) -> DirentFormat {
        DirentFormat { tail: geo.has_ro_compat(RoCompat::METADATA_CSUM), ..Self::bare(geo) }
    }

    /// Of inline data, and of the fake entries in an htree root or node: no checksum tail.
    pub fn bare(geo: &Geometry) -> DirentFormat {
        DirentFormat {
            filetype: geo.has_incompat(Incompat::FILETYPE),
            tail: false,
            inodes_count: geo.inodes_count,
        }
    }

    /// Bytes of a block of `len` bytes that entries can take.
    pub fn limit(&self, len: usize) -> usize {
        len.saturating_sub(if self.tail { DIR_TAIL } else { 0 })
    }

    /// The entries of a block. Errors are `Corrupt` with the offset in the
    /// block as value; the caller adds inode and block.
    pub fn iter<'a>(&self, data: &'a [u8]) -> Dirents<'a> {
        self.iter_from(data, 0)
    }

    /// The entries from offset `at`, which must be where an entry begins.
    pub fn iter_from<'a>(&self, data: &'a [u8], at: usize) -> Dirents<'a> {
        Dirents { format: *self, data, limit: self.limit(data.len()), at }
    }

    fn read<'a>(&self, data: &'a [u8], at: usize, limit: usize) -> Result<Dirent<'a>> {
        let head = || Some((le32(data, at)?, le16(data, at + 4)?, data.get(at + 6..at + 8)?));
        let Some((ino, raw_len, &[name_len, file_type])) = head() else {
            return Err(bad("directory entry past the end of its block, at", at));
        };
        let rec_len = decode_rec_len(raw_len, data.len());
        let end = at + rec_len;
        if rec_len % 4 != 0 {
            return Err(bad("directory entry length not a multiple of 4, at", at));
        }
        if end > limit {
            return Err(bad("directory entry overruns its block, at", at));
        }
        if rec_len < entry_bytes(1).max(entry_bytes(usize::from(name_len))) {
            // An empty inline directory is one unused entry that may be shorter.
            let lone = at == 0 && end == limit && ino == 0 && rec_len >= DIRENT_HEADER;
            if !lone || name_len != 0 {
                return Err(bad("directory entry too short, at", at));
            }
        }
        if end != limit && end + entry_bytes(1) > limit {
            return Err(bad("directory entry too close to the end of its block, at", at));
        }
        if ino > self.inodes_count {
            return Err(bad("directory entry names an inode out of range, at", at));
        }
        if ino != 0 && name_len == 0 {
            return Err(bad("directory entry without a name, at", at));
        }
        let from = at + DIRENT_HEADER;
        Ok(Dirent {
            offset: at,
            rec_len,
            ino: (ino != 0).then_some(Ino(ino)),
            file_type: if self.filetype { file_type } else { 0 },
            name: data.get(from..from + usize::from(name_len)).unwrap_or_default(),
        })
    }

    /// Checks every entry of a block.
    ///
    /// # Errors
    /// `Corrupt`, the first fault found.
    pub fn check(&self, data: &[u8]) -> Result<()> {
        self.iter(data).try_for_each(|e| e.map(|_| ()))
    }

    /// The entry with this name.
    ///
    /// # Errors
    /// `Corrupt` if a fault is met before it.
    pub fn find<'a>(&self, data: &'a [u8], name: &[u8]) -> Result<Option<Dirent<'a>>> {
        for e in self.iter(data) {
            let e = e?;
            if e.ino.is_some() && e.name == name {
                return Ok(Some(e));
            }
        }
        Ok(None)
    }

    /// Whether no entry is in use, `.` and `..` not counted.
    ///
    /// # Errors
    /// `Corrupt` if a fault is met.
    pub fn is_empty(&self, data: &[u8]) -> Result<bool> {
        for e in self.iter(data) {
            let e = e?;
            if e.ino.is_some() && e.name != b"." && e.name != b".." {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds an entry in the first gap that holds it; returns its offset, or
    /// `None` if there is none. Whether the name is there already is the
    /// caller's to know. `file_type` is ignored without the feature.
    ///
    /// # Errors
    /// `NameTooLong`, or `Corrupt` if a fault is met before a gap.
    pub fn insert(
        &self,
        data: &mut [u8],
        name: &[u8],
        ino: Ino,
        file_type: u8,
    ) -> Result<Option<usize>> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let need = entry_bytes(name.len());
        let mut gap = None;
        for e in self.iter(data) {
            let e = e?;
            if e.rec_len - e.used().min(e.rec_len) >= need {
                gap = Some((e.offset, e.used(), e.rec_len));
                break;
            }
        }
        let Some((offset, used, rec_len)) = gap else { return Ok(None) };
        if used > 0 {
            self.set_rec_len(data, offset, used)?;
        }
        self.write_entry(data, offset + used, rec_len - used, name, ino, file_type)?;
        Ok(Some(offset + used))
    }

    /// Removes the entry at `offset`: the one before takes its room, or it
    /// becomes unused if it is the first. Its bytes are wiped.
    ///
    /// # Errors
    /// `Corrupt` if no entry begins there, or a fault is met on the way.
    pub fn remove(&self, data: &mut [u8], offset: usize) -> Result<()> {
        let mut before = None;
        let mut found = None;
        for e in self.iter(data) {
            let e = e?;
            if e.offset == offset {
                found = Some(e.rec_len);
                break;
            }
            before = Some((e.offset, e.rec_len));
        }
        let Some(rec_len) = found else { return Err(bad("no directory entry at", offset)) };
        if let Some((at, len)) = before {
            if let Some(bytes) = data.get_mut(offset..offset + rec_len) {
                bytes.fill(0);
            }
            return self.set_rec_len(data, at, len + rec_len);
        }
        if let Some(bytes) = data.get_mut(offset + 6..offset + rec_len) {
            bytes.fill(0);
        }
        if put(data, offset, &[0; 4]) { Ok(()) } else { Err(bad("no directory entry at", offset)) }
    }

    /// Points the entry at `offset` to another inode.
    ///
    /// # Errors
    /// `Corrupt` if there is no room for an entry.
    pub fn set_ino(&self, data: &mut [u8], offset: usize, ino: Ino, file_type: u8) -> Result<()> {
        let mut done = put(data, offset, &ino.0.to_le_bytes());
        if self.filetype {
            done &= put(data, offset + 7, &[file_type]);
        }
        if done { Ok(()) } else { Err(bad("no directory entry at", offset)) }
    }

    /// Makes a block of one unused entry, with the tail if there is one (unsealed).
    pub fn init_empty(&self, data: &mut [u8]) {
        data.fill(0);
        let limit = self.limit(data.len());
        let done = self.set_rec_len(data, 0, limit).is_ok();
        debug_assert!(done, "a block holds an entry");
        self.init_tail(data);
    }

    /// Makes the first block of a new directory: `.` and `..`, and the tail (unsealed).
    pub fn init_dots(&self, data: &mut [u8], dir: Ino, parent: Ino) {
        data.fill(0);
        let limit = self.limit(data.len());
        let kind = file_type_code(FileKind::Directory);
        let done = self.write_entry(data, 0, 12, b".", dir, kind).is_ok()
            && self.write_entry(data, 12, limit.saturating_sub(12), b"..", parent, kind).is_ok();
        debug_assert!(done, "a block holds two entries");
        self.init_tail(data);
    }

    /// Writes an unsealed checksum tail, if this kind of block has one.
    pub fn init_tail(&self, data: &mut [u8]) {
        if self.tail {
            let tail = [0, 0, 0, 0, DIR_TAIL as u8, 0, 0, FT_DIR_CSUM, 0, 0, 0, 0];
            let done = put(data, data.len().saturating_sub(DIR_TAIL), &tail);
            debug_assert!(done, "a block holds a tail");
        }
    }

    fn set_rec_len(&self, data: &mut [u8], at: usize, len: usize) -> Result<()> {
        let raw = encode_rec_len(len, data.len());
        if put(data, at + 4, &raw.to_le_bytes()) {
            Ok(())
        } else {
            Err(bad("no directory entry at", at))
        }
    }

    /// Writes an entry of `rec_len` bytes at `at`; wipes the rest of its room
    /// only where an older name could show.
    fn write_entry(
        &self,
        data: &mut [u8],
        at: usize,
        rec_len: usize,
        name: &[u8],
        ino: Ino,
        file_type: u8,
    ) -> Result<()> {
        let used = entry_bytes(name.len());
        if rec_len < used || at + rec_len > data.len() {
            return Err(bad("no room for a directory entry at", at));
        }
        let raw = encode_rec_len(rec_len, data.len()).to_le_bytes();
        let i = ino.0.to_le_bytes();
        let ft = if self.filetype { file_type } else { 0 };
        let head = [i[0], i[1], i[2], i[3], raw[0], raw[1], name.len() as u8, ft];
        if let Some(room) = data.get_mut(at..at + used) {
            room.fill(0);
        }
        if put(data, at, &head) && put(data, at + DIRENT_HEADER, name) {
            Ok(())
        } else {
            Err(bad("no room for a directory entry at", at))
        }
    }
}

/// Fills a leaf with entries one behind the other, as when a leaf is split or packed.
#[derive(Debug)]
pub struct LeafWriter<'a> {
    format: DirentFormat,
    data: &'a mut [u8],
    at: usize,
    last: Option<usize>,
}

impl<'a> LeafWriter<'a> {
    /// Starts an empty leaf; earlier contents are wiped.
    pub fn new(format: DirentFormat, data: &'a mut [u8]) -> LeafWriter<'a> {
        data.fill(0);
        LeafWriter { format, data, at: 0, last: None }
    }

    /// Adds an entry; `false`, and nothing added, if the leaf is full.
    #[must_use]
    pub fn push(&mut self, name: &[u8], ino: Ino, file_type: u8) -> bool {
        let need = entry_bytes(name.len());
        if name.len() > NAME_MAX || self.at + need > self.format.limit(self.data.len()) {
            return false;
        }
        if self.format.write_entry(self.data, self.at, need, name, ino, file_type).is_err() {
            return false;
        }
        self.last = Some(self.at);
        self.at += need;
        true
    }

    /// Gives the rest of the block to the last entry and writes the tail (unsealed).
    pub fn finish(self) {
        let LeafWriter { format, data, last, .. } = self;
        match last {
            None => format.init_empty(data),
            Some(at) => {
                let limit = format.limit(data.len());
                let done = format.set_rec_len(data, at, limit - at).is_ok();
                debug_assert!(done, "the entry was written");
                format.init_tail(data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const F: DirentFormat = DirentFormat { filetype: true, tail: true, inodes_count: 1000 };

    #[test]
    fn rec_len_of_64k_blocks() {
        assert_eq!(encode_rec_len(65536, 65536), 65535);
        assert_eq!(decode_rec_len(65535, 65536), 65536);
        assert_eq!(decode_rec_len(0, 65536), 65536);
        assert_eq!(decode_rec_len(encode_rec_len(65524, 65536), 65536), 65524);
        assert_eq!(decode_rec_len(0, 4096), 0);
        let mut big = vec![0; 65536];
        for tail in [true, false] {
            let f = DirentFormat { tail, ..F };
            f.init_empty(&mut big);
            f.check(&big).unwrap();
            assert_eq!(f.insert(&mut big, b"a", Ino(5), 1).unwrap(), Some(0));
            assert_eq!(f.find(&big, b"a").unwrap().unwrap().rec_len, f.limit(65536));
        }
    }

    #[test]
    fn dots() {
        let mut b = vec![0xff; 1024];
        F.init_dots(&mut b, Ino(12), Ino(2));
        let got: Vec<_> = F.iter(&b).map(|e| e.unwrap()).collect();
        assert_eq!(got.len(), 2);
        assert_eq!((got[0].name, got[0].ino, got[0].rec_len), (&b"."[..], Some(Ino(12)), 12));
        assert_eq!((got[1].name, got[1].ino, got[1].rec_len), (&b".."[..], Some(Ino(2)), 1000));
        assert!(F.is_empty(&b).unwrap());
        assert_eq!(&b[1012..1020], &[0, 0, 0, 0, 12, 0, 0, 0xde]);
    }

    #[test]
    fn faults_are_found() {
        let mut good = vec![0; 1024];
        F.init_dots(&mut good, Ino(12), Ino(2));
        for (at, value) in [(4, 13), (4, 8), (4, 0), (6, 200), (12 + 4, 0xff), (3, 0x7f), (6, 0)] {
            let mut b = good.clone();
            b[at] = value;
            assert!(matches!(F.check(&b), Err(Error::Corrupt(_))), "byte {at} = {value}");
        }
    }

    proptest! {
        #[test]
        fn no_panic_on_any_bytes(
            mut data in proptest::collection::vec(any::<u8>(), 0..300),
            tail: bool,
            at in 0usize..300,
        ) {
            let f = DirentFormat { tail, ..F };
            let _ = f.check(&data);
            let _ = f.find(&data, b"a");
            let _ = f.insert(&mut data, b"abc", Ino(3), 1);
            let _ = f.remove(&mut data, at);
        }

        /// Random inserts and removes agree with a map, and the block stays sound.
        #[test]
        fn agrees_with_a_map(ops in proptest::collection::vec((any::<bool>(), 0u8..40), 1..200)) {
            let mut block = vec![0; 1024];
            F.init_empty(&mut block);
            let mut model = BTreeMap::new();
            for (add, n) in ops {
                let name = vec![b'a' + n % 26; usize::from(n) + 1];
                let there = F.find(&block, &name).unwrap().map(|e| (e.offset, e.ino));
                prop_assert_eq!(there.and_then(|t| t.1), model.get(&name).copied());
                if add && there.is_none() {
                    let ino = Ino(u32::from(n) + 11);
                    if F.insert(&mut block, &name, ino, 1).unwrap().is_some() {
                        model.insert(name, ino);
                    }
                } else if let Some((at, _)) = there {
                    F.remove(&mut block, at).unwrap();
                    model.remove(&name);
                }
                let live: BTreeMap<_, _> = F.iter(&block).map(|e| e.unwrap())
                    .filter_map(|e| Some((e.name.to_vec(), e.ino?))).collect();
                prop_assert_eq!(&live, &model);
                let span: usize = F.iter(&block).map(|e| e.unwrap().rec_len).sum();
                prop_assert_eq!(span, 1012);
            }
            let mut packed = vec![0; 1024];
            let mut w = LeafWriter::new(F, &mut packed);
            for (name, ino) in &model {
                prop_assert!(w.push(name, *ino, 1));
            }
            w.finish();
            prop_assert_eq!(F.iter(&packed).filter(|e| e.as_ref().unwrap().ino.is_some()).count(), model.len());
        }
    }
}
