//! The gate of a full lane.

use super::*;

#[test]
fn a_gate_without_senders_goes_when_the_lane_is_half_empty() {
    let (now, rules) = (clock::now(), fifo());
    let mut lane = full(now, &rules);
    let effects = finish(&mut lane, now, &rules);
    assert_eq!(permits(&effects), Some(1));
    let gate = lane.gate().expect("three of four").clone();
    gate.0.set(1);
    let effects = finish(&mut lane, now, &rules);
    assert!(closes(&effects) && lane.gate().is_none());
}

#[test]
fn a_gate_stays_while_the_lane_is_more_than_half_full() {
    let (now, rules) = (clock::now(), fifo());
    let mut lane = full(now, &rules);
    assert_eq!(permits(&finish(&mut lane, now, &rules)), Some(1));
    lane.gate().expect("three of four").0.set(1);
    let effects = effects_of(|done| lane.more.open_gate(3, &rules, done));
    assert!(permits(&effects).is_none() && !closes(&effects));
}

#[test]
fn all_that_expires_at_once_makes_room() {
    let now = clock::now();
    let rules = Rules {
        expires: true,
        ..fifo()
    };
    let mut lane = TestLane::empty(0);
    let at = now + PATIENCE;
    for id in 1..=4 {
        let message = Message {
            expires_at: (id > 1).then(|| rules.stamp(at)),
            ..Message::new(id)
        };
        let _ = effects_of(|done| {
            lane.offer(message, now, &rules, &Spares::new(), || None, done);
        });
    }
    assert_eq!(start(&mut lane, now, &rules).id, 1);
    let due = Due::Expiry(rules.stamp(at));
    let effects = effects_of(|done| lane.wake(due, at, &rules, &Spares::new(), done));
    assert_eq!((effects.leaving(), permits(&effects)), (3, Some(3)));
}

#[test]
fn a_gate_stays_while_senders_take_permits() {
    let (now, rules) = (clock::now(), fifo());
    let mut lane = full(now, &rules);
    let gate = lane.gate().expect("it is full").clone();
    // Permits go out, and the senders that take them do not arrive.
    for left in [3, 2, 1] {
        let effects = finish(&mut lane, now, &rules);
        assert_eq!(permits(&effects), Some(1), "{left} left");
        assert!(lane.gate().is_some());
    }
    // One of three has not been taken: one sender at least was there for the others.
    gate.0.set(1);
    let effects = offer(&mut lane, &[5], now, &rules);
    assert!(lane.gate().is_some() && permits(&effects).is_none());
    let effects = finish(&mut lane, now, &rules);
    assert_eq!(permits(&effects), Some(1), "two are on their way");
    let effects = finish(&mut lane, now, &rules);
    assert!(closes(&effects) && effects.removes);
}

#[test]
fn a_gate_that_is_made_anew_has_permits_for_the_room() {
    let (now, rules) = (clock::now(), fifo());
    let mut lane = full(now, &rules);
    let _ = finish(&mut lane, now, &rules);
    let effects = effects_of(|done| lane.renew_gate(&rules, done));
    assert!(closes(&effects));
    let gate = lane.gate().expect("it was made anew").clone();
    assert_eq!(gate.available(), 1);
    let _ = finish(&mut lane, now, &rules);
    assert!(
        lane.gate().is_none(),
        "what it was made with counts as granted"
    );

    let mut lane = TestLane::empty(0);
    let _ = offer(&mut lane, &[1], now, &rules);
    let effects = effects_of(|done| lane.renew_gate(&rules, done));
    assert!(
        !closes(&effects) && lane.gate().is_none(),
        "it was not full"
    );
}

/// The senders at the gate look again when the lane waits for a version: one may have it.
#[test]
fn a_lane_that_waits_for_a_version_gets_another_gate() {
    let (now, rules) = (clock::now(), sequence(OnGap::Skip));
    let mut lane = TestLane::empty(0);
    let effects = offer(&mut lane, &[1, 3, 4, 5], now, &rules);
    assert!(effects.overflows());
    let gate = lane.gate().expect("it is full").clone();
    let effects = finish(&mut lane, now, &rules);
    assert!(lane.state().waits_for_version() && closes(&effects));
    let renewed = lane.gate().expect("three of four").clone();
    assert!(!std::rc::Rc::ptr_eq(&gate.0, &renewed.0));
    assert_eq!(renewed.available(), 1);
    assert!(lane.awaits(2) && lane.awaits(1) && !lane.awaits(3));
    // A sender has taken the permit and is on its way.
    renewed.0.set(0);
    let effects = effects_of(|done| lane.open_or_renew_gate(&rules, done));
    assert!(closes(&effects));
    assert_eq!(lane.gate().map(Gate::available), Some(0));
    let effects = offer(&mut lane, &[2], now, &rules);
    assert!(
        !lane.state().waits_for_version() && !lane.awaits(3),
        "{:?}",
        effects.out
    );
}
