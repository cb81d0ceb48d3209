//! No poison is ever read: live, and after a crash at any instant; and where conversion is broken on
//! purpose, the same tests see it.

use super::{MODES, poison::storm};
use crate::common::scaled;
use std::time::Duration;
use uext4::crash::{Budget, Checker, History, ImageSpec, Op, Report, Setup, explore, record};

const BLOCKS: [&str; 3] = ["4096", "1024", "65536"];

fn time() -> Duration {
    Duration::from_secs(scaled(2, 60))
}

#[test]
fn never_in_any_mode() {
    for (i, mode) in MODES.into_iter().enumerate() {
        for engine in ["", ",disk_model=nvme"] {
            let options = format!("dioread_{mode}{engine}");
            storm(BLOCKS[i], &options, false, time()).unwrap_or_else(|e| panic!("{options}: {e}"));
        }
    }
    storm("4096", "nodelalloc", false, time()).unwrap();
}

#[test]
fn never_while_the_mode_flips() {
    for block in BLOCKS {
        storm(block, "", true, time()).unwrap_or_else(|e| panic!("{block}: {e}"));
    }
    storm("4096", "disk_model=nvme", true, time()).unwrap();
}

/// Direct and buffered writes over holes, unwritten and old blocks, cut short anywhere.
const WORK: &str = "create /a
write /a 0 30000
fsync /a
dwrite /a 32768 16384
dwrite /a 131072 8192
truncate /a 20000
dwrite /a 24576 4096
create /b
dwrite /b 0 65536
write /b 65536 20000
fsync /b
falloc /b 4096 16384 3
dwrite /b 8192 4096
dwrite /b 98304 4096
fsync /b
unlink /a
create /c
dwrite /c 0 131072
sync
";

fn crash(options: &str, states: usize) -> Report {
    let scratch = tempfile::tempdir().unwrap();
    let image = ImageSpec { size: 16 << 20, mkfs: "-b 4096 -J size=4".into() };
    let setup = Setup { image, options: options.into() };
    let ops = Op::parse_all(WORK).unwrap();
    let recorded = record(&setup, &ops, scratch.path()).unwrap();
    let history = History::new(recorded.image, &recorded.log).unwrap();
    let checker = Checker::new(&history.base, &history.entries, recorded.promise).unwrap();
    let budget = Budget { states, fsck_every: 20, interrupt_every: 9, ..Budget::default() };
    explore(&history, &checker, &budget, scratch.path(), &mut |_, _| {}).unwrap()
}

#[test]
fn never_after_a_crash() {
    for mode in MODES {
        let report = crash(&format!("dioread_{mode}"), scaled(150, 5000));
        assert!(report.states > 50, "{report:?}");
        let wrong = report.failing.first().map(|f| format!("{}: {:?}", f.state, f.wrong));
        assert_eq!(wrong, None, "{mode}");
    }
}

/// In a build with faults, each of the two kinds of test above finds that an extent turned written before
/// its data was. The fault is the whole process's, so it has one of its own.
#[cfg(feature = "seeded-faults")]
mod broken {
    use super::*;
    use uext4::device::seeded::{Fault, seed};

    const HERE: &str = "UEXT4_TEST_BROKEN";

    #[test]
    fn conversion_before_the_data_is_seen() {
        for test in ["live", "crashed"] {
            let out = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &format!("stale::broken::{test}"), "--ignored", "--nocapture"])
                .env(HERE, "1")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(out.status.success(), "{test}: {said}{}", String::from_utf8_lossy(&out.stderr));
            println!("{said}");
        }
    }

    fn alone() -> bool {
        std::env::var_os(HERE).is_some()
    }

    #[test]
    #[ignore = "breaks the whole process; run by conversion_before_the_data_is_seen"]
    fn live() {
        assert!(alone());
        seed(Fault::ConvertBeforeData);
        let what = storm("4096", "", false, Duration::from_secs(60)).unwrap_err();
        println!("with the fault: {what}");
        assert!(what.contains("poison"), "{what}");
    }

    #[test]
    #[ignore = "breaks the whole process; run by conversion_before_the_data_is_seen"]
    fn crashed() {
        assert!(alone());
        seed(Fault::ConvertBeforeData);
        let report = crash("dioread_nolock", 300);
        let first = report.failing.first().expect("no state shows it");
        println!("with the fault, {}: {:?}", first.state, first.wrong);
    }
}
