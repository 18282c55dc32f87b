//! The keyed semaphore against a naive one, after each step.

use std::collections::BTreeSet;
use std::task::Poll;

use keylane_semaphore::{
    Acquire, AcquireError, KeyedPermit, Reservation, Reserve, TryAcquireError, TryReserveError,
};
use proptest::prelude::*;

use crate::naive::Naive;
use crate::support::{Semaphore, assert_idle, poll, semaphore};

/// One call. What exists is named by its position among what exists of its kind.
#[derive(Clone, Debug)]
enum Step {
    /// Reserves and acquires at once. `None` is a waiter without a key.
    AcquireNow(Option<u64>),
    TryAcquire(u64),
    Reserve,
    PollReserve(usize),
    DropReserve(usize),
    Acquire(usize, Option<u64>),
    DropReservation(usize),
    Poll(usize),
    TryIntoPermit(usize),
    Drop(usize),
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || prop_oneof![8 => (0..4_u64).prop_map(Some), 1 => Just(None)];
    let which = any::<usize>;
    let step = prop_oneof![
        8 => key().prop_map(Step::AcquireNow),
        3 => (0..4_u64).prop_map(Step::TryAcquire),
        4 => Just(Step::Reserve),
        4 => which().prop_map(Step::PollReserve),
        2 => which().prop_map(Step::DropReserve),
        4 => (which(), key()).prop_map(|(reservation, key)| Step::Acquire(reservation, key)),
        1 => which().prop_map(Step::DropReservation),
        3 => which().prop_map(Step::Poll),
        2 => which().prop_map(Step::TryIntoPermit),
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

enum Held {
    Acquire(Acquire<u64>),
    Permit(KeyedPermit<u64>),
}

struct Real {
    semaphore: Semaphore,
    held: Vec<(usize, Held)>,
    reserves: Vec<(usize, Reserve<u64>)>,
    reservations: Vec<Reservation<u64>>,
    next: usize,
}

fn pick(which: usize, count: usize) -> Option<usize> {
    (count > 0).then(|| which % count)
}

impl Real {
    fn acquired(&mut self, naive: &mut Naive, key: Option<u64>, held: Held) {
        naive.acquire(self.next, key);
        self.held.push((self.next, held));
        self.next += 1;
    }

    fn acquire(&mut self, naive: &mut Naive, reservation: Reservation<u64>, key: Option<u64>) {
        let acquired = match key {
            Some(key) => reservation.acquire(key),
            None => reservation
                .acquire_keyless()
                .map_err(|_| AcquireError::Closed(u64::MAX)),
        };
        match acquired {
            Ok(waiter) => {
                assert!(!naive.closed);
                assert!(key.is_none_or(|key| !naive.is_full(key)));
                assert_eq!(waiter.key(), key.as_ref());
                self.acquired(naive, key, Held::Acquire(waiter));
            }
            Err(AcquireError::LaneFull(back)) => {
                assert!(key == Some(back) && naive.is_full(back));
                naive.settle();
            }
            Err(_) => assert!(naive.closed),
        }
    }

    fn step(&mut self, naive: &mut Naive, step: Step) {
        match step {
            Step::AcquireNow(key) => match self.semaphore.try_reserve() {
                Ok(reservation) => {
                    assert!(naive.has_capacity() && !naive.closed);
                    self.acquire(naive, reservation, key);
                }
                Err(TryReserveError::Full) => assert!(!naive.has_capacity() && !naive.closed),
                Err(_) => assert!(naive.closed),
            },
            Step::TryAcquire(key) => match self.semaphore.try_acquire(key) {
                Ok(permit) => {
                    assert!(naive.is_free(key) && !naive.closed);
                    assert_eq!(permit.key(), Some(&key));
                    self.acquired(naive, Some(key), Held::Permit(permit));
                }
                Err(TryAcquireError::NoPermits(back)) => {
                    assert!(back == key && !naive.is_free(key) && !naive.closed);
                }
                Err(error) => assert!(error.into_inner() == key && naive.closed),
            },
            Step::Reserve => {
                let mut reserve = self.semaphore.reserve();
                match poll(&mut reserve) {
                    Poll::Ready(Ok(reservation)) => {
                        assert!(naive.has_capacity() && !naive.closed);
                        naive.reservations += 1;
                        self.reservations.push(reservation);
                    }
                    Poll::Ready(Err(_)) => assert!(naive.closed),
                    Poll::Pending => {
                        assert!(!naive.has_capacity());
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
                    (Poll::Ready(Ok(reservation)), Some(true)) => {
                        naive.waits.remove(known.unwrap());
                        naive.reservations += 1;
                        self.reservations.push(reservation);
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
            Step::Acquire(which, key) => {
                if let Some(at) = pick(which, self.reservations.len()) {
                    let reservation = self.reservations.remove(at);
                    naive.reservations -= 1;
                    self.acquire(naive, reservation, key);
                    naive.settle();
                }
            }
            Step::DropReservation(which) => {
                if let Some(at) = pick(which, self.reservations.len()) {
                    drop(self.reservations.remove(at));
                    naive.reservations -= 1;
                    naive.settle();
                }
            }
            Step::Poll(which) => self.poll_one(naive, which),
            Step::TryIntoPermit(which) => {
                let Some(at) = pick(which, self.held.len()) else {
                    return;
                };
                let (number, held) = self.held.remove(at);
                let held = match held {
                    Held::Permit(permit) => Held::Permit(permit),
                    Held::Acquire(waiter) => match waiter.try_into_permit() {
                        Ok(permit) => {
                            assert!(naive.permits.contains(&number));
                            Held::Permit(permit)
                        }
                        Err(waiter) => {
                            assert!(!naive.permits.contains(&number));
                            Held::Acquire(waiter)
                        }
                    },
                };
                self.held.push((number, held));
            }
            Step::Drop(which) => {
                if let Some(at) = pick(which, self.held.len()) {
                    let (number, held) = self.held.remove(at);
                    drop(held);
                    self.left(naive, number);
                }
            }
            Step::Close => {
                self.semaphore.close();
                naive.close();
            }
        }
    }

    fn left(&self, naive: &mut Naive, number: usize) {
        if naive.failed.contains(&number) {
            // The close has taken it out of its lane.
            naive.keys.insert(number, None);
        }
        naive.leave(number);
    }

    fn poll_one(&mut self, naive: &mut Naive, which: usize) {
        let Some(at) = pick(which, self.held.len()) else {
            return;
        };
        let (number, Held::Acquire(waiter)) = &mut self.held[at] else {
            return;
        };
        let number = *number;
        match poll(waiter) {
            Poll::Pending => {
                assert!(!naive.permits.contains(&number) && !naive.failed.contains(&number));
            }
            Poll::Ready(Ok(permit)) => {
                assert!(naive.permits.contains(&number));
                self.held[at].1 = Held::Permit(permit);
            }
            Poll::Ready(Err(_)) => {
                assert!(naive.failed.contains(&number));
                drop(self.held.remove(at));
                self.left(naive, number);
            }
        }
    }

    /// Compares all that can be observed without a change.
    fn compare(&self, naive: &Naive) {
        assert_eq!(self.semaphore.len(), naive.used());
        assert!(naive.used() <= naive.capacity && naive.permits.len() <= naive.concurrency);
        assert_eq!(
            self.semaphore
                .permits_in_use()
                .unwrap_or(naive.permits.len()),
            naive.permits.len()
        );
        if !naive.closed {
            assert_eq!(self.semaphore.lanes(), naive.lanes.len());
        }
        let mut busy = BTreeSet::new();
        for (number, held) in &self.held {
            let has_turn = match held {
                Held::Permit(_) => true,
                Held::Acquire(waiter) => format!("{waiter:?}").contains("granted: true"),
            };
            assert_eq!(has_turn, naive.permits.contains(number), "{number}");
            if let Some(key) = naive.keys[number].filter(|_| has_turn) {
                assert!(busy.insert(key), "two have the permit of {key}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: keylane_testkit::scenario::cases(400), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_semaphore_is_its_naive_model(
        capacity in 1..12_usize,
        concurrency in 1..6_usize,
        lane_capacity in 1..8_usize,
        steps in steps(),
    ) {
        let mut naive = Naive::new(capacity, concurrency, lane_capacity);
        let mut real = Real {
            semaphore: semaphore(capacity, concurrency, lane_capacity),
            held: Vec::new(),
            reserves: Vec::new(),
            reservations: Vec::new(),
            next: 0,
        };
        for step in steps {
            real.step(&mut naive, step);
            real.compare(&naive);
        }
        let Real { semaphore, held, reserves, reservations, .. } = real;
        drop((reservations, reserves));
        // All waiters that are left get their permits in the end, or have failed.
        let mut held = held;
        while !held.is_empty() {
            let before = held.len();
            held.retain_mut(|(_, held)| match held {
                Held::Permit(_) => false,
                Held::Acquire(waiter) => poll(waiter).is_pending(),
            });
            prop_assert!(held.len() < before, "no waiter proceeds");
        }
        assert_idle(&semaphore);
    }
}
