//! The names of the mount.

use super::super::Fs;
use crate::{
    inode::lock_mode::LockMode,
    ondisk::superblock::ErrorRecord,
    options::{ControlError, PolicyName, bytes, number32, seconds},
};

type Get = fn(&Fs) -> String;
type Set = fn(&Fs, &str) -> Result<(), String>;

/// One name.
#[derive(Clone, Copy)]
pub struct Knob {
    /// As it is spelled.
    pub name: &'static str,
    /// The value, as `cat` shows it.
    pub get: Get,
    /// Changes it; the error says what was expected.
    pub set: Option<Set>,
}

/// The knob of that name.
pub fn find(name: &str) -> Result<&'static Knob, ControlError> {
    KNOBS.iter().find(|k| k.name == name).ok_or_else(|| ControlError::unknown(name))
}

const fn shown(name: &'static str, get: Get) -> Knob {
    Knob { name, get, set: None }
}

const fn turned(name: &'static str, get: Get, set: Set) -> Knob {
    Knob { name, get, set: Some(set) }
}

/// A tunable of the allocator: its name, its setter, the values that it takes.
macro_rules! mb {
    ($name:ident, $set:ident, $min:expr, $max:expr) => {
        turned(
            stringify!($name),
            |fs| fs.vol.alloc.tunables().$name().to_string(),
            |fs, v| {
                fs.vol.alloc.tunables().$set(number32(v, $min, $max)?);
                Ok(())
            },
        )
    };
}

/// Fields of the first and of the last error that the superblock records.
macro_rules! error_fields {
    ($($name:literal: $which:ident . $field:ident),* $(,)?) => {
        &[$(shown($name, |fs| $which(fs).$field.to_string())),*]
    };
}

/// Every name of the mount.
pub const KNOBS: &[Knob] = &[
    shown("options", |fs| fs.options_now().lines()),
    turned(
        "writeback_policy",
        |fs| fs.wb.policy().to_string(),
        |fs, v| {
            fs.wb.set_policy(PolicyName::parse(v)?);
            Ok(())
        },
    ),
    turned(
        "nr_to_write",
        |fs| fs.wb.nr_to_write().to_string(),
        |fs, v| {
            fs.wb.set_nr_to_write(number32(v, 1, u32::MAX)?);
            Ok(())
        },
    ),
    turned(
        "max_writeback_mb_bump",
        |fs| fs.wb.max_mb_bump().to_string(),
        |fs, v| {
            fs.wb.set_max_mb_bump(number32(v, 1, 1 << 20)?);
            Ok(())
        },
    ),
    turned(
        "dioread_mode",
        |fs| fs.vol.dio.default_mode().name().into(),
        |fs, v| {
            let mode = LockMode::by_name(v).ok_or(LockMode::NAMES)?;
            fs.set_mount_dioread_mode(mode).map_err(|e| e.to_string())
        },
    ),
    turned(
        "dirty_bytes",
        |fs| fs.wb.limit().to_string(),
        |fs, v| {
            fs.wb.set_limit(bytes(v, 1 << 16, 1 << 50)?);
            Ok(())
        },
    ),
    turned(
        "dirty_background_bytes",
        |fs| fs.wb.background().to_string(),
        |fs, v| {
            fs.wb.set_background(bytes(v, 0, 1 << 50)?);
            Ok(())
        },
    ),
    turned(
        "dirty_expire",
        |fs| fs.wb.expire().as_secs_f64().to_string(),
        |fs, v| {
            fs.wb.set_expire(seconds(v)?);
            Ok(())
        },
    ),
    turned(
        "dirty_writeback",
        |fs| fs.wb.period().as_secs_f64().to_string(),
        |fs, v| {
            fs.wb.set_period(seconds(v)?);
            Ok(())
        },
    ),
    shown("dirty_now", |fs| fs.wb.dirty_bytes().to_string()),
    mb!(mb_group_prealloc, set_mb_group_prealloc, 1, u32::MAX),
    mb!(mb_max_request, set_mb_max_request, 1, 32_768),
    mb!(mb_max_to_scan, set_mb_max_to_scan, 1, u32::MAX),
    mb!(mb_min_to_scan, set_mb_min_to_scan, 1, u32::MAX),
    mb!(mb_order2_req, set_mb_order2_req, 0, 30),
    mb!(mb_stream_req, set_mb_stream_req, 0, u32::MAX),
    mb!(stripe, set_stripe, 0, u32::MAX),
    turned(
        "mb_stats",
        |fs| fs.vol.alloc.mb_stats(),
        |fs, v| {
            fs.vol.alloc.tunables().set_mb_stats(number32(v, 0, 1)? == 1);
            Ok(())
        },
    ),
    shown("mb_groups", |fs| {
        let all = fs.vol.alloc.mb_groups(0, u32::MAX);
        all.unwrap_or_else(|e| format!("# {e}\n"))
    }),
    shown("delayed_allocation_blocks", |fs| fs.vol.alloc.statfs().dirty.to_string()),
    shown("reserved_clusters", |fs| fs.vol.alloc.counters().pool().to_string()),
    shown("session_write_kbytes", |fs| fs.session_write_kbytes().to_string()),
    shown("lifetime_write_kbytes", |fs| fs.lifetime_write_kbytes().to_string()),
    shown("errors_count", |fs| fs.superblock().map_or(0, |s| s.error_count()).to_string()),
    ERRORS[0],
    ERRORS[1],
    ERRORS[2],
    ERRORS[3],
    ERRORS[4],
    ERRORS[5],
    ERRORS[6],
    ERRORS[7],
    ERRORS[8],
    ERRORS[9],
    ERRORS[10],
    ERRORS[11],
    turned(
        "watchdog",
        |fs| fs.watchdog.limit().as_secs_f64().to_string(),
        |fs, v| {
            fs.watchdog.set_limit(seconds(v)?);
            Ok(())
        },
    ),
    shown("stats", |fs| fs.stats_text()),
    shown("locks", |fs| fs.locks_text()),
    turned("trace", |fs| fs.drain_trace(), |fs, v| fs.set_trace(v)),
];

const ERRORS: &[Knob; 12] = error_fields![
    "first_error_time": first.time,
    "first_error_errcode": first.errcode,
    "first_error_ino": first.ino,
    "first_error_block": first.block,
    "first_error_func": first.func,
    "first_error_line": first.line,
    "last_error_time": last.time,
    "last_error_errcode": last.errcode,
    "last_error_ino": last.ino,
    "last_error_block": last.block,
    "last_error_func": last.func,
    "last_error_line": last.line,
];

fn records(fs: &Fs) -> (ErrorRecord, ErrorRecord) {
    fs.superblock().and_then(|s| s.error_records()).unwrap_or_default()
}

fn first(fs: &Fs) -> ErrorRecord {
    records(fs).0
}

fn last(fs: &Fs) -> ErrorRecord {
    records(fs).1
}

#[cfg(test)]
mod tests {
    use super::KNOBS;

    #[test]
    fn each_name_is_there_once() {
        let mut names: Vec<_> = KNOBS.iter().map(|k| k.name).collect();
        names.sort_unstable();
        let n = names.len();
        names.dedup();
        assert_eq!(names.len(), n);
    }
}
