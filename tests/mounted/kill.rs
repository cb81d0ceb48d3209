//! `kill -9` of the daemon in the middle of a load: the next mount recovers, what was fsynced is
//! there, and the kernel recovers the same from a copy.

use crate::common::mount::{is_mounted, kill_daemons};
use crate::common::workload::{self, Synced};
use crate::common::{
    Fs, Mount, Random, Scratch, View, peer_is_kernel, reference, scaled, tool, uext4,
};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One load: given the mounted root and what to record fsyncs in, it works until it ends or fails.
type Load<'a> = dyn Fn(&Path, &Synced) -> io::Result<()> + Sync + 'a;

/// Mounts, starts the loads, kills the daemon after a while, and checks what is left; repeatedly.
#[track_caller]
fn rounds(size: &str, mkfs: &[&str], options: &str, loads: &[&Load]) {
    let kernel_can = !mkfs.contains(&"65536");
    if peer_is_kernel() && !kernel_can {
        return;
    }
    let scratch = Scratch::new();
    let mut random = Random::new(size.len() as u64 + mkfs.len() as u64 * 7);
    for round in 0..scaled(3, 34) {
        let image = scratch.mkfs("img", size, mkfs);
        let mount = scratch.mount(Fs::Uext4, &image, options);
        let synced = Synced::default();
        let delay = Duration::from_millis(30 + random.below(scaled(1500, 3000)));
        let root = mount.path().to_path_buf();
        killed_after(mount, delay, &root, &synced, loads);

        let what = format!("round {round}, killed after {delay:?}, {} fsyncs", synced.len());
        eprintln!("{what}");
        let copy = kernel_can.then(|| image.copy("copy"));
        let mount = scratch.mount(Fs::Uext4, &image, options);
        synced.check(mount.path());
        mount.umount();
        image.fsck();
        if let Some(copy) = copy {
            let mount = scratch.mount(Fs::Kernel, &copy, "");
            synced.check(mount.path());
            mount.umount();
            copy.fsck();
            let (ours, theirs) = (scratch.read(Fs::Uext4, &image), scratch.read(Fs::Kernel, &copy));
            ours.assert_matches(&theirs, View::Copy, &what);
        }
    }
}

#[track_caller]
fn killed_after(mount: Mount, delay: Duration, root: &Path, synced: &Synced, loads: &[&Load]) {
    let killed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for load in loads {
            let killed = &killed;
            scope.spawn(move || {
                if let Err(e) = load(root, synced) {
                    assert!(killed.load(Ordering::SeqCst), "the load failed before the kill: {e}");
                }
            });
        }
        std::thread::sleep(delay);
        killed.store(true, Ordering::SeqCst);
        mount.kill();
    });
}

fn churn(seed: u64) -> impl Fn(&Path, &Synced) -> io::Result<()> {
    move |root, synced| workload::churn(root, seed, synced)
}

#[test]
fn during_churn() {
    rounds("128M", &[], "", &[&churn(1), &churn(2), &churn(3)]);
}

#[test]
fn during_churn_in_1k() {
    rounds("64M", &["-b", "1024"], "", &[&churn(4), &churn(5)]);
}

#[test]
fn during_churn_in_64k() {
    rounds("256M", &["-b", "65536"], "", &[&churn(6), &churn(7)]);
}

#[test]
fn during_churn_with_an_orphan_file() {
    rounds("64M", &["-O", "orphan_file,metadata_csum_seed"], "", &[&churn(8), &churn(9)]);
}

#[test]
fn during_churn_without_checksums_or_64bit() {
    rounds("64M", &["-O", "^metadata_csum,^64bit"], "", &[&churn(10), &churn(11)]);
}

#[test]
fn during_churn_in_ext3() {
    rounds("64M", &["-t", "ext3", "-b", "1024"], "", &[&churn(12)]);
}

#[test]
fn during_churn_with_data_in_the_journal() {
    rounds("128M", &[], "data=journal", &[&churn(13), &churn(14)]);
}

#[test]
fn during_churn_with_a_small_journal() {
    rounds("64M", &["-b", "1024", "-J", "size=1"], "commit=1", &[&churn(15), &churn(16)]);
}

#[test]
fn during_churn_without_delayed_allocation() {
    rounds("64M", &[], "nodelalloc", &[&churn(17)]);
}

#[test]
fn during_many_names() {
    let inodes = scaled("30000", "310000");
    rounds(
        "256M",
        &["-b", "1024", "-N", inodes],
        "",
        &[&|root, synced| workload::names(root, scaled(20_000, 300_000), synced)],
    );
}

#[test]
fn during_many_extents() {
    rounds(
        "256M",
        &["-b", "1024"],
        "",
        &[&|root, synced| workload::extents(root, scaled(9000, 20_000), 1024, synced)],
    );
}

#[test]
fn during_many_folders() {
    rounds(
        "256M",
        &["-b", "1024", "-N", "72000"],
        "",
        &[&|root, synced| workload::folders(root, 0, 70_000, synced)],
    );
}

#[test]
fn while_full() {
    rounds(
        "32M",
        &[],
        "",
        &[&|root, _| {
            for seed in 0.. {
                workload::fill(root, seed)?;
                std::fs::remove_dir_all(root.join("fill"))?;
            }
            Ok(())
        }],
    );
}

#[test]
fn during_a_copy_of_a_real_tree() {
    let scratch = Scratch::new();
    let original = reference::mount(&scratch, scaled(800, 20_000));
    let from = original.join(".");
    rounds(
        "1G",
        &[],
        "",
        &[&|root, _| {
            let out = tool("cp").arg("-a").arg(&from).arg(root).output()?;
            if out.status.success() { Ok(()) } else { Err(io::Error::other("cp was cut short")) }
        }],
    );
}

/// Killed again and again, each time while it still has to recover from the last.
#[test]
fn again_during_recovery() {
    if peer_is_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "128M", &[]);
    let synced = Synced::default();
    for round in 0..scaled(6, 60) {
        let mount = scratch.mount(Fs::Uext4, &image, "");
        synced.check(mount.path());
        let root = mount.path().to_path_buf();
        let delay = Duration::from_millis(20 + 37 * (round % 11));
        killed_after(mount, delay, &root, &synced, &[&churn(100 + round)]);
    }
    let mount = scratch.mount(Fs::Uext4, &image, "");
    synced.check(mount.path());
    mount.umount();
    image.fsck();
}

/// What a dead daemon left is not called clean.
#[test]
fn umount_of_a_dead_daemon_says_so() {
    if peer_is_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "32M", &[]);
    let mount = scratch.mount(Fs::Uext4, &image, "");
    kill_daemons(image.path());
    let mut command = tool("timeout");
    let out = command.arg("60").arg(uext4()).arg("umount").arg(mount.path()).output().unwrap();
    assert_eq!(out.status.code(), Some(32), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("daemon"), "{out:?}");
    assert!(!is_mounted(mount.path()));
    scratch.mount(Fs::Uext4, &image, "").umount();
    image.fsck();
}

/// The machine's side: the daemon's writes are recorded, it is killed, and the disk is rebuilt as a loss of power
/// would have left it at other instants of that run.
#[test]
fn with_the_recorder_below() {
    if peer_is_kernel() {
        return;
    }
    let scratch = Scratch::new();
    for round in 0..scaled(1, 10) {
        let image = scratch.mkfs("img", "32M", &["-b", "1024"]);
        let before = image.copy("before");
        let log = image.path().with_file_name("log");
        let mount = scratch.mount(Fs::Uext4, &image, &format!("record={}", log.display()));
        let root = mount.path().to_path_buf();
        let delay = Duration::from_millis(1200);
        killed_after(mount, delay, &root, &Synced::default(), &[&churn(200 + round)]);
        let states = scaled("60", "1000");
        let out = std::process::Command::new(uext4())
            .args(["crash", "explore", "--fsck-every", "5", "--states", states])
            .args([&*log, before.path()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && said.contains(" 0 wrong"), "round {round}: {said}");
        assert!(!said.starts_with("1 states"), "round {round}: the log is empty: {said}");
        eprintln!("round {round}: {said}");
    }
}
