//! What the producers of a test know of their messages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::now;

/// What a server has answered to a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has the message.
    Accepted,
    /// It does not have the message, and never will.
    Refused,
    /// Nothing. It may have the message.
    Unknown,
}

/// A message that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Its key.
    pub key: u64,
    /// When its producer began to send it.
    pub at: Duration,
    /// Unknown until there is another answer.
    pub answer: Answer,
}

/// All messages that were sent. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Vec<Sent>>>);

impl Ledger {
    /// Notes that a message of this key is about to be sent, and returns its id: the ids ascend
    /// from 0.
    pub(crate) fn send(&self, key: u64) -> u64 {
        let mut sent = self.lock();
        sent.push(Sent {
            key,
            at: now(),
            answer: Answer::Unknown,
        });
        sent.len() as u64 - 1
    }

    /// Notes the answer for a message.
    ///
    /// # Panics
    ///
    /// Panics if it was not sent.
    pub(crate) fn answer(&self, id: u64, answer: Answer) {
        self.lock()[id as usize].answer = answer;
    }

    /// Returns all messages. The place of each is its id.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.lock().clone()
    }

    /// Each change is a single step, so what a panic leaves is whole.
    fn lock(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns when the last of these keys went on: when a message of it was done that was sent after
/// this time, and accepted. `None` if one has not.
pub(crate) fn all_go_on(
    sent: &[Sent],
    done_at: &HashMap<u64, Duration>,
    since: Duration,
) -> Option<Duration> {
    let mut of_key: HashMap<u64, Option<Duration>> = HashMap::new();
    for (id, message) in sent.iter().enumerate() {
        let first = of_key.entry(message.key).or_default();
        if message.at > since
            && message.answer == Answer::Accepted
            && let Some(done) = done_at.get(&(id as u64))
        {
            *first = Some(first.map_or(*done, |first| first.min(*done)));
        }
    }
    let firsts: Option<Vec<_>> = of_key.into_values().collect();
    firsts?.into_iter().max()
}
