//! The daemon's own walls: what a mount has given up, and that what is behind them cannot be reached.

use crate::common::mount::daemons;
use crate::common::{Fs, Scratch, peer_is_kernel};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use uext4::fuse::sandbox;
use uext4::options::MountOptions;

/// What `/proc` says of each thread's rights, over all threads of these processes.
fn rights(pids: &[i32]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for pid in pids {
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let wanted = ["CapEff", "CapPrm", "NoNewPrivs", "Seccomp"];
            let lines = status.lines().filter_map(|l| l.split_once(":"));
            let of = lines.filter(|(key, _)| wanted.contains(key));
            all.extend(of.map(|(key, value)| format!("{key} {}", value.trim())));
        }
    }
    all
}

/// The process that serves the mount: the one that has the image open.
fn serving(image: &Path) -> Vec<i32> {
    let has_image = |pid: &i32| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let mut fds = fds.into_iter().flatten().flatten();
        fds.any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == image))
    };
    daemons(image).into_iter().filter(has_image).collect()
}

#[test]
fn a_mount_has_given_up_its_rights() {
    if peer_is_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "32M", &[]);
    let mount = scratch.mount(Fs::Uext4, &image, "");
    std::fs::write(mount.join("file"), b"served").unwrap();
    let pids = serving(image.path());
    assert_eq!(pids.len(), 1, "{pids:?}");
    let none = "0000000000000000";
    let want = [
        format!("CapEff {none}"),
        format!("CapPrm {none}"),
        "NoNewPrivs 1".into(),
        "Seccomp 2".into(),
    ];
    assert_eq!(rights(&pids), BTreeSet::from(want));
    // Nothing is open but the image, /dev/fuse, /dev/null, what it writes its log to, and things without a name.
    let log = mount.path().with_extension("log");
    for fd in std::fs::read_dir(format!("/proc/{}/fd", pids[0])).unwrap().flatten() {
        let Ok(to) = std::fs::read_link(fd.path()) else { continue };
        let ours = [image.path(), Path::new("/dev/fuse"), Path::new("/dev/null"), &log];
        let nameless = !to.starts_with("/");
        assert!(nameless || ours.contains(&&*to), "{to:?} is open");
    }
    mount.umount();
    image.fsck();
}

#[test]
fn nosandbox_keeps_them() {
    if peer_is_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "32M", &[]);
    let mount = scratch.mount(Fs::Uext4, &image, "nosandbox");
    let have = rights(&serving(image.path()));
    assert!(have.contains("Seccomp 0") && have.contains("NoNewPrivs 0"), "{have:?}");
    mount.umount();
}

/// The other half of [`behind_the_walls_there_is_nothing`], in a process of its own.
#[test]
#[ignore = "started by behind_the_walls_there_is_nothing"]
fn behind_the_walls() {
    let image = PathBuf::from(std::env::var_os("UEXT4_WALLED_IMAGE").unwrap());
    let other = image.with_extension("other");
    let try_open = |path: &Path| File::options().read(true).write(true).open(path);
    let errno = |r: io::Result<File>| r.err().and_then(|e| e.raw_os_error());
    assert!(try_open(&other).is_ok());

    sandbox::before_opening(&image, &MountOptions::parse(&[""]).unwrap()).unwrap();
    assert!(try_open(&image).is_ok());
    for path in [&other, Path::new("/etc/passwd")] {
        assert_eq!(errno(try_open(path)), Some(libc::EACCES), "{path:?}");
    }
    assert_eq!(errno(File::create(image.with_extension("new"))), Some(libc::EACCES));
    assert!(
        std::net::TcpStream::connect(("127.0.0.1", 9))
            .is_err_and(|e| e.raw_os_error() == Some(libc::EACCES))
    );

    sandbox::before_parsing().unwrap();
    assert_eq!(errno(try_open(&image)), Some(libc::EACCES), "the image itself, again");

    sandbox::when_serving().unwrap();
    assert_eq!(errno(try_open(Path::new("/dev/null"))), Some(libc::EPERM));
    assert!(
        Command::new("/bin/true").status().is_err_and(|e| e.raw_os_error() == Some(libc::EPERM))
    );
    assert!(
        std::net::UdpSocket::bind("127.0.0.1:0")
            .is_err_and(|e| e.raw_os_error() == Some(libc::EPERM))
    );
    println!("nothing was reached");
}

#[test]
fn behind_the_walls_there_is_nothing() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "8M", &[]);
    std::fs::write(image.path().with_extension("other"), b"not yours").unwrap();
    let out = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "walls::behind_the_walls",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("UEXT4_WALLED_IMAGE", image.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("nothing was reached"), "{said}{complaints}");
}
