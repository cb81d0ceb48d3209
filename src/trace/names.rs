//! The events that there are.

macro_rules! events {
    ($($variant:ident = $name:literal,)*) => {
        /// An event, by the name of the kernel's tracepoint.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Event { $($variant),* }

        impl Event {
            /// All of them.
            pub const ALL: &'static [Event] = &[$(Event::$variant),*];

            /// The tracepoint's name.
            pub fn name(self) -> &'static str {
                match self { $(Event::$variant => $name),* }
            }
        }
    };
}

events! {
    DaWriteBegin = "ext4_da_write_begin",
    DaWriteEnd = "ext4_da_write_end",
    DaReserveSpace = "ext4_da_reserve_space",
    DaReleaseSpace = "ext4_da_release_space",
    DaWritepages = "ext4_da_writepages",
    DaWritepagesResult = "ext4_da_writepages_result",
    DaWritePages = "ext4_da_write_pages",
    DaWritePagesExtent = "ext4_da_write_pages_extent",
    RequestBlocks = "ext4_request_blocks",
    AllocateBlocks = "ext4_allocate_blocks",
    MballocAlloc = "ext4_mballoc_alloc",
    MballocPrealloc = "ext4_mballoc_prealloc",
    DiscardPreallocations = "ext4_discard_preallocations",
    FreeBlocks = "ext4_free_blocks",
    DirectIoEnter = "ext4_direct_IO_enter",
    DirectIoExit = "ext4_direct_IO_exit",
    SyncFileEnter = "ext4_sync_file_enter",
    SyncFileExit = "ext4_sync_file_exit",
    SyncFs = "ext4_sync_fs",
    UnlinkEnter = "ext4_unlink_enter",
    UnlinkExit = "ext4_unlink_exit",
    TruncateEnter = "ext4_truncate_enter",
    TruncateExit = "ext4_truncate_exit",
    FallocateEnter = "ext4_fallocate_enter",
    FallocateExit = "ext4_fallocate_exit",
    AllocateInode = "ext4_allocate_inode",
    FreeInode = "ext4_free_inode",
    EvictInode = "ext4_evict_inode",
    Jbd2HandleStart = "jbd2_handle_start",
    Jbd2StartCommit = "jbd2_start_commit",
    Jbd2CommitLocking = "jbd2_commit_locking",
    Jbd2CommitFlushing = "jbd2_commit_flushing",
    Jbd2CommitLogging = "jbd2_commit_logging",
    Jbd2EndCommit = "jbd2_end_commit",
    Jbd2Checkpoint = "jbd2_checkpoint",
}

impl Event {
    /// Its bit in a set of events.
    #[inline]
    pub(super) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

const _: () = assert!(Event::ALL.len() <= 64);

/// The set of events that a word of a filter means: a name, or the beginning of one before `*`.
pub(super) fn matching(word: &str) -> Option<u64> {
    let means = |e: &&Event| match word.strip_suffix('*') {
        Some(start) => e.name().starts_with(start),
        None => e.name() == word,
    };
    Event::ALL.iter().filter(means).map(|e| e.bit()).reduce(|a, b| a | b)
}
