//! Opening a journal. What still has to be replayed is another type than what accepts handles, so
//! that one cannot be taken for the other.

use super::log_map::LogMap;
use super::log_store::Log;
use super::recovery::{self, Recovered};
use super::state::State;
use super::{Backend, Journal, JournalOptions, threads};
use crate::cache::BufferCache;
use crate::device::{AlignedBuf, BlockDevice};
use crate::error::{Error, Result};
use crate::ondisk::Geometry;
use crate::ondisk::jbd2::{JCompat, JIncompat, JournalSuper};
use crate::types::{Block, Tid};
use std::sync::Arc;

/// A journal as found.
pub enum Opened {
    /// Nothing to replay.
    Clean(CleanJournal),
    /// It holds transactions.
    NeedsRecovery(DirtyJournal),
}

/// The parts every state has.
struct Parts {
    map: LogMap,
    sb: JournalSuper,
    /// Block 0 of the journal.
    block: AlignedBuf,
}

/// A journal whose log is empty.
pub struct CleanJournal(Parts);

/// A journal that must be replayed.
pub struct DirtyJournal(Parts);

/// A journal that has been replayed onto the device, and still says it needs to be: until
/// [`ReplayedJournal::finish`] a crash makes the next mount replay it again.
pub struct ReplayedJournal {
    parts: Parts,
    /// What was replayed.
    pub recovered: Recovered,
}

/// The fast-commit area of a journal.
pub struct FastCommitArea {
    map: LogMap,
    first: u32,
    end: u32,
}

impl FastCommitArea {
    /// Blocks in it.
    pub fn len(&self) -> u32 {
        self.end - self.first
    }

    /// Whether it has no blocks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads block `i` of the area.
    ///
    /// # Errors
    /// `Io`; `Corrupt` past its end.
    pub fn read(&self, i: u32) -> Result<AlignedBuf> {
        let index = self.first.checked_add(i).filter(|&n| n < self.end);
        self.map.read(index.unwrap_or(u32::MAX))
    }
}

/// Reads the journal's superblock and says what is to be done.
///
/// `needs_recovery` is the file system's RECOVER flag: without it the log is not looked at, as in the
/// kernel.
///
/// # Errors
/// `Corrupt` or `Unmountable` if it is no journal that can be used.
pub fn open(map: LogMap, needs_recovery: bool) -> Result<Opened> {
    let block = map.read(0)?;
    let sb = JournalSuper::parse(&block, map.block_size(), u64::from(map.len()))?;
    let dirty = needs_recovery && sb.start() != 0;
    let parts = Parts { map, sb, block };
    Ok(if dirty {
        Opened::NeedsRecovery(DirtyJournal(parts))
    } else {
        Opened::Clean(CleanJournal(parts))
    })
}

impl Parts {
    fn write_super(&mut self) -> Result<()> {
        let bytes = self.sb.encode();
        if let Some(head) = self.block.get_mut(..bytes.len()) {
            head.copy_from_slice(&bytes);
        }
        let (at, _) = self.map.locate(0)?;
        self.map.dev().write_at(&self.block, self.map.block_size().offset(at))?;
        self.map.dev().flush()
    }
}

impl DirtyJournal {
    /// The error that aborted the journal, a positive errno; 0 for none.
    pub fn errno(&self) -> u32 {
        self.0.sb.errno()
    }

    /// The journal's superblock.
    pub fn superblock(&self) -> &JournalSuper {
        &self.0.sb
    }

    /// Writes every committed transaction to `dev`, the file system's device, and flushes. Blocks of
    /// the file system must be read (again) after this.
    ///
    /// # Errors
    /// `Corrupt` if the log contradicts itself or reaches outside the file system: then nothing was
    /// written. `Io`.
    pub fn recover(self, geo: &Geometry, dev: &dyn BlockDevice) -> Result<ReplayedJournal> {
        let recovered = self.recover_into(geo, dev)?;
        dev.flush()?;
        Ok(ReplayedJournal { parts: self.0, recovered })
    }

    /// As [`DirtyJournal::recover`], for a read-only mount: `overlay` keeps the writes in memory, and
    /// the journal stays as it is.
    ///
    /// # Errors
    /// As [`DirtyJournal::recover`].
    pub fn recover_into(&self, geo: &Geometry, overlay: &dyn BlockDevice) -> Result<Recovered> {
        recovery::recover(&self.0.map, &self.0.sb, geo, overlay)
    }

    /// The fast-commit area, if there is one. Its commits belong behind [`Recovered::next`].
    pub fn fast_commit_area(&self) -> Option<FastCommitArea> {
        fc_area(&self.0)
    }
}

impl ReplayedJournal {
    /// The fast-commit area, if there is one: to be replayed before [`ReplayedJournal::finish`]. Its
    /// commits belong behind [`Recovered::next`].
    pub fn fast_commit_area(&self) -> Option<FastCommitArea> {
        fc_area(&self.parts)
    }

    /// The error that aborted the journal, a positive errno; 0 for none.
    pub fn errno(&self) -> u32 {
        self.parts.sb.errno()
    }

    /// Writes these blocks home, all or none: they are what follows the last transaction. First they go
    /// to the log as the next one, so that a crash in between has them replayed. Where the log has no
    /// room for them, they are written home at once.
    ///
    /// # Errors
    /// `Io`.
    pub fn write_home(
        &mut self,
        geo: &Geometry,
        dev: &dyn BlockDevice,
        blocks: Vec<(Block, AlignedBuf)>,
    ) -> Result<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        let blocks: Vec<(Block, Arc<AlignedBuf>)> =
            blocks.into_iter().map(|(b, d)| (b, Arc::new(d))).collect();
        if recovery::append(&self.parts.map, &self.parts.sb, &self.recovered, &blocks)? {
            self.recovered.next = self.recovered.next.next();
            if self.recovered.next.after(self.recovered.highest) {
                self.recovered.highest = self.recovered.next;
            }
        } else {
            log::warn!(
                "the log has no room for the replayed fast commits: they are written at once"
            );
        }
        super::home::write(dev, geo.block_size, &blocks)?;
        dev.flush()
    }

    /// Marks the log as empty. What was replayed must be stable.
    ///
    /// # Errors
    /// `Io`.
    pub fn finish(mut self) -> Result<CleanJournal> {
        // Above everything that the log holds, complete or not, and above a fast commit.
        let next = self.recovered.highest.next();
        self.parts.sb.set_tail(next.next(), 0);
        self.parts.write_super()?;
        Ok(CleanJournal(self.parts))
    }
}

fn fc_area(p: &Parts) -> Option<FastCommitArea> {
    let (first, end) = p.sb.fc_area()?;
    Some(FastCommitArea { map: p.map.clone(), first, end })
}

impl CleanJournal {
    /// The error that aborted the journal, a positive errno; 0 for none. [`CleanJournal::start`]
    /// clears it: the file system is to be marked as having errors before.
    pub fn errno(&self) -> u32 {
        self.0.sb.errno()
    }

    /// The journal's superblock.
    pub fn superblock(&self) -> &JournalSuper {
        &self.0.sb
    }

    /// Opens it for writing: sets the features, marks the file system as needing recovery, and starts
    /// the threads. `cache` must hold nothing read before the replay.
    ///
    /// # Errors
    /// `Io`; `Unmountable` if the journal cannot be used for writing.
    pub fn start(mut self, cache: Arc<BufferCache>, opts: JournalOptions) -> Result<Arc<Journal>> {
        let geo = Arc::clone(cache.geo());
        if self.0.map.block_size() != geo.block_size {
            return Err(Error::Unmountable("the journal has another block size".into()));
        }
        let next = if self.0.sb.start() == 0 {
            self.0.sb.sequence()
        } else {
            // A log that is thrown away: no number of it may come again.
            recovery::highest(&self.0.map, &self.0.sb, &geo).next().next()
        };
        self.0.sb.set_tail(next, 0);
        let (compat, incompat) = features(&self.0.sb, &geo, &opts);
        self.0.sb.set_features(compat, incompat);
        self.0.sb.set_errno(0);
        self.0.write_super()?;

        let log = Log::new(self.0.map, self.0.sb, self.0.block);
        let len = u64::from(log.ring.len());
        let state = State { log_free: len - 1, last: Tid(0), ..State::default() };
        let max_credits = (len / 4).min(MAX_CREDITS);
        let journal =
            Arc::new(Journal::with(cache, opts, Backend::Log(Box::new(log)), max_credits, state));
        journal.write_recover_flag(true)?;
        threads::spawn_commit(&journal)?;
        threads::spawn_checkpoint(&journal)?;
        Ok(journal)
    }
}

/// Most blocks of a transaction, whatever the size of the log: bounds memory and the time a commit takes.
const MAX_CREDITS: u64 = 16384;

/// The features of a journal that is about to be written.
fn features(sb: &JournalSuper, geo: &Geometry, opts: &JournalOptions) -> (JCompat, JIncompat) {
    let mut compat = sb.compat();
    let mut incompat = sb.incompat();
    compat.remove(JCompat::CHECKSUM);
    incompat.remove(JIncompat::CSUM_V2 | JIncompat::CSUM_V3 | JIncompat::ASYNC_COMMIT);
    incompat.insert(JIncompat::REVOKE);
    if geo.metadata_csum {
        incompat.insert(JIncompat::CSUM_V3);
    } else if opts.async_commit {
        compat.insert(JCompat::CHECKSUM);
    }
    incompat.set(JIncompat::ASYNC_COMMIT, opts.async_commit);
    if geo.has_incompat(crate::ondisk::Incompat::BIT64) {
        incompat.insert(JIncompat::BIT64);
    }
    (compat, incompat)
}
