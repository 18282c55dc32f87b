//! The answers of receipts.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use keylane::Receipt;
use keylane::error::ReceiptError;

use crate::events::Id;

/// Returns the answer of a receipt in one word, to compare and count.
pub fn outcome<O, M, E>(answer: &Result<O, ReceiptError<M, E>>) -> &'static str {
    match answer {
        Ok(_) => "done",
        Err(ReceiptError::Failed(_)) => "failed",
        Err(ReceiptError::DeadLettered(_)) => "dead-lettered",
        Err(ReceiptError::HandedBack { .. }) => "handed back",
        Err(ReceiptError::Dropped(_)) => "dropped",
        Err(ReceiptError::Purged(_)) => "purged",
        Err(ReceiptError::Declined(_)) => "declined",
        Err(ReceiptError::Superseded(_)) => "superseded",
        Err(ReceiptError::Merged { handled: true }) => "merged",
        Err(ReceiptError::Merged { handled: false }) => "unmerged",
        Err(ReceiptError::Duplicate(_)) => "duplicate",
        Err(ReceiptError::Expired(_)) => "expired",
        Err(ReceiptError::Interrupted(_)) => "interrupted",
        Err(ReceiptError::Stopped) => "stopped",
        Err(_) => "another outcome",
    }
}

/// Receipts whose answers have not been collected yet, by the id of their message.
#[derive(Debug)]
pub struct Receipts<M, O, E>(BTreeMap<Id, Receipt<M, O, E>>);

impl<M, O, E> Receipts<M, O, E> {
    /// Starts without receipts.
    pub fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds the receipt of the message `id`.
    pub fn insert(&mut self, id: Id, receipt: Receipt<M, O, E>) {
        self.0.insert(id, receipt);
    }

    /// Takes the answers that are ready. Does not wait for the others.
    pub fn collect(&mut self) -> BTreeMap<Id, Result<O, ReceiptError<M, E>>> {
        let mut answers = BTreeMap::new();
        let cx = &mut Context::from_waker(Waker::noop());
        self.0.retain(|id, receipt| {
            // One task may not be allowed to poll all of them in a row.
            let mut receipt = tokio::task::unconstrained(receipt);
            match Future::poll(Pin::new(&mut receipt), cx) {
                Poll::Ready(answer) => {
                    answers.insert(*id, answer);
                    false
                }
                Poll::Pending => true,
            }
        });
        answers
    }

    /// Returns the number of receipts without an answer.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether all receipts have an answer.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<M, O, E> Default for Receipts<M, O, E> {
    fn default() -> Self {
        Self::new()
    }
}
