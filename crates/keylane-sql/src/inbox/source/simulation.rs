//! Tests the lanes of a source against a small model of a database, by random steps.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use keylane_inbox::{NewMessage, StoredMessage};
use proptest::prelude::*;

use super::super::lane::LaneId;
use super::super::turn::{Answer, Brought, Claimed, Found, Leave, MessageRef, Place, RoundTrip};
use super::core::{Applied, Lanes, Limits};

const WORKER: u64 = 7;

fn named(sequence: u64) -> MessageRef {
    let nonce = sequence + 1_000;
    MessageRef { sequence, nonce }
}

#[derive(Clone, Debug)]
enum Step {
    /// Messages of these keys are accepted.
    Accept(Vec<u8>),
    /// A round trip begins, unless two are in progress.
    Begin,
    /// The database does the first or the last of the turns in progress, or the turn is lost on its
    /// way; then the turn is answered, or the answer is lost.
    Do(bool),
    Answer {
        first: bool,
        is_lost: bool,
    },
    /// The first message of a key is handled.
    Handle(u8),
    /// The messages of a key that are handed over come back.
    GiveBack(u8),
    /// The first message of a key becomes a letter; and waits again.
    Letter(u8),
    Redrive(u8),
    /// A producer locks a key before it commits, or commits.
    Lock(u8, bool),
    /// Time passes.
    Look,
    Rest,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0_u8..5;
    prop_oneof![
        3 => prop::collection::vec(key.clone(), 1..8).prop_map(Step::Accept),
        6 => Just(Step::Begin),
        6 => any::<bool>().prop_map(Step::Do),
        6 => (0_u8..10, any::<bool>()).prop_map(|(lost, first)| Step::Answer {
            is_lost: lost == 0,
            first,
        }),
        8 => key.clone().prop_map(Step::Handle),
        1 => key.clone().prop_map(Step::GiveBack),
        1 => key.clone().prop_map(Step::Letter),
        1 => key.clone().prop_map(Step::Redrive),
        1 => (key, any::<bool>()).prop_map(|(key, locks)| Step::Lock(key, locks)),
        1 => Just(Step::Look),
        1 => Just(Step::Rest),
    ]
}

fn id(key: u8) -> LaneId {
    LaneId::of(&[key])
}

#[derive(Debug, Default)]
struct Database {
    /// By key: its point, and when a letter was redriven.
    keys: HashMap<LaneId, (u64, u64)>,
    /// The token of each lane that is ours; 0: no worker has it.
    lanes: BTreeMap<LaneId, u64>,
    free_since: HashMap<LaneId, u64>,
    messages: BTreeMap<(LaneId, u64), u32>,
    /// The sizes of payloads that do not have ten bytes.
    sizes: HashMap<u64, u64>,
    locked: HashSet<LaneId>,
    clock: u64,
    sequence: u64,
}

impl Database {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn accept(&mut self, lane: LaneId) {
        let now = self.tick();
        self.keys.entry(lane).or_default().0 = now;
        self.sequence += 1;
        self.messages.insert((lane, self.sequence), 0);
        self.free(lane);
    }

    /// Adds a lane as free, if it is new. Some lanes were committed late.
    fn free(&mut self, lane: LaneId) {
        if let Entry::Vacant(new) = self.lanes.entry(lane) {
            new.insert(0);
            let late = self.sequence % 3 * 10;
            self.free_since
                .insert(lane, self.clock.saturating_sub(late));
        }
    }

    fn redrive(&mut self, lane: LaneId, sequence: u64) {
        let now = self.tick();
        self.keys.insert(lane, (now, now));
        self.messages.insert((lane, sequence), 0);
        self.free(lane);
    }

    fn turn(&mut self, turn: &RoundTrip) -> Answer {
        let mut answer = Answer::default();
        let is_ours = |lanes: &BTreeMap<LaneId, u64>, claimed: &Claimed| {
            lanes.get(&claimed.lane) == Some(&claimed.token)
        };
        // All reads see the state before.
        let (messages, keys) = (self.messages.clone(), self.keys.clone());
        for claimed in turn.said() {
            assert!(is_ours(&self.lanes, &claimed), "{claimed:?} is not ours");
        }
        let mut drained = Vec::new();
        for Leave { claimed, last, .. } in &turn.leave {
            let lane = claimed.lane;
            if self.keys[&lane].0 == *last && !self.locked.contains(&lane) {
                self.lanes.remove(&lane);
                self.keys.remove(&lane);
                drained.push(lane);
            } else {
                answer.stayed.push(lane);
            }
        }
        for (claimed, name) in &turn.done {
            assert_eq!(*name, named(name.sequence));
            self.messages.remove(&(claimed.lane, name.sequence));
        }
        for (claimed, name, attempts) in &turn.attempts {
            if let Some(noted) = self.messages.get_mut(&(claimed.lane, name.sequence)) {
                *noted = *attempts;
            }
        }
        for lane in &drained {
            let left = self.messages.keys().filter(|(of, _)| of == lane).count();
            assert_eq!(left, 0, "a lane went with {left} messages in it");
        }
        let mut wanted: Vec<(Claimed, u64, u32)> = (turn.fetch.iter())
            .map(|fetch| (fetch.claimed, fetch.after, fetch.count))
            .collect();
        let free = self.lanes.iter().filter(|(_, token)| **token == 0);
        let mut free: Vec<(u64, LaneId)> = free
            .map(|(lane, _)| (self.free_since[lane], *lane))
            .filter(|(since, _)| *since as f64 >= turn.since)
            .collect();
        free.sort();
        for (since, lane) in free.into_iter().take(turn.claim as usize) {
            let token = self.tick();
            self.lanes.insert(lane, token);
            wanted.push((Claimed { lane, token }, 0, turn.window));
            answer.free_since = Some(since as f64);
        }
        let mut bytes = 0;
        for (claimed, after, count) in wanted {
            assert!(is_ours(&self.lanes, &claimed), "{claimed:?} is not ours");
            let (last, redriven) = keys[&claimed.lane];
            let waiting = messages.range((claimed.lane, after + 1)..=(claimed.lane, u64::MAX));
            let waiting = waiting.take(count as usize);
            answer.lanes.push(Found {
                claimed,
                last,
                redriven,
                crashes: 0,
                place: Place::default(),
                messages: waiting.clone().count() as u32,
            });
            let mut is_cut = false;
            for ((lane, sequence), attempts) in waiting {
                let size = self.sizes.get(sequence).copied().unwrap_or(10);
                let is_too_much = match turn.sums {
                    true => bytes > 0 && bytes >= turn.bytes,
                    false => turn.bytes / (turn.asked() as u64) < size,
                };
                is_cut |= is_too_much;
                if is_cut {
                    answer.left_out.push(*lane);
                    continue;
                }
                let message = NewMessage::new("", vec![0; size as usize]);
                bytes += size;
                answer.messages.push(Brought {
                    lane: *lane,
                    nonce: named(*sequence).nonce,
                    attempts: *attempts,
                    message: StoredMessage::new(*sequence, std::time::UNIX_EPOCH, message),
                });
            }
        }
        answer
    }

    fn lanes_of(&self) -> Vec<Found> {
        let ours = self.lanes.iter().filter(|(_, token)| **token > 0);
        let found = ours.map(|(lane, token)| Found {
            claimed: Claimed {
                lane: *lane,
                token: *token,
            },
            last: self.keys[lane].0,
            redriven: self.keys[lane].1,
            crashes: 0,
            messages: 0,
            place: Place::default(),
        });
        found.collect()
    }
}

/// A source and the messages that it has handed over.
struct World {
    database: Database,
    lanes: Lanes,
    /// The messages by lane, in the order in which they were handed over. The first one runs.
    handed: HashMap<LaneId, VecDeque<u64>>,
    letters: HashMap<LaneId, Vec<u64>>,
    handled: HashSet<u64>,
    redriven: HashSet<u64>,
    /// How often messages started, as reported.
    attempts: HashMap<u64, u32>,
    /// Turns, and the answers of the database.
    calls: VecDeque<(RoundTrip, Option<Answer>)>,
    is_uncertain: bool,
}

impl World {
    fn new(limits: Limits) -> Self {
        Self {
            database: Database::default(),
            lanes: Lanes::new(limits),
            handed: HashMap::new(),
            letters: HashMap::new(),
            handled: HashSet::new(),
            redriven: HashSet::new(),
            attempts: HashMap::new(),
            calls: VecDeque::new(),
            is_uncertain: false,
        }
    }

    fn step(&mut self, step: &Step) {
        self.lanes.assert_sound();
        match step {
            Step::Accept(keys) => {
                for lane in keys.iter().map(|key| id(*key)) {
                    if !self.database.locked.contains(&lane) {
                        self.database.accept(lane);
                    }
                }
            }
            Step::Begin => self.begin(),
            Step::Do(first) => self.carry_out(*first),
            Step::Answer { first, is_lost } => self.answer(*first, *is_lost),
            Step::Handle(key) => self.handle(id(*key)),
            Step::GiveBack(key) => self.give_back(id(*key)),
            Step::Letter(key) => self.letter(id(*key)),
            Step::Redrive(key) => self.redrive(id(*key)),
            Step::Lock(key, true) => drop(self.database.locked.insert(id(*key))),
            Step::Lock(key, false) => drop(self.database.locked.remove(&id(*key))),
            Step::Look => {
                self.lanes.look();
                self.lanes.check();
            }
            Step::Rest => self.lanes.wake_resting(),
        }
    }

    fn begin(&mut self) {
        if self.is_uncertain {
            if self.calls.is_empty() {
                self.is_uncertain = false;
                let found = self.database.lanes_of();
                assert!(self.lanes.adopt(&found), "nothing was taken from us");
            }
        } else if self.calls.len() < 2 {
            let out: usize = self.handed.values().map(VecDeque::len).sum();
            let turn = self.lanes.turn(WORKER, 20_usize.saturating_sub(out));
            self.calls.push_back((turn, None));
        }
    }

    /// Runs a turn to its answer while no other is in progress.
    fn round_trip(&mut self) {
        self.begin();
        self.carry_out(true);
        self.answer(true, false);
    }

    fn call(&mut self, first: bool) -> Option<&mut (RoundTrip, Option<Answer>)> {
        match first {
            true => self.calls.front_mut(),
            false => self.calls.back_mut(),
        }
    }

    fn carry_out(&mut self, first: bool) {
        if let Some((turn, None)) = self.call(first) {
            let turn = turn.clone();
            let answer = self.database.turn(&turn);
            self.call(first).expect("it is under way").1 = Some(answer);
        }
    }

    fn answer(&mut self, first: bool, is_lost: bool) {
        match self.call(first) {
            None => return,
            // It is never carried out.
            Some((_, None)) if !is_lost => return,
            Some(_) => {}
        }
        let call = match first {
            true => self.calls.pop_front(),
            false => self.calls.pop_back(),
        };
        let (turn, answer) = call.expect("it is under way");
        match answer.filter(|_| !is_lost) {
            None => {
                self.lanes.take_back(turn);
                self.is_uncertain = true;
            }
            Some(answer) => {
                let applied = self.lanes.apply(&turn, answer);
                self.apply(applied);
            }
        }
    }

    fn apply(&mut self, applied: Applied) {
        assert!(!applied.is_lost, "nothing was taken from us");
        for ready in applied.ready {
            let sequence = ready.message.sequence;
            assert!(!self.handled.contains(&sequence), "{sequence} was done");
            let handed = self.handed.entry(ready.claimed.lane).or_default();
            assert!(!handed.contains(&sequence), "{sequence} is out");
            let attempts = self.attempts.get(&sequence).copied().unwrap_or(0);
            assert_eq!(ready.attempts, attempts, "attempts of {sequence}");
            handed.push_back(sequence);
        }
        // A message that has not started comes back; a running one goes on.
        for (lane, name) in applied.recalled {
            let sequence = name.sequence;
            let handed = self.handed.entry(lane).or_default();
            if handed.front() != Some(&sequence) {
                handed.retain(|other| *other != sequence);
                self.lanes.give_back(lane, named(sequence), 0);
            }
        }
    }

    fn take(&mut self, lane: LaneId) -> Option<u64> {
        let sequence = self.handed.get_mut(&lane)?.pop_front()?;
        let waits = self.database.messages.range((lane, 0)..(lane, sequence));
        let earlier: Vec<u64> = waits.map(|((_, earlier), _)| *earlier).collect();
        // A done-mark may not be reported yet; a redriven letter may have come after this message
        // went out.
        let passed = (earlier.iter())
            .filter(|earlier| !self.handled.contains(earlier) && !self.redriven.contains(earlier));
        assert_eq!(
            passed.count(),
            0,
            "{sequence} has passed one of {earlier:?}"
        );
        Some(sequence)
    }

    fn handle(&mut self, lane: LaneId) {
        if let Some(sequence) = self.take(lane) {
            self.handled.insert(sequence);
            self.lanes.settle(lane, named(sequence), false);
        }
    }

    fn give_back(&mut self, lane: LaneId) {
        for sequence in self.handed.remove(&lane).unwrap_or_default() {
            let attempts = self.attempts.entry(sequence).or_default();
            *attempts += 1;
            self.lanes.give_back(lane, named(sequence), *attempts);
        }
    }

    fn letter(&mut self, lane: LaneId) {
        if let Some(sequence) = self.take(lane) {
            self.database.messages.remove(&(lane, sequence));
            self.letters.entry(lane).or_default().push(sequence);
            self.lanes.settle(lane, named(sequence), true);
        }
    }

    fn redrive(&mut self, lane: LaneId) {
        if !self.database.locked.contains(&lane)
            && let Some(sequence) = self.letters.get_mut(&lane).and_then(Vec::pop)
        {
            self.database.redrive(lane, sequence);
            self.redriven.insert(sequence);
            self.attempts.remove(&sequence);
        }
    }

    /// Handles everything, and checks that nothing remains.
    fn finish(&mut self) {
        self.database.locked.clear();
        for _ in 0..500 {
            let nothing_waits = self.database.messages.is_empty() && self.database.lanes.is_empty();
            if nothing_waits && self.calls.is_empty() && !self.is_uncertain {
                assert!(self.lanes.is_told(), "and told");
                return;
            }
            if self.calls.is_empty() {
                self.lanes.look();
                self.begin();
            }
            self.carry_out(true);
            self.answer(true, false);
            for key in 0..5 {
                while self
                    .handed
                    .get(&id(key))
                    .is_some_and(|handed| !handed.is_empty())
                {
                    self.handle(id(key));
                }
            }
        }
        panic!(
            "it does not come to an end: {:?}, {:?}",
            self.database, self.lanes
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(6_000)))]

    #[test]
    fn all_messages_are_handled_in_order(
        steps in prop::collection::vec(step(), 1..120),
        (keys, window, bytes) in (1_usize..6, 1_usize..6, prop_oneof![Just(25_usize), Just(1_000)]),
    ) {
        let mut world = World::new(Limits { keys, window, bytes, exact_starts: true });
        for step in &steps {
            world.step(step);
        }
        world.finish();
    }
}

const LIMITS: Limits = Limits {
    keys: 8,
    window: 4,
    bytes: 1_000,
    exact_starts: true,
};

fn roomy() -> World {
    World::new(LIMITS)
}

/// A lane is left, the answer is lost, and another turn claims it anew: the lane is in the queue
/// once.
#[test]
fn a_lane_that_is_claimed_anew_is_queued_once() {
    let mut world = roomy();
    world.database.accept(id(0));
    world.round_trip();
    world.handle(id(0));
    // It is left, and another turn claims it anew.
    world.begin();
    world.carry_out(true);
    for _ in 0..8 {
        world.database.accept(id(0));
    }
    world.lanes.look();
    world.begin();
    world.carry_out(false);
    world.answer(true, true);
    world.answer(true, false);
    world.begin();
    world.lanes.assert_sound();
    world.finish();
}

/// A message that is announced during a turn that has not seen it is claimed at once.
#[test]
fn what_is_told_during_a_turn_is_claimed() {
    let mut world = roomy();
    world.begin();
    world.carry_out(true);
    world.database.accept(id(0));
    world.lanes.look();
    world.answer(true, false);
    assert!(world.lanes.turn(WORKER, 20).claim > 0);
}

/// A turn in progress reports the done messages of a lane: no other turn leaves the lane beside it,
/// because the database may do that turn first.
#[test]
fn a_lane_is_left_when_all_of_it_is_told() {
    let mut world = roomy();
    world.database.accept(id(0));
    world.database.accept(id(0));
    world.round_trip();
    world.handle(id(0));
    world.begin();
    world.handle(id(0));
    world.begin();
    world.carry_out(false);
    world.carry_out(true);
    world.finish();
}

/// A message that is larger than its share has its turn although there are others.
#[test]
fn a_large_message_has_its_turn() {
    let mut world = World::new(Limits {
        keys: 200,
        window: 1,
        ..LIMITS
    });
    for _ in 0..40 {
        (0..100).for_each(|key| world.database.accept(id(key)));
    }
    world.database.accept(id(200));
    let large = world.database.sequence;
    world.database.sizes.insert(large, 900);
    for _ in 0..1_500 {
        let turn = world.lanes.turn(WORKER, 1);
        let answer = world.database.turn(&turn);
        let applied = world.lanes.apply(&turn, answer);
        world.apply(applied);
        if world.handed.contains_key(&id(200)) {
            return;
        }
        (0..100).for_each(|key| world.handle(id(key)));
    }
    panic!("it was not handed over");
}

/// Only a claim that looks at all free lanes can be the last one.
#[test]
fn all_free_lanes_are_looked_at() {
    let mut world = World::new(Limits {
        keys: 2,
        window: 1,
        ..LIMITS
    });
    for key in 0..3 {
        world.database.accept(id(key));
    }
    // One was committed late, and is in front of those that are claimed.
    world.database.free_since = HashMap::from([(id(0), 5), (id(1), 5), (id(2), 1)]);
    world.database.lanes.remove(&id(2));
    world.round_trip();
    world.database.lanes.insert(id(2), 0);
    for key in 0..2 {
        world.handle(id(key));
    }
    for _ in 0..5 {
        world.round_trip();
    }
    assert_eq!(world.handed[&id(2)].len(), 1);
}

/// A lane is left, and claimed anew by a turn whose answer comes first: it is ours under the new
/// token.
#[test]
fn a_lane_that_is_claimed_anew_has_another_token() {
    let mut world = roomy();
    world.database.accept(id(0));
    world.round_trip();
    world.handle(id(0));
    world.begin();
    world.carry_out(true);
    world.database.accept(id(0));
    world.lanes.look();
    world.begin();
    world.carry_out(false);
    world.answer(false, false);
    world.answer(true, false);
    assert_eq!(world.handed[&id(0)].len(), 1);
    world.handle(id(0));
    world.finish();
}

/// A lane of ours has more messages than there is room for: a new lane is claimed all the same.
#[test]
fn a_lane_does_not_wait_for_all_that_is_in_others() {
    let mut world = World::new(Limits {
        window: 64,
        ..LIMITS
    });
    (0..1_000).for_each(|_| world.database.accept(id(0)));
    world.round_trip();
    world.round_trip();
    world.database.accept(id(1));
    world.lanes.look();
    for _ in 0..20 {
        world.handle(id(0));
        world.round_trip();
        if world.handed.contains_key(&id(1)) {
            return;
        }
    }
    panic!("it waits for what is in the other one");
}
