//! Each limit, and what comes back there.

use std::task::Poll;

use keylane::{BuildError, EnterError, TryEnterError, Turnstile};

use crate::rig::{assert_idle, gates, poll, turn};

#[test]
fn the_capacity_counts_who_waits_who_has_a_turn_and_reserved_room() {
    let gates = gates(3, 3, 3);
    assert_eq!(gates.turns(), None);
    let held = gates.try_enter(1).unwrap().try_turn().unwrap();
    let parked = gates.try_enter(1).unwrap();
    let room = gates.try_reserve().unwrap();
    assert_eq!(gates.places(), 3);
    assert!(gates.try_reserve().is_none());
    let error = gates.try_enter(9).unwrap_err();
    assert!(matches!(error, TryEnterError::Full(9)));
    assert_eq!(error.to_string(), "the turnstile is at its capacity");
    assert_eq!(error.into_inner(), 9);
    drop(room);
    drop(gates.try_enter(9).unwrap());
    drop((held, parked));
    assert_idle(&gates);
}

#[test]
fn room_goes_to_those_who_wait_first_come_first_served() {
    let gates = gates(1, 1, 1);
    let held = gates.try_enter(1).unwrap();
    let mut waits: Vec<_> = (0..3).map(|_| gates.reserve()).collect();
    for reserve in &mut waits {
        assert!(poll(reserve).is_pending());
    }
    drop(held);
    for at in 0..waits.len() {
        assert!(matches!(gates.try_enter(7), Err(TryEnterError::Full(7))));
        assert!(
            waits[at + 1..]
                .iter_mut()
                .all(|reserve| poll(reserve).is_pending())
        );
        let Poll::Ready(Ok(room)) = poll(&mut waits[at]) else {
            panic!("there is room");
        };
        assert_eq!(gates.places(), 1);
        drop(room.enter(at as u64).unwrap());
    }
    assert_idle(&gates);
    drop(gates.try_enter(7).unwrap());
}

#[test]
fn a_full_lane_gives_the_key_and_the_room_back() {
    let gates = gates(10, 10, 2);
    let mut lane = [gates.try_enter(1).unwrap(), gates.try_enter(1).unwrap()];
    let error = gates.try_enter(1).unwrap_err();
    assert!(matches!(error, TryEnterError::LaneFull(1)));
    assert_eq!(error.to_string(), "the lane of the key is full");
    let error = gates.try_reserve().unwrap().enter(1).unwrap_err();
    assert_eq!(error, EnterError::LaneFull(1));
    assert_eq!(error.into_inner(), 1);
    assert_eq!(gates.places(), 2);
    let other = gates.try_enter(2).unwrap();
    drop(turn(&mut lane[0]));
    let third = gates.try_enter(1).unwrap();
    assert!(gates.try_enter(1).is_err());
    drop((lane, other, third));
    assert_idle(&gates);
}

/// Who has left, swept out or not, takes no place in its lane.
#[test]
fn a_lane_is_as_full_as_those_who_are_there() {
    let gates = gates(100, 100, 10);
    let mut lane: Vec<_> = (0..10).map(|_| gates.try_enter(1).unwrap()).collect();
    for leaves in [3, 5, 1, 8, 2, 2, 7, 1] {
        drop(lane.remove(leaves));
        assert_eq!(gates.places(), 9);
        lane.push(gates.try_enter(1).unwrap());
        assert!(matches!(
            gates.try_enter(1),
            Err(TryEnterError::LaneFull(1))
        ));
    }
    for leaves in [9, 4, 2, 1] {
        drop(lane.remove(leaves));
    }
    lane.extend((0..4).map(|_| gates.try_enter(1).unwrap()));
    assert!(gates.try_enter(1).is_err());
    for mut place in lane {
        drop(turn(&mut place));
    }
    assert_idle(&gates);
}

#[test]
fn so_many_turns_and_no_more() {
    let gates = gates(10, 2, 10);
    let mut places: Vec<_> = (0..4).map(|key| gates.try_enter(key).unwrap()).collect();
    let first = turn(&mut places[0]);
    let second = turn(&mut places[1]);
    assert!(places[2..].iter_mut().all(|place| poll(place).is_pending()));
    assert_eq!(gates.turns(), Some(2));
    drop(first);
    let third = turn(&mut places[2]);
    assert!(poll(&mut places[3]).is_pending());
    assert_eq!(gates.turns(), Some(2));
    drop((second, third));
    assert_eq!(gates.turns(), Some(1));
    drop(places);
    assert_idle(&gates);
}

/// Without turns to count, a key waits for itself alone.
#[test]
fn as_many_turns_as_places() {
    let gates = gates(4, 4, 4);
    let first = gates.try_enter(1).unwrap();
    let mut second = gates.try_enter(1).unwrap();
    let mut third = gates.try_enter(1).unwrap();
    assert!(gates.try_enter(2).unwrap().try_turn().is_ok());
    assert!(poll(&mut third).is_pending());
    drop(first);
    drop(second.try_turn().unwrap());
    second = third;
    drop(turn(&mut second));
    assert_idle(&gates);
}

#[test]
fn settings_that_cannot_be() {
    let builder = || Turnstile::<u8>::builder();
    let errors = [
        builder().capacity(0).build(),
        builder().concurrency(0).build(),
        builder().lane_capacity(0).build(),
        builder().capacity(usize::MAX).build(),
        builder().shards(3).build(),
        builder().shards(1).build(),
    ];
    let errors: Vec<_> = errors.into_iter().map(|built| built.err()).collect();
    assert_eq!(errors[0], Some(BuildError::Zero("capacity")));
    assert_eq!(errors[1], Some(BuildError::Zero("concurrency")));
    assert_eq!(errors[2], Some(BuildError::Zero("lane_capacity")));
    assert_eq!(errors[3], Some(BuildError::TooLarge("capacity")));
    assert_eq!(
        errors[4..],
        [Some(BuildError::Shards(3)), Some(BuildError::Shards(1))]
    );
    let most = usize::MAX >> 3;
    let gates = builder()
        .capacity(most)
        .concurrency(most - 1)
        .shards(2)
        .build()
        .unwrap();
    drop(gates.try_enter(1).unwrap());
    assert_idle(&gates);
}
