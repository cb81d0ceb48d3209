//! Every n-th read, write and flush of a workload fails, for all n: the error is reported, nothing hangs, and
//! after a remount on a good device everything that was made durable is there, each operation is whole,
//! no old contents show, and e2fsck has nothing to repair.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;
use uext4::crash::{
    Checker, Faulty, History, ImageSpec, Op, Setup, make_image, record_faulty, workloads,
};
use uext4::device::fault::Rule;
use uext4::device::{IoOp, MemDevice};

const OPTIONS: [(&str, &str, &str); 3] = [
    ("append-fsync", "-b 1024 -J size=1", "dioread_nolock"),
    ("xattrs", "-b 1024 -J size=1", "dioread_lock"),
    ("falloc-punch", "-b 4096 -J size=4 -O orphan_file", "nodelalloc"),
];

/// What e2fsck would change, but for the note that there were errors.
fn repairs(disk: &MemDevice, scratch: &Path) -> Option<String> {
    let path = scratch.join("judged.img");
    disk.save(&path).unwrap();
    let out = Command::new("e2fsck").arg("-fy").arg(&path).env("LC_ALL", "C").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let bad = text.contains("? yes") || text.contains("wrong") || out.status.code() > Some(1);
    bad.then_some(text)
}

struct Case {
    image: MemDevice,
    setup: Setup,
    ops: Vec<Op>,
    scratch: PathBuf,
}

impl Case {
    /// Runs with the rules, in a thread of its own so that a hang is a failure.
    fn run(self: &std::sync::Arc<Case>, rules: Vec<Rule>, label: &str) -> Faulty {
        let (tx, rx) = mpsc::channel();
        let case = self.clone();
        let thread = std::thread::spawn(move || {
            let r = record_faulty(&case.image, &rules, &case.setup, &case.ops, &case.scratch);
            let _ = tx.send(r);
        });
        match rx.recv_timeout(Duration::from_secs(60)) {
            Ok(r) => r.unwrap(),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{label}: it hangs"),
            Err(_) => std::panic::resume_unwind(thread.join().unwrap_err()),
        }
    }

    /// What is wrong after a run with a fault.
    fn judge(&self, f: &Faulty, fsck: bool) -> Vec<String> {
        let history = History::new(f.image.snapshot(), &f.log).unwrap();
        let checker = Checker::new(&history.base, &history.entries, f.promise).unwrap();
        let disk = std::sync::Arc::new(f.disk.snapshot());
        let mut wrong = checker.check(&disk, history.entries.len() as u64);
        wrong.retain(|w| !w.contains("errors were recorded"));
        if fsck && let Some(text) = repairs(&disk, &self.scratch) {
            wrong.push(text);
        }
        wrong
    }
}

fn sweep(op: IoOp) {
    let scratch = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    for (name, mkfs, options) in OPTIONS {
        let block = if mkfs.contains("4096") { 4096 } else { 1024 };
        let spec = ImageSpec { size: 12 << 20, mkfs: mkfs.into() };
        let setup = Setup { image: spec.clone(), options: options.into() };
        let case = std::sync::Arc::new(Case {
            image: make_image(&spec, scratch.path()).unwrap(),
            setup,
            ops: workloads::by_name(name, block).unwrap(),
            scratch: scratch.path().to_path_buf(),
        });
        let good = case.run(Vec::new(), name);
        assert_eq!(case.judge(&good, true), Vec::<String>::new(), "{name} without faults");
        let n = match op {
            IoOp::Read => good.counts.reads,
            IoOp::Write => good.counts.writes,
            IoOp::Flush => good.counts.flushes,
        };
        assert!(n > 3, "{name}: {:?}", good.counts);
        for i in 1..=n {
            // Once in two ways: this request fails, or all from it on.
            for dead in [false, true] {
                let rule = Rule::nth(op, i);
                let rule = if dead { rule.then_dead() } else { rule };
                let label = format!("{name}: {op:?} {i} of {n} fails, dead afterwards: {dead}");
                let f = case.run(vec![rule], &label);
                if f.counts.faults == 0 {
                    continue;
                }
                let mut wrong = case.judge(&f, i % 4 == 0);
                if f.errors.is_empty() && op != IoOp::Read {
                    wrong.push("no caller saw an error".into());
                }
                if !wrong.is_empty() {
                    failures.push(format!("{label}: {wrong:?}\n   errors: {:?}", f.errors));
                }
            }
        }
        println!("{name}: {n} requests of kind {op:?} failed, each in two ways");
    }
    let shown: Vec<String> = failures.iter().take(6).cloned().collect();
    assert!(failures.is_empty(), "{} cases wrong:\n{}", failures.len(), shown.join("\n"));
}

#[test]
fn every_read() {
    sweep(IoOp::Read);
}

#[test]
fn every_write() {
    sweep(IoOp::Write);
}

#[test]
fn every_flush() {
    sweep(IoOp::Flush);
}
