//! Real programs that know when a file system fails them.

use crate::common::{
    Fs, Image, Mount, Random, Scratch, View, full, peer_is_kernel, run, scaled, sh, tool,
};
use std::fs;
use std::path::Path;

/// A mount to work in, and its image.
struct Place {
    image: Image,
    mount: Mount,
    scratch: Scratch,
}

impl Place {
    #[track_caller]
    fn new(size: &str, mkfs: &[&str], options: &str) -> Place {
        let scratch = Scratch::new();
        let image = scratch.mkfs("img", size, mkfs);
        let mount = scratch.mount(Fs::Uext4, &image, options);
        Place { image, mount, scratch }
    }

    fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Unmounts; the image is clean and the kernel reads what uext4 reads.
    #[track_caller]
    fn end(self) {
        self.mount.umount();
        self.image.fsck();
        let (ours, theirs) =
            (self.scratch.read(Fs::Uext4, &self.image), self.scratch.read(Fs::Kernel, &self.image));
        ours.assert_matches(&theirs, View::Same, "after the program");
    }
}

#[test]
fn git() {
    let place = Place::new("1G", &[], "");
    let commits = scaled(15, 200);
    sh(
        place.path(),
        &format!(
            "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
                    GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_NOSYSTEM=1
             git init -q -b main origin && cd origin
             for c in $(seq {commits}); do
                 mkdir -p d$((c % 7))/e$c
                 for f in $(seq 20); do seq $((c * f % 300)) > d$((c % 7))/e$c/f$f; done
                 git add -A; git commit -qm \"change $c\"
             done
             cd ..; git clone -q origin clone; git clone -q --no-local origin packed
             cd clone; git fsck --full --strict 2>&1
             git checkout -q -b side HEAD~5; echo x > x; git add x; git commit -qm side
             git merge -q -m merge main; git gc -q --aggressive; git fsck --full 2>&1
             test -z \"$(git status --porcelain)\"; git bundle create -q ../bundle --all
             cd ../packed; git fsck --full 2>&1; git pull -q ../bundle side; git status -s
             diff -r --exclude=.git . ../clone"
        ),
    );
    place.end();
}

#[track_caller]
fn sqlite(journal_mode: &str, options: &str) {
    let place = Place::new("256M", &[], options);
    let rows = scaled(3000, 100_000);
    let script = format!(
        "PRAGMA journal_mode={journal_mode}; PRAGMA synchronous=FULL; PRAGMA cache_size=50;
         CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, v BLOB); CREATE INDEX i ON t(k);
         WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<{rows})
           INSERT INTO t SELECT x, 'key' || (x * 7919 % 10007), zeroblob(x % 2000) FROM n;
         BEGIN; DELETE FROM t WHERE id % 3 = 0; ROLLBACK;
         DELETE FROM t WHERE id % 5 = 0; UPDATE t SET v = zeroblob(3000) WHERE id % 11 = 0;
         VACUUM; PRAGMA integrity_check; SELECT count(*), sum(length(v)), max(k) FROM t;"
    );
    let run_in = |dir: &Path| run(tool("sqlite3").current_dir(dir).arg("db").arg(&script));
    let elsewhere = place.scratch.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let (want, got) = (run_in(&elsewhere), run_in(place.path()));
    assert!(want.contains("ok\n"));
    assert_eq!(got, want);
    // Many small transactions, each with its fsync, from two processes.
    sh(
        place.path(),
        "w() { for i in $(seq 60); do
             sqlite3 -cmd '.timeout 20000' db \"INSERT INTO t(k) VALUES('$1-$i')\"; done; }
         w a & a=$!; w b & wait $! && wait $a
         test \"$(sqlite3 db \"SELECT count(*) FROM t WHERE k LIKE '_-%'\")\" = 120
         test \"$(sqlite3 db 'PRAGMA integrity_check')\" = ok",
    );
    place.end();
}

#[test]
fn sqlite_with_a_rollback_journal() {
    sqlite("DELETE", "");
}

#[test]
fn sqlite_with_a_write_ahead_log() {
    sqlite("WAL", "");
}

#[test]
fn sqlite_with_data_in_the_journal() {
    sqlite("DELETE", "data=journal");
}

/// A Rust crate, compiled and tested inside: linkers map their files, cargo locks and links.
#[test]
fn cargo() {
    let place = Place::new("1G", &[], "");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    sh(
        place.path(),
        &format!(
            "export CARGO_TARGET_DIR=$PWD/target CARGO_NET_OFFLINE=true; unset RUSTFLAGS
             '{cargo}' new -q --vcs none --lib crate1 2>&1; '{cargo}' new -q --vcs none prog 2>&1
             echo 'crate1 = {{ path = \"../crate1\" }}' >> prog/Cargo.toml
             for i in $(seq 40); do
                 echo \"pub fn f$i(x: u64) -> u64 {{ x.wrapping_mul($i) ^ x >> 3 }}\"
             done >> crate1/src/lib.rs
             echo 'fn main() {{ println!(\"{{}}\", crate1::f7(6)) }}' > prog/src/main.rs
             cd prog; '{cargo}' build 2>&1; '{cargo}' test -q 2>&1
             test \"$(../target/debug/prog)\" = 42
             touch src/main.rs; '{cargo}' build --release 2>&1
             test \"$(../target/release/prog)\" = 42"
        ),
    );
    place.end();
}

#[test]
fn the_project_itself_compiles() {
    if !full() {
        return;
    }
    let place = Place::new("8G", &[], "");
    let source = env!("CARGO_MANIFEST_DIR");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    sh(
        place.path(),
        &format!(
            "mkdir uext4; cd {source}; cp -a Cargo.* src $OLDPWD/uext4/; cd $OLDPWD/uext4
             CARGO_TARGET_DIR=$PWD/target '{cargo}' build --release --offline 2>&1
             target/release/uext4 --version"
        ),
    );
    place.end();
}

#[track_caller]
fn fsx(mkfs: &[&str], options: &str, config: &str, seed: u64) {
    if peer_is_kernel() && mkfs.contains(&"65536") {
        return;
    }
    let place = Place::new("512M", mkfs, options);
    let toml = place.scratch.join("fsx.toml");
    fs::write(&toml, config).unwrap();
    let count = scaled("6000", "3000000");
    run(tool("fsx")
        .args(["-N", count, "-S", &seed.to_string(), "-f"])
        .arg(&toml)
        .arg("-P")
        .arg(place.scratch.path())
        .arg(place.path().join("fsx.data")));
    let plain = !mkfs.contains(&"65536");
    place.mount.umount();
    place.image.fsck();
    if plain {
        let (ours, theirs) = (
            place.scratch.read(Fs::Uext4, &place.image),
            place.scratch.read(Fs::Kernel, &place.image),
        );
        ours.assert_matches(&theirs, View::Same, "after fsx");
    }
}

const FSX_ALL: &str = "
[opsize]
min = 1
[weights]
close_open = 1.0
invalidate = 1.0
truncate = 10.0
fsync = 5.0
fdatasync = 5.0
posix_fallocate = 5.0
punch_hole = 5.0
sendfile = 2.0
copy_file_range = 2.0
read = 20.0
write = 20.0
mapread = 10.0
mapwrite = 10.0
";

#[test]
fn fsx_in_4k() {
    fsx(&[], "", FSX_ALL, 1);
}

#[test]
fn fsx_in_1k() {
    fsx(&["-b", "1024"], "", FSX_ALL, 2);
}

#[test]
fn fsx_in_64k() {
    fsx(&["-b", "65536"], "", FSX_ALL, 3);
}

#[test]
fn fsx_with_indirect_maps() {
    let config = FSX_ALL.replace("posix_fallocate = 5.0", "posix_fallocate = 0.0");
    fsx(&["-t", "ext2", "-b", "1024"], "", &config, 4);
}

#[test]
fn fsx_without_delayed_allocation() {
    fsx(&["-b", "1024"], "nodelalloc", FSX_ALL, 5);
}

#[test]
fn fsx_with_data_in_the_journal() {
    fsx(&[], "data=journal", FSX_ALL, 6);
}

#[test]
fn fsx_inline() {
    let config = format!("flen = 5000\n{}", FSX_ALL.replace("min = 1", "min = 1\nmax = 300"));
    fsx(&["-O", "inline_data"], "", &config, 7);
}

/// Each file-system stressor that has something to do here, with its own verification on;
/// several at a time.
#[test]
fn stress_ng() {
    let place = Place::new("1G", &[], "");
    let dir = place.path().join("stress");
    fs::create_dir(&dir).unwrap();
    let groups = [
        "access chattr chdir chmod chown copy-file dentry",
        "dir dirdeep dirmany fcntl filename flock fpunch",
        "fsize fstat getdent hdd inode-flags iomix lease",
        "link locka lockf lockofd mknod mmap msync",
        "open readahead rename revio seek symlink sync-file",
        "touch utime xattr fallocate",
    ];
    for group in groups {
        let mut command = tool("stress-ng");
        command.arg("--temp-path").arg(&dir).args(["--verify", "--no-rand-seed", "--oomable"]);
        command.args(["--timeout", scaled("2", "120")]);
        for stressor in group.split(' ') {
            command.args([&format!("--{stressor}"), "1"]);
            let (what, much) = match stressor {
                "fallocate" | "hdd" | "revio" => ("bytes", "16M"),
                "iomix" => ("bytes", "128M"),
                "seek" => ("size", "16M"),
                _ => continue,
            };
            command.args([&format!("--{stressor}-{what}"), much]);
        }
        if group.contains("mmap") {
            command.args(["--mmap-bytes", "16M", "--mmap-file"]);
        }
        run(&mut command);
    }
    // A stressor that ends by the clock may leave a file immutable.
    sh(&dir, "find . -type f -print0 -o -type d -print0 | xargs -0 -r chattr -ia");
    fs::remove_dir_all(&dir).unwrap();
    place.end();
}

#[test]
fn dbench() {
    let place = Place::new("1G", &[], "");
    let seconds = scaled("6", "600");
    let out = run(tool("dbench").arg("-D").arg(place.path()).args(["-t", seconds, "4"]));
    assert!(out.contains("Throughput"), "{out}");
    place.end();
}

/// fio writes blocks with checksums and reads them back.
#[track_caller]
fn fio_verifies(mkfs: &[&str], args: &[&str]) {
    let place = Place::new("512M", mkfs, "");
    let size = scaled("32M", "2G");
    let dir = format!("--directory={}", place.path().display());
    run(tool("fio")
        .args(["--name=v", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", &dir])
        .args([&format!("--size={size}"), "--numjobs=2", "--rw=randwrite", "--output-format=terse"])
        .args(args));
    place.mount.umount();
    place.image.fsck();
}

#[test]
fn fio_buffered() {
    fio_verifies(&[], &["--ioengine=psync", "--bsrange=512-64k", "--fsync=200"]);
}

#[test]
fn fio_direct() {
    fio_verifies(&[], &["--ioengine=libaio", "--direct=1", "--bs=4k", "--iodepth=32"]);
}

#[test]
fn fio_direct_sectors_in_1k() {
    let mixed = ["--ioengine=libaio", "--direct=1", "--bsrange=512-16k", "--blockalign=512"];
    fio_verifies(&["-b", "1024"], &[&mixed[..], &["--iodepth=8"]].concat());
}

#[test]
fn fio_mapped() {
    fio_verifies(&[], &["--ioengine=mmap", "--bs=4k"]);
}

/// A file that is mapped, written through the map by one process and read by another.
#[test]
fn copies_of_every_kind() {
    let place = Place::new("256M", &["-b", "1024"], "");
    fs::write(place.path().join("a"), Random::new(3).bytes(7_654_321)).unwrap();
    sh(
        place.path(),
        "cp a b; cp --reflink=auto --sparse=always a c; dd if=a of=d bs=4097 2>/dev/null
         dd if=a of=e bs=1M oflag=direct 2>/dev/null || cp a e; cat a > f; rsync a g
         tar cf t.tar a b c; tar xf t.tar -O b > h; sort -R /dev/null
         for x in b c d e f g h; do cmp a $x; done; gzip -k a; gunzip -c a.gz | cmp - a",
    );
    place.end();
}
