//! fsx with every file opened O_DIRECT, by a small library in front of it.

use super::MODES;
use crate::common::{Fs, Scratch, View, full, run, scaled, tool};

/// open(2) with O_DIRECT for files named fsx.data.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
static int more(const char *path, int flags) {
    return strstr(path, "fsx.data") ? flags | O_DIRECT : flags;
}
#define SHIM(name) int name(const char *path, int flags, ...) { \
    va_list ap; va_start(ap, flags); mode_t mode = va_arg(ap, mode_t); va_end(ap); \
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name); \
    return real(path, more(path, flags), mode); }
SHIM(open)
SHIM(open64)
"#;

fn fsx(block: &str, options: &str, seed: u64) {
    let scratch = Scratch::new();
    let (source, shim) = (scratch.join("shim.c"), scratch.join("shim.so"));
    std::fs::write(&source, SHIM).unwrap();
    run(tool("cc").args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(&source).arg("-ldl"));
    let toml = scratch.join("fsx.toml");
    let config = "
[opsize]
min = 512
align = 512
[weights]
close_open = 1.0
invalidate = 1.0
truncate = 10.0
fsync = 5.0
fdatasync = 5.0
posix_fallocate = 5.0
punch_hole = 5.0
read = 20.0
write = 20.0
mapread = 10.0
mapwrite = 10.0
";
    std::fs::write(&toml, config).unwrap();
    let image = scratch.mkfs("img", "256M", &["-b", block]);
    let mount = scratch.mount(Fs::Uext4, &image, options);
    let before = super::counter(&mount, &direct_reads(options));
    run(tool("fsx")
        .env("LD_PRELOAD", &shim)
        .args(["-N", scaled("3000", "300000"), "-S", &seed.to_string(), "-f"])
        .arg(&toml)
        .arg("-P")
        .arg(scratch.path())
        .arg(mount.join("fsx.data")));
    let reads = super::counter(&mount, &direct_reads(options)) - before;
    assert!(reads > 100, "{reads} direct reads: the files were not opened direct");
    mount.umount();
    image.fsck();
    if block != "65536" {
        let (ours, theirs) = (scratch.read(Fs::Uext4, &image), scratch.read(Fs::Kernel, &image));
        ours.assert_matches(&theirs, View::Same, "after fsx");
    }
}

fn direct_reads(options: &str) -> String {
    let mode = MODES.into_iter().find(|m| options.contains(&format!("dioread_{m}")));
    format!("dio_{}_reads", mode.unwrap())
}

#[test]
fn nolock() {
    fsx("4096", "dioread_nolock", 1);
}

#[test]
fn lock_in_1k() {
    fsx("1024", "dioread_lock", 2);
}

#[test]
fn shared_in_64k() {
    fsx("65536", "dioread_shared", 3);
}

#[test]
fn submitted_to_a_modelled_disk() {
    fsx("4096", "dioread_nolock,disk_model=nvme,disk_scale=10", 4);
}

#[test]
fn around_the_page_cache_of_the_host() {
    fsx("1024", "dioread_nolock,backing=direct", 5);
}

#[test]
fn every_block_size_and_mode() {
    if !full() {
        return;
    }
    for (n, block) in ["1024", "2048", "4096", "65536"].into_iter().enumerate() {
        for mode in MODES {
            fsx(block, &format!("dioread_{mode}"), 10 + n as u64);
        }
    }
}
