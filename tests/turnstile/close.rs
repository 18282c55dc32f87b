//! The end: those who wait are sent home, turns go on, nobody enters.

use std::sync::Arc;
use std::task::Poll;

use keylane::{EnterError, TryEnterError, TurnstileClosed};

use crate::rig::{Gates, Wakes, assert_idle, gates, poll, poll_with, turn, wide};

#[test]
fn those_who_wait_are_sent_home() {
    let gates = gates(10, 1, 10);
    let held = gates.try_enter(0).unwrap().try_turn().unwrap();
    let parked = gates.try_enter(0).unwrap();
    let called = gates.try_enter(1).unwrap();
    let behind = gates.try_enter(1).unwrap();
    let keyless = gates.try_reserve().unwrap().enter_keyless().unwrap();
    let room: Vec<_> = std::iter::from_fn(|| gates.try_reserve()).collect();
    assert_eq!(room.len(), 5);
    let mut reserve = gates.reserve();
    let mut places = [parked, called, behind, keyless];
    let wakes: Vec<Arc<Wakes>> = (0..5).map(|_| Arc::default()).collect();
    for (place, wakes) in places.iter_mut().zip(&wakes) {
        assert!(poll_with(place, wakes).is_pending());
    }
    assert!(poll_with(&mut reserve, &wakes[4]).is_pending());

    gates.close();
    gates.close();
    assert!(gates.is_closed());
    assert!(wakes.iter().all(|wakes| wakes.count() == 1));
    for place in &mut places {
        assert!(matches!(poll(place), Poll::Ready(Err(TurnstileClosed))));
    }
    assert!(matches!(
        poll(&mut reserve),
        Poll::Ready(Err(TurnstileClosed))
    ));

    // The turn goes on.
    assert_eq!((gates.turns(), held.key()), (Some(1), Some(&0)));
    drop(places);
    assert_eq!((gates.places(), gates.lanes()), (6, 1));
    for (key, room) in (0_u64..).zip(room) {
        assert_eq!(room.enter(key).unwrap_err(), EnterError::Closed(key));
    }
    drop(held);
    assert_idle(&gates);
    refuses(&gates);
}

fn refuses(gates: &Gates) {
    let error = gates.try_enter(5).unwrap_err();
    assert!(matches!(error, TryEnterError::Closed(5)));
    assert_eq!(error.to_string(), "the turnstile is closed");
    assert!(gates.try_reserve().is_none());
    assert!(matches!(
        poll(&mut gates.reserve()),
        Poll::Ready(Err(TurnstileClosed))
    ));
    assert_idle(gates);
}

#[test]
fn who_has_its_turn_and_has_not_looked_keeps_it() {
    let gates = wide();
    let head = gates.try_enter(1).unwrap();
    let mut granted = gates.try_enter(1).unwrap();
    drop(head);
    let mut reserved = gates.try_enter(2).unwrap();
    gates.close();
    drop(turn(&mut granted));
    drop(turn(&mut reserved));
    assert_idle(&gates);
}

/// Those sent home leave in any order, also before the turn that they waited for ends.
#[test]
fn nothing_is_stuck_however_they_leave() {
    for first in 0..4 {
        let gates = gates(10, 1, 10);
        let held = gates.try_enter(1).unwrap();
        let mut all: Vec<_> = [1, 2, 2].map(|key| gates.try_enter(key).unwrap()).into();
        all.insert(0, held);
        gates.close();
        drop(all.remove(first));
        assert_eq!(gates.places(), 3);
        drop(all.pop());
        drop(all);
        assert_idle(&gates);
        refuses(&gates);
    }
}

#[test]
fn with_room_in_hand_nobody_enters() {
    let gates = wide();
    let held = gates.try_enter(1).unwrap();
    let rooms: Vec<_> = (0..3).map(|_| gates.try_reserve().unwrap()).collect();
    gates.close();
    let mut rooms = rooms.into_iter();
    assert_eq!(
        rooms.next().unwrap().enter(1).unwrap_err(),
        EnterError::Closed(1)
    );
    assert_eq!(
        rooms.next().unwrap().enter(2).unwrap_err(),
        EnterError::Closed(2)
    );
    assert_eq!(
        rooms.next().unwrap().enter_keyless().unwrap_err(),
        TurnstileClosed
    );
    drop(held);
    assert_idle(&gates);
}

/// The handles are gone, and those who are there go on.
#[test]
fn without_a_handle() {
    let gates = wide();
    let first = gates.try_enter(1).unwrap();
    let mut second = gates.try_enter(1).unwrap();
    let room = gates.try_reserve().unwrap();
    drop(gates);
    drop(first);
    drop(turn(&mut second));
    drop(room.enter(1).unwrap().try_turn().unwrap());
}
