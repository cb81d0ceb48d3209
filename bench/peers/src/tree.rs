//! Loads of a tree of files: untar, find, du, reading all, git, removing.

use crate::peer::Peer;
use crate::record::{Figure, Recorder};
use crate::workloads::Scale;
use bench_core::{Context, Result, command};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tar archive of `files` files in directories of 50, from 100 bytes to 30 KiB, made once.
fn archive(files: u64) -> Result<PathBuf> {
    let base = std::env::temp_dir().join(format!("uext4-bench.{}.{files}", std::process::id()));
    let tar = base.with_extension("tar");
    if tar.exists() {
        return Ok(tar);
    }
    let mut rng = 88_172_645_463_325_252u64;
    for i in 0..files {
        let dir = base.join(format!("tree/d{}/e{}", i / 1000, i / 50));
        if i % 50 == 0 {
            std::fs::create_dir_all(&dir)?;
        }
        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        let len = 100 + (rng % 4000) * if rng.is_multiple_of(7) { 8 } else { 1 };
        let body: Vec<u8> = (0..len).map(|n| b'a' + ((n ^ i) % 26) as u8).collect();
        std::fs::write(dir.join(format!("file{i}.txt")), body)?;
    }
    command::run(Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(&base).arg("tree"))?;
    std::fs::remove_dir_all(&base)?;
    Ok(tar)
}

/// Removes the archives that were made.
pub fn clean_up() {
    for s in [Scale::FULL, Scale::QUICK] {
        let name = format!("uext4-bench.{}.{}.tar", std::process::id(), s.tree);
        let _ = std::fs::remove_file(std::env::temp_dir().join(name));
    }
}

/// Untar, look, read, git, remove.
pub fn run(peer: &mut Peer, s: &Scale, r: &mut Recorder<'_>) -> Result<()> {
    if !peer.has_names() {
        return Ok(());
    }
    let tar = archive(s.tree)?;
    let top = peer.path("work");
    std::fs::create_dir(&top)?;
    let tree = top.join("tree");
    let mut shell = |peer: &Peer, name: &str, line: &str, arg: &Path| {
        r.timed(peer, name, || {
            let mut cmd = Command::new("sh");
            cmd.args(["-c", line, "sh"]).arg(arg).arg(&top);
            cmd.env("GIT_CONFIG_GLOBAL", "/dev/null").env("HOME", &top);
            command::run(&mut cmd).with_context(|| line.to_string())?;
            Ok((Figure::Seconds(s.tree), None))
        })
    };
    shell(peer, "untar", r#"tar -xf "$1" -C "$2""#, &tar)?;
    shell(peer, "find, warm", r#"find "$1" -size +1 >/dev/null"#, &tree)?;
    shell(peer, "read all, warm", r#"tar -cf - -C "$1" . | cat >/dev/null"#, &tree)?;
    peer.cool()?;
    shell(peer, "find, cold", r#"find "$1" -size +1 >/dev/null"#, &tree)?;
    peer.cool()?;
    shell(peer, "du, cold", r#"du -s "$1" >/dev/null"#, &tree)?;
    peer.cool()?;
    shell(peer, "read all, cold", r#"tar -cf - -C "$1" . | cat >/dev/null"#, &tree)?;
    let init = r#"cd "$1" && git init -q . && git add . &&
        git -c user.name=b -c user.email=b@b commit -qm b"#;
    shell(peer, "git add and commit", init, &tree)?;
    shell(peer, "git clone", r#"git clone -q --no-hardlinks "$1" "$2/clone""#, &tree)?;
    shell(peer, "git status", r#"git -C "$2/clone" status >/dev/null"#, &tree)?;
    shell(peer, "rm -rf, warm", r#"rm -rf "$2/clone""#, &tree)?;
    peer.cool()?;
    shell(peer, "rm -rf, cold", r#"rm -rf "$2/tree""#, &tree)?;
    std::fs::remove_dir_all(&top)?;
    Ok(())
}
