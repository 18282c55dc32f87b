//! A message comes to a lane that thinks.

use super::message::{Debt, Parked, Queued, Rouse, Turn, Work};
use super::settle::{Outcome, Tally};
use super::think::{After, later};
use super::{Engine, Lane};
use crate::clock::Instant;
use crate::discipline::{Coalesce, Discipline, Forgotten, How, Mode, OnGap, Sequencing, Start};
use crate::error::Failure;
use crate::lanes::{AtLimit, Came, Gap, Offered, Rest, Sequencer, State};
use crate::rt::atomic::Ordering;
use crate::types::{Spec, Types};
use crate::unwind::caught;

/// A message, and what became of it.
type Settled<T> = (Parked<T>, fn(<T as Types>::Message) -> Outcome<T>);

/// The message that waited, and the newcomer.
type Pair<T> = (Parked<T>, Parked<T>);

/// What an arrival has brought about, to be carried out once the shard's lock is gone.
struct Arrival<T: Types> {
    after: After<T>,
    /// The lane is to be asked what to run.
    calls: bool,
    /// The lane has come to its limit.
    filled: bool,
    /// How deep it is now.
    depth: usize,
    /// The store is to be asked where the key stands.
    loads: bool,
    /// Messages with an outcome.
    settled: Vec<Settled<T>>,
    /// Met a full lane, or were pushed out of one.
    displaced: Vec<Parked<T>>,
    refused: Vec<Parked<T>>,
    /// Their debts live on in the messages that stand for them.
    dropped: Vec<T::Message>,
    /// To become one.
    merges: Option<Pair<T>>,
    /// Missing versions that were given up, and what waited behind them.
    gap: Option<Gap>,
    behind_gap: Vec<Parked<T>>,
    /// A key to be dropped.
    asked: Option<Forgotten<T::Key>>,
}

impl<T: Spec> Arrival<T> {
    fn new() -> Self {
        Self {
            after: After::new(),
            calls: false,
            filled: false,
            depth: 0,
            loads: false,
            settled: Vec::new(),
            displaced: Vec::new(),
            refused: Vec::new(),
            dropped: Vec::new(),
            merges: None,
            gap: None,
            behind_gap: Vec::new(),
            asked: None,
        }
    }
}

impl<T: Spec> Engine<T> {
    /// Lets a message into the lane of its key. Returns how deep the lane is now.
    pub(super) fn arrive(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        parked: Parked<T>,
        now: Instant,
        turns: &mut Vec<Queued<T>>,
    ) -> usize {
        let mut arrival = Arrival::new();
        self.lanes.with_any(hash, &key, |lane| {
            self.admit(lane, &key, hash, parked, now, &mut arrival);
            if arrival.merges.is_some() {
                // They come in when they are one. Until then nothing of them is here.
                lane.extra_mut().merged = 0;
                return;
            }
            self.settle_in(lane, &key, hash, now, &mut arrival);
            if !arrival.behind_gap.is_empty() {
                // Perhaps it held nothing else.
                self.empty_or_stir(lane, now, &mut arrival);
            }
        });
        if let Some((waited, newcomer)) = arrival.merges.take() {
            self.merge(tally, &key, hash, waited, newcomer, now, &mut arrival);
        }
        if !arrival.settled.is_empty() {
            // What did not come in may have made a lane that holds nothing.
            self.lanes.advance(hash, &key, |lane| {
                lane.is_bare().then(|| ((), crate::lanes::Next::Remove))
            });
        }
        let depth = arrival.depth;
        self.follow_arrival(tally, key, hash, arrival, turns);
        depth
    }

    /// Under the shard's lock: the discipline decides.
    fn admit(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        mut parked: Parked<T>,
        now: Instant,
        arrival: &mut Arrival<T>,
    ) {
        if lane.is_stalled() {
            self.set_apart(&mut parked.ticket, &mut arrival.after.freed);
        }
        match &self.settings.discipline {
            Discipline::Fifo => {
                let limit = self.settings.lane_capacity;
                let spares = self.lanes.spares();
                match lane.offer(parked, limit, self.at_limit(), spares) {
                    Offered::Parked => {}
                    Offered::Displaced(old) => arrival.displaced.push(old),
                    Offered::Refused(new) => arrival.refused.push(new),
                }
            }
            Discipline::Coalesce(coalesce) => self.coalesce(lane, coalesce, parked, arrival),
            Discipline::Sequence(sequencing) => {
                self.sequence(lane, sequencing, key, hash, parked, now, arrival);
            }
        }
    }

    /// Under the shard's lock: what is in the lane now may call, expire, or be too much.
    fn settle_in(
        &self,
        lane: &mut Lane<T>,
        key: &T::Key,
        hash: u64,
        now: Instant,
        arrival: &mut Arrival<T>,
    ) {
        let depth = lane.depth();
        arrival.filled |= self.see_arrival(lane, depth, hash);
        arrival.depth = depth;
        if depth > self.settings.lane_capacity {
            self.set_lane_apart(lane, &mut arrival.after.freed);
        }
        if self.settings.expires {
            self.watch_expiry(lane, key, hash, now);
        }
        arrival.calls |= self.stir(lane, now);
        arrival.after.rests = matches!(lane.state(), State::Resting { .. });
    }

    /// Lets the call of a resting lane out, if there is something to run now. True: it is out.
    pub(super) fn stir(&self, lane: &mut Lane<T>, now: Instant) -> bool {
        let State::Resting { why, .. } = *lane.state() else {
            return false;
        };
        let parked = lane.parked_len();
        let is_full = |max: usize| parked >= max;
        let calls = match why {
            Rest::Paused | Rest::Rate | Rest::Delay | Rest::Recording => false,
            Rest::Linger => self
                .settings
                .batch
                .as_ref()
                .is_none_or(|batch| is_full(self.most(batch))),
            Rest::Gap | Rest::HaltedGap | Rest::Loading | Rest::Idle => parked > 0,
        };
        if calls && !lane.is_paused() {
            if why == Rest::HaltedGap {
                self.halted.fetch_sub(1, Ordering::Relaxed);
            }
            lane.call();
            return true;
        }
        if parked == 0
            && matches!(why, Rest::Idle | Rest::Loading | Rest::Gap)
            && let Some((why, until)) = self.misses(lane, now)
        {
            self.halt_at_gap(why);
            lane.rest_on(why, until);
        }
        false
    }

    /// Under the shard's lock.
    fn coalesce(
        &self,
        lane: &mut Lane<T>,
        coalesce: &Coalesce<T::Message>,
        mut parked: Parked<T>,
        arrival: &mut Arrival<T>,
    ) {
        let spares = self.lanes.spares();
        if lane.parked_len() == 0 {
            return lane.append(parked, spares);
        }
        let at_limit = self.at_limit();
        let is_full = at_limit != AtLimit::Park && lane.depth() >= self.settings.lane_capacity;
        // At an exact limit nothing more is kept for the sake of its receipt.
        let shares = self.share.is_some() && !is_full;
        match coalesce.how {
            How::KeepFirst if shares => {
                let Parked { message, ticket } = parked;
                if let Some(waits) = lane.parked_mut().next() {
                    waits.ticket.debt.terms_mut().merged.push(ticket.debt);
                }
                arrival.dropped.push(message);
                lane.extra_mut().merged += 1;
            }
            How::KeepFirst => arrival.settled.push((parked, Outcome::Declined)),
            How::KeepLatest => {
                let Some(mut old) = lane.take_parked() else {
                    return;
                };
                #[cfg(keylane_mutant = "keep-oldest")]
                std::mem::swap(&mut old.message, &mut parked.message);
                if shares {
                    let Parked { message, ticket } = old;
                    join(&mut parked.ticket.debt, ticket.debt);
                    arrival.dropped.push(message);
                    lane.extra_mut().merged += 1;
                } else {
                    if let Some(merged) = old.ticket.debt.take_merged() {
                        parked.ticket.debt.terms_mut().merged = merged;
                    }
                    arrival.settled.push((old, Outcome::Superseded));
                }
                lane.append(parked, spares);
                forget_delay(lane);
            }
            How::Merge(_) if is_full && at_limit == AtLimit::Refuse => {
                arrival.refused.push(parked);
            }
            How::Merge(_) if is_full => {
                arrival.displaced.extend(lane.take_parked());
                lane.extra_mut().merged = 0;
                lane.append(parked, spares);
                forget_delay(lane);
            }
            How::Merge(_) => arrival.merges = lane.take_parked().map(|old| (old, parked)),
        }
    }

    /// Two messages become one, out of the lane: the function is the user's. Nothing else comes in
    /// meanwhile, because only the dispatcher task lets messages in.
    #[allow(clippy::too_many_arguments, reason = "one step of `arrive`")]
    fn merge(
        &self,
        tally: &mut Tally,
        key: &T::Key,
        hash: u64,
        waited: Parked<T>,
        newcomer: Parked<T>,
        now: Instant,
        arrival: &mut Arrival<T>,
    ) {
        let Discipline::Coalesce(Coalesce {
            how: How::Merge(merge),
        }) = &self.settings.discipline
        else {
            unreachable!("only lanes that merge have something to merge")
        };
        let survivor = match caught(|| merge(&waited.message, &newcomer.message)) {
            Ok(message) => {
                let mut ticket = newcomer.ticket;
                ticket.parked_at = waited.ticket.parked_at;
                join(&mut ticket.debt, waited.ticket.debt);
                self.drop_quietly(waited.message);
                self.drop_quietly(newcomer.message);
                Parked { message, ticket }
            }
            Err(text) => {
                self.probe.counters.panics.add(1);
                let failure = Failure::Panicked(text);
                self.drop_quietly(newcomer.message);
                self.settle(tally, newcomer.ticket, Outcome::Discarded(failure));
                waited
            }
        };
        self.lanes.with_any(hash, key, |lane| {
            let merged = survivor.ticket.debt.terms().map(|terms| terms.merged.len());
            lane.extra_mut().merged = merged.unwrap_or(0);
            lane.append(survivor, self.lanes.spares());
            forget_delay(lane);
            #[cfg(not(keylane_mutant = "merge-uncalled"))]
            self.settle_in(lane, key, hash, now, arrival);
        });
    }

    /// Under the shard's lock.
    #[allow(clippy::too_many_arguments, reason = "one step of `admit`")]
    fn sequence(
        &self,
        lane: &mut Lane<T>,
        sequencing: &Sequencing<T::Key>,
        key: &T::Key,
        hash: u64,
        mut parked: Parked<T>,
        now: Instant,
        arrival: &mut Arrival<T>,
    ) {
        let version = parked.ticket.debt.terms_mut().version;
        let gaps = sequencing.mode == Mode::Contiguous;
        let is_new = lane.extra_mut().sequencer.is_none();
        let (limit, at_limit) = (self.settings.lane_capacity, self.at_limit());
        let is_full = at_limit != AtLimit::Park && lane.depth() >= limit;
        let sequencer = lane
            .extra_mut()
            .sequencer
            .get_or_insert_with(Sequencer::new);
        if is_new {
            let (last, asked) = sequencing.versions.last(key, hash, now);
            arrival.asked = Some(asked);
            if last.is_some() || sequencing.versions.store.is_none() {
                let first = match sequencing.start {
                    Start::At(first) => first,
                    Start::FirstSeen => version,
                };
                let none = sequencer.learn(last, Some(first), now);
                debug_assert!(none.is_empty(), "a new sequencer holds nothing");
            } else {
                arrival.loads = true;
            }
        }
        if sequencer.is_early(version, gaps) && !cfg!(keylane_mutant = "early-is-load") {
            // It waits for somebody else's message: no load.
            self.set_apart(&mut parked.ticket, &mut arrival.after.freed);
        }
        if is_full && sequencer.is_early(version, gaps) && !sequencer.has(version) {
            return arrival.refused.push(parked);
        }
        let had_gap = sequencer.gap().map(|gap| gap.since);
        // What is early is in nobody's way: it must not keep out what it waits for.
        let limit = limit.saturating_add(sequencer.early_len());
        match sequencer.come(version, parked, gaps, now) {
            Came::Next(parked) => {
                match lane.offer(parked, limit, at_limit, self.lanes.spares()) {
                    Offered::Parked => {}
                    Offered::Displaced(old) => arrival.displaced.push(old),
                    Offered::Refused(new) => arrival.refused.push(new),
                }
                self.line_up(lane, gaps, now);
            }
            Came::Early => {
                if sequencer.early_len() > sequencing.early {
                    self.give_gap_up(lane, sequencing, now, arrival);
                }
            }
            Came::Duplicate(parked) => arrival.settled.push((parked, Outcome::Duplicate)),
        }
        self.watch_gap(lane, sequencing, (key, hash), had_gap, now);
    }

    /// Parks the early messages whose turn has come. Under the shard's lock.
    pub(super) fn line_up(&self, lane: &mut Lane<T>, gaps: bool, now: Instant) {
        while let Some(next) = lane
            .extra_mut()
            .sequencer
            .as_mut()
            .and_then(|sequencer| sequencer.pop_next(gaps, now))
        {
            lane.append(next, self.lanes.spares());
        }
    }

    /// Arms the timer of a gap that was not there before. Under the shard's lock.
    pub(super) fn watch_gap(
        &self,
        lane: &Lane<T>,
        sequencing: &Sequencing<T::Key>,
        (key, hash): (&T::Key, u64),
        had_gap: Option<Instant>,
        now: Instant,
    ) {
        let sequencer = lane.extra().and_then(|extra| extra.sequencer.as_ref());
        let gap = sequencer.and_then(Sequencer::gap).map(|gap| gap.since);
        #[cfg(keylane_mutant = "one-gap-only")]
        let gap = gap.filter(|_| had_gap.is_none());
        if let Some(since) = gap.filter(|_| gap != had_gap) {
            let key = key.clone();
            let until = later(since, sequencing.patience);
            self.rouse_at(Rouse::Gap { key, hash, since }, until, now);
        }
    }

    /// The missing versions have not come in time, or too much waits for them. Under the shard's lock.
    fn give_gap_up(
        &self,
        lane: &mut Lane<T>,
        sequencing: &Sequencing<T::Key>,
        now: Instant,
        arrival: &mut Arrival<T>,
    ) {
        let Some(sequencer) = &mut lane.extra_mut().sequencer else {
            return;
        };
        let Some(gap) = sequencer.gap() else { return };
        match sequencing.on_gap {
            OnGap::Skip => {
                arrival.gap = Some(gap);
                sequencer.skip_gap();
                self.line_up(lane, true, now);
            }
            OnGap::DeadLetter => {
                arrival.gap = Some(gap);
                arrival.behind_gap = sequencer.take_early();
            }
            OnGap::Halt => {
                if let State::Resting { why: Rest::Gap, .. } = lane.state() {
                    arrival.gap = Some(gap);
                    self.halt_at_gap(Rest::HaltedGap);
                    lane.rest_on(Rest::HaltedGap, None);
                }
            }
        }
    }

    /// The time of a gap has come, if it is still the same.
    pub(super) fn gap_due(
        &self,
        tally: &mut Tally,
        (key, hash, since): (T::Key, u64, Instant),
        now: Instant,
        turns: &mut Vec<Queued<T>>,
    ) {
        let Some(sequencing) = self.sequencing() else {
            return;
        };
        let mut arrival = Arrival::new();
        self.lanes.with(hash, &key, |lane| {
            let sequencer = lane.extra().and_then(|extra| extra.sequencer.as_ref());
            let gap = sequencer.and_then(Sequencer::gap);
            if gap.is_none_or(|gap| gap.since != since) {
                return;
            }
            let until = later(since, sequencing.patience);
            if until > now + super::verdict::TICK {
                let key = key.clone();
                return self.rouse_at(Rouse::Gap { key, hash, since }, until, now);
            }
            self.give_gap_up(lane, sequencing, now, &mut arrival);
            arrival.gap = arrival.gap.or(gap);
            self.watch_gap(lane, sequencing, (&key, hash), Some(since), now);
            self.empty_or_stir(lane, now, &mut arrival);
        });
        self.follow_arrival(tally, key, hash, arrival, turns);
    }

    /// The store has said where a key stands.
    pub(super) fn learn(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        last: Option<u64>,
        now: Instant,
    ) -> Vec<Queued<T>> {
        let mut turns = Vec::new();
        let Some(sequencing) = self.sequencing() else {
            return turns;
        };
        let first = match sequencing.start {
            Start::At(first) => Some(first),
            Start::FirstSeen => None,
        };
        let gaps = sequencing.mode == Mode::Contiguous;
        let mut arrival = Arrival::new();
        self.lanes.with(hash, &key, |lane| {
            let Some(sequencer) = &mut lane.extra_mut().sequencer else {
                return;
            };
            if !sequencer.is_unknown() {
                return;
            }
            let old = sequencer.learn(last, first, now);
            let old = old
                .into_iter()
                .map(|old| (old, Outcome::Duplicate as fn(T::Message) -> _));
            arrival.settled.extend(old);
            if sequencer.is_unknown() {
                // What it was asked for is gone. Whoever comes next has the store asked again.
                lane.extra_mut().sequencer = None;
            }
            self.line_up(lane, gaps, now);
            self.watch_gap(lane, sequencing, (&key, hash), None, now);
            self.empty_or_stir(lane, now, &mut arrival);
        });
        self.follow_arrival(tally, key, hash, arrival, &mut turns);
        turns
    }

    /// A resting lane may have something to run now, or nothing at all any more.
    fn empty_or_stir(&self, lane: &mut Lane<T>, now: Instant, arrival: &mut Arrival<T>) {
        arrival.calls |= self.stir(lane, now);
        arrival.after.opening = self.open_or_renew_gate(lane);
        if let State::Resting { .. } = lane.state() {
            arrival.after.rests = true;
            if lane.depth() == 0 && !lane.is_paused() {
                // Whoever takes the call finds nothing, and removes the lane.
                lane.call();
                arrival.calls = true;
            }
        }
    }

    /// Counts a lane that comes to rest because versions did not come in time.
    pub(super) fn halt_at_gap(&self, why: Rest) {
        if why == Rest::HaltedGap {
            self.halted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn follow_arrival(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        arrival: Arrival<T>,
        turns: &mut Vec<Queued<T>>,
    ) {
        let Arrival {
            after,
            calls,
            filled,
            depth: _,
            loads,
            settled,
            displaced,
            refused,
            dropped,
            merges: _,
            gap,
            behind_gap,
            asked,
        } = arrival;
        self.carry_out(after, &key, hash);
        if filled || !displaced.is_empty() || !refused.is_empty() {
            self.notify_overflowed(&key);
        }
        self.drop_quietly(asked);
        for (Parked { message, ticket }, outcome) in settled {
            self.settle(tally, ticket, outcome(message));
        }
        for old in displaced {
            self.probe.counters.overflowed.add(1);
            self.settle(tally, old.ticket, Outcome::Displaced(old.message));
        }
        for new in refused {
            self.probe.counters.overflowed.add(1);
            let refused = self.refuse(tally, key.clone(), hash, new);
            turns.extend(refused.map(Queued::Turn));
        }
        self.drop_quietly(dropped);
        if let Some(gap) = gap {
            self.report_gap(&key, hash, gap);
        }
        for Parked { message, ticket } in behind_gap {
            turns.push(Queued::Turn(Turn {
                key: None,
                hash,
                message,
                ticket,
                work: Work::letter(0, Failure::Gap, Some(key.clone())),
            }));
        }
        if loads {
            self.load(key.clone(), hash, None);
        }
        if calls {
            turns.push(self.called(key, hash));
        }
    }

    /// Says which versions are missing.
    fn report_gap(&self, key: &T::Key, hash: u64, gap: Gap) {
        tracing::warn!(
            target: "keylane",
            key = %self.shown(Some(key), hash),
            first = gap.first,
            last = gap.last,
            "versions are missing"
        );
        self.notify_gap(key, gap.first, gap.last);
        let on_gap = self.sequencing().map(|sequencing| sequencing.on_gap);
        if on_gap == Some(OnGap::Halt) {
            let why = || format!("versions {} to {} are missing", gap.first, gap.last);
            self.notify_halted(key, self.is_watched().then(|| (0, why())));
        }
    }
}

/// Another message is the first of the lane now: the lane is to be asked again, if it waited for the time
/// of the one before.
fn forget_delay<T, H, G>(lane: &mut crate::lanes::Lane<T, H, G>) {
    if let State::Resting {
        why: Rest::Delay, ..
    } = lane.state()
    {
        lane.rest_on(Rest::Idle, None);
    }
}

/// What is owed for `old` is owed with `new` from here on. Flat, however many were joined before.
fn join<T: Spec>(new: &mut Debt<T>, mut old: Debt<T>) {
    let mut merged = old.take_merged().unwrap_or_default();
    #[cfg(keylane_mutant = "merged-forgotten")]
    merged.clear();
    merged.push(old);
    let joined = &mut new.terms_mut().merged;
    merged.append(joined);
    *joined = merged;
}
