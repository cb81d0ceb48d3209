//! What can be seen and turned on a live mount: the control directory and the control
//! socket ask here. Names are ext4's where ext4 has them.

use super::Fs;
use crate::{
    options::{Control, ControlError, ControlName, MountOptions, Scope, Shutdown, TraceStream},
    types::Ino,
};
use std::sync::atomic::Ordering;

type Get = fn(&Fs) -> String;
type Set = fn(&Fs, u64);

/// One name.
struct Knob {
    name: &'static str,
    get: Get,
    set: Option<Set>,
}

/// Every name of the mount.
const KNOBS: &[Knob] = &[
    Knob { name: "options", get: |fs| fs.options_text(), set: None },
    Knob {
        name: "delayed_allocation_blocks",
        get: |fs| fs.vol.alloc.statfs().dirty.to_string(),
        set: None,
    },
    Knob {
        name: "dirty_bytes",
        get: |fs| fs.wb.limit().to_string(),
        set: Some(|fs, v| fs.wb.set_limit(v)),
    },
    Knob {
        name: "dirty_background_bytes",
        get: |fs| fs.wb.background().to_string(),
        set: Some(|fs, v| fs.wb.set_background(v)),
    },
    Knob { name: "dirty_now", get: |fs| fs.wb.dirty_bytes().to_string(), set: None },
    Knob { name: "stats", get: |fs| fs.stats_text(), set: None },
    Knob { name: "locks", get: |fs| fs.locks_text(), set: None },
];

impl Fs {
    fn options_text(&self) -> String {
        self.vol.conf.lines().trim_end().to_owned()
    }

    fn stats_text(&self) -> String {
        let s = &self.wb.stats;
        let n = |a: &std::sync::atomic::AtomicU64| a.load(Ordering::Relaxed);
        format!(
            "writeback_runs {}\nwriteback_pages {}\nwriteback_requests {}\nwriteback_bytes {}\nwriteback_errors {}",
            n(&s.runs),
            n(&s.pages),
            n(&s.requests),
            n(&s.bytes),
            n(&s.errors)
        )
    }

    /// The I/O locks that are held or waited for, one a line.
    fn locks_text(&self) -> String {
        let mut out = String::new();
        for i in self.vol.inodes.all() {
            for l in i.io.list() {
                out += &format!(
                    "inode {} {} {:?} {} {:.3} s\n",
                    i.ino,
                    if l.held { "held" } else { "waiting" },
                    l.share,
                    l.op,
                    l.age.as_secs_f64()
                );
            }
        }
        out.truncate(out.trim_end().len());
        out
    }
}

impl Control for Fs {
    fn names(&self) -> Vec<ControlName> {
        KNOBS
            .iter()
            .map(|k| ControlName { name: k.name, writable: k.set.is_some(), per_inode: false })
            .collect()
    }

    fn get(&self, scope: Scope, name: &str) -> Result<String, ControlError> {
        let k = find(scope, name)?;
        Ok((k.get)(self) + "\n")
    }

    fn set(&self, scope: Scope, name: &str, value: &str) -> Result<(), ControlError> {
        let k = find(scope, name)?;
        let set = k.set.ok_or_else(|| ControlError::read_only(name))?;
        let v = value.parse().map_err(|e| ControlError::invalid(name, value, e))?;
        set(self, v);
        Ok(())
    }

    fn remount(&self, options: &str) -> Result<Vec<String>, ControlError> {
        let new: MountOptions =
            self.vol.conf.remounted(options).map_err(|e| ControlError::refused(e.to_string()))?;
        if self.vol.conf.read_only && !new.read_only {
            let why = "mounted read-only, with the image open for reading only: \
                       unmount it and mount it again to write";
            return Err(ControlError::refused(why));
        }
        if new.read_only {
            // The kernel lets no further writer in; what there is goes to the device.
            Fs::sync(self)?;
        }
        self.vol.journal.set_commit_interval(new.commit);
        self.wb.set_limit(new.dirty_bytes);
        self.wb.set_background(new.dirty_background_bytes);
        Ok(new.warnings().to_vec())
    }

    fn sync(&self) -> Result<(), ControlError> {
        Ok(Fs::sync(self)?)
    }

    fn shutdown(&self, how: Shutdown) -> Result<(), ControlError> {
        match how {
            Shutdown::Default => Fs::sync(self)?,
            Shutdown::LogFlush => self.vol.journal.commit_all()?,
            Shutdown::NoLogFlush => {}
        }
        Fs::shutdown(self);
        Ok(())
    }

    fn trace(&self, _filter: &str) -> Result<Box<dyn TraceStream>, ControlError> {
        Err(ControlError::refused("tracing is not there yet"))
    }
}

fn find(scope: Scope, name: &str) -> Result<&'static Knob, ControlError> {
    if let Scope::Inode(Ino(_)) = scope {
        return Err(ControlError::unknown(name));
    }
    KNOBS.iter().find(|k| k.name == name).ok_or_else(|| ControlError::unknown(name))
}
