//! The user's code panics: nobody is stuck, and the room is back.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::Poll;

use keylane::{Turnstile, TurnstileClosed};

use crate::rig::{assert_idle, poll, turn, wide};

const HASH: u8 = 1;
const EQ: u8 = 2;
const CLONE: u8 = 3;
const DROP: u8 = 4;

/// What panics now, and how often something did.
#[derive(Default)]
struct Switch {
    on: AtomicU8,
    panics: AtomicUsize,
}

impl Switch {
    fn set(&self, what: u8) {
        self.on.store(what, Ordering::SeqCst);
    }

    fn at(&self, what: u8) {
        if self.on.load(Ordering::SeqCst) == what {
            self.panics.fetch_add(1, Ordering::SeqCst);
            panic!("the key");
        }
    }
}

/// A key that panics where it is told to.
struct Key(u64, Arc<Switch>);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.1.at(EQ);
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.at(HASH);
        self.0.hash(state);
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        self.1.at(CLONE);
        Self(self.0, Arc::clone(&self.1))
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.1.at(DROP);
    }
}

struct Rig {
    gates: Turnstile<Key>,
    switch: Arc<Switch>,
}

impl Rig {
    fn new(concurrency: usize) -> Self {
        let builder = Turnstile::builder().capacity(10).concurrency(concurrency);
        Self {
            gates: builder.lane_capacity(10).build().unwrap(),
            switch: Arc::default(),
        }
    }

    fn key(&self, number: u64) -> Key {
        Key(number, Arc::clone(&self.switch))
    }
}

#[test]
fn on_its_way_in() {
    for what in [HASH, EQ, CLONE] {
        let rig = Rig::new(1);
        let mut held = rig.gates.try_enter(rig.key(1)).unwrap();
        let mut parked = rig.gates.try_enter(rig.key(1)).unwrap();
        rig.switch.set(what);
        let key = rig.key(if what == CLONE { 2 } else { 1 });
        let entered = catch_unwind(AssertUnwindSafe(|| rig.gates.try_enter(key)));
        assert!(entered.is_err());
        rig.switch.set(0);
        assert_eq!(rig.gates.places(), 2, "the room is free");
        assert!(!rig.gates.is_closed());
        assert!(matches!(poll(&mut held), Poll::Ready(Ok(_))));
        assert!(matches!(poll(&mut parked), Poll::Ready(Ok(_))));
        drop(rig.gates.try_enter(rig.key(2)).unwrap());
        assert_idle(&rig.gates);
    }
}

/// The drop of a key has no consequence: neither that of a lane, nor that of a place or a turn.
#[test]
fn in_its_drop() {
    let rig = Rig::new(1);
    rig.switch.set(DROP);
    for number in [1, 1, 2, 1] {
        drop(rig.gates.try_enter(rig.key(number)).unwrap());
    }
    let held = rig.gates.try_enter(rig.key(1)).unwrap();
    let mut next = rig.gates.try_enter(rig.key(1)).unwrap();
    drop(held);
    assert!(matches!(poll(&mut next), Poll::Ready(Ok(_))));
    assert!(!rig.gates.is_closed());
    assert_eq!(rig.switch.panics.load(Ordering::SeqCst), 4 * 2 + 3);
    assert_idle(&rig.gates);
}

/// While a panic unwinds, a second one would be the end of the process.
#[test]
fn in_its_drop_while_another_panic_unwinds() {
    let rig = Rig::new(1);
    let held = rig.gates.try_enter(rig.key(1)).unwrap().try_turn();
    let mut next = rig.gates.try_enter(rig.key(1)).unwrap();
    rig.switch.set(DROP);
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        panic!("the work");
    }));
    assert!(unwound.is_err());
    assert!(matches!(poll(&mut next), Poll::Ready(Ok(_))));
    assert_idle(&rig.gates);
}

/// A lane that cannot be found again cannot be moved on: the turnstile closes, and nobody waits.
#[test]
fn while_others_wait_for_its_lane() {
    for leaves in [0, 1, 2] {
        let rig = Rig::new(1);
        let mut places: Vec<_> = (0..3)
            .map(|_| rig.gates.try_enter(rig.key(1)).unwrap())
            .collect();
        let mut other = rig.gates.try_enter(rig.key(2)).unwrap();
        rig.switch.set(EQ);
        drop(places.remove(leaves));
        rig.switch.set(0);
        assert!(rig.gates.is_closed());
        // With the turn that ended came that of the other key.
        let had = matches!(poll(&mut other), Poll::Ready(Ok(_)));
        assert_eq!(had, leaves == 0);
        let had_turn = usize::from(leaves > 0);
        for place in &mut places[had_turn..] {
            assert!(matches!(poll(place), Poll::Ready(Err(TurnstileClosed))));
        }
        assert!(poll(&mut places[0]).is_ready());
        drop((places, other));
        assert_eq!((rig.gates.places(), rig.gates.turns()), (0, Some(0)));
    }
}

/// A key that is not equal to itself.
#[derive(Clone)]
struct Strange;

impl PartialEq for Strange {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for Strange {}

impl Hash for Strange {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test]
fn a_key_that_does_not_find_itself() {
    let gates = Turnstile::builder().build().unwrap();
    let place = gates.try_enter(Strange).unwrap();
    let mut other = gates.try_enter(Strange).unwrap();
    drop(place);
    assert!(gates.is_closed());
    assert!(matches!(poll(&mut other), Poll::Ready(Ok(_))));
    assert_eq!((gates.places(), gates.turns()), (0, Some(0)));
}

/// A key that is equal to itself for a while.
#[derive(Clone)]
struct Fickle(Arc<AtomicU8>);

impl PartialEq for Fickle {
    fn eq(&self, _: &Self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

impl Eq for Fickle {}

impl Hash for Fickle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        7.hash(state);
    }
}

/// One that is parked leaves, and does not find its lane: whoever is behind it must not wait for it.
#[test]
fn a_key_that_does_not_find_itself_any_more() {
    let gates = Turnstile::builder().build().unwrap();
    let fickle = Fickle(Arc::default());
    let head = gates.try_enter(fickle.clone()).unwrap();
    let leaves = gates.try_enter(fickle.clone()).unwrap();
    let mut behind = gates.try_enter(fickle.clone()).unwrap();
    fickle.0.store(1, Ordering::SeqCst);
    drop(leaves);
    fickle.0.store(0, Ordering::SeqCst);
    drop(head);
    assert!(poll(&mut behind).is_ready());
    drop(behind);
    assert_idle(&gates);
}

#[test]
fn in_work_that_has_its_turn() {
    let gates = wide();
    let held = gates.try_enter(1).unwrap().try_turn().unwrap();
    let mut next = gates.try_enter(1).unwrap();
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        panic!("the work");
    }));
    assert!(unwound.is_err());
    drop(turn(&mut next));
    assert_idle(&gates);
}

#[tokio::test]
async fn in_a_task_that_has_its_turn() {
    let gates = wide();
    let held = gates.turn(1).await.unwrap();
    let waits = gates.try_enter(1).unwrap();
    let task = tokio::spawn(async move {
        let _held = held;
        panic!("the task");
    });
    drop(waits.await.unwrap());
    assert!(task.await.unwrap_err().is_panic());
    assert_idle(&gates);
}
