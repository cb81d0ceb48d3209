//! Mounting and unmounting.

use super::{Fs, fast_commit, mmp::Mmp, reap::Reaper, recover, superblocks};
use crate::{
    alloc::{Allocator, Run, TunableValues, Tunables},
    cache::{BufferCache, HashIndex, SuperBuf},
    device::{BlockDevice, Counted, Overlay},
    error::{Error, Result},
    inode::{InodeTable, Volume, mode, orphan::Orphans},
    journal::{self, CleanJournal, Journal, JournalOptions, LogExtent, LogMap, Opened},
    map::{FileMap, Look, State},
    ondisk::{
        Compat, Geometry, InodeRecord, RoCompat, Seal, Sealer, Superblock, Timestamp, superblock,
    },
    options::{DataErr, MountOptions, SuperDefaults},
    types::{Ino, LBlock},
    writeback::Writeback,
};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

/// Bytes of dirty metadata that a read-only mount of a dirty journal may hold in memory.
const OVERLAY_LIMIT: u64 = 256 << 20;
/// Unused inodes kept in memory.
const INODE_CACHE: usize = 32 << 10;

impl Fs {
    /// Mounts the file system on `dev`: replays the journal, finishes orphans, starts the threads.
    ///
    /// # Errors
    /// `Unmountable` with the reason for a person; `Corrupt`; `Io`.
    pub fn mount(dev: Arc<dyn BlockDevice>, opts: &MountOptions) -> Result<Arc<Fs>> {
        let (sb, from_backup) = superblocks::read(&*dev, opts)?;
        let read_only = opts.read_only || dev.read_only();
        let mut opts = opts.with_superblock(&defaults(&sb)).map_err(|e| unmountable(e.0))?;
        opts.read_only = read_only;
        check_features(&sb, &mut opts)?;
        let geo = Arc::new(Geometry::new(&sb, Some(dev.size()))?);
        opts.check_journal(geo.has_compat(Compat::HAS_JOURNAL)).map_err(|e| unmountable(e.0))?;
        let mmp = match opts.read_only {
            true => None,
            false => Mmp::take(&dev, &geo, &sb, opts.fsname.as_deref().unwrap_or("uext4"))?,
        };
        // A backup does not know whether the journal is to be replayed: the journal itself does.
        let dirty = sb.needs_recovery() || from_backup;
        let log = if geo.has_compat(Compat::HAS_JOURNAL) {
            log_runs(&dev, &geo, &sb)?
        } else {
            Vec::new()
        };
        let (dev, journal) = open_journal(dev, &geo, dirty, &opts, &log)?;
        // After a replay everything is read again.
        let (dev, sb) = superblocks::settle(dev, &opts)?;
        let counted = Counted::new(dev);
        let io = counted.stats();
        let dev: Arc<dyn BlockDevice> = Arc::new(counted);
        let geo = Arc::new(Geometry::new(&sb, Some(dev.size()))?);
        let cache = new_cache(&dev, &geo, opts.cache_bytes as usize);
        let journal_errno = journal.as_ref().map_or(0, CleanJournal::errno);
        let had_log = journal.is_some();
        let jopts = journal_options(&opts);
        let journal = match journal {
            Some(j) if !opts.read_only => j.start(cache.clone(), jopts)?,
            _ => Journal::none(cache.clone(), jopts),
        };
        let vol = new_volume(geo, cache, journal, &sb, opts, &log)?;
        let weak = Arc::downgrade(&vol);
        if let Some(m) = &mmp {
            let _ = m.volume.set(weak.clone());
        }
        vol.alloc.set_error_sink(Box::new(move |e| match (weak.upgrade(), e) {
            (Some(vol), Error::Corrupt(c)) => vol.report("mballoc", c),
            _ => log::error!("mballoc: {e}"),
        }));
        let wb = Arc::new(Writeback::new(&vol));
        let thread = |e| Error::Io { op: "start of a thread", offset: 0, source: e };
        let reaper = Reaper::start(vol.clone(), wb.clone()).map_err(thread)?;
        let requests = super::Requests::new();
        let watchdog = super::watchdog::Watchdog::start(&vol, &requests).map_err(thread)?;
        let fs = Arc::new(Fs {
            vol,
            wb,
            rename_lock: Mutex::new(()),
            reaper,
            io,
            kbytes_before: sb.kbytes_written(),
            tracing: Mutex::new(None),
            mmp: Mutex::new(mmp),
            pace: crate::dio::Pace::default(),
            submitted: crate::inode::IoGate::default(),
            watchdog,
            requests,
        });
        let ready = fs.get_ready(&sb, journal_errno, had_log);
        if let Err(e) = ready {
            fs.stop_threads();
            let _ = fs.vol.journal.close();
            return Err(e);
        }
        fs.wb.start(&fs.vol).map_err(thread)?;
        Ok(fs)
    }

    /// Checks the root, notes the mount in the superblock, finishes the orphans of the last one.
    fn get_ready(&self, sb: &Superblock, journal_errno: u32, had_log: bool) -> Result<()> {
        let vol = &self.vol;
        let root = vol.inodes.get(vol, Ino::ROOT)?;
        if root.file_type() != mode::DIR || root.nlink() == 0 {
            return Err(unmountable("the root inode is not a directory"));
        }
        if vol.conf.read_only {
            return Ok(());
        }
        if sb.state() != superblock::State::VALID {
            log::warn!(
                "mounting a file system that was not cleanly unmounted or has errors; e2fsck is recommended"
            );
        }
        let mut h = vol.journal.start("mount", 4)?;
        vol.change_super(&mut h, |s| {
            let now = vol.now().sec as u64;
            s.set_mtime(now);
            s.set_wtime(now);
            s.set_mnt_count(s.raw().s_mnt_count.get().saturating_add(1));
            let mut state = s.state();
            if !had_log {
                state -= superblock::State::VALID;
            }
            if journal_errno != 0 {
                state |= superblock::State::ERROR;
            }
            s.set_state(state);
            if s.features().compat.contains(Compat::ORPHAN_FILE) {
                s.set_ro_compat(RoCompat::ORPHAN_PRESENT, true);
            }
        })?;
        h.stop()?;
        recover::orphans(self, sb)?;
        vol.journal.commit_all()
    }

    /// Writes everything out, finishes what was unlinked, empties the journal and marks the file
    /// system clean. What the kernel still had open counts as closed.
    ///
    /// # Errors
    /// The first that happened; the threads have ended all the same.
    pub fn unmount(&self) -> Result<()> {
        let vol = &self.vol;
        drop(self.submitted.close());
        let mut r = self.end_orphans();
        if vol.alive().is_ok() {
            r = r.and(self.sync());
        }
        vol.flush_noted();
        vol.alloc.discard_all_preallocs();
        if vol.writable().is_ok() {
            r = r.and(self.mark_clean());
        }
        self.stop_threads();
        let closed = vol.journal.close();
        drop(self.mmp.lock().take());
        if vol.conf.read_only { Ok(()) } else { r.and(closed) }
    }

    fn mark_clean(&self) -> Result<()> {
        let vol = &self.vol;
        let mut h = vol.journal.start("unmount", 4)?;
        vol.alloc.store_totals(&mut h, &vol.sb)?;
        let orphans = !vol.orphans.is_empty();
        vol.change_super(&mut h, |s| {
            s.set_wtime(vol.now().sec as u64);
            s.set_kbytes_written(self.lifetime_write_kbytes());
            if !s.state().contains(superblock::State::ERROR) {
                s.set_state(s.state() | superblock::State::VALID);
            }
            if s.features().compat.contains(Compat::ORPHAN_FILE) && !orphans {
                s.set_ro_compat(RoCompat::ORPHAN_PRESENT, false);
            }
        })?;
        h.stop()?;
        vol.journal.commit_all()
    }

    fn stop_threads(&self) {
        self.wb.shutdown();
        self.reaper.stop();
        self.watchdog.stop();
    }
}

impl Volume {
    /// FS_IOC_SHUTDOWN: nothing more reaches the device.
    pub fn shut_down(&self) {
        self.shut_down.store(true, Ordering::Release);
        self.journal.set_emergency_stop();
    }
}

/// The rooms below `inode`, tied together.
pub(super) fn new_volume(
    geo: Arc<Geometry>,
    cache: Arc<BufferCache>,
    journal: Arc<Journal>,
    sb: &Superblock,
    opts: MountOptions,
    log: &[LogExtent],
) -> Result<Arc<Volume>> {
    let alloc = Allocator::open(geo.clone(), cache.clone(), &journal, sb, tunables(&opts))?;
    let runs: Vec<Run> = log.iter().map(|e| Run { start: e.start, len: e.len }).collect();
    alloc.protect(&runs)?;
    Ok(Arc::new(Volume {
        sb: SuperBuf::load(&cache)?,
        geo,
        dev: cache.dev().clone(),
        cache,
        journal,
        alloc,
        dio: crate::inode::lock_mode::DioState::new(opts.dioread.into()),
        conf: opts.into(),
        inodes: InodeTable::new(INODE_CACHE),
        orphans: Orphans::default(),
        frozen: AtomicBool::new(false),
        shut_down: AtomicBool::new(false),
        noted: Mutex::new(None),
        xattr_blocks: HashIndex::default(),
        ea_inodes: HashIndex::default(),
        generation: AtomicU32::new(Timestamp::now().nsec ^ std::process::id()),
    }))
}

pub(super) fn journal_options(o: &MountOptions) -> JournalOptions {
    JournalOptions {
        commit_interval: o.commit,
        barrier: o.barrier,
        async_commit: o.journal_async_commit,
        data_err_abort: o.data_err == DataErr::Abort,
        min_batch: o.min_batch_time,
        max_batch: o.max_batch_time,
    }
}

fn tunables(o: &MountOptions) -> Tunables {
    Tunables::new(&TunableValues {
        mb_order2_req: o.mb_order2_req,
        mb_min_to_scan: o.mb_min_to_scan,
        mb_max_to_scan: o.mb_max_to_scan,
        mb_stream_req: o.mb_stream_req,
        mb_group_prealloc: o.mb_group_prealloc,
        mb_max_request: o.mb_max_request,
        mb_stats: o.mb_stats,
        stripe: o.stripe.unwrap_or(0),
        discard: o.discard,
        minixdf: o.minixdf,
        ..TunableValues::default()
    })
}

fn unmountable(why: impl Into<String>) -> Error {
    Error::Unmountable(why.into())
}

pub(super) fn new_cache(
    dev: &Arc<dyn BlockDevice>,
    geo: &Arc<Geometry>,
    bytes: usize,
) -> Arc<BufferCache> {
    let sealer = Arc::new(Sealer::new(geo));
    Arc::new(BufferCache::new(dev.clone(), geo.clone(), sealer, bytes))
}

fn defaults(sb: &Superblock) -> SuperDefaults {
    let r = sb.raw();
    let (uid, gid) = sb.reserved_ids();
    SuperDefaults {
        default_mount_opts: r.s_default_mount_opts.get(),
        errors: r.s_errors.get(),
        mount_opts: String::from_utf8_lossy(
            r.s_mount_opts.split(|b| *b == 0).next().unwrap_or_default(),
        )
        .into_owned(),
        reserved_for: (uid as u16, gid as u16),
        stripe: r.s_raid_stripe_width.get(),
    }
}

/// Refuses what we cannot mount; falls back to read-only where the kernel would ask for it.
fn check_features(sb: &Superblock, opts: &mut MountOptions) -> Result<()> {
    let found = sb.features().check();
    if !found.refuse.is_empty() {
        let names = found.refuse.join(", ");
        return Err(unmountable(format!("unsupported feature(s): {names}")));
    }
    if sb.external_journal() {
        return Err(unmountable("unsupported feature: external journal (journal_dev)"));
    }
    if !found.read_only.is_empty() && !opts.read_only {
        opts.read_only = true;
    }
    Ok(())
}

/// Opens the internal journal, replaying it first if it must be: if `dirty`, and its log is not empty.
/// Returns the device to mount: with an overlay in front for a read-only mount of a dirty journal.
fn open_journal(
    dev: Arc<dyn BlockDevice>,
    geo: &Arc<Geometry>,
    dirty: bool,
    opts: &MountOptions,
    log: &[LogExtent],
) -> Result<(Arc<dyn BlockDevice>, Option<CleanJournal>)> {
    if !geo.has_compat(Compat::HAS_JOURNAL) {
        return Ok((dev, None));
    }
    if opts.noload {
        if !opts.read_only {
            return Err(unmountable("noload: only with ro, for the journal is needed to write"));
        }
        return Ok((dev, None));
    }
    if opts.read_only && !dirty {
        return Ok((dev, None));
    }
    let map = LogMap::new(dev.clone(), geo.block_size, log.to_vec())?;
    match journal::open(map, dirty)? {
        Opened::Clean(j) => Ok((dev, Some(j))),
        Opened::NeedsRecovery(j) if opts.read_only => {
            let over: Arc<dyn BlockDevice> = Arc::new(Overlay::new(dev, OVERLAY_LIMIT));
            let done = j.recover_into(geo, &*over)?;
            log::info!(
                "journal replayed in memory: {} transactions, {} blocks",
                done.transactions,
                done.blocks
            );
            let changed = fast_commit::replay(&over, opts, log, j.fast_commit_area(), done.next)?;
            for (block, data) in changed {
                over.write_at(&data, geo.block_size.offset(block))?;
            }
            Ok((over, None))
        }
        Opened::NeedsRecovery(j) => {
            let mut j = j.recover(geo, &*dev)?;
            log::info!(
                "journal replayed: {} transactions, {} blocks",
                j.recovered.transactions,
                j.recovered.blocks
            );
            let area = j.fast_commit_area();
            let changed = fast_commit::replay(&dev, opts, log, area, j.recovered.next)?;
            j.write_home(geo, &*dev, changed)?;
            Ok((dev, Some(j.finish()?)))
        }
    }
}

/// Where the journal's blocks lie. Read with a cache of its own: the replay changes what is cached.
fn log_runs(
    dev: &Arc<dyn BlockDevice>,
    geo: &Arc<Geometry>,
    sb: &Superblock,
) -> Result<Vec<LogExtent>> {
    let ino =
        sb.journal_inum().ok_or_else(|| unmountable("has_journal without a journal inode"))?;
    let cache = new_cache(dev, geo, 1 << 20);
    let rec = read_inode(&cache, geo, ino)?;
    if rec.mode & mode::FMT != mode::REG || rec.links_count == 0 {
        return Err(unmountable("the journal inode is not a regular file"));
    }
    let blocks = geo.block_size.index(rec.size);
    let mut extents = Vec::new();
    let map = FileMap::from_inode(geo, ino, &rec)?;
    map.for_each(&Look { geo, cache: &cache, guard: None }, LBlock(0), blocks, &mut |m| {
        if m.state == State::Written {
            extents.push(LogExtent { log: m.lblk.0, len: m.len, start: m.pblk });
        }
        true
    })?;
    Ok(extents)
}

/// Reads an inode before there is a volume.
pub(super) fn read_inode(cache: &BufferCache, geo: &Geometry, ino: Ino) -> Result<InodeRecord> {
    use crate::{error::Corrupt, ondisk::GroupDesc};
    let bad = || Error::from(Corrupt::new("inode number out of range").ino(ino));
    let (group, index) = geo.ino_location(ino).ok_or_else(bad)?;
    let (block, off) = geo.desc_location(group);
    let desc = cache.read(block, &Seal::GroupDesc { group, offset: off as u32 })?;
    let desc = desc.read(|b| GroupDesc::parse(geo, group, b.get(off..).unwrap_or_default()))?;
    let (nth, off) = geo.itable_slot(index);
    let block = desc.inode_table.plus(u64::from(nth));
    let seal = Seal::Inode { ino, offset: off as u32 };
    let buf = cache.read(block, &seal)?;
    buf.read(|b| {
        let slot = b.get(off..off + usize::from(geo.inode_size)).ok_or_else(bad)?;
        InodeRecord::parse(geo, ino, slot)
    })
}
