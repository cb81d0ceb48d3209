//! What must be aligned, and what need not be.

use crate::common::{Fs, Scratch};
use rustix::fs::{Mode, OFlags, open};
use std::{fs::File, os::unix::fs::FileExt, path::Path};

/// A file opened O_DIRECT, made if it is not there.
pub fn direct(path: &Path) -> File {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT | OFlags::CLOEXEC;
    File::from(open(path, flags, Mode::from_raw_mode(0o644)).unwrap())
}

#[test]
fn offsets_and_lengths_are_multiples_of_512() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", &[]);
    let mount = scratch.mount(Fs::Uext4, &image, "");
    let f = direct(&mount.join("f"));
    f.write_all_at(&[1; 8192], 0).unwrap();
    for (off, len) in [(1, 512), (100, 512), (0, 100), (512, 513), (511, 1)] {
        let mut b = vec![0; len];
        let r = f.read_at(&mut b, off).unwrap_err();
        assert_eq!(r.raw_os_error(), Some(libc::EINVAL), "read {off} {len}");
        let r = f.write_at(&b, off).unwrap_err();
        assert_eq!(r.raw_os_error(), Some(libc::EINVAL), "write {off} {len}");
    }
    let mut b = vec![0; 8192];
    f.read_exact_at(&mut b, 0).unwrap();
    assert!(b.iter().all(|x| *x == 1), "a refused write wrote");
    // The end of the file need not be aligned.
    f.set_len(5000).unwrap();
    assert_eq!(f.read_at(&mut b, 4096).unwrap(), 904);
    assert_eq!(f.read_at(&mut b, 8192).unwrap(), 0);
    drop(f);
    mount.umount();
    image.fsck();
}
