//! The turnstile: turns that are handed on while others enter, leave, wait for room and close.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use shuttle_tokio::task::JoinHandle;

use super::explore::pause;
use super::witness::{Hasher, Key, task};
use crate::{Place, Room, Turn, Turnstile, rt};

/// What one execution saw. Its lock is not the model's.
#[derive(Clone)]
struct Rig {
    gates: Turnstile<Key>,
    concurrency: usize,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    last: u32,
    /// Who has entered, for each key, and is not about to go.
    there: BTreeMap<Key, BTreeSet<u32>>,
    running: BTreeSet<Key>,
}

/// A place, and those who had entered when it did not yet.
struct Entered {
    place: Place<Key>,
    key: Key,
    number: u32,
    before: BTreeSet<u32>,
}

impl Rig {
    fn new(capacity: usize, concurrency: usize) -> Self {
        let builder = Turnstile::builder().hasher(Hasher::default());
        let builder = builder.capacity(capacity).lane_capacity(capacity);
        let gates = builder.concurrency(concurrency).build();
        Self {
            gates: gates.expect("the settings agree"),
            concurrency,
            seen: Arc::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("nobody panics in here")
    }

    /// `None`: it is closed.
    fn enter(&self, key: Key, room: Option<Room<Key>>) -> Option<Entered> {
        let before = self.seen().there.entry(key).or_default().clone();
        let place = match room {
            Some(room) => room.enter(key).ok()?,
            None => self.gates.try_enter(key).ok()?,
        };
        let mut seen = self.seen();
        seen.last += 1;
        let number = seen.last;
        seen.there.entry(key).or_default().insert(number);
        Some(Entered {
            place,
            key,
            number,
            before,
        })
    }

    fn first(&self, key: Key) -> Entered {
        self.enter(key, None)
            .expect("it is open, and there is room")
    }

    /// Its turn has come, and lasts a while.
    async fn runs(&self, (key, number): (Key, u32), before: &BTreeSet<u32>, turn: Turn<Key>) {
        {
            let mut seen = self.seen();
            assert!(seen.running.insert(key), "two have the turn of {key}");
            assert!(seen.running.len() <= self.concurrency, "too many turns");
            let there = seen.there.entry(key).or_default();
            let overtaken = before.intersection(there).next();
            assert_eq!(overtaken, None, "overtaken by {number} of key {key}");
        }
        pause().await;
        self.gone(key, number);
        self.seen().running.remove(&key);
        drop(turn);
    }

    /// Before it goes, because others may follow while it does.
    fn gone(&self, key: Key, number: u32) {
        self.seen().there.entry(key).or_default().remove(&number);
    }

    /// Waits for its turn to the end. False: it was sent home.
    async fn waits(&self, entered: Entered) -> bool {
        let Entered {
            mut place,
            key,
            number,
            before,
        } = entered;
        let Ok(turn) = (&mut place).await else {
            self.gone(key, number);
            return false;
        };
        self.runs((key, number), &before, turn).await;
        true
    }

    /// Leaves at any moment, after a poll or none; with its turn, if that has come and it looks.
    async fn leaves(&self, mut entered: Entered) {
        if rt::one_in(2) {
            let place = &mut entered.place;
            let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut *place).poll(cx))).await;
            if let Poll::Ready(Ok(turn)) = polled {
                let who = (entered.key, entered.number);
                return self.runs(who, &entered.before, turn).await;
            }
        }
        pause().await;
        self.gone(entered.key, entered.number);
        drop(entered);
    }

    /// Entered places that wait, or leave, each in a task of its own.
    fn wait(&self, entered: Entered) -> JoinHandle<()> {
        let rig = self.clone();
        task(async move {
            rig.waits(entered).await;
        })
    }

    fn leave(&self, entered: Entered) -> JoinHandle<()> {
        let rig = self.clone();
        task(async move { rig.leaves(entered).await })
    }

    async fn finish(&self, tasks: Vec<JoinHandle<()>>) {
        for task in tasks {
            task.await.expect("nobody stops it");
        }
        let gates = &self.gates;
        assert_eq!((gates.places(), gates.lanes()), (0, 0));
        assert_eq!(gates.turns().unwrap_or_default(), 0);
    }
}

/// A turn is handed on while the next one leaves.
pub(super) async fn hand_on_meets_leaving() {
    let rig = Rig::new(8, if rt::one_in(2) { 8 } else { 1 });
    let [first, second, third, fourth] = [1; 4].map(|key| rig.first(key));
    let tasks = vec![
        rig.wait(first),
        rig.leave(second),
        rig.leave(third),
        rig.wait(fourth),
    ];
    rig.finish(tasks).await;
}

/// The head of a lane leaves the line of the turns in the moment in which it is granted.
pub(super) async fn called_leaves_and_is_granted() {
    let rig = Rig::new(8, 1);
    let [held, called, behind] = [2, 1, 1].map(|key| rig.first(key));
    let other = rig.first(3);
    let tasks = vec![
        rig.wait(held),
        rig.leave(called),
        rig.wait(behind),
        rig.leave(other),
    ];
    rig.finish(tasks).await;
}

/// Somebody enters while the last one goes, with its lane.
pub(super) async fn enter_meets_the_last_one() {
    let rig = Rig::new(8, if rt::one_in(2) { 8 } else { 2 });
    let tasks = (0..3).map(|_| {
        let rig = rig.clone();
        task(async move {
            for _ in 0..2 {
                let entered = rig.first(1);
                if rt::one_in(3) {
                    rig.leaves(entered).await;
                } else {
                    rig.waits(entered).await;
                }
            }
        })
    });
    let tasks = tasks.collect();
    rig.finish(tasks).await;
}

/// Who waits for room leaves while it is on its way.
pub(super) async fn reserve_leaves_with_room_on_its_way() {
    let rig = Rig::new(1, 1);
    let held = rig.first(1);
    let mut tasks = vec![rig.wait(held)];
    for waits in [false, true, true] {
        let rig = rig.clone();
        tasks.push(task(async move {
            let mut reserve = rig.gates.reserve();
            if !waits {
                let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut reserve).poll(cx))).await;
                pause().await;
                return drop((polled, reserve));
            }
            let room = reserve.await.expect("it is open");
            let entered = rig.enter(2, Some(room)).expect("it is open");
            rig.waits(entered).await;
        }));
    }
    rig.finish(tasks).await;
}

/// It closes while some enter and wait behind a turn that does not end before they are home.
pub(super) async fn close_meets_enter() {
    let rig = Rig::new(8, if rt::one_in(2) { 8 } else { 1 });
    let held = rig.first(1).place.await.expect("it is open");
    let mut tasks = Vec::new();
    for key in [1, 1, 2] {
        let rig = rig.clone();
        tasks.push(task(async move {
            let Ok(room) = rig.gates.reserve().await else {
                return;
            };
            let Some(entered) = rig.enter(key, Some(room)) else {
                return;
            };
            let had_turn = rig.waits(entered).await;
            assert!(!had_turn || key == 2, "the turn of {key} has not ended");
        }));
    }
    pause().await;
    rig.gates.close();
    for task in tasks {
        task.await.expect("nobody stops it");
    }
    drop(held);
    rig.finish(Vec::new()).await;
}

/// It closes while turns are handed on, and those sent home leave their lanes.
pub(super) async fn close_meets_hand_on() {
    let rig = Rig::new(6, if rt::one_in(2) { 6 } else { 1 });
    let mut tasks = Vec::new();
    for (key, leaves) in [(1, false), (1, true), (1, false), (2, false), (2, true)] {
        let entered = rig.first(key);
        tasks.push(if leaves {
            rig.leave(entered)
        } else {
            rig.wait(entered)
        });
    }
    pause().await;
    rig.gates.close();
    rig.finish(tasks).await;
    assert!(rig.gates.try_enter(1).is_err());
}

/// One turn for two keys, and each has two places.
pub(super) async fn one_turn_for_two_keys() {
    let rig = Rig::new(4, 1);
    let tasks = [1, 2, 1, 2].map(|key| {
        let rig = rig.clone();
        task(async move {
            let entered = rig.first(key);
            rig.waits(entered).await;
        })
    });
    rig.finish(tasks.into()).await;
}

/// Room for two: some wait for it, some leave, and some are stopped in the middle.
pub(super) async fn all_at_once() {
    let rig = Rig::new(2, if rt::one_in(2) { 2 } else { 1 });
    let pass = |key: Key, stays: bool| {
        let rig = rig.clone();
        task(async move {
            let Ok(room) = rig.gates.reserve().await else {
                return;
            };
            let entered = rig.enter(key, Some(room)).expect("it is open");
            if stays {
                rig.waits(entered).await;
            } else {
                rig.leaves(entered).await;
            }
        })
    };
    let tasks = vec![pass(1, true), pass(1, false), pass(2, true), pass(1, true)];
    let stopped = {
        let gates = rig.gates.clone();
        task(async move {
            let _ = gates.turn(2).await;
        })
    };
    pause().await;
    stopped.abort();
    let _ = stopped.await;
    rig.finish(tasks).await;
}
