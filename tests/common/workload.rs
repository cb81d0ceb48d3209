//! Loads that check themselves. Each runs on any mounted file system, answers the first error
//! that a system call gives (so that it can be cut short by a crash), and panics if what it
//! reads is not what it wrote.

use super::Random;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What was fsynced, and so must survive any crash.
#[derive(Default)]
pub struct Synced(Mutex<BTreeMap<PathBuf, Vec<u8>>>);

impl Synced {
    /// Writes a file and fsyncs it and its folder; from then on it must be there.
    pub fn write(&self, root: &Path, name: &Path, content: Vec<u8>) -> io::Result<()> {
        let path = root.join(name);
        let file = File::create(&path)?;
        file.write_all_at(&content, 0)?;
        file.sync_all()?;
        File::open(path.parent().unwrap())?.sync_all()?;
        self.0.lock().insert(name.into(), content);
        Ok(())
    }

    /// No longer promised: about to be changed or removed.
    pub fn retract(&self, name: &Path) {
        self.0.lock().remove(name);
    }

    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Every promised file is there with its content.
    #[track_caller]
    pub fn check(&self, root: &Path) {
        for (name, want) in self.0.lock().iter() {
            let got = fs::read(root.join(name))
                .unwrap_or_else(|e| panic!("{name:?} was fsynced and is lost: {e}"));
            assert!(
                got == *want,
                "{name:?} was fsynced with {} bytes and has {} others",
                want.len(),
                got.len()
            );
        }
    }
}

/// `n` names in one folder: created, looked up, listed, half of them removed, listed again.
pub fn names(root: &Path, n: usize, synced: &Synced) -> io::Result<()> {
    let dir = root.join("names");
    fs::create_dir(&dir)?;
    let name = |i: usize| format!("{i:06}-{}", "n".repeat(i % 80));
    for i in 0..n {
        if i % 1000 == 999 {
            let promised = Path::new("names").join(format!("synced{i}"));
            synced.write(root, &promised, format!("content {i}").into_bytes())?;
        }
        File::create_new(dir.join(name(i)))?;
    }
    for i in 0..n {
        fs::symlink_metadata(dir.join(name(i)))?;
    }
    match fs::symlink_metadata(dir.join("absent")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
        Ok(_) => panic!("a name that nobody made is there"),
    }
    let again = File::create_new(dir.join(name(0))).map_err(|e| e.kind());
    match again {
        Err(io::ErrorKind::AlreadyExists) => {}
        Err(other) => return Err(other.into()),
        Ok(_) => panic!("one name was created twice"),
    }
    let mut want: BTreeSet<String> = (0..n).map(name).collect();
    list(&dir, &want)?;
    for i in (0..n).step_by(2) {
        fs::remove_file(dir.join(name(i)))?;
        want.remove(&name(i));
    }
    list(&dir, &want)?;
    for i in (0..n).step_by(20) {
        fs::rename(dir.join(name(i + 1)), dir.join(format!("renamed{i}")))?;
        want.remove(&name(i + 1));
        want.insert(format!("renamed{i}"));
    }
    list(&dir, &want)
}

/// The folder holds just these names (and those that were fsynced).
fn list(dir: &Path, want: &BTreeSet<String>) -> io::Result<()> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().into_string().unwrap();
        if !name.starts_with("synced") {
            assert!(found.insert(name.clone()), "{name} is listed twice");
        }
    }
    let wrong: Vec<_> = found.symmetric_difference(want).take(5).collect();
    assert!(wrong.is_empty(), "{} listed, {} expected: {wrong:?}", found.len(), want.len());
    Ok(())
}

/// A file of `n` extents: every other block written, then grown, punched and truncated.
pub fn extents(root: &Path, n: u64, block: u64, synced: &Synced) -> io::Result<()> {
    let path = root.join("extents");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    let mut model: Vec<u8> = vec![0; (2 * n * block) as usize];
    let write = |model: &mut Vec<u8>, at: u64, data: &[u8]| {
        let end = at as usize + data.len();
        if model.len() < end {
            model.resize(end, 0);
        }
        model[at as usize..end].copy_from_slice(data);
        file.write_all_at(data, at)
    };
    let check = |model: &[u8], when: &str| -> io::Result<()> {
        let mut got = Vec::new();
        File::open(&path)?.read_to_end(&mut got)?;
        assert_eq!(got.len(), model.len(), "{when}: the size");
        let at = got.iter().zip(model).position(|(a, b)| a != b);
        assert!(at.is_none(), "{when}: byte {at:?} is wrong");
        Ok(())
    };
    // Not in order, so that extents go in between others.
    let stride = (0..).map(|k| n / 3 + k).find(|s| gcd(*s, n) == 1).unwrap();
    for k in 0..n {
        let i = k * stride % n;
        write(&mut model, 2 * i * block, &vec![(i % 251 + 1) as u8; block as usize])?;
        if k % 500 == 499 {
            file.sync_data()?;
            let promised = PathBuf::from(format!("extents-synced{k}"));
            synced.write(root, &promised, vec![k as u8; 5000])?;
        }
    }
    model.truncate(((2 * n - 1) * block) as usize);
    check(&model, "written")?;
    file.sync_all()?;
    check(&model, "synced")?;

    let end = 2 * n * block;
    write(&mut model, end, &vec![0xaa; 3 * block as usize])?;
    check(&model, "grown")?;

    let (from, length) = (end / 8 + 100, end / 2);
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, length)?;
    model[from as usize..(from + length) as usize].fill(0);
    check(&model, "punched")?;

    let size = end - end / 5 + 7;
    file.set_len(size)?;
    model.truncate(size as usize);
    file.set_len(end)?;
    model.resize(end as usize, 0);
    check(&model, "truncated and grown")?;

    for i in 0..n / 4 {
        write(&mut model, from + 2 * i * block, &[0x55; 10])?;
    }
    check(&model, "filled again")?;
    file.sync_all()?;
    check(&model, "synced again")
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// `n` folders in one, named from `first`.
pub fn folders(root: &Path, first: usize, n: usize, synced: &Synced) -> io::Result<()> {
    let dir = root.join("folders");
    match fs::create_dir(&dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    for i in first..first + n {
        fs::create_dir(dir.join(format!("d{i}")))?;
        if i % 1000 == 0 {
            let promised = PathBuf::from(format!("folders/d{i}/synced"));
            synced.write(root, &promised, vec![7; i % 3000])?;
        }
    }
    Ok(())
}

/// Writes files of random sizes until the file system is full; answers how many.
pub fn fill(root: &Path, seed: u64) -> io::Result<usize> {
    let dir = root.join("fill");
    fs::create_dir(&dir)?;
    let mut random = Random::new(seed);
    let block = random.bytes(1 << 20);
    for i in 0.. {
        let size = match random.below(10) {
            0 => random.below(8 << 20),
            1..4 => random.below(300_000),
            _ => random.below(20_000),
        };
        match write_file(&dir.join(i.to_string()), &block, size) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::StorageFull => {
                // Use up what is left, down to the last block.
                for (j, piece) in [65536, 4096, 512].into_iter().enumerate() {
                    let rest = match File::create(dir.join(format!("rest{j}"))) {
                        Ok(rest) => rest,
                        Err(e) if e.kind() == io::ErrorKind::StorageFull => return Ok(i),
                        Err(e) => return Err(e),
                    };
                    let mut at = 0;
                    loop {
                        match rest.write_at(&block[..piece], at) {
                            Ok(n) => at += n as u64,
                            Err(e) if e.kind() == io::ErrorKind::StorageFull => break,
                            Err(e) => return Err(e),
                        }
                    }
                }
                return Ok(i);
            }
            Err(e) => return Err(e),
        }
    }
    unreachable!()
}

fn write_file(path: &Path, block: &[u8], size: u64) -> io::Result<()> {
    let file = File::create(path)?;
    let mut at = 0;
    while at < size {
        let n = (size - at).min(block.len() as u64);
        file.write_all_at(&block[..n as usize], at)?;
        at += n;
    }
    Ok(())
}

/// Everything at once, without end: creations, renames, links, removals, appends, truncations
/// and fsyncs in a few folders. Answers only with an error.
pub fn churn(root: &Path, seed: u64, synced: &Synced) -> io::Result<()> {
    let mut random = Random::new(seed);
    let base = PathBuf::from(format!("churn{seed}"));
    fs::create_dir(root.join(&base))?;
    for d in 0..4 {
        fs::create_dir(root.join(&base).join(format!("d{d}")))?;
    }
    let mut promised: Vec<PathBuf> = Vec::new();
    for step in 0u64.. {
        let pick =
            |random: &mut Random| base.join(format!("d{}/f{}", random.below(4), random.below(40)));
        let (one, other) = (root.join(pick(&mut random)), root.join(pick(&mut random)));
        let size = random.below(30_000) as usize;
        let result = match random.below(12) {
            0..3 => fs::write(&one, random.bytes(size)),
            3 => fs::rename(&one, &other),
            4 => fs::hard_link(&one, &other),
            5 => fs::remove_file(&one),
            6 => std::os::unix::fs::symlink("x".repeat(size % 200 + 1), &one),
            7 => OpenOptions::new()
                .append(true)
                .open(&one)
                .and_then(|f| io::Write::write_all(&mut &f, &random.bytes(size))),
            8 => OpenOptions::new()
                .write(true)
                .open(&one)
                .and_then(|f| f.set_len(random.below(50_000))),
            9 => {
                let name = base.join(format!("d{}/synced{step}", random.below(4)));
                let result = synced.write(root, &name, random.bytes(size));
                promised.push(name);
                result
            }
            10 if promised.len() > 20 => {
                // The way of every careful editor: write aside, fsync, rename over.
                let name = promised[random.below(promised.len() as u64) as usize].clone();
                let aside = base.join("aside");
                let content = random.bytes(size);
                let result = synced.write(root, &aside, content.clone()).and_then(|()| {
                    synced.retract(&aside);
                    synced.retract(&name);
                    fs::rename(root.join(&aside), root.join(&name))?;
                    File::open(root.join(&name).parent().unwrap())?.sync_all()
                });
                if result.is_ok() {
                    synced.0.lock().insert(name, content);
                }
                result
            }
            _ => {
                let dir = root.join(&base).join(format!("sub{}", random.below(5)));
                if random.below(2) == 0 { fs::create_dir(dir) } else { fs::remove_dir(dir) }
            }
        };
        // Chance meets names that are there, or not, or symlinks to nowhere.
        let harmless = [libc::ENOENT, libc::EEXIST, libc::ENOSPC, libc::ELOOP, libc::ENAMETOOLONG];
        match result {
            Err(e) if e.raw_os_error().is_some_and(|n| harmless.contains(&n)) => {
                // Below a mount that is gone nothing is there.
                fs::symlink_metadata(root.join(&base))?;
            }
            other => other?,
        }
    }
    Ok(())
}
