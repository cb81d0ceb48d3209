//! What write-out did since the mount, for each policy, and for the passes that somebody waited for.

use super::policy;
use crate::options::PolicyName;
use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Buckets of the size histogram: 4 KiB and less, up to 8 KiB, and so on; the last has all above
/// 32 MiB.
pub const BUCKETS: usize = 15;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the passes of one kind.
        #[derive(Debug, Default)]
        pub struct PassStats {
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// Device requests by size: see [`BUCKETS`].
            pub sizes: [AtomicU64; BUCKETS],
        }

        /// A copy of [`PassStats`].
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct PassCount {
            $($(#[$doc])* pub $name: u64,)*
            /// Device requests by size: see [`BUCKETS`].
            pub sizes: [u64; BUCKETS],
        }

        impl PassStats {
            /// The counters now.
            pub fn get(&self) -> PassCount {
                let mut sizes = [0; BUCKETS];
                for (to, from) in sizes.iter_mut().zip(&self.sizes) {
                    *to = from.load(Relaxed);
                }
                PassCount { $($name: self.$name.load(Relaxed),)* sizes }
            }
        }

        impl PassCount {
            fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Passes over an inode.
    passes,
    /// Pages that they were allowed.
    asked,
    /// Pages that were counted one by one to find that out.
    counted,
    /// Pages written.
    written,
    /// Runs of contiguous pages.
    runs,
    /// Calls of the allocator.
    allocations,
    /// New extents: what the allocator gave that did not continue the blocks before it.
    extents,
    /// Device requests.
    requests,
    /// Bytes in them.
    bytes,
    /// Runs that failed.
    errors,
}

impl PassStats {
    pub(super) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }

    pub(super) fn request(&self, bytes: u64) {
        self.requests.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.sizes[bucket(bytes)].fetch_add(1, Relaxed);
    }
}

impl PassCount {
    /// What happened since `before`.
    pub fn since(&self, before: &PassCount) -> PassCount {
        let mut sizes = self.sizes;
        for (n, b) in sizes.iter_mut().zip(before.sizes) {
            *n = n.saturating_sub(b);
        }
        PassCount {
            passes: self.passes.saturating_sub(before.passes),
            asked: self.asked.saturating_sub(before.asked),
            counted: self.counted.saturating_sub(before.counted),
            written: self.written.saturating_sub(before.written),
            runs: self.runs.saturating_sub(before.runs),
            allocations: self.allocations.saturating_sub(before.allocations),
            extents: self.extents.saturating_sub(before.extents),
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
            errors: self.errors.saturating_sub(before.errors),
            sizes,
        }
    }
}

fn bucket(bytes: u64) -> usize {
    let pages = bytes.div_ceil(4096).max(1);
    (pages.next_power_of_two().ilog2() as usize).min(BUCKETS - 1)
}

/// Counters of write-out.
#[derive(Debug, Default)]
pub struct Stats {
    policies: [PassStats; 4],
    /// fsync, sync, direct I/O, shortage: nobody asked a policy.
    pub waited_for: PassStats,
}

impl Stats {
    /// Those of one policy; without one, of the passes that somebody waited for.
    pub fn of(&self, policy: Option<PolicyName>) -> &PassStats {
        match policy {
            Some(p) => &self.policies[policy::index(p)],
            None => &self.waited_for,
        }
    }

    /// Every counter, one a line: `writeback_POLICY_NAME VALUE`. A histogram is one line of `SIZE:COUNT`.
    pub fn text(&self) -> String {
        let mut s = String::new();
        let all = policy::NAMES.into_iter().map(Some).chain([None]);
        for p in all {
            let kind = p.map_or("waited_for", PolicyName::as_str);
            let c = self.of(p).get();
            for (name, n) in c.named() {
                let _ = writeln!(s, "writeback_{kind}_{name} {n}");
            }
            let sizes: Vec<String> = (0..)
                .zip(c.sizes)
                .filter(|(_, n)| *n > 0)
                .map(|(i, n): (u32, u64)| format!("{}k:{n}", 4u64 << i))
                .collect();
            let _ = writeln!(s, "writeback_{kind}_request_sizes {}", sizes.join(" "));
        }
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_to_the_smallest_bucket_that_holds_them() {
        let cases =
            [(0, 0), (512, 0), (4096, 0), (4097, 1), (8192, 1), (4 << 20, 10), (1 << 40, 14)];
        for (bytes, b) in cases {
            assert_eq!(bucket(bytes), b, "{bytes}");
        }
    }

    #[test]
    fn each_policy_counts_for_itself() {
        let s = Stats::default();
        s.of(Some(PolicyName::Fixed8)).request(8192);
        let before = s.of(Some(PolicyName::Fixed8)).get();
        s.of(Some(PolicyName::Fixed8)).request(4096);
        s.of(None).request(1 << 20);
        let c = s.of(Some(PolicyName::Fixed8)).get().since(&before);
        assert_eq!((c.requests, c.bytes, c.sizes[0], c.sizes[1]), (1, 4096, 1, 0));
        assert!(s.text().contains("writeback_fixed8_request_sizes 4k:1 8k:1\n"));
        assert!(s.text().contains("writeback_waited_for_request_sizes 1024k:1\n"));
        assert!(s.text().contains("writeback_extent_requests 0\n"));
    }
}
