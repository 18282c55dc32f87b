//! A place that is dropped leaves at once, however far it has come.

use std::sync::Arc;
use std::task::Poll;

use keylane::EnterError;

use crate::rig::{Wakes, assert_idle, gates, poll, poll_with, turn, wide};

#[test]
fn while_parked() {
    let gates = wide();
    let mut lane: Vec<_> = (0..6).map(|_| gates.try_enter(1).unwrap()).collect();
    for leaves in [5, 1, 2] {
        drop(lane.remove(leaves));
    }
    assert_eq!(gates.places(), 3);
    for at in 0..3 {
        assert!(
            lane[at + 1..]
                .iter_mut()
                .all(|place| poll(place).is_pending())
        );
        drop(turn(&mut lane[at]));
    }
    assert_idle(&gates);
}

/// The head of a lane waits for one of the turns, and leaves: the next one has its place in the line.
#[test]
fn while_called() {
    let gates = gates(100, 1, 100);
    let held = gates.try_enter(0).unwrap();
    let mut lane: Vec<_> = (0..3).map(|_| gates.try_enter(1).unwrap()).collect();
    let mut other = gates.try_enter(2).unwrap();
    let wakes = Arc::default();
    assert!(poll_with(&mut lane[1], &wakes).is_pending());
    drop(lane.remove(0));
    assert_eq!(
        (gates.places(), gates.turns(), gates.lanes()),
        (4, Some(1), 3)
    );
    assert_eq!(
        wakes.count(),
        0,
        "it has moved up, and its turn has not come"
    );
    drop(held);
    // It asked after the other key did.
    drop(turn(&mut other));
    assert_eq!(wakes.count(), 1);
    drop(turn(&mut lane[0]));
    drop(turn(&mut lane[1]));
    assert_idle(&gates);
}

#[test]
fn while_called_with_nobody_behind() {
    let gates = gates(100, 1, 100);
    let held = gates.try_enter(0).unwrap();
    for _ in 0..3 {
        let heads: Vec<_> = (1..9).map(|key| gates.try_enter(key).unwrap()).collect();
        drop(heads);
        assert_eq!(
            (gates.places(), gates.turns(), gates.lanes()),
            (1, Some(1), 1)
        );
    }
    drop(held);
    drop(gates.try_enter(5).unwrap().try_turn().unwrap());
    assert_idle(&gates);
}

#[test]
fn while_granted_and_never_polled() {
    let gates = gates(100, 1, 100);
    let held = gates.try_enter(1).unwrap();
    let granted = gates.try_enter(1).unwrap();
    let mut next = gates.try_enter(1).unwrap();
    let mut other = gates.try_enter(2).unwrap();
    drop(other);
    drop(held);
    assert!(poll(&mut next).is_pending());
    assert_eq!(gates.turns(), Some(1), "its turn has come");
    other = gates.try_enter(2).unwrap();
    assert!(poll(&mut other).is_pending());
    drop(granted);
    drop(turn(&mut other));
    drop(turn(&mut next));
    assert_idle(&gates);
}

#[test]
fn at_the_head_and_never_polled() {
    let gates = wide();
    drop(gates.try_enter(1).unwrap());
    let first = gates.try_enter(1).unwrap();
    let mut second = gates.try_enter(1).unwrap();
    drop(first);
    drop(turn(&mut second));
    assert_idle(&gates);
}

#[test]
fn room_that_was_waited_for() {
    let gates = gates(2, 2, 2);
    let held = [gates.try_reserve().unwrap(), gates.try_reserve().unwrap()];
    let mut waits: Vec<_> = (0..4).map(|_| gates.reserve()).collect();
    for reserve in &mut waits {
        assert!(poll(reserve).is_pending());
    }
    drop(gates.reserve());
    // In the line, then with room on its way.
    drop(waits.remove(1));
    drop(held);
    drop(waits.remove(0));
    let rooms: Vec<_> = waits.iter_mut().map(poll).collect();
    assert!(rooms.iter().all(|room| matches!(room, Poll::Ready(Ok(_)))));
    assert_eq!(gates.places(), 2);
    assert!(gates.try_reserve().is_none());
    drop(rooms);
    assert_idle(&gates);
    assert!(gates.try_reserve().is_some());
}

/// At each of its awaits.
#[test]
fn a_whole_turn_that_is_given_up() {
    let gates = gates(2, 1, 2);
    let rooms = [gates.try_reserve().unwrap(), gates.try_reserve().unwrap()];
    let mut waits = Box::pin(gates.turn(1));
    assert!(poll(&mut waits).is_pending());
    drop(waits);
    let mut waits = Box::pin(gates.turn(1));
    assert!(poll(&mut waits).is_pending());
    drop(rooms);
    assert_eq!(gates.places(), 1, "room is on its way");
    drop(waits);
    let held = gates.try_enter(1).unwrap();
    for key in [1, 2] {
        let mut waits = Box::pin(gates.turn(key));
        assert!(poll(&mut waits).is_pending());
        assert_eq!(gates.places(), 2);
        drop(waits);
        assert_eq!((gates.places(), gates.lanes()), (1, 1));
    }
    let mut waits = Box::pin(gates.turn(1));
    assert!(poll(&mut waits).is_pending());
    drop(held);
    drop(waits);
    assert_idle(&gates);
}

#[test]
fn a_whole_turn_that_is_refused() {
    let gates = gates(3, 1, 1);
    let held = gates.try_enter(1).unwrap();
    let refused = poll(&mut Box::pin(gates.turn(1)));
    assert!(matches!(
        refused,
        Poll::Ready(Err(EnterError::LaneFull(())))
    ));
    gates.close();
    let refused = poll(&mut Box::pin(gates.turn(2)));
    assert!(matches!(refused, Poll::Ready(Err(EnterError::Closed(())))));
    drop(held);
    assert_idle(&gates);
}

/// Every order of leaving, in a lane of five behind a head: the rest go in their order.
#[test]
fn those_behind_move_up_in_their_order() {
    for mask in 0..32_u32 {
        for backwards in [false, true] {
            let gates = wide();
            let head = gates.try_enter(1).unwrap();
            let mut lane: Vec<_> = (0..5).map(|_| Some(gates.try_enter(1).unwrap())).collect();
            let mut leavers: Vec<usize> = (0..5).filter(|at| mask & (1 << at) != 0).collect();
            if backwards {
                leavers.reverse();
            }
            for at in leavers {
                lane[at] = None;
            }
            drop(head);
            let mut rest: Vec<_> = lane.into_iter().flatten().collect();
            assert_eq!(gates.places(), rest.len());
            for at in 0..rest.len() {
                assert!(
                    rest[at + 1..]
                        .iter_mut()
                        .all(|place| poll(place).is_pending())
                );
                drop(turn(&mut rest[at]));
            }
            assert_idle(&gates);
        }
    }
}

/// Each one asks what it can, by turns: parked, called, granted, polled or not.
#[test]
fn leaving_wakes_nobody_for_nothing() {
    let gates = gates(100, 1, 100);
    let held = gates.try_enter(0).unwrap();
    let mut lane: Vec<_> = (0..4).map(|_| gates.try_enter(1).unwrap()).collect();
    let wakes: Vec<Arc<Wakes>> = (0..4).map(|_| Arc::default()).collect();
    for (place, wakes) in lane.iter_mut().zip(&wakes) {
        assert!(poll_with(place, wakes).is_pending());
    }
    drop(lane.remove(1));
    drop(lane.remove(0));
    assert_eq!(wakes.iter().map(|wakes| wakes.count()).sum::<usize>(), 0);
    drop(held);
    assert_eq!(wakes[2].count(), 1);
    drop(lane);
    assert_eq!((wakes[0].count(), wakes[1].count()), (0, 0));
    assert_idle(&gates);
}
