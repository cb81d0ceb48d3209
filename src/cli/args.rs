//! The command line, taken apart.

use super::failure::{Failure, say};
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// ext4 in user space: mounts an ext4 image or block device through FUSE, with its journal.
#[derive(Parser, Debug)]
#[command(
    name = "uext4",
    version,
    after_help = "uext4 SOURCE MOUNTPOINT [-o ...] is uext4 mount SOURCE MOUNTPOINT [-o ...]; \
                  uext4 -o help lists the mount options."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Mount an image or block device
    Mount(MountArgs),
    /// Mount the device alone, as one file named disk, to compare a file system with
    Raw(MountArgs),
    /// Unmount; returns when everything is on the device and the daemon has ended
    #[command(alias = "unmount")]
    Umount(UmountArgs),
    /// Show or set what a mount lets one see and turn
    Ctl(CtlArgs),
    /// Print events of a mount as they happen
    Trace(TraceArgs),
    /// Print where a file's blocks are, delayed ranges included
    Extents(ExtentsArgs),
    /// What a crash at any instant leaves on the disk, and whether it is right
    Crash(CrashArgs),
    /// Repeatable experiments over live mounts
    #[command(disable_help_flag = true)]
    Lab(Forwarded),
    /// A live view of a mount
    #[command(disable_help_flag = true)]
    Top(Forwarded),
}

/// `uext4 mount`.
#[derive(Args, Debug, Default)]
pub struct MountArgs {
    /// Stay in the foreground and log to standard error
    #[arg(short, long)]
    pub foreground: bool,
    /// Mount options, separated by commas; `-o help` lists them
    #[arg(short, value_name = "OPT[,OPT...]")]
    pub options: Vec<String>,
    /// Read-only, as -o ro
    #[arg(short, long)]
    pub read_only: bool,
    /// Say what is done
    #[arg(short, long)]
    pub verbose: bool,
    /// The image or block device
    #[arg(value_name = "SOURCE")]
    pub source: Option<PathBuf>,
    /// An existing directory
    #[arg(value_name = "MOUNTPOINT")]
    pub point: Option<PathBuf>,
}

/// `uext4 umount`.
#[derive(Args, Debug, Default)]
pub struct UmountArgs {
    /// Take the mount out of the tree at once, and do not wait for its users
    #[arg(short, long)]
    pub lazy: bool,
    /// Fail requests in flight
    #[arg(short, long)]
    pub force: bool,
    /// Say what is done
    #[arg(short, long)]
    pub verbose: bool,
    /// The mount point, or the image mounted there
    #[arg(value_name = "MOUNTPOINT")]
    pub target: PathBuf,
    /// Also unmount what is not ours (when umount(8) calls).
    #[arg(skip)]
    pub anything: bool,
}

/// `uext4 ctl`.
#[derive(Args, Debug)]
pub struct CtlArgs {
    /// A mount point, or a file or directory in one to ask about that inode
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// What to show, or to set; also sync and shutdown=default|logflush|nologflush
    #[arg(value_name = "NAME[=VALUE]")]
    pub items: Vec<String>,
}

/// `uext4 trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// The mount point
    #[arg(value_name = "MOUNTPOINT")]
    pub path: PathBuf,
    /// Event names, ino=NUMBER, path=PATH, json
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

/// `uext4 extents`.
#[derive(Args, Debug)]
pub struct ExtentsArgs {
    /// Files in uext4 mounts
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

/// `uext4 crash`.
#[derive(Args, Debug)]
pub struct CrashArgs {
    /// What to do
    #[command(subcommand)]
    pub command: CrashCommand,
}

/// What `uext4 crash` does.
#[derive(Subcommand, Debug)]
pub enum CrashCommand {
    /// Try the states that a crash may have left in a recorded run (-o record=LOG)
    Explore(ExploreArgs),
    /// Run workloads on a fresh image in memory, and try the states of each
    Run(RunArgs),
    /// Print the names of the workloads
    List,
}

/// How much is tried.
#[derive(Args, Debug)]
pub struct BudgetArgs {
    /// States to try at most, of each log
    #[arg(long, default_value_t = 1000)]
    pub states: usize,
    /// Seconds to take at most, for each log
    #[arg(long, default_value_t = 3600)]
    pub time: u64,
    /// Chooses the states
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Run e2fsck on every N-th state; 0 for none
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub fsck_every: usize,
    /// Let the kernel replay every N-th state; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub kernel_every: usize,
    /// Interrupt the recovery of every N-th state; 0 for none
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub interrupt_every: usize,
    /// Stop after so many wrong states of a log
    #[arg(long, default_value_t = 1)]
    pub failures: usize,
    /// Say more
    #[arg(short, long)]
    pub verbose: bool,
}

/// `uext4 crash explore`.
#[derive(Args, Debug)]
pub struct ExploreArgs {
    /// The log
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// The image as it was before
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// Only this state, as a report named it
    #[arg(long)]
    pub state: Option<String>,
    /// The run was data=writeback: old contents may show in what was not synced
    #[arg(long)]
    pub stale_ok: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub budget: BudgetArgs,
}

/// `uext4 crash run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Names of workloads, `all`, or files of operations
    #[arg(value_name = "WORKLOAD", required = true)]
    pub workloads: Vec<String>,
    /// Arguments for mke2fs
    #[arg(long, default_value = "-b 1024 -J size=1", allow_hyphen_values = true)]
    pub mkfs: String,
    /// Size of the image in MiB
    #[arg(long, default_value_t = 12)]
    pub size: u64,
    /// Mount options
    #[arg(short, value_name = "OPT[,OPT...]", default_value = "")]
    pub options: String,
    /// Every data mode, lock mode and image of the matrix instead
    #[arg(long)]
    pub matrix: bool,
    /// Keep the log and image as PATH.log and PATH.img; of several runs those that are wrong, as PATH-N
    #[arg(long, value_name = "PATH")]
    pub keep: Option<PathBuf>,
    /// Begin with the N-th run: where an interrupted one had got to
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub from: usize,
    /// Runs at once; 0 for as many as there are processors
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub jobs: usize,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub budget: BudgetArgs,
}

/// What another program takes apart.
#[derive(Args, Debug)]
pub struct Forwarded {
    /// Arguments for it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<OsString>,
}

/// Takes the arguments apart; `None` if help or version has been printed.
pub fn parse(mut argv: Vec<OsString>) -> Result<Option<Command>, Failure> {
    if means_mount(argv.get(1).map(OsString::as_os_str)) {
        argv.insert(1, "mount".into());
    }
    match Cli::try_parse_from(argv) {
        Ok(cli) => Ok(Some(cli.command)),
        Err(e) if !e.use_stderr() => {
            let _ = e.print();
            Ok(None)
        }
        Err(e) => Err(Failure::usage(first_line(&e.to_string()))),
    }
}

/// Whether the first argument is not a subcommand: then it is the SOURCE, or an
/// option, of a mount (the form that mount.fuse uses).
fn means_mount(first: Option<&OsStr>) -> bool {
    let Some(first) = first else { return false };
    let own = ["help", "-h", "--help", "-V", "--version"];
    let known = Cli::command()
        .get_subcommands()
        .any(|c| first == c.get_name() || c.get_all_aliases().any(|alias| first == alias));
    !known && !own.iter().any(|o| first == *o)
}

/// clap explains in many lines; the first says what is wrong, and which arguments are missing.
fn first_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().trim();
    if text.starts_with("Usage") || first.is_empty() || first.starts_with("ext4 in user space") {
        return "nothing to do; see uext4 --help".into();
    }
    let more: Vec<&str> = lines
        .take_while(|l| l.starts_with("  "))
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let separator = if more.is_empty() { "" } else { " " };
    format!("{first}{separator}{} (see uext4 --help)", more.join(" "))
}

/// Prints `text` on standard output; a closed pipe is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::system(format!("standard output: {e}")))
        }
        _ => Ok(()),
    }
}

/// What the user should know but that is no failure.
pub fn warn(text: &str) {
    say(&format!("warning: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &str) -> Result<Option<Command>, Failure> {
        parse(words.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn the_short_form_is_a_mount() {
        for words in [
            "uext4 disk.img /mnt -o ro,commit=1",
            "uext4 mount -o ro,commit=1 disk.img /mnt",
            "uext4 -o ro,commit=1 disk.img /mnt",
        ] {
            let Ok(Some(Command::Mount(m))) = command(words) else { panic!("{words}") };
            assert_eq!(m.options, ["ro,commit=1"]);
            assert_eq!(m.source.unwrap().to_str(), Some("disk.img"));
            assert_eq!(m.point.unwrap().to_str(), Some("/mnt"));
        }
    }

    #[test]
    fn wrong_usage_is_one_line_and_exit_code_1() {
        for (words, want) in [
            ("uext4", "nothing to do"),
            ("uext4 umount", "required arguments were not provided: <MOUNTPOINT>"),
            ("uext4 mount --frobnicate a b", "unexpected argument '--frobnicate'"),
            ("uext4 a b c", "unexpected argument 'c'"),
        ] {
            let e = command(words).unwrap_err();
            assert_eq!(e.code, 1);
            assert!(
                e.message.contains(want) && !e.message.contains('\n'),
                "{words}: {}",
                e.message
            );
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
