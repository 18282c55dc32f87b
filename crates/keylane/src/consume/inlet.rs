//! The way of a source's messages into the lanes: room in the capacity, the gates of full lanes.
//!
//! It never waits for one message while others could go on: a message that meets a full lane waits
//! aside, with all of its key that come after it.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use keylane_rt::unwind::dropped;
use keylane_rt::{Arc, OwnedSemaphorePermit, TryAcquireError};

use super::aside::{Aside, First, kept_of};
use super::room::{InletRoom, Take};
use super::waiting::Waiting;
use crate::dispatcher::Dispatcher;
use crate::engine::{Room, SourceSlot};
use crate::types::{Error, Key, Message, Output};

/// Most places in the capacity that are taken at once.
const AT_ONCE: usize = 256;

/// Fewest messages that are placed in one go. A lane is only seen to be full when the dispatcher
/// has got to them, so this is how much deeper than its capacity a source can make it.
const FEWEST_AT_ONCE: usize = 64;

pub(super) struct Inlet<K, M, O, E> {
    pub(super) dispatcher: Dispatcher<K, M, O, E>,
    source: u32,
    /// Messages that have waited aside and may go in now, ahead of the others.
    passed: VecDeque<Waiting<K, M>>,
    waiting: VecDeque<Waiting<K, M>>,
    pub(super) aside: Aside<K, M>,
    /// The wait for room for the first message.
    room: Option<RoomWait>,
    /// Room that was waited for.
    granted: Option<GrantedRoom>,
    closed: bool,
    /// Whether lanes put messages into the order of their versions.
    sequences: bool,
    /// Fewest messages that are placed in one go.
    fewest_at_once: usize,
    /// The number of lanes by which messages wait aside, where it may change.
    lanes: Option<usize>,
}

/// Room for one message.
type GrantedRoom = InletRoom<Arc<Room>>;

/// Waits for it. `None`: the dispatcher is closed.
type RoomWait = BoxFuture<'static, Option<GrantedRoom>>;

/// What is to be done before the first message can go in.
enum Step<'a> {
    Put(InletRoom<&'a Room>),
    Aside,
    Wait,
    Closed,
}

impl<K: Key, M: Message, O: Output, E: Error> Inlet<K, M, O, E> {
    /// For this source, of which so many messages may be read again.
    pub(super) fn new(
        dispatcher: Dispatcher<K, M, O, E>,
        source: u32,
        defers: usize,
        most_held: usize,
    ) -> Self {
        let keeps = kept_of(most_held);
        let sequences = dispatcher.sequences();
        // A lane may wait for the version of any message: all of them must be known.
        let defers = if sequences { 0 } else { defers };
        let lanes = lanes_of(&dispatcher);
        Self {
            sequences,
            lanes,
            dispatcher,
            source,
            passed: VecDeque::new(),
            waiting: VecDeque::new(),
            aside: Aside::new(defers, keeps, lanes.is_some()),
            fewest_at_once: keeps.min(FEWEST_AT_ONCE),
            room: None,
            granted: None,
            closed: false,
        }
    }

    /// How many messages are in no lane yet.
    pub(super) fn len(&self) -> usize {
        self.next() + self.aside.len()
    }

    /// The number of messages that wait to go into their lanes.
    #[inline]
    fn next(&self) -> usize {
        self.passed.len() + self.waiting.len()
    }

    /// The bytes of the first of those.
    #[inline]
    fn next_weight(&self) -> Option<u32> {
        let first = self.passed.front().or_else(|| self.waiting.front())?;
        Some(first.weight)
    }

    /// Whether the dispatcher takes no more messages.
    pub(super) fn is_closed(&self) -> bool {
        self.closed || self.dispatcher.is_closed()
    }

    /// Takes a message, to be [placed](Self::place), and returns the hash of its key, or 0 if it has
    /// none or may have another lane later. Gives it back if it is larger than all the room there
    /// is.
    ///
    /// # Panics
    ///
    /// If the key or size function, or the key's `Hash`, panics.
    #[inline]
    pub(super) fn push(&mut self, message: M, slot: Option<u32>) -> Result<u64, M> {
        let Some((key, hash, weight)) = self.dispatcher.locate(&message) else {
            return Err(message);
        };
        let lane = match (&key, self.lanes) {
            (Some(_), None) => hash,
            _ => 0,
        };
        self.waiting.push_back(Waiting {
            key,
            hash,
            weight,
            slot,
            message,
            gate: None,
        });
        Ok(lane)
    }

    /// Places what there is room for. Returns whether there may be more: the dispatcher is to look
    /// at these first.
    pub(super) fn place(&mut self) -> bool {
        self.follow_lanes();
        let engine = Arc::clone(&self.dispatcher.engine);
        // Of the places that are taken together, those that are left go back at the end.
        let mut places = InletRoom::none(&*engine.room);
        let capacity = engine.lane_capacity();
        let mut at_once = capacity.clamp(self.fewest_at_once, AT_ONCE);
        while self.next() > 0 && at_once > 0 {
            match self.step(&mut places) {
                Step::Put(room) => {
                    // The lane of one that has passed has room for it.
                    at_once -= usize::from(self.passed.is_empty());
                    self.put(room);
                }
                Step::Aside => {
                    if let Some(first) = self.waiting.pop_front() {
                        let key = first.key.as_ref();
                        let lane = lane_of(&self.dispatcher, self.lanes, key, first.hash);
                        self.aside.push(lane, first);
                    }
                }
                Step::Wait => break,
                Step::Closed => {
                    self.closed = true;
                    break;
                }
            }
        }
        if self.next() == 0 {
            // Others may have the room.
            self.room = None;
            self.granted = None;
        }
        at_once == 0 && self.next() > 0
    }

    /// If the number of lanes has changed, what waits aside waits for the lanes of now. All that is
    /// here follows at one moment, so that of one key everything is in one queue.
    #[inline]
    fn follow_lanes(&mut self) {
        if self.lanes.is_some() {
            let lanes = lanes_of(&self.dispatcher);
            if std::mem::replace(&mut self.lanes, lanes) != lanes {
                self.rehome();
            }
        }
    }

    #[cold]
    fn rehome(&mut self) {
        let (Some(lanes), Some(places)) = (self.lanes, &self.dispatcher.engine.table.places) else {
            return;
        };
        for lane in self.aside.rehome(|key| places.hash_among(key, lanes)) {
            self.pass_gate(lane, None);
        }
    }

    /// Takes what the first message needs, as far as it is there.
    #[inline]
    fn step<'a>(&mut self, places: &mut InletRoom<&'a Room>) -> Step<'a> {
        // One that has passed does not wait aside again: others of its key may be there, behind it.
        if self.passed.is_empty()
            && let Some(first) = self.waiting.front_mut()
            && first.gate.is_none()
        {
            let (dispatcher, lanes) = (&self.dispatcher, self.lanes);
            let lane =
                |first: &Waiting<K, M>| lane_of(dispatcher, lanes, first.key.as_ref(), first.hash);
            if self.aside.len() > 0 && self.aside.holds(lane(first)) {
                let waits = !self.sequences || {
                    let key = first.key.as_ref();
                    let gate = self.dispatcher.gate(key, first.hash, &first.message);
                    gate.is_some()
                };
                // One whose version its lane waits for goes past the others: they wait for it.
                if waits {
                    return Step::Aside;
                }
            }
            let engine = &self.dispatcher.engine;
            while let Some(gate) =
                self.dispatcher
                    .gate(first.key.as_ref(), first.hash, &first.message)
            {
                match gate.clone().try_acquire_owned() {
                    Ok(permit) => {
                        first.gate = Some(permit);
                        break;
                    }
                    Err(TryAcquireError::NoPermits) => {
                        self.aside.wait(lane(first), gate);
                        return Step::Aside;
                    }
                    Err(TryAcquireError::Closed) if engine.room.messages.is_closed() => {
                        return Step::Closed;
                    }
                    // A closed gate is one whose lane has room, or is gone: look again.
                    Err(TryAcquireError::Closed) => {}
                }
            }
        }
        self.take_room(places)
    }

    #[inline]
    fn take_room<'a>(&mut self, places: &mut InletRoom<&'a Room>) -> Step<'a> {
        let Some(weight) = self.next_weight() else {
            return Step::Wait;
        };
        if let Some(mut granted) = self.granted.take()
            && let Some(room) = granted.split(places.of(), weight)
        {
            return Step::Put(room);
        }
        // What was granted to another message, which has gone in first, has gone back.
        if self.room.is_some() {
            return Step::Wait;
        }
        if self.dispatcher.engine.table.rate_gate().is_some() {
            return self.wait_for_room(weight);
        }
        match places.take_for(weight, self.next().min(AT_ONCE)) {
            Take::Taken(room) => Step::Put(room),
            Take::None => self.wait_for_room(weight),
            Take::Closed => Step::Closed,
        }
    }

    /// The first message waits for room among the senders, and keeps its place there.
    #[cold]
    fn wait_for_room<'a>(&mut self, weight: u32) -> Step<'a> {
        let dispatcher = self.dispatcher.clone();
        self.room = Some(Box::pin(async move {
            let is_taken = dispatcher.take_room(weight).await;
            is_taken.then(|| InletRoom::of_one(Arc::clone(&dispatcher.engine.room), weight))
        }));
        Step::Wait
    }

    /// The first message goes in, into this room.
    #[inline]
    fn put(&mut self, room: InletRoom<&Room>) {
        let passed = self.passed.pop_front();
        let Some(first) = passed.or_else(|| self.waiting.pop_front()) else {
            return;
        };
        let Waiting {
            key,
            hash,
            weight,
            slot,
            message,
            gate,
        } = first;
        let source = self.source;
        let at = slot.map(|slot| SourceSlot { source, slot });
        match self
            .dispatcher
            .put_of_source(key, hash, message, weight, at)
        {
            Ok(()) => {
                room.keep();
                if let Some(gate) = gate {
                    gate.forget();
                }
            }
            Err(message) => {
                self.closed = true;
                // The dispatcher has just closed: what waits goes back, this one first.
                self.passed.push_front(Waiting {
                    key: None,
                    hash,
                    weight,
                    slot,
                    message,
                    gate: None,
                });
            }
        }
    }

    /// Whether it makes sense to [place](Self::place) again: there is room, or a gate has opened.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = Poll::Pending;
        if let Some(room) = &mut self.room
            && let Poll::Ready(granted) = room.poll_unpin(cx)
        {
            self.room = None;
            self.closed |= granted.is_none();
            self.granted = granted;
            ready = Poll::Ready(());
        }
        while let Poll::Ready((hash, permit)) = self.aside.poll_gate(cx) {
            self.pass_gate(hash, permit);
            ready = Poll::Ready(());
        }
        ready
    }

    /// A gate has let the first message of a key in, or is gone.
    fn pass_gate(&mut self, hash: u64, permit: Option<OwnedSemaphorePermit>) {
        if permit.is_some() {
            match self.aside.pop(hash) {
                Some(mut first) => {
                    first.gate = permit;
                    self.pass(first);
                }
                // It goes in when it has been read. If the queue is gone, so is the permit.
                None => return self.aside.let_in_later(hash, permit),
            }
        }
        if self.sequences {
            // Its lane may wait for the version of any of them.
            let dispatcher = &self.dispatcher;
            let awaited = |waiting: &Waiting<K, M>| {
                let gate = dispatcher.gate(waiting.key.as_ref(), hash, &waiting.message);
                gate.is_none()
            };
            for next in self.aside.extract_of(hash, awaited) {
                self.pass(next);
            }
        }
        // A gate goes when its lane is half empty.
        let capacity = self.dispatcher.engine.lane_capacity();
        self.pass_next(hash, (capacity / 2 / part(capacity)).max(1));
    }

    /// Passes as many messages of a key as the gate of their lane lets in, and has the others wait
    /// there. Without a gate, passes this many parts.
    fn pass_next(&mut self, hash: u64, parts: usize) {
        loop {
            let next = match self.aside.first(hash) {
                None => return,
                Some(First::Deferred) => return self.aside.let_in_later(hash, None),
                Some(First::Kept(next)) => next,
            };
            let gate = self.dispatcher.gate(next.key.as_ref(), hash, &next.message);
            let Some(gate) = gate.filter(|_| !self.dispatcher.is_closed()) else {
                if self.sequences {
                    // The version that the first of them waits for may be among the last; and each
                    // of them may have the lane wait.
                    let next = self.aside.pop(hash);
                    next.into_iter().for_each(|next| self.pass(next));
                    continue;
                }
                return self.pass_parts(hash, parts);
            };
            let Ok(permit) = gate.clone().try_acquire_owned() else {
                return self.aside.wait(hash, gate);
            };
            if let Some(mut next) = self.aside.pop(hash) {
                next.gate = Some(permit);
                self.pass(next);
            }
        }
    }

    /// Passes messages of a key, in parts, until so many parts are on their way. Each part has its
    /// first message as a leader: when that has settled, so has everything before it.
    fn pass_parts(&mut self, hash: u64, most: usize) {
        let part = part(self.dispatcher.engine.lane_capacity());
        while self.aside.leaders(hash) < most {
            let leader = self.aside.take_first(hash, part, &mut self.passed);
            match self.aside.first(hash) {
                None => return,
                Some(First::Deferred) => return self.aside.let_in_later(hash, None),
                Some(First::Kept(_)) => {}
            }
            // What has no slot went in with the others, so the part was full.
            if let Some(leader) = leader {
                self.aside.follow_later(hash, leader);
            }
        }
    }

    /// A message has settled: those that follow it may go in.
    #[inline]
    pub(super) fn settled(&mut self, slot: u32) {
        if let Some(hash) = self.aside.follower_of(slot) {
            // One part more than there surely is room for, so that a lane which keeps up is full
            // again and has a gate: there, the driver is told of every place.
            let capacity = self.dispatcher.engine.lane_capacity();
            self.pass_next(hash, capacity.div_ceil(part(capacity)).max(1));
        }
    }

    /// The slots of messages that are to be read again, of one key.
    pub(super) fn next_to_read(&mut self) -> Option<(u64, Vec<u32>)> {
        self.aside.next_hungry()
    }

    /// Takes messages that were read again. Returns the slots of those that are not what they were.
    ///
    /// # Panics
    ///
    /// As [`push`](Self::push).
    pub(super) fn take_read(&mut self, of: u64, read: Vec<(u32, M)>) -> Vec<u32> {
        let mut others = Vec::new();
        for (slot, message) in read {
            match self.dispatcher.locate(&message) {
                Some((key, hash, weight))
                    if lane_of(&self.dispatcher, self.lanes, key.as_ref(), hash) == of =>
                {
                    let waiting = Waiting {
                        key,
                        hash,
                        weight,
                        slot: Some(slot),
                        message,
                        gate: None,
                    };
                    self.aside.fill(of, waiting);
                }
                Some(_) | None => others.push(slot),
            }
        }
        self.let_in(of);
        others
    }

    /// Lets in what was let in before it could be read.
    fn let_in(&mut self, hash: u64) {
        if let Some(permit) = self.aside.take_let_in(hash) {
            self.pass_gate(hash, permit);
        }
    }

    /// In front of what came since, and behind what has passed before: others of its key may be
    /// among either.
    fn pass(&mut self, waiting: Waiting<K, M>) {
        self.passed.push_back(waiting);
    }

    /// Takes out the messages that are chosen and not in the lanes yet.
    pub(super) fn extract(&mut self, mut chosen: impl FnMut(Option<u32>) -> bool) -> Vec<u32> {
        let mut out = Vec::new();
        for queue in [&mut self.passed, &mut self.waiting] {
            for _ in 0..queue.len() {
                match queue.pop_front() {
                    Some(waiting) if chosen(waiting.slot) => out.push(waiting),
                    Some(waiting) => queue.push_back(waiting),
                    None => {}
                }
            }
        }
        let mut slots = Vec::new();
        for hash in self.aside.extract(chosen, &mut slots, &mut out) {
            self.let_in(hash);
        }
        slots.extend(out.iter().filter_map(|waiting| waiting.slot));
        dropped(out);
        slots
    }
}

/// The lane for which messages of a key wait aside, by its hash, among so many lanes where their
/// number may change. `hash` is that of the key.
#[inline]
fn lane_of<K, M, O, E>(
    dispatcher: &Dispatcher<K, M, O, E>,
    lanes: Option<usize>,
    key: Option<&K>,
    hash: u64,
) -> u64
where
    K: Clone + PartialEq,
{
    let places = dispatcher.engine.table.places.as_ref();
    match (lanes, places, key) {
        (Some(lanes), Some(places), Some(key)) => places.hash_among(key, lanes),
        _ => hash,
    }
}

/// How many lanes there are, where their number may change.
fn lanes_of<K, M, O, E>(dispatcher: &Dispatcher<K, M, O, E>) -> Option<usize> {
    let places = dispatcher.engine.table.places.as_ref()?;
    Some(places.layout().lanes())
}

/// How many messages of a hot key go in at once: an eighth of its lane. A runner may handle 512
/// messages before the driver hears of the first, and is not to find its lane empty then.
fn part(capacity: usize) -> usize {
    (capacity / 8).max(1)
}
