//! A wrapper around the source under test, which records its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keylane::source::{
    Deliveries, Delivery, Describer, Features, Generation, Hold, Outcome, RawMessage, Received,
    Settlement, Source, SourceError, SourceLetter, StartGuard, StartLater,
};
use tokio::time::Instant;

use super::message::id_of;
use crate::events::Id;
use crate::history::History;

/// The observations of all sources of one stage.
///
/// A handle: clones are the same witness.
#[derive(Clone)]
pub(super) struct Witness {
    history: History,
    book: Arc<Mutex<Book>>,
}

#[derive(Default)]
struct Book {
    published: BTreeSet<Id>,
    /// Violations of the contract.
    wrong: Vec<String>,
    /// The deliveries that are held, and the generation of each.
    held: BTreeMap<u64, Generation>,
    most_held: usize,
    /// Ids whose ack could not be sent.
    untold: Vec<Id>,
    /// Ids whose ack was sent and not confirmed.
    unconfirmed: Vec<Id>,
    seen: Seen,
    last_number: u64,
}

/// The counts of observed events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) delivered: u64,
    pub(super) idle: u64,
    pub(super) revoked: u64,
    pub(super) released: u64,
    pub(super) lost: u64,
    pub(super) failures: u64,
}

impl Witness {
    pub(super) fn new(history: &History) -> Self {
        Self {
            history: history.clone(),
            book: Arc::default(),
        }
    }

    /// Announces messages that will be published.
    pub(super) fn expect(&self, ids: impl IntoIterator<Item = Id>) {
        self.lock().published.extend(ids);
    }

    pub(super) fn seen(&self) -> Seen {
        self.lock().seen
    }

    /// Returns how many deliveries were held at most, and how many are now.
    pub(super) fn held(&self) -> (usize, usize) {
        let book = self.lock();
        (book.most_held, book.held.len())
    }

    /// Returns the messages whose ack could not be sent.
    pub(super) fn untold(&self) -> Vec<Id> {
        self.lock().untold.clone()
    }

    /// Returns the violations of the contract.
    pub(super) fn wrong(&self) -> Vec<String> {
        self.lock().wrong.clone()
    }

    /// Allows held and unconfirmed messages to come again from now on.
    fn part(&self) {
        let mut book = self.lock();
        for id in std::mem::take(&mut book.unconfirmed) {
            self.history.ack_unknown(id);
        }
        book.held.clear();
        self.history.revoke(0);
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A source that is watched.
pub(super) struct Witnessed<S: Source> {
    inner: S,
    witness: Witness,
    /// The messages that the inner source hands over. They stay here if `receive` is dropped.
    buffer: Deliveries<S::Message, S::Position>,
    was_open: bool,
}

/// A position of a source that is watched.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Watched<P> {
    position: P,
    /// The number of the delivery among all that the witness has seen.
    number: u64,
    id: Option<Id>,
    generation: Generation,
}

impl<S: Source<Message = RawMessage>> Witnessed<S> {
    pub(super) fn new(inner: S, witness: &Witness) -> Self {
        Self {
            inner,
            witness: witness.clone(),
            buffer: Deliveries::new(0, Instant::now()),
            was_open: false,
        }
    }

    fn watch(
        &self,
        delivery: Delivery<RawMessage, S::Position>,
    ) -> Delivery<RawMessage, Watched<S::Position>> {
        let Delivery {
            message,
            position,
            generation,
            attempts,
            bytes,
            id: text,
            ..
        } = delivery;
        let mut book = self.witness.lock();
        let id = id_of(&message);
        if let Some(id) = id.filter(|id| !book.published.contains(id)) {
            book.wrong
                .push(format!("handed over id {id}, which was never published"));
        }
        book.last_number += 1;
        book.seen.delivered += 1;
        let number = book.last_number;
        book.held.insert(number, generation);
        book.most_held = book.most_held.max(book.held.len());
        let watched = Watched {
            position,
            number,
            id,
            generation,
        };
        let mut delivery = Delivery::new(message, watched).generation(generation);
        delivery.id = text;
        delivery.attempts(attempts).bytes(bytes as usize)
    }

    fn hand_over(&mut self, into: &mut Deliveries<RawMessage, Watched<S::Position>>) {
        into.take_news(&mut self.buffer);
        for delivery in self.buffer.take() {
            into.push(self.watch(delivery));
        }
    }

    /// Inspects the answer of a call.
    fn answered<R>(&self, answer: Result<R, SourceError>) -> Result<R, SourceError> {
        if answer.as_ref().is_err_and(|error| !error.is_unsupported()) {
            self.witness.lock().seen.failures += 1;
            self.witness.part();
        }
        answer
    }
}

impl<S: Source<Message = RawMessage>> Source for Witnessed<S> {
    type Message = RawMessage;
    type Position = Watched<S::Position>;

    fn name(&self) -> String {
        self.inner.name()
    }

    fn describer(&self) -> Describer<Self::Position> {
        self.inner.describer().inside(|watched| &watched.position)
    }

    fn features(&self) -> Features {
        self.inner.features()
    }

    fn validate(&self) -> Result<(), SourceError> {
        self.inner.validate()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        if std::mem::replace(&mut self.was_open, true) {
            self.witness.part();
        }
        self.buffer = Deliveries::new(0, Instant::now());
        self.inner.open().await
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, Self::Position>,
    ) -> Result<Received<Self::Position>, SourceError> {
        if !self.buffer.is_empty() {
            self.hand_over(into);
            return Ok(Received::Messages);
        }
        let room = into.room();
        self.buffer = Deliveries::new(room, into.until());
        let received = self.inner.receive(&mut self.buffer).await;
        let count = self.buffer.len();
        if count > room {
            let what = format!("handed over {count} messages, with room for {room}");
            self.witness.lock().wrong.push(what);
        }
        let received = match received {
            Ok(received) => received,
            Err(error) => return self.answered(Err(error)),
        };
        self.hand_over(into);
        let book = || self.witness.lock();
        Ok(match received {
            Received::Messages => Received::Messages,
            Received::Idle => {
                book().seen.idle += 1;
                Received::Idle
            }
            Received::Revoked(generations) => {
                self.witness.history.revoke(1);
                book().seen.revoked += 1;
                Received::Revoked(generations)
            }
            Received::Lost(generations) => {
                self.witness.history.revoke(2);
                let mut book = book();
                book.seen.lost += 1;
                book.held.retain(|_, of| !generations.contains(of));
                Received::Lost(generations)
            }
            Received::Recalled(positions) => {
                // The positions belong to the source: it recalls messages that it has handed over.
                drop(positions);
                Received::Messages
            }
            Received::End => {
                if !self.inner.features().is_finite() {
                    let what = "came to its end, and has not declared that it does";
                    book().wrong.push(what.to_owned());
                }
                Received::End
            }
        })
    }

    async fn settle(&mut self, settled: &[Settlement<Self::Position>]) -> Result<(), SourceError> {
        let mut inner = Vec::new();
        {
            let mut book = self.witness.lock();
            for Settlement {
                position, outcome, ..
            } in settled
            {
                if book.held.remove(&position.number).is_none() {
                    book.wrong.push(format!(
                        "{:?} was settled, and was not held any more",
                        position.position
                    ));
                }
                inner.push(Settlement::new(position.position.clone(), *outcome));
                let Some(id) = position.id else { continue };
                if outcome.is_ack() {
                    self.witness.history.ack_req(id);
                    book.unconfirmed.push(id);
                } else {
                    // It comes again, and its attempts are counted from 1 then.
                    self.witness.history.revoke(position.generation.0);
                }
            }
        }
        let answer = self.inner.settle(&inner).await;
        if answer.is_err() {
            let acks = settled.iter().filter(|one| one.outcome.is_ack());
            let ids = acks.filter_map(|one| one.position.id);
            self.witness.lock().untold.extend(ids);
        }
        self.answered(answer)
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        let answer = self.inner.confirm().await;
        if answer.is_ok() {
            let mut book = self.witness.lock();
            for id in std::mem::take(&mut book.unconfirmed) {
                self.witness.history.ack_ok(id);
            }
        }
        self.answered(answer)
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        let answer = self.inner.release(generations).await;
        if answer.is_ok() {
            let mut book = self.witness.lock();
            book.seen.released += 1;
            let before = book.held.len();
            book.held.retain(|_, of| !generations.contains(of));
            let left = before - book.held.len();
            if left > 0 {
                let what = format!("{left} messages were held when their generation was released");
                book.wrong.push(what);
            }
        }
        self.answered(answer)
    }

    async fn extend(&mut self, held: &[Self::Position]) -> Result<(), SourceError> {
        let held: Vec<_> = held.iter().map(|held| held.position.clone()).collect();
        let answer = self.inner.extend(&held).await;
        self.answered(answer)
    }

    async fn reread(
        &mut self,
        positions: &[Self::Position],
        into: &mut Deliveries<RawMessage, Self::Position>,
    ) -> Result<(), SourceError> {
        let inner: Vec<_> = positions.iter().map(|one| one.position.clone()).collect();
        let mut found = Deliveries::new(inner.len(), into.until());
        let answer = self.inner.reread(&inner, &mut found).await;
        let mut asked = positions.iter();
        for delivery in found.take() {
            let Some(watched) = asked.find(|asked| asked.position == delivery.position) else {
                let what = format!("{:?} was not to be read, or not then", delivery.position);
                self.witness.lock().wrong.push(what);
                continue;
            };
            let again = Delivery::new(delivery.message, watched.clone());
            let again = again
                .generation(delivery.generation)
                .attempts(delivery.attempts);
            into.push(again.bytes(delivery.bytes as usize));
        }
        self.answered(answer)
    }

    async fn dead_letter(
        &mut self,
        letter: SourceLetter<Self::Position>,
    ) -> Result<(), SourceError> {
        let SourceLetter {
            position,
            attempts,
            cause,
            why,
            ..
        } = letter;
        let inner = SourceLetter::new(position.position, attempts, cause, why);
        // An error does not end the session: the letter is offered again.
        self.inner.dead_letter(inner).await?;
        if let Some(id) = position.id {
            self.witness.history.dead(id);
        }
        Ok(())
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<Self::Position>>> {
        let guard = self.inner.start_guard()?;
        Some(Arc::new(WatchedGuard { guard }))
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        let answer = self.inner.close().await;
        if answer.is_ok() {
            // It may be dropped later, when the next source has messages.
            self.was_open = false;
        }
        self.answered(answer)
    }
}

impl<S: Source> Drop for Witnessed<S> {
    fn drop(&mut self) {
        if self.was_open {
            self.witness.part();
        }
    }
}

struct WatchedGuard<P> {
    guard: Arc<dyn StartGuard<P>>,
}

impl<P: Send + Sync> StartGuard<Watched<P>> for WatchedGuard<P> {
    fn starts(&self, slot: u32, watched: &Watched<P>, attempt: u32) -> Result<(), StartLater> {
        self.guard.starts(slot, &watched.position, attempt)
    }

    fn settles(&self, slot: u32, watched: &Watched<P>, outcome: Outcome) {
        self.guard.settles(slot, &watched.position, outcome);
    }

    fn holds(&self, watched: &Watched<P>) -> bool {
        self.guard.holds(&watched.position)
    }

    fn hold(&self) -> Option<Hold> {
        self.guard.hold()
    }
}
