//! The one harness of the whole-program tests: temporary places, images, mounts by uext4 and
//! by the kernel's ext4, and the outside oracles.
//!
//! Everything made here is taken away again when its owner is dropped, also when a test
//! panics. What a test needs from the machine and does not find makes it fail, never skip.
//!
//! `UEXT4_TEST_SCALE=full` runs the full sizes. `UEXT4` names another command to test.
//! `UEXT4_TEST_PEER=kernel` puts the kernel's ext4 in the place of uext4 everywhere: what fails
//! then is a fault of the test.

#![allow(dead_code)]

pub mod image;
pub mod mount;
pub mod reference;
pub mod tree;
pub mod workload;

pub use image::Image;
pub use mount::{Fs, Mount};
pub use tree::{Tree, View};

use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Whether the full sizes were asked for.
pub fn full() -> bool {
    static FULL: LazyLock<bool> =
        LazyLock::new(|| match std::env::var("UEXT4_TEST_SCALE").as_deref() {
            Ok("full") => true,
            Ok("quick" | "") | Err(_) => false,
            Ok(other) => panic!("UEXT4_TEST_SCALE is `{other}`: quick or full"),
        });
    *FULL
}

/// The one size or the other.
pub fn scaled<T>(quick: T, whole: T) -> T {
    if full() { whole } else { quick }
}

/// Whether the kernel's ext4 stands in for uext4, to try the tests themselves.
pub fn peer_is_kernel() -> bool {
    std::env::var("UEXT4_TEST_PEER").as_deref() == Ok("kernel")
}

/// The command under test.
pub fn uext4() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = std::env::var_os("UEXT4").unwrap_or_else(|| env!("CARGO_BIN_EXE_uext4").into());
        std::fs::canonicalize(&path).unwrap_or_else(|e| panic!("no uext4 at {path:?}: {e}"))
    });
    &PATH
}

/// Fails the test, naming what is missing, unless the machine has what mounting takes.
fn require_machine() {
    static MISSING: LazyLock<Option<String>> = LazyLock::new(|| {
        if !rustix::process::geteuid().is_root() {
            return Some("root: the tests mount with the kernel's ext4 over loop devices".into());
        }
        if !Path::new("/dev/fuse").exists() {
            return Some("/dev/fuse (modprobe fuse, or --device /dev/fuse)".into());
        }
        if !Path::new("/dev/loop-control").exists() {
            return Some("/dev/loop-control (modprobe loop)".into());
        }
        for (tool, package) in [
            ("mkfs.ext4", "e2fsprogs"),
            ("e2fsck", "e2fsprogs"),
            ("debugfs", "e2fsprogs"),
            ("mount", "mount"),
            ("rsync", "rsync"),
            ("setfacl", "acl"),
        ] {
            if find_tool(tool).is_none() {
                return Some(format!("{tool} (Debian package {package})"));
            }
        }
        None
    });
    if let Some(missing) = &*MISSING {
        panic!("this test needs {missing}");
    }
}

/// Where a command is, in PATH, the system's own places and `target/tools/bin`.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .chain([tools])
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
}

/// A command by name; the test fails if it is not installed.
pub fn tool(name: &str) -> Command {
    let path = find_tool(name)
        .unwrap_or_else(|| panic!("this test needs {name}: `make test-needs` installs it"));
    let mut command = Command::new(path);
    command.env("LC_ALL", "C").env("TZ", "UTC").stdin(Stdio::null());
    command
}

/// Runs it to the end; answers what it printed on stdout, and fails the test if it failed.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() {
        let stderr = String::from_utf8_lossy(&out.stderr);
        panic!("{command:?}: {}\n{}{}", out.status, tail(&stdout), tail(&stderr));
    }
    stdout
}

/// Runs a shell script in a folder; fails the test if the script fails.
#[track_caller]
pub fn sh(dir: &Path, script: &str) -> String {
    run(tool("bash").current_dir(dir).args(["-euo", "pipefail", "-c", script]))
}

/// The last lines of a long text.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = lines[lines.len().saturating_sub(60)..].join("\n");
    out.push('\n');
    out
}

/// Held by every test: shared by those that may run beside others, alone by those that measure.
static MACHINE: RwLock<()> = RwLock::new(());

enum Held {
    Shared(#[allow(unused)] RwLockReadGuard<'static, ()>),
    Alone(#[allow(unused)] RwLockWriteGuard<'static, ()>),
}

/// A folder for one test, and a watchdog over it.
///
/// When the test ends, mounts below the folder are taken down and the folder is deleted. A test
/// that takes longer than the limit has its daemons killed, so that it fails instead of hanging.
pub struct Scratch {
    dir: PathBuf,
    watchdog: Arc<(Mutex<bool>, Condvar)>,
    _held: Held,
}

impl Scratch {
    /// A place for a test that may run beside others.
    pub fn new() -> Scratch {
        require_machine();
        Scratch::with(Held::Shared(MACHINE.read_recursive()))
    }

    /// A place for a test that measures time, and so runs alone.
    pub fn alone() -> Scratch {
        require_machine();
        Scratch::with(Held::Alone(MACHINE.write()))
    }

    fn with(held: Held) -> Scratch {
        let dir = tempfile::Builder::new().prefix("uext4-test.").tempdir().unwrap().keep();
        let dir = std::fs::canonicalize(dir).unwrap();
        let watchdog = Arc::new((Mutex::new(false), Condvar::new()));
        let (theirs, watched) = (watchdog.clone(), dir.clone());
        let limit = Duration::from_secs(scaled(240, 4 * 3600));
        std::thread::spawn(move || {
            let deadline = Instant::now() + limit;
            let mut done = theirs.0.lock();
            while !*done {
                if theirs.1.wait_until(&mut done, deadline).timed_out() {
                    eprintln!("no end after {limit:?}: killing the daemons below {watched:?}");
                    mount::kill_daemons(&watched);
                    let grace = Instant::now() + Duration::from_secs(60);
                    while !*done {
                        if theirs.1.wait_until(&mut done, grace).timed_out() {
                            eprintln!("still no end: giving up");
                            mount::umount_below(&watched);
                            std::process::exit(1);
                        }
                    }
                }
            }
        });
        Scratch { dir, watchdog, _held: held }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// A path in the folder.
    pub fn join(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.dir.join(name.as_ref())
    }

    /// A new image made by `mkfs.ext4 ARGS`.
    #[track_caller]
    pub fn mkfs(&self, name: &str, size: &str, args: &[&str]) -> Image {
        Image::mkfs(self.join(name), size, args)
    }

    /// Mounts the image at a mount point made for it.
    #[track_caller]
    pub fn mount(&self, fs: Fs, image: &Image, options: &str) -> Mount {
        let name = image.path().file_name().unwrap().to_string_lossy();
        let kind = if fs == Fs::Kernel { "kernel" } else { "uext4" };
        let point = self.join(format!("{name}.{kind}"));
        std::fs::create_dir_all(&point).unwrap();
        Mount::new(fs, image.path(), &point, options)
    }

    /// What the file system of an image holds, as `fs` reads it.
    #[track_caller]
    pub fn read(&self, fs: Fs, image: &Image) -> Tree {
        let mount = self.mount(fs, image, "ro");
        let tree = Tree::read(mount.path());
        mount.umount();
        tree
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        *self.watchdog.0.lock() = true;
        self.watchdog.1.notify_all();
        mount::kill_daemons(&self.dir);
        mount::umount_below(&self.dir);
        if std::thread::panicking() && std::env::var_os("UEXT4_TEST_KEEP").is_some() {
            eprintln!("kept: {}", self.dir.display());
            return;
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A generator of test data that is the same in every run: splitmix64.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(n + 8);
        while out.len() < n {
            out.extend_from_slice(&self.next().to_le_bytes());
        }
        out.truncate(n);
        out
    }
}
