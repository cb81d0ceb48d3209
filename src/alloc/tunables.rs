//! What of the allocator can be turned, live, by mballoc's own names; and what it counts.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Values of the tunables; `Default` has ext4's.
#[derive(Clone, Debug)]
pub struct TunableValues {
    /// Power-of-two requests of at least this order use the buddy alone.
    pub mb_order2_req: u32,
    /// A good enough extent is taken only after this many were looked at.
    pub mb_min_to_scan: u32,
    /// No more extents than this are looked at.
    pub mb_max_to_scan: u32,
    /// Files of up to this many blocks use locality groups.
    pub mb_stream_req: u32,
    /// Blocks that a locality group preallocates.
    pub mb_group_prealloc: u32,
    /// Most blocks that one request gets, and that an inode preallocation holds.
    pub mb_max_request: u32,
    /// `stripe=`, in blocks; 0: none.
    pub stripe: u32,
    /// Count into [`Stats`].
    pub mb_stats: bool,
    /// Discard freed blocks at commit.
    pub discard: bool,
    /// Memory for buddies, in bytes.
    pub buddy_cache_bytes: usize,
    /// Most preallocations held at once.
    pub mb_max_preallocs: usize,
    /// `minixdf`: statfs counts the metadata overhead as used blocks.
    pub minixdf: bool,
}

impl Default for TunableValues {
    fn default() -> TunableValues {
        TunableValues {
            mb_order2_req: 2,
            mb_min_to_scan: 10,
            mb_max_to_scan: 200,
            mb_stream_req: 16,
            mb_group_prealloc: 512,
            mb_max_request: 2048,
            stripe: 0,
            mb_stats: false,
            discard: false,
            buddy_cache_bytes: 16 << 20,
            mb_max_preallocs: 16384,
            minixdf: false,
        }
    }
}

macro_rules! tunables {
    ($($name:ident: $atomic:ident, $value:ty, $set:ident;)*) => {
        /// The tunables as they are now. Every one may change at any time.
        #[derive(Debug)]
        #[allow(missing_docs)]
        pub struct Tunables { $($name: $atomic,)* }

        #[allow(missing_docs)]
        impl Tunables {
            /// From values.
            pub fn new(v: &TunableValues) -> Tunables {
                Tunables { $($name: $atomic::new(v.$name),)* }
            }
            $(
                pub fn $name(&self) -> $value {
                    self.$name.load(Relaxed)
                }
                pub fn $set(&self, v: $value) {
                    self.$name.store(v, Relaxed);
                }
            )*
        }
    };
}

tunables! {
    mb_order2_req: AtomicU32, u32, set_mb_order2_req;
    mb_min_to_scan: AtomicU32, u32, set_mb_min_to_scan;
    mb_max_to_scan: AtomicU32, u32, set_mb_max_to_scan;
    mb_stream_req: AtomicU32, u32, set_mb_stream_req;
    mb_group_prealloc: AtomicU32, u32, set_mb_group_prealloc;
    mb_max_request: AtomicU32, u32, set_mb_max_request;
    stripe: AtomicU32, u32, set_stripe;
    mb_stats: AtomicBool, bool, set_mb_stats;
    discard: AtomicBool, bool, set_discard;
    buddy_cache_bytes: AtomicUsize, usize, set_buddy_cache_bytes;
    mb_max_preallocs: AtomicUsize, usize, set_mb_max_preallocs;
    minixdf: AtomicBool, bool, set_minixdf;
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables::new(&TunableValues::default())
    }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the block allocator (`mb_stats`); they move while the tunable is on.
        #[derive(Debug, Default)]
        pub struct Stats { $($(#[$doc])* pub $name: AtomicU64,)* }

        impl Stats {
            /// Name and value of each.
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed)),)*]
            }
        }
    };
}

stats! {
    /// Requests.
    reqs,
    /// Requests that got blocks.
    success,
    /// Blocks handed out.
    allocated,
    /// Requests served from an inode preallocation.
    pa_hits,
    /// Requests served from a locality group.
    lg_hits,
    /// Requests served at their goal.
    goal_hits,
    /// Requests served as a power of two.
    cr0_hits,
    /// Requests served by criterion 1.
    cr1_hits,
    /// Requests served by criterion 2.
    cr2_hits,
    /// Requests served by criterion 3.
    cr3_hits,
    /// Searches that ended at `mb_max_to_scan`.
    breaks,
    /// Best extents lost to another thread.
    lost,
    /// Groups looked at.
    groups_scanned,
    /// Extents looked at.
    extents_scanned,
    /// Buddies built.
    buddies_generated,
    /// Blocks put into preallocations.
    preallocated,
    /// Blocks given back by preallocations.
    discarded,
}
