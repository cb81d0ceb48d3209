//! Multiple-mount protection: a block that the mount that writes changes every few seconds, so that
//! another host can see it. The kernel's protocol; e2fsck and tune2fs know it too.

use crate::{
    device::{AlignedBuf, BlockDevice},
    error::{Error, Result},
    inode::Volume,
    ondisk::{
        Geometry, Seal, Sealer, Superblock,
        mmp::{MMP_INTERVAL, MMP_SEQ_CLEAN, MMP_SEQ_MAX, MmpState, RawMmp},
    },
    types::Block,
};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::{
    hash::{BuildHasher, Hasher},
    sync::{Arc, OnceLock, Weak},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Seconds between updates where the superblock does not say.
const DEFAULT_INTERVAL: u16 = 5;

/// The file system is ours; a thread keeps saying so. Dropped, it says that nobody has it.
pub(super) struct Mmp {
    /// To be filled once there is a volume: what stops if somebody else takes the file system.
    pub(super) volume: Arc<OnceLock<Weak<Volume>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Mmp {
    /// Takes the file system, if it has the feature: may wait for some 20 seconds after a crash.
    ///
    /// # Errors
    /// `InUse` if another host or e2fsck has it; `Corrupt` if the block makes no sense; `Io`.
    pub(super) fn take(
        dev: &Arc<dyn BlockDevice>,
        geo: &Geometry,
        sb: &Superblock,
        name: &str,
    ) -> Result<Option<Mmp>> {
        let Some(block) = sb.mmp_block() else { return Ok(None) };
        let mut place = Place::new(dev.clone(), geo, block, name)?;
        let raw = place.read()?;
        let every = match sb.raw().s_mmp_interval.get() {
            0 => DEFAULT_INTERVAL,
            n => n.min(*MMP_INTERVAL.end()),
        };
        let interval = every.max(raw.interval());
        let seq = claim(&mut place, &raw, interval, std::thread::sleep)?;
        let volume = Arc::new(OnceLock::new());
        let (stop, stopped) = bounded(1);
        let for_thread = volume.clone();
        let thread = std::thread::Builder::new()
            .name("uext4-mmp".into())
            .spawn(move || place.keep(seq, every, &stopped, &for_thread))
            .map_err(|e| Error::Io { op: "start of a thread", offset: 0, source: e })?;
        Ok(Some(Mmp { volume, stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for Mmp {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

/// Waits until it is clear that nobody has the file system, and takes it; the sequence number.
fn claim(place: &mut Place, raw: &RawMmp, interval: u16, sleep: impl Fn(Duration)) -> Result<u32> {
    let mut patience = Duration::ZERO;
    match raw.state()? {
        MmpState::Clean => {}
        MmpState::Fsck => return Err(held(raw, "e2fsck is running on it")),
        MmpState::Active(seen) => {
            let seconds = interval.saturating_mul(2).saturating_add(1);
            patience = Duration::from_secs(seconds.min(interval.saturating_add(60)).into());
            log::warn!(
                "mmp: waiting {} s, twice, to see whether another host has it mounted",
                patience.as_secs()
            );
            sleep(patience);
            let now = place.read()?;
            if now.mmp_seq.get() != seen {
                return Err(held(&now, "another host has it mounted"));
            }
        }
    }
    let seq = random_seq();
    place.write(seq, interval)?;
    sleep(patience);
    let now = place.read()?;
    if now.mmp_seq.get() != seq {
        return Err(held(&now, "another host mounted it at the same time"));
    }
    Ok(seq)
}

fn held(raw: &RawMmp, why: &str) -> Error {
    let text = |b: &[u8]| {
        let b = b.split(|c| *c == 0).next().unwrap_or_default();
        String::from_utf8_lossy(b).escape_debug().to_string()
    };
    Error::InUse(format!(
        "in use, says the mmp block: {why} (node {:?}, device {:?}, last update {})",
        text(&raw.mmp_nodename),
        text(&raw.mmp_bdevname),
        raw.mmp_time.get()
    ))
}

/// A sequence number that two hosts will not choose both.
fn random_seq() -> u32 {
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    (random % u64::from(MMP_SEQ_MAX)) as u32 + 1
}

/// The block on the device.
struct Place {
    dev: Arc<dyn BlockDevice>,
    sealer: Sealer,
    block: Block,
    offset: u64,
    buf: AlignedBuf,
    node: Vec<u8>,
    name: Vec<u8>,
}

impl Place {
    fn new(dev: Arc<dyn BlockDevice>, geo: &Geometry, block: Block, name: &str) -> Result<Place> {
        use crate::error::Corrupt;
        if !geo.is_valid_block(block, 1) {
            return Err(Corrupt::new("MMP block out of range").block(block).into());
        }
        let node = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
        Ok(Place {
            dev,
            sealer: Sealer::new(geo),
            block,
            offset: geo.block_size.offset(block),
            buf: AlignedBuf::zeroed(geo.block_size.bytes()),
            node: node.trim_ascii_end().to_vec(),
            name: name.as_bytes().to_vec(),
        })
    }

    /// What the device says, not a cache of this host.
    fn read(&mut self) -> Result<RawMmp> {
        self.dev.uncache(self.offset, self.buf.len() as u64);
        self.dev.read_at(&mut self.buf, self.offset)?;
        self.sealer.verify(&Seal::Mmp, self.block, &self.buf)?;
        RawMmp::parse(&self.buf)
    }

    fn write(&mut self, seq: u32, interval: u16) -> Result<()> {
        use zerocopy::IntoBytes;
        let mut raw = RawMmp::parse(&self.buf)?;
        let now = crate::ondisk::Timestamp::now().sec;
        raw.update(seq, u64::try_from(now).unwrap_or(0), &self.node, &self.name, interval);
        if let Some(head) = self.buf.get_mut(..size_of::<RawMmp>()) {
            head.copy_from_slice(raw.as_bytes());
        }
        self.sealer.seal(&Seal::Mmp, self.block, &mut self.buf)?;
        self.dev.write_fua(&self.buf, self.offset)
    }

    /// The thread: a new number every `every` seconds. One that comes late looks first whether
    /// somebody took the file system for abandoned.
    fn keep(
        mut self,
        mut seq: u32,
        every: u16,
        stopped: &Receiver<()>,
        volume: &OnceLock<Weak<Volume>>,
    ) {
        let mut interval =
            every.saturating_mul(2).clamp(*MMP_INTERVAL.start(), *MMP_INTERVAL.end());
        let mut last = Instant::now();
        let alive = || volume.get().and_then(Weak::upgrade).is_none_or(|v| v.alive().is_ok());
        let pause = Duration::from_secs(every.into());
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
            if !alive() {
                return;
            }
            let late = last.elapsed();
            if late > Duration::from_secs(interval.into()) {
                match self.read() {
                    Ok(now) if now.mmp_seq.get() != seq => {
                        return give_up(volume, &held(&now, "another host took it"));
                    }
                    Ok(_) => {}
                    Err(e) => return give_up(volume, &e),
                }
            }
            // Others are to wait for as long as we take.
            let took = u16::try_from(late.as_secs()).unwrap_or(u16::MAX);
            interval = took.max(every).saturating_mul(2);
            interval = interval.clamp(*MMP_INTERVAL.start(), *MMP_INTERVAL.end());
            last = Instant::now();
            seq = if seq >= MMP_SEQ_MAX { 1 } else { seq + 1 };
            if let Err(e) = self.write(seq, interval) {
                log::error!("mmp: {e}");
            }
        }
        if alive()
            && let Err(e) = self.write(MMP_SEQ_CLEAN, interval)
        {
            log::error!("mmp: {e}");
        }
    }
}

/// Somebody else writes: nothing more of ours may reach the device.
fn give_up(volume: &OnceLock<Weak<Volume>>, e: &Error) {
    log::error!("mmp: {e}; nothing more is written");
    if let Some(vol) = volume.get().and_then(Weak::upgrade) {
        vol.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{inode::testing, ondisk::mmp::MMP_SEQ_FSCK};
    use std::cell::Cell;

    /// The MMP block of a new file system, held with this sequence number.
    fn place(seq: u32) -> (Place, RawMmp) {
        let t = testing::mkfs(16, &["-O", "mmp,metadata_csum"]);
        let mut sb = [0; 1024];
        t.vol.dev.read_at(&mut sb, 1024).unwrap();
        let block = Superblock::parse(&sb).unwrap().mmp_block().unwrap();
        let mut p = Place::new(t.vol.dev.clone(), &t.vol.geo, block, "img").unwrap();
        assert_eq!(p.read().unwrap().state().unwrap(), MmpState::Clean);
        p.node = b"elsewhere".to_vec();
        p.write(seq, 5).unwrap();
        p.node = b"here".to_vec();
        let raw = p.read().unwrap();
        (p, raw)
    }

    /// What another host does while we sleep.
    fn other(p: &Place) -> impl Fn(Duration) + use<> {
        let buf = p.buf.clone();
        let (dev, sealer, block) = (p.dev.clone(), p.sealer, p.block);
        let theirs = Cell::new(Some(Place {
            dev,
            sealer,
            block,
            offset: p.offset,
            buf,
            node: b"elsewhere".to_vec(),
            name: vec![],
        }));
        move |_| {
            if let Some(mut p) = theirs.take() {
                p.write(8, 5).unwrap();
            }
        }
    }

    #[test]
    fn clean_is_taken_at_once() {
        let (mut p, raw) = place(MMP_SEQ_CLEAN);
        let seq = claim(&mut p, &raw, 5, |t| assert_eq!(t, Duration::ZERO)).unwrap();
        let now = p.read().unwrap();
        assert_eq!(now.mmp_seq.get(), seq);
        assert_eq!(now.mmp_nodename[..5], *b"here\0");
        assert!((1..=MMP_SEQ_MAX).contains(&seq));
    }

    #[test]
    fn a_crashed_mount_is_taken_after_waiting_twice() {
        let (mut p, raw) = place(7);
        let waited = Cell::new(0);
        claim(&mut p, &raw, 5, |t| waited.set(waited.get() + t.as_secs())).unwrap();
        assert_eq!(waited.get(), 22);
    }

    #[test]
    fn fsck_and_a_live_mount_are_left_alone() {
        let (mut p, raw) = place(MMP_SEQ_FSCK);
        assert!(matches!(claim(&mut p, &raw, 5, |_| ()), Err(Error::InUse(_))));
        let (mut p, raw) = place(7);
        let update = other(&p);
        let e = claim(&mut p, &raw, 5, update).unwrap_err();
        assert!(e.to_string().contains("elsewhere"), "{e}");
        assert_eq!(p.read().unwrap().mmp_seq.get(), 8, "somebody else's block was written");
    }

    #[test]
    fn two_at_once_do_not_both_get_it() {
        let (mut p, raw) = place(MMP_SEQ_CLEAN);
        let update = other(&p);
        assert!(matches!(claim(&mut p, &raw, 5, update), Err(Error::InUse(_))));
    }

    #[test]
    fn the_end_marks_it_clean() {
        let (p, _) = place(7);
        let mut again =
            Place { buf: p.buf.clone(), node: vec![], name: vec![], dev: p.dev.clone(), ..p };
        let (stop, stopped) = bounded(1);
        drop(stop);
        p.keep(7, 5, &stopped, &OnceLock::new());
        assert_eq!(again.read().unwrap().state().unwrap(), MmpState::Clean);
    }

    #[test]
    fn garbage_is_refused() {
        let (mut p, mut raw) = place(7);
        raw.mmp_seq.set(0);
        assert!(matches!(claim(&mut p, &raw, 5, |_| ()), Err(Error::Corrupt(_))));
        p.dev.write_at(&[0xff; 64], p.offset).unwrap();
        assert!(matches!(p.read(), Err(Error::Corrupt(_))));
    }
}
