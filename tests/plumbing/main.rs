//! Mounting, unmounting, the control socket and the mount helpers, for real, with a
//! toy in the place of the file system. Needs root: every test has a mount namespace
//! of its own, with its own /run and /sbin.
//!
//! This program is also the `uext4` that it tests: called by any other name, it is
//! the toy's command. The tests are shell scripts run by `bash -eu` whose `say`
//! prints what is compared.

mod toy;

use std::path::Path;
use std::process::{Command, ExitCode};

/// A script and what it must print.
struct Case {
    name: &'static str,
    script: &'static str,
    want: &'static str,
}

const PRELUDE: &str = r#"
mount -t tmpfs tmpfs /run
mkdir -p /run/mount /run/o/u /run/o/w /run/bin /run/t/m
mount -t overlay overlay -o lowerdir=/usr/sbin,upperdir=/run/o/u,workdir=/run/o/w /usr/sbin
for h in mount.uext4 mount.fuse.uext4 umount.uext4 umount.fuse.uext4; do
    sed 's|@BINDIR@|/run/bin|' "$ROOT/mount-helper/$h" >/usr/sbin/$h; chmod 755 /usr/sbin/$h
done
cp "$SELF" /run/bin/uext4
mknod -m 666 /run/fuse c 10 229; mount --bind /run/fuse /dev/fuse
PATH=/run/bin:$PATH
cd /run/t
echo toy >t.img
say() { echo "$*"; }
code() { local rc=0; "$@" 2>/run/err || rc=$?; sed -i 's|/run/t/||g' /run/err; cat /run/err; say "exit $rc"; }
options() { grep " /run/t/m " /proc/mounts | cut -d' ' -f3,4 || true; }
state() { tail -1 t.img; }
daemons() { for p in /proc/[0-9]*; do [ "$(readlink "$p/exe")" = /run/bin/uext4 ] && echo "${p#/proc/}"; done || true; }
gone() { for i in $(seq 200); do [ -z "$(daemons)" ] && return; sleep 0.05; done; say "still running: $(daemons)"; }
"#;

const CASES: &[Case] = &[
    Case {
        name: "mount, look, unmount",
        script: "code uext4 mount t.img m; cat m/hello; options; code uext4 umount m; state; gone; options",
        want: "exit 0\nHello!\nfuse.uext4 rw,relatime,user_id=0,group_id=0,default_permissions,allow_other\nexit 0\nclean\n",
    },
    Case {
        name: "unmounting waits for the end and passes its failure on",
        script: "TOY_END_DELAY=600 uext4 t.img m; s=$(date +%s%N); code uext4 umount m
            state; e=$((($(date +%s%N) - s) / 1000000)); [ $e -ge 600 ] || say only $e ms
            TOY_END_FAILS=1 uext4 t.img m; code uext4 umount m; options",
        want: "exit 0\nclean\nuext4: m: the journal could not be written\nexit 32\n",
    },
    Case {
        name: "umount(8) waits too, through libmount's table",
        script: "TOY_END_DELAY=300 mount -t uext4 t.img m; code umount m; state
            uext4 t.img m; code umount t.img; TOY_END_FAILS=1 mount -t uext4 t.img m; code umount m; cat /run/mount/utab",
        want: "exit 0\nclean\nexit 0\nuext4: m: the journal could not be written\nexit 32\n",
    },
    Case {
        name: "a busy mount stays",
        script: "uext4 t.img m; cd m; code umount /run/t/m; code uext4 umount /run/t/m; cat hello; cd ..; code umount m; state",
        want: "uext4: m: target is busy\nexit 32\nuext4: m: target is busy\nexit 32\nHello!\nexit 0\nclean\n",
    },
    Case {
        name: "flags of the mount",
        script: "mount -t uext4 -o ro,nosuid,nodev,noexec,noatime,noallow_other,max_read=65536 t.img m; options; umount m
            uext4 -o nodiratime,strictatime,sync,dirsync,nodefault_permissions,fsname=a\\\\,b t.img m; options; grep -c '^a,b ' /proc/mounts; umount m",
        want: "fuse.uext4 ro,nosuid,nodev,noexec,noatime,user_id=0,group_id=0,default_permissions,max_read=65536\n\
            fuse.uext4 rw,sync,dirsync,nodiratime,user_id=0,group_id=0,allow_other\n1\n",
    },
    Case {
        name: "remount",
        script: "mount -t uext4 -o nosuid t.img m
            code mount -o remount,commit=7,noatime,dioread_lock m; options; uext4 ctl m options | grep -E '^(commit|noatime|dioread|nosuid)'
            code mount -o remount,ro m; options; uext4 ctl m options | head -1
            code mount -o remount,rw m; uext4 ctl m options | head -1
            code mount -o remount,data=journal m; code uext4 mount -o remount,suid m; options
            exec 3<m; code mount -o remount,ro m; exec 3<&-; umount m",
        want: "exit 0\nfuse.uext4 rw,nosuid,noatime,user_id=0,group_id=0,default_permissions,allow_other\n\
            commit=7\ndioread_lock\nnoatime\nnosuid\n\
            exit 0\nfuse.uext4 ro,nosuid,noatime,user_id=0,group_id=0,default_permissions,allow_other\nro\nexit 0\nrw\n\
            uext4: m: mount option \"data=journal\" cannot be changed while mounted\nexit 32\nexit 0\n\
            fuse.uext4 rw,noatime,user_id=0,group_id=0,default_permissions,allow_other\nexit 0\n",
    },
    Case {
        name: "fstab",
        script: "echo '/run/t/t.img /run/t/m uext4 noauto,user,dioread_shared,nofail,x-foo=1 0 0' >/run/fstab
            mount --bind /run/fstab /etc/fstab; code mount m; options; uext4 ctl m options | grep ^dioread
            code mount -o remount,noatime m; options; code umount m; state",
        want: "exit 0\nfuse.uext4 rw,nosuid,nodev,noexec,relatime,user_id=0,group_id=0,default_permissions,allow_other\ndioread_shared\n\
            exit 0\nfuse.uext4 rw,nosuid,nodev,noexec,noatime,user_id=0,group_id=0,default_permissions,allow_other\nexit 0\nclean\n",
    },
    Case {
        name: "what mount(8) passes on",
        script: "code mount -f -t uext4 t.img m; options; code mount -s -t uext4 -o zzz t.img m; umount m; code mount -t uext4 -o zzz t.img m
            code mount -v -t uext4 t.img m; code umount -l m; gone; state",
        want: "exit 0\nuext4: warning: unknown mount option \"zzz\" is ignored\nexit 0\n\
            uext4: unrecognized mount option \"zzz\"\nexit 1\nuext4: t.img mounted on m\nexit 0\nexit 0\nclean\n",
    },
    Case {
        name: "wrong input is one line and the right exit code",
        script: "code uext4 nothing m; code uext4 t.img nowhere; code uext4 t.img t.img; code uext4 m m
            echo no >n.img; code uext4 n.img m; cat n.img; mkdir full; touch full/x; code uext4 t.img full
            code uext4 -o nonempty t.img full; code uext4 t.img full; uext4 umount full
            code uext4 mount t.img; code uext4 -o commit=x t.img m; code uext4 umount m; code uext4 umount /proc
            code uext4 ctl /proc x; code uext4; code uext4 /dev/null m; options; gone",
        want: "uext4: nothing: No such file or directory\nexit 32\nuext4: nowhere: No such file or directory\nexit 32\n\
            uext4: t.img: is not a directory\nexit 32\nuext4: m: is a directory, not an image or block device\nexit 32\n\
            uext4: n.img: not a toy image\nexit 32\nno\nuext4: full: is not empty (-o nonempty mounts over it)\nexit 32\n\
            exit 0\nuext4: full: t.img is already mounted here\nexit 32\nuext4: no mount point given\nexit 1\n\
            uext4: mount option \"commit=x\": must be a whole number\nexit 1\nuext4: m: not mounted\nexit 32\n\
            uext4: /proc: mounted as proc, not by uext4\nexit 32\nuext4: /proc: not in a uext4 mount\nexit 32\n\
            uext4: nothing to do; see uext4 --help\nexit 1\nuext4: /dev/null: is neither a regular file nor a block device\nexit 32\n",
    },
    Case {
        name: "the control socket",
        script: "uext4 t.img m; uext4 ctl m number; uext4 ctl m/hello number; uext4 ctl m/hello; code uext4 ctl m nonsense
            code uext4 ctl m number=3; code uext4 ctl m sync; code uext4 ctl m shutdown=logflush; code uext4 trace m x
            stat -c %a /run/uext4/*; uext4 umount m; ls /run/uext4",
        want: "0\n2\nnumber=2\nuext4: m: no such tunable: \"nonsense\"\nexit 32\nuext4: m: number: read-only\nexit 32\nexit 0\n\
            uext4: m: no shutdown LogFlush\nexit 32\nuext4: m: no trace\nexit 32\n600\n",
    },
    Case {
        name: "signals end a mount cleanly",
        script: "for s in TERM INT; do uext4 t.img m; kill -$s $(uext4 ctl m pid); gone; state; options; : >t.img; echo toy >t.img; done
            uext4 t.img m; exec 3<m/hello; kill $(uext4 ctl m pid); gone; state; options; exec 3<&-
            uext4 mount -f t.img m & until mountpoint -q m; do sleep 0.02; done; kill %1; code wait %1; state",
        want: "clean\nclean\nclean\nexit 0\nclean\n",
    },
    Case {
        name: "a killed daemon leaves no dead mount",
        script: "uext4 t.img m; kill -9 $(uext4 ctl m pid); code uext4 t.img m; cat m/hello; state; uext4 umount m
            uext4 t.img m; kill -9 $(daemons); umount -l m; gone; options; code uext4 t.img m; uext4 umount m
            uext4 t.img m; code uext4 ctl m panic=1 | tail -1; code uext4 t.img m; uext4 umount m; gone; cat /run/mount/utab; ls /run/uext4",
        want: "exit 0\nHello!\ntoy\nexit 0\nexit 32\nexit 0\n",
    },
    Case {
        name: "the sandbox",
        script: "rights() { cat /proc/$(uext4 ctl m pid)/task/*/status | grep -E '^(CapEff|CapPrm|NoNewPrivs|Seccomp):' | sort | uniq -c | wc -l
                grep -hE '^(CapEff|NoNewPrivs|Seccomp):' /proc/$(uext4 ctl m pid)/status | tr '\\t\\n' '  '; say; }
            uext4 -o record=rec t.img m; rights
            for x in open=/etc/passwd open=/run/t/t.img run=/bin/true connect=127.0.0.1:1; do code uext4 ctl m $x; done; cat m/hello; uext4 umount m; state
            uext4 -o nosandbox t.img m; code uext4 ctl m open=/etc/passwd; code uext4 ctl m run=/bin/true; uext4 umount m",
        want: "4\nCapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2 \n\
            uext4: m: permission denied\nexit 32\nuext4: m: permission denied\nexit 32\n\
            uext4: m: permission denied\nexit 32\nuext4: m: permission denied\nexit 32\nHello!\nclean\nexit 0\nexit 0\n",
    },
    Case {
        name: "the caller's pipes and locks are not held",
        script: "out=$(exec 9>/run/lock; flock 9; uext4 t.img m 2>&1); flock -n /run/lock echo free; say \"[$out]\"; ls /run/uext4 | wc -l; uext4 umount m",
        want: "free\n[]\n1\n",
    },
    Case {
        name: "a bind mount keeps the daemon",
        script: "uext4 t.img m; mkdir b; mount --bind m b; code uext4 umount m; cat b/hello; code uext4 umount b; state",
        want: "uext4: m: unmounted, but still mounted at b\nexit 0\nHello!\nexit 0\nclean\n",
    },
    Case {
        name: "without root, through fusermount3",
        script: "chmod 777 /run/t; rm -r m t.img; setpriv --reuid 1000 --regid 1000 --clear-groups bash -eu <<'USER'
            cd /run/t; mkdir m; echo toy >t.img; uext4 t.img m; cat m/hello; grep -o ' fuse.uext4 .*' /proc/mounts; uext4 ctl m/hello
            uext4 mount -o remount,commit=3 m; uext4 ctl m options | grep -E 'commit|perm'
            cd m; uext4 umount /run/t/m 2>&1 || true; cd ..; uext4 umount m; tail -1 t.img
            uext4 -o allow_other t.img m 2>&1 || true; : >t.img; echo toy >t.img; uext4 t.img m; exec 3<m/hello; kill $(uext4 ctl m pid)
            for i in $(seq 200); do tail -1 t.img | grep clean && break; sleep 0.05; done
USER
            gone; options",
        want: "Hello!\n fuse.uext4 rw,nosuid,nodev,relatime,user_id=1000,group_id=1000 0 0\nnumber=2\ncommit=3\nnodefault_permissions\n\
            uext4: /run/t/m: target is busy\nclean\n\
            uext4: /run/t/m: fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf\nclean\n",
    },
    Case {
        name: "without root, in a user namespace",
        script: "chmod 777 /run/t; rm -r m t.img; setpriv --reuid 1000 --regid 1000 --clear-groups unshare -Urm bash -eu <<'USER'
            cd /run/t; mkdir m; echo toy >t.img; uext4 t.img m; cat m/hello; grep -o ' fuse.uext4 .*' /proc/mounts; uext4 ctl m/hello
            uext4 mount -o remount,noatime m; grep -o ' fuse.uext4 .*' /proc/mounts; uext4 umount m; tail -1 t.img
USER",
        want: "Hello!\n fuse.uext4 rw,nosuid,nodev,relatime,user_id=0,group_id=0 0 0\nnumber=2\n\
            \x20fuse.uext4 rw,nosuid,nodev,noatime,user_id=0,group_id=0 0 0\nclean\n",
    },
];

fn run(case: &Case) -> Result<(), String> {
    let self_exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let output = Command::new("unshare")
        .args(["-m", "bash", "-eu", "-c"])
        .arg(format!("{PRELUDE}{}", case.script))
        .env("SELF", self_exe)
        .env("ROOT", env!("CARGO_MANIFEST_DIR"))
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .map_err(|e| format!("unshare: {e}"))?;
    let got = String::from_utf8_lossy(&output.stdout).replace("/run/t/", "");
    let want = case.want.replace("/run/t/", "");
    if got == want && output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}\n--- wanted\n{want}--- got\n{got}--- standard error\n{errors}", output.status))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let name = args.first().map(|a| Path::new(a).file_name().unwrap_or_default().to_owned());
    if !name.is_some_and(|n| n.to_string_lossy().starts_with("plumbing")) {
        return toy::main();
    }
    let filters: Vec<&String> = args.iter().skip(1).filter(|a| !a.starts_with('-')).collect();
    let mut failed = 0;
    for case in CASES {
        if !filters.is_empty() && !filters.iter().any(|f| case.name.contains(f.as_str())) {
            continue;
        }
        match run(case) {
            Ok(()) => println!("test {} ... ok", case.name),
            Err(why) => {
                failed += 1;
                println!("test {} ... FAILED: {why}", case.name);
            }
        }
    }
    println!("\ntest result: {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
