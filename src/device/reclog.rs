//! The recorder's log file: format, reader, and what a crash at a place in it may leave.
//!
//! All numbers little-endian. Header, 32 bytes: magic `uext4rec`, version (u32, 1), logical block size
//! (u32), device size in bytes (u64), zeros (u64). Then entries, each 32 bytes and a payload:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | kind: 1 write, 2 flush, 3 discard, 4 zero, 5 done, 6 mark |
//! | 1 | flags: 1 = FUA, 2 = done with an error, 4 = the data is all zeros and left out |
//! | 2 | length of the cause, which follows the entry |
//! | 3 | 0 |
//! | 4..8 | crc32c of bytes 0..4, 8..32, cause and data |
//! | 8..16 | sequence number, from 0, without gaps; a request's is its identity |
//! | 16..24 | offset in bytes; for `done` the sequence number of what is done |
//! | 24..32 | length in bytes of the range, or of a mark's text |
//!
//! A log may end anywhere (the daemon was killed): the reader stops before an incomplete entry.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"uext4rec";
const VERSION: u32 = 1;
/// Longest range whose data an entry may carry, so that a damaged log cannot ask for all memory.
const MAX_DATA: u64 = 1 << 30;

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A write was issued.
    Write {
        /// Force unit access: stable when done.
        fua: bool,
    },
    /// A flush was issued.
    Flush,
    /// A discard was issued: contents undefined from here on.
    Discard,
    /// Zeros were asked for.
    Zero,
    /// The request whose sequence number is `offset` is done.
    Done {
        /// Without an error.
        ok: bool,
    },
    /// A note of the workload.
    Mark,
}

/// One entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its number.
    pub seq: u64,
    /// What it says.
    pub kind: Kind,
    /// Bytes from the start of the device; for `Done`, what is done.
    pub offset: u64,
    /// Length of the range in bytes.
    pub len: u64,
    /// Why the request was made.
    pub tag: Arc<str>,
    /// The bytes of a write, or of a mark's text.
    pub data: Vec<u8>,
}

impl Entry {
    /// Whether it changes the contents of the device.
    pub fn is_change(&self) -> bool {
        matches!(self.kind, Kind::Write { .. } | Kind::Discard | Kind::Zero)
    }

    /// A mark's text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.data).into_owned()
    }

    /// Does to `dev` what the entry did: writes; zeros for a discard (the value most likely to
    /// show, and allowed). Others do nothing.
    pub fn apply(&self, dev: &dyn super::BlockDevice) -> crate::error::Result<()> {
        match self.kind {
            Kind::Write { .. } => dev.write_at(&self.data, self.offset),
            Kind::Zero | Kind::Discard => dev.write_zeroes(self.offset, self.len),
            _ => Ok(()),
        }
    }
}

pub(super) fn write_header(out: &mut impl Write, size: u64, logical: u32) -> io::Result<()> {
    out.write_all(MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&logical.to_le_bytes())?;
    out.write_all(&size.to_le_bytes())?;
    out.write_all(&[0; 8])
}

pub(super) fn write_entry(
    out: &mut impl Write,
    kind: Kind,
    seq: u64,
    offset: u64,
    len: u64,
    tag: &str,
    data: &[&[u8]],
) -> io::Result<()> {
    let (code, mut flags) = match kind {
        Kind::Write { fua } => (1, u8::from(fua)),
        Kind::Flush => (2, 0),
        Kind::Discard => (3, 0),
        Kind::Zero => (4, 0),
        Kind::Done { ok } => (5, if ok { 0 } else { 2 }),
        Kind::Mark => (6, 0),
    };
    let zeros = code == 1 && data.iter().all(|d| d.iter().all(|&b| b == 0));
    if zeros {
        flags |= 4;
    }
    let tag = &tag.as_bytes()[..tag.len().min(255)];
    let mut head = [0; 32];
    head[..4].copy_from_slice(&[code, flags, tag.len() as u8, 0]);
    head[8..16].copy_from_slice(&seq.to_le_bytes());
    head[16..24].copy_from_slice(&offset.to_le_bytes());
    head[24..32].copy_from_slice(&len.to_le_bytes());
    let mut crc = crc32c::crc32c(&head[..4]);
    crc = crc32c::crc32c_append(crc, &head[8..]);
    crc = crc32c::crc32c_append(crc, tag);
    let data = if zeros { &[] } else { data };
    for d in data {
        crc = crc32c::crc32c_append(crc, d);
    }
    head[4..8].copy_from_slice(&crc.to_le_bytes());
    out.write_all(&head)?;
    out.write_all(tag)?;
    data.iter().try_for_each(|d| out.write_all(d))
}

/// Reads a log from its start.
pub struct LogReader<R = BufReader<File>> {
    from: R,
    size: u64,
    logical: u32,
    next: u64,
    last_tag: Arc<str>,
    ended: bool,
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn u64_at(b: &[u8; 32], at: usize) -> u64 {
    let mut n = [0; 8];
    n.copy_from_slice(&b[at..at + 8]);
    u64::from_le_bytes(n)
}

impl LogReader {
    /// Opens a log file and reads its header.
    pub fn open(path: &Path) -> io::Result<LogReader> {
        LogReader::new(BufReader::with_capacity(1 << 20, File::open(path)?))
    }
}

impl<R: Read> LogReader<R> {
    /// Reads the header.
    pub fn new(mut from: R) -> io::Result<LogReader<R>> {
        let mut head = [0; 32];
        from.read_exact(&mut head)?;
        if &head[..8] != MAGIC {
            return Err(invalid("not a recorder log: the magic is missing"));
        }
        let word = u64_at(&head, 8);
        let (version, logical) = (word as u32, (word >> 32) as u32);
        if version != VERSION {
            return Err(invalid(format!("recorder log of version {version}, not {VERSION}")));
        }
        let size = u64_at(&head, 16);
        Ok(LogReader { from, size, logical, next: 0, last_tag: "".into(), ended: false })
    }

    /// Size of the recorded device in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its logical block size in bytes.
    pub fn logical_block_size(&self) -> u32 {
        self.logical
    }

    fn tag(&mut self, bytes: &[u8]) -> Arc<str> {
        if *bytes != *self.last_tag.as_bytes() {
            self.last_tag = String::from_utf8_lossy(bytes).into();
        }
        Arc::clone(&self.last_tag)
    }

    fn entry(&mut self) -> io::Result<Entry> {
        let mut head = [0; 32];
        self.from.read_exact(&mut head)?;
        let (seq, offset, len) = (u64_at(&head, 8), u64_at(&head, 16), u64_at(&head, 24));
        let mut tag = vec![0; usize::from(head[2])];
        self.from.read_exact(&mut tag)?;
        let stored = match head[0] {
            1 if head[1] & 4 == 0 => len,
            6 => len,
            _ => 0,
        };
        let zeros = if head[0] == 1 { len - stored } else { 0 };
        if stored > MAX_DATA || zeros > MAX_DATA {
            return Err(invalid(format!("entry {seq} claims {len} bytes of data")));
        }
        let mut data = Vec::new();
        (&mut self.from).take(stored).read_to_end(&mut data)?;
        if (data.len() as u64) < stored {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut crc = crc32c::crc32c(&head[..4]);
        crc = crc32c::crc32c_append(crc, &head[8..]);
        crc = crc32c::crc32c_append(crc, &tag);
        crc = crc32c::crc32c_append(crc, &data);
        if crc.to_le_bytes() != head[4..8] || seq != self.next {
            return Err(invalid(format!("the log is damaged at entry {}", self.next)));
        }
        data.resize(data.len() + zeros as usize, 0);
        let kind = match head[0] {
            1 => Kind::Write { fua: head[1] & 1 != 0 },
            2 => Kind::Flush,
            3 => Kind::Discard,
            4 => Kind::Zero,
            5 => Kind::Done { ok: head[1] & 2 == 0 },
            6 => Kind::Mark,
            k => return Err(invalid(format!("entry {seq} has the unknown kind {k}"))),
        };
        self.next += 1;
        let tag = self.tag(&tag);
        Ok(Entry { seq, kind, offset, len, tag, data })
    }
}

impl<R: Read> Iterator for LogReader<R> {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<io::Result<Entry>> {
        if self.ended {
            return None;
        }
        match self.entry() {
            Ok(e) => Some(Ok(e)),
            Err(e) => {
                self.ended = true;
                (e.kind() != io::ErrorKind::UnexpectedEof).then_some(Err(e))
            }
        }
    }
}

/// What a crash at a place in the log leaves: changes that are certainly there, in order, and changes
/// that may be there, each wholly, in part or not at all.
#[derive(Default, Debug, Clone)]
pub struct Pending {
    durable: Vec<u64>,
    pending: Vec<u64>,
    /// Of the pending ones, those that are done.
    done: Vec<u64>,
    fua: Vec<u64>,
    /// Flushes in flight, with the changes each will make stable.
    flushes: Vec<(u64, Vec<u64>)>,
}

impl Pending {
    /// Moves past an entry.
    pub fn feed(&mut self, e: &Entry) {
        match e.kind {
            Kind::Write { fua } => {
                self.pending.push(e.seq);
                if fua {
                    self.fua.push(e.seq);
                }
            }
            Kind::Discard | Kind::Zero => self.pending.push(e.seq),
            Kind::Flush => self.flushes.push((e.seq, self.done.clone())),
            Kind::Done { ok } => self.finished(e.offset, ok),
            Kind::Mark => {}
        }
    }

    fn finished(&mut self, id: u64, ok: bool) {
        if let Some(at) = self.flushes.iter().position(|f| f.0 == id) {
            let (_, covered) = self.flushes.swap_remove(at);
            if ok {
                self.settle(&covered);
            }
        } else if ok && self.fua.contains(&id) {
            self.settle(&[id]);
        } else if ok && self.pending.binary_search(&id).is_ok() {
            self.done.push(id);
        }
        // A change that failed may be there in part: it stays pending for ever.
    }

    fn settle(&mut self, ids: &[u64]) {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        let settled = |id: &u64| ids.binary_search(id).is_ok();
        let before = self.durable.len();
        self.pending.retain(|id| {
            let hit = settled(id);
            if hit {
                self.durable.push(*id);
            }
            !hit
        });
        self.done.retain(|id| !settled(id));
        self.fua.retain(|id| !settled(id));
        self.durable[before..].sort_unstable();
    }

    /// Sequence numbers of the changes that a crash here certainly keeps, in the order in which they
    /// became stable.
    pub fn durable(&self) -> &[u64] {
        &self.durable
    }

    /// Sequence numbers of the changes that a crash here may keep, lose or tear, in order of issue.
    pub fn pending(&self) -> &[u64] {
        &self.pending
    }

    /// Forgets the list of stable changes (which only grows) and returns it: for a caller that applies
    /// them to an image as it goes.
    pub fn take_durable(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.durable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seq: u64, kind: Kind, offset: u64) -> Entry {
        Entry { seq, kind, offset, len: 0, tag: "".into(), data: Vec::new() }
    }

    fn bytes() -> Vec<u8> {
        let mut out = Vec::new();
        write_header(&mut out, 1000, 512).unwrap();
        write_entry(&mut out, Kind::Write { fua: true }, 0, 7, 5, "why", &[b"he", b"llo"]).unwrap();
        write_entry(&mut out, Kind::Done { ok: false }, 1, 0, 0, "", &[]).unwrap();
        out
    }

    #[test]
    fn cut_anywhere_is_a_shorter_log() {
        let all = bytes();
        for n in 32..all.len() {
            let got: Vec<_> = LogReader::new(&all[..n]).unwrap().map(|e| e.unwrap()).collect();
            assert_eq!(got.len(), usize::from(n >= 32 + 32 + 8), "{n}");
        }
        assert_eq!(LogReader::new(&all[..]).unwrap().count(), 2);
        assert!(LogReader::new(&all[..31]).is_err());
    }

    #[test]
    fn damage_is_an_error() {
        let good = bytes();
        for at in 32..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            let end = LogReader::new(&bad[..]).unwrap().map(|e| e.is_ok()).collect::<Vec<_>>();
            assert_ne!(end, [true, true], "flip at {at} went unseen");
        }
        let mut bad = good;
        bad[0] = b'x';
        assert!(LogReader::new(&bad[..]).is_err());
    }

    #[test]
    fn a_flush_covers_what_was_done_before_it_began() {
        let w = Kind::Write { fua: false };
        let ok = Kind::Done { ok: true };
        let mut p = Pending::default();
        p.feed(&entry(0, w, 0));
        p.feed(&entry(1, w, 0));
        p.feed(&entry(2, ok, 1));
        p.feed(&entry(3, Kind::Flush, 0));
        p.feed(&entry(4, w, 0));
        p.feed(&entry(5, ok, 0));
        p.feed(&entry(6, ok, 4));
        assert_eq!((p.durable().len(), p.pending()), (0, &[0, 1, 4][..]));
        p.feed(&entry(7, ok, 3));
        assert_eq!((p.durable(), p.pending()), (&[1][..], &[0, 4][..]));
        p.feed(&entry(8, Kind::Flush, 0));
        p.feed(&entry(9, Kind::Done { ok: false }, 8));
        assert_eq!(p.pending(), &[0, 4], "a failed flush settles nothing");
        p.feed(&entry(10, Kind::Flush, 0));
        p.feed(&entry(11, ok, 10));
        assert_eq!((p.take_durable(), p.pending()), (vec![1, 0, 4], &[][..]));
    }
}
