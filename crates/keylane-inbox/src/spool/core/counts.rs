//! What has become of the messages.

/// At quiescence `accepted + recovered` is the sum of the others and of what is left.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::spool) struct Counts {
    pub(in crate::spool) accepted: u64,
    pub(in crate::spool) recovered: u64,
    pub(in crate::spool) delivered: u64,
    pub(in crate::spool) dead_lettered: u64,
    pub(in crate::spool) dropped: u64,
    pub(in crate::spool) skipped: u64,
    /// Written by the sink ahead of an earlier message of the key.
    pub(in crate::spool) out_of_order: u64,
    /// Batches and letters that failed.
    pub(in crate::spool) failures: u64,
    /// Removals that are on the disk.
    pub(in crate::spool) removed: u64,
}
