//! The outcomes of the messages.

/// At quiescence `accepted + recovered` is the sum of the other counts and the remaining messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    pub(crate) recovered: u64,
    pub(crate) delivered: u64,
    pub(crate) dead_lettered: u64,
    pub(crate) dropped: u64,
    pub(crate) skipped: u64,
    /// Written by the sink ahead of an earlier message of the key.
    pub(crate) out_of_order: u64,
    /// Batches and letters that failed.
    pub(crate) failures: u64,
    /// Removals that are on the disk.
    pub(crate) removed: u64,
}
