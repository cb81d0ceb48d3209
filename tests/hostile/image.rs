//! Small images with one of everything in them.

use std::sync::Arc;
use uext4::crash::{ImageSpec, make_image};
use uext4::device::MemDevice;
use uext4::error::Result;
use uext4::fs::{Cred, Fs, SetAttr, WriteHow};
use uext4::options::MountOptions;
use uext4::types::Ino;

/// A feature set: a name, the size in MiB, and what mke2fs is told.
pub struct Spec {
    pub name: &'static str,
    pub mib: u64,
    pub mkfs: &'static str,
    /// Left as a crash leaves it: a log to replay, orphans to end.
    pub dirty: bool,
}

const fn spec(name: &'static str, mib: u64, mkfs: &'static str, dirty: bool) -> Spec {
    Spec { name, mib, mkfs, dirty }
}

pub const SPECS: &[Spec] = &[
    spec("checksums", 6, "-b 1024 -N 512 -J size=1", false),
    spec("checksums, crashed", 6, "-b 1024 -N 512 -J size=1", true),
    spec("no checksums, crashed", 6, "-b 1024 -N 512 -J size=1 -O ^metadata_csum,^64bit", true),
    spec("uninit_bg", 12, "-b 1024 -N 512 -J size=1 -O ^metadata_csum,uninit_bg,^flex_bg", false),
    spec(
        "inline, ea_inode, orphan_file",
        16,
        "-b 4096 -N 512 -J size=4 -O inline_data,ea_inode,orphan_file,metadata_csum_seed",
        true,
    ),
    spec("indirect", 6, "-b 1024 -N 512 -J size=1 -I 128 -O ^extents,^64bit,^huge_file", false),
    spec("meta_bg, no journal", 12, "-b 1024 -N 512 -O meta_bg,^resize_inode,^has_journal", false),
];

/// Mounted with timers that keep out of the way.
pub fn mount(dev: Arc<MemDevice>) -> Result<Arc<Fs>> {
    let quiet = "dirty_writeback=600,dirty_expire=600";
    Fs::mount(dev, &MountOptions::parse(&[quiet]).expect("options"))
}

/// Makes and fills the image.
pub fn build(spec: &Spec) -> MemDevice {
    let scratch = tempfile::tempdir().unwrap();
    let image = ImageSpec { size: spec.mib << 20, mkfs: spec.mkfs.into() };
    let made = make_image(&image, scratch.path());
    let dev = Arc::new(made.unwrap_or_else(|e| panic!("{}: {e}", spec.name)));
    let fs = mount(dev.clone()).unwrap();
    fill(&fs).unwrap();
    fs.sync().unwrap();
    if !spec.dirty {
        fs.unmount().unwrap();
        return dev.snapshot();
    }
    // What replay would write over again is not worth a lie.
    fs.vol.journal.checkpoint_all().unwrap();
    more(&fs).unwrap();
    fs.vol.journal.commit_all().unwrap();
    let crashed = dev.snapshot();
    fs.unmount().unwrap();
    crashed
}

struct Maker<'a>(&'a Fs);

impl Maker<'_> {
    fn file(&self, dir: Ino, name: &str) -> Result<Ino> {
        let ino = self.0.mknod(Cred::ROOT, dir, name.as_bytes(), 0o100644, 0, 0)?.ino;
        self.0.forget(ino, 1);
        Ok(ino)
    }

    fn dir(&self, dir: Ino, name: &str) -> Result<Ino> {
        let ino = self.0.mkdir(Cred::ROOT, dir, name.as_bytes(), 0o755, 0)?.ino;
        self.0.forget(ino, 1);
        Ok(ino)
    }

    fn write(&self, ino: Ino, off: u64, len: usize) -> Result<()> {
        let data: Vec<u8> = (0..len).map(|i| (i * 7 + off as usize) as u8 | 1).collect();
        let mut at = 0;
        while at < len {
            let how = WriteHow::default();
            at += self.0.write(Cred::ROOT, ino, off + at as u64, &data[at..], how)?;
        }
        Ok(())
    }

    fn attr(&self, ino: Ino, name: &str, len: usize) -> Result<()> {
        self.0.setxattr(Cred::ROOT, ino, name.as_bytes(), &vec![b'v'; len], 0)
    }
}

fn fill(fs: &Fs) -> Result<()> {
    let (m, root) = (Maker(fs), Ino::ROOT);
    let b = fs.vol.geo.block_size.bytes64();
    let hashed = m.dir(root, "hashed")?;
    for i in 0..120 {
        m.file(
            hashed,
            &format!("a-name-that-is-long-enough-to-fill-blocks-of-a-directory-{i:03}"),
        )?;
    }
    let linear = m.dir(root, "linear")?;
    for i in 0..4 {
        let f = m.file(linear, &format!("f{i}"))?;
        m.write(f, 0, 40 + 900 * i)?;
    }
    let deep = m.dir(m.dir(m.dir(root, "x")?, "y")?, "z")?;
    m.write(m.file(deep, "bottom")?, 0, 5000)?;
    let pieces = m.file(root, "pieces")?;
    for i in 0..110 {
        m.write(pieces, i * 2 * b, b as usize)?;
        if i % 40 == 39 {
            fs.fsync(pieces, false)?;
        }
    }
    let sparse = m.file(root, "sparse")?;
    for at in [0, 14, 300, 70_000] {
        m.write(sparse, at * b, b as usize)?;
    }
    let whole = m.file(root, "whole")?;
    m.write(whole, 0, 100_000)?;
    fs.link(whole, linear, b"again")?;
    fs.forget(whole, 1);
    // Not with every layout.
    let _ = fs.fallocate(Cred::ROOT, m.file(root, "unwritten")?, 0, 20 * b, 0);
    for (name, target) in [("short", "whole".to_string()), ("long", "x/".repeat(90))] {
        let ino = fs.symlink(Cred::ROOT, root, name.as_bytes(), target.as_bytes())?.ino;
        fs.forget(ino, 1);
    }
    fs.forget(fs.mknod(Cred::ROOT, root, b"dev", 0o020600, 0, 0x0103)?.ino, 1);
    let few = m.file(root, "attrs-few")?;
    m.attr(few, "user.a", 10)?;
    let many = m.file(root, "attrs-many")?;
    for i in 0..6 {
        m.attr(many, &format!("user.name{i}"), 60 + 10 * i)?;
    }
    let _ = m.attr(m.file(root, "attrs-big")?, "user.big", 6000);
    let acl = uext4::crash::acl_bytes(3);
    fs.setxattr(Cred::ROOT, many, b"system.posix_acl_access", &acl, 0)?;
    fs.setxattr(Cred::ROOT, linear, b"system.posix_acl_default", &acl, 0)
}

/// What is only in the log of a crashed image, with orphans of both sorts.
fn more(fs: &Fs) -> Result<()> {
    let (m, root) = (Maker(fs), Ino::ROOT);
    for i in 0..3 {
        let name = format!("gone{i}");
        let f = m.file(root, &name)?;
        m.write(f, 0, 9000)?;
        fs.fsync(f, false)?;
        fs.open(f, true)?;
        fs.unlink(root, name.as_bytes())?;
    }
    let late = m.dir(root, "late")?;
    for i in 0..12 {
        m.file(late, &format!("late{i}"))?;
        fs.vol.journal.commit_all()?;
    }
    for i in 0..6 {
        fs.unlink(late, format!("late{i}").as_bytes())?;
    }
    let pieces = fs.lookup(root, b"pieces")?.map(|s| s.ino);
    if let Some(ino) = pieces {
        fs.forget(ino, 1);
        let half = SetAttr { size: Some(60_000), ..SetAttr::default() };
        fs.setattr(Cred::ROOT, ino, half)?;
    }
    Ok(())
}
