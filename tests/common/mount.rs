//! Mounts, by uext4 and by the kernel, their ends, and their violent ends.

use super::{peer_is_kernel, run, tool, uext4};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Which implementation of ext4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fs {
    Kernel,
    Uext4,
}

/// A mounted image. Dropping it without [`Mount::umount`] ends it by force.
pub struct Mount {
    fs: Fs,
    image: PathBuf,
    point: PathBuf,
    ended: bool,
}

impl Mount {
    /// Mounts, or fails the test.
    #[track_caller]
    pub fn new(fs: Fs, image: &Path, point: &Path, options: &str) -> Mount {
        match Mount::attempt(fs, image, point, options) {
            Ok(mount) => mount,
            Err(said) => panic!("{fs:?} does not mount {image:?} -o {options:?}: {said}"),
        }
    }

    /// Mounts, or answers what the mount command said.
    pub fn attempt(fs: Fs, image: &Path, point: &Path, options: &str) -> Result<Mount, String> {
        let fs = if peer_is_kernel() { Fs::Kernel } else { fs };
        let log = point.with_extension("log");
        let file = File::create(&log).unwrap();
        let mut command = match fs {
            Fs::Kernel => {
                let mut c = tool("mount");
                let options = if options.is_empty() { "loop" } else { &format!("loop,{options}") };
                c.args(["-t", "ext4", "-o", options]);
                c
            }
            Fs::Uext4 => {
                let mut c = tool("timeout");
                c.args(["-k", "5", "120"]).arg(uext4()).arg("mount");
                if !options.is_empty() {
                    c.args(["-o", options]);
                }
                c
            }
        };
        // Files, not pipes: the daemon may keep them open for as long as it lives.
        command.arg(image).arg(point).stdout(file.try_clone().unwrap()).stderr(file);
        let status = command.status().unwrap();
        if !status.success() {
            let said = String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned();
            return Err(format!("{status}: {said}"));
        }
        assert!(is_mounted(point), "{command:?} says that it mounted, and did not");
        Ok(Mount { fs, image: image.into(), point: point.into(), ended: false })
    }

    /// Takes over what somebody else mounted at `point`.
    pub fn adopt(fs: Fs, point: &Path) -> Mount {
        Mount { fs, image: point.with_extension("none"), point: point.into(), ended: false }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.point
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.point.join(name)
    }

    /// What the daemon or the mount command printed.
    pub fn log(&self) -> String {
        let log = std::fs::read(self.point.with_extension("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Unmounts: afterwards everything is in the image, and the daemon has ended.
    #[track_caller]
    pub fn umount(mut self) {
        let mut command = match self.fs {
            Fs::Kernel => tool("umount"),
            Fs::Uext4 => {
                let mut c = tool("timeout");
                c.args(["-k", "5", "180"]).arg(uext4()).arg("umount");
                c
            }
        };
        command.arg(&self.point);
        // A child that another thread is about to start may hold our files until it is started.
        let patience = Instant::now() + Duration::from_secs(3);
        loop {
            let out = command.output().unwrap();
            if out.status.success() {
                break;
            }
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            let busy = said.contains("busy") && Instant::now() < patience;
            assert!(busy, "{command:?}: {}: {said}", out.status);
            std::thread::sleep(Duration::from_millis(50));
        }
        self.ended = true;
        assert!(!is_mounted(&self.point), "{:?} is still mounted after umount", self.point);
        if self.fs == Fs::Kernel {
            self.await_loop_device();
        }
        // It has let go of the image; the process itself may take a moment more to vanish.
        let patience = Instant::now() + Duration::from_secs(5);
        while !daemons(&self.image).is_empty() {
            assert!(Instant::now() < patience, "umount came back and the daemon is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The kernel lets go of a loop device some time after the unmount.
    fn await_loop_device(&self) {
        let patience = Instant::now() + Duration::from_secs(10);
        let held = || !run(tool("losetup").arg("-j").arg(&self.image)).is_empty();
        while held() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the mount as a crash would: `kill -9` of the daemon; for the kernel, its shutdown
    /// ioctl without a flush of the log.
    #[track_caller]
    pub fn kill(mut self) {
        match self.fs {
            Fs::Kernel => {
                shutdown(&self.point, Shutdown::NoFlush);
                umount_below(&self.point);
            }
            Fs::Uext4 => {
                assert!(!daemons(&self.image).is_empty(), "no daemon serves {:?}", self.image);
                kill_daemons(&self.image);
                umount_below(&self.point);
            }
        }
        self.ended = true;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.ended {
            if std::thread::panicking() {
                eprintln!("{:?} of {:?} said:\n{}", self.fs, self.image, self.log());
            }
            kill_daemons(&self.image);
            umount_below(&self.point);
        }
    }
}

/// The three ways of FS_IOC_SHUTDOWN.
#[derive(Clone, Copy)]
pub enum Shutdown {
    /// Sync everything first.
    Sync = 0,
    /// Flush the log, but write nothing home.
    LogFlush = 1,
    /// Nothing more reaches the disk.
    NoFlush = 2,
}

/// ext4's shutdown ioctl, on the root of a mount.
#[track_caller]
pub fn shutdown(point: &Path, how: Shutdown) {
    const FS_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
    let root = File::open(point).unwrap();
    let word = how as u32;
    // SAFETY: the request reads one u32 from the pointer, which outlives the call.
    let rc = unsafe { libc::ioctl(root.as_raw_fd(), FS_IOC_SHUTDOWN as _, &raw const word) };
    assert_eq!(rc, 0, "FS_IOC_SHUTDOWN: {}", std::io::Error::last_os_error());
}

fn mount_points() -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    table.lines().filter_map(|l| l.split(' ').nth(1)).map(PathBuf::from).collect()
}

pub fn is_mounted(point: &Path) -> bool {
    mount_points().iter().any(|p| p == point)
}

/// Detaches every mount at or below `dir`, innermost first.
pub fn umount_below(dir: &Path) {
    for point in mount_points().iter().rev().filter(|p| p.starts_with(dir)) {
        let _ = tool("umount").arg(point).output();
        if is_mounted(point) {
            let _ = tool("umount").arg("-l").arg(point).output();
        }
    }
}

/// The processes of uext4 that were started with a path at or below `path`.
pub fn daemons(path: &Path) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        if !std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == uext4()) {
            continue;
        }
        let cmdline = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let named = cmdline
            .split(|b| *b == 0)
            .any(|arg| Path::new(std::ffi::OsStr::from_bytes(arg)).starts_with(path));
        if named {
            found.push(pid);
        }
    }
    found
}

/// `kill -9` of the daemons that serve an image at or below `path`; returns when they are gone.
pub fn kill_daemons(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let pids = daemons(path);
        if pids.is_empty() {
            return;
        }
        for pid in &pids {
            let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
        }
        if Instant::now() > deadline {
            eprintln!("{pids:?} survive SIGKILL");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
