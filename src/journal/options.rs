//! What the mount options ask of the journal.

use std::time::Duration;

/// How to commit.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// `commit=`: age at which a transaction is committed unasked.
    pub commit_interval: Duration,
    /// `barrier`: flush the device where the order of writes matters. Without it a crash of the
    /// machine may corrupt; a crash of the daemon may not.
    pub barrier: bool,
    /// `journal_async_commit`: the commit block is not held back until the rest is stable.
    pub async_commit: bool,
    /// `data_err=abort`: failed ordered data aborts the journal.
    pub data_err_abort: bool,
    /// `min_batch_time=`: a synchronous commit that expects others waits at least so long.
    pub min_batch: Duration,
    /// `max_batch_time=`: and at most so long; zero: never.
    pub max_batch: Duration,
}

impl Default for JournalOptions {
    fn default() -> JournalOptions {
        JournalOptions {
            commit_interval: Duration::from_secs(5),
            barrier: true,
            async_commit: false,
            data_err_abort: false,
            min_batch: Duration::ZERO,
            max_batch: Duration::from_millis(15),
        }
    }
}
