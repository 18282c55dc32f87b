//! The messages of a source that decodes: where each of them is, and what comes next.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;

use keylane_rt as rt;
use keylane_rt::clock::{self, Instant};
use keylane_rt::unwind::{caught, dropped};

use super::delivery::{LettersInDelivery, Undecodable};
use super::inner::Inner;
use super::letter::RawLetter;
use super::position::DecodedPosition;
use super::table::{Blocked, Table};
use crate::BoxError;
use crate::{
    Deliveries, Delivery, Describer, Features, Generation, Outcome, RawMessage, Settlement,
};

/// A message as the inner source has handed it over.
type Raw<P> = Delivery<RawMessage, P>;

/// The state of a [`Decoded`](crate::Decoded) source, whose inner source has positions `P`.
pub(crate) struct Decoder<S, P, M, F> {
    pub(super) inner: Inner<S>,
    decode: F,
    /// Says where a message is. It does not need the inner source, which a call may have.
    pub(super) describer: Describer<P>,
    pub(super) name: String,
    pub(super) features: Features,
    pub(super) hasher: RandomState,
    /// What the inner source pushes into. What is there when a call is dropped stays.
    pub(super) received: Deliveries<RawMessage, P>,
    /// Received, and not looked at yet.
    pub(super) arrivals: VecDeque<Raw<P>>,
    pub(super) table: Table<Raw<P>, Undecodable<P>>,
    /// How many messages without a key had to be told apart.
    keyless: u64,
    pub(super) letters: LettersInDelivery,
    /// Keys whose letter the inner source is to keep.
    pub(super) for_inner: VecDeque<u64>,
    /// Settlements that the inner source is told of next.
    pub(super) told: Vec<Settlement<P>>,
    /// Letters that are durable, and not counted yet.
    dead_lettered: u64,
    /// When the leases of what waits were extended.
    pub(super) extended_at: Instant,
    /// The inner source has come to its end.
    pub(super) ended: bool,
    _messages: PhantomData<fn() -> M>,
}

impl<S, P: Clone + PartialEq, M, F> Decoder<S, P, M, F> {
    pub(crate) fn new(
        source: S,
        (name, features, describer): (String, Features, Describer<P>),
        decode: F,
    ) -> Self {
        let now = clock::now();
        Self {
            decode,
            describer,
            name,
            features,
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
    pub(super) fn answered(&mut self, key: u64, answer: Result<(), String>) {
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
                key = %letter.shown_key(),
                source = %self.name,
                position = %letter.place,
                id = letter.id.as_deref().map(tracing::field::display),
                error = %why,
                refusals,
                "the dead letter of a message that cannot be decoded was not accepted, will \
                 retry; its key waits"
            );
        }
        self.deliver(key);
    }

    /// The letter of a key is on its way: it is offered again after a pause.
    pub(super) fn offer_later(&mut self, key: u64) {
        if let Some(letter) = self.table.delivering(key) {
            letter.refused();
        }
        self.deliver(key);
    }

    /// When the leases of what waits have to be extended. The driver may hold nothing, and so not
    /// ask for it.
    pub(super) fn extend_at(&self) -> Option<Instant> {
        let lease = self.features.lease_of()?;
        let needed = self.count_waiting() > 0 && !lease.is_zero();
        needed.then(|| self.extended_at.checked_add(lease / 2))?
    }

    /// How many messages are received and not handed over.
    pub(super) fn count_waiting(&self) -> usize {
        self.arrivals.len() + self.table.blocked()
    }

    /// The positions of those.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &P> {
        let blocked = self.table.iter().map(|blocked| about(blocked).0);
        let arrivals = self.arrivals.iter().map(|raw| &raw.position);
        blocked.chain(arrivals)
    }

    /// Takes out what is chosen of all that is received and not handed over.
    pub(super) fn extract(
        &mut self,
        mut chosen: impl FnMut(&P, Generation, bool) -> bool,
    ) -> Vec<Settlement<P>> {
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
            Settlement::new(P::clone(position), Outcome::Returned { attempts })
        };
        let settlements = out.iter().map(returned).collect();
        dropped(out);
        settlements
    }

    /// Follows the end of generations.
    pub(super) fn revoke(&mut self, generations: &[Generation], is_told: bool) {
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
    pub(super) fn recall(&mut self, mut positions: Vec<P>) -> Vec<DecodedPosition<P>> {
        let wanted = |position: &P| positions.contains(position);
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
}

impl<S, P, M, F> Decoder<S, P, M, F>
where
    P: Clone + PartialEq + 'static,
    F: Fn(&RawMessage) -> Result<M, BoxError>,
{
    /// Hands over what may be handed over, as far as there is room, and begins to deliver the
    /// letters that are due.
    pub(super) async fn hand_over(&mut self, into: &mut Deliveries<M, DecodedPosition<P>>) {
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
        raw: Raw<P>,
        into: &mut Deliveries<M, DecodedPosition<P>>,
    ) {
        let Delivery {
            message: raw,
            position,
            generation,
            attempts,
            bytes,
            id,
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
                let mut delivery = delivery.generation(generation).attempts(attempts);
                delivery.id = id;
                into.push(delivery.bytes(bytes as usize));
            }
            Err(error) => {
                let place = self.describer.describe(&position);
                let letter = RawLetter::new(raw, error, self.name.clone());
                let letter = Undecodable::new(position, generation, attempts, letter);
                let letter = letter.named(place, id);
                tracing::warn!(
                    target: "keylane",
                    key = %letter.shown_key(),
                    source = %self.name,
                    position = %letter.place,
                    id = letter.id.as_deref().map(tracing::field::display),
                    error = %letter.why,
                    "a message cannot be decoded: it becomes a dead letter"
                );
                let key = key.unwrap_or_else(|| self.number_keyless());
                self.table.undecodable(key, letter);
            }
        }
    }

    pub(super) fn decoded(&self, raw: &RawMessage) -> Result<M, BoxError> {
        caught(|| (self.decode)(raw))
            .unwrap_or_else(|text| Err(format!("the decoding function panicked: {text}").into()))
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
