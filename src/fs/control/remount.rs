//! Options of a live mount: what they are, and changing them.

use super::super::Fs;
use crate::{
    error::Error,
    options::{ControlError, MountOptions},
};

impl Fs {
    /// The options in force, with what was turned since the mount.
    pub(super) fn options_now(&self) -> MountOptions {
        let mut o = (*self.vol.conf).clone();
        let t = self.vol.alloc.tunables();
        o.writeback_policy = self.wb.policy();
        o.nr_to_write = self.wb.nr_to_write();
        o.max_writeback_mb_bump = self.wb.max_mb_bump();
        o.dirty_bytes = self.wb.limit();
        o.dirty_background_bytes = self.wb.background();
        o.dirty_expire = self.wb.expire();
        o.dirty_writeback = self.wb.period();
        o.mb_group_prealloc = t.mb_group_prealloc();
        o.mb_max_request = t.mb_max_request();
        o.mb_max_to_scan = t.mb_max_to_scan();
        o.mb_min_to_scan = t.mb_min_to_scan();
        o.mb_order2_req = t.mb_order2_req();
        o.mb_stream_req = t.mb_stream_req();
        o.mb_stats = t.mb_stats();
        o.stripe = Some(t.stripe());
        o.dioread = self.vol.dio.default_mode().into();
        o.watchdog = self.watchdog.limit();
        o
    }

    /// `mount -o remount,OPTIONS`: all or nothing.
    pub(super) fn change_options(&self, changes: &str) -> Result<Vec<String>, ControlError> {
        let old = self.options_now();
        let mut new = old.remounted(changes).map_err(|e| ControlError::refused(e.to_string()))?;
        if old.read_only && !new.read_only {
            let why = "mounted read-only, with the image open for reading only: \
                       unmount it and mount it again to write";
            return Err(ControlError::refused(why));
        }
        if new.read_only {
            // The kernel lets no further writer in; what there is goes to the device. Inside, the mount
            // stays writable: unmount marks it clean.
            Fs::sync(self)?;
            new.read_only = old.read_only;
        }
        if new.dioread != old.dioread {
            self.set_mount_dioread_mode(new.dioread.into())?;
        }
        self.watchdog.set_limit(new.watchdog);
        self.vol.journal.set_options(&super::super::mount::journal_options(&new));
        self.wb.set_policy(new.writeback_policy);
        self.wb.set_nr_to_write(new.nr_to_write);
        self.wb.set_max_mb_bump(new.max_writeback_mb_bump);
        self.wb.set_limit(new.dirty_bytes);
        self.wb.set_background(new.dirty_background_bytes);
        self.wb.set_expire(new.dirty_expire);
        self.wb.set_period(new.dirty_writeback);
        let t = self.vol.alloc.tunables();
        t.set_mb_group_prealloc(new.mb_group_prealloc);
        t.set_mb_max_request(new.mb_max_request);
        t.set_mb_max_to_scan(new.mb_max_to_scan);
        t.set_mb_min_to_scan(new.mb_min_to_scan);
        t.set_mb_order2_req(new.mb_order2_req);
        t.set_mb_stream_req(new.mb_stream_req);
        t.set_mb_stats(new.mb_stats);
        t.set_stripe(new.stripe.unwrap_or(0));
        t.set_discard(new.discard);
        t.set_minixdf(new.minixdf);
        self.vol.cache.set_capacity(usize::try_from(new.cache_bytes).unwrap_or(usize::MAX));
        if std::mem::take(&mut new.abort) {
            log::error!("aborted at a remount");
            self.vol.journal.abort(&Error::Shutdown);
        }
        let warnings = new.warnings().to_vec();
        self.vol.conf.replace(new);
        Ok(warnings)
    }
}
