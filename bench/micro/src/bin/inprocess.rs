//! What metadata operations cost without FUSE: `inprocess [COUNT] [CLIENTS] [ROUNDS]` makes, looks at, renames
//! and removes COUNT files of one directory in memory, and prints microseconds of CPU per operation.

use std::time::{Duration, Instant};
use uext4::fs::{Cred, Fs};
use uext4::types::Ino;

fn cpu() -> Duration {
    let all: u64 = std::fs::read_dir("/proc/self/task")
        .map(|tasks| {
            tasks
                .flatten()
                .filter_map(|t| std::fs::read_to_string(t.path().join("schedstat")).ok())
                .filter_map(|s| s.split_whitespace().next()?.parse::<u64>().ok())
                .sum()
        })
        .unwrap_or_default();
    Duration::from_nanos(all)
}

fn each(fs: &Fs, what: &str, count: u64, clients: u64, f: impl Fn(&Fs, u64) + Sync) {
    let (wall, used) = (Instant::now(), cpu());
    let done = std::sync::Barrier::new(clients as usize + 1);
    let mut spent = Duration::ZERO;
    std::thread::scope(|s| {
        for c in 0..clients {
            let (f, done) = (&f, &done);
            s.spawn(move || {
                (0..count).filter(|i| i % clients == c).for_each(|i| f(fs, i));
                done.wait();
                done.wait();
            });
        }
        done.wait();
        spent = cpu().saturating_sub(used);
        done.wait();
    });
    let per = |d: Duration| d.as_secs_f64() * 1e6 / count as f64;
    println!("{what:>8} {:7.2} us of CPU, {:7.2} us", per(spent), per(wall.elapsed()));
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let count = args.next().unwrap_or(20_000);
    let clients = args.next().unwrap_or(1);
    let rounds = args.next().unwrap_or(3);
    let fs = uext4_micro::mount(uext4_micro::image(2048, &["-N", "400000"]));
    for round in 0..rounds {
        let dir = format!("dir{round}");
        let d = fs.mkdir(Cred::ROOT, Ino::ROOT, dir.as_bytes(), 0o755, 0).expect("mkdir").ino;
        let name = |i: u64| format!("file-{i:07}").into_bytes();
        let other = |i: u64| format!("other-{i:07}").into_bytes();
        each(&fs, "create", count, clients, |fs, i| {
            let s = fs.mknod(Cred::ROOT, d, &name(i), 0o644, 0, 0).expect("create");
            fs.open(s.ino, true).expect("open");
            fs.release(s.ino);
        });
        each(&fs, "stat", count, clients, |fs, i| {
            let s = fs.lookup(d, &name(i)).expect("lookup").expect("there");
            fs.forget(s.ino, 1);
        });
        each(&fs, "rename", count, clients, |fs, i| {
            fs.rename(Cred::ROOT, d, &name(i), d, &other(i), 0).expect("rename");
        });
        each(&fs, "unlink", count, clients, |fs, i| {
            let ino = fs.lookup(d, &other(i)).expect("lookup").expect("there").ino;
            fs.unlink(d, &other(i)).expect("unlink");
            fs.forget(ino, 2);
        });
        let t = Instant::now();
        fs.statfs();
        println!("{:>8} {:7.2} ms", "reaped", t.elapsed().as_secs_f64() * 1e3);
    }
    fs.unmount().expect("unmount");
}
