//! The streams that a source owns, from their take-over to their end.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use keylane_leases::Lease;
use keylane_source::{Deliveries, Generation, Outcome, RawMessage, Settlement, SourceError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::core::Flow;
use super::core::{Known, Resume, Resumes};
use super::core::{Owned, Phase};
use super::counts::Counters;
use super::guard::Starts;
use super::id::EntryId;
use super::lag::LastLag;
use super::lease::{StreamLease, TenureId};
use super::origin::delivery;
use super::position::StreamPosition;
use super::settle::StreamOutbox;
use super::watch::{Shown, StreamPart};
use super::worker::{Entry, Failing, Gained, Order, Task};

/// Most entries that one call hands over, so that news of the tasks is heard in between.
const AT_ONCE: usize = 2_048;

/// Fewest entries that one stream is asked for, with any number of streams.
const FEWEST_OF_ONE: usize = 64;

pub(super) struct HeldStreams {
    pub(super) starts: Arc<Starts>,
    pub(super) counters: Counters,
    pub(super) shown: Shown,
    pub(super) resumes: Arc<Resumes>,
    exact_starts: bool,
    last_generation: Generation,
    /// By the number of the stream.
    held: BTreeMap<u32, OwnedStream>,
    /// Tasks with unsent acks of streams that have left.
    ending: Vec<(Arc<StreamOutbox>, Task)>,
    /// The lost generations that are not reported yet.
    lost: Vec<Generation>,
    /// Leases of released streams, as long as their tasks have them: messages that were handed over
    /// may still be handled here.
    let_go: BTreeMap<u32, Weak<Lease>>,
    /// The first stream of the next call.
    first: u32,
}

/// A stream that is owned.
pub(super) struct OwnedStream {
    pub(super) owned: Owned<Entry>,
    pub(super) tenure: StreamLease,
    lease: Arc<Lease>,
    flow: Arc<Flow>,
    teller: Arc<StreamOutbox>,
    telling: Task,
    orders: mpsc::UnboundedSender<Order>,
    /// Acks to be sent next.
    acks: Vec<EntryId>,
    lag: LastLag,
    /// The frontier that was shown last.
    frontier: Option<EntryId>,
}

impl OwnedStream {
    /// Returns what is shown of it.
    fn part(&mut self) -> StreamPart {
        // Entries that a stream has dropped that ends here are neither open nor waiting.
        let all_settled = self.read().filter(|_| self.owned.phase == Phase::Live);
        let frontier = self.owned.lowest().or(all_settled);
        self.frontier = frontier.or(self.frontier);
        let lag = self.lag.get();
        StreamPart {
            frontier: self.frontier,
            open: self.owned.open(),
            waiting: self.flow.ahead().0,
            beyond: self.owned.beyond(),
            pending: lag.map(|lag| lag.pending),
            lag: lag.and_then(|lag| lag.unread),
            ..StreamPart::unknown(&self.tenure.place.stream)
        }
    }

    /// Returns the entry up to which the stream was read, if all that was read is here.
    fn read(&self) -> Option<EntryId> {
        let (ahead, last) = self.flow.ahead();
        last.filter(|_| ahead == 0)
    }

    /// Stops handing over entries.
    fn end(&mut self, phase: Phase) {
        let read = self.read();
        for entry in self.owned.end(phase, read) {
            self.flow.passed(entry.bytes);
        }
    }
}

impl HeldStreams {
    pub(super) fn new(exact_starts: bool, ttl: Duration) -> Self {
        Self {
            starts: Arc::new(Starts::new(ttl)),
            counters: Counters::default(),
            shown: Shown::default(),
            resumes: Arc::default(),
            exact_starts,
            last_generation: Generation(0),
            held: BTreeMap::new(),
            ending: Vec::new(),
            lost: Vec::new(),
            let_go: BTreeMap::new(),
            first: 0,
        }
    }

    pub(super) fn get(&self, number: u32) -> Option<&OwnedStream> {
        self.held.get(&number)
    }

    /// Records that the letter of an entry was written, and the entry acked.
    pub(super) fn letter_kept(&mut self, position: &StreamPosition) {
        if let Some(held) = self.held.get_mut(&position.stream) {
            held.owned.letter_kept(position.id);
        }
    }

    /// Returns the leases under which messages may be handled here.
    pub(super) fn leases(&self) -> BTreeMap<u32, Arc<Lease>> {
        let held = self.held.iter();
        let held = held.map(|(number, held)| (*number, Arc::clone(&held.lease)));
        let let_go = self.let_go.iter();
        let let_go = let_go.filter_map(|(number, lease)| Some((*number, lease.upgrade()?)));
        let_go.chain(held).collect()
    }

    /// Whether no message is handed over, and the server has everything.
    pub(super) fn is_free(&self) -> bool {
        let ending = self.ending.iter().all(|(teller, _)| teller.has_told());
        let mut held = self.held.values();
        ending && held.all(|held| held.owned.is_free() && held.teller.has_told())
    }

    /// Takes the lost generations, if there are any, to report them.
    pub(super) fn take_lost(&mut self) -> Option<Vec<Generation>> {
        (!self.lost.is_empty()).then(|| std::mem::take(&mut self.lost))
    }

    /// Releases everything. The messages that were handed over are not ours any more.
    pub(super) fn abandon(&mut self) {
        for number in Vec::from_iter(self.held.keys().copied()) {
            self.part_with(number);
        }
        self.ending.clear();
        self.lost.clear();
        self.let_go.clear();
        self.shown.show(Vec::new());
    }

    /// Shows the streams, if that is due. Those that fail may be about to be taken over.
    pub(super) fn show_if_due(&mut self, streams: &[Bytes], failing: &Failing) {
        let due_at = self.shown.due_at();
        if due_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        let held = self.held.iter_mut();
        let mut parts: BTreeMap<_, _> = held.map(|(number, held)| (*number, held.part())).collect();
        for (number, why) in failing.of_streams() {
            let part = parts.entry(number);
            let part = part.or_insert_with(|| StreamPart::unknown(&streams[number as usize]));
            part.failure.get_or_insert(why);
        }
        self.shown.show(parts.into_values().collect());
    }

    fn next_generation(&mut self) -> Generation {
        self.last_generation = Generation(self.last_generation.0 + 1);
        self.last_generation
    }

    /// Returns the stream of a position, if it is still in that generation.
    pub(super) fn of(&self, position: &StreamPosition) -> Option<&OwnedStream> {
        let held = self.held.get(&position.stream)?;
        (held.owned.generation == position.generation).then_some(held)
    }

    pub(super) fn gain(&mut self, gained: Gained) {
        let generation = self.next_generation();
        self.starts.begin(generation, &gained.teller, &gained.lease);
        self.counters.add(|counts| {
            counts.gained += 1;
            counts.owned += 1;
        });
        let number = gained.tenure.place.number;
        let held = OwnedStream {
            owned: Owned::new(generation, gained.tenure.known.settled),
            tenure: gained.tenure,
            lease: gained.lease,
            flow: gained.flow,
            teller: gained.teller,
            telling: gained.telling,
            orders: gained.orders,
            acks: Vec::new(),
            lag: gained.lag,
            frontier: None,
        };
        self.let_go.remove(&number);
        let before = self.held.insert(number, held);
        debug_assert!(before.is_none(), "a stream is gained when it is not here");
    }

    pub(super) fn take_in(&mut self, stream: u32, round: u32, entries: Vec<Entry>) {
        let Some(held) = self.held.get_mut(&stream) else {
            return;
        };
        let takes = held.owned.takes(round);
        for entry in entries {
            match takes {
                true => held.owned.push(entry.id, entry),
                false => held.flow.passed(entry.bytes),
            }
        }
    }

    /// Processes a task's report that its stream is lost.
    pub(super) fn lost(&mut self, tenure: &TenureId) {
        let held = self.held.get(&tenure.stream);
        // It may have been taken over again.
        if held.is_some_and(|held| held.tenure.id() == *tenure) {
            self.lose(tenure.stream);
        }
    }

    /// Removes a stream that is not ours any more, or has changed.
    pub(super) fn lose(&mut self, stream: u32) {
        if let Some(held) = self.held.get(&stream) {
            self.let_go.insert(stream, Arc::downgrade(&held.lease));
        }
        if let Some(generation) = self.part_with(stream) {
            self.counters.add(|counts| counts.gone += 1);
            self.lost.push(generation);
        }
    }

    fn part_with(&mut self, stream: u32) -> Option<Generation> {
        let mut held = self.held.remove(&stream)?;
        let generation = held.owned.generation;
        let known = Known {
            settled: held.owned.settled(held.read()),
            seen: held.flow.seen(),
        };
        let resume = Resume {
            known,
            token: Arc::clone(&held.tenure.token),
            consumer: Arc::clone(&held.tenure.consumer),
        };
        self.resumes.set(stream, resume);
        held.end(Phase::Revoked);
        self.starts.end(generation);
        self.counters.add(|counts| counts.owned -= 1);
        // Acks in time are sent if there is no other owner yet.
        self.ending.push((held.teller, held.telling));
        Some(generation)
    }

    /// Revokes a stream. Returns the generation that must end first.
    pub(super) fn revoke(&mut self, stream: u32) -> Option<Generation> {
        let held = self.held.get_mut(&stream)?;
        let before = held.owned.phase;
        if before == Phase::Revoked {
            return None;
        }
        held.end(Phase::Revoked);
        let _ = held.orders.send(Order::Rest);
        // If it begins again, the driver waits for the end of its generation already.
        (before == Phase::Live).then_some(held.owned.generation)
    }

    /// Begins to rewind the streams with returned entries. Returns the generations that must end
    /// first.
    pub(super) fn rewind(&mut self) -> Vec<Generation> {
        let returned = self.held.values_mut();
        let returned = returned.filter(|held| held.owned.wants_rewind());
        let generations = returned.map(|held| {
            held.end(Phase::Rewinding);
            let _ = held.orders.send(Order::Rest);
            held.owned.generation
        });
        generations.collect()
    }

    /// Hands over waiting entries as far as there is room. Returns whether anything has happened.
    pub(super) fn hand_over(&mut self, into: &mut Deliveries<RawMessage, StreamPosition>) -> bool {
        let mut left = into.room().min(AT_ONCE);
        if left == 0 {
            return false;
        }
        let waiting = self
            .held
            .iter()
            .filter(|(_, held)| held.owned.waiting() > 0);
        let mut streams: Vec<u32> = waiting.map(|(number, _)| *number).collect();
        if streams.is_empty() {
            return false;
        }
        let split = streams.partition_point(|number| *number < self.first);
        streams.rotate_left(split);
        self.first = streams[0] + 1;
        let of_one = (left / streams.len()).max(FEWEST_OF_ONE);
        for number in streams {
            let Some(held) = self.held.get_mut(&number) else {
                continue;
            };
            if held.lease.check().is_err() {
                // Its task may report it later.
                self.lose(number);
                continue;
            }
            let mut most = of_one.min(left);
            while most > 0
                && let Some(next) = held.owned.next()
            {
                let (id, entry) = match next {
                    Ok(next) => next,
                    Err(entry) => {
                        held.flow.passed(entry.bytes);
                        continue;
                    }
                };
                held.flow.passed(entry.bytes);
                let free = match entry.is_new {
                    true => u32::from(!self.exact_starts),
                    false => entry.attempts,
                };
                let generation = held.owned.generation;
                let position = StreamPosition {
                    stream: number,
                    attempts: entry.attempts,
                    free,
                    generation,
                    id,
                };
                let delivery = delivery(entry.message, position).generation(generation);
                into.push(delivery.attempts(entry.attempts));
                most -= 1;
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        true
    }

    /// Acks entries, or takes them back. Returns whether a stream must be read again.
    pub(super) fn settle(&mut self, settled: &[Settlement<StreamPosition>]) -> bool {
        let mut comes_again = false;
        for settlement in settled {
            let position = &settlement.position;
            let Some(held) = self.held.get_mut(&position.stream) else {
                continue;
            };
            if held.owned.generation != position.generation {
                continue;
            }
            match settlement.outcome {
                Outcome::Returned { attempts, .. } => {
                    held.owned.give_back();
                    // The server may have an attempt that was dropped, or may lack the first one.
                    if attempts > 0 || position.free != 1 {
                        held.teller.note(*position, attempts);
                    }
                    comes_again = true;
                }
                _ => {
                    if held.owned.ack(position.id) {
                        held.acks.push(position.id);
                    }
                }
            }
        }
        for held in self.held.values_mut().filter(|held| !held.acks.is_empty()) {
            held.teller.ack(&mut held.acks);
        }
        comes_again
    }

    /// Releases these generations, which have ended here: each stream leaves, or begins again.
    pub(super) async fn let_go(&mut self, generations: &[Generation]) {
        let theirs = |held: &&OwnedStream| generations.contains(&held.owned.generation);
        let numbers = self.held.values().filter(theirs);
        let numbers: Vec<u32> = numbers.map(|held| held.tenure.place.number).collect();
        let mut left = Vec::new();
        for number in numbers {
            let generation = self.next_generation();
            let Some(held) = self.held.get_mut(&number) else {
                continue;
            };
            if held.owned.phase == Phase::Rewinding {
                self.starts.end(held.owned.generation);
                held.owned.begin(generation);
                held.flow.begin(held.owned.round);
                self.starts.begin(generation, &held.teller, &held.lease);
                let _ = held.orders.send(Order::Begin(held.owned.round));
            } else {
                left.extend(self.leave(number));
            }
        }
        for left in left {
            // Without an answer its task has ended.
            let _ = left.await;
        }
    }

    /// Gives all streams up.
    pub(super) fn leave_all(&mut self) {
        for number in Vec::from_iter(self.held.keys().copied()) {
            // It waits for the end of their tasks.
            drop(self.leave(number));
        }
    }

    /// Gives a stream up. The answer comes when that is done.
    fn leave(&mut self, number: u32) -> Option<oneshot::Receiver<()>> {
        let orders = self.held.get(&number)?.orders.clone();
        // The lease is dropped too; the task of the stream has the only other handle.
        self.part_with(number)?;
        self.counters.add(|counts| counts.gone += 1);
        let (reply, left) = oneshot::channel();
        let _ = orders.send(Order::Leave(reply));
        Some(left)
    }

    pub(super) async fn told(&mut self) -> Result<(), SourceError> {
        for held in self.held.values() {
            held.teller.told().await?;
        }
        for (teller, _) in &self.ending {
            teller.told().await?;
        }
        self.ending.retain(|(teller, _)| !teller.is_done());
        Ok(())
    }
}
