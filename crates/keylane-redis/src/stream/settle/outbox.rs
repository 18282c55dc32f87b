//! Acks and attempts of the entries of one stream, on their way to the server.
//!
//! One batch is in progress at a time. The next one collects meanwhile, so a batch is as large as a
//! round trip is long.

use std::sync::Mutex;

use keylane_source::SourceError;
use tokio::sync::{Notify, oneshot};

use super::super::counts::Counters;
use super::super::id::EntryId;
use super::super::position::StreamPosition;
use keylane_connector::lock;

/// Most acks in one call of a script. The server executes no other command meanwhile, for a few
/// milliseconds.
const MOST_ACKS: usize = 5_000;

/// Most notes in one call.
const MOST_NOTES: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct StreamOutbox {
    queue: Mutex<Queue>,
    /// Notified when there is something new to send.
    pub(crate) wake: Notify,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Queue {
    said: AckBatch,
    /// How many changes were added, and how many of them were sent.
    marks: Marks,
    told: Marks,
    waiting: Vec<(Marks, oneshot::Sender<()>)>,
    end: Option<End>,
}

/// The changes to send.
#[derive(Debug, Default)]
pub(crate) struct AckBatch {
    pub(crate) acks: Vec<EntryId>,
    pub(crate) notes: Vec<(StreamPosition, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    acks: u64,
    notes: u64,
}

/// Why nothing more is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// There is another owner, or the stream has changed, or the server refuses it. This many acks
    /// had no effect.
    Refused {
        acks: u64,
    },
    Failed,
}

impl AckBatch {
    fn marks(&self) -> Marks {
        Marks {
            acks: self.acks.len() as u64,
            notes: self.notes.len() as u64,
        }
    }
}

impl Marks {
    fn add(&mut self, other: Self) {
        self.acks += other.acks;
        self.notes += other.notes;
    }

    fn has(self, other: Self) -> bool {
        self.acks >= other.acks && self.notes >= other.notes
    }
}

impl Queue {
    fn end(&mut self, end: End) {
        self.end = Some(end);
        self.said = AckBatch::default();
        // Their callers check for the end.
        self.waiting.clear();
    }
}

impl StreamOutbox {
    /// Creates an outbox that counts refused acks here.
    pub(crate) fn new(counters: Counters) -> Self {
        Self {
            counters,
            ..Self::default()
        }
    }

    /// Acks these entries. They are refused if there is another owner.
    pub(crate) fn ack(&self, ids: &mut Vec<EntryId>) {
        let count = ids.len() as u64;
        let mut queue = lock(&self.queue);
        if let Some(End::Refused { acks }) = &mut queue.end {
            *acks += count;
            ids.clear();
            return self.counters.add(|counts| counts.refused += count);
        }
        queue.marks.acks += count;
        queue.said.acks.append(ids);
        drop(queue);
        self.wake.notify_one();
    }

    /// Notes this many attempts.
    pub(crate) fn note(&self, position: StreamPosition, attempts: u32) {
        let mut queue = lock(&self.queue);
        queue.marks.notes += 1;
        queue.said.notes.push((position, attempts));
        drop(queue);
        self.wake.notify_one();
    }

    /// Waits until all changes so far are sent.
    pub(crate) async fn told(&self) -> Result<(), SourceError> {
        let told = {
            let mut queue = lock(&self.queue);
            if queue.end.is_none() && !queue.told.has(queue.marks) {
                let (tell, told) = oneshot::channel();
                let marks = queue.marks;
                queue.waiting.push((marks, tell));
                Some(told)
            } else {
                None
            }
        };
        if let Some(told) = told {
            let _ = told.await;
        }
        match lock(&self.queue).end {
            Some(End::Refused { acks: 1.. }) => Err(SourceError::failed(
                "acknowledgements came too late: the stream is owned by another process, was \
                 created again, or accepts none",
            )),
            Some(End::Failed) => Err(SourceError::failed("acknowledgements were not sent")),
            Some(End::Refused { .. }) | None => Ok(()),
        }
    }

    /// Whether nothing is left to send, or nothing more can be sent.
    pub(crate) fn is_done(&self) -> bool {
        let queue = lock(&self.queue);
        queue.end.is_some() || queue.told.has(queue.marks)
    }

    /// Whether the server has accepted everything.
    pub(crate) fn has_told(&self) -> bool {
        let queue = lock(&self.queue);
        let is_refused = matches!(queue.end, Some(End::Refused { acks: 1.. }));
        !is_refused && queue.told.has(queue.marks)
    }

    pub(crate) fn take(&self) -> AckBatch {
        let mut queue = lock(&self.queue);
        let acks = queue.said.acks.len().min(MOST_ACKS);
        let notes = queue.said.notes.len().min(MOST_NOTES);
        AckBatch {
            acks: queue.said.acks.drain(..acks).collect(),
            notes: queue.said.notes.drain(..notes).collect(),
        }
    }

    pub(crate) fn was_told(&self, said: &AckBatch) {
        let mut queue = lock(&self.queue);
        queue.told.add(said.marks());
        let told = queue.told;
        let done = queue.waiting.extract_if(.., |(marks, _)| told.has(*marks));
        let done: Vec<_> = done.collect();
        drop(queue);
        for (_, tell) in done {
            // A caller that is gone needs no answer.
            let _ = tell.send(());
        }
    }

    /// Ends the outbox: the server accepts nothing more.
    pub(crate) fn refuse(&self) {
        let mut queue = lock(&self.queue);
        let acks = queue.marks.acks - queue.told.acks;
        // Before a caller can see the end.
        self.counters.add(|counts| counts.refused += acks);
        queue.end(End::Refused { acks });
    }

    /// Ends the outbox after the connection has failed.
    pub(crate) fn fail(&self) {
        lock(&self.queue).end(End::Failed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn ids(numbers: std::ops::Range<u64>) -> Vec<EntryId> {
        numbers.map(|number| EntryId::new(number, 0)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_answered_when_all_before_is_told() {
        let teller = Arc::new(StreamOutbox::default());
        assert!(teller.told().await.is_ok());
        teller.ack(&mut ids(0..MOST_ACKS as u64 + 1));
        let waiting = tokio::spawn({
            let teller = Arc::clone(&teller);
            async move { teller.told().await }
        });
        tokio::task::yield_now().await;
        // It does not wait for later changes.
        teller.ack(&mut ids(0..7));
        let first = teller.take();
        assert_eq!(first.acks.len(), MOST_ACKS);
        teller.was_told(&first);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let second = teller.take();
        assert_eq!(second.acks.len(), 8);
        teller.was_told(&second);
        assert!(waiting.await.unwrap().is_ok());
        assert!(teller.is_done());
    }

    #[tokio::test]
    async fn acks_that_are_refused_are_counted_and_not_confirmed() {
        let teller = StreamOutbox::default();
        teller.ack(&mut ids(0..3));
        let said = teller.take();
        assert_eq!(said.acks.len(), 3);
        teller.refuse();
        assert_eq!(teller.counters.get().refused, 3);
        assert!(teller.told().await.is_err());
        teller.ack(&mut ids(3..5));
        assert_eq!(teller.counters.get().refused, 5);
        assert!(teller.is_done() && !teller.has_told());
    }

    #[tokio::test]
    async fn a_refusal_without_acks_is_no_failure() {
        let teller = StreamOutbox::default();
        teller.refuse();
        assert!(teller.told().await.is_ok());
    }
}
