//! Who is next.

use std::sync::Arc;

use crate::rig::{Wakes, assert_idle, gates, poll, poll_with, turn, wide};

#[test]
fn turns_come_in_the_order_of_enter_whoever_is_polled_first() {
    let gates = wide();
    let held = gates.try_enter(1).unwrap().try_turn().unwrap();
    let mut places: Vec<_> = (0..5).map(|_| gates.try_enter(1).unwrap()).collect();
    for place in places.iter_mut().rev() {
        assert!(poll(place).is_pending());
    }
    drop(held);
    while !places.is_empty() {
        for later in places[1..].iter_mut().rev() {
            assert!(poll(later).is_pending());
        }
        let held = turn(&mut places[0]);
        assert!(places[1..].iter_mut().all(|place| poll(place).is_pending()));
        drop(held);
        drop(places.remove(0));
    }
    assert_idle(&gates);
}

#[test]
fn exclusion_holds_until_the_turn_is_dropped() {
    let gates = wide();
    let mut first = gates.try_enter(1).unwrap();
    let mut second = gates.try_enter(1).unwrap();
    assert!(poll(&mut second).is_pending());
    let held = turn(&mut first);
    drop(first);
    assert!(poll(&mut second).is_pending());
    assert_eq!((held.key(), second.key()), (Some(&1), Some(&1)));
    drop(held);
    drop(turn(&mut second));
    assert_idle(&gates);
}

/// One wake-up for each who waits, in its turn and not earlier.
#[test]
fn only_the_next_one_is_woken() {
    let gates = wide();
    let held = gates.try_enter(1).unwrap();
    let mut places: Vec<_> = (0..3).map(|_| gates.try_enter(1).unwrap()).collect();
    let wakes: Vec<Arc<Wakes>> = (0..3).map(|_| Arc::default()).collect();
    for (place, wakes) in places.iter_mut().zip(&wakes) {
        assert!(poll_with(place, wakes).is_pending());
        assert!(poll_with(place, wakes).is_pending());
    }
    let counts = || wakes.iter().map(|wakes| wakes.count()).collect::<Vec<_>>();
    assert_eq!(counts(), [0, 0, 0]);
    drop(held);
    assert_eq!(counts(), [1, 0, 0]);
    drop(turn(&mut places[0]));
    assert_eq!(counts(), [1, 1, 0]);
    drop(places);
    assert_eq!(counts()[..2], [1, 1]);
    assert_idle(&gates);
}

#[test]
fn a_key_whose_turn_never_ends_holds_up_no_other() {
    let gates = gates(100, 50, 10);
    let stuck = gates.try_enter(0).unwrap();
    let behind: Vec<_> = (0..9).map(|_| gates.try_enter(0).unwrap()).collect();
    assert!(gates.try_enter(0).is_err(), "its lane is full");
    for key in 1..1_000 {
        let first = gates.try_enter(key).unwrap().try_turn().unwrap();
        let mut second = gates.try_enter(key).unwrap();
        assert!(poll(&mut second).is_pending());
        drop(first);
        drop(turn(&mut second));
    }
    assert_eq!((gates.places(), gates.lanes()), (10, 1));
    drop((stuck, behind));
    assert_idle(&gates);
}

#[test]
fn heads_wait_for_one_of_the_turns_first_come_first_served() {
    let gates = gates(100, 1, 100);
    let held = gates.try_enter(1).unwrap().try_turn().unwrap();
    let mut heads: Vec<_> = (2..6).map(|key| gates.try_enter(key).unwrap()).collect();
    for head in heads.iter_mut().rev() {
        assert!(poll(head).is_pending());
    }
    drop(held);
    for at in 0..heads.len() {
        assert!(
            heads[at + 1..]
                .iter_mut()
                .all(|head| poll(head).is_pending())
        );
        // Whoever comes now goes behind those who wait, though a turn is about to end.
        let mut late = gates.try_enter(100 + at as u64).unwrap();
        let held = turn(&mut heads[at]);
        assert_eq!(gates.turns(), Some(1));
        assert!(poll(&mut late).is_pending());
        drop(held);
        assert!(poll(&mut late).is_pending() || at + 1 == heads.len());
    }
    drop(heads);
    assert_idle(&gates);
}

/// A lane that goes on asks again, behind the heads of other keys.
#[test]
fn a_long_lane_takes_turns_with_other_keys() {
    let gates = gates(100, 1, 100);
    let mut hot: Vec<_> = (0..3).map(|_| gates.try_enter(1).unwrap()).collect();
    let mut other = gates.try_enter(2).unwrap();
    let held = turn(&mut hot[0]);
    drop(held);
    assert!(poll(&mut hot[1]).is_pending());
    drop(turn(&mut other));
    drop(turn(&mut hot[1]));
    drop(turn(&mut hot[2]));
    drop((hot, other));
    assert_idle(&gates);
}

#[test]
fn a_turn_that_has_come_is_had_without_a_poll() {
    let gates = wide();
    let first = gates.try_enter(1).unwrap();
    let second = gates.try_enter(1).unwrap().try_turn().unwrap_err();
    assert_eq!(format!("{second:?}"), "Place { waits: true, .. }");
    drop(first);
    assert_eq!(format!("{second:?}"), "Place { waits: false, .. }");
    drop(second.try_turn().unwrap());
    assert_idle(&gates);
}
