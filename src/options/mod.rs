//! The mount options: parsed and checked once, from `-o` strings, before
//! anything is opened; and the [`Control`] through which they are seen and
//! changed afterwards.
//!
//! Called by `cli` (parsing), `fs` (every layer's settings come from one
//! [`MountOptions`]) and `fuse`. One table ([`TABLE`]) drives parsing, display,
//! what a remount may change, `-o help` and the manual page, so that they
//! cannot disagree.

mod control;
mod help;
mod live;
mod table;
mod values;

pub use control::{Control, ControlError, ControlName, Scope, Shutdown, TraceNext, TraceStream};
pub use help::{help, manual};
pub use live::LiveOptions;
pub use table::{Arg, Group, Row, Spelling, TABLE};
pub use values::{
    Atime, Backing, DataErr, DataMode, DioreadMode, EngineName, ErrorsMode, PolicyName, bytes,
    number, number32, seconds, show_bytes,
};

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Every setting of a mount. Fields without `Option` always hold the value in
/// force; an `Option` that is `None` means "as the superblock or the caller says".
#[derive(Clone, Debug, PartialEq)]
pub struct MountOptions {
    /// `ro`: nothing is written to the image, not even a journal replay.
    pub read_only: bool,
    /// `noload`: leave the journal alone.
    pub noload: bool,
    /// `sb=`: where the superblock is, in units of 1 KiB.
    pub sb: Option<u64>,
    /// `data=`.
    pub data: DataMode,
    /// `data_err=`.
    pub data_err: DataErr,
    /// `commit=`: the longest time between commits.
    pub commit: Duration,
    /// `max_batch_time=`: how long a synchronous commit may wait for company.
    pub max_batch_time: Duration,
    /// `min_batch_time=`.
    pub min_batch_time: Duration,
    /// `barrier`: flush the device around commits.
    pub barrier: bool,
    /// `journal_checksum`.
    pub journal_checksum: bool,
    /// `journal_async_commit`: the commit block does not wait for its transaction.
    pub journal_async_commit: bool,
    /// `errors=`; `None`: as the superblock says.
    pub errors: Option<ErrorsMode>,
    /// `abort`: abort the journal at once (with `remount`).
    pub abort: bool,
    /// `auto_da_alloc`: replacing by rename or truncate writes the data first.
    pub auto_da_alloc: bool,
    /// `delalloc`.
    pub delalloc: bool,
    /// `dioread_lock`, `dioread_shared`, `dioread_nolock`: the mode inodes start with.
    pub dioread: DioreadMode,
    /// `stripe=` in blocks; `None`: as the superblock says.
    pub stripe: Option<u32>,
    /// `discard`: tell the device about freed blocks.
    pub discard: bool,
    /// `init_itable`: 0 is off, else the wait factor of the background zeroing.
    pub init_itable: u32,
    /// `max_dir_size_kb=`: 0 is no limit.
    pub max_dir_size_kb: u32,
    /// `acl`.
    pub acl: bool,
    /// `user_xattr`.
    pub user_xattr: bool,
    /// `minixdf`: statfs counts the file system's own blocks as used.
    pub minixdf: bool,
    /// `grpid`: new files take their directory's group.
    pub grpid: bool,
    /// `nouid32`: 16-bit owners only.
    pub nouid32: bool,
    /// `resuid=`: the user who may use reserved blocks; `None`: as the superblock says.
    pub resuid: Option<u32>,
    /// `resgid=`.
    pub resgid: Option<u32>,

    /// `noatime`, `relatime`, `strictatime`.
    pub atime: Atime,
    /// `nodiratime`.
    pub nodiratime: bool,
    /// `lazytime`: times alone do not make an inode go to disk soon.
    pub lazytime: bool,
    /// `sync`: every write is synchronous.
    pub sync: bool,
    /// `dirsync`: directory changes are synchronous.
    pub dirsync: bool,
    /// `suid`; `None`: as the mounter may.
    pub suid: Option<bool>,
    /// `dev`; `None`: as the mounter may.
    pub dev: Option<bool>,
    /// `exec`.
    pub exec: bool,
    /// `symfollow`.
    pub symfollow: bool,

    /// `remount`: change a mount that exists.
    pub remount: bool,
    /// `allow_other`; `None`: on for root.
    pub allow_other: Option<bool>,
    /// `default_permissions`; `None`: on for root.
    pub default_permissions: Option<bool>,
    /// `fsname=`: the source shown by mount(8).
    pub fsname: Option<String>,
    /// `max_read=`: the largest read request in bytes, 0 for the kernel's choice.
    pub max_read: u32,
    /// `nonempty`: mount over a directory that has entries.
    pub nonempty: bool,

    /// `offset=`: where in the image the file system begins, in bytes.
    pub offset: u64,
    /// `ctldir=`: the control directory's name in the root; `None` hides it.
    pub ctldir: Option<String>,
    /// `nosandbox` turns this off.
    pub sandbox: bool,
    /// `writeback_policy=`.
    pub writeback_policy: PolicyName,
    /// `nr_to_write=` in pages of 4 KiB.
    pub nr_to_write: u32,
    /// `max_writeback_mb_bump=` in MiB.
    pub max_writeback_mb_bump: u32,
    /// `dirty_bytes=`: writers wait above this much dirty data.
    pub dirty_bytes: u64,
    /// `dirty_background_bytes=`: write-out starts above this.
    pub dirty_background_bytes: u64,
    /// `dirty_expire=`: data older than this is written out.
    pub dirty_expire: Duration,
    /// `dirty_writeback=`: how often the flusher looks.
    pub dirty_writeback: Duration,
    /// `cache_bytes=`: memory for clean data and metadata.
    pub cache_bytes: u64,
    /// `mb_stream_req=` in blocks.
    pub mb_stream_req: u32,
    /// `mb_group_prealloc=` in blocks.
    pub mb_group_prealloc: u32,
    /// `mb_order2_req=`.
    pub mb_order2_req: u32,
    /// `mb_min_to_scan=`.
    pub mb_min_to_scan: u32,
    /// `mb_max_to_scan=`.
    pub mb_max_to_scan: u32,
    /// `mb_max_request=` in blocks: the most that one call of the allocator gives.
    pub mb_max_request: u32,
    /// `mb_stats`: count what the allocator does.
    pub mb_stats: bool,
    /// `io_engine=`.
    pub io_engine: EngineName,
    /// `backing=`.
    pub backing: Backing,
    /// `disk_model=`: the name of the disk whose delays are imitated.
    pub disk_model: Option<String>,
    /// `disk_scale=`: how many times faster than life the model runs.
    pub disk_scale: f64,
    /// `record=`: the file that gets every device write.
    pub record: Option<PathBuf>,
    /// `threads=`: threads that take requests from the kernel.
    pub threads: u32,
    /// `max_background=`: asynchronous requests the kernel keeps in flight.
    pub max_background: u16,
    /// `read_ahead_kb=`.
    pub read_ahead_kb: u32,
    /// `writeback_cache`: let the kernel hold dirty pages.
    pub writeback_cache: bool,
    /// `watchdog=`: a request older than this is logged; zero is off.
    pub watchdog: Duration,

    /// What was given, in order, so that defaults can be slid underneath.
    given: Vec<Given>,
    /// Things worth telling the user, one line each.
    warnings: Vec<String>,
}

/// One option as it was given.
#[derive(Clone, Debug, PartialEq)]
struct Given {
    row: usize,
    spelling: usize,
    value: String,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            noload: false,
            sb: None,
            data: DataMode::Ordered,
            data_err: DataErr::Ignore,
            commit: Duration::from_secs(5),
            max_batch_time: Duration::from_micros(15_000),
            min_batch_time: Duration::ZERO,
            barrier: true,
            journal_checksum: false,
            journal_async_commit: false,
            errors: None,
            abort: false,
            auto_da_alloc: true,
            delalloc: true,
            dioread: DioreadMode::Nolock,
            stripe: None,
            discard: false,
            init_itable: 10,
            max_dir_size_kb: 0,
            acl: true,
            user_xattr: true,
            minixdf: false,
            grpid: false,
            nouid32: false,
            resuid: None,
            resgid: None,
            atime: Atime::Relatime,
            nodiratime: false,
            lazytime: false,
            sync: false,
            dirsync: false,
            suid: None,
            dev: None,
            exec: true,
            symfollow: true,
            remount: false,
            allow_other: None,
            default_permissions: None,
            fsname: None,
            max_read: 0,
            nonempty: false,
            offset: 0,
            ctldir: Some(".uext4".into()),
            sandbox: true,
            writeback_policy: PolicyName::Extent,
            nr_to_write: 1024,
            max_writeback_mb_bump: 128,
            dirty_bytes: 256 << 20,
            dirty_background_bytes: 64 << 20,
            dirty_expire: Duration::from_secs(10),
            dirty_writeback: Duration::from_secs(5),
            cache_bytes: 128 << 20,
            mb_stream_req: 16,
            mb_group_prealloc: 512,
            mb_order2_req: 2,
            mb_min_to_scan: 10,
            mb_max_to_scan: 200,
            mb_max_request: 2048,
            mb_stats: false,
            io_engine: EngineName::Auto,
            backing: Backing::Buffered,
            disk_model: None,
            disk_scale: 1.0,
            record: None,
            threads: 16,
            max_background: 1024,
            read_ahead_kb: 1024,
            writeback_cache: false,
            watchdog: Duration::from_secs(120),
            given: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// What is wrong with the options given; one line for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(pub String);

/// The defaults that an image's superblock carries.
#[derive(Debug, Clone, Default)]
pub struct SuperDefaults {
    /// `s_default_mount_opts`.
    pub default_mount_opts: u32,
    /// `s_errors`: 1 continue, 2 read-only, 3 panic.
    pub errors: u16,
    /// `s_mount_opts`, untrusted text.
    pub mount_opts: String,
    /// `s_def_resuid`, `s_def_resgid`.
    pub reserved_for: (u16, u16),
    /// `s_raid_stripe_width`, in blocks; 0 if unset.
    pub stripe: u32,
}

impl MountOptions {
    /// Reads `-o` strings, later ones winning, as mount(8) does.
    pub fn parse<S: AsRef<str>>(strings: &[S]) -> Result<MountOptions, OptionError> {
        let mut o = MountOptions::default();
        for text in strings {
            o.apply(text.as_ref(), |_| true)?;
        }
        o.check()?;
        Ok(o)
    }

    /// [`MountOptions::parse`] that only warns of unknown options (mount -s).
    pub fn parse_sloppy<S: AsRef<str>>(strings: &[S]) -> Result<MountOptions, OptionError> {
        let mut o = MountOptions::default();
        for item in strings.iter().flat_map(|text| split(text.as_ref())) {
            let name = item.split('=').next().unwrap_or_default();
            if table::find(name).is_some() || name.starts_with("x-") || name.starts_with("X-") {
                o.apply(&item.replace('\\', "\\\\").replace(',', "\\,"), |_| true)?;
            } else {
                o.warn(format!("unknown mount option \"{item}\" is ignored"));
            }
        }
        o.check()?;
        Ok(o)
    }

    /// Decides what is left to the mounter's rights: root gets suid, dev,
    /// allow_other and default_permissions unless told otherwise.
    pub fn decide_for(&mut self, root: bool) {
        for choice in
            [&mut self.suid, &mut self.dev, &mut self.allow_other, &mut self.default_permissions]
        {
            choice.get_or_insert(root);
        }
    }

    /// Things worth telling the user about what was given, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether the option that `name` spells (or its opposite) was given.
    pub fn is_given(&self, name: &str) -> bool {
        table::find(name).is_some_and(|(row, _)| self.given.iter().any(|g| g.row == row))
    }

    /// These options with the image's own defaults wherever none was given.
    /// Its text may name ext4's options only; anything else there is warned of and ignored.
    pub fn with_superblock(&self, sb: &SuperDefaults) -> Result<MountOptions, OptionError> {
        let mut o = self.clone();
        let bits = sb.default_mount_opts;
        o.grpid = bits & 0x2 != 0;
        o.nouid32 = bits & 0x10 != 0;
        o.data = match bits & 0x60 {
            0x20 => DataMode::Journal,
            0x60 => DataMode::Writeback,
            _ => DataMode::Ordered,
        };
        o.barrier = bits & 0x100 == 0;
        o.discard = bits & 0x400 != 0;
        o.delalloc = bits & 0x800 == 0;
        o.errors = Some(match sb.errors {
            2 => ErrorsMode::RemountRo,
            3 => ErrorsMode::Panic,
            _ => ErrorsMode::Continue,
        });
        o.resuid = Some(sb.reserved_for.0.into());
        o.resgid = Some(sb.reserved_for.1.into());
        o.stripe = Some(sb.stripe);
        let mut from_image = o.clone();
        match from_image.apply(&sb.mount_opts, |row| row.group == Group::Ext4) {
            Ok(()) => o = from_image,
            Err(e) => {
                o.warnings.push(format!("ignoring the superblock's own mount options: {e}"));
            }
        }
        for g in &self.given {
            o.apply_given(g)?;
        }
        o.given.clone_from(&self.given);
        o.check()?;
        Ok(o)
    }

    /// What Linux refuses once it knows whether the image has a journal.
    pub fn check_journal(&self, has_journal: bool) -> Result<(), OptionError> {
        let refuse = |what: &str| Err(OptionError(what.to_string()));
        if has_journal {
            if self.journal_async_commit && self.data == DataMode::Ordered {
                return refuse("can't mount with journal_async_commit in data=ordered mode");
            }
            return Ok(());
        }
        for name in ["journal_checksum", "journal_async_commit"] {
            let on = if name == "journal_checksum" {
                self.journal_checksum
            } else {
                self.journal_async_commit
            };
            if on {
                return refuse(&format!("can't mount with {name}, fs mounted w/o journal"));
            }
        }
        for name in ["commit", "data"] {
            if self.is_given(name) {
                return refuse(&format!("can't mount with {name}=, fs mounted w/o journal"));
            }
        }
        Ok(())
    }

    /// The options after `mount -o remount,CHANGES`; refused as a whole if one
    /// of them cannot change while mounted. Unchanged ones may be repeated.
    pub fn remounted(&self, changes: &str) -> Result<MountOptions, OptionError> {
        let mut o = self.clone();
        o.warnings.clear();
        o.apply(changes, |_| true)?;
        o.remount = false;
        o.check()?;
        for row in TABLE.iter().filter(|row| !row.live) {
            if let Some(show) = row.show
                && show(self) != show(&o)
            {
                return Err(OptionError(format!(
                    "mount option \"{}\" cannot be changed while mounted",
                    show(&o)
                )));
            }
        }
        Ok(o)
    }

    /// Every option and its present value, one a line, as /proc/fs/ext4/DEV/options.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for show in TABLE.iter().filter_map(|row| row.show) {
            let value = show(self);
            if !value.is_empty() {
                text.push_str(&value);
                text.push('\n');
            }
        }
        text
    }

    /// Conflicts that no image can resolve.
    fn check(&mut self) -> Result<(), OptionError> {
        if self.data == DataMode::Journal {
            if self.delalloc && self.is_given("delalloc") {
                return Err(OptionError("can't mount with both data=journal and delalloc".into()));
            }
            if self.dioread == DioreadMode::Nolock && self.is_given("dioread_nolock") {
                self.warn("dioread_nolock is ignored with data=journal");
            }
            self.delalloc = false;
        }
        if self.min_batch_time > self.max_batch_time && self.max_batch_time > Duration::ZERO {
            return Err(OptionError("min_batch_time is larger than max_batch_time".into()));
        }
        if self.dirty_background_bytes >= self.dirty_bytes {
            let half = self.dirty_bytes / 2;
            if self.is_given("dirty_background_bytes") && self.is_given("dirty_bytes") {
                self.warn("dirty_background_bytes is not below dirty_bytes: using half of it");
            }
            self.dirty_background_bytes = half;
        }
        if self.noload && !self.read_only {
            self.warn("noload without ro: changes will not be journalled");
        }
        Ok(())
    }

    fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    fn apply(&mut self, text: &str, allowed: impl Fn(&Row) -> bool) -> Result<(), OptionError> {
        for item in split(text) {
            let (name, value) = match item.split_once('=') {
                Some((name, value)) => (name, Some(unquote(value))),
                None => (item.as_str(), None),
            };
            if name.starts_with("x-") || name.starts_with("X-") {
                continue;
            }
            let unknown = || OptionError(format!("unrecognized mount option \"{item}\""));
            let (row, spelling) = table::find(name).ok_or_else(unknown)?;
            let (Some(r), Some(s)) =
                (TABLE.get(row), TABLE.get(row).and_then(|r| r.spellings.get(spelling)))
            else {
                return Err(unknown());
            };
            if !allowed(r) {
                return Err(OptionError(format!("mount option \"{name}\" is not allowed here")));
            }
            match (s.arg, &value) {
                (Arg::None, Some(v)) => {
                    return Err(OptionError(format!(
                        "mount option \"{name}\" takes no value (\"{v}\" given)"
                    )));
                }
                (Arg::Required(what), None) => {
                    return Err(OptionError(format!(
                        "mount option \"{name}\" needs a value: {name}={what}"
                    )));
                }
                _ => {}
            }
            let given = Given { row, spelling, value: value.unwrap_or_default() };
            self.apply_given(&given)?;
            self.given.push(given);
        }
        Ok(())
    }

    fn apply_given(&mut self, g: &Given) -> Result<(), OptionError> {
        let Some(s) = TABLE.get(g.row).and_then(|r| r.spellings.get(g.spelling)) else {
            return Ok(());
        };
        (s.set)(self, &g.value).map_err(|why| {
            OptionError(if g.value.is_empty() && s.arg == Arg::None {
                format!("mount option \"{}\": {why}", s.name)
            } else {
                format!("mount option \"{}={}\": {why}", s.name, g.value)
            })
        })
    }
}

/// The options as /proc/mounts would show them: access, then whatever differs
/// from the default.
impl fmt::Display for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.read_only { "ro" } else { "rw" })?;
        let default = MountOptions::default();
        for show in TABLE.iter().filter_map(|row| row.show) {
            let value = show(self);
            if !value.is_empty() && value != "rw" && value != "ro" && value != show(&default) {
                write!(f, ",{}", value.replace('\\', "\\\\").replace(',', "\\,"))?;
            }
        }
        Ok(())
    }
}

/// Splits at commas that are neither escaped nor within double quotes; empty
/// items vanish, escapes are undone, quotes stay for [`unquote`].
fn split(text: &str) -> Vec<String> {
    let mut items = vec![];
    let mut item = String::new();
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek().is_some_and(|n| matches!(n, ',' | '\\')) => {
                item.extend(chars.next());
            }
            '"' => {
                quoted = !quoted;
                item.push(c);
            }
            ',' if !quoted => items.push(std::mem::take(&mut item)),
            _ => item.push(c),
        }
    }
    items.push(item);
    items.retain(|i| !i.is_empty());
    items
}

fn unquote(value: &str) -> String {
    match value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) {
        Some(inner) => inner.to_string(),
        None => value.to_string(),
    }
}

#[cfg(test)]
mod tests;
