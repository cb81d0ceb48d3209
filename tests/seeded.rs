//! Breaks one rule at a time, on purpose, and asserts that the crash explorer sees it within its budget; and
//! that it sees nothing when none is broken. Needs `--features seeded-faults`.

use std::time::Instant;
use uext4::crash::{
    Budget, Checker, History, ImageSpec, Op, Setup, Wrong, explore, record, workloads,
};
use uext4::device::seeded::{Fault, seed};

/// States that a fault may take to be seen.
const BUDGET: usize = 300;

/// Where a fault shows: a workload's name or its operations, and mount options.
fn workload(fault: Fault) -> (&'static str, &'static str) {
    match fault {
        Fault::None => ("reuse", "dioread_nolock"),
        Fault::NoFlushBeforeCommit => ("create-fsync-rename", "dioread_nolock"),
        Fault::CommitNotStable => ("append-fsync", "dioread_nolock"),
        Fault::ConvertBeforeData => ("create-fsync-rename", "dioread_nolock"),
        Fault::OrderedNotWaited => ("create-fsync-rename", "dioread_lock"),
        Fault::FreedReusedAtOnce => (
            "create /a\nwrite /a 0 60000\nsync\ntruncate /a 0\ncreate /b\nwrite /b 0 60000\nfsync /b\n",
            "dioread_nolock",
        ),
        Fault::MissingRevoke => ("revoked", "dioread_nolock"),
        Fault::SizeBeforeData => (
            "create /a\nfsync /a\nwrite /a 0 5000\nchmod /a 384\ncommit\nfsync /a\n",
            "dioread_nolock",
        ),
        Fault::CheckpointUncommitted => ("many-files", "dioread_nolock"),
        Fault::SpaceBeforeTail => ("wrap", "dioread_nolock"),
        Fault::NoFlushBeforeTail => ("many-files", "dioread_nolock"),
        Fault::NoOrphan => ("open-unlinked", "dioread_nolock"),
        Fault::RenameWithoutData => ("replace-rename", "dioread_nolock"),
        Fault::TailNotZeroed => ("truncate-extend", "dioread_nolock"),
        Fault::FsyncWithoutCommit => ("create-fsync-rename", "dioread_nolock"),
        Fault::UnlinkInTwo => ("link-unlink", "dioread_nolock"),
        Fault::NoRecoverFlag => ("create-fsync-rename", "dioread_nolock"),
        Fault::EscapeNotNoted => ("create-fsync-rename", "data=journal"),
        Fault::FdatasyncForgotten => ("append-fsync", "dioread_nolock"),
        Fault::SizeInAnother => {
            ("create /a\nfsync /a\nwrite /a 0 5000\nwriteout /a\nfsync /a\n", "dioread_nolock")
        }
        Fault::DirectBeforeData => ("direct-extend", "dioread_nolock"),
        Fault::CloseWithoutData => ("replace-truncate", "dioread_nolock"),
    }
}

/// Files with blocks of their own metadata are freed, and files are written where those were. Several, since
/// the allocator may use one or two of the blocks for metadata again.
fn revoked() -> Vec<Op> {
    let mut text = String::new();
    for f in 0..6 {
        text += &format!("create /a{f}\n");
        for i in 0..24 {
            text += &format!("write /a{f} {} 1024\n", 2048 * i);
        }
    }
    text += "sync\n";
    (0..6).for_each(|f| text += &format!("unlink /a{f}\n"));
    // Time for the thread that ends them.
    text += "sleep 100\nsync\n";
    for i in 0..24 {
        text += &format!("create /f{i}\nwrite /f{i} 0 390000\n");
    }
    Op::parse_all(&(text + "sync\n")).unwrap()
}

/// The states it took, and what was wrong with the last.
fn run(fault: Fault) -> (usize, Option<Wrong>) {
    let scratch = tempfile::tempdir().unwrap();
    let (name, options) = workload(fault);
    let image = ImageSpec { size: 12 << 20, mkfs: "-b 1024 -J size=1".into() };
    let setup = Setup { image, options: options.into() };
    let ops = match name {
        "revoked" => revoked(),
        _ => workloads::by_name(name, 1024).unwrap_or_else(|| Op::parse_all(name).unwrap()),
    };
    seed(fault);
    let recorded = record(&setup, &ops, scratch.path());
    // What recovers is as it should be.
    seed(Fault::None);
    let recorded = match recorded {
        Ok(r) => r,
        Err(e) => return (0, Some(vec![format!("the workload itself failed: {e}")])),
    };
    let history = History::new(recorded.image, &recorded.log).unwrap();
    let checker = Checker::new(&history.base, &history.entries, recorded.promise).unwrap();
    // Only e2fsck minds blocks beyond the size.
    let fsck_every = if fault == Fault::SizeInAnother { 2 } else { 20 };
    let budget = Budget { states: BUDGET, fsck_every, interrupt_every: 0, ..Budget::default() };
    let report = explore(&history, &checker, &budget, scratch.path(), &mut |_, _| {}).unwrap();
    (report.states, report.failing.first().map(|f| f.wrong.clone()))
}

#[test]
fn every_fault_is_seen() {
    let (states, wrong) = run(Fault::None);
    assert_eq!(wrong, None, "with no fault");
    println!("no fault: {states} states, nothing wrong");
    let mut unseen = Vec::new();
    for fault in Fault::ALL {
        let began = Instant::now();
        match run(fault) {
            (states, Some(wrong)) => {
                let ms = began.elapsed().as_millis();
                println!("{fault:?}: seen after {states} states, {ms} ms: {}", wrong[0]);
            }
            (states, None) => unseen.push((fault, states)),
        }
    }
    assert!(unseen.is_empty(), "not seen: {unseen:?}");
}
