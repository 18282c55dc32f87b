//! The report of a dispatcher that has ended.

use std::fmt;

/// A message that comes back without an outcome.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedBack<K, M> {
    /// The key, or `None` for a keyless message.
    pub key: Option<K>,
    /// The message; `None` if its handler had taken it and was dropped in the middle, and no
    /// setting (`retry`, `on_exhausted`) had made the dispatcher keep a clone.
    pub message: Option<M>,
    /// The number of attempts that started. Above 0, the message may have had an effect.
    pub attempts: u32,
    /// Whether the last attempt was dropped in the middle; its effect is not known.
    pub interrupted: bool,
}

impl<K, M> HandedBack<K, M> {
    /// One whose handler is not running.
    pub(crate) fn idle(key: Option<K>, message: M, attempts: u32) -> Self {
        Self {
            key,
            message: Some(message),
            attempts,
            interrupted: false,
        }
    }
}

/// The outcomes of all accepted messages.
///
/// `done + dead_lettered + discarded + coalesced + duplicates + expired + handed_back = accepted`.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub struct Report<K, M> {
    /// Messages accepted in the life of the dispatcher.
    pub accepted: u64,
    /// Messages whose handler succeeded.
    pub done: u64,
    /// Messages whose dead letter was accepted.
    pub dead_lettered: u64,
    /// Messages given up on without a dead letter, as configured.
    pub discarded: u64,
    /// Messages that another message of their key stands for: declined, superseded, merged.
    pub coalesced: u64,
    /// Messages whose version came before, or is older than one that did.
    pub duplicates: u64,
    /// Messages that were too old to start.
    pub expired: u64,
    /// Messages handed back without an outcome, whether here or through their receipts.
    pub handed_back: u64,
    /// Messages handed back that were dropped in the middle of an attempt.
    pub interrupted: u64,
    /// The messages handed back that have no receipt, in the order in which they were accepted.
    /// Only the first report of a dispatcher has them.
    pub returned: Vec<HandedBack<K, M>>,
    /// Whether the deadline passed, so that the dispatcher was aborted.
    pub deadline_reached: bool,
    /// Whether a panic outside the handlers has aborted the dispatcher: of the key's own `Eq`,
    /// `Clone` or `Drop`, or of a `tracing` subscriber. The panic hook has printed its text. Set
    /// also if the runtime was dropped while another panic unwound.
    pub panicked: bool,
}

impl<K, M> fmt::Debug for Report<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report")
            .field("accepted", &self.accepted)
            .field("done", &self.done)
            .field("dead_lettered", &self.dead_lettered)
            .field("discarded", &self.discarded)
            .field("coalesced", &self.coalesced)
            .field("duplicates", &self.duplicates)
            .field("expired", &self.expired)
            .field("handed_back", &self.handed_back)
            .field("interrupted", &self.interrupted)
            .field("returned", &self.returned.len())
            .field("deadline_reached", &self.deadline_reached)
            .field("panicked", &self.panicked)
            .finish()
    }
}

impl<K, M> fmt::Display for Report<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} accepted = {} done + {} dead-lettered + {} discarded + {} handed back",
            self.accepted, self.done, self.dead_lettered, self.discarded, self.handed_back
        )?;
        for (count, what) in [
            (self.coalesced, "coalesced"),
            (self.duplicates, "duplicates"),
            (self.expired, "expired"),
        ] {
            if count > 0 {
                write!(f, " + {count} {what}")?;
            }
        }
        if self.deadline_reached {
            write!(f, " (deadline reached, {} interrupted)", self.interrupted)?;
        }
        if self.panicked {
            f.write_str(" (ended by a panic outside the handlers)")?;
        }
        Ok(())
    }
}
