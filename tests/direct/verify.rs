//! fio writes blocks that carry their checksum, and reads them back: every client engine, size and depth,
//! on every block size of the image, in every mode, over every engine of the daemon.

use super::{MODES, fio::Fio};
use crate::common::{Fs, Scratch, full, scaled};

const CLIENTS: [&str; 2] = ["libaio", "io_uring"];
const SIZES: [&str; 3] = ["bs=512", "bs=4k", "bsrange=512-64k blockalign=512 bs_unaligned=0"];
const DEPTHS: [u32; 3] = [1, 16, 128];

/// All jobs on one mount. A quick run takes every third, another third on each mount.
fn one_mount(scratch: &Scratch, block: &str, mode: &str, engine: &str, n: usize) {
    let image = scratch.mkfs("img", "256M", &["-b", block]);
    let options = format!("dioread_{mode},io_engine={engine}");
    let options = if n.is_multiple_of(2) { options } else { options + ",backing=direct" };
    let mount = scratch.mount(Fs::Uext4, &image, &options);
    let mut i = n;
    for client in CLIENTS {
        for size in SIZES {
            for depth in DEPTHS {
                i += 1;
                if !full() && !i.is_multiple_of(5) {
                    continue;
                }
                let rw = ["randwrite", "randrw", "write"][i % 3];
                let bytes =
                    if size == "bs=512" { scaled("256k", "4m") } else { scaled("2m", "32m") };
                Fio::new(&mount.join(format!("f{}", i % 4)))
                    .with(&format!("ioengine={client} iodepth={depth} {size} rw={rw} size={bytes}"))
                    .with("verify=crc32c verify_fatal=1 verify_interval=512 name=job")
                    .run();
            }
        }
    }
    mount.umount();
    image.fsck();
}

#[test]
fn what_is_written_is_read_back() {
    let scratch = Scratch::new();
    let mut n = 0;
    for (b, block) in ["1024", "4096", "65536"].into_iter().enumerate() {
        for (m, mode) in MODES.into_iter().enumerate() {
            for (e, engine) in ["sync", "threads", "io_uring"].into_iter().enumerate() {
                n += 1;
                // Quick: each pair of two of the three once.
                if full() || (b + m + e) % 3 == 0 {
                    one_mount(&scratch, block, mode, engine, n);
                }
            }
        }
    }
}
