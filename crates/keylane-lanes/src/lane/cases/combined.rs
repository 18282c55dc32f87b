//! Messages that meet a first one, or become one with another.

use super::*;

/// A lane that was entered by message 1, with these behind it. What starts, and what is left.
fn rejoin(rules: &Rules, behind: &[u64]) -> (Message, TestEffects, TestLane) {
    let (now, spares) = (clock::now(), Spares::new());
    let mut lane = TestLane::entered();
    let _ = offer(&mut lane, behind, now, rules);
    assert!(!lane.begin(), "more has come");
    let mut effects = effects_of(|done| lane.rejoin(Message::new(1), now, rules, &spares, done));
    match std::mem::replace(&mut effects.out, Out::Nothing) {
        Out::Message(starts) => (starts, effects, lane),
        out => panic!("{out:?} starts"),
    }
}

fn coalesce(survivor: Survivor, shares: bool) -> Rules {
    rules(PlanRules::Coalesce(CoalesceRules { survivor, shares }))
}

#[test]
fn of_the_first_message_and_the_one_that_stands_for_the_others_one_starts() {
    for (survivor, stays, goes) in [(Survivor::First, 1, 2), (Survivor::Latest, 4, 1)] {
        let (starts, effects, lane) = rejoin(&coalesce(survivor, false), &[2, 3, 4]);
        let left: Vec<_> = effects
            .left
            .as_slice()
            .iter()
            .map(|left| left.0.id)
            .collect();
        assert_eq!((starts.id, left), (stays, vec![goes]));
        assert_eq!(
            (lane.parked().len(), lane.state().phase()),
            (0, Phase::Ready)
        );
    }
}

#[test]
fn with_shared_answers_all_settle_with_the_one_that_starts() {
    let merged = [
        (Survivor::First, 1, [2, 3, 4]),
        (Survivor::Latest, 4, [1, 2, 3]),
    ];
    for (survivor, stays, settle) in merged {
        let (starts, effects, _) = rejoin(&coalesce(survivor, true), &[2, 3, 4]);
        assert_eq!((starts.id, &starts.merged[..]), (stays, &settle[..]));
        assert_eq!(rare(&effects).bodies.len(), 1, "the others left before");
    }
}

#[test]
fn what_has_come_since_starts_with_the_first_as_a_batch() {
    let batch = BatchRules {
        max: 3,
        linger: Duration::ZERO,
    };
    let (starts, _, lane) = rejoin(&rules(PlanRules::Batch(batch)), &[2, 3, 4]);
    let members: Vec<_> = starts.members.iter().map(|member| member.id).collect();
    assert_eq!((starts.id, members), (1, vec![2, 3]));
    assert_eq!(lane.parked().oldest().map(|parked| parked.id), Some(4));
}

#[test]
fn a_message_in_line_starts_at_once_and_what_was_early_waits_behind_it() {
    let (now, rules) = (clock::now(), sequence(OnGap::Skip));
    let mut lane = TestLane::empty(0);
    let Out::Message(starts) = offer(&mut lane, &[1], now, &rules).out else {
        panic!("it is the first of all")
    };
    assert_eq!(
        (starts.id, lane.state().phase(), lane.parked().len()),
        (1, Phase::Ready, 0)
    );
    let _ = offer(&mut lane, &[3, 2], now, &rules);
    assert_eq!(
        lane.parked()
            .iter()
            .map(|parked| parked.id)
            .collect::<Vec<_>>(),
        [2, 3]
    );
    let effects = finish(&mut lane, now, &rules);
    assert!(matches!(effects.out, Out::Message(next) if next.id == 2));
}

#[test]
fn a_first_message_that_meets_a_pause_expires_at_its_time() {
    let batch = BatchRules {
        max: 3,
        linger: Duration::ZERO,
    };
    let rules = Rules {
        expires: true,
        ..rules(PlanRules::Batch(batch))
    };
    let (now, spares) = (clock::now(), Spares::new());
    let mut lane = TestLane::entered();
    let _ = decide(&mut lane, Decision::Pause, now, &rules);
    assert!(!lane.begin(), "it is paused");
    let at = rules.stamp(now + PATIENCE);
    let message = Message {
        expires_at: Some(at),
        ..Message::new(1)
    };
    let effects = effects_of(|done| lane.rejoin(message, now, &rules, &spares, done));
    assert_eq!(effects.expires_at, Some(at));
    assert_eq!(lane.state().wait_reason(), Some(WaitReason::Paused));
}

#[test]
fn what_came_behind_the_first_message_is_merged_into_it_one_after_the_other() {
    let (now, spares) = (clock::now(), Spares::new());
    let rules = coalesce(Survivor::Merged, true);
    let mut lane = TestLane::entered();
    let _ = offer(&mut lane, &[2, 3], now, &rules);
    let mut effects = effects_of(|done| lane.rejoin(Message::new(1), now, &rules, &spares, done));
    let (waited, newcomers) = effects.take_merge().expect("they are to be one");
    let ids: Vec<_> = newcomers.as_slice().iter().map(|newer| newer.id).collect();
    assert_eq!((waited.id, ids), (1, vec![2, 3]));
    // What comes meanwhile waits for the next start.
    assert_eq!(
        (lane.state().phase(), lane.parked().len()),
        (Phase::Ready, 0)
    );
    let effects = offer(&mut lane, &[4], now, &rules);
    assert!(rare(&effects).merge.is_none());
    let mut effects = offer(&mut lane, &[5], now, &rules);
    assert!(effects.take_merge().is_some(), "these two wait");
}

#[test]
fn a_first_message_alone_in_a_paused_lane_is_merged_with_none() {
    let (now, spares) = (clock::now(), Spares::new());
    let rules = coalesce(Survivor::Merged, false);
    let mut lane = TestLane::entered();
    let _ = decide(&mut lane, Decision::Pause, now, &rules);
    assert!(!lane.begin(), "it is paused");
    let effects = effects_of(|done| lane.rejoin(Message::new(1), now, &rules, &spares, done));
    assert!(rare(&effects).merge.is_none());
    assert_eq!(lane.state().wait_reason(), Some(WaitReason::Paused));
    assert_eq!(lane.parked().len(), 1);
}

#[test]
fn a_lane_stays_until_what_is_merged_has_come_back() {
    let now = clock::now();
    let spares = Spares::new();
    let rules = coalesce(Survivor::Merged, false);
    let mut lane = TestLane::new();
    let _ = offer(&mut lane, &[2], now, &rules);
    assert!(lane.set_watermark(3, &rules));
    let mut effects = offer(&mut lane, &[3], now, &rules);
    let (_, newcomers) = effects.take_merge().expect("they are to be one");
    assert_eq!(lane.depth(&rules), 3);
    // Its head settles, and nothing is parked.
    let effects = finish(&mut lane, now, &rules);
    assert!(!effects.removes && matches!(effects.out, Out::Nothing));
    assert_eq!(lane.state().wait_reason(), Some(WaitReason::Empty));
    assert!(!lane.passes_watermark(None), "two are on their way back");
    assert!(!lane.is_endless(), "the end waits for them");
    let _ = decide(&mut lane, Decision::Purge, now, &rules);
    let Few::One(merged) = newcomers else {
        panic!("one came")
    };
    let effects = effects_of(|done| lane.offer_merged(merged, now, &rules, &spares, done));
    assert!(matches!(effects.out, Out::Lane { .. }));
    assert_eq!(lane.depth(&rules), 1);
}

/// It makes the gap be given up, so it is parked and no longer early: the mark of the lane is its
/// own.
#[test]
fn an_early_message_that_comes_to_a_stalled_lane_does_not_count_either_way() {
    let (now, mut rules) = (clock::now(), sequence(OnGap::Skip));
    if let PlanRules::Sequence(sequence) = &mut rules.plan {
        sequence.early = 1;
    }
    let mut lane = TestLane::empty(0);
    let _ = decide(&mut lane, Decision::Pause, now, &rules);
    let effects = offer(&mut lane, &[3, 2], now, &rules);
    assert_eq!(effects.stall, Stall::LaneAndEarly(2));
    let parked: Vec<_> = lane.parked().iter().map(|parked| parked.version).collect();
    assert_eq!(parked, [2, 3]);
}
