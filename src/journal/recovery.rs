//! Recovery: which committed transactions the log holds, and writing them home.
//!
//! One pass over the log finds the committed transactions and keeps, for each block, its newest
//! version and the newest revoke of it; only then is anything written. The log is not trusted: it is
//! followed for at most its own length, and a transaction that reaches outside the file system or
//! into the journal stops the recovery before the first write.

use super::home;
use super::log_map::LogMap;
use super::log_write::{Record, Ring};
use super::superblocks;
use crate::cache::BlockMap;
use crate::device::{AlignedBuf, BlockDevice, cause};
use crate::error::{Corrupt, Result};
use crate::ondisk::Geometry;
use crate::ondisk::jbd2::{
    BlockHeader, BlockKind, JIncompat, JournalSuper, LogFormat, TagFlags, crc32_be, unescape,
};
use crate::types::{Block, Tid};
use std::sync::Arc;

/// What a recovery found and did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Committed transactions in the log.
    pub transactions: u32,
    /// Blocks written home, each once.
    pub blocks: u64,
    /// Blocks whose newest version was revoked.
    pub revoked: u64,
    /// The number that follows the last committed transaction.
    pub next: Tid,
    /// The highest number seen in the log, committed or not.
    pub highest: Tid,
    /// The log block after the last committed transaction.
    head: u32,
    /// Log blocks from the first transaction to there.
    used: u32,
}

/// Most revoked blocks that are kept in memory.
const MAX_REVOKES: usize = 16 << 20;
/// Bytes of home blocks read and written at a time.
const BATCH_BYTES: usize = 4 << 20;

/// The newest version of a block in the log.
#[derive(Clone, Copy)]
struct Version {
    seq: Tid,
    index: u32,
    escaped: bool,
}

/// A tag of the transaction being scanned.
struct Logged {
    block: Block,
    index: u32,
    escaped: bool,
}

struct Scan<'a> {
    log: Reader<'a>,
    ring: Ring,
    format: LogFormat,
    async_commit: bool,
    geo: &'a Geometry,
    newest: BlockMap<Version>,
    revokes: BlockMap<Tid>,
    transactions: u32,
    next: Tid,
    highest: Tid,
    last_commit: u64,
    /// Log blocks followed so far.
    used: u32,
    /// The log block after the last committed transaction, and the log blocks followed to there.
    head: u32,
    committed: u32,
}

/// How one transaction in the log ended.
enum End {
    /// With a good commit block; the log goes on at this block.
    Committed(u32),
    /// It did not: the log ends before it.
    Log,
    /// With a block that is broken, before which the log ends unless something committed follows.
    Broken { after: u32, what: &'static str },
}

/// Scans the log and writes home what it holds. See [`super::open::DirtyJournal`].
pub(super) fn recover(
    map: &LogMap,
    sb: &JournalSuper,
    geo: &Geometry,
    dev: &dyn BlockDevice,
) -> Result<Recovered> {
    let _cause = cause::set("recovery");
    let mut scan = Scan::new(map, sb, geo);
    if sb.start() != 0 {
        scan.run(sb.start())?;
    }
    scan.replay(map, dev)
}

/// Appends a transaction of these blocks to a log that was recovered; durable on return. `false`, and
/// nothing written, if there is no room.
pub(super) fn append(
    map: &LogMap,
    sb: &JournalSuper,
    done: &Recovered,
    blocks: &[(Block, Arc<AlignedBuf>)],
) -> Result<bool> {
    let format = sb.log_format();
    let ring = Ring { first: sb.first(), end: sb.log_end() };
    let seq = done.next;
    let record = Record::build(format, seq, std::iter::empty(), blocks)?;
    let len = record.len() as u64 + 1;
    if u64::from(done.used).saturating_add(len) >= u64::from(ring.len()) {
        return Ok(false);
    }
    let mut commit = AlignedBuf::for_overwrite(format.block_bytes);
    let (sec, nsec) = superblocks::now();
    format.write_commit(&mut commit, seq, sec, nsec, record.v1_sum);
    record.write(map, ring, done.head)?;
    map.dev().flush()?;
    let (at, _) = map.locate(ring.advance(done.head, record.len() as u32))?;
    map.dev().write_fua(&commit, map.block_size().offset(at))?;
    Ok(true)
}

/// The highest transaction number in the log, without replaying it.
pub(super) fn highest(map: &LogMap, sb: &JournalSuper, geo: &Geometry) -> Tid {
    let mut scan = Scan::new(map, sb, geo);
    if sb.start() != 0 {
        // What is broken in a log that is thrown away does not matter.
        let _ = scan.run(sb.start());
    }
    scan.highest
}

impl<'a> Scan<'a> {
    fn new(map: &'a LogMap, sb: &JournalSuper, geo: &'a Geometry) -> Scan<'a> {
        let seq = sb.sequence();
        Scan {
            log: Reader::new(map),
            ring: Ring { first: sb.first(), end: sb.log_end() },
            format: sb.log_format(),
            async_commit: sb.incompat().contains(JIncompat::ASYNC_COMMIT),
            geo,
            newest: BlockMap::default(),
            revokes: BlockMap::default(),
            transactions: 0,
            next: seq,
            highest: seq,
            last_commit: 0,
            used: 0,
            head: sb.start(),
            committed: 0,
        }
    }

    fn run(&mut self, start: u32) -> Result<()> {
        let mut at = start;
        loop {
            match self.transaction(at)? {
                End::Committed(after) => {
                    self.transactions += 1;
                    self.next = self.next.next();
                    self.head = after;
                    self.committed = self.used;
                    at = after;
                }
                End::Log => return Ok(()),
                End::Broken { after, what } => {
                    if self.commit_follows(after)? {
                        return Err(Corrupt::checksum(what).value(u64::from(self.next.0)).into());
                    }
                    return Ok(());
                }
            }
        }
    }

    /// The block after `at`; `None` when the whole log has been followed.
    fn step(&mut self, at: u32) -> Option<u32> {
        self.used += 1;
        (self.used <= self.ring.len()).then(|| self.ring.advance(at, 1))
    }

    /// Follows transaction `self.next` from block `at`.
    fn transaction(&mut self, mut at: u32) -> Result<End> {
        let seq = self.next;
        let mut logged: Vec<Logged> = Vec::new();
        let mut revoked: Vec<Block> = Vec::new();
        let mut v1_sum = !0;
        let mut mismatch = None;
        loop {
            let block = self.log.read(at)?;
            let Some(h) = BlockHeader::parse(&block).filter(|h| h.tid == seq) else {
                return Ok(End::Log);
            };
            if seq.after(self.highest) {
                self.highest = seq;
            }
            let Some(after) = self.step(at) else { return Ok(End::Log) };
            match h.kind {
                BlockKind::Superblock => return Ok(End::Log),
                BlockKind::Revoke => {
                    let Ok(blocks) = self.format.revokes(&block) else {
                        return Ok(End::Broken { after, what: "journal revoke block" });
                    };
                    revoked.extend(blocks.filter(|&b| self.geo.is_valid_block(b, 1)));
                    at = after;
                }
                BlockKind::Descriptor => {
                    let Ok(tags) = self.format.tags(&block) else {
                        return Ok(End::Broken { after, what: "journal descriptor block" });
                    };
                    if self.format.csum_v1 {
                        v1_sum = crc32_be(v1_sum, &block);
                    }
                    at = after;
                    for tag in tags {
                        let data = self.log.read(at)?;
                        if self.format.csum_v1 {
                            v1_sum = crc32_be(v1_sum, &data);
                        }
                        if !self.format.verify_tag(seq, &tag, &data) {
                            mismatch = mismatch.or(Some(tag.block));
                        }
                        logged.push(Logged {
                            block: tag.block,
                            index: at,
                            escaped: tag.flags.contains(TagFlags::ESCAPE),
                        });
                        let Some(after) = self.step(at) else { return Ok(End::Log) };
                        at = after;
                    }
                }
                BlockKind::Commit => {
                    let Ok(commit) = self.format.commit(&block) else {
                        return Ok(End::Broken { after, what: "journal commit block" });
                    };
                    if self.format.csum_v1 {
                        let (kind, size, sum) = commit.v1_checksum;
                        let unused = (kind, size, sum) == (0, 0, 0);
                        if !unused && ((kind, size) != (1, 4) || sum != v1_sum) {
                            mismatch = mismatch.or(Some(Block(0)));
                        }
                    }
                    if let Some(b) = mismatch {
                        let what = "block in the journal";
                        // Only an asynchronous commit may be there without its blocks.
                        if self.async_commit {
                            return Ok(End::Broken { after, what });
                        }
                        return Err(Corrupt::checksum(what).block(b).into());
                    }
                    self.last_commit = self.last_commit.max(commit.sec);
                    self.accept(seq, logged, revoked)?;
                    return Ok(End::Committed(after));
                }
            }
        }
    }

    /// A transaction is committed: its blocks and revokes count.
    fn accept(&mut self, seq: Tid, logged: Vec<Logged>, revoked: Vec<Block>) -> Result<()> {
        for l in logged {
            if !self.geo.is_valid_block(l.block, 1) {
                return Err(Corrupt::new("the journal names a block outside the file system")
                    .block(l.block)
                    .into());
            }
            if self.log.map.holds(l.block) {
                return Err(Corrupt::new("the journal names a block of its own")
                    .block(l.block)
                    .into());
            }
            let v = Version { seq, index: l.index, escaped: l.escaped };
            self.newest.insert(l.block.0, v);
        }
        for b in revoked {
            self.revokes.insert(b.0, seq);
        }
        if self.revokes.len() > MAX_REVOKES {
            return Err(Corrupt::new("too many revoked blocks in the journal").into());
        }
        Ok(())
    }

    /// Whether a good commit of this or a later transaction lies behind a broken block: then it was
    /// not the end of the log that was torn, but the log that is damaged. An asynchronous commit may be
    /// there without what it commits: only a later one counts.
    fn commit_follows(&mut self, mut at: u32) -> Result<bool> {
        let oldest = if self.async_commit { self.next.next() } else { self.next };
        loop {
            let block = self.log.read(at)?;
            if let Some(h) = BlockHeader::parse(&block)
                && h.kind == BlockKind::Commit
                && !oldest.after(h.tid)
                && self.format.csum()
                && self.format.commit(&block).is_ok_and(|c| c.sec >= self.last_commit)
            {
                return Ok(true);
            }
            match self.step(at) {
                Some(after) => at = after,
                None => return Ok(false),
            }
        }
    }

    /// Writes the newest version of every block that is not revoked.
    fn replay(mut self, map: &LogMap, dev: &dyn BlockDevice) -> Result<Recovered> {
        let bs = map.block_size();
        let found = self.newest.len() as u64;
        let revokes = std::mem::take(&mut self.revokes);
        let mut work: Vec<(u32, u64, bool)> = std::mem::take(&mut self.newest)
            .into_iter()
            .filter(|(b, v)| revokes.get(b).is_none_or(|&r| v.seq.after(r)))
            .map(|(b, v)| (v.index, b, v.escaped))
            .collect();
        work.sort_unstable();
        let per_batch = (BATCH_BYTES / bs.bytes()).max(1);
        for batch in work.chunks(per_batch) {
            let mut blocks = Vec::with_capacity(batch.len());
            for &(index, block, escaped) in batch {
                let mut data = self.log.read_owned(index)?;
                if escaped {
                    unescape(&mut data);
                }
                blocks.push((Block(block), Arc::new(data)));
            }
            blocks.sort_unstable_by_key(|&(b, _)| b);
            home::write(dev, bs, &blocks)?;
        }
        Ok(Recovered {
            transactions: self.transactions,
            blocks: work.len() as u64,
            revoked: found - work.len() as u64,
            next: self.next,
            highest: self.highest,
            head: self.head,
            used: self.committed,
        })
    }
}

/// Reads blocks of the log, ahead, since it is followed in order.
struct Reader<'a> {
    map: &'a LogMap,
    window: AlignedBuf,
    /// The blocks in the window.
    start: u32,
    len: u32,
}

const WINDOW_BYTES: usize = 256 << 10;

impl<'a> Reader<'a> {
    fn new(map: &'a LogMap) -> Reader<'a> {
        let window = AlignedBuf::for_overwrite(WINDOW_BYTES.max(map.block_size().bytes()));
        Reader { map, window, start: 0, len: 0 }
    }

    fn slice(&mut self, index: u32) -> Result<&[u8]> {
        let bs = self.map.block_size().bytes();
        let hit = index.checked_sub(self.start).is_some_and(|i| i < self.len);
        if !hit {
            self.len = 0;
            let (at, contiguous) = self.map.locate(index)?;
            let n = (self.window.len() / bs).min(contiguous as usize);
            let off = self.map.block_size().offset(at);
            self.map.dev().read_at(&mut self.window[..n * bs], off)?;
            self.start = index;
            self.len = n as u32;
        }
        let at = (index - self.start) as usize * bs;
        Ok(&self.window[at..at + bs])
    }

    /// A copy of one block.
    fn read_owned(&mut self, index: u32) -> Result<AlignedBuf> {
        Ok(AlignedBuf::copy_of(self.slice(index)?))
    }

    fn read(&mut self, index: u32) -> Result<AlignedBuf> {
        self.read_owned(index)
    }
}
