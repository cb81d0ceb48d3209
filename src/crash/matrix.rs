//! The images and mount options that workloads are tried with.

use super::record::{ImageSpec, Setup};

/// Size in MiB and arguments of mke2fs.
const IMAGES: &[(u64, &str)] = &[
    (12, "-b 1024 -J size=1"),
    (20, "-b 4096 -J size=4 -O orphan_file"),
    (12, "-b 1024 -J size=1 -O ^metadata_csum,^64bit,^flex_bg"),
    (16, "-b 2048 -J size=2 -O inline_data,ea_inode,metadata_csum_seed -I 256"),
    (12, "-b 1024 -J size=1 -I 128 -O ^extents,^64bit,^dir_index,^huge_file"),
];

/// Data modes, lock modes, delayed allocation on and off. `data=journal` has neither of the other two.
const OPTIONS: &[&str] = &[
    "dioread_nolock",
    "dioread_shared",
    "dioread_lock",
    "nodelalloc,dioread_nolock",
    "nodelalloc,dioread_shared",
    "nodelalloc,dioread_lock",
    "data=writeback,dioread_nolock",
    "data=writeback,dioread_shared",
    "data=writeback,dioread_lock",
    "data=writeback,nodelalloc,dioread_nolock",
    "data=writeback,nodelalloc,dioread_shared",
    "data=writeback,nodelalloc,dioread_lock",
    "data=journal",
    "journal_async_commit,data=writeback",
];

/// Every image with all options.
pub fn setups() -> Vec<Setup> {
    let of = |&(mib, mkfs): &(u64, &str)| {
        let image = ImageSpec { size: mib << 20, mkfs: mkfs.into() };
        OPTIONS.iter().map(move |o| Setup { image: image.clone(), options: (*o).into() })
    };
    IMAGES.iter().flat_map(of).collect()
}

/// The block size that mke2fs was asked for.
pub fn block_size(mkfs: &str) -> u64 {
    let word = mkfs.split_whitespace().skip_while(|w| *w != "-b").nth(1);
    word.and_then(|b| b.parse().ok()).unwrap_or(4096)
}
