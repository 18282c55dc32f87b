//! What a user decides: when a message is on disk, and what happens at the limit.

use std::time::Duration;

/// When a message is written to the disk.
///
/// A commit is one fsync for all the messages that wait for it. The loss is that of a crash of the
/// process or the machine; [`close`](super::Spool::close) stores whatever it could not deliver,
/// under every policy.
///
/// | policy | an accepted message is | a crash loses |
/// | --- | --- | --- |
/// | `Each` | on disk | nothing |
/// | `EveryMessages(n)` | in memory | at most the last `n` |
/// | `Every(t)` | in memory | those of the last `t`, and of one commit |
/// | `None` | in memory | all that are in memory |
///
/// What is lost is a suffix of what was accepted, except under `None`, where later messages may
/// have been moved to the disk for want of memory and stay.
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
    /// In memory only, as long as there is memory; what does not fit goes to the directory, if
    /// there is one. The default of a spool without a directory.
    None,
}

/// What happens to a push when the spool is full: at
/// [`Builder::disk`](super::Builder::disk) bytes with a directory, at
/// [`Builder::memory`](super::Builder::memory) bytes without one.
///
/// A push that only waits for a commit under way waits under every policy.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtLimit {
    /// `push` waits, in the order in which the callers came. The default.
    #[default]
    Wait,
    /// `push` fails at once and gives the message back.
    Reject,
    /// The oldest message that is not in flight is dropped, and counted in
    /// [`Stats::dropped`](super::Stats::dropped). It loses messages. One that was on the disk may
    /// come back after a crash, behind later ones of its key, if its removal was not confirmed.
    DropOldest,
}
