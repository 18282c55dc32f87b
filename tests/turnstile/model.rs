//! The turnstile against a naive one, after each step.

use std::collections::BTreeSet;
use std::task::Poll;

use keylane::{EnterError, Place, Reserve, Room, TryEnterError, Turn};
use proptest::prelude::*;

use crate::naive::Naive;
use crate::rig::{Gates, assert_idle, gates, poll};

/// One thing that is done. What exists is named by its place among those that exist.
#[derive(Clone, Debug)]
enum Step {
    /// `None` is a place without a key.
    TryEnter(Option<u64>),
    Reserve,
    PollReserve(usize),
    DropReserve(usize),
    Enter(usize, Option<u64>),
    DropRoom(usize),
    Poll(usize),
    TryTurn(usize),
    Drop(usize),
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || prop_oneof![8 => (0..4_u64).prop_map(Some), 1 => Just(None)];
    let which = any::<usize>;
    let step = prop_oneof![
        8 => key().prop_map(Step::TryEnter),
        4 => Just(Step::Reserve),
        4 => which().prop_map(Step::PollReserve),
        2 => which().prop_map(Step::DropReserve),
        4 => (which(), key()).prop_map(|(room, key)| Step::Enter(room, key)),
        1 => which().prop_map(Step::DropRoom),
        3 => which().prop_map(Step::Poll),
        2 => which().prop_map(Step::TryTurn),
        7 => which().prop_map(Step::Drop),
    ];
    let steps = proptest::collection::vec(step, 0..150);
    (steps, proptest::option::of(0..150_usize)).prop_map(|(mut steps, close)| {
        if let Some(at) = close.filter(|at| *at <= steps.len()) {
            steps.insert(at, Step::Close);
        }
        steps
    })
}

enum There {
    Place(Place<u64>),
    Turn(Turn<u64>),
}

struct Real {
    gates: Gates,
    there: Vec<(usize, There)>,
    reserves: Vec<(usize, Reserve<u64>)>,
    rooms: Vec<Room<u64>>,
    next: usize,
}

fn pick(which: usize, count: usize) -> Option<usize> {
    (count > 0).then(|| which % count)
}

impl Real {
    fn entered(&mut self, naive: &mut Naive, key: Option<u64>, place: Place<u64>) {
        assert_eq!(place.key(), key.as_ref());
        naive.enter(self.next, key);
        self.there.push((self.next, There::Place(place)));
        self.next += 1;
    }

    fn enter(&mut self, naive: &mut Naive, room: Room<u64>, key: Option<u64>) {
        let entered = match key {
            Some(key) => room.enter(key),
            None => room
                .enter_keyless()
                .map_err(|_| EnterError::Closed(u64::MAX)),
        };
        match entered {
            Ok(place) => {
                assert!(!naive.closed);
                assert!(key.is_none_or(|key| !naive.is_full(key)));
                self.entered(naive, key, place);
            }
            Err(EnterError::LaneFull(back)) => {
                assert!(key == Some(back) && naive.is_full(back));
                naive.settle();
            }
            Err(_) => assert!(naive.closed),
        }
    }

    fn step(&mut self, naive: &mut Naive, step: Step) {
        match step {
            Step::TryEnter(Some(key)) => match self.gates.try_enter(key) {
                Ok(place) => {
                    assert!(naive.has_room() && !naive.is_full(key) && !naive.closed);
                    self.entered(naive, Some(key), place);
                }
                Err(TryEnterError::Full(back)) => assert!(back == key && !naive.has_room()),
                Err(TryEnterError::LaneFull(back)) => assert!(back == key && naive.is_full(key)),
                Err(error) => assert!(error.into_inner() == key && naive.closed),
            },
            Step::TryEnter(None) => match self.gates.try_reserve() {
                Some(room) => {
                    assert!(naive.has_room());
                    self.enter(naive, room, None);
                }
                None => assert!(!naive.has_room() || naive.closed),
            },
            Step::Reserve => {
                let mut reserve = self.gates.reserve();
                match poll(&mut reserve) {
                    Poll::Ready(Ok(room)) => {
                        assert!(naive.has_room() && !naive.closed);
                        naive.rooms += 1;
                        self.rooms.push(room);
                    }
                    Poll::Ready(Err(_)) => assert!(naive.closed),
                    Poll::Pending => {
                        assert!(!naive.has_room());
                        naive.waits.push_back((self.next, false));
                        self.reserves.push((self.next, reserve));
                        self.next += 1;
                    }
                }
            }
            Step::PollReserve(which) => {
                let Some(at) = pick(which, self.reserves.len()) else {
                    return;
                };
                let number = self.reserves[at].0;
                let known = naive.waits.iter().position(|wait| wait.0 == number);
                let polled = poll(&mut self.reserves[at].1);
                match (polled, known.map(|known| naive.waits[known].1)) {
                    (Poll::Pending, Some(false)) => return,
                    (Poll::Ready(Ok(room)), Some(true)) => {
                        naive.waits.remove(known.unwrap());
                        naive.rooms += 1;
                        self.rooms.push(room);
                    }
                    (Poll::Ready(Err(_)), None) => {}
                    (polled, known) => panic!("{polled:?}, and it is {known:?}"),
                }
                drop(self.reserves.remove(at));
            }
            Step::DropReserve(which) => {
                if let Some(at) = pick(which, self.reserves.len()) {
                    let (number, reserve) = self.reserves.remove(at);
                    drop(reserve);
                    naive.waits.retain(|wait| wait.0 != number);
                    naive.settle();
                }
            }
            Step::Enter(which, key) => {
                if let Some(at) = pick(which, self.rooms.len()) {
                    let room = self.rooms.remove(at);
                    naive.rooms -= 1;
                    self.enter(naive, room, key);
                    naive.settle();
                }
            }
            Step::DropRoom(which) => {
                if let Some(at) = pick(which, self.rooms.len()) {
                    drop(self.rooms.remove(at));
                    naive.rooms -= 1;
                    naive.settle();
                }
            }
            Step::Poll(which) => self.poll_one(naive, which),
            Step::TryTurn(which) => {
                let Some(at) = pick(which, self.there.len()) else {
                    return;
                };
                let (number, there) = self.there.remove(at);
                let there = match there {
                    There::Turn(turn) => There::Turn(turn),
                    There::Place(place) => match place.try_turn() {
                        Ok(turn) => {
                            assert!(naive.turns.contains(&number));
                            There::Turn(turn)
                        }
                        Err(place) => {
                            assert!(!naive.turns.contains(&number));
                            There::Place(place)
                        }
                    },
                };
                self.there.push((number, there));
            }
            Step::Drop(which) => {
                if let Some(at) = pick(which, self.there.len()) {
                    let (number, there) = self.there.remove(at);
                    drop(there);
                    self.left(naive, number);
                }
            }
            Step::Close => {
                self.gates.close();
                naive.close();
            }
        }
    }

    fn left(&self, naive: &mut Naive, number: usize) {
        if naive.home.contains(&number) {
            // It is in no lane any more.
            naive.keys.insert(number, None);
        }
        naive.leave(number);
    }

    fn poll_one(&mut self, naive: &mut Naive, which: usize) {
        let Some(at) = pick(which, self.there.len()) else {
            return;
        };
        let (number, There::Place(place)) = &mut self.there[at] else {
            return;
        };
        let number = *number;
        match poll(place) {
            Poll::Pending => {
                assert!(!naive.turns.contains(&number) && !naive.home.contains(&number));
            }
            Poll::Ready(Ok(turn)) => {
                assert!(naive.turns.contains(&number));
                self.there[at].1 = There::Turn(turn);
            }
            Poll::Ready(Err(_)) => {
                assert!(naive.home.contains(&number));
                drop(self.there.remove(at));
                self.left(naive, number);
            }
        }
    }

    /// All that can be seen without changing anything.
    fn compare(&self, naive: &Naive) {
        assert_eq!(self.gates.places(), naive.used());
        assert!(naive.used() <= naive.capacity && naive.turns.len() <= naive.concurrency);
        assert_eq!(
            self.gates.turns().unwrap_or(naive.turns.len()),
            naive.turns.len()
        );
        if !naive.closed {
            assert_eq!(self.gates.lanes(), naive.lanes.len());
        }
        let mut busy = BTreeSet::new();
        for (number, there) in &self.there {
            let has_turn = match there {
                There::Turn(_) => true,
                There::Place(place) => format!("{place:?}").contains("waits: false"),
            };
            assert_eq!(has_turn, naive.turns.contains(number), "{number}");
            if let Some(key) = naive.keys[number].filter(|_| has_turn) {
                assert!(busy.insert(key), "two have the turn of {key}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_turnstile_is_its_naive_model(
        capacity in 1..12_usize,
        concurrency in 1..6_usize,
        lane_capacity in 1..8_usize,
        steps in steps(),
    ) {
        let mut naive = Naive::new(capacity, concurrency, lane_capacity);
        let mut real = Real {
            gates: gates(capacity, concurrency, lane_capacity),
            there: Vec::new(),
            reserves: Vec::new(),
            rooms: Vec::new(),
            next: 0,
        };
        for step in steps {
            real.step(&mut naive, step);
            real.compare(&naive);
        }
        let Real { gates, there, reserves, rooms, .. } = real;
        drop((rooms, reserves));
        // Those who are left have their turns in the end, or were sent home.
        let mut there = there;
        while !there.is_empty() {
            let before = there.len();
            there.retain_mut(|(_, there)| match there {
                There::Turn(_) => false,
                There::Place(place) => poll(place).is_pending(),
            });
            prop_assert!(there.len() < before, "nobody goes on");
        }
        assert_idle(&gates);
    }
}
