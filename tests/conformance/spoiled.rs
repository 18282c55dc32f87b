//! A source with one planted defect. Most defects show only in the situation that one case makes,
//! so that it is that case which must find them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane::source::{
    Deliveries, Delivery, Features, Generation, Outcome, RawMessage, Received, Settlement, Source,
    SourceError, SourceLetter, StartGuard, StartLater,
};
use keylane_testkit::reference::{Fate, MessageState, Place, ReferenceServer, ReferenceSource};
use tokio::time::Instant;

/// What a source does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    /// Says that it extends leases, and has none.
    AnswersUndeclared,
    /// Two messages of a key change places, late in a long run.
    Swaps,
    /// Hands over nothing else while the only message of a key is held.
    WaitsForSlowKeys,
    /// Hands over nothing else while many messages of a key are held.
    WaitsForHotKeys,
    GoesBeyondItsRoom,
    NeverIdle,
    LosesWhatWasCancelled,
    /// Does not let a third attempt start.
    RefusesThirdAttempts,
    /// Does not ack what was dead-lettered elsewhere.
    IgnoresDeadLettered,
    /// Does not ack what could not be decoded.
    IgnoresUndecodable,
    SwallowsDeadLetters,
    /// An empty key is no key.
    DropsEmptyKeys,
    /// A header without a value has an empty one.
    FillsHeaders,
    /// Forgets an ack when it closes.
    ForgetsAnAck,
    /// Acks what it was given back when it closes.
    AcksWhatCameBack,
    NacksToTheTail,
    /// Acks what could not be told.
    AcksInACut,
    AcceptsStaleAcks,
    /// Does not say that it has lost one or two messages.
    HidesSmallLosses,
    /// Does not say that it has lost more than two messages.
    HidesLargeLosses,
    /// Loses what was parked when its generation ended, from the third message on.
    LosesParked,
    /// Loses what was dropped in flight when its generation ended.
    LosesInFlight,
    /// Loses what was tried, and was not in flight, when its generation ended.
    LosesTried,
    /// Loses what it has not handed over when it closes.
    LosesWhenClosed,
    LosesInARestart,
    LosesWhenKilled,
    LosesInAStorm,
    /// Does not open again after a stall.
    StaysStalled,
    IgnoresExtensions,
    /// Claims random access, and lacks it.
    RereadsNothing,
    MiscountsAttempts,
    NeverEnds,
    ForgetsAcksInACrash,
    /// Acks before the handler.
    AcksAtOnce,
}

#[derive(Debug)]
pub(crate) struct Spoiled {
    inner: ReferenceSource,
    server: ReferenceServer,
    defect: Defect,
    /// When a revoke was told that is not released.
    revoked_at: Option<Instant>,
    opened: u32,
    /// Whether the harness has stalled the server, or ordered a storm.
    is_troubled: Arc<AtomicBool>,
    /// What it was given back in this session.
    returned: usize,
    spoiled: bool,
}

impl Spoiled {
    pub(crate) fn new(
        server: &ReferenceServer,
        defect: Defect,
        is_troubled: &Arc<AtomicBool>,
    ) -> Self {
        Self {
            inner: server.source(),
            server: server.clone(),
            defect,
            revoked_at: None,
            opened: 0,
            is_troubled: Arc::clone(is_troubled),
            returned: 0,
            spoiled: false,
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn forget(&self, places: &[Place]) {
        for entry in self.server.entries() {
            let is_at =
                |place: &&Place| (place.partition, place.offset) == (entry.partition, entry.offset);
            if places.iter().any(|place| is_at(&place)) {
                let payload = entry.message.payload;
                let faults = self.server.faults();
                faults.forget(|message| message.payload == payload);
            }
        }
    }

    fn was_tried(&self, place: Place) -> bool {
        let entries = self.server.entries();
        let mut entries = entries.iter();
        entries.any(|entry| {
            (entry.partition, entry.offset) == (place.partition, place.offset) && entry.attempts > 0
        })
    }

    /// Whether it has to wait for a key before it hands anything else over.
    fn waits(&self) -> bool {
        let entries = self.server.entries();
        let of_key = |key: &Option<Bytes>, held: bool| {
            let theirs = entries.iter().filter(|entry| entry.message.key == *key);
            let is_held = |standing| !held || standing == MessageState::Held;
            theirs.filter(|entry| is_held(entry.standing)).count()
        };
        let held = entries
            .iter()
            .filter(|entry| entry.standing == MessageState::Held);
        let mut keys = held.map(|entry| &entry.message.key);
        match self.defect {
            Defect::WaitsForSlowKeys => {
                entries.len() > 100 && keys.any(|key| of_key(key, false) == 1)
            }
            Defect::WaitsForHotKeys => keys.any(|key| of_key(key, true) > 20),
            _ => false,
        }
    }

    fn spoil(&mut self, handed: &mut [Delivery<RawMessage, Place>]) {
        let id = |delivery: &Delivery<RawMessage, Place>| {
            let id = delivery.message.payload.get(..8);
            id.map_or(0, |id| u64::from_be_bytes(id.try_into().unwrap()))
        };
        match self.defect {
            Defect::Swaps if !self.spoiled => {
                let late = (0..handed.len()).find(|at| id(&handed[*at]) > 200);
                let Some(first) = late else { return };
                let key = handed[first].message.key.clone();
                let mut others = first + 1..handed.len();
                if let Some(second) = others.find(|at| handed[*at].message.key == key) {
                    handed.swap(first, second);
                    self.spoiled = true;
                }
            }
            Defect::DropsEmptyKeys => {
                for delivery in handed {
                    delivery.message.key =
                        delivery.message.key.take().filter(|key| !key.is_empty());
                }
            }
            Defect::FillsHeaders => {
                for delivery in handed {
                    for (_, value) in &mut delivery.message.headers {
                        value.get_or_insert_default();
                    }
                }
            }
            Defect::NacksToTheTail if self.returned == 4 && self.revoked_at.is_none() => {
                handed.reverse();
            }
            Defect::MiscountsAttempts if !self.is_troubled.load(Ordering::Relaxed) => {
                for delivery in handed.iter_mut().filter(|delivery| delivery.attempts > 1) {
                    delivery.attempts += 1;
                }
            }
            Defect::AcksAtOnce => {
                let places: Vec<_> = handed.iter().map(|delivery| delivery.position).collect();
                self.forget(&places);
            }
            _ => {}
        }
    }
}

impl Source for Spoiled {
    type Message = RawMessage;
    type Position = Place;

    fn name(&self) -> String {
        format!("{:?}", self.defect)
    }

    fn features(&self) -> Features {
        self.inner.features()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.opened += 1;
        if self.has(Defect::StaysStalled)
            && self.opened > 1
            && self.is_troubled.load(Ordering::Relaxed)
        {
            return std::future::pending().await;
        }
        (self.returned, self.revoked_at) = (0, None);
        self.inner.open().await
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, Place>,
    ) -> Result<Received<Place>, SourceError> {
        let room = into.room();
        let waits = matches!(
            self.defect,
            Defect::WaitsForSlowKeys | Defect::WaitsForHotKeys
        );
        let mut inner_room = room;
        if waits {
            inner_room = if self.waits() { 0 } else { room.min(1) };
        }
        if self.has(Defect::GoesBeyondItsRoom) && (1..=16).contains(&room) {
            self.server.faults().hand_over_beyond_room(1);
        }
        let held = self.server.held();
        let mut inner = Deliveries::new(inner_room, into.until());
        let mut received = self.inner.receive(&mut inner).await?;
        let mut handed = inner.take();
        if self.has(Defect::LosesWhatWasCancelled) && room == 3 {
            tokio::task::yield_now().await;
        }
        self.spoil(&mut handed);
        let is_lost_in_a_storm = |delivery: &Delivery<RawMessage, Place>| {
            delivery.message.payload == 77_u64.to_be_bytes()[..]
        };
        if self.has(Defect::LosesInAStorm) && self.is_troubled.load(Ordering::Relaxed) {
            handed.retain(|delivery| !is_lost_in_a_storm(delivery));
        }
        handed.into_iter().for_each(|delivery| into.push(delivery));
        match &received {
            Received::Revoked(_) => self.revoked_at = Some(Instant::now()),
            Received::Lost(_) => {
                let hides = match held {
                    0..=2 => Defect::HidesSmallLosses,
                    _ => Defect::HidesLargeLosses,
                };
                if self.has(hides) {
                    received = Received::Messages;
                }
            }
            Received::Idle if self.has(Defect::NeverIdle) => std::future::pending().await,
            Received::End if self.has(Defect::NeverEnds) => {
                tokio::time::sleep_until(into.until()).await;
                received = Received::Idle;
            }
            _ => {}
        }
        Ok(received)
    }

    async fn settle(&mut self, settled: &[Settlement<Place>]) -> Result<(), SourceError> {
        let mut taken = Vec::new();
        let since_revoke = self.revoked_at.map(|at| at.elapsed());
        for settlement in settled {
            let place = settlement.position;
            let loses = match (settlement.outcome, since_revoke) {
                // Only what is in flight may stay so long.
                (Outcome::Returned { .. }, Some(since)) if since > Duration::from_millis(200) => {
                    self.has(Defect::LosesInFlight)
                }
                (Outcome::Returned { attempts: 0, .. }, Some(_)) => {
                    self.has(Defect::LosesParked) && self.returned > 2
                }
                (Outcome::Returned { .. }, Some(_)) => self.has(Defect::LosesTried),
                _ => false,
            };
            if loses {
                self.forget(&[place]);
            }
            self.returned += usize::from(!settlement.outcome.is_ack());
            let has_letter = !self.server.letters().is_empty();
            let ignored = match self.was_tried(place) {
                true => Defect::IgnoresDeadLettered,
                false => Defect::IgnoresUndecodable,
            };
            let ignores =
                settlement.outcome == Outcome::DeadLettered && self.has(ignored) && !has_letter;
            if !ignores {
                taken.push(settlement.clone());
            }
        }
        let answer = self.inner.settle(&taken).await;
        if answer.is_err() && self.has(Defect::AcksInACut) {
            let places: Vec<_> = taken.iter().map(|settlement| settlement.position).collect();
            self.forget(&places);
        }
        answer
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.inner.confirm().await
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        self.revoked_at = None;
        self.inner.release(generations).await
    }

    async fn extend(&mut self, held: &[Place]) -> Result<(), SourceError> {
        match self.defect {
            Defect::AnswersUndeclared | Defect::IgnoresExtensions => Ok(()),
            _ => self.inner.extend(held).await,
        }
    }

    async fn reread(
        &mut self,
        positions: &[Place],
        into: &mut Deliveries<RawMessage, Place>,
    ) -> Result<(), SourceError> {
        match self.defect {
            Defect::RereadsNothing => Ok(()),
            _ => self.inner.reread(positions, into).await,
        }
    }

    async fn dead_letter(&mut self, letter: SourceLetter<Place>) -> Result<(), SourceError> {
        match self.defect {
            Defect::SwallowsDeadLetters if letter.attempts > 0 => Ok(()),
            _ => self.inner.dead_letter(letter).await,
        }
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<Place>>> {
        let guard = self.inner.start_guard()?;
        match self.defect {
            Defect::RefusesThirdAttempts => Some(Arc::new(Refusing(guard))),
            _ => Some(guard),
        }
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        let entries = self.server.entries();
        let of = |holds: &dyn Fn(&keylane_testkit::reference::Entry) -> bool| {
            let chosen = entries.iter().filter(|entry| holds(entry));
            let places = chosen.map(|entry| Place {
                partition: entry.partition,
                offset: entry.offset,
                tag: 0,
            });
            places.collect::<Vec<_>>()
        };
        let done = MessageState::Confirmed(Fate::Done);
        match self.defect {
            Defect::AcksWhatCameBack => self.forget(&of(&|entry| {
                entry.standing == MessageState::Ready && entry.deliveries > 0
            })),
            Defect::LosesWhenClosed => self.forget(&of(&|entry| {
                entry.standing == MessageState::Ready && entry.deliveries == 0
            })),
            Defect::ForgetsAnAck
                if entries.len() == 20 && entries.iter().all(|entry| entry.standing == done) =>
            {
                let first = entries[0].message.payload.clone();
                let faults = self.server.faults();
                faults.redeliver(|message| message.payload == first);
            }
            _ => {}
        }
        self.inner.close().await
    }
}

/// Lets one third attempt not start.
struct Refusing(Arc<dyn StartGuard<Place>>);

impl StartGuard<Place> for Refusing {
    fn starts(&self, slot: u32, place: &Place, attempt: u32) -> Result<(), StartLater> {
        if attempt == 3 && place.offset == 7 {
            return Err("not a third time".into());
        }
        self.0.starts(slot, place, attempt)
    }

    fn settles(&self, slot: u32, place: &Place, outcome: Outcome) {
        self.0.settles(slot, place, outcome);
    }
}
