//! How much to look for: the request that mballoc makes of what the file asked. Pure.

/// What a request is turned into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Just the blocks asked for.
    Exact,
    /// So many blocks, in all, from the request's first on; the rest is held for the inode.
    Inode(u32),
    /// So many blocks, in all; the rest is held for other small files.
    Locality(u32),
}

/// What [`plan`] looks at; all in blocks.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// First file block asked for.
    pub lblk: u32,
    /// Blocks asked for, at least 1.
    pub len: u32,
    /// Blocks that the file has or is about to have.
    pub file_blocks: u64,
    /// log2 of the block size.
    pub block_bits: u32,
    /// `mb_stream_req`
    pub stream_req: u32,
    /// `mb_group_prealloc`
    pub group_prealloc: u32,
    /// `mb_max_request`; `len` is not above it.
    pub max_request: u32,
}

/// Turns a data request into what to look for.
///
/// A small file that is allocated whole shares a locality group's blocks with
/// its like. Any other is expected to grow to the end of a window: the next power
/// of two up to 1 MiB, then windows of 2, 4 and 8 MiB. Blocks before the request
/// are taken to be there already, so the window is cut at its first block.
pub fn plan(a: &Ask) -> Plan {
    let end = u64::from(a.lblk) + u64::from(a.len);
    let size = end.max(a.file_blocks);
    if size <= u64::from(a.stream_req) && a.lblk == 0 && end >= a.file_blocks {
        let want = a.group_prealloc.min(a.max_request);
        return if want > a.len { Plan::Locality(want) } else { Plan::Exact };
    }
    const MIB: u64 = 1 << 20;
    let bytes = size << a.block_bits;
    let window = match bytes {
        0..=MIB => bytes.next_power_of_two().max(16 << 10),
        _ if bytes <= 4 * MIB => 2 * MIB,
        _ if bytes <= 8 * MIB => 4 * MIB,
        _ => 8 * MIB,
    };
    let window = (window >> a.block_bits).max(1);
    let window_end = (u64::from(a.lblk) / window + 1) * window;
    let limit = u64::from(a.max_request).min(u64::from(u32::MAX - a.lblk));
    let want = (window_end - u64::from(a.lblk)).min(limit) as u32;
    if want > a.len { Plan::Inode(want) } else { Plan::Exact }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(lblk: u32, len: u32, file_blocks: u64) -> Ask {
        Ask {
            lblk,
            len,
            file_blocks,
            block_bits: 12,
            stream_req: 16,
            group_prealloc: 512,
            max_request: 2048,
        }
    }

    #[test]
    fn windows_grow_with_the_file() {
        assert_eq!(plan(&ask(0, 1, 1)), Plan::Locality(512));
        assert_eq!(plan(&ask(0, 16, 16)), Plan::Locality(512));
        assert_eq!(plan(&ask(0, 17, 17)), Plan::Inode(32));
        // An append is no whole file.
        assert_eq!(plan(&ask(1, 1, 2)), Plan::Inode(3));
        assert_eq!(plan(&ask(4, 1, 5)), Plan::Inode(4));
        assert_eq!(plan(&ask(128, 1, 129)), Plan::Inode(128));
        assert_eq!(plan(&ask(256, 1, 257)), Plan::Inode(256));
        assert_eq!(plan(&ask(512, 1, 513)), Plan::Inode(512));
        assert_eq!(plan(&ask(1024, 1, 1025)), Plan::Inode(1024));
        assert_eq!(plan(&ask(2048, 1, 2049)), Plan::Inode(2048));
        assert_eq!(plan(&ask(2048, 2048, 9999)), Plan::Exact);
        assert_eq!(plan(&ask(2047, 1, 9999)), Plan::Exact);
    }

    #[test]
    fn appending_block_by_block_takes_few_plans() {
        // 512 appends of one block: the plans that are made once the last is used up.
        let (mut at, mut plans) = (1u32, 1);
        while at < 512 {
            match plan(&ask(at, 1, u64::from(at) + 1)) {
                Plan::Inode(n) => at += n,
                Plan::Exact => at += 1,
                Plan::Locality(_) => panic!("an append is no whole file"),
            }
            plans += 1;
        }
        assert!(plans <= 11, "{plans}");
    }

    proptest! {
        #[test]
        fn never_shrinks_overflows_or_exceeds(
            lblk: u32, len in 1u32..5000, file in 0u64..1 << 32, bits in 10u32..=16,
            stream in 0u32..100, group in 0u32..5000, max in 1u32..10_000,
        ) {
            let len = len.min(max).min(u32::MAX - lblk).max(1);
            let a = Ask { lblk, len, file_blocks: file, block_bits: bits, stream_req: stream,
                group_prealloc: group, max_request: max };
            match plan(&a) {
                Plan::Exact => {}
                Plan::Inode(n) => {
                    prop_assert!(n > len && n <= max);
                    prop_assert!(lblk.checked_add(n).is_some());
                }
                Plan::Locality(n) => prop_assert!(n > len && n <= max && lblk == 0),
            }
        }
    }
}
