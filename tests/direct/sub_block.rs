//! Writes smaller than a block: into holes, unwritten blocks, the last block, past the end.

use super::{MODES, aligned::direct, counter};
use crate::common::{Fs, Image, Random, Scratch, run, scaled, tool};
use rustix::fs::{FallocateFlags, fallocate};
use std::os::unix::fs::FileExt;

const SIZE: usize = 1 << 20;

/// An image whose free blocks are full of 0xa5.
fn poisoned(scratch: &Scratch, block: &str) -> Image {
    let path = scratch.join("img");
    std::fs::write(&path, vec![0xa5; 128 << 20]).unwrap();
    run(tool("mkfs.ext4").args(["-q", "-F", "-E", "nodiscard", "-b", block]).arg(&path));
    Image::existing(path)
}

/// In requests that the kernel does not have to cut at a page of memory, which here need not be aligned.
fn read_all(f: &std::fs::File, buf: &mut [u8]) -> usize {
    let mut at = 0;
    for piece in buf.chunks_mut(1 << 18) {
        at += f.read_at(piece, at as u64).unwrap();
    }
    at
}

#[test]
fn the_rest_of_a_block_is_zero_or_what_it_was() {
    for (block, mode) in ["1024", "4096", "65536"].into_iter().zip(MODES) {
        let scratch = Scratch::new();
        let image = poisoned(&scratch, block);
        let mount = scratch.mount(Fs::Uext4, &image, &format!("dioread_{mode}"));
        let f = direct(&mount.join("f"));
        // Unwritten in the middle, a hole on both sides of it.
        fallocate(&f, FallocateFlags::KEEP_SIZE, 300_000, 300_000).unwrap();
        let (mut model, mut end) = (vec![0u8; SIZE], 0);
        let mut random = Random::new(5);
        for n in 0..scaled(400, 20_000) {
            let off = random.next() as usize % (SIZE / 512 - 40) * 512;
            let len = (1 + random.next() as usize % 40) * 512;
            let data = vec![1 + (n % 100) as u8; len];
            f.write_all_at(&data, off as u64).unwrap();
            model[off..off + len].copy_from_slice(&data);
            end = end.max(off + len);
            if n % 50 == 7 {
                let at = random.next() as usize % (end / 512) * 512;
                f.set_len(at as u64).unwrap();
                model[at..].fill(0);
                end = at;
            }
        }
        let mut got = vec![0xee; SIZE];
        let n = read_all(&f, &mut got);
        assert_eq!(n, end);
        assert!(got[..n] == model[..n], "{mode}, blocks of {block}");
        assert!(counter(&mount, &format!("dio_{mode}_conversions")) > 0);
        drop(f);
        mount.umount();
        image.fsck();
        let mount = scratch.mount(Fs::Uext4, &image, "ro");
        let got = std::fs::read(mount.join("f")).unwrap();
        assert!(got[..] == model[..end], "{mode}, blocks of {block}, after a remount");
        mount.umount();
    }
}

/// Bytes that another writer of the image left after the end of the file never come up.
#[test]
fn what_lies_after_the_end_is_zero_when_the_file_grows() {
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", &["-b", "4096"]);
    let mount = scratch.mount(Fs::Uext4, &image, "");
    std::fs::write(mount.join("f"), [0x5a; 4096]).unwrap();
    mount.umount();
    run(tool("debugfs").args(["-w", "-R", "sif f size 1000"]).arg(image.path()));
    let mount = scratch.mount(Fs::Uext4, &image, "");
    direct(&mount.join("f")).write_all_at(&[7; 4096], 8192).unwrap();
    let got = std::fs::read(mount.join("f")).unwrap();
    assert!(got[..1000].iter().all(|b| *b == 0x5a) && got[8192..].iter().all(|b| *b == 7));
    assert_eq!(got[1000..8192].iter().position(|b| *b != 0), None, "bytes from after the end");
    mount.umount();
    image.fsck();
}

/// The size moves when the data is down: a reader that sees the size sees the data.
#[test]
fn a_reader_sees_no_size_without_its_data() {
    let scratch = Scratch::new();
    let image = poisoned(&scratch, "4096");
    let mount = scratch.mount(Fs::Uext4, &image, "disk_model=nvme");
    let (f, path) = (direct(&mount.join("f")), mount.join("f"));
    let blocks = scaled(300u64, 5000);
    std::thread::scope(|s| {
        let reader = s.spawn(|| {
            let r = direct(&path);
            let mut b = vec![0; 1 << 19];
            loop {
                let n = r.read_at(&mut b, 0).unwrap();
                assert!(b[..n].iter().all(|x| *x == 9), "a size of {n} without its data");
                if n as u64 >= (blocks * 3584).min(b.len() as u64) {
                    return;
                }
            }
        });
        for i in 0..blocks {
            f.write_all_at(&[9; 3584], i * 3584).unwrap();
        }
        reader.join().unwrap();
    });
    drop(f);
    mount.umount();
    image.fsck();
}
