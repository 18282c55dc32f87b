//! Messages that come into their lanes later.

use std::collections::BTreeMap;

use keylane_rt::clock::Instant;
use keylane_rt::{Mutex, lock};

use super::message::{Accepted, Returning};
use crate::types::Types;

/// Messages that are placed in their lanes when their start time has come.
pub(crate) struct Later<T: Types>(Mutex<DelayedMessages<T>>);

struct DelayedMessages<T: Types> {
    /// How many there were so far. Orders messages with the same start time.
    count: u64,
    /// The messages, with their places in the order of acceptance.
    messages: BTreeMap<(Instant, u64), (u64, Accepted<T>)>,
    /// When the one timer for all of them fires.
    armed: Option<Instant>,
}

impl<T: Types> Later<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(DelayedMessages {
            count: 0,
            messages: BTreeMap::new(),
            armed: None,
        }))
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).messages.is_empty()
    }

    /// Keeps a message. Returns the time to arm a timer for, if it has changed.
    pub(super) fn insert(
        &self,
        accepted: Accepted<T>,
        stamp: u64,
        until: Instant,
    ) -> Option<Instant> {
        let mut waiting = lock(&self.0);
        waiting.count += 1;
        let place = (until, waiting.count);
        waiting.messages.insert(place, (stamp, accepted));
        waiting.rearm()
    }

    /// The timer for `at` has fired. Takes the due messages, ordered by start time and then by
    /// acceptance. Returns the time to arm the next timer for.
    pub(super) fn take_due(
        &self,
        at: Instant,
        now: Instant,
        returning: &mut Vec<Returning<T>>,
    ) -> Option<Instant> {
        let mut waiting = lock(&self.0);
        if waiting.armed == Some(at) {
            waiting.armed = None;
        }
        while let Some(first) = waiting.messages.first_entry()
            && first.key().0 <= now
        {
            let (_, accepted) = first.remove();
            returning.push(Returning::new(accepted));
        }
        waiting.rearm()
    }

    /// Takes out the messages that are chosen. The timer stays, and finds nothing.
    pub(super) fn extract(
        &self,
        mut chosen: impl FnMut(&Accepted<T>) -> bool,
    ) -> Vec<(u64, Accepted<T>)> {
        let mut waiting = lock(&self.0);
        let extracted = waiting
            .messages
            .extract_if(.., |_, (_, accepted)| chosen(accepted));
        extracted.map(|(_, waiting)| waiting).collect()
    }

    pub(super) fn take_all(&self) -> Vec<(u64, Accepted<T>)> {
        let mut waiting = lock(&self.0);
        waiting.armed = None;
        let messages = std::mem::take(&mut waiting.messages);
        messages.into_values().collect()
    }
}

impl<T: Types> DelayedMessages<T> {
    fn rearm(&mut self) -> Option<Instant> {
        let first = self.messages.first_key_value()?.0.0;
        if self.armed.is_some_and(|armed| armed <= first) {
            return None;
        }
        self.armed = Some(first);
        Some(first)
    }
}
