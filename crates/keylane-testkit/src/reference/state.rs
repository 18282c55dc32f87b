//! The state of the reference server. Pure: time is an argument.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use keylane::source::{Delivery, Features, Generation, Outcome, RawMessage, Received};
use tokio::time::Instant;

use super::entry::{Counts, Fate, KeptLetter, MessageState};
use super::place::Place;
use super::plan::{Plan, take};

/// A delivery of the reference server.
pub(super) type Handed = Delivery<RawMessage, Place>;

#[derive(Debug)]
pub(super) struct State {
    pub(super) features: Features,
    pub(super) partitions: Vec<Partition>,
    /// Deliveries that are held, by tag.
    pub(super) held: BTreeMap<u64, HeldMessage>,
    /// The recalled ones among them, and their partitions.
    pub(super) recalled: BTreeMap<u64, u32>,
    /// Open sessions.
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) letters: BTreeMap<(u32, u64), KeptLetter>,
    pub(super) plan: Plan,
    pub(super) counts: Counts,
    /// Redeliveries of a storm, and when they are due.
    due: BTreeMap<(Instant, u64), (u32, u64)>,
    pub(super) is_down: bool,
    /// Whether the publication has ended.
    pub(super) is_ended: bool,
    last_tag: u64,
    last_session: u64,
    last_generation: u64,
    next_keyless: usize,
}

#[derive(Debug, Default)]
pub(super) struct Partition {
    pub(super) log: Vec<Kept>,
    /// The offsets that wait to be handed over.
    pub(super) ready: BTreeSet<u64>,
    owner: Option<Owner>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    session: u64,
    generation: Generation,
    /// The session was asked to release it.
    is_revoked: bool,
}

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) message: RawMessage,
    pub(super) standing: MessageState,
    pub(super) attempts: u32,
    pub(super) deliveries: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HeldMessage {
    pub(super) partition: u32,
    pub(super) offset: u64,
    generation: Generation,
    until: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) news: VecDeque<Received<Place>>,
    pub(super) is_stalled: bool,
    /// Settled and not confirmed.
    settled: Vec<(u32, u64)>,
    /// A settlement was lost silently.
    pub(super) has_lost: bool,
}

impl State {
    pub(super) fn new(features: Features, partitions: usize) -> Self {
        Self {
            features,
            partitions: (0..partitions).map(|_| Partition::default()).collect(),
            held: BTreeMap::new(),
            recalled: BTreeMap::new(),
            sessions: BTreeMap::new(),
            letters: BTreeMap::new(),
            plan: Plan::default(),
            counts: Counts::default(),
            due: BTreeMap::new(),
            is_down: false,
            is_ended: false,
            last_tag: 0,
            last_session: 0,
            last_generation: 0,
            next_keyless: 0,
        }
    }

    pub(super) fn publish(&mut self, message: RawMessage) -> (u32, u64) {
        let count = self.partitions.len();
        let number = match &message.key {
            Some(key) => place_of(key) as usize % count,
            None => {
                self.next_keyless += 1;
                self.next_keyless % count
            }
        };
        let partition = &mut self.partitions[number];
        let offset = partition.log.len() as u64;
        partition.ready.insert(offset);
        partition.log.push(Kept {
            message,
            standing: MessageState::Ready,
            attempts: 0,
            deliveries: 0,
        });
        (number as u32, offset)
    }

    pub(super) fn open(&mut self) -> u64 {
        self.last_session += 1;
        self.counts.opened += 1;
        self.sessions.insert(self.last_session, Session::default());
        self.assign();
        self.last_session
    }

    /// Ends a session, and all its generations. Its settlements stay.
    pub(super) fn end_session(&mut self, session: u64) {
        self.confirm(session);
        self.sessions.remove(&session);
        let generations: Vec<_> = self.generations_of(session).collect();
        self.end(&generations);
        self.assign();
    }

    /// Ends all sessions. Unconfirmed settlements are forgotten if the server dies.
    pub(super) fn end_all(&mut self, forgets: bool) {
        let sessions: Vec<_> = self.sessions.keys().copied().collect();
        for session in sessions {
            if forgets && let Some(session) = self.sessions.get_mut(&session) {
                for (partition, offset) in std::mem::take(&mut session.settled) {
                    self.make_ready(partition, offset);
                }
            }
            self.end_session(session);
        }
        if !self.features.does_survive_restart() {
            for partition in &mut self.partitions {
                partition.log.clear();
                partition.ready.clear();
            }
            self.due.clear();
        }
    }

    /// Assigns partitions without an owner to the sessions that have the fewest.
    fn assign(&mut self) {
        if self.is_down {
            return;
        }
        for number in 0..self.partitions.len() {
            if self.partitions[number].owner.is_some() {
                continue;
            }
            let fewest = |session: &u64| self.generations_of(*session).count();
            let Some(session) = self.sessions.keys().copied().min_by_key(fewest) else {
                return;
            };
            self.last_generation += 1;
            self.partitions[number].owner = Some(Owner {
                session,
                generation: Generation(self.last_generation),
                is_revoked: false,
            });
        }
    }

    /// Returns the owner of each partition.
    pub(super) fn owners(&self) -> Vec<Option<Owner>> {
        let owners = self.partitions.iter().map(|partition| partition.owner);
        owners.collect()
    }

    fn generations_of(&self, session: u64) -> impl Iterator<Item = Generation> {
        let owners = self
            .partitions
            .iter()
            .filter_map(|partition| partition.owner);
        owners
            .filter(move |owner| owner.session == session)
            .map(|owner| owner.generation)
    }

    /// Ends these generations: their held messages are ready again.
    pub(super) fn end(&mut self, generations: &[Generation]) {
        let held = self.held.iter();
        let theirs = held.filter(|(_, held)| generations.contains(&held.generation));
        let tags: Vec<_> = theirs.map(|(tag, _)| *tag).collect();
        for tag in tags {
            self.let_go(tag);
        }
        for number in 0..self.partitions.len() {
            let partition = &mut self.partitions[number];
            let Some(owner) = partition.owner else {
                continue;
            };
            if !generations.contains(&owner.generation) {
                continue;
            }
            partition.owner = None;
            let log = partition.log.iter_mut().enumerate();
            for (offset, kept) in log.filter(|(_, kept)| kept.standing == MessageState::Returned) {
                kept.standing = MessageState::Ready;
                partition.ready.insert(offset as u64);
            }
        }
    }

    /// Records that the session has released these.
    pub(super) fn release(&mut self, session: u64, generations: &[Generation]) {
        let theirs: Vec<_> = self.generations_of(session).collect();
        let theirs: Vec<_> = theirs
            .into_iter()
            .filter(|generation| generations.contains(generation))
            .collect();
        self.end(&theirs);
        self.assign();
    }

    /// Asks the owners to release their partitions.
    pub(super) fn revoke(&mut self, partitions: &[u32]) {
        let mut asked: BTreeMap<u64, Vec<Generation>> = BTreeMap::new();
        for &number in partitions {
            let Some(owner) = &mut self.partitions[number as usize].owner else {
                continue;
            };
            if !std::mem::replace(&mut owner.is_revoked, true) {
                let of_session = asked.entry(owner.session).or_default();
                of_session.push(owner.generation);
            }
        }
        for (session, generations) in asked {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.news.push_back(Received::Revoked(generations));
            }
        }
    }

    /// Takes partitions from their owners, without asking.
    pub(super) fn take(&mut self, partitions: &[u32]) {
        for &number in partitions {
            let Some(owner) = self.partitions[number as usize].owner else {
                continue;
            };
            self.end(&[owner.generation]);
            if let Some(session) = self.sessions.get_mut(&owner.session) {
                session
                    .news
                    .push_back(Received::Lost(vec![owner.generation]));
            }
        }
        self.assign();
    }

    /// Records that a delivery is not held any more, and its message is not settled.
    fn let_go(&mut self, tag: u64) {
        if let Some(held) = self.held.remove(&tag) {
            self.make_ready(held.partition, held.offset);
        }
    }

    fn kept(&mut self, partition: u32, offset: u64) -> Option<&mut Kept> {
        let partition = self.partitions.get_mut(partition as usize)?;
        partition.log.get_mut(offset as usize)
    }

    /// Makes a message wait again that is not settled for ever.
    fn make_ready(&mut self, partition: u32, offset: u64) {
        let is_held = self
            .held
            .values()
            .any(|held| (held.partition, held.offset) == (partition, offset));
        let Some(kept) = self.kept(partition, offset) else {
            return;
        };
        match kept.standing {
            MessageState::Confirmed(_) => {}
            _ if is_held => kept.standing = MessageState::Held,
            _ => {
                kept.standing = MessageState::Ready;
                self.partitions[partition as usize].ready.insert(offset);
            }
        }
    }

    /// Confirms the settlement of a message.
    fn keep(&mut self, partition: u32, offset: u64) {
        if let Some(kept) = self.kept(partition, offset)
            && let MessageState::Settled(fate) = kept.standing
        {
            kept.standing = MessageState::Confirmed(fate);
        }
    }

    /// Takes back messages that were held for longer than their lease.
    pub(super) fn expire(&mut self, now: Instant) {
        let expired = |held: &HeldMessage| held.until.is_some_and(|until| until <= now);
        let held = self.held.iter().filter(|(_, held)| expired(held));
        let tags: Vec<_> = held.map(|(tag, _)| *tag).collect();
        for tag in tags {
            self.let_go(tag);
        }
    }

    /// Returns when the next timed event is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let leases = self.held.values().filter_map(|held| held.until);
        let storm = self.due.keys().next().map(|(at, _)| *at);
        leases.chain(storm).min()
    }

    /// Hands over ready messages, up to this room.
    pub(super) fn hand_over(
        &mut self,
        session: u64,
        (room, room_bytes): (usize, usize),
        now: Instant,
    ) -> Vec<Handed> {
        self.expire(now);
        let mut handed = Vec::new();
        let room = match room {
            0 => 0,
            room => room + std::mem::take(&mut self.plan.beyond_room),
        };
        let has_room = |handed: &Vec<Handed>| {
            let bytes = handed.iter().map(|handed| handed.bytes as usize);
            handed.len() < room && bytes.sum::<usize>() < room_bytes
        };
        while has_room(&handed) {
            let Some(((at, number), &place)) = self.due.iter().next().map(|(k, v)| (*k, v)) else {
                break;
            };
            if at > now {
                break;
            }
            self.due.remove(&(at, number));
            handed.extend(self.deliver(session, place.0, place.1, now));
        }
        let held = &self.held;
        self.recalled.retain(|tag, _| held.contains_key(tag));
        for number in 0..self.partitions.len() {
            // Messages behind a recalled one must not overtake it.
            if self.recalled.values().any(|at| *at as usize == number) {
                continue;
            }
            while has_room(&handed) {
                let ready = &self.partitions[number].ready;
                let Some(&offset) = ready.first() else { break };
                let Some(delivery) = self.deliver(session, number as u32, offset, now) else {
                    break;
                };
                self.partitions[number].ready.remove(&offset);
                self.schedule_storm(number as u32, offset, now);
                if take(&mut self.plan.twice) {
                    handed.push(delivery.clone());
                }
                handed.push(delivery);
            }
        }
        handed
    }

    /// Delivers a message once more, if the session owns its partition.
    fn deliver(
        &mut self,
        session: u64,
        partition: u32,
        offset: u64,
        now: Instant,
    ) -> Option<Handed> {
        let owner = self.partitions[partition as usize].owner;
        let owner = owner.filter(|owner| owner.session == session && !owner.is_revoked)?;
        let counts = self.features.does_count_attempts();
        let until = self.features.lease_of().map(|lease| now + lease);
        self.last_tag += 1;
        let tag = self.last_tag;
        let kept = self.kept(partition, offset)?;
        kept.deliveries += 1;
        if !kept.standing.is_settled() {
            kept.standing = MessageState::Held;
        }
        let attempts = if counts { kept.attempts } else { 0 };
        let mut message = kept.message.clone();
        message.attempt = attempts + 1;
        let place = Place {
            partition,
            offset,
            tag,
        };
        self.held.insert(
            tag,
            HeldMessage {
                partition,
                offset,
                generation: owner.generation,
                until,
            },
        );
        self.counts.delivered += 1;
        self.counts.most_held = self.counts.most_held.max(self.held.len());
        let delivery = Delivery::raw(message, place).generation(owner.generation);
        Some(delivery.attempts(attempts))
    }

    fn schedule_storm(&mut self, partition: u32, offset: u64, now: Instant) {
        let Some(storm) = &mut self.plan.storm else {
            return;
        };
        for _ in 0..=storm.random.below(4) {
            let within = storm.within.as_millis().max(1) as u64;
            let at = now + Duration::from_millis(storm.random.below(within));
            self.last_tag += 1;
            self.due.insert((at, self.last_tag), (partition, offset));
        }
    }

    /// Returns whether every published message has been handed over.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_ended && self.due.is_empty() && self.partitions.iter().all(|p| p.ready.is_empty())
    }

    /// Takes the outcome of a delivery.
    pub(super) fn settle(&mut self, session: u64, place: Place, outcome: Outcome) {
        let known = self.held.remove(&place.tag);
        if known.is_none() {
            self.counts.stale += 1;
        }
        let held = match known {
            Some(held) => held,
            None if self.plan.accepts_stale => HeldMessage {
                partition: place.partition,
                offset: place.offset,
                generation: Generation::default(),
                until: None,
            },
            None => return,
        };
        let fate = match outcome {
            Outcome::Done => Fate::Done,
            Outcome::DeadLettered => Fate::DeadLettered,
            Outcome::Discarded => Fate::Discarded,
            _ => return self.take_back(held),
        };
        let (partition, offset) = (held.partition, held.offset);
        let Some(kept) = self.kept(partition, offset) else {
            return;
        };
        if kept.standing.is_settled() {
            self.counts.repeated += 1;
            return;
        }
        kept.standing = MessageState::Settled(fate);
        self.partitions[partition as usize].ready.remove(&offset);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.settled.push((partition, offset));
        }
    }

    fn take_back(&mut self, held: HeldMessage) {
        if self.features.has_nack() {
            return self.make_ready(held.partition, held.offset);
        }
        if let Some(kept) = self.kept(held.partition, held.offset)
            && !kept.standing.is_settled()
        {
            kept.standing = MessageState::Returned;
        }
    }

    /// Confirms all settlements of a session.
    pub(super) fn confirm(&mut self, session: u64) {
        let settled = self.sessions.get_mut(&session);
        let settled = settled.map(|session| std::mem::take(&mut session.settled));
        for (partition, offset) in settled.unwrap_or_default() {
            self.keep(partition, offset);
        }
    }

    pub(super) fn extend(&mut self, places: &[Place], now: Instant) {
        let until = self.features.lease_of().map(|lease| now + lease);
        for place in places {
            if let Some(held) = self.held.get_mut(&place.tag) {
                held.until = until;
                self.counts.extended += 1;
            }
        }
    }

    /// Returns the message of a held delivery, unless it is gone.
    pub(super) fn reread(&mut self, place: Place) -> Option<Handed> {
        let held = *self.held.get(&place.tag)?;
        let counts = self.features.does_count_attempts();
        let kept = self.kept(held.partition, held.offset)?;
        if kept.standing.is_settled() {
            return None;
        }
        let attempts = if counts { kept.attempts } else { 0 };
        let mut message = kept.message.clone();
        message.attempt = attempts + 1;
        let delivery = Delivery::raw(message, place).generation(held.generation);
        Some(delivery.attempts(attempts))
    }

    pub(super) fn dead_letter(&mut self, place: Place, attempts: u32, why: String) {
        if let Some(kept) = self.kept(place.partition, place.offset) {
            let message = kept.message.clone();
            let letter = KeptLetter {
                message,
                attempts,
                why,
            };
            self.letters.insert((place.partition, place.offset), letter);
        }
    }

    pub(super) fn asks_until_noted(&self) -> u32 {
        self.plan.asks_until_noted
    }

    /// Starts an attempt.
    pub(super) fn start(&mut self, place: Place, attempt: u32) -> bool {
        if take(&mut self.plan.refused_starts) {
            return false;
        }
        self.counts.starts += 1;
        self.set_attempts(place, attempt);
        true
    }

    /// Sets how many attempts of a message count.
    pub(super) fn set_attempts(&mut self, place: Place, attempts: u32) {
        if let Some(kept) = self.kept(place.partition, place.offset) {
            kept.attempts = attempts;
        }
    }

    pub(super) fn redeliver(&mut self, now: Instant, chosen: impl Fn(&RawMessage) -> bool) {
        for (number, partition) in self.partitions.iter().enumerate() {
            let log = partition.log.iter().enumerate();
            for (offset, _) in log.filter(|(_, kept)| chosen(&kept.message)) {
                self.last_tag += 1;
                let place = (number as u32, offset as u64);
                self.due.insert((now, self.last_tag), place);
            }
        }
    }

    pub(super) fn forget(&mut self, chosen: impl Fn(&RawMessage) -> bool) {
        for partition in &mut self.partitions {
            let log = partition.log.iter_mut().enumerate();
            for (offset, kept) in log.filter(|(_, kept)| chosen(&kept.message)) {
                kept.standing = MessageState::Confirmed(Fate::Discarded);
                partition.ready.remove(&(offset as u64));
            }
        }
    }

    /// Asks the sessions that hold the chosen messages to give them back.
    pub(super) fn recall(&mut self, chosen: impl Fn(&RawMessage) -> bool) {
        let mut recalled: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
        for (&tag, held) in &self.held {
            let partition = &self.partitions[held.partition as usize];
            let Some(owner) = partition.owner else {
                continue;
            };
            if chosen(&partition.log[held.offset as usize].message) {
                self.recalled.insert(tag, held.partition);
                recalled.entry(owner.session).or_default().push(Place {
                    partition: held.partition,
                    offset: held.offset,
                    tag,
                });
            }
        }
        for (session, places) in recalled {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.news.push_back(Received::Recalled(places));
            }
        }
    }
}

/// Returns the same number for the same key, in every run (FNV-1a).
fn place_of(key: &Bytes) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}
