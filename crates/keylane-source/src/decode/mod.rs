//! A source around a source of raw messages, which decodes them.
//!
//! ```text
//!  inner source ──► arrivals ──► decode ──► handed over ──────────────► settle
//!                      │           │ no                                  │
//!                      ▼           ▼                                     │
//!                 behind a letter of the same key ◄── the key is free ◄──┘
//!                                  │
//!                                  ▼
//!                        sink, or inner source ──► settled as dead-lettered
//! ```
//!
//! Every await of [`Source::receive`] may be its last. Between two of them each message is in
//! exactly one place: the arrivals, the table, or `into`. Letters on their way are in the table,
//! and their futures are not part of the call, and neither are calls of the inner source that it
//! may not see dropped.

mod delivery;
mod inner;
mod letter;
mod position;
mod table;

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

pub use letter::{RawLetter, RawLetterSink};
pub use position::DecodedPosition;

use delivery::{LettersInDelivery, News, Undecodable};
use inner::{Called, Inner};
use keylane_rt as rt;
use keylane_rt::clock::{self, Alarm, Instant};
use keylane_rt::unwind::{caught, dropped};
use position::RawGuard;
use table::{Blocked, Table};

use crate::BoxError;
use crate::{
    Deliveries, Delivery, Features, Generation, Outcome, RawMessage, Received, Settlement, Source,
    SourceError, SourceLetter, StartGuard,
};

/// A message as the inner source has handed it over.
type Raw<P> = Delivery<RawMessage, P>;

/// A source of raw messages, with a function that decodes them: see [`Source::decode`].
///
/// A message that cannot be decoded, because the function returns an error or panics, becomes a
/// [`RawLetter`], in the order of its raw key:
///
/// 1. Its letter is delivered when all messages of the same raw key that were handed over before it
///    have settled. A message that goes back to its source has settled as well.
/// 2. Messages of that key behind it are decoded and handed over when its letter is durable.
/// 3. Other keys go on meanwhile. Raw messages without a key have no order.
/// 4. When the letter is durable, the message settles as [`Outcome::DeadLettered`].
///
/// The letters go to the sink given with [`letters`](Self::letters), or else to the inner source if
/// it [keeps dead letters](Features::dead_letters). With neither the source cannot be consumed.
///
/// Messages that wait for a letter count against the limit of `held` messages, and their leases are
/// extended. They are not in the `stats` until they are handed over or their letter is durable. A
/// stop does not wait for them: they go back.
///
/// The function must give the same answer for the same message. If a message was decoded before, is
/// [read again](Source::reread) and cannot be decoded then, the source is opened again, and the
/// message comes anew.
pub struct Decoded<S: Source<Message = RawMessage>, M, F> {
    inner: Inner<S>,
    decode: F,
    name: String,
    features: Features,
    hasher: RandomState,
    /// What the inner source pushes into. What is there when a call is dropped stays.
    received: Deliveries<RawMessage, S::Position>,
    /// Received, and not looked at yet.
    arrivals: VecDeque<Raw<S::Position>>,
    table: Table<Raw<S::Position>, Undecodable<S::Position>>,
    /// How many messages without a key had to be told apart.
    keyless: u64,
    letters: LettersInDelivery,
    /// Keys whose letter the inner source is to keep.
    for_inner: VecDeque<u64>,
    /// Settlements that the inner source is told of next.
    told: Vec<Settlement<S::Position>>,
    /// Letters that are durable, and not counted yet.
    dead_lettered: u64,
    /// When the leases of what waits were extended.
    extended_at: Instant,
    /// The inner source has come to its end.
    ended: bool,
    _messages: PhantomData<fn() -> M>,
}

/// What ends a wait.
enum Waited<P> {
    Received(Result<Received<P>, SourceError>),
    Letter(News),
    /// Leases are to be extended, or the wait is over.
    Time,
}

impl<S, M, F> Decoded<S, M, F>
where
    S: Source<Message = RawMessage>,
    F: Fn(&RawMessage) -> Result<M, BoxError> + Send + 'static,
    M: Send + Sync + 'static,
{
    pub(super) fn new(source: S, decode: F) -> Self {
        let now = clock::now();
        Self {
            decode,
            name: source.name(),
            features: source.features(),
            inner: Inner::new(source),
            hasher: RandomState::new(),
            received: Deliveries::new(0, now.into()),
            arrivals: VecDeque::new(),
            table: Table::new(),
            keyless: 0,
            letters: LettersInDelivery::new(),
            for_inner: VecDeque::new(),
            told: Vec::new(),
            dead_lettered: 0,
            extended_at: now,
            ended: false,
            _messages: PhantomData,
        }
    }

    /// Sets the destination of messages that cannot be decoded.
    #[must_use]
    pub fn letters(mut self, sink: impl RawLetterSink + 'static) -> Self {
        self.letters.give_to(Arc::new(sink));
        self
    }

    /// Hands over what may be handed over, as far as there is room, and begins to deliver the
    /// letters that are due.
    async fn hand_over(&mut self, into: &mut Deliveries<M, DecodedPosition<S::Position>>) {
        self.arrivals.extend(self.received.take());
        into.take_news(&mut self.received);
        into.add_dead_lettered(std::mem::take(&mut self.dead_lettered));
        // The older ones first.
        while into.room() > 0
            && let Some((key, raw)) = self.table.next_raw()
        {
            self.offer(Some(key), raw, into);
            // Dropped here, the rest is still where it was.
            rt::consume_budget().await;
        }
        while let Some(first) = self.arrivals.front() {
            let key = first.message.key.as_ref();
            let key = key.map(|key| self.hasher.hash_one(key));
            let blocked = key.filter(|key| self.table.blocks(*key));
            if blocked.is_none() && into.room() == 0 {
                break;
            }
            let Some(first) = self.arrivals.pop_front() else {
                break;
            };
            match blocked {
                Some(key) => self.table.push(key, first),
                None => self.offer(key, first, into),
            }
            rt::consume_budget().await;
        }
        while let Some(key) = self.table.next_letter() {
            self.deliver(key);
        }
    }

    /// Hands a message over whose turn it is, or finds that it cannot be decoded.
    fn offer(
        &mut self,
        key: Option<u64>,
        raw: Raw<S::Position>,
        into: &mut Deliveries<M, DecodedPosition<S::Position>>,
    ) {
        let Delivery {
            message: raw,
            position,
            generation,
            attempts,
            bytes,
        } = raw;
        match self.decoded(&raw) {
            Ok(message) => {
                if let Some(key) = key {
                    self.table.handed_over(key, generation);
                }
                let position = DecodedPosition {
                    inner: position,
                    key,
                    generation,
                };
                let delivery = Delivery::new(message, position);
                let delivery = delivery.generation(generation).attempts(attempts);
                into.push(delivery.bytes(bytes as usize));
            }
            Err(error) => {
                let letter = RawLetter::new(raw, error, self.name.clone());
                let letter = Undecodable::new(position, generation, attempts, letter);
                tracing::warn!(
                    target: "keylane",
                    source = %self.name,
                    error = %letter.why,
                    "a message cannot be decoded"
                );
                let key = key.unwrap_or_else(|| self.number_keyless());
                self.table.undecodable(key, letter);
            }
        }
    }

    fn decoded(&self, raw: &RawMessage) -> Result<M, BoxError> {
        caught(|| (self.decode)(raw))
            .unwrap_or_else(|text| Err(format!("the decoding function panicked: {text}").into()))
    }

    /// A key for a message that has none, so that it waits for nothing.
    fn number_keyless(&mut self) -> u64 {
        loop {
            self.keyless = self.keyless.wrapping_add(1);
            let key = self.hasher.hash_one(self.keyless);
            if !self.table.knows(key) {
                return key;
            }
        }
    }

    /// Offers the letter of a key, now or after the pause that its refusals ask for.
    fn deliver(&mut self, key: u64) {
        if let Some(letter) = self.table.delivering(key) {
            self.letters.begin(key, letter);
        }
    }

    /// The sink or the inner source has answered.
    fn answered(&mut self, key: u64, answer: Result<(), String>) {
        let Err(why) = answer else {
            if let Some(letter) = self.table.kept(key) {
                let position = letter.position.clone();
                let settlement = Settlement::new(position, Outcome::DeadLettered);
                self.told.push(settlement);
                self.dead_lettered += 1;
                dropped(letter);
            }
            return;
        };
        if let Some(letter) = self.table.delivering(key) {
            let refusals = letter.refused();
            tracing::error!(
                target: "keylane",
                source = %self.name,
                error = %why,
                refusals,
                "the letter of a message that cannot be decoded was refused"
            );
        }
        self.deliver(key);
    }

    /// Waits for the call of the inner source that is under way.
    async fn finish_call(&mut self) -> Result<(), SourceError> {
        match self.inner.finished().await {
            None => Ok(()),
            Some(Called::Told(told)) => told,
            Some(Called::Letter(key, answer)) => {
                self.answered(key, answer);
                Ok(())
            }
        }
    }

    /// Calls the inner source if there is something to say to it. Whether a call has begun.
    fn begin_call(&mut self, now: Instant) -> bool {
        if !self.told.is_empty() {
            self.inner.settle(std::mem::take(&mut self.told));
            return true;
        }
        if self.extend_at().is_some_and(|at| at <= now) {
            self.extended_at = now;
            self.inner.extend(self.waiting().cloned().collect());
            return true;
        }
        while let Some(key) = self.for_inner.pop_front() {
            if let Some(letter) = self.table.delivering(key) {
                self.inner.dead_letter(key, letter.of_source());
                return true;
            }
        }
        false
    }

    /// When the leases of what waits have to be extended. The driver may hold nothing, and so not
    /// ask for it.
    fn extend_at(&self) -> Option<Instant> {
        let lease = self.features.lease_of()?;
        let needed = self.count_waiting() > 0 && !lease.is_zero();
        needed.then(|| self.extended_at.checked_add(lease / 2))?
    }

    /// How many messages are received and not handed over.
    fn count_waiting(&self) -> usize {
        self.arrivals.len() + self.table.blocked()
    }

    /// The positions of those.
    fn waiting(&self) -> impl Iterator<Item = &S::Position> {
        let blocked = self.table.iter().map(|blocked| about(blocked).0);
        let arrivals = self.arrivals.iter().map(|raw| &raw.position);
        blocked.chain(arrivals)
    }

    /// Waits for the inner source, for letters, or for the time to extend leases.
    async fn wait(
        &mut self,
        (room, room_bytes): (usize, usize),
        until: tokio::time::Instant,
    ) -> Waited<S::Position> {
        let extend_at = self.extend_at();
        // Without the inner source, this is what keeps the time.
        let until_at = self.ended.then(|| until.into_std());
        let wake_at = extend_at.into_iter().chain(until_at).min();
        let mut alarm = wake_at.map(Alarm::new);
        let room = room.saturating_sub(self.count_waiting());
        self.received.make_room(room, room_bytes, until);
        let letters = &mut self.letters;
        let (inner, received) = (&mut self.inner, &mut self.received);
        let receive = (!self.ended).then(|| inner.source().receive(received));
        let mut receive = pin!(receive);
        poll_fn(|cx| {
            if let Poll::Ready(news) = letters.poll(cx) {
                return Poll::Ready(Waited::Letter(news));
            }
            if let Some(receive) = receive.as_mut().as_pin_mut()
                && let Poll::Ready(received) = receive.poll(cx)
            {
                return Poll::Ready(Waited::Received(received));
            }
            match &mut alarm {
                Some(alarm) => alarm.poll(cx).map(|()| Waited::Time),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Takes out what is chosen of all that is received and not handed over.
    fn extract(
        &mut self,
        mut chosen: impl FnMut(&S::Position, Generation, bool) -> bool,
    ) -> Vec<Settlement<S::Position>> {
        self.arrivals.extend(self.received.take());
        let mut out = self.table.extract(|blocked| {
            let (position, generation, _) = about(blocked);
            let delivers = matches!(blocked, Blocked::Delivering(_));
            chosen(position, generation, delivers)
        });
        for _ in 0..self.arrivals.len() {
            match self.arrivals.pop_front() {
                Some(raw) if chosen(&raw.position, raw.generation, false) => {
                    out.push(Blocked::Raw(raw));
                }
                Some(raw) => self.arrivals.push_back(raw),
                None => {}
            }
        }
        let returned = |blocked: &Blocked<_, _>| {
            let (position, _, attempts) = about(blocked);
            Settlement::new(S::Position::clone(position), Outcome::Returned { attempts })
        };
        let settlements = out.iter().map(returned).collect();
        dropped(out);
        settlements
    }

    /// Follows the end of generations.
    fn revoke(&mut self, generations: &[Generation], is_told: bool) {
        let back = self.extract(|_, generation, _| generations.contains(&generation));
        if is_told {
            self.told.extend(back);
        } else {
            // What was handed over of them settles without us.
            self.table.forget(generations);
        }
    }

    /// Gives back what the inner source wants back and is not handed over, and returns the rest. A
    /// letter that is being delivered has started.
    fn recall(&mut self, mut positions: Vec<S::Position>) -> Vec<DecodedPosition<S::Position>> {
        let wanted = |position: &S::Position| positions.contains(position);
        let back = self.extract(|position, _, delivers| !delivers && wanted(position));
        positions.retain(|position| !back.iter().any(|back| back.position == *position));
        self.told.extend(back);
        let handed_over = positions.into_iter().map(|inner| DecodedPosition {
            inner,
            // Equal to the one that was handed over all the same.
            key: None,
            generation: Generation::default(),
        });
        handed_over.collect()
    }

    /// Ends what is under way, and tells the inner source what is not told yet.
    async fn tell(&mut self) -> Result<&mut S, SourceError> {
        self.finish_call().await?;
        let told = std::mem::take(&mut self.told);
        if !told.is_empty() {
            self.inner.source().settle(&told).await?;
        }
        Ok(self.inner.source())
    }
}

/// The position, the generation and the earlier attempts of what waits.
fn about<P>(blocked: &Blocked<Raw<P>, Undecodable<P>>) -> (&P, Generation, u32) {
    match blocked {
        Blocked::Raw(raw) => (&raw.position, raw.generation, raw.attempts),
        Blocked::Letter(letter) | Blocked::Delivering(letter) => {
            (&letter.position, letter.generation, letter.attempts)
        }
    }
}

impl<S, M, F> Source for Decoded<S, M, F>
where
    S: Source<Message = RawMessage>,
    F: Fn(&RawMessage) -> Result<M, BoxError> + Send + 'static,
    M: Send + Sync + 'static,
{
    type Message = M;
    type Position = DecodedPosition<S::Position>;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn features(&self) -> Features {
        self.features
    }

    fn validate(&self) -> Result<(), SourceError> {
        if !self.letters.has_sink() && !self.features.keeps_dead_letters() {
            return Err(SourceError::failed(
                "what cannot be decoded has no place to go, and the source keeps no dead letters: \
                 give `.decode(..)` a sink with `.letters(sink)`",
            ));
        }
        self.inner.look(S::validate).unwrap_or(Ok(()))
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        // All generations are over, and what was received in them comes again.
        self.inner.interrupt();
        self.letters.clear();
        dropped(std::mem::replace(&mut self.table, Table::new()));
        dropped((self.received.take(), std::mem::take(&mut self.arrivals)));
        self.for_inner.clear();
        self.told.clear();
        self.extended_at = clock::now();
        self.ended = false;
        self.inner.source().open().await
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<M, Self::Position>,
    ) -> Result<Received<Self::Position>, SourceError> {
        loop {
            self.finish_call().await?;
            self.hand_over(into).await;
            if !into.is_empty() {
                return Ok(Received::Messages);
            }
            let now = clock::now();
            if self.begin_call(now) {
                continue;
            }
            if self.ended && self.count_waiting() == 0 {
                return Ok(Received::End);
            }
            // From here on no await may come before what was received is noted.
            let received = match self
                .wait((into.room(), into.room_bytes()), into.until())
                .await
            {
                Waited::Letter(News::Answered(key, answer)) => {
                    self.answered(key, answer);
                    continue;
                }
                Waited::Letter(News::Due(key)) => {
                    self.for_inner.push_back(key);
                    continue;
                }
                Waited::Time if self.ended && clock::now() >= into.until().into_std() => {
                    return Ok(Received::Idle);
                }
                Waited::Time => continue,
                Waited::Received(received) => received?,
            };
            match received {
                Received::Messages => {
                    self.hand_over(into).await;
                    return Ok(Received::Messages);
                }
                Received::Idle => return Ok(Received::Idle),
                Received::Revoked(generations) => {
                    self.revoke(&generations, true);
                    return Ok(Received::Revoked(generations));
                }
                Received::Lost(generations) => {
                    self.revoke(&generations, false);
                    return Ok(Received::Lost(generations));
                }
                Received::Recalled(positions) => {
                    return Ok(Received::Recalled(self.recall(positions)));
                }
                Received::End => self.ended = true,
            }
        }
    }

    async fn settle(&mut self, settled: &[Settlement<Self::Position>]) -> Result<(), SourceError> {
        self.finish_call().await?;
        for Settlement { position, outcome } in settled {
            if let Some(key) = position.key {
                self.table.settled(key, position.generation);
            }
            let position = position.inner.clone();
            self.told.push(Settlement::new(position, *outcome));
        }
        self.tell().await?;
        Ok(())
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.tell().await?.confirm().await
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        self.tell().await?;
        // Attempts that did not end in time.
        self.table.forget(generations);
        self.inner.source().release(generations).await
    }

    async fn extend(&mut self, held: &[Self::Position]) -> Result<(), SourceError> {
        self.finish_call().await?;
        self.arrivals.extend(self.received.take());
        let held = held.iter().map(|position| &position.inner);
        let held: Vec<_> = held.chain(self.waiting()).cloned().collect();
        self.extended_at = clock::now();
        self.inner.source().extend(&held).await
    }

    async fn reread(
        &mut self,
        positions: &[Self::Position],
        into: &mut Deliveries<M, Self::Position>,
    ) -> Result<(), SourceError> {
        self.finish_call().await?;
        let inner: Vec<_> = positions.iter().map(|at| at.inner.clone()).collect();
        let mut raw = Deliveries::new(into.room(), into.until());
        self.inner.source().reread(&inner, &mut raw).await?;
        for delivery in raw.take() {
            // Opened again, the source hands it over once more, and it gets its place then.
            let decoded = self.decoded(&delivery.message);
            let message = decoded.map_err(SourceError::failed)?;
            let key = delivery.message.key.as_ref();
            let position = DecodedPosition {
                key: key.map(|key| self.hasher.hash_one(key)),
                inner: delivery.position,
                generation: delivery.generation,
            };
            let decoded = Delivery::new(message, position);
            let decoded = decoded.generation(delivery.generation);
            let decoded = decoded.attempts(delivery.attempts);
            into.push(decoded.bytes(delivery.bytes as usize));
        }
        Ok(())
    }

    async fn dead_letter(
        &mut self,
        letter: SourceLetter<Self::Position>,
    ) -> Result<(), SourceError> {
        self.finish_call().await?;
        let SourceLetter {
            position,
            attempts,
            cause,
            why,
        } = letter;
        let letter = SourceLetter::new(position.inner, attempts, cause, why);
        self.inner.source().dead_letter(letter).await
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<Self::Position>>> {
        let guard = self.inner.look(S::start_guard)??;
        Some(Arc::new(RawGuard(guard)))
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        self.letters.clear();
        self.finish_call().await?;
        let back = self.extract(|_, _, _| true);
        let any = !back.is_empty();
        self.told.extend(back);
        let mut given_back = self.tell().await.map(drop);
        if any && given_back.is_ok() {
            given_back = self.inner.source().confirm().await;
        }
        let closed = self.inner.source().close().await;
        given_back.and(closed)
    }
}

impl<S: Source<Message = RawMessage>, M, F> fmt::Debug for Decoded<S, M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoded")
            .field("source", &self.name)
            .field("waiting", &(self.arrivals.len() + self.table.blocked()))
            .field("keys", &self.table.keys())
            .finish_non_exhaustive()
    }
}
