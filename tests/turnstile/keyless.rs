//! Places without a key: they stand in no lane, and count for every other limit.

use crate::rig::{assert_idle, gates, poll, turn};

#[test]
fn nobody_waits_for_another_without_a_key() {
    let gates = gates(4, 4, 1);
    let places: Vec<_> = std::iter::from_fn(|| gates.try_reserve())
        .map(|room| room.enter_keyless().unwrap())
        .collect();
    assert_eq!((places.len(), gates.places(), gates.lanes()), (4, 4, 0));
    assert!(places.iter().all(|place| place.key().is_none()));
    let turns: Vec<_> = places
        .into_iter()
        .map(|place| place.try_turn().unwrap())
        .collect();
    assert!(turns.iter().all(|turn| turn.key().is_none()));
    drop(turns);
    assert_idle(&gates);
}

#[test]
fn they_wait_in_the_line_of_the_turns_with_all_others() {
    let gates = gates(10, 1, 10);
    let keyless = || gates.try_reserve().unwrap().enter_keyless().unwrap();
    let held = keyless();
    let (mut first, gone, mut keyed, mut last) =
        (keyless(), keyless(), gates.try_enter(1).unwrap(), keyless());
    assert!(poll(&mut last).is_pending());
    drop(gone);
    drop(held);
    drop(turn(&mut first));
    drop(turn(&mut keyed));
    let granted = keyless();
    assert!(poll(&mut last).is_ready());
    drop(granted);
    drop(last);
    assert_idle(&gates);
}
