//! Errors, one small type for each operation. A push gives its message back.

use keylane_rt::text_in_debug;
use thiserror::Error;

use super::journal::DiskError;
use super::message::Message;

/// The reason why a message was not accepted. The error gives the message back.
#[non_exhaustive]
#[derive(Error, Clone)]
pub enum PushError {
    /// The spool is at its limit, and waits for the sink. Try again later, or drop the message.
    #[error("the spool is full: try again later, wait with `AtLimit::Wait`, or raise its limits")]
    Full(Message),
    /// The spool takes no more messages: it was closed, or its runtime is gone.
    #[error("the spool is closed, and takes no message: open another one")]
    Closed(Message),
    /// The message is larger than [`SpoolBuilder::max_message`](super::SpoolBuilder::max_message), or has
    /// more than 65,535 headers, or a header name of more than 65,535 bytes.
    #[error("the message is too large for this spool: raise `max_message`, or send less")]
    TooLarge(Message),
    /// The message could not be written to the disk, or the previous commit failed. It is not
    /// accepted, and the sink does not get it. One exception: the failed commit may have come
    /// through, which is undone as soon as the disk works again; if the process dies or the spool
    /// is closed before, the next [`open`](super::SpoolBuilder::open) delivers the message.
    #[error("the message was not stored: {1}")]
    Disk(Message, DiskError),
}

text_in_debug! { PushError: Full, Closed, TooLarge, Disk }

impl PushError {
    /// Returns the message that was not accepted.
    pub fn into_inner(self) -> Message {
        match self {
            Self::Full(message)
            | Self::Closed(message)
            | Self::TooLarge(message)
            | Self::Disk(message, _) => message,
        }
    }
}

/// The reason why a spool could not be opened. Each variant names the setting or the file to
/// change.
#[non_exhaustive]
#[derive(Error, Clone)]
pub enum OpenError {
    /// `open` was polled outside a Tokio runtime.
    #[error("no Tokio runtime here: call `open` inside one, for example under `#[tokio::main]`")]
    NoRuntime,
    /// The runtime has no timers.
    #[error("the Tokio runtime has no timers: build it with `enable_time` or `enable_all`")]
    NoTimers,
    /// This setting must be at least one, or a time longer than zero.
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
    /// This setting does nothing without the other one.
    #[error("`{0}` needs `{1}`")]
    Needs(&'static str, &'static str),
    /// The memory is less than a spool can work with.
    #[error("`memory` must be at least {least} bytes, but is {bytes}")]
    Memory {
        /// The bytes that were set.
        bytes: usize,
        /// The least that a spool needs.
        least: usize,
    },
    /// The directory or its file cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

text_in_debug! { OpenError: NoRuntime, NoTimers, Zero, Needs, Memory, Disk }

/// The reason why not all messages that were accepted before the flush are delivered.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum FlushError {
    /// All remaining messages wait behind messages that the sink has refused, for
    /// [`Spool::resume`](super::Spool::resume) or [`Spool::skip`](super::Spool::skip).
    #[error("all remaining messages belong to {keys} halted keys: resume or skip them")]
    Halted {
        /// How many keys are halted.
        keys: usize,
    },
    /// The spool ended before.
    #[error(
        "the spool ended before everything was delivered: with a directory, the next one goes on"
    )]
    Closed,
}

text_in_debug! { FlushError: Halted, Closed }

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::journal::DiskErrorKind;

    #[test]
    fn errors_show_their_text() {
        let message = || Message::new("key", "payload");
        let disk = || DiskError::new(DiskErrorKind::Locked, Path::new("orders"), "it is locked");
        keylane_testkit::error_texts! {
            PushError =>
                PushError::Full(message()),
                PushError::Closed(message()),
                PushError::TooLarge(message()),
                PushError::Disk(message(), disk());
            OpenError =>
                OpenError::NoRuntime,
                OpenError::NoTimers,
                OpenError::Zero("memory"),
                OpenError::Needs("disk", "directory"),
                OpenError::Memory { bytes: 1, least: 2 },
                OpenError::Disk(disk());
            FlushError => FlushError::Halted { keys: 3 }, FlushError::Closed;
            DiskError => disk();
        }
    }
}
