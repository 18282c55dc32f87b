//! Single cases that chance hardly comes to.

use std::time::Duration;

use keylane_rt::clock::{self, Instant};

use super::plan::Sequencer;
use super::testing::{Message, TestEffects, TestLane, effects as effects_of, rare, rules};
use super::{
    Decision, Due, Few, Hold, Next, Offered, Out, Phase, Spares, Stall, State, Store, Undecidable,
    WaitReason,
};
use crate::gate::{Gate, Opening};
use crate::rules::{
    AtLimit, BatchRules, CoalesceRules, PlanRules, Rules, SequenceRules, Survivor, TICK,
};
use crate::sequence::{Mode, OnGap, Start};

mod combined;
mod gates;

const PATIENCE: Duration = Duration::from_millis(20);

fn fifo() -> Rules {
    rules(PlanRules::Fifo)
}

fn sequence(on_gap: OnGap) -> Rules {
    rules(PlanRules::Sequence(SequenceRules {
        mode: Mode::Contiguous,
        start: Start::At(1),
        early: 4,
        patience: PATIENCE,
        on_gap,
        is_stored: false,
    }))
}

/// Offers messages with these versions, or numbers.
fn offer(lane: &mut TestLane, versions: &[u64], now: Instant, rules: &Rules) -> TestEffects {
    let mut last = effects_of(|_| {});
    for version in versions {
        let message = Message {
            version: *version,
            ..Message::new(*version as u32)
        };
        last = effects_of(|done| lane.offer(message, now, rules, &Spares::new(), || None, done));
    }
    last
}

/// The head of a lane that was scheduled goes out.
fn start(lane: &mut TestLane, now: Instant, rules: &Rules) -> Message {
    match effects_of(|done| lane.next(now, rules, done)).out {
        Out::Message(head) => head,
        out => panic!("{out:?} starts"),
    }
}

/// The head settles.
fn finish(lane: &mut TestLane, now: Instant, rules: &Rules) -> TestEffects {
    effects_of(|done| lane.advance(now, rules, done))
}

fn decide(
    lane: &mut TestLane,
    decision: Decision,
    now: Instant,
    rules: &Rules,
) -> Result<TestEffects, Undecidable> {
    let mut decided = Ok(());
    let effects =
        effects_of(|done| decided = lane.decide(decision, now, rules, &Spares::new(), done));
    decided.map(|()| effects)
}

fn permits(effects: &TestEffects) -> Option<usize> {
    match &effects.opening {
        Opening::Grant(_, room) => Some(*room),
        Opening::Nothing | Opening::Close(_) => None,
    }
}

fn closes(effects: &TestEffects) -> bool {
    matches!(effects.opening, Opening::Close(_))
}

/// A lane with room for four, which is full, and whose head runs.
fn full(now: Instant, rules: &Rules) -> TestLane {
    let mut lane = TestLane::empty(0);
    assert!(lane.gate().is_none());
    let _ = offer(&mut lane, &[1, 2, 3], now, rules);
    assert!(lane.gate().is_none());
    let effects = offer(&mut lane, &[4], now, rules);
    assert!(lane.gate().is_some() && effects.overflows());
    assert_eq!(start(&mut lane, now, rules).id, 1);
    lane
}

#[test]
fn a_message_that_expires_is_watched_once() {
    let now = clock::now();
    let rules = Rules {
        expires: true,
        ..fifo()
    };
    let mut lane = TestLane::empty(0);
    let expire_in = |lane: &mut TestLane, id, millis| {
        let message = Message {
            expires_at: Some(rules.stamp(now + Duration::from_millis(millis))),
            ..Message::new(id)
        };
        let effects =
            effects_of(|done| lane.offer(message, now, &rules, &Spares::new(), || None, done));
        let at = effects.expires_at;
        at.map(|at| rules.moment(at, now) - now)
    };
    let millis = |millis| Some(Duration::from_millis(millis));
    assert_eq!(expire_in(&mut lane, 1, 20), millis(20));
    assert_eq!(expire_in(&mut lane, 2, 20), None, "the same moment");
    assert_eq!(expire_in(&mut lane, 3, 30), None);
    assert_eq!(expire_in(&mut lane, 4, 10), millis(10));
    lane.parked_mut().disarm_expiry();
    assert_eq!(
        expire_in(&mut lane, 5, 40),
        millis(40),
        "no timer was armed"
    );
    let at = now + Duration::from_millis(40);
    let due = Due::Expiry(rules.stamp(at));
    let effects = effects_of(|done| lane.wake(due, at, &rules, &Spares::new(), done));
    let expired: Vec<_> = effects
        .left
        .as_slice()
        .iter()
        .map(|(left, _)| left.id)
        .collect();
    assert_eq!(expired, [1, 2, 3, 4, 5], "all at once, in order");
}

/// The timer of a gap may go off a little early, while something else of the key runs.
#[test]
fn a_gap_is_over_as_early_as_its_timer_may_be() {
    let (start, rules) = (clock::now(), sequence(OnGap::Halt));
    for (early, reason) in [
        (TICK, WaitReason::HaltedGap),
        (TICK + TICK, WaitReason::Gap),
    ] {
        let mut lane = TestLane::empty(0);
        let _ = offer(&mut lane, &[1, 3], start, &rules);
        assert_eq!(lane.state().phase(), Phase::Ready);
        let now = start + PATIENCE - early;
        let effects = finish(&mut lane, now, &rules);
        assert_eq!(lane.state().wait_reason(), Some(reason));
        assert_eq!(effects.wake, None, "a gap has a timer of its own");
    }
}

/// A runner may have read its clock before the timer of the gap went off, and finish after it.
#[test]
fn a_gap_whose_timer_is_gone_is_not_waited_for() {
    let (start, rules) = (clock::now(), sequence(OnGap::Halt));
    let mut lane = TestLane::empty(0);
    let effects = offer(&mut lane, &[1, 3], start, &rules);
    let (since, until) = rare(&effects).gap_until.expect("the gap has a timer");
    let effects =
        effects_of(|done| lane.wake(Due::Gap(since), until, &rules, &Spares::new(), done));
    assert_eq!((effects.wake, lane.state().phase()), (None, Phase::Ready));
    let _ = finish(&mut lane, start, &rules);
    assert_eq!(lane.state().wait_reason(), Some(WaitReason::HaltedGap));
    let resumed = decide(&mut lane, Decision::Resume, until, &rules).expect("it waits anew");
    assert_eq!(
        (rare(&resumed).gap_until, lane.state().wait_reason()),
        (Some((until, until + PATIENCE)), Some(WaitReason::Gap))
    );
}

#[test]
fn a_version_that_was_given_up_is_recorded_once() {
    let now = clock::now();
    let mut rules = sequence(OnGap::Skip);
    if let PlanRules::Sequence(sequence) = &mut rules.plan {
        sequence.is_stored = true;
    }
    let mut lane = TestLane::empty(0);
    let effects = offer(&mut lane, &[1], now, &rules);
    assert_eq!(rare(&effects).store, Some(Store::Load));
    let _ = effects_of(|done| lane.learn(None, now, &rules, &Spares::new(), done));
    let effects = finish(&mut lane, now, &rules);
    assert_eq!(rare(&effects).store, Some(Store::Record(1)));
    let _ = decide(&mut lane, Decision::Pause, now, &rules);
    let effects = offer(&mut lane, &[2], now, &rules);
    assert_eq!(
        (rare(&effects).store, lane.state().wait_reason()),
        (None, Some(WaitReason::Record))
    );
    let resumed = decide(&mut lane, Decision::Resume, now, &rules);
    assert!(resumed.is_ok_and(|effects| rare(&effects).store.is_none()));
    let effects = effects_of(|done| lane.recorded(1, done));
    assert!(matches!(effects.out, Out::Lane { .. }));
}

/// A head that was held back by a pause has no timer, and is not counted again.
#[test]
fn a_head_that_came_back_paused_goes_out_when_it_is_resumed() {
    let (now, rules) = (clock::now(), fifo());
    let mut lane = TestLane::new();
    let effects = effects_of(|done| {
        lane.hold(
            Box::new(Message::new(1)),
            Hold::Paused(now + PATIENCE),
            done,
        )
    });
    assert!(effects.wake.is_none() && !lane.state().is_timed() && effects.holds);
    let _ = decide(&mut lane, Decision::Pause, now, &rules);
    assert!(lane.is_endless());
    let effects = decide(&mut lane, Decision::Resume, now, &rules);
    let Ok(TestEffects {
        out: Out::Head {
            restarts, counts, ..
        },
        ..
    }) = effects
    else {
        panic!("it does not go out");
    };
    assert!(!restarts && !counts);
}

/// Its timer has gone off, or is about to.
#[test]
fn a_resumed_head_goes_out_as_early_as_its_timer_may() {
    let (start, rules) = (clock::now(), fifo());
    for (early, goes) in [(TICK, true), (TICK + TICK, false)] {
        let mut lane = TestLane::new();
        let _ = effects_of(|done| {
            lane.hold(
                Box::new(Message::new(1)),
                Hold::Retry(start + PATIENCE),
                done,
            )
        });
        let _ = decide(&mut lane, Decision::Pause, start, &rules);
        let now = start + PATIENCE - early;
        let resumed = decide(&mut lane, Decision::Resume, now, &rules);
        let goes_out = |effects: TestEffects| matches!(effects.out, Out::Head { .. });
        assert_eq!(resumed.map(goes_out), Ok(goes));
    }
}

/// What the end of a dispatcher asks of a lane.
#[test]
fn a_lane_tells_whether_anything_but_a_message_or_an_operator_ends_its_wait() {
    let (now, head) = (clock::now(), || Box::new(Message::new(1)));
    let out = TestLane::new();
    assert!(!out.is_endless() && !out.state().is_halted() && out.state().is_out());
    let mut backoff = TestLane::new();
    let _ = effects_of(|done| backoff.hold(head(), Hold::Retry(now), done));
    assert!(!backoff.is_endless() && backoff.state().is_timed());
    assert_eq!(backoff.state().backs_off_until(), Some(now));
    let mut halted = TestLane::new();
    let _ = effects_of(|done| halted.hold(head(), Hold::Halt, done));
    assert!(halted.is_endless() && halted.state().is_halted() && !halted.state().is_out());
    assert_eq!(halted.state().backs_off_until(), None);
    let waits = |reason, until| {
        let mut lane = TestLane::empty(0);
        lane.state = State::Waiting { reason, until };
        lane
    };
    for reason in [WaitReason::Load, WaitReason::Record] {
        assert!(!waits(reason, None).is_endless(), "the store answers");
    }
    let unleased = waits(WaitReason::Lease, None);
    assert!(
        !unleased.is_endless() && unleased.state().is_stalled() && unleased.state().is_unleased()
    );
    let mut lost = TestLane::new();
    let _ = effects_of(|done| lost.hold(head(), Hold::Unleased(now), done));
    assert!(
        !lost.is_endless()
            && lost.state().is_stalled()
            && lost.state().is_unleased()
            && !lost.state().is_timed()
    );
    for reason in [WaitReason::Paused, WaitReason::HaltedGap] {
        assert!(waits(reason, None).is_endless(), "{reason:?}");
        assert!(waits(reason, None).state().is_stalled(), "{reason:?}");
    }
    for reason in [WaitReason::Rate, WaitReason::Delay, WaitReason::Gap] {
        let lane = waits(reason, Some(now));
        assert!(
            !lane.is_endless() && lane.state().is_stalled(),
            "{reason:?}"
        );
    }
    assert!(!waits(WaitReason::Linger, Some(now)).state().is_stalled());
    assert!(!waits(WaitReason::Empty, None).state().is_stalled());
}

#[test]
fn an_evicted_lane_gives_up_all_that_was_counted_of_it() {
    use super::Change;
    let (now, rules) = (clock::now(), fifo());
    let mut lane = full(now, &rules);
    let _ = decide(&mut lane, Decision::Pause, now, &rules);
    let _ = effects_of(|done| lane.hold(Box::new(Message::new(1)), Hold::Halt, done));
    let evicted = lane.evict();
    assert_eq!(evicted.head.map(|head| head.id), Some(1));
    let parked: Vec<_> = evicted.parked.iter().map(|parked| parked.id).collect();
    assert_eq!(parked, [2, 3, 4]);
    let effects = evicted.effects;
    let changes = (effects.full, effects.paused, effects.halted);
    assert_eq!(changes, (Change::Down, Change::Down, Change::Down));
    assert!(closes(&effects) && !lane.is_paused());

    let mut lane = TestLane::new();
    let effects = lane.evict().effects;
    let changes = (effects.full, effects.paused, effects.halted);
    assert_eq!(changes, (Change::None, Change::None, Change::None));
}

#[test]
fn when_no_more_come_a_batch_waits_for_no_more() {
    let now = clock::now();
    let rules = rules(PlanRules::Batch(BatchRules {
        max: 3,
        linger: PATIENCE,
    }));
    let mut lane = TestLane::empty(0);
    let _ = offer(&mut lane, &[1], now, &rules);
    let effects = effects_of(|done| lane.next(now, &rules, done));
    assert_eq!(effects.wake, Some(Due::Wait(now + PATIENCE)));
    assert_eq!(lane.state().wait_reason(), Some(WaitReason::Linger));
    assert!(matches!(
        effects_of(|done| lane.close(done)).out,
        Out::Lane { .. }
    ));
    assert_eq!(start(&mut lane, now, &rules).id, 1);
    let effects = effects_of(|done| lane.close(done));
    assert!(matches!(effects.out, Out::Nothing) && !closes(&effects));
    let mut lane = full(now, &fifo());
    assert!(closes(&effects_of(|done| lane.close(done))) && lane.gate().is_none());
}

#[test]
fn a_lane_that_turns_messages_away_overflows() {
    let now = clock::now();
    for (at_limit, overflows) in [(AtLimit::DropOldest, true), (AtLimit::Refuse, true)] {
        let rules = Rules { at_limit, ..fifo() };
        let mut lane = TestLane::empty(0);
        assert!(!offer(&mut lane, &[1, 2, 3, 4], now, &rules).overflows());
        assert_eq!(offer(&mut lane, &[5], now, &rules).overflows(), overflows);
        assert!(lane.gate().is_none(), "no sender is held back");
    }
    let rules = fifo();
    let mut lane = TestLane::empty(0);
    let _ = offer(&mut lane, &[1], now, &rules);
    let purged = decide(&mut lane, Decision::Purge, now, &rules);
    assert!(purged.is_ok_and(|effects| !effects.overflows()));
}

#[test]
fn the_oldest_that_waits_is_parked_or_early() {
    let (now, rules) = (clock::now(), sequence(OnGap::Skip));
    let mut lane = TestLane::empty(0);
    let _ = offer(&mut lane, &[1, 3, 4], now, &rules);
    let id = |message: Option<&Message>| message.map(|message| message.id);
    assert_eq!(
        (
            id(lane.oldest_waiting()),
            id(lane.sequencer().and_then(Sequencer::first_early))
        ),
        (Some(3), Some(3))
    );
    assert_eq!(lane.early_mut(4).map(|early| early.id), Some(4));
    assert!(lane.early_mut(1).is_none() && lane.parked().oldest().is_none());
    let _ = offer(&mut lane, &[2], now, &rules);
    assert_eq!(
        (id(lane.oldest_waiting()), id(lane.parked().oldest())),
        (Some(2), Some(2))
    );
    assert!(lane.sequencer().and_then(Sequencer::first_early).is_none());
    assert_eq!(lane.depth(&rules), 4);
}

#[test]
fn what_is_not_kept_leaves_the_lane() {
    let (now, rules) = (clock::now(), fifo());
    let mut lane = TestLane::new();
    lane.parked_mut().retain(|_| panic!("nothing is parked"));
    let _ = offer(&mut lane, &[2, 3, 4], now, &rules);
    lane.parked_mut().retain(|parked| parked.id != 3);
    let ids: Vec<_> = lane.parked().iter().map(|parked| parked.id).collect();
    assert_eq!(ids, [2, 4]);
    lane.parked_mut()
        .push_front(Message::new(1), &Spares::new());
    let ids: Vec<_> = lane
        .parked_mut()
        .iter_mut()
        .map(|parked| parked.id)
        .collect();
    assert_eq!(ids, [1, 2, 4]);
}

#[test]
fn a_lane_with_nothing_beyond_the_ordinary_is_plain() {
    let (now, rules) = (clock::now(), fifo());
    let mut lane = TestLane::new();
    assert!(lane.is_bare() && TestLane::empty(0).is_bare());
    assert!(!TestLane::empty(7).is_bare(), "its rate");
    assert!(decide(&mut lane, Decision::Pause, now, &rules).is_ok());
    assert!(!lane.is_bare() && !lane.has_watermark());
}

#[test]
fn the_head_is_seen_while_the_lane_holds_it() {
    let now = clock::now();
    for hold in [Hold::Retry(now), Hold::Halt] {
        let mut lane = TestLane::new();
        assert!(lane.state().head().is_none() && lane.head_mut().is_none());
        let _ = effects_of(|done| lane.hold(Box::new(Message::new(1)), hold, done));
        assert_eq!(lane.head_mut().map(|head| head.id), Some(1));
        assert_eq!(lane.state().head().map(|head| head.id), Some(1));
    }
}

#[test]
fn the_memory_of_a_lane_goes_to_the_next() {
    let spares = Spares::new();
    let mut lane = TestLane::new();
    assert!(matches!(
        lane.park(Message::new(1), 4, AtLimit::Park, &spares),
        Offered::Parked
    ));
    assert!(matches!(lane.finish(), Next::Start(_)));
    let backlog = lane.parked.0.as_deref().map(std::ptr::from_ref);
    lane.recycle(&spares);
    // Otherwise the allocator might give the same memory out again.
    let _other = Spares::<Message>::new().take();
    assert_eq!(backlog, Some(std::ptr::from_ref(&*spares.take())));
}

/// Timers are not taken back: one that finds another wait does nothing.
#[test]
fn a_timer_of_another_wait_does_nothing() {
    let now = clock::now();
    let rules = Rules {
        expires: true,
        ..fifo()
    };
    let (before, at) = (now + PATIENCE / 2, now + PATIENCE);
    let mut lane = TestLane::empty(0);
    let message = Message {
        not_before: Some(at),
        expires_at: Some(rules.stamp(at + PATIENCE)),
        ..Message::new(1)
    };
    let _ = effects_of(|done| lane.offer(message, now, &rules, &Spares::new(), || None, done));
    let effects = effects_of(|done| lane.next(now, &rules, done));
    assert_eq!(effects.wake, Some(Due::Wait(at)));
    for due in [Due::Wait(before), Due::Expiry(rules.stamp(before))] {
        let effects = effects_of(|done| lane.wake(due, before, &rules, &Spares::new(), done));
        assert_eq!((effects.wake, effects.expires_at), (None, None), "{due:?}");
        assert_eq!(lane.state().wait_reason(), Some(WaitReason::Delay));
    }
}

/// What it waited for more for is gone: it is asked again, and goes.
#[test]
fn a_lane_whose_messages_have_expired_waits_for_no_more() {
    let now = clock::now();
    let rules = Rules {
        expires: true,
        ..rules(PlanRules::Batch(BatchRules {
            max: 3,
            linger: PATIENCE,
        }))
    };
    let at = now + PATIENCE / 2;
    for (others, is_asked) in [(0, true), (1, false)] {
        let mut lane = TestLane::empty(0);
        for id in 0..=others {
            let message = Message {
                expires_at: (id == 0).then(|| rules.stamp(at)),
                ..Message::new(id)
            };
            let _ = effects_of(|done| {
                lane.offer(message, now, &rules, &Spares::new(), || None, done);
            });
        }
        let _ = effects_of(|done| lane.next(now, &rules, done));
        assert_eq!(lane.state().wait_reason(), Some(WaitReason::Linger));
        let due = Due::Expiry(rules.stamp(at));
        let effects = effects_of(|done| lane.wake(due, at, &rules, &Spares::new(), done));
        assert_eq!(effects.leaving(), 1);
        assert_eq!(matches!(effects.out, Out::Lane { .. }), is_asked);
    }
}
