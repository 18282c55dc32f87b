//! The recorder of a test.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::check::{Evidence, Verdict, Violation, check};
use crate::events::{Acceptance, Event, Id, Key, Outcome, Record, Token};

/// The events of a test, in one global order.
///
/// A handle: clones write to the same history, from any thread. Recording takes one short lock and
/// one push. The clock is read under the lock, so sequence and time agree. Threads outside the
/// runtime read the real clock: with paused time, record only inside the runtime.
#[derive(Clone, Default)]
pub struct History {
    records: Arc<Mutex<Vec<Record>>>,
}

impl History {
    /// Creates an empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records `event`.
    pub fn record(&self, event: Event) {
        let mut records = self.lock();
        let at = Instant::now();
        records.push(Record { at, event });
    }

    /// Announces a send without an answer yet. See [`Sending`].
    pub fn sending(&self, key: impl Into<Option<Key>>, seq: u64, id: Id) -> Sending {
        Sending {
            history: self.clone(),
            key: key.into(),
            seq,
            id,
            answered: false,
        }
    }

    /// Records the answer of a send.
    pub fn sent(&self, key: impl Into<Option<Key>>, seq: u64, id: Id, acceptance: Acceptance) {
        self.record(Event::Sent {
            key: key.into(),
            seq,
            id,
            acceptance,
        });
    }

    /// Records that a handler was called.
    pub fn start(&self, id: Id, attempt: u32, token: Token) {
        self.record(Event::Start { id, attempt, token });
    }

    /// Records that a handler ended.
    pub fn end(&self, id: Id, attempt: u32, outcome: Outcome) {
        self.record(Event::End {
            id,
            attempt,
            outcome,
        });
    }

    /// Records that an ack was requested.
    pub fn ack_req(&self, id: Id) {
        self.record(Event::AckReq { id });
    }

    /// Records that an ack was confirmed.
    pub fn ack_ok(&self, id: Id) {
        self.record(Event::AckOk { id });
    }

    /// Records that an ack was never answered.
    pub fn ack_unknown(&self, id: Id) {
        self.record(Event::AckUnknown { id });
    }

    /// Records that a dead letter is durable.
    pub fn dead(&self, id: Id) {
        self.record(Event::Dead { id });
    }

    /// Records that a message was merged into another.
    pub fn coalesced(&self, id: Id, into: Id) {
        self.record(Event::Coalesced { id, into });
    }

    /// Records that a process ended without notice.
    pub fn crash(&self, epoch: Token) {
        self.record(Event::Crash { epoch });
    }

    /// Records that a source took keys away.
    pub fn revoke(&self, generation: u64) {
        self.record(Event::Revoke { generation });
    }

    /// Records that a handler wrote to a fenced sink.
    pub fn sink_write(&self, key: Key, token: Token, accepted: bool) {
        self.record(Event::SinkWrite {
            key,
            token,
            accepted,
        });
    }

    /// Returns how many events there are: the position of the next one.
    pub fn position(&self) -> usize {
        self.lock().len()
    }

    /// Returns a copy of all records so far.
    pub fn records(&self) -> Vec<Record> {
        self.lock().clone()
    }

    /// Returns the messages in the order in which their attempts started, with the number of the
    /// attempt.
    pub fn attempts(&self) -> Vec<(Id, u32)> {
        self.select(|event| match event {
            Event::Start { id, attempt, .. } => Some((id, attempt)),
            _ => None,
        })
    }

    /// Returns the messages in the order in which their attempts started: one entry for each
    /// attempt.
    pub fn started(&self) -> Vec<Id> {
        self.attempts().into_iter().map(|(id, _)| id).collect()
    }

    /// Returns the messages in the order in which their handlers succeeded.
    pub fn handled(&self) -> Vec<Id> {
        self.select(|event| match event {
            Event::End {
                id,
                outcome: Outcome::Ok,
                ..
            } => Some(id),
            _ => None,
        })
    }

    /// Returns the events so far that `select` picks.
    fn select<T>(&self, select: impl Fn(Event) -> Option<T>) -> Vec<T> {
        let records = self.lock();
        let events = records.iter().map(|record| record.event);
        events.filter_map(select).collect()
    }

    /// Judges the history so far; see [`check`].
    ///
    /// # Errors
    ///
    /// The violations, at least one.
    pub fn check(&self, evidence: &Evidence) -> Result<Verdict, Vec<Violation>> {
        check(&self.records(), evidence)
    }

    /// Futures also record when they are dropped or panic, so a poisoned lock is still used. A push
    /// leaves no half state.
    fn lock(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History")
            .field("events", &self.position())
            .finish()
    }
}

/// A send that has not been answered. [`ok`](Sending::ok) and [`fail`](Sending::fail) record the
/// answer. Dropping it records that the answer is unknown, as for a cancelled send.
///
/// ```
/// # use keylane_testkit::{Acceptance, Event, History};
/// let history = History::new();
/// let sending = history.sending(7, 1, 1);
/// // sender.send(message).await
/// sending.ok();
/// drop(history.sending(7, 2, 2));
/// let unknown = Event::Sent { key: Some(7), seq: 2, id: 2, acceptance: Acceptance::Unknown };
/// assert_eq!(history.records()[1].event, unknown);
/// ```
#[derive(Debug)]
#[must_use = "dropping it records that the answer is unknown"]
pub struct Sending {
    history: History,
    key: Option<Key>,
    seq: u64,
    id: Id,
    answered: bool,
}

impl Sending {
    /// Records that the message was accepted.
    pub fn ok(self) {
        self.answer(Acceptance::Ok);
    }

    /// Records that the message was refused.
    pub fn fail(self) {
        self.answer(Acceptance::Fail);
    }

    fn answer(mut self, acceptance: Acceptance) {
        self.answered = true;
        self.history.sent(self.key, self.seq, self.id, acceptance);
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.answered {
            self.history
                .sent(self.key, self.seq, self.id, Acceptance::Unknown);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clones_share_one_order_and_the_paused_clock() {
        let history = History::new();
        let other = history.clone();
        history.start(1, 1, 0);
        tokio::time::advance(Duration::from_secs(3600)).await;
        other.end(1, 1, Outcome::Ok);
        let records = history.records();
        assert_eq!(other.position(), 2);
        assert_eq!(
            records[0].event,
            Event::Start {
                id: 1,
                attempt: 1,
                token: 0
            }
        );
        assert_eq!(records[1].at - records[0].at, Duration::from_secs(3600));
    }

    #[test]
    fn threads_lose_nothing_and_time_follows_the_sequence() {
        let history = History::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let history = history.clone();
                scope.spawn(move || (0..1000).for_each(|n| history.dead(thread * 1000 + n)));
            }
        });
        let records = history.records();
        let mut ids: Vec<_> = records
            .iter()
            .filter_map(|record| record.event.id())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..4000).collect::<Vec<_>>());
        assert!(records.is_sorted_by_key(|record| record.at));
    }

    #[test]
    fn attempts_are_listed_in_their_order() {
        let history = History::new();
        history.start(2, 1, 0);
        history.start(1, 1, 0);
        history.end(1, 1, Outcome::Ok);
        history.end(2, 1, Outcome::Error);
        history.start(2, 2, 0);
        history.end(2, 2, Outcome::Ok);
        assert_eq!(history.attempts(), [(2, 1), (1, 1), (2, 2)]);
        assert_eq!(history.started(), [2, 1, 2]);
        assert_eq!(history.handled(), [1, 2]);
    }

    #[test]
    fn a_send_is_answered_exactly_once() {
        let history = History::new();
        history.sending(1, 1, 1).ok();
        history.sending(None, 2, 2).fail();
        drop(history.sending(1, 3, 3));
        let answers: Vec<_> = history
            .records()
            .iter()
            .map(|record| match record.event {
                Event::Sent {
                    key, acceptance, ..
                } => (key, acceptance),
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(
            answers,
            [
                (Some(1), Acceptance::Ok),
                (None, Acceptance::Fail),
                (Some(1), Acceptance::Unknown)
            ]
        );
    }
}
