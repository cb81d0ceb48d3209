//! Crashes at every instant: workloads recorded in memory, the disk rebuilt for subsets of the writes that
//! were in doubt, mounted, walked, and held against what the system calls promised. e2fsck and the
//! kernel judge samples.
//!
//! `UEXT4_TEST_SCALE=full` tries many more states; `uext4 crash run all --matrix` all there are.

use std::path::Path;
use uext4::crash::{
    Budget, Checker, Failing, History, ImageSpec, Op, Report, Setup, explore, record,
    record_threads, workloads,
};

fn full() -> bool {
    std::env::var("UEXT4_TEST_SCALE").as_deref() == Ok("full")
}

fn setup(size_mib: u64, mkfs: &str, options: &str) -> Setup {
    let image = ImageSpec { size: size_mib << 20, mkfs: mkfs.into() };
    Setup { image, options: options.into() }
}

fn tell(name: &str, setup: &Setup, f: &Failing) -> String {
    format!(
        "{name} on [{}] with [{}]: state {}\n  {}\n    {}",
        setup.image.mkfs,
        setup.options,
        f.state,
        f.wrong.join("\n  "),
        f.story.join("\n    ")
    )
}

fn try_ops(name: &str, ops: &[Op], setup: &Setup, budget: &Budget, scratch: &Path) -> Report {
    let recorded = record(setup, ops, scratch).unwrap();
    let history = History::new(recorded.image, &recorded.log).unwrap();
    let checker = Checker::new(&history.base, &history.entries, recorded.promise).unwrap();
    let report = explore(&history, &checker, budget, scratch, &mut |_, _| {}).unwrap();
    if let Some(f) = report.failing.first() {
        panic!("{}", tell(name, setup, f));
    }
    report
}

/// Every workload with these images and options, `states` states each.
fn all(setups: &[Setup], states: usize) {
    let scratch = tempfile::tempdir().unwrap();
    let states = if full() { states * 20 } else { states };
    let budget = Budget { states, fsck_every: 12, interrupt_every: 9, ..Budget::default() };
    let mut total = Report::default();
    for setup in setups {
        let block = if setup.image.mkfs.contains("4096") { 4096 } else { 1024 };
        for name in workloads::NAMES {
            let ops = workloads::by_name(name, block).unwrap();
            total.add(try_ops(name, &ops, setup, &budget, scratch.path()));
        }
    }
    assert!(total.states > setups.len() * workloads::NAMES.len() * 10, "{total:?}");
    println!("{} states, {:.0} per second, {} by e2fsck", total.states, total.rate(), total.fscks);
}

const SMALL: &str = "-b 1024 -J size=1";
const USUAL: &str = "-b 4096 -J size=4 -O orphan_file";

#[test]
fn nolock_and_delalloc() {
    all(&[setup(12, SMALL, "dioread_nolock"), setup(20, USUAL, "dioread_nolock")], 45);
}

#[test]
fn the_other_lock_modes() {
    all(&[setup(12, SMALL, "dioread_lock"), setup(20, USUAL, "dioread_shared")], 34);
}

#[test]
fn without_delayed_allocation() {
    let (a, b) = ("nodelalloc,dioread_nolock", "nodelalloc,dioread_lock");
    all(&[setup(12, SMALL, a), setup(12, SMALL, b)], 34);
}

#[test]
fn the_other_data_modes() {
    all(
        &[
            setup(12, SMALL, "data=journal"),
            setup(12, SMALL, "data=writeback,dioread_lock"),
            setup(12, SMALL, "data=writeback,journal_async_commit"),
        ],
        30,
    );
}

#[test]
fn without_features_and_with_them() {
    all(
        &[
            setup(12, "-b 1024 -J size=1 -O ^metadata_csum,^64bit,^flex_bg", ""),
            setup(12, "-b 1024 -J size=1 -I 128 -O ^extents,^64bit,^dir_index,^huge_file", ""),
            setup(20, "-b 4096 -J size=4 -O inline_data,ea_inode,metadata_csum_seed", ""),
        ],
        30,
    );
}

#[test]
fn random_workloads() {
    let scratch = tempfile::tempdir().unwrap();
    let budget = Budget { states: 60, fsck_every: 8, interrupt_every: 9, ..Budget::default() };
    let options = [
        "dioread_nolock",
        "dioread_lock",
        "nodelalloc,dioread_shared",
        "data=journal",
        "data=writeback",
    ];
    for seed in 0..if full() { 400 } else { 20 } {
        let mkfs = [SMALL, "-b 4096 -J size=4 -O orphan_file,inline_data,ea_inode"];
        let setup = setup(16, mkfs[seed % 2], options[seed % options.len()]);
        let name = format!("random:{seed}");
        let ops = workloads::by_name(&name, if seed % 2 == 0 { 1024 } else { 4096 }).unwrap();
        try_ops(&name, &ops, &setup, &budget, scratch.path());
    }
}

/// Four threads at once, with commits, flusher and reaper at their own pace.
#[test]
fn threads_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let budget = Budget { states: 150, fsck_every: 2, interrupt_every: 11, ..Budget::default() };
    for seed in 0..if full() { 200 } else { 8u64 } {
        let options = ["dioread_nolock", "dioread_lock", "data=journal", "nodelalloc"];
        let options = format!(
            "{},commit=1,dirty_writeback=1,dirty_expire=1",
            options[seed as usize % options.len()]
        );
        let setup = setup(16, if seed % 2 == 0 { SMALL } else { USUAL }, &options);
        let each: Vec<Vec<Op>> =
            (0..4).map(|t| workloads::random(seed * 4 + t, 80, 1024)).collect();
        let recorded = record_threads(&setup, &each, scratch.path()).unwrap();
        let history = History::new(recorded.image, &recorded.log).unwrap();
        let checker = Checker::new(&history.base, &history.entries, recorded.promise).unwrap();
        let report = explore(&history, &checker, &budget, scratch.path(), &mut |_, _| {}).unwrap();
        if let Some(f) = report.failing.first() {
            panic!("{}", tell(&format!("threads, seed {seed}"), &setup, f));
        }
    }
}

/// The kernel replays what we logged, and e2fsck agrees.
#[test]
fn the_kernel_recovers_what_we_left() {
    let scratch = tempfile::tempdir().unwrap();
    let budget = Budget {
        states: 24,
        fsck_every: 0,
        kernel_every: 3,
        interrupt_every: 0,
        ..Budget::default()
    };
    for (name, mkfs, options) in [
        ("many-files", SMALL, "dioread_nolock"),
        ("reuse", USUAL, "dioread_lock"),
        ("open-unlinked", SMALL, "data=journal"),
    ] {
        let setup = setup(20, mkfs, options);
        let ops = workloads::by_name(name, 1024).unwrap();
        let report = try_ops(name, &ops, &setup, &budget, scratch.path());
        assert!(report.kernels > 4, "{report:?}");
    }
}
