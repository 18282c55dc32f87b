//! What a candidate reports.

use std::time::Duration;

use keylane_leases::Token;
use tokio::sync::broadcast;

use crate::career::{End, Following};

/// How many events a slow reader may be behind.
pub(crate) const KEPT: usize = 256;

/// What has happened to a candidate.
///
/// An event comes before its consequence: [`Leaving`](Self::Leaving) before `hand_over` is called.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Another candidate leads, or says that it is leaving.
    Leader(Following),
    /// Nothing leads.
    NoLeader,
    /// `prepare` is called.
    Preparing,
    /// This candidate is elected, under this token. `inaugurate` is called, or waits because the
    /// leader before it was lost: see [`Lost`](crate::Lost).
    Elected(Token),
    /// `inaugurate` has returned `Ok`, and `execute` is called.
    Inaugurated(Token),
    /// A renewal of the term is overdue. Unless one succeeds, the term is lost after this time.
    Doubtful(Duration),
    /// The term is renewed again.
    Renewed,
    /// The term ends, for this reason. `hand_over` is called, after `execute` has stopped.
    Leaving(End),
    /// `prepare`, `inaugurate` or `hand_over` has failed, or `execute` after it was asked to stop.
    Failed {
        /// The name of the method.
        method: &'static str,
        /// Its error, the message of its panic, or that it took longer than its limit.
        error: String,
    },
    /// The term has ended, and this candidate stands again.
    Standing,
    /// [`Elections::close`](crate::Elections::close) was called in this process: this candidate
    /// never leads again. It hands over if it leads, withdraws, and is [`Over`](Self::Over).
    Closed,
    /// The candidate is over.
    Over,
    /// The reader was too slow, and has missed so many events.
    Missed(u64),
}

/// The events of a candidate.
#[derive(Debug)]
pub struct Events(pub(crate) broadcast::Receiver<Event>);

impl Events {
    /// Returns the next event; `None` after the last one.
    ///
    /// A reader that is more than 256 events behind misses the oldest ones, and gets
    /// [`Event::Missed`] instead.
    ///
    /// # Cancel safety
    ///
    /// No event is lost.
    pub async fn next(&mut self) -> Option<Event> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Event::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
