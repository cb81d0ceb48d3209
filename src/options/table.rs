//! The table of mount options. A row is one setting with all its spellings;
//! everything that needs to know the options reads it from here.

use super::MountOptions;
use super::values::*;

/// Who an option belongs to; also the order of the help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// ext4(5)'s own.
    Ext4,
    /// mount(8)'s, for every file system.
    Generic,
    /// FUSE's.
    Fuse,
    /// Ours.
    Uext4,
    /// Accepted with a warning: the kernel's ext4 or libfuse knows it, and it means nothing here.
    Ignored,
    /// Accepted in silence: for mount(8), fstab and the like.
    Silent,
}

/// Whether a spelling takes a value; the text is how the help calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arg {
    /// No value.
    None,
    /// `name=VALUE` only.
    Required(&'static str),
    /// `name` or `name=VALUE`.
    Optional(&'static str),
}

/// One way to write an option.
pub struct Spelling {
    /// The name before any `=`.
    pub name: &'static str,
    /// Whether it takes a value.
    pub arg: Arg,
    /// Puts the value (empty if none) into the options; the error says what was expected.
    pub set: fn(&mut MountOptions, &str) -> Result<(), String>,
}

/// One setting.
pub struct Row {
    /// Whose it is.
    pub group: Group,
    /// All ways to write it.
    pub spellings: &'static [Spelling],
    /// How the present value is written; empty for a value left to the image or the mounter.
    pub show: Option<fn(&MountOptions) -> String>,
    /// The default, in words, where `show` of the default says nothing.
    pub default: &'static str,
    /// Whether `mount -o remount` may change it.
    pub live: bool,
    /// What it does, one sentence.
    pub help: &'static str,
}

const LIVE: bool = true;
const FIXED: bool = false;

/// The row and the spelling that have this name.
pub(super) fn find(name: &str) -> Option<(usize, usize)> {
    TABLE
        .iter()
        .enumerate()
        .find_map(|(i, row)| row.spellings.iter().position(|s| s.name == name).map(|j| (i, j)))
}

macro_rules! flag {
    ($group:ident, $live:ident, $field:ident: $($on:literal)|+, $($off:literal)|*, $help:literal) => {
        Row {
            group: Group::$group,
            spellings: &[
                $(Spelling { name: $on, arg: Arg::None, set: |o, _| { o.$field = true; Ok(()) } },)+
                $(Spelling { name: $off, arg: Arg::None, set: |o, _| { o.$field = false; Ok(()) } },)*
            ],
            show: Some(|o| {
                let on: &[&str] = &[$($on),+];
                let off: &[&str] = &[$($off),*];
                let names = if o.$field { on } else { off };
                names.first().copied().unwrap_or_default().to_string()
            }),
            default: "off",
            live: $live,
            help: $help,
        }
    };
}

/// A flag whose unset state is left to somebody else.
macro_rules! maybe_flag {
    ($group:ident, $live:ident, $field:ident: $on:literal, $off:literal, $default:literal, $help:literal) => {
        Row {
            group: Group::$group,
            spellings: &[
                Spelling {
                    name: $on,
                    arg: Arg::None,
                    set: |o, _| {
                        o.$field = Some(true);
                        Ok(())
                    },
                },
                Spelling {
                    name: $off,
                    arg: Arg::None,
                    set: |o, _| {
                        o.$field = Some(false);
                        Ok(())
                    },
                },
            ],
            show: Some(|o| match o.$field {
                Some(true) => $on.into(),
                Some(false) => $off.into(),
                None => String::new(),
            }),
            default: $default,
            live: $live,
            help: $help,
        }
    };
}

/// A flag that also takes =0 or =1.
macro_rules! switch {
    ($group:ident, $live:ident, $field:ident: $on:literal, $off:literal, $help:literal) => {
        Row {
            group: Group::$group,
            spellings: &[
                Spelling {
                    name: $on,
                    arg: Arg::Optional("0|1"),
                    set: |o, v| {
                        o.$field = switch(v)?;
                        Ok(())
                    },
                },
                Spelling {
                    name: $off,
                    arg: Arg::None,
                    set: |o, _| {
                        o.$field = false;
                        Ok(())
                    },
                },
            ],
            show: Some(|o| if o.$field { $on.into() } else { $off.into() }),
            default: "",
            live: $live,
            help: $help,
        }
    };
}

macro_rules! value {
    ($group:ident, $live:ident, $field:ident: $name:literal = $what:literal, $parse:expr, $show:expr, $help:literal) => {
        Row {
            group: Group::$group,
            spellings: &[Spelling {
                name: $name,
                arg: Arg::Required($what),
                set: |o, v| {
                    o.$field = ($parse)(v)?;
                    Ok(())
                },
            }],
            show: Some(|o| format!(concat!($name, "={}"), ($show)(&o.$field))),
            default: "",
            live: $live,
            help: $help,
        }
    };
}

/// A value that may be unset.
macro_rules! maybe {
    ($group:ident, $live:ident, $field:ident: $name:literal = $what:literal, $parse:expr, $default:literal, $help:literal) => {
        Row {
            group: Group::$group,
            spellings: &[Spelling {
                name: $name,
                arg: Arg::Required($what),
                set: |o, v| {
                    o.$field = Some(($parse)(v)?);
                    Ok(())
                },
            }],
            show: Some(|o| match &o.$field {
                Some(v) => format!(concat!($name, "={}"), v),
                None => String::new(),
            }),
            default: $default,
            live: $live,
            help: $help,
        }
    };
}

/// Names with one meaning each.
macro_rules! pick {
    ($group:ident, $live:ident, [$($name:literal => |$o:ident| $set:expr),+ $(,)?], $show:expr, $help:literal) => {
        Row {
            group: Group::$group,
            spellings: &[$(Spelling { name: $name, arg: Arg::None, set: |$o, _| { $set; Ok(()) } }),+],
            show: Some($show),
            default: "",
            live: $live,
            help: $help,
        }
    };
}

/// Names that change nothing; `warn` says so to the user.
macro_rules! nothing {
    ($group:ident, $help:literal, [$($name:literal),+ $(,)?]) => {
        Row {
            group: Group::$group,
            spellings: &[$(Spelling { name: $name, arg: Arg::Optional("..."), set: |o, _| {
                if matches!(Group::$group, Group::Ignored) {
                    o.warn(concat!("mount option \"", $name, "\" means nothing here and is ignored"));
                }
                Ok(())
            } }),+],
            show: None,
            default: "",
            live: true,
            help: $help,
        }
    };
}

fn micros(text: &str) -> Result<std::time::Duration, String> {
    number(text, 0, 60_000_000).map(std::time::Duration::from_micros)
}
fn show_micros(d: &std::time::Duration) -> String {
    d.as_micros().to_string()
}
fn count(text: &str) -> Result<u32, String> {
    number32(text, 0, u32::MAX)
}
fn positive(text: &str) -> Result<u32, String> {
    number32(text, 1, 1 << 30)
}
fn size(text: &str) -> Result<u64, String> {
    bytes(text, 1 << 20, 1 << 50)
}
fn show_secs(d: &std::time::Duration) -> String {
    show_seconds(*d)
}
fn show_size(n: &u64) -> String {
    show_bytes(*n)
}
fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (0.001..=1_000_000.0).contains(&x) => Ok(x),
        _ => Err("must be a number between 0.001 and 1000000".into()),
    }
}
fn file_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 255 || text.contains('/') || matches!(text, "." | "..") {
        return Err("must be a file name".into());
    }
    Ok(text.into())
}
fn plain(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(['\0', '\n']) {
        return Err("must be a text".into());
    }
    Ok(text.into())
}

/// Every option there is.
pub static TABLE: &[Row] = &[
    pick!(Ext4, LIVE, ["rw" => |o| o.read_only = false, "ro" => |o| o.read_only = true],
        |o| if o.read_only { "ro".into() } else { "rw".into() },
        "Mount for reading and writing, or for reading only: ro writes nothing to the image, not even a journal replay."),
    flag!(Ext4, FIXED, noload: "noload" | "norecovery",,
        "Do not load the journal; what it holds is neither replayed nor added to."),
    maybe!(Ext4, FIXED, sb: "sb" = "N", |v: &str| number(v, 0, u64::MAX >> 12), "block 1 (of 1 KiB)",
        "Use the superblock at this place, counted in units of 1 KiB whatever the block size."),
    value!(Ext4, FIXED, data: "data" = "journal|ordered|writeback", DataMode::parse, |v: &DataMode| v.as_str(),
        "What the journal promises about file data. The image may have another default."),
    value!(Ext4, LIVE, data_err: "data_err" = "ignore|abort", DataErr::parse, |v: &DataErr| v.as_str(),
        "Whether a failed write of ordered data aborts the journal."),
    value!(Ext4, LIVE, commit: "commit" = "SECONDS", |v: &str| {
            let n = number(v, 0, 21_474_836)?;
            Ok::<_, String>(std::time::Duration::from_secs(if n == 0 { 5 } else { n }))
        }, show_secs,
        "The longest time between two commits of the journal; 0 means the default."),
    value!(Ext4, LIVE, max_batch_time: "max_batch_time" = "MICROSECONDS", micros, show_micros,
        "The longest time that a synchronous commit waits for others to join it."),
    value!(Ext4, LIVE, min_batch_time: "min_batch_time" = "MICROSECONDS", micros, show_micros,
        "The shortest time that a synchronous commit waits for others to join it."),
    switch!(Ext4, LIVE, barrier: "barrier", "nobarrier",
        "Flush the device's cache around commits; without it a power failure may damage the file system."),
    flag!(Ext4, FIXED, journal_checksum: "journal_checksum", "nojournal_checksum",
        "Checksum the journal; always on where the image has metadata_csum."),
    flag!(Ext4, FIXED, journal_async_commit: "journal_async_commit",,
        "Write the commit block without waiting for the blocks before it; refused with data=ordered."),
    maybe!(Ext4, LIVE, errors: "errors" = "continue|remount-ro|panic", ErrorsMode::parse, "from the superblock",
        "What to do when the file system is found damaged; panic ends the daemon at once."),
    flag!(Ext4, LIVE, abort: "abort",, "Abort the journal: everything that follows is refused."),
    switch!(Ext4, LIVE, auto_da_alloc: "auto_da_alloc", "noauto_da_alloc",
        "Write out the new data before a file is replaced by rename or by truncation."),
    flag!(Ext4, FIXED, delalloc: "delalloc", "nodelalloc",
        "Choose blocks when data is written out, not when it is written."),
    pick!(Ext4, LIVE, [
            "dioread_nolock" => |o| o.dioread = DioreadMode::Nolock,
            "dioread_shared" => |o| o.dioread = DioreadMode::Shared,
            "dioread_lock" => |o| o.dioread = DioreadMode::Lock,
            "nodioread_nolock" => |o| o.dioread = DioreadMode::Lock,
        ], |o| format!("dioread_{}", o.dioread),
        "What a direct read locks: nothing, the inode shared (as Linux 4.9 to 5.5), or the inode exclusively (as Linux 2.6.33; nodioread_nolock is the same)."),
    maybe!(Ext4, LIVE, stripe: "stripe" = "BLOCKS", count, "from the superblock",
        "The stripe width of the RAID below, which allocation aligns to; 0 is none."),
    flag!(Ext4, LIVE, discard: "discard", "nodiscard", "Tell the device about blocks that became free."),
    Row {
        group: Group::Ext4,
        spellings: &[
            Spelling {
                name: "init_itable",
                arg: Arg::Optional("N"),
                set: |o, v| {
                    o.init_itable = if v.is_empty() { 10 } else { count(v)? };
                    Ok(())
                },
            },
            Spelling {
                name: "noinit_itable",
                arg: Arg::None,
                set: |o, _| {
                    o.init_itable = 0;
                    Ok(())
                },
            },
        ],
        show: Some(|o| match o.init_itable {
            0 => "noinit_itable".into(),
            n => format!("init_itable={n}"),
        }),
        default: "",
        live: LIVE,
        help: "Zero unused inode tables in the background, resting N times as long as a group took.",
    },
    value!(Ext4, LIVE, max_dir_size_kb: "max_dir_size_kb" = "N", count, |v: &u32| *v,
        "Refuse to let a directory grow beyond this many KiB; 0 is no limit."),
    flag!(Ext4, FIXED, acl: "acl", "noacl", "POSIX access control lists."),
    flag!(Ext4, FIXED, user_xattr: "user_xattr", "nouser_xattr", "Extended attributes of the user namespace."),
    flag!(Ext4, LIVE, minixdf: "minixdf", "bsddf",
        "Whether df counts the file system's own blocks as used (minixdf) or leaves them out (bsddf)."),
    flag!(Ext4, LIVE, grpid: "grpid" | "bsdgroups", "nogrpid" | "sysvgroups",
        "New files take the group of their directory (grpid), or of their maker."),
    flag!(Ext4, FIXED, nouid32: "nouid32",, "Ignore the upper 16 bits of owners."),
    maybe!(Ext4, LIVE, resuid: "resuid" = "UID", count, "from the superblock", "The user who may use the reserved blocks."),
    maybe!(Ext4, LIVE, resgid: "resgid" = "GID", count, "from the superblock", "The group that may use the reserved blocks."),
    pick!(Generic, LIVE, [
            "relatime" => |o| o.atime = Atime::Relatime,
            "noatime" => |o| o.atime = Atime::Noatime,
            "strictatime" => |o| o.atime = Atime::Strictatime,
            "atime" => |o| if o.atime == Atime::Noatime { o.atime = Atime::Relatime },
            "norelatime" => |o| if o.atime == Atime::Relatime { o.atime = Atime::Strictatime },
            "nostrictatime" => |o| if o.atime == Atime::Strictatime { o.atime = Atime::Relatime },
        ], |o| o.atime.as_str().into(),
        "When reading a file updates its access time: if it is older than the last change or a day old, never, or always."),
    flag!(Generic, LIVE, nodiratime: "nodiratime", "diratime", "Leave the access times of directories alone."),
    flag!(Generic, LIVE, lazytime: "lazytime", "nolazytime", "Keep changed times in memory until something else writes the inode."),
    flag!(Generic, LIVE, sync: "sync", "async", "Every write is synchronous."),
    flag!(Generic, LIVE, dirsync: "dirsync",, "Every change of a directory is synchronous."),
    maybe_flag!(Generic, LIVE, suid: "suid", "nosuid", "suid for root, else nosuid", "Honour the set-user-id and set-group-id bits."),
    maybe_flag!(Generic, LIVE, dev: "dev", "nodev", "dev for root, else nodev", "Honour device nodes."),
    flag!(Generic, LIVE, exec: "exec", "noexec", "Allow programs to be run."),
    flag!(Generic, LIVE, symfollow: "symfollow", "nosymfollow", "Follow symbolic links."),
    Row {
        group: Group::Generic,
        spellings: &[Spelling {
            name: "remount",
            arg: Arg::None,
            set: |o, _| {
                o.remount = true;
                Ok(())
            },
        }],
        show: None,
        default: "off",
        live: LIVE,
        help: "Change the options of a mount that exists.",
    },
    maybe_flag!(Fuse, FIXED, allow_other: "allow_other", "noallow_other", "on for root", "Let other users than the mounter in."),
    maybe_flag!(Fuse, FIXED, default_permissions: "default_permissions", "nodefault_permissions", "on for root",
        "Check permissions by owner and mode; without it the mounter may do everything."),
    maybe!(Fuse, FIXED, fsname: "fsname" = "NAME", plain, "the image's path", "The source that mount(8) shows."),
    value!(Fuse, FIXED, max_read: "max_read" = "BYTES", |v: &str| match number32(v, 0, 1 << 20)? {
            n @ (0 | 4096..) => Ok(n),
            _ => Err("must be 0 or at least 4096".to_string()),
        }, |v: &u32| *v, "The largest read request; 0 leaves it to the kernel."),
    flag!(Fuse, FIXED, nonempty: "nonempty",, "Mount over a directory that has entries."),
    value!(Uext4, FIXED, offset: "offset" = "BYTES", |v: &str| bytes(v, 0, 1 << 60), show_size,
        "Where the file system begins in the image, such as the start of a partition."),
    Row {
        group: Group::Uext4,
        spellings: &[
            Spelling {
                name: "ctldir",
                arg: Arg::Required("NAME"),
                set: |o, v| {
                    o.ctldir = Some(file_name(v)?);
                    Ok(())
                },
            },
            Spelling {
                name: "noctldir",
                arg: Arg::None,
                set: |o, _| {
                    o.ctldir = None;
                    Ok(())
                },
            },
        ],
        show: Some(|o| match &o.ctldir {
            Some(name) => format!("ctldir={name}"),
            None => "noctldir".into(),
        }),
        default: "",
        live: FIXED,
        help: "The name of the control directory, which is in the root but in no listing.",
    },
    flag!(Uext4, FIXED, sandbox: "sandbox", "nosandbox", "The daemon gives up every right that it does not need."),
    value!(Uext4, LIVE, writeback_policy: "writeback_policy" = "none|dirty_pages|fixed8|extent", PolicyName::parse,
        |v: &PolicyName| v.as_str(), "How many pages one pass of write-out takes."),
    value!(Uext4, LIVE, nr_to_write: "nr_to_write" = "PAGES", positive, |v: &u32| *v, "What a pass of write-out starts from."),
    value!(Uext4, LIVE, max_writeback_mb_bump: "max_writeback_mb_bump" = "MIB", |v: &str| number32(v, 1, 1 << 20), |v: &u32| *v,
        "The most that a policy may raise a pass of write-out to."),
    value!(Uext4, LIVE, dirty_bytes: "dirty_bytes" = "BYTES", size, show_size, "Writers wait while more than this is dirty."),
    value!(Uext4, LIVE, dirty_background_bytes: "dirty_background_bytes" = "BYTES", |v: &str| bytes(v, 0, 1 << 50), show_size,
        "Write-out begins when more than this is dirty."),
    value!(Uext4, LIVE, dirty_expire: "dirty_expire" = "SECONDS", seconds, show_secs, "Data that has been dirty for longer is written out."),
    value!(Uext4, LIVE, dirty_writeback: "dirty_writeback" = "SECONDS", seconds, show_secs, "How often write-out looks for old data; 0 is never."),
    value!(Uext4, LIVE, cache_bytes: "cache_bytes" = "BYTES", size, show_size, "Memory for clean data and metadata."),
    value!(Uext4, LIVE, mb_stream_req: "mb_stream_req" = "BLOCKS", count, |v: &u32| *v,
        "Smaller files are allocated from the group preallocation, larger ones each on their own."),
    value!(Uext4, LIVE, mb_group_prealloc: "mb_group_prealloc" = "BLOCKS", positive, |v: &u32| *v, "How much is preallocated for small files at once."),
    value!(Uext4, LIVE, mb_order2_req: "mb_order2_req" = "ORDER", |v: &str| number32(v, 0, 30), |v: &u32| *v,
        "From this power of two up the buddy bitmaps are searched first."),
    value!(Uext4, LIVE, mb_min_to_scan: "mb_min_to_scan" = "N", positive, |v: &u32| *v, "The allocator looks at this many free extents before it settles for the best."),
    value!(Uext4, LIVE, mb_max_to_scan: "mb_max_to_scan" = "N", positive, |v: &u32| *v, "The allocator looks at no more than this many free extents."),
    value!(Uext4, LIVE, mb_max_request: "mb_max_request" = "BLOCKS", |v: &str| number32(v, 1, 32_768), |v: &u32| *v,
        "The most that one call of the allocator gives."),
    Row {
        group: Group::Uext4,
        spellings: &[Spelling {
            name: "mb_stats",
            arg: Arg::Optional("0|1"),
            set: |o, v| {
                o.mb_stats = switch(v)?;
                Ok(())
            },
        }],
        show: Some(|o| format!("mb_stats={}", u8::from(o.mb_stats))),
        default: "",
        live: LIVE,
        help: "Count what the allocator does.",
    },
    value!(Uext4, FIXED, io_engine: "io_engine" = "auto|sync|threads|io_uring", EngineName::parse, |v: &EngineName| v.as_str(),
        "How requests reach the device."),
    value!(Uext4, FIXED, backing: "backing" = "buffered|direct", Backing::parse, |v: &Backing| v.as_str(),
        "Use the image through the host's page cache, or around it."),
    maybe!(Uext4, FIXED, disk_model: "disk_model" = "NAME", plain, "none", "Imitate the delays of a disk: hdd, raid5-8, raid10-14, ssd, nvme."),
    value!(Uext4, FIXED, disk_scale: "disk_scale" = "FACTOR", scale, |v: &f64| *v, "How many times faster than life the disk model runs."),
    Row {
        group: Group::Uext4,
        spellings: &[Spelling {
            name: "record",
            arg: Arg::Required("FILE"),
            set: |o, v| {
                o.record = Some(plain(v)?.into());
                Ok(())
            },
        }],
        show: Some(|o| {
            o.record.as_ref().map(|p| format!("record={}", p.display())).unwrap_or_default()
        }),
        default: "none",
        live: FIXED,
        help: "Log every write to the device into this file, for uext4 crash.",
    },
    value!(Uext4, FIXED, threads: "threads" = "N", |v: &str| number32(v, 1, 256), |v: &u32| *v, "Threads that take requests from the kernel."),
    value!(Uext4, FIXED, max_background: "max_background" = "N",
        |v: &str| number(v, 1, u16::MAX.into()).and_then(|n| u16::try_from(n).map_err(|e| e.to_string())), |v: &u16| *v,
        "How many asynchronous requests the kernel keeps in flight."),
    value!(Uext4, FIXED, read_ahead_kb: "read_ahead_kb" = "N", |v: &str| number32(v, 0, 1 << 20), |v: &u32| *v,
        "How far the kernel reads ahead; more than 128 needs root."),
    flag!(Uext4, FIXED, writeback_cache: "writeback_cache", "nowriteback_cache",
        "Let the kernel hold dirty pages: faster small writes, but errors such as a full disk appear late."),
    value!(Uext4, LIVE, watchdog: "watchdog" = "SECONDS", seconds, show_secs,
        "Log a request that takes longer, with the lock it waits for and who holds it; 0 is never."),
    nothing!(
        Ignored,
        "Options of the kernel's ext4 that mean nothing here.",
        [
            "debug",
            "oldalloc",
            "orlov",
            "bh",
            "nobh",
            "i_version",
            "noi_version",
            "warn_on_error",
            "nowarn_on_error",
            "debug_want_extra_isize",
            "mblk_io_submit",
            "nomblk_io_submit",
            "block_validity",
            "noblock_validity",
            "inode_readahead_blks",
            "journal_ioprio",
            "inlinecrypt",
            "test_dummy_encryption",
            "nombcache",
            "no_mbcache",
            "prefetch_block_bitmaps",
            "no_prefetch_block_bitmaps",
            "mb_optimize_scan",
            "fc_debug_force",
            "fc_debug_max_replay",
            "dax",
            "nocheck",
            "check",
            "reservation",
            "noreservation",
            "journal",
            "quota",
            "noquota",
            "usrquota",
            "grpquota",
            "prjquota",
            "usrjquota",
            "grpjquota",
            "jqfmt",
            "offusrjquota",
            "offgrpjquota",
            "noprefetch_block_bitmaps",
        ]
    ),
    Row {
        group: Group::Ext4,
        spellings: &[
            Spelling {
                name: "journal_dev",
                arg: Arg::Required("DEVNUM"),
                set: |_, _| Err("external journals are not supported".into()),
            },
            Spelling {
                name: "journal_path",
                arg: Arg::Required("PATH"),
                set: |_, _| Err("external journals are not supported".into()),
            },
        ],
        show: None,
        default: "",
        live: FIXED,
        help: "Refused: a journal on another device is not supported.",
    },
    nothing!(
        Ignored,
        "Options of libfuse that mean nothing here.",
        [
            "allow_root",
            "attr_timeout",
            "entry_timeout",
            "negative_timeout",
            "ac_attr_timeout",
            "noforget",
            "remember",
            "kernel_cache",
            "auto_cache",
            "noauto_cache",
            "direct_io",
            "large_read",
            "big_writes",
            "use_ino",
            "readdir_ino",
            "hard_remove",
            "intr",
            "umask",
            "uid",
            "gid",
            "max_write",
            "max_readahead",
            "congestion_threshold",
            "async_read",
            "sync_read",
            "atomic_o_trunc",
            "clone_fd",
            "max_idle_threads",
            "modules",
            "blksize",
            "blkdev",
            "splice_read",
            "splice_write",
            "splice_move",
            "no_splice_read",
            "no_splice_write",
            "no_splice_move",
            "no_remote_lock",
            "no_remote_flock",
            "no_remote_posix_lock",
            "fakeroot",
        ]
    ),
    nothing!(
        Silent,
        "For mount(8), fstab, libmount and libfuse; accepted and left to them.",
        [
            "defaults",
            "auto",
            "noauto",
            "user",
            "nouser",
            "users",
            "nousers",
            "owner",
            "noowner",
            "group",
            "nogroup",
            "nofail",
            "_netdev",
            "_rnetdev",
            "comment",
            "uhelper",
            "helper",
            "loop",
            "sizelimit",
            "encryption",
            "user_id",
            "group_id",
            "rootmode",
            "fd",
            "subtype",
            "auto_unmount",
            "silent",
            "loud",
            "mand",
            "nomand",
            "iversion",
            "noiversion",
            "rootcontext",
            "context",
            "fscontext",
            "defcontext",
            "seclabel",
        ]
    ),
];
