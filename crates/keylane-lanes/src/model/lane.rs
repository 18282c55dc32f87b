//! The lanes of a few keys against lists of messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use keylane_rt::clock::{self, Instant};
use proptest::prelude::*;

use crate::lane::{Lane, Next, Offered, Phase, Transition};
use crate::map::LaneMap;
use crate::rules::AtLimit;

type Key = u8;
type Id = u32;

/// All keys but the last share one hash, so that they meet in one slot of one shard.
const KEYS: Key = 3;
const LIMIT: usize = 3;

fn hash(key: Key) -> u64 {
    u64::from(key) / 2
}

/// What can happen to a lane that has no plan but its order.
const PLAIN: [Transition; 6] = [
    Transition::Offer,
    Transition::Suspend,
    Transition::Finish,
    Transition::BackOff,
    Transition::Due,
    Transition::HandBack,
];

/// Something that happens to the lane of a key, if it can.
#[derive(Clone, Copy, Debug)]
struct Step {
    key: Key,
    transition: Transition,
    at_limit: AtLimit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let transition = prop_oneof![
        6 => Just(Transition::Offer),
        12 => prop::sample::select(PLAIN.to_vec()),
    ];
    let at_limit = prop::sample::select(vec![AtLimit::Park, AtLimit::DropOldest, AtLimit::Refuse]);
    let step = (0..KEYS, transition, at_limit).prop_map(|(key, transition, at_limit)| Step {
        key,
        transition,
        at_limit,
    });
    prop::collection::vec(step, 0..120)
}

/// What a lane should be: its messages, head first, and where the head is.
#[derive(Debug)]
struct Naive {
    messages: VecDeque<Id>,
    phase: Phase,
    until: Option<Instant>,
}

/// The lanes, the lists they are compared with, and the heads that are out.
struct World {
    lanes: LaneMap<Key, Id, Id, ()>,
    naive: BTreeMap<Key, Naive>,
    /// The heads that are out of their lanes, with a runner or in the ready queue.
    out: BTreeMap<Key, Id>,
    /// First starts, in their order.
    started: BTreeMap<Key, Vec<Id>>,
    settled: BTreeSet<Id>,
    next: Id,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self {
            lanes: LaneMap::new(Some(2)),
            naive: BTreeMap::new(),
            out: BTreeMap::new(),
            started: BTreeMap::new(),
            settled: BTreeSet::new(),
            next: 0,
            now: clock::now(),
        }
    }

    fn step(&mut self, step: Step) {
        self.now += Duration::from_millis(1);
        let Step {
            key,
            transition,
            at_limit,
        } = step;
        let phase = self
            .naive
            .get(&key)
            .map_or(Phase::Absent, |naive| naive.phase);
        let parked = self
            .naive
            .get(&key)
            .is_some_and(|naive| naive.messages.len() > 1);
        let Some(after) = phase.after(transition, parked) else {
            return;
        };
        match transition {
            Transition::Offer => self.offer(key, at_limit),
            Transition::Suspend => self.with(key, |lane, now| lane.suspend(now, 1, 0)),
            Transition::Finish => self.finish(key),
            Transition::BackOff => {
                let head = self.out.remove(&key).expect("the head is out");
                let until = self.now + Duration::from_secs(u64::from(head));
                self.with(key, |lane, _| lane.back_off(Box::new(head), until));
                self.naive(key).until = Some(until);
            }
            Transition::Due => {
                let head = self.with(key, |lane, _| lane.due());
                self.go_out(key, *head);
            }
            Transition::HandBack => self.hand_back(key),
            _ => unreachable!("a plain lane has no plan"),
        }
        if let Some(naive) = self.naive.get_mut(&key) {
            naive.phase = after;
            if after != Phase::Backoff {
                naive.until = None;
            }
        }
    }

    fn offer(&mut self, key: Key, at_limit: AtLimit) {
        self.next += 1;
        let id = self.next;
        let spares = self.lanes.spares();
        let present = self.lanes.enter(hash(key), &key, |lane| {
            lane.park(id, LIMIT, at_limit, spares)
        });
        let naive = self.naive.entry(key).or_insert_with(|| Naive {
            messages: VecDeque::new(),
            phase: Phase::Ready,
            until: None,
        });
        let messages = &mut naive.messages;
        match present {
            None => {
                assert!(
                    messages.is_empty(),
                    "a lane was made although there was one"
                );
                messages.push_back(id);
                self.start(key, id);
            }
            Some(Offered::Parked) => {
                assert!(messages.len() < LIMIT || at_limit == AtLimit::Park);
                messages.push_back(id);
            }
            Some(Offered::Displaced(oldest)) => {
                assert!(messages.len() >= LIMIT && at_limit == AtLimit::DropOldest);
                assert_eq!(
                    messages.remove(1),
                    Some(oldest),
                    "the oldest behind the head"
                );
                messages.push_back(id);
                self.settle(oldest);
            }
            Some(Offered::Refused(refused)) => {
                assert!(messages.len() >= LIMIT && at_limit != AtLimit::Park);
                assert_eq!(refused, id);
                self.settle(refused);
            }
        }
    }

    fn finish(&mut self, key: Key) {
        let head = self.out.remove(&key).expect("the head is out");
        let advanced = self
            .lanes
            .advance(hash(key), &key, |lane| Some(((), lane.finish())));
        let ((), next) = advanced.expect("the lane is there");
        self.advance(key, head, next);
    }

    /// The head has settled.
    fn advance(&mut self, key: Key, head: Id, next: Option<Id>) {
        let messages = &mut self.naive(key).messages;
        assert_eq!(messages.pop_front(), Some(head));
        assert_eq!(messages.front().copied(), next);
        self.settle(head);
        match next {
            Some(next) => self.start(key, next),
            None => {
                self.naive.remove(&key);
            }
        }
    }

    /// As the end of a dispatcher does it, for one key.
    fn hand_back(&mut self, key: Key) {
        let mut swept = None;
        self.lanes.sweep(|other, _, lane| {
            if *other != key {
                return true;
            }
            let stays = lane.state().is_out();
            let (head, parked) = lane.hand_back();
            swept = Some((head, parked));
            stays
        });
        let (head, parked) = swept.expect("the lane is there");
        let messages = std::mem::take(&mut self.naive(key).messages);
        let out = self.out.get(&key).copied();
        assert!(head.is_none() || out.is_none(), "the head is here or out");
        let head = head.map(|head| *head);
        let all: VecDeque<_> = head.or(out).into_iter().chain(parked.clone()).collect();
        assert_eq!(all, messages, "all of them, in order");
        head.into_iter()
            .chain(parked)
            .for_each(|id| self.settle(id));
        match out {
            Some(out) => self.naive(key).messages.push_back(out),
            None => {
                self.naive.remove(&key);
            }
        }
    }

    fn start(&mut self, key: Key, id: Id) {
        let started = self.started.entry(key).or_default();
        assert!(
            started.last().is_none_or(|last| *last < id),
            "{id} was overtaken"
        );
        started.push(id);
        self.go_out(key, id);
    }

    /// A head goes out: no other one of this key is.
    fn go_out(&mut self, key: Key, id: Id) {
        let other = self.out.insert(key, id);
        assert_eq!(other, None, "two heads of one key");
        assert_eq!(self.naive(key).messages.front(), Some(&id));
    }

    fn settle(&mut self, id: Id) {
        assert!(self.settled.insert(id), "{id} settled twice");
    }

    fn naive(&mut self, key: Key) -> &mut Naive {
        self.naive
            .get_mut(&key)
            .expect("there are messages of this key")
    }

    fn with<R>(&self, key: Key, see: impl FnOnce(&mut Lane<Id, Id, ()>, Instant) -> R) -> R {
        let now = self.now;
        self.lanes
            .with(hash(key), &key, |lane| see(lane, now))
            .expect("the lane is there")
    }

    /// What is true after every step.
    fn check(&self) {
        assert_eq!(self.lanes.len(), self.naive.len());
        for key in 0..KEYS {
            let seen = self.lanes.peek(hash(key), &key, |lane| {
                let behind = lane.parked().oldest().copied();
                let head = lane.state().head().copied();
                let until = lane.state().backs_off_until();
                assert_eq!(lane.state().is_stalled(), head.is_some());
                (lane.state().phase(), lane.len(), head, behind, until)
            });
            let out = self.out.get(&key).copied();
            let should = self.naive.get(&key).map(|naive| {
                let messages = &naive.messages;
                let is_out = matches!(naive.phase, Phase::Ready | Phase::Running);
                assert_eq!(out.is_some(), is_out, "the head is out, or the lane has it");
                let head = messages.front().copied();
                let head = head.filter(|_| !is_out);
                let behind = messages.get(1).copied();
                (naive.phase, messages.len(), head, behind, naive.until)
            });
            assert_eq!(seen, should, "key {key}");
        }
        let held: usize = self.naive.values().map(|naive| naive.messages.len()).sum();
        assert_eq!(
            held + self.settled.len(),
            self.next as usize,
            "a message is lost"
        );
    }

    /// Everything comes to its end, and nothing is left.
    fn run_out(&mut self) {
        while let Some((key, phase)) = self.naive.iter().map(|(key, n)| (*key, n.phase)).next() {
            let transition = match phase {
                Phase::Absent => unreachable!("a key that is listed has messages"),
                Phase::Ready | Phase::Running => Transition::Finish,
                Phase::Backoff => Transition::Due,
                _ => unreachable!("a plain lane has no plan"),
            };
            let at_limit = AtLimit::Park;
            self.step(Step {
                key,
                transition,
                at_limit,
            });
            self.check();
        }
        assert_eq!(self.settled.len(), self.next as usize);
        assert_eq!(self.lanes.len(), 0);
    }
}

proptest! {
    #![proptest_config(testkit_cases::cases(1_000))]

    #[test]
    fn lanes_are_lists_of_messages(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        world.run_out();
    }
}

/// What a lane parks beyond its first chunk comes out as it went in.
#[test]
fn a_deep_lane_keeps_its_order() {
    let lanes: LaneMap<Key, Id, Id, ()> = LaneMap::new(Some(2));
    let spares = lanes.spares();
    for id in 0..1_000 {
        let present = lanes.enter(0, &0, |lane| {
            lane.park(id, usize::MAX, AtLimit::Park, spares)
        });
        assert_eq!(present.is_none(), id == 0);
    }
    for id in 1..1_000 {
        let advanced = lanes.advance(0, &0, |lane| Some(((), lane.finish())));
        assert_eq!(advanced, Some(((), Some(id))));
    }
    let advanced = lanes.advance(0, &0, |lane| match lane.finish() {
        Next::Remove => Some(((), Next::Remove)),
        Next::Stay => panic!("the lane stays"),
        Next::Start(id) => panic!("{id} is too many"),
    });
    assert_eq!(advanced, Some(((), None)));
    assert_eq!(lanes.len(), 0);
}
