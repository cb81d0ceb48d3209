//! Faults seeded on purpose, so that the crash explorer can be seen to catch them. Without the feature
//! `seeded-faults`, which only tests turn on, [`on`] is `false` and nothing of this is compiled in.

/// One rule broken. Each stands at the one line that keeps the rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Fault {
    /// None.
    None = 0,
    /// The commit block does not wait until the blocks it commits are stable.
    NoFlushBeforeCommit,
    /// The commit block itself is not stable when the commit is reported.
    CommitNotStable,
    /// An extent turns written, and that commits, before its data is written.
    ConvertBeforeData,
    /// A commit does not wait for ordered data.
    OrderedNotWaited,
    /// Freed blocks are handed out before the transaction that freed them has committed.
    FreedReusedAtOnce,
    /// A freed metadata block gets no revoke record.
    MissingRevoke,
    /// The size on disk moves when the data is only in memory.
    SizeBeforeData,
    /// A checkpoint writes what is in memory instead of what was committed.
    CheckpointUncommitted,
    /// Log space is used again though the superblock still says that the log begins there.
    SpaceBeforeTail,
    /// The log's tail moves before what was written home is stable.
    NoFlushBeforeTail,
    /// An unlinked open file is not noted as an orphan.
    NoOrphan,
    /// A rename over a file does not wait for the data.
    RenameWithoutData,
    /// The rest of the last block of a truncated file is not zeroed.
    TailNotZeroed,
    /// fsync does not wait for the commit.
    FsyncWithoutCommit,
    /// An unlink is two transactions.
    UnlinkInTwo,
    /// The file system's RECOVER flag is not set before the log is written.
    NoRecoverFlag,
    /// A logged block that begins with jbd2's magic is escaped, and its tag does not say so.
    EscapeNotNoted,
    /// The transaction that fdatasync waits for is not noted.
    FdatasyncForgotten,
    /// An extent turns written in one transaction, and the size moves in the next.
    SizeInAnother,
    /// As [`Fault::ConvertBeforeData`], by a direct write.
    DirectBeforeData,
    /// Closing a file that was truncated to nothing does not write it out.
    CloseWithoutData,
}

impl Fault {
    /// All but [`Fault::None`].
    pub const ALL: [Fault; 21] = [
        Fault::NoFlushBeforeCommit,
        Fault::CommitNotStable,
        Fault::ConvertBeforeData,
        Fault::OrderedNotWaited,
        Fault::FreedReusedAtOnce,
        Fault::MissingRevoke,
        Fault::SizeBeforeData,
        Fault::CheckpointUncommitted,
        Fault::SpaceBeforeTail,
        Fault::NoFlushBeforeTail,
        Fault::NoOrphan,
        Fault::RenameWithoutData,
        Fault::TailNotZeroed,
        Fault::FsyncWithoutCommit,
        Fault::UnlinkInTwo,
        Fault::NoRecoverFlag,
        Fault::EscapeNotNoted,
        Fault::FdatasyncForgotten,
        Fault::SizeInAnother,
        Fault::DirectBeforeData,
        Fault::CloseWithoutData,
    ];
}

#[cfg(feature = "seeded-faults")]
static ACTIVE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Makes this the fault of the whole process.
#[cfg(feature = "seeded-faults")]
pub fn seed(fault: Fault) {
    ACTIVE.store(fault as u8, std::sync::atomic::Ordering::Release);
}

/// Whether this fault is on.
#[inline(always)]
pub fn on(fault: Fault) -> bool {
    #[cfg(feature = "seeded-faults")]
    return ACTIVE.load(std::sync::atomic::Ordering::Acquire) == fault as u8;
    #[cfg(not(feature = "seeded-faults"))]
    {
        let _ = fault;
        false
    }
}
