//! What the measurements of this package share.

use std::process::Command;
use std::sync::Arc;
use uext4::device::MemDevice;
use uext4::fs::Fs;
use uext4::options::MountOptions;

/// What `mkfs.ext4` makes with these arguments, `mib` MiB large, in memory.
///
/// # Panics
/// If it cannot be made: this is a measuring program.
pub fn image(mib: u64, args: &[&str]) -> Arc<MemDevice> {
    let f = tempfile::NamedTempFile::new().expect("a temporary file");
    f.as_file().set_len(mib << 20).expect("room for an image");
    let made = Command::new("mkfs.ext4").arg("-qF").args(args).arg(f.path()).status();
    assert!(made.expect("mkfs.ext4").success());
    Arc::new(MemDevice::load(f.path()).expect("the image"))
}

/// Mounts it with the default options.
///
/// # Panics
/// If it cannot be mounted.
pub fn mount(dev: Arc<MemDevice>) -> Arc<Fs> {
    Fs::mount(dev, &MountOptions::default()).expect("mount")
}
