//! The entries of one directory block, as operations on bytes. Pure.
//!
//! An *area* is a run of records that tile it from end to end: a directory block without its
//! checksum tail, or one of the two pieces of an inline directory. Every function checks what it
//! reads and changes nothing before it has checked all it needs.

use crate::{
    error::Corrupt,
    ondisk::{
        Geometry, Incompat,
        bytes::{le16, le32, put},
        dirent::decode_rec_len,
    },
    types::Ino,
};

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Bytes of the checksum tail at the end of a leaf, where the file system has metadata checksums.
pub const TAIL: usize = 12;
/// Bytes of a record before the name.
const HEAD: usize = 8;
/// The smallest record there may be: a name of one byte.
const MIN_REC: usize = 12;

/// What the bytes mean depends on these facts of the file system.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Byte 7 of a record is the kind of the file, not the high half of the name's length.
    pub filetype: bool,
    /// Leaves end in a checksum tail.
    pub csum: bool,
    /// Bytes in a block.
    pub block: usize,
    /// The highest inode number.
    pub inodes_count: u32,
    /// The lowest inode number that a name other than `.` and `..` may have.
    pub first_ino: u32,
}

/// One record, checked. Unused if `ino` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Byte offset in the area.
    pub off: usize,
    /// Bytes to the next record.
    pub len: usize,
    /// The inode it names; 0: none. At most the file system's highest.
    pub ino: u32,
    /// The on-disk kind of the file, 0 if not recorded.
    pub ftype: u8,
    /// The name.
    pub name: &'a [u8],
}

/// Bytes a record with a name of `name_len` bytes needs.
pub const fn rec_len(name_len: usize) -> usize {
    (HEAD + name_len).next_multiple_of(4)
}

impl Format {
    /// Of the file system that `geo` describes.
    pub fn new(geo: &Geometry) -> Format {
        Format {
            filetype: geo.has_incompat(Incompat::FILETYPE),
            csum: geo.metadata_csum,
            block: geo.block_size.bytes(),
            inodes_count: geo.inodes_count,
            first_ino: geo.first_ino,
        }
    }

    /// Bytes of a leaf's area.
    pub fn area(&self) -> usize {
        if self.csum { self.block - TAIL } else { self.block }
    }

    /// The area of a leaf block.
    pub fn of<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        block.get(..self.area()).unwrap_or_default()
    }

    /// The area of a leaf block, to change.
    pub fn of_mut<'a>(&self, block: &'a mut [u8]) -> &'a mut [u8] {
        block.get_mut(..self.area()).unwrap_or_default()
    }

    /// Checks that the inode of a record may be named by a directory.
    pub fn named_ino(&self, r: &Record<'_>) -> Result<Ino, Corrupt> {
        let special = matches!(r.name, b"." | b"..") && r.ino == Ino::ROOT.0;
        if special || (self.first_ino..=self.inodes_count).contains(&r.ino) {
            return Ok(Ino(r.ino));
        }
        Err(Corrupt::new("directory entry names an inode that it cannot").value(r.ino.into()))
    }

    fn encode(&self, len: usize) -> [u8; 2] {
        // Only a record that fills a 64 KiB block does not fit its field.
        u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes()
    }

    /// The record at `off`, with every check that `__ext4_check_dir_entry` makes.
    pub fn record<'a>(&self, area: &'a [u8], off: usize) -> Result<Record<'a>, Corrupt> {
        let bad = |what| Corrupt::new(what).value(off as u64);
        let head: [u8; HEAD] = crate::ondisk::bytes::array(area, off)
            .ok_or_else(|| bad("directory record past the end of its block"))?;
        let [i0, i1, i2, i3, r0, r1, name_len, ftype] = head;
        let ino = u32::from_le_bytes([i0, i1, i2, i3]);
        let len = decode_rec_len(u16::from_le_bytes([r0, r1]), self.block);
        let (name_len, ftype) = (usize::from(name_len), if self.filetype { ftype } else { 0 });
        // `off` lies inside the area, so the subtraction cannot wrap.
        let left = area.len() - off;
        if len < MIN_REC {
            return Err(bad("directory entry shorter than the shortest"));
        }
        if !len.is_multiple_of(4) {
            return Err(bad("directory entry length not a multiple of 4"));
        }
        if len < rec_len(name_len) {
            return Err(bad("directory entry too short for its name"));
        }
        if len > left {
            return Err(bad("directory entry past the end of its block"));
        }
        if left - len != 0 && left - len < MIN_REC {
            return Err(bad("directory entry too close to the end of its block"));
        }
        if ino > self.inodes_count {
            return Err(bad("directory entry with an inode out of bounds"));
        }
        let name = area.get(off + HEAD..off + HEAD + name_len).unwrap_or_default();
        Ok(Record { off, len, ino, ftype, name })
    }

    /// The records of an area in order. Ends after the first one that is not valid.
    pub fn records<'a>(&self, area: &'a [u8]) -> Records<'a> {
        Records { fmt: *self, area, at: 0 }
    }

    /// The record in use with this name.
    pub fn find<'a>(&self, area: &'a [u8], name: &[u8]) -> Result<Option<Record<'a>>, Corrupt> {
        for r in self.records(area) {
            let r = r?;
            if r.ino != 0 && r.name == name {
                return Ok(Some(r));
            }
        }
        Ok(None)
    }

    /// The record in use with this name; if there is none, where [`Format::room`] finds room for it.
    pub fn find_or_room<'a>(
        &self,
        area: &'a [u8],
        name: &[u8],
    ) -> Result<Result<Record<'a>, Option<usize>>, Corrupt> {
        let need = rec_len(name.len());
        let mut room = None;
        for r in self.records(area) {
            let r = r?;
            if r.ino != 0 && r.name == name {
                return Ok(Ok(r));
            }
            if room.is_none() && r.free() >= need {
                room = Some(r.off);
            }
        }
        Ok(Err(room))
    }

    /// The first record that a name of `name_len` bytes can go into, or behind.
    pub fn room(&self, area: &[u8], name_len: usize) -> Result<Option<usize>, Corrupt> {
        let need = rec_len(name_len);
        for r in self.records(area) {
            let r = r?;
            if r.free() >= need {
                return Ok(Some(r.off));
            }
        }
        Ok(None)
    }

    /// Puts an entry where [`Format::room`] found room, splitting that record if it is in use.
    /// `false`, and nothing changed, if there is no room.
    pub fn put(
        &self,
        area: &mut [u8],
        off: usize,
        name: &[u8],
        ino: Ino,
        ftype: u8,
    ) -> Result<bool, Corrupt> {
        let r = self.record(area, off)?;
        if name.len() > NAME_MAX || r.free() < rec_len(name.len()) {
            return Ok(false);
        }
        let (used, len) = (r.used(), r.len);
        if used > 0 {
            self.set_len(area, off, used);
        }
        self.write(area, off + used, len - used, name, ino, ftype);
        Ok(true)
    }

    /// Removes the record at `off`: the one before it takes its space, or, at the start of the
    /// area, it becomes unused. The name is wiped.
    pub fn remove(&self, area: &mut [u8], off: usize) -> Result<(), Corrupt> {
        let mut before = None;
        let mut at = 0;
        while at < off {
            let r = self.record(area, at)?;
            before = Some((r.off, r.len));
            at += r.len;
        }
        if at != off {
            return Err(Corrupt::new("no directory entry at this offset").value(off as u64));
        }
        let len = self.record(area, off)?.len;
        match before {
            Some((prev, prev_len)) => {
                wipe(area, off, len);
                self.set_len(area, prev, prev_len + len);
            }
            None => {
                wipe(area, off, len);
                self.set_len(area, off, len);
            }
        }
        Ok(())
    }

    /// Makes the record at `off` name another inode.
    pub fn set_ino(&self, area: &mut [u8], off: usize, ino: Ino, ftype: u8) -> Result<(), Corrupt> {
        self.record(area, off)?;
        let ok = put(area, off, &ino.0.to_le_bytes())
            && (!self.filetype || put(area, off + 7, &[ftype]));
        debug_assert!(ok, "the record was checked");
        Ok(())
    }

    /// Moves the entries in use to the front, so that all free space follows the last one.
    /// Returns the bytes in use.
    pub fn compact(&self, area: &mut [u8]) -> Result<usize, Corrupt> {
        // Checked whole before the first move.
        for r in self.records(area) {
            r?;
        }
        let (mut at, mut to, mut last) = (0, 0, 0);
        while at < area.len() {
            let r = self.record(area, at)?;
            let (used, len) = (r.used(), r.len);
            if used > 0 {
                area.copy_within(at..at + used, to);
                self.set_len(area, to, used);
                last = to;
                to += used;
            }
            at += len;
        }
        self.close(area, last, to);
        Ok(to)
    }

    /// Ends an area whose entries fill `..end`, the last of them at `last`.
    fn close(&self, area: &mut [u8], last: usize, end: usize) {
        let size = area.len();
        wipe(area, end, size - end);
        self.set_len(area, if end == 0 { 0 } else { last }, size - if end == 0 { 0 } else { last });
    }

    /// Makes `to` an area that holds copies of the entries of `from` at these offsets, in this
    /// order and nothing else.
    pub fn copy_out(&self, from: &[u8], offsets: &[usize], to: &mut [u8]) -> Result<(), Corrupt> {
        let (mut at, mut last) = (0, 0);
        for &off in offsets {
            let used = self.record(from, off)?.used();
            let (Some(src), Some(dst)) = (from.get(off..off + used), to.get_mut(at..at + used))
            else {
                return Err(Corrupt::new("directory block overfull").value(off as u64));
            };
            dst.copy_from_slice(src);
            self.set_len(to, at, used);
            last = at;
            at += used;
        }
        self.close(to, last, at);
        Ok(())
    }

    /// Removes the entries at these offsets and compacts the rest.
    pub fn cut(&self, area: &mut [u8], offsets: &[usize]) -> Result<(), Corrupt> {
        for &off in offsets {
            self.record(area, off)?;
            let ok = put(area, off, &[0; 4]);
            debug_assert!(ok, "the record was checked");
        }
        self.compact(area)?;
        Ok(())
    }

    /// An area with nothing in it.
    pub fn clear(&self, area: &mut [u8]) {
        self.close(area, 0, 0);
    }

    /// A leaf with nothing in it: cleared, and the checksum tail where there is one.
    pub fn init_leaf(&self, block: &mut [u8]) {
        self.clear(self.of_mut(block));
        self.init_tail(block);
    }

    /// The checksum tail, its checksum still zero.
    pub fn init_tail(&self, block: &mut [u8]) {
        if self.csum {
            let ok = put(block, self.area(), &[0, 0, 0, 0, TAIL as u8, 0, 0, 0xde, 0, 0, 0, 0]);
            debug_assert!(ok, "a block has room for its tail");
        }
    }

    /// Writes one whole record; the caller made sure that it fits.
    pub fn write(&self, area: &mut [u8], off: usize, len: usize, name: &[u8], ino: Ino, ftype: u8) {
        wipe(area, off, rec_len(name.len()));
        let ok = put(area, off, &ino.0.to_le_bytes())
            && put(area, off + 4, &self.encode(len))
            && put(area, off + 6, &[name.len() as u8, if self.filetype { ftype } else { 0 }])
            && put(area, off + HEAD, name);
        debug_assert!(ok, "the caller made sure that the record fits");
    }

    /// Sets the length of a record.
    pub fn set_len(&self, area: &mut [u8], off: usize, len: usize) {
        let ok = put(area, off + 4, &self.encode(len));
        debug_assert!(ok, "a checked record has a length field");
    }
}

impl Record<'_> {
    /// Bytes the entry itself needs; 0 if unused.
    pub fn used(&self) -> usize {
        if self.ino == 0 { 0 } else { rec_len(self.name.len()) }
    }

    /// Bytes of it that another entry can have.
    pub fn free(&self) -> usize {
        self.len - self.used()
    }
}

/// Iterator over the records of an area.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    fmt: Format,
    area: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.area.len() {
            return None;
        }
        let r = self.fmt.record(self.area, self.at);
        self.at = match &r {
            Ok(r) => self.at + r.len,
            Err(_) => self.area.len(),
        };
        Some(r)
    }
}

/// Whether a block of a hashed directory is an index node: one unused record as long as the block.
pub fn is_index_node(block: &[u8]) -> bool {
    le32(block, 0) == Some(0)
        && le16(block, 4).is_some_and(|raw| decode_rec_len(raw, block.len()) == block.len())
}

fn wipe(area: &mut [u8], off: usize, len: usize) {
    if let Some(b) = off.checked_add(len).and_then(|end| area.get_mut(off..end)) {
        b.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn fmt(block: usize, csum: bool, filetype: bool) -> Format {
        Format { filetype, csum, block, inodes_count: 1 << 20, first_ino: 11 }
    }

    fn names(f: Format, block: &[u8]) -> BTreeMap<Vec<u8>, (u32, u8)> {
        f.records(f.of(block))
            .map(|r| r.unwrap())
            .filter(|r| r.ino != 0)
            .map(|r| (r.name.to_vec(), (r.ino, r.ftype)))
            .collect()
    }

    fn tiles(f: Format, block: &[u8]) -> bool {
        let mut end = 0;
        for r in f.records(f.of(block)) {
            let r = r.unwrap();
            assert_eq!(r.off, end);
            end = r.off + r.len;
        }
        end == f.area()
    }

    #[test]
    fn a_full_64k_record() {
        let f = fmt(65536, false, true);
        let mut b = vec![0xaa; 65536];
        f.init_leaf(&mut b);
        assert_eq!(&b[..8], &[0, 0, 0, 0, 0xff, 0xff, 0, 0]);
        assert!(tiles(f, &b));
        assert_eq!(f.room(f.of(&b), 255).unwrap(), Some(0));
    }

    #[test]
    fn hostile_records_are_refused() {
        let f = fmt(1024, true, true);
        let mut good = vec![0; 1024];
        f.init_leaf(&mut good);
        assert!(f.put(f.of_mut(&mut good), 0, b"name", Ino(12), 1).unwrap());
        let check = |at: usize, bytes: &[u8]| {
            let mut b = good.clone();
            b[at..at + bytes.len()].copy_from_slice(bytes);
            f.find(f.of(&b), b"absent").unwrap_err().what
        };
        assert_eq!(check(4, &[8, 0]), "directory entry shorter than the shortest");
        assert_eq!(check(4, &[14, 0]), "directory entry length not a multiple of 4");
        assert_eq!(check(4, &[0xf0, 0xff]), "directory entry past the end of its block");
        assert_eq!(check(4, &[12, 0, 5]), "directory entry too short for its name");
    }

    #[test]
    fn inode_one_and_strangers_cannot_be_named() {
        let f = fmt(1024, false, true);
        let r = |ino, name| Record { off: 0, len: 12, ino, ftype: 2, name };
        assert!(f.named_ino(&r(1, b"x")).is_err());
        assert!(f.named_ino(&r(2, b"x")).is_err());
        assert!(f.named_ino(&r(8, b"x")).is_err());
        assert_eq!(f.named_ino(&r(2, b"..")), Ok(Ino(2)));
        assert_eq!(f.named_ino(&r(11, b"lost+found")), Ok(Ino(11)));
        assert!(f.named_ino(&r((1 << 20) + 1, b"x")).is_err());
    }

    #[derive(Debug, Clone)]
    enum Op {
        Insert(Vec<u8>, u32),
        Remove(usize),
        Replace(usize, u32),
        Compact,
        Divide,
    }

    fn op() -> impl Strategy<Value = Op> {
        let name = proptest::collection::vec(b'a'..=b'z', 1..60);
        prop_oneof![
            6 => (name, 11u32..1000).prop_map(|(n, i)| Op::Insert(n, i)),
            3 => any::<prop::sample::Index>().prop_map(|i| Op::Remove(i.index(1 << 16))),
            1 => (any::<prop::sample::Index>(), 11u32..1000)
                .prop_map(|(i, n)| Op::Replace(i.index(1 << 16), n)),
            1 => Just(Op::Compact),
            1 => Just(Op::Divide),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn like_a_map(
            ops in proptest::collection::vec(op(), 1..120),
            csum: bool,
            filetype: bool,
        ) {
            let f = fmt(1024, csum, filetype);
            let mut b = vec![0; 1024];
            f.init_leaf(&mut b);
            let mut model = BTreeMap::new();
            for op in ops {
                let nth = |m: &BTreeMap<Vec<u8>, (u32, u8)>, i: usize| {
                    (!m.is_empty()).then(|| m.keys().nth(i % m.len()).unwrap().clone())
                };
                match op {
                    Op::Insert(name, ino) => {
                        if model.contains_key(&name) {
                            continue;
                        }
                        let used: usize = model.keys().map(|n: &Vec<u8>| rec_len(n.len())).sum();
                        let fits = used + rec_len(name.len()) <= f.area();
                        let mut room = f.room(f.of(&b), name.len()).unwrap();
                        if room.is_none() && fits {
                            f.compact(f.of_mut(&mut b)).unwrap();
                            room = f.room(f.of(&b), name.len()).unwrap();
                        }
                        prop_assert_eq!(room.is_some(), fits);
                        if let Some(off) = room {
                            prop_assert!(f.put(f.of_mut(&mut b), off, &name, Ino(ino), 1).unwrap());
                            model.insert(name, (ino, u8::from(filetype)));
                        }
                    }
                    Op::Remove(i) => {
                        let Some(name) = nth(&model, i) else { continue };
                        let off = f.find(f.of(&b), &name).unwrap().unwrap().off;
                        f.remove(f.of_mut(&mut b), off).unwrap();
                        model.remove(&name);
                    }
                    Op::Replace(i, ino) => {
                        let Some(name) = nth(&model, i) else { continue };
                        let off = f.find(f.of(&b), &name).unwrap().unwrap().off;
                        f.set_ino(f.of_mut(&mut b), off, Ino(ino), 2).unwrap();
                        model.insert(name, (ino, if filetype { 2 } else { 0 }));
                    }
                    Op::Compact => {
                        let used = f.compact(f.of_mut(&mut b)).unwrap();
                        let want: usize = model.keys().map(|n| rec_len(n.len())).sum();
                        prop_assert_eq!(used, want);
                    }
                    Op::Divide => {
                        let mut other = vec![0x55; 1024];
                        f.init_leaf(&mut other);
                        let go: Vec<usize> = f.records(f.of(&b)).map(|r| r.unwrap())
                            .filter(|r| r.ino % 2 == 1).map(|r| r.off).collect();
                        f.copy_out(f.of(&b), &go, f.of_mut(&mut other)).unwrap();
                        f.cut(f.of_mut(&mut b), &go).unwrap();
                        prop_assert!(tiles(f, &other));
                        let mut both = names(f, &other);
                        prop_assert!(both.values().all(|v| v.0 % 2 == 1));
                        both.append(&mut names(f, &b));
                        prop_assert_eq!(&both, &model);
                        model.retain(|_, v| v.0 % 2 == 0);
                    }
                }
                prop_assert!(tiles(f, &b));
                prop_assert_eq!(&names(f, &b), &model);
                if csum {
                    prop_assert_eq!(&b[1012..], &[0, 0, 0, 0, 12, 0, 0, 0xde, 0, 0, 0, 0]);
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut b in proptest::collection::vec(any::<u8>(), 1024..=1024), csum: bool) {
            let f = fmt(1024, csum, true);
            let _ = f.find(f.of(&b), b"x");
            let _ = f.room(f.of(&b), 10);
            let _ = f.compact(f.of_mut(&mut b));
            let _ = f.remove(f.of_mut(&mut b), 12);
        }
    }
}
