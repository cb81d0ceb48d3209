//! `-o backing=direct`, and engines that the kernel does not allow.

use super::fio::Fio;
use crate::common::{Fs, Mount, Scratch, mount::is_mounted, sh, tool, uext4};
use std::os::unix::process::CommandExt;

/// Bytes of the image in the host's page cache, as fincore counts them.
fn cached(image: &std::path::Path) -> u64 {
    let out = crate::common::run(tool("fincore").args(["-bnro", "RES"]).arg(image));
    out.trim().parse().unwrap()
}

#[test]
fn direct_backing_leaves_the_hosts_page_cache_alone() {
    // Where O_DIRECT means something: not on tmpfs.
    let scratch = Scratch::new();
    for (backing, quiet) in [("direct", true), ("buffered", false)] {
        let image = scratch.mkfs(&format!("img-{backing}"), "256M", &[]);
        sh(
            scratch.path(),
            &format!(
                "sync img-{backing}; dd of=img-{backing} oflag=nocache conv=notrunc,fdatasync count=0 status=none"
            ),
        );
        let mount = scratch.mount(Fs::Uext4, &image, &format!("backing={backing}"));
        let before = cached(image.path());
        Fio::new(&mount.join("f"))
            .with("ioengine=libaio iodepth=16 bs=512 rw=randrw size=4m verify=crc32c name=small")
            .run();
        Fio::new(&mount.join("g"))
            .with("ioengine=libaio iodepth=4 bs=256k rw=write size=64m verify=crc32c name=large")
            .run();
        // Buffered writes in pieces of any size come out aligned.
        sh(mount.path(), "seq 300000 > text; sync text; seq 300000 | cmp - text");
        let grew = cached(image.path()).saturating_sub(before);
        println!("backing={backing}: {grew} bytes more in the page cache");
        assert_eq!(grew < 8 << 20, quiet, "backing={backing}: {grew} bytes in the page cache");
        mount.umount();
        image.fsck();
    }
}

/// The system call filter that a container runtime puts up: no io_uring.
fn without_io_uring(c: &mut std::process::Command) {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    let rules = std::collections::BTreeMap::from([(libc::SYS_io_uring_setup, vec![])]);
    let deny = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, deny, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    // SAFETY: between fork and exec; it makes system calls only.
    unsafe {
        c.pre_exec(move || seccompiler::apply_filter(&program).map_err(std::io::Error::other));
    }
}

#[test]
fn without_io_uring_there_are_threads_and_one_line_says_so() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", &[]);
    for (options, says) in [("backing=direct", 1), ("backing=direct,io_engine=threads", 0)] {
        let point = scratch.join("mnt");
        std::fs::create_dir_all(&point).unwrap();
        let log = std::fs::File::create(point.with_extension("log")).unwrap();
        let mut c = std::process::Command::new(uext4());
        c.args(["mount", "-o", options]).arg(image.path()).arg(&point);
        c.stdin(std::process::Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        without_io_uring(&mut c);
        assert!(c.status().unwrap().success() && is_mounted(&point));
        let mount = Mount::adopt(Fs::Uext4, &point);
        let text = mount.log();
        assert_eq!(text.matches("io_uring").count(), says, "{options}: {text}");
        Fio::new(&mount.join("f"))
            .with("ioengine=libaio iodepth=32 bs=4k rw=randwrite size=4m verify=crc32c name=j")
            .run();
        mount.umount();
        image.fsck();
    }
}
