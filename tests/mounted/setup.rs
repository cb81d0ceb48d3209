//! What `make install` puts in place, mount(8) and umount(8) with it, and mounts without root.

use crate::common::{Scratch, peer_is_kernel, run, tool, uext4};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs a script where mounts are its own: the helpers have to be in /sbin, which is covered by
/// an overlay there. `$ROOT` is the project.
fn apart(scratch: &Scratch, script: &str) -> String {
    let mut c = tool("unshare");
    c.args(["--mount", "--propagation", "private", "timeout", "-k", "5", "120"]);
    c.args(["bash", "-euc", script]).current_dir(scratch.path());
    c.env("ROOT", env!("CARGO_MANIFEST_DIR"));
    // What `make build` leaves; nothing here runs the lab.
    let built = scratch.join("built");
    fs::create_dir_all(&built).unwrap();
    for name in ["uext4", "uext4-lab"] {
        fs::copy(uext4(), built.join(name)).unwrap();
    }
    run(&mut c)
}

const INSTALL: &str = r#"
mkdir up work
mount -t overlay overlay -o lowerdir=/usr/sbin,upperdir=up,workdir=work /usr/sbin
make -s -C $ROOT -o build install BUILT=$PWD/built PREFIX=$PWD/usr HELPERDIR=/usr/sbin >&2
mkdir mnt
"#;

#[test]
fn mount_and_umount_by_their_helpers() {
    if peer_is_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.mkfs("disk.img", "32M", &[]);
    let said = apart(
        &scratch,
        &format!(
            r#"{INSTALL}
mount -t uext4 -o dioread_nolock disk.img mnt
findmnt -no FSTYPE mnt
usr/bin/uext4 ctl mnt options | grep ^commit=
echo one > mnt/file
mount -o remount,commit=30 mnt
usr/bin/uext4 ctl mnt options | grep ^commit=
umount mnt
e2fsck -fn disk.img >&2
echo "$PWD/disk.img $PWD/mnt uext4 noauto,commit=7 0 0" > fstab
mount -T fstab $PWD/mnt
cat mnt/file
usr/bin/uext4 ctl mnt options | grep ^commit=
mount -o remount,ro mnt
! touch mnt/new 2>&1 | grep -o 'Read-only file system'
umount mnt
e2fsck -fn disk.img >&2
mount -t fuse.uext4 disk.img mnt
umount mnt
usr/bin/uext4 disk.img mnt -o ro
usr/bin/uext4 umount mnt
e2fsck -fn disk.img >&2
"#
        ),
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        ["fuse.uext4", "commit=5", "commit=30", "one", "commit=7", "Read-only file system"],
        "{said}"
    );
    image.fsck();
}

#[test]
fn what_is_installed_is_uninstalled() {
    if peer_is_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let said = apart(
        &scratch,
        r#"
make -s -C $ROOT -o build install BUILT=$PWD/built DESTDIR=$PWD/pkg >&2
(cd pkg && find . -type f | sort)
make -s -C $ROOT uninstall DESTDIR=$PWD/pkg >&2
find pkg -type f
"#,
    );
    let want = [
        "./sbin/mount.fuse.uext4",
        "./sbin/mount.uext4",
        "./sbin/umount.fuse.uext4",
        "./sbin/umount.uext4",
        "./usr/local/bin/uext4",
        "./usr/local/share/man/man8/mount.uext4.8",
    ];
    for file in want {
        assert!(said.lines().any(|l| l == file), "{file} is not among\n{said}");
    }
    assert!(!said.contains("pkg/"), "left behind:\n{said}");
}

/// Runs a script as nobody, who owns the image, where anybody may open /dev/fuse.
fn as_nobody(scratch: &Scratch, script: &str) -> String {
    // One user has one place for control sockets, and a namespace names it by another uid.
    static ONE_AT_A_TIME: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let own = scratch.join("own");
    fs::create_dir(&own).unwrap();
    fs::copy(uext4(), own.join("uext4")).unwrap();
    let open = |p: &Path| fs::set_permissions(p, fs::Permissions::from_mode(0o755)).unwrap();
    open(scratch.path());
    open(&own.join("uext4"));
    apart(
        scratch,
        &format!(
            r#"
mknod -m 666 fuse c 10 229
mount --bind fuse /dev/fuse
cd own
truncate -s 32M disk.img
mkfs.ext4 -qF disk.img
mkdir mnt
chown -R 65534:65534 .
setpriv --reuid=65534 --regid=65534 --clear-groups bash -euc '{script}'
e2fsck -fn disk.img >&2
"#
        ),
    )
}

#[test]
fn without_root_by_fusermount3() {
    if peer_is_kernel() {
        return;
    }
    let said = as_nobody(
        &Scratch::new(),
        r#"
./uext4 mount disk.img mnt
echo mine > mnt/file
echo too > mnt/lost+found/file
stat -c %u mnt/file mnt/lost+found
./uext4 umount mnt
chmod a-w disk.img
sha256sum < disk.img > before
./uext4 mount -o ro disk.img mnt
cat mnt/file
./uext4 umount mnt
sha256sum < disk.img | cmp - before
"#,
    );
    assert_eq!(said.lines().collect::<Vec<_>>(), ["65534", "0", "mine"]);
}

#[test]
fn without_root_in_a_user_namespace() {
    if peer_is_kernel() {
        return;
    }
    let said = as_nobody(
        &Scratch::new(),
        r#"
unshare -Urm bash -euc "./uext4 mount disk.img mnt; echo mine > mnt/file; cat mnt/file; ./uext4 umount mnt"
"#,
    );
    assert_eq!(said, "mine\n");
}
