//! What the journal writes outside transactions: the RECOVER flag of the file system, and the error
//! records of both superblocks.

use super::{Backend, Journal};
use crate::cache::SuperBuf;
use crate::device::{
    AlignedBuf, BlockDevice,
    seeded::{self, Fault},
};
use crate::error::{Corrupt, Error, Result};
use crate::ondisk::superblock::{ErrorRecord, errcode};
use crate::ondisk::{Incompat, SUPERBLOCK_SIZE, Superblock};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds and nanoseconds since the epoch.
pub(super) fn now() -> (u64, u32) {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or((0, 0), |d| (d.as_secs(), d.subsec_nanos()))
}

impl Journal {
    /// Sets or clears RECOVER in memory and on the device, stable on return. Only while no transaction
    /// runs and all of them are at home: what is in memory is what belongs on the device.
    pub(super) fn write_recover_flag(&self, on: bool) -> Result<()> {
        if seeded::on(Fault::NoRecoverFlag) {
            return Ok(());
        }
        let sb = SuperBuf::load(self.cache())?;
        sb.buf
            .change(|block| edit(sb.slice_mut(block), |s| s.set_incompat(Incompat::RECOVER, on)))?;
        let off = self.cache().geo().block_size.offset(sb.buf.block());
        self.write_stable(&**self.cache().dev(), &sb.buf.data(), off)
    }

    fn write_stable(&self, dev: &dyn BlockDevice, block: &[u8], off: u64) -> Result<()> {
        if self.live.barrier() { dev.write_fua(block, off) } else { dev.write_at(block, off) }
    }

    /// Records an abort in the journal's superblock and in the last committed version of the file
    /// system's. Best effort: the device may be what failed.
    pub(super) fn record_abort(&self, err: &Error) {
        let errno = err.errno();
        let recorded = match &self.backend {
            Backend::Home => self.record_fs_error(err),
            Backend::Log(log) => log
                .change_super(self.live.barrier(), |sb| {
                    if sb.errno() == 0 {
                        sb.set_errno(errno.unsigned_abs());
                    }
                })
                .and_then(|()| {
                    // Nothing of the superblock is on its way home meanwhile.
                    let _one = log.checkpointer.lock();
                    self.record_fs_error(err)
                }),
        };
        if let Err(e) = recorded {
            log::error!("the abort could not be recorded: {e}");
        }
    }

    fn record_fs_error(&self, err: &Error) -> Result<()> {
        let geo = self.cache().geo();
        let block = geo.superblock_block();
        let off = geo.block_size.offset(block);
        let committed = match &self.backend {
            Backend::Log(log) => log.checkpoint.lock().version(block),
            Backend::Home => None,
        };
        let mut data = match committed {
            Some(d) => AlignedBuf::copy_of(&d),
            None => {
                let mut b = AlignedBuf::for_overwrite(geo.block_size.bytes());
                self.cache().dev().read_at(&mut b, off)?;
                b
            }
        };
        let at = geo.block_size.within(SUPERBLOCK_SIZE as u64);
        let record = ErrorRecord {
            time: now().0,
            block: match err {
                Error::Corrupt(Corrupt { block: Some(b), .. }) => b.0,
                _ => 0,
            },
            ino: match err {
                Error::Corrupt(Corrupt { ino: Some(i), .. }) => i.0,
                _ => 0,
            },
            line: 0,
            func: "journal_abort".into(),
            errcode: errcode(err.errno()),
        };
        let Some(slot) = data.get_mut(at..at + SUPERBLOCK_SIZE) else { return Ok(()) };
        edit(slot, |s| s.record_error(&record))?;
        self.write_stable(&**self.cache().dev(), &data, off)
    }
}

/// Changes a superblock in place, checksum included.
fn edit(slot: &mut [u8], f: impl FnOnce(&mut Superblock)) -> Result<()> {
    let bytes = slot.first_chunk::<SUPERBLOCK_SIZE>();
    let mut sb = Superblock::parse(bytes.ok_or_else(|| Corrupt::new("superblock size"))?)?;
    f(&mut sb);
    slot.copy_from_slice(&sb.encode());
    Ok(())
}
