//! A producer that records its sends.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use keylane::Report;
use keylane::error::TrySendError;

use super::dispatcher::{ScriptedDispatcher, ScriptedReceipt};
use super::judge::{RULES_OF_A_WHOLE_LIFE, judge};
use super::message::{Message, Numbered};
use super::wait::within;
use crate::check::{Drained, Evidence, Verdict};
use crate::events::{Id, Key};
use crate::history::{History, Sending};

/// Sends messages, numbers them from 1, and records the answer of each send.
///
/// A handle: clones share the numbers. Sends of one key are numbered in the order of the calls, so
/// tasks must not send to the same key at the same time.
pub struct Producer<K = Key, M = Message>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
{
    /// The history that records the sends.
    pub history: History,
    /// The dispatcher that gets the messages.
    pub dispatcher: ScriptedDispatcher<K, M>,
    seqs: Arc<Mutex<HashMap<Option<Key>, u64>>>,
    last_id: Arc<AtomicU64>,
}

impl<K, M> Producer<K, M>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Numbered + Send + Sync + 'static,
{
    /// Creates a producer.
    pub fn new(history: &History, dispatcher: ScriptedDispatcher<K, M>) -> Self {
        Self {
            history: history.clone(),
            dispatcher,
            seqs: Arc::default(),
            last_id: Arc::default(),
        }
    }

    /// Returns the next message of a key, and its entry in the history. The caller completes the
    /// entry with the answer of the send.
    pub fn next(&self, key: impl Into<Option<Key>>) -> (M, Sending) {
        let key = key.into();
        let seq = {
            let mut seqs = self.seqs.lock().unwrap_or_else(PoisonError::into_inner);
            let seq = seqs.entry(key).or_default();
            *seq += 1;
            *seq
        };
        self.next_at(key, seq)
    }

    /// Does the same as [`next`](Self::next); the caller chooses the place of the message in its
    /// key.
    pub fn next_at(&self, key: impl Into<Option<Key>>, seq: u64) -> (M, Sending) {
        let key = key.into();
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let sending = self.history.sending(key, seq, id);
        (M::numbered(key, seq, id), sending)
    }

    /// Sends the next message of a key.
    ///
    /// # Panics
    ///
    /// Panics if it is refused.
    pub async fn send(&self, key: impl Into<Option<Key>>) -> Id {
        let (message, sending) = self.next(key);
        let id = message.id();
        let sent = self.dispatcher.send(message).await;
        assert!(sent.is_ok(), "message {id} was refused");
        sending.ok();
        id
    }

    /// Sends the next `count` messages of a key.
    ///
    /// # Panics
    ///
    /// Panics if one of them is refused.
    pub async fn send_all(&self, key: impl Into<Option<Key>>, count: usize) -> Vec<Id> {
        let key = key.into();
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.send(key).await);
        }
        ids
    }

    /// Sends the next message of a key if there is room at once.
    ///
    /// # Errors
    ///
    /// Those of [`Dispatcher::try_send`](keylane::Dispatcher::try_send).
    pub fn try_send(&self, key: impl Into<Option<Key>>) -> Result<Id, TrySendError<M>> {
        let (message, sending) = self.next(key);
        let id = message.id();
        match self.dispatcher.try_send(message) {
            Ok(()) => {
                sending.ok();
                Ok(id)
            }
            Err(error) => {
                sending.fail();
                Err(error)
            }
        }
    }

    /// Submits the next message of a key.
    ///
    /// # Panics
    ///
    /// Panics if it is refused.
    pub async fn submit(&self, key: impl Into<Option<Key>>) -> ScriptedReceipt<M> {
        self.submit_this(self.next(key)).await
    }

    /// Submits a message that [`next`](Self::next) or [`next_at`](Self::next_at) has created.
    ///
    /// # Panics
    ///
    /// Panics if it is refused.
    pub async fn submit_this(&self, (message, sending): (M, Sending)) -> ScriptedReceipt<M> {
        let id = message.id();
        let Ok(receipt) = self.dispatcher.submit(message).await else {
            panic!("message {id} was refused");
        };
        sending.ok();
        receipt
    }

    /// Judges the whole history, after the dispatcher has ended with this report. See [`judge`].
    ///
    /// # Panics
    ///
    /// Panics if a rule is broken, with the violations.
    #[track_caller]
    pub fn judge(&self, report: &Report<K, M>, evidence: Evidence) -> Verdict {
        let drained = Drained::new(self.history.position(), report);
        judge(&self.history, &self.dispatcher, drained, evidence)
    }

    /// Drains, judges, and asserts that there was evidence for all of [`RULES_OF_A_WHOLE_LIFE`].
    ///
    /// # Panics
    ///
    /// Panics if a rule is broken, or if one of those could not be judged.
    pub async fn finish(self, evidence: Evidence) -> Report<K, M> {
        let report = within(async { self.dispatcher.drain().await }).await;
        let verdict = self.judge(&report, evidence);
        verdict.assert_judged(&RULES_OF_A_WHOLE_LIFE);
        report
    }
}

impl<K, M> Clone for Producer<K, M>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
{
    fn clone(&self) -> Self {
        Self {
            history: self.history.clone(),
            dispatcher: self.dispatcher.clone(),
            seqs: Arc::clone(&self.seqs),
            last_id: Arc::clone(&self.last_id),
        }
    }
}

impl<K, M> fmt::Debug for Producer<K, M>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("history", &self.history)
            .field("last_id", &self.last_id)
            .finish_non_exhaustive()
    }
}
