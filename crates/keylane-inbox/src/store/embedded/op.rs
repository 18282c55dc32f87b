//! The calls to the writer, and their answers.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::error::{AcceptError, StoreError};
use crate::message::NewMessage;
use crate::store::{Accepted, Settled};

/// A call with its answer, which is kept here until the commit.
pub(super) enum Op {
    Accept {
        messages: Vec<NewMessage>,
        accepted: Vec<Accepted>,
        reply: oneshot::Sender<Result<Vec<Accepted>, AcceptError<Vec<NewMessage>>>>,
        /// Room in the queue, which is released when the call is answered.
        room: OwnedSemaphorePermit,
    },
    Settle {
        settled: Vec<Settled>,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    Redrive(Letters),
    Purge(Letters),
    RecordVersion {
        key: Vec<u8>,
        version: u64,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Runs alone, after all earlier calls are committed.
    Alone(Alone),
}

/// A call about some letters.
pub(super) struct Letters {
    pub(super) sequences: Vec<u64>,
    /// The sequences that were letters.
    pub(super) found: Vec<u64>,
    pub(super) reply: oneshot::Sender<Result<Vec<u64>, StoreError>>,
}

pub(super) enum Alone {
    /// Compact the file. Answers with its length.
    Compact(oneshot::Sender<Result<u64, StoreError>>),
    /// Open the database anew, if a read failed.
    Mend,
    /// The last call of all.
    Close,
}

impl Letters {
    pub(super) fn new(
        sequences: Vec<u64>,
    ) -> (Self, oneshot::Receiver<Result<Vec<u64>, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        let found = Vec::new();
        let letters = Self {
            sequences,
            found,
            reply,
        };
        (letters, answer)
    }
}

impl Op {
    /// Returns its size in a commit: messages and bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        match self {
            Self::Accept { messages, .. } => {
                let bytes = messages.iter().map(NewMessage::bytes).sum();
                (messages.len(), bytes)
            }
            Self::Settle { settled, .. } => (settled.len(), 0),
            Self::Redrive(letters) | Self::Purge(letters) => (letters.sequences.len(), 0),
            Self::RecordVersion { key, .. } => (1, key.len()),
            Self::Alone(_) => (0, 0),
        }
    }

    /// Answers after its commit has succeeded, if the caller still waits.
    pub(super) fn confirm(self) {
        match self {
            Self::Accept {
                accepted,
                reply,
                room,
                ..
            } => {
                drop(room);
                let _ = reply.send(Ok(accepted));
            }
            Self::Settle { reply, .. } | Self::RecordVersion { reply, .. } => {
                let _ = reply.send(Ok(()));
            }
            Self::Redrive(letters) | Self::Purge(letters) => {
                let _ = letters.reply.send(Ok(letters.found));
            }
            Self::Alone(_) => {}
        }
    }

    /// Answers that it was not done, or may not have been done.
    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Self::Accept {
                messages,
                reply,
                room,
                ..
            } => {
                drop(room);
                let _ = reply.send(Err(AcceptError::Store(error, messages)));
            }
            Self::Settle { reply, .. } | Self::RecordVersion { reply, .. } => {
                let _ = reply.send(Err(error));
            }
            Self::Redrive(letters) | Self::Purge(letters) => {
                let _ = letters.reply.send(Err(error));
            }
            Self::Alone(Alone::Compact(reply)) => {
                let _ = reply.send(Err(error));
            }
            Self::Alone(Alone::Mend | Alone::Close) => {}
        }
    }
}
