//! The events that a test records while it runs.

use std::fmt;

use tokio::time::Instant;

/// The key of a message. Tests number their keys; a test maps a richer key to a number.
pub type Key = u64;

/// One message, unique in its history. A message that is sent again gets a new id.
pub type Id = u64;

/// The fencing token of an attempt. Without fencing, the epoch of the process.
pub type Token = u64;

/// An event, and when it was recorded. Its position in the history is its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The time by Tokio's clock, so it follows paused time.
    pub at: Instant,
    /// What happened.
    pub event: Event,
}

/// One thing that happened.
///
/// Only [`Sent`](Event::Sent) has the key of a message and its place within the key. The other
/// events name the id. A sender may learn the answer after the handler has begun, so a `Sent` may
/// come after the `Start` of its message. All other events are in the order in which they happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A send returned, or was given up.
    Sent {
        /// The key. `None` for a keyless message, to which no order rule applies.
        key: Option<Key>,
        /// The place of the message among those of its key. It grows with each send. If several
        /// senders use one key at the same time, there is no order to check: give each its own
        /// keys, or send under a lock. Where messages carry versions, this is the version.
        seq: u64,
        /// The message.
        id: Id,
        /// The answer that the sender got.
        acceptance: Acceptance,
    },
    /// The handler was called.
    Start {
        /// The message.
        id: Id,
        /// Which attempt, counted from 1.
        attempt: u32,
        /// The fencing token that the attempt runs under.
        token: Token,
    },
    /// The handler finished, or its future was dropped.
    ///
    /// Ends name no token. If one attempt of one message runs under two tokens at once, an end
    /// counts for the newer one. Where that matters, give the redelivery another number.
    End {
        /// The message.
        id: Id,
        /// Which attempt.
        attempt: u32,
        /// How it ended.
        outcome: Outcome,
    },
    /// The source was asked to acknowledge the message.
    AckReq {
        /// The message.
        id: Id,
    },
    /// The source confirmed the ack of the message.
    AckOk {
        /// The message.
        id: Id,
    },
    /// The source did not answer. It may have acknowledged the message or not.
    AckUnknown {
        /// The message.
        id: Id,
    },
    /// The dead letter of the message is durable.
    Dead {
        /// The message.
        id: Id,
    },
    /// The message was merged into another or replaced by it. A replacement is sent under the same
    /// `seq` as the message that it replaces, and a report counts the two as one.
    Coalesced {
        /// The message that will not be handled.
        id: Id,
        /// The message that replaces it.
        into: Id,
    },
    /// A process ended without notice. Attempts under `epoch` or an older token no longer run.
    ///
    /// Epochs and tokens come from one counter. If another process still works under an older
    /// token, the test records the ends of the dead process's attempts itself, and crashes epoch 0.
    Crash {
        /// The newest token the process held.
        epoch: Token,
    },
    /// A source took keys away from a consumer. Attempts that run may go on.
    Revoke {
        /// The generation that ended.
        generation: u64,
    },
    /// A handler wrote to a sink that checks tokens.
    SinkWrite {
        /// The key written.
        key: Key,
        /// The token shown.
        token: Token,
        /// Whether the sink took the write.
        accepted: bool,
    },
}

impl Event {
    /// Returns the id of the message that the event is about, if there is one.
    pub fn id(&self) -> Option<Id> {
        match *self {
            Event::Sent { id, .. }
            | Event::Start { id, .. }
            | Event::End { id, .. }
            | Event::AckReq { id }
            | Event::AckOk { id }
            | Event::AckUnknown { id }
            | Event::Dead { id }
            | Event::Coalesced { id, .. } => Some(id),
            Event::Crash { .. } | Event::Revoke { .. } | Event::SinkWrite { .. } => None,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Sent {
                key: Some(key),
                seq,
                id,
                acceptance,
            } => {
                write!(f, "sent id {id} key {key} seq {seq} {acceptance}")
            }
            Event::Sent {
                key: None,
                seq,
                id,
                acceptance,
            } => {
                write!(f, "sent id {id} keyless seq {seq} {acceptance}")
            }
            Event::Start { id, attempt, token } => {
                write!(f, "start id {id} attempt {attempt} token {token}")
            }
            Event::End {
                id,
                attempt,
                outcome,
            } => {
                write!(f, "end id {id} attempt {attempt} {outcome}")
            }
            Event::AckReq { id } => write!(f, "ack requested id {id}"),
            Event::AckOk { id } => write!(f, "ack confirmed id {id}"),
            Event::AckUnknown { id } => write!(f, "ack unknown id {id}"),
            Event::Dead { id } => write!(f, "dead letter id {id}"),
            Event::Coalesced { id, into } => write!(f, "coalesced id {id} into id {into}"),
            Event::Crash { epoch } => write!(f, "crash of epoch {epoch}"),
            Event::Revoke { generation } => write!(f, "revoke of generation {generation}"),
            Event::SinkWrite {
                key,
                token,
                accepted,
            } => {
                let answer = if *accepted { "accepted" } else { "refused" };
                write!(f, "sink write key {key} token {token} {answer}")
            }
        }
    }
}

/// The answer that a sender got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Acceptance {
    /// Accepted: it must be settled.
    Ok,
    /// Refused: it must never be handled.
    Fail,
    /// The sender gave up before it had an answer. The message may have been accepted or not.
    Unknown,
}

impl fmt::Display for Acceptance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Acceptance::Ok => "ok",
            Acceptance::Fail => "fail",
            Acceptance::Unknown => "unknown",
        })
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The handler succeeded.
    Ok,
    /// An error; another attempt may follow.
    Error,
    /// An error that must not be retried.
    Fatal,
    /// A panic.
    Panicked,
    /// The future was dropped before it finished: a time-out, an abort, a shutdown.
    Dropped,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Ok => "ok",
            Outcome::Error => "error",
            Outcome::Fatal => "fatal",
            Outcome::Panicked => "panicked",
            Outcome::Dropped => "dropped",
        })
    }
}
