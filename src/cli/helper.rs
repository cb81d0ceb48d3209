//! What mount(8) and umount(8) run: `mount.uext4 SOURCE MOUNTPOINT [-sfnvr] [-o ...]`
//! and `umount.uext4 MOUNTPOINT [-flnrv]`. Chosen by the name the program is
//! called by, or by `mount-helper` and `umount-helper` as its first argument.

use super::args::UmountArgs;
use super::mount::Plan;
use super::{Backend, Failure, mount, umount};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A call by mount(8) or umount(8).
pub enum Helper {
    /// Mount.
    Mount(Box<Plan>),
    /// Unmount.
    Umount(UmountArgs),
    /// `mount -f`: everything but the mount.
    Fake,
}

impl Helper {
    /// Does it.
    pub fn run<B: Backend>(self, backend: B) -> Result<(), Failure> {
        match self {
            Helper::Mount(plan) => mount::run(*plan, backend),
            Helper::Umount(args) => umount::run(&args),
            Helper::Fake => Ok(()),
        }
    }
}

/// The call, if it is one.
pub fn parse(argv: &[OsString]) -> Result<Option<Helper>, Failure> {
    let name = argv.first().and_then(|a| Path::new(a).file_name());
    let name = name.map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let (is_mount, words) = match (name.as_str(), argv.get(1).and_then(|a| a.to_str())) {
        (n, _) if n.starts_with("mount.") => (true, argv.get(1..)),
        (n, _) if n.starts_with("umount.") => (false, argv.get(1..)),
        (_, Some("mount-helper")) => (true, argv.get(2..)),
        (_, Some("umount-helper")) => (false, argv.get(2..)),
        _ => return Ok(None),
    };
    let words = words.unwrap_or_default();
    if is_mount { mount_call(words).map(Some) } else { umount_call(words).map(Some) }
}

/// Splits words into flags, values of the options named in `valued`, and the rest.
struct Words {
    flags: Vec<u8>,
    values: Vec<(u8, OsString)>,
    rest: Vec<PathBuf>,
}

impl Words {
    fn of(words: &[OsString], flags: &[u8], valued: &[u8]) -> Result<Words, Failure> {
        let mut w = Words { flags: vec![], values: vec![], rest: vec![] };
        let mut words = words.iter();
        let mut only_names = false;
        while let Some(word) = words.next() {
            let bytes = word.as_bytes();
            match bytes.split_first() {
                Some((b'-', letters)) if !letters.is_empty() && !only_names => {
                    if letters == b"-" {
                        only_names = true;
                        continue;
                    }
                    let mut letters = letters.iter().copied();
                    while let Some(letter) = letters.next() {
                        if valued.contains(&letter) {
                            let tail: Vec<u8> = letters.by_ref().collect();
                            let value = if tail.is_empty() {
                                words.next().cloned().ok_or_else(|| {
                                    let letter = char::from(letter);
                                    Failure::usage(format!("option -{letter} needs a value"))
                                })?
                            } else {
                                std::os::unix::ffi::OsStringExt::from_vec(tail)
                            };
                            w.values.push((letter, value));
                        } else if flags.contains(&letter) {
                            w.flags.push(letter);
                        } else {
                            let shown = word.to_string_lossy();
                            return Err(Failure::usage(format!("unknown option {shown}")));
                        }
                    }
                }
                _ => w.rest.push(word.into()),
            }
        }
        Ok(w)
    }
    fn has(&self, flag: u8) -> bool {
        self.flags.contains(&flag)
    }
}

fn mount_call(words: &[OsString]) -> Result<Helper, Failure> {
    let w = Words::of(words, b"sfnvrwh", b"oNt")?;
    let [source, point] = w.rest.as_slice() else {
        return Err(Failure::usage("usage: mount.uext4 SOURCE MOUNTPOINT [-sfnvrw] [-o OPTIONS]"));
    };
    if w.values.iter().any(|(letter, _)| *letter == b'N') {
        return Err(Failure::usage("mounting in another namespace (-N) is not supported"));
    }
    let mut options: Vec<String> = vec![];
    for (letter, value) in &w.values {
        if *letter == b'o' {
            let text = value.to_str().ok_or_else(|| Failure::usage("options are not UTF-8"))?;
            options.push(text.to_string());
        }
    }
    if w.has(b'r') {
        options.push("ro".into());
    }
    let mut plan = Plan::new(source, point, &options, w.has(b's'))?;
    // mount(8) mounts over directories that have entries.
    plan.options.nonempty = true;
    if w.has(b'f') {
        return Ok(Helper::Fake);
    }
    Ok(Helper::Mount(Box::new(Plan { verbose: w.has(b'v'), ..plan })))
}

fn umount_call(words: &[OsString]) -> Result<Helper, Failure> {
    let w = Words::of(words, b"flnrvh", b"Nt")?;
    let [target] = w.rest.as_slice() else {
        return Err(Failure::usage("usage: umount.uext4 MOUNTPOINT [-flnrv]"));
    };
    if w.values.iter().any(|(letter, _)| *letter == b'N') {
        return Err(Failure::usage("unmounting in another namespace (-N) is not supported"));
    }
    Ok(Helper::Umount(UmountArgs {
        lazy: w.has(b'l'),
        force: w.has(b'f'),
        verbose: w.has(b'v'),
        target: target.clone(),
        anything: true,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &str) -> Result<Option<Helper>, Failure> {
        parse(&words.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn mount_8_s_forms() {
        for words in [
            "/sbin/mount.uext4 /d.img /mnt -o rw,nosuid,dioread_nolock,uhelper=uext4",
            "mount.fuse.uext4 /d.img /mnt -sv -o nosuid,rw,dioread_nolock -t fuse.uext4",
            "uext4 mount-helper /d.img /mnt -n -onosuid,dioread_nolock",
        ] {
            let Ok(Some(Helper::Mount(plan))) = call(words) else { panic!("{words}") };
            assert_eq!((plan.source.to_str(), plan.point.to_str()), (Some("/d.img"), Some("/mnt")));
            assert_eq!(plan.options.suid, Some(false));
            assert!(plan.options.nonempty && !plan.foreground);
        }
        assert!(matches!(call("mount.uext4 a b -f"), Ok(Some(Helper::Fake))));
        assert!(matches!(call("mount.uext4 a b -s -f -o zzz"), Ok(Some(Helper::Fake))));
    }

    #[test]
    fn umount_8_s_forms() {
        let Ok(Some(Helper::Umount(a))) = call("/sbin/umount.fuse.uext4 /mnt -lnv -t fuse.uext4")
        else {
            panic!()
        };
        assert!(a.lazy && a.verbose && a.anything && !a.force);
    }

    #[test]
    fn wrong_calls_are_refused() {
        for words in [
            "mount.uext4",
            "mount.uext4 a",
            "mount.uext4 a b -q",
            "mount.uext4 a b -o",
            "mount.uext4 a b -o zzz",
            "mount.uext4 a b -N 7",
            "umount.uext4",
            "umount.uext4 a b",
        ] {
            assert_eq!(call(words).err().map(|f| f.code), Some(1), "{words}");
        }
        assert!(matches!(call("uext4 mount a b"), Ok(None)));
    }
}
