//! Policies: when a message is on the disk, and what happens at the limit.

use std::time::Duration;

/// When a message is written to the disk.
///
/// A commit is one fsync for all the messages that wait for it. The table is about a crash of the
/// process or the machine; [`close`](super::Spool::close) stores every undelivered message, under
/// every policy.
///
/// | policy | an accepted message is | a crash loses |
/// | --- | --- | --- |
/// | `Each` | on disk | nothing |
/// | `EveryMessages(n)` | in memory | at most the last `n` |
/// | `Every(t)` | in memory | those of the last `t`, and of one commit |
/// | `None` | in memory | all that are in memory |
///
/// The lost messages are a suffix of the accepted ones, except under `None`, where later messages
/// may have been moved to the disk because memory was full.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// Every `push` returns after its message is on disk. The default of a spool with a directory.
    Each,
    /// At most this many accepted messages are neither delivered nor on disk. A commit starts when
    /// half as many wait; a message that is delivered before is never written.
    EveryMessages(usize),
    /// A commit starts this long after the first message that waits for one. A message that is
    /// delivered before is never written.
    Every(Duration),
    /// In memory only, while there is memory; further messages go to the directory, if there is
    /// one. The default of a spool without a directory.
    None,
}

/// What happens to a push when the spool is full: at
/// [`SpoolBuilder::disk`](super::SpoolBuilder::disk) bytes with a directory, at
/// [`SpoolBuilder::memory`](super::SpoolBuilder::memory) bytes without one.
///
/// A push that only waits for a commit in progress waits under every policy.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtLimit {
    /// `push` waits, in the order in which the callers came. The default.
    #[default]
    Wait,
    /// `push` fails at once and gives the message back.
    Reject,
    /// Drops the oldest message that is not in flight, and counts it in
    /// [`Stats::dropped`](super::Stats::dropped). This policy loses messages. A dropped message
    /// that was on the disk may come back after a crash, behind later ones of its key, if its
    /// removal was not confirmed.
    DropOldest,
}
