//! The classic workloads, by name, and random ones.

use super::op::{How, Op};
use super::rng::Rng;

/// The names of the classic workloads.
pub const NAMES: &[&str] = &[
    "create-fsync-rename",
    "append-fsync",
    "truncate-extend",
    "link-unlink",
    "dir-rename",
    "falloc-punch",
    "replace-rename",
    "direct-extend",
    "open-unlinked",
    "xattrs",
    "enospc",
    "log",
    "many-files",
    "overwrite",
    "reuse",
    "fragmented",
    "wrap",
    "replace-truncate",
    "pgbench",
    "symlinks",
    "small-files",
];

/// A workload by name; `random:SEED` for a random one. `None` if there is none of that name. `block` is the
/// block size it should think of.
pub fn by_name(name: &str, block: u64) -> Option<Vec<Op>> {
    let b = block;
    let text = match name {
        "create-fsync-rename" => (0..6)
            .map(|i| {
                format!(
                    "create /t{i}\nwrite /t{i} 0 {}\nfsync /t{i}\nrename /t{i} /f{}\nfsync /\n",
                    b * 3 + 100 * i,
                    i % 2
                )
            })
            .collect(),
        "append-fsync" => {
            let mut t = "create /log\nfsync /\n".to_string();
            let mut at = 0;
            for i in 0..14 {
                let len = [100, b, 3 * b + 7, 512, 1, 2 * b - 1][i % 6];
                t += &format!("write /log {at} {len}\n");
                t += ["fsync /log\n", "fdatasync /log\n", "writeout /log\n", "commit\n"][i % 4];
                at += len;
            }
            t
        }
        "truncate-extend" => format!(
            "create /a\nwrite /a 0 {}\nfsync /a\ntruncate /a {}\ntruncate /a {}\nfsync /a\n\
             write /a {} {}\nwriteout /a\ntruncate /a 100\nwrite /a 100 {}\ncommit\ntruncate /a {}\nwrite /a {} {}\n\
             fsync /a\ntruncate /a 0\nwrite /a 0 {}\ntruncate /a {}\ntruncate /a {}\ncommit\nwriteout /a\ncommit\n\
             truncate /a 5\nfsync /a\nwrite /a {} 10\nfsync /a\n",
            8 * b,
            b + 17,
            6 * b,
            7 * b + 3,
            2 * b,
            b,
            9 * b,
            12 * b,
            b,
            5 * b,
            3 * b + 1,
            20 * b,
            4 * b + 9
        ),
        "link-unlink" => format!(
            "create /a\nwrite /a 0 {}\nlink /a /b\nfsync /a\nunlink /a\nlink /b /c\nunlink /b\nfsync /c\n\
             mkdir /d\nlink /c /d/x\ncommit\nunlink /c\nrename /d/x /y\nrmdir /d\nfsync /y\nunlink /y\nsync\n\
             create /a\nlink /a /b\nunlink /a\nunlink /b\ncommit\n",
            2 * b
        ),
        "dir-rename" => format!(
            "mkdir /d1\nmkdir /d2\nmkdir /d1/s\ncreate /d1/s/f\nwrite /d1/s/f 0 {b}\nfsync /d1/s/f\nsync\n\
             rename /d1/s /d2/t\nfsync /d2\nrename /d2/t /u\ncommit\nrename /d1 /u/d1\nrename /u/f /u/d1/g\nfsync /u/d1/g\n\
             mkdir /e\nexchange /e /u\ncommit\nmkdir /v\nrename /v /u\nrmdir /u\nfsync /\n"
        ),
        "falloc-punch" => format!(
            "create /a\nfalloc /a 0 {} 0\nwrite /a {b} {}\nfsync /a\nfalloc /a {} {} 3\nwrite /a {} {}\nwriteout /a\n\
             commit\nfalloc /a {} {} 16\nfsync /a\nfalloc /a {} {} 1\nwrite /a {} {}\nfsync /a\nfalloc /a 10 {} 3\ncommit\n\
             falloc /a {} {} 8\nfsync /a\nfalloc /a {b} {} 32\nfsync /a\ntruncate /a {}\nfsync /a\n",
            16 * b,
            3 * b,
            2 * b,
            b,
            5 * b,
            2 * b + 10,
            4 * b,
            4 * b,
            16 * b,
            16 * b,
            20 * b,
            b,
            3 * b,
            2 * b,
            2 * b,
            b,
            7 * b + 5
        ),
        "replace-rename" => {
            let mut t = format!("create /f\nwrite /f 0 {}\nfsync /f\n", 2 * b);
            for i in 0..5 {
                t += &format!(
                    "create /t\nwrite /t 0 {}\nrename /t /f\n{}",
                    (i + 1) * b + 33,
                    ["commit\n", "", "writeout /f\ncommit\n", "checkpoint\n", "fsync /f\n"]
                        [i as usize]
                );
            }
            t
        }
        "direct-extend" => {
            let mut t = "create /a\nfsync /a\n".to_string();
            for i in 0..6u64 {
                t += &format!("dwrite /a {} {}\n", i * 2 * b, 2 * b);
                t += ["commit\n", "fdatasync /a\n", ""][i as usize % 3];
            }
            t + &format!(
                "dwrite /a {} 512\ndwrite /a {} 1024\nfsync /a\nwrite /a {} 100\ndwrite /a {} {b}\ncommit\n\
                 truncate /a {}\ndwrite /a {} {}\nfsync /a\n",
                20 * b,
                24 * b,
                30 * b,
                32 * b,
                3 * b,
                b,
                4 * b
            )
        }
        "open-unlinked" => format!(
            "create /a\nwrite /a 0 {}\nfsync /a\nopen /a\nunlink /a\nwrite @/a {} {b}\ncommit\nwriteout @/a\n\
             create /b\nwrite /b 0 {}\nopen /b\nunlink /b\ncreate /c\nfsync /c\ntruncate @/b {b}\ncommit\nclose /a\nsleep 20\n\
             create /d\nwrite /d 0 {}\nfsync /d\nclose /b\nsleep 20\ncreate /e\nwrite /e 0 {}\nfsync /e\n",
            5 * b,
            5 * b,
            4 * b,
            6 * b,
            4 * b
        ),
        "xattrs" => format!(
            "create /a\nsetxattr /a user.s 20\nfsync /a\nsetxattr /a user.big {}\ncommit\nsetxattr /a user.s 40\nfsync /a\n\
             mkdir /d\nsetacl /a 3\nsetacl /d 2\nfsync /a\nrmxattr /a user.big\ncommit\nsetxattr /a user.big {}\n\
             setacl /a 0\nchmod /a 384\nfsync /a\nsetxattr /d user.q 200\nsetxattr /d user.r 300\ncommit\nrmxattr /d user.q\nfsync /d\n\
             unlink /a\ncreate /a\nsetxattr /a user.s 10\nsync\n\
             create /p\nsetacl /p 3\ncreate /q\nsetacl /q 3\nsetxattr /q user.t 9\nrmxattr /q user.t\nfsync /q\nunlink /p\nfsync /\n",
            b / 2,
            b / 2 + 50
        ),
        "enospc" => {
            let mut t = format!("create /keep\nwrite /keep 0 {}\nfsync /keep\n", 4 * b);
            for i in 0..10 {
                t += &format!("create /f{i}\nwrite /f{i} 0 {}\n", 1500 * 1024);
            }
            t += "fsync /f1\ncommit\ncreate /small\nwrite /small 0 10\nfsync /small\n";
            for i in 0..6 {
                t += &format!("unlink /f{i}\n");
            }
            t + &format!("create /g\nwrite /g 0 {}\nfsync /g\nfsync /keep\n", 900 * 1024)
        }
        "log" => {
            // A database with a rollback journal, then one with a write-ahead log in a preallocated file.
            let mut t = format!("create /db\nwrite /db 0 {}\nfsync /db\n", 8 * b);
            for i in 0..3 {
                t += &format!(
                    "create /db-journal\nwrite /db-journal 0 512\nwrite /db-journal 512 {b}\nfdatasync /db-journal\n\
                     write /db {} {b}\nfdatasync /db\nunlink /db-journal\nfsync /\n",
                    i * 2 * b
                );
            }
            t += &format!("create /wal\nfalloc /wal 0 {} 0\nfsync /wal\n", 32 * b);
            for i in 0..6 {
                t += &format!("dwrite /wal {} {}\nfdatasync /wal\n", i * 2 * b, 2 * b);
            }
            t
        }
        "many-files" => {
            let mut t = "mkdir /d\n".to_string();
            for i in 0..40 {
                t += &format!("create /d/a-longer-name-to-fill-the-directory-{i:03}\n");
                if i % 9 == 0 {
                    t += "fsync /d\n";
                }
                if i % 13 == 0 {
                    t += "checkpoint\n";
                }
            }
            for i in (0..40).step_by(2) {
                t += &format!("unlink /d/a-longer-name-to-fill-the-directory-{i:03}\n");
            }
            t + "fsync /d\nmkdir /d/e\nrename /d/a-longer-name-to-fill-the-directory-001 /d/e/x\nsync\n"
        }
        "overwrite" => {
            let mut t = format!("create /a\nwrite /a 0 {}\nfsync /a\n", 10 * b);
            for i in 0..6u64 {
                t += &format!("write /a {} {}\n", i * b + 5, 2 * b);
                t += ["writeout /a\n", "fsync /a\n", "commit\n"][i as usize % 3];
                t += &format!("dwrite /a {} {}\n", (i + 3) * b, b);
            }
            t + "fdatasync /a\n"
        }
        "reuse" => {
            // Freed blocks, data and directories, taken into use again across commits and checkpoints.
            let mut t = "mkdir /d\n".to_string();
            for i in 0..4 {
                t += &format!("create /d/f{i}\nwrite /d/f{i} 0 {}\n", 20 * b);
            }
            t += "sync\n";
            for round in 0..4 {
                t += &format!("mkdir /x{round}\n");
                for i in 0..6 {
                    t += &format!(
                        "create /x{round}/some-name-{i}\nsetxattr /x{round}/some-name-{i} user.v {}\n",
                        b / 2 + i
                    );
                }
                t += "commit\n";
                for i in 0..6 {
                    t += &format!("unlink /x{round}/some-name-{i}\n");
                }
                t += &format!("rmdir /x{round}\nunlink /d/f{round}\n");
                t += ["commit\n", "sync\n", "checkpoint\n", ""][round % 4];
                t += &format!("create /n{round}\nwrite /n{round} 0 {}\nfsync /n{round}\n", 30 * b);
                if round % 2 == 1 {
                    t += "checkpoint\n";
                }
            }
            t
        }
        "wrap" => {
            // More commits than the log holds.
            let mut t = "mkdir /d\n".to_string();
            for i in 0..130 {
                t += &format!(
                    "create /d/f{}\nwrite /d/f{} 0 100\nfsync /d/f{}\n",
                    i % 7,
                    i % 7,
                    i % 7
                );
                t += &format!("rename /d/f{} /d/g{}\n", i % 7, i % 5);
            }
            t
        }
        "replace-truncate" => {
            // The other way to replace a file: truncate, write, close.
            let mut t = format!("create /f\nwrite /f 0 {}\nfsync /f\n", 2 * b);
            for i in 0..5 {
                t += &format!(
                    "open /f\ntruncate /f 0\n{}write /f 0 {}\nclose /f\n{}create /x{i}\nfsync /x{i}\n",
                    ["", "commit\n"][i as usize % 2],
                    (i + 1) * b + 33,
                    ["commit\n", "checkpoint\ncommit\n", "commit\nwriteout /f\n", "", "fsync /f\n"]
                        [i as usize]
                );
            }
            t
        }
        "pgbench" => {
            // Write-ahead segments that are zeroed first and recycled by rename, pages of tables written
            // behind them, a control file.
            let segment = 16 * b;
            let mut t = "mkdir /wal\nmkdir /base\n".to_string();
            for table in 0..2 {
                t += &format!("create /base/{table}\nwrite /base/{table} 0 {}\n", 12 * b);
            }
            t += &format!(
                "create /control\nswrite /control 0 512\ncreate /wal/1\nwrite /wal/1 0 {segment}\nfsync /wal/1\nsync\n"
            );
            let mut at = 0;
            for i in 0..24u64 {
                let page = (i * 7) % 12;
                t += &format!("write /wal/1 {at} {}\nfdatasync /wal/1\n", b + 100 * (i % 3));
                t += &format!("write /base/{} {} {b}\n", i % 2, page * b);
                at = (at + 2 * b) % (segment - 2 * b);
                if i % 8 == 7 {
                    // A checkpoint: tables, control, then the segment is used again under its next name.
                    t += &format!(
                        "writeout /base/0\nfdatasync /base/0\nfdatasync /base/1\nswrite /control 0 512\n\
                         create /wal/2\nwrite /wal/2 0 {segment}\nfsync /wal/2\nfsync /wal\nrename /wal/1 /wal/old\n\
                         rename /wal/2 /wal/1\nunlink /wal/old\nfsync /wal\nwrite /base/1 {} {b}\n",
                        (12 + i) * b
                    );
                }
            }
            t
        }
        "symlinks" => {
            let long = "long/".repeat(30);
            let mut t = "mkdir /d\n".to_string();
            for i in 0..4 {
                t += &format!("symlink /s{i} short{i}\nsymlink /d/l{i} {long}{i}\n");
                t += ["fsync /d\n", "commit\n", "", "sync\n"][i];
            }
            t + "rename /d/l0 /s0\nunlink /d/l1\nexchange /s1 /d/l2\ncommit\nunlink /s1\nsymlink /s1 new\nfsync /\n"
        }
        "small-files" => {
            // Within the inode, or a block that is not full; grown across what holds them.
            let mut t = "mkdir /d\n".to_string();
            for i in 0..8u64 {
                t += &format!("create /d/{i}\nwrite /d/{i} 0 {}\n", 7 + 20 * i);
                t += ["", "fsync /d/0\n", "commit\n"][i as usize % 3];
            }
            for i in 0..8u64 {
                t += &format!("write /d/{i} {} {}\n", 7 + 20 * i, 13 * (i + 1) * (i + 1));
                t += &format!("setxattr /d/{i} user.a {}\n", 9 + 7 * i);
                t += ["fdatasync /d/1\n", "commit\n", "truncate /d/2 9\n", ""][i as usize % 4];
            }
            t + "truncate /d/3 2\ntruncate /d/3 90\nunlink /d/4\nrename /d/5 /d/6\nsync\ntruncate /d/7 0\ncommit\n"
        }
        "fragmented" => {
            // Extent trees with depth: every other block, filled later, then cut.
            let mut t = "create /a\n".to_string();
            for i in 0..60 {
                t += &format!("write /a {} {b}\n", 2 * i * b);
                if i % 20 == 19 {
                    t += "writeout /a\n";
                }
            }
            t += "fsync /a\n";
            for i in 0..12 {
                t += &format!("write /a {} {b}\n", (6 * i + 1) * b);
            }
            t += &format!("writeout /a\ncommit\nfalloc /a {} {} 3\nfsync /a\n", 10 * b + 5, 30 * b);
            t + &format!(
                "truncate /a {}\ncommit\ntruncate /a 3\nfsync /a\nunlink /a\nsync\n",
                50 * b
            )
        }
        _ => {
            let seed = name.strip_prefix("random:")?.parse().ok()?;
            return Some(random(seed, 60, block));
        }
    };
    let text: String = text;
    Op::parse_all(&text).ok()
}

/// A random workload of `n` operations over a few names.
pub fn random(seed: u64, n: usize, block: u64) -> Vec<Op> {
    let mut r = Rng::new(seed ^ 0x0f5e_ed00);
    let mut ops = vec![Op::Mkdir { path: "/d".into() }, Op::Mkdir { path: "/d/e".into() }];
    let names = ["/a", "/b", "/d/a", "/d/b", "/d/e/a"];
    let dirs = ["/", "/d", "/d/e", "/g", "/d/g"];
    while ops.len() < n {
        let path = names[r.below(5) as usize].to_string();
        let other = names[r.below(5) as usize].to_string();
        let off = match r.below(4) {
            0 => 0,
            1 => r.below(40 * block),
            2 => r.below(40) * block,
            _ => r.below(6) * block,
        };
        let len = match r.below(4) {
            0 => 1 + r.below(100),
            1 => block * (1 + r.below(4)),
            _ => 1 + r.below(12 * block),
        };
        ops.push(match r.below(36) {
            0..=4 => Op::Create { path },
            5..=12 => Op::Write { path, off, len, how: How::Buffered },
            13 | 14 => {
                let (off, len) = (off & !511, len.next_multiple_of(512));
                Op::Write { path, off, len, how: How::Direct }
            }
            15 => Op::Write { path, off, len, how: How::Sync },
            16 | 17 => Op::Truncate { path, size: off },
            18 => Op::Falloc { path, off, len, mode: [0, 1, 3, 3, 16, 17][r.below(6) as usize] },
            19 | 20 => Op::Fsync { path },
            21 => Op::Fdatasync { path },
            22 => Op::Sync,
            23 => Op::Link { old: path, new: other },
            24 | 25 => Op::Unlink { path },
            26 | 27 => Op::Rename { old: path, new: other },
            28 => Op::SetXattr { path, name: "user.x".into(), len: 1 + r.below(block / 2) },
            29 => Op::RemoveXattr { path, name: "user.x".into() },
            30 => Op::SetAcl { path, users: r.below(4) as u32 },
            31 => Op::Writeout { path },
            32 => Op::Commit,
            33 => Op::Checkpoint,
            34 => match r.below(3) {
                0 => Op::Mkdir { path: dirs[3 + r.below(2) as usize].into() },
                1 => Op::Rmdir { path: dirs[3 + r.below(2) as usize].into() },
                _ => Op::Fsync { path: dirs[r.below(5) as usize].into() },
            },
            _ => Op::Exchange { old: path, new: other },
        });
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_workload() {
        for name in NAMES {
            assert!(by_name(name, 1024).is_some_and(|w| w.len() > 10), "{name}");
        }
        assert_eq!(by_name("random:3", 1024), by_name("random:3", 1024));
        assert_eq!(by_name("nothing", 1024), None);
    }
}
