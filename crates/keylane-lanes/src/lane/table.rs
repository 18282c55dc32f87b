//! The transition table as a committed file, and proof that the lane obeys it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use keylane_rt::clock;

use super::state::{Phase, Transition};
use super::testing::{Message, TestLane, rules};
use super::{Decision, Effects, Hold, Next, Offered, Spares, State, WaitReason};
use crate::rules::{AtLimit, PlanRules};

const SNAPSHOT: &str = include_str!("table.txt");

/// Every phase times every transition, with and without something parked.
fn render() -> String {
    let mut table = format!("{:<10} {:<7}", "transition", "parked");
    for phase in Phase::ALL {
        table += &format!(" {:<10}", format!("{phase:?}"));
    }
    let mut lines = vec![table.trim_end().to_owned()];
    for transition in Transition::ALL {
        for parked in [false, true] {
            let transition_name = format!("{transition:?}");
            let mut line = format!(
                "{transition_name:<10} {:<7}",
                if parked { "some" } else { "none" }
            );
            for phase in Phase::ALL {
                let after = phase.after(transition, parked);
                let after = after.map_or("-".to_owned(), |after| format!("{after:?}"));
                line += &format!(" {after:<10}");
            }
            lines.push(line.trim_end().to_owned());
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_table_is_as_committed() {
    let table = render();
    if std::env::var_os("KEYLANE_UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lanes/lane/table.txt");
        std::fs::write(path, &table).expect("the file can be written");
        return;
    }
    assert_eq!(
        table, SNAPSHOT,
        "the transition table has changed; if it is meant, run this test with KEYLANE_UPDATE=1 and \
         commit src/lanes/lane/table.txt"
    );
}

/// A lane in a phase, with one message parked or none.
fn lane_in(phase: Phase, parked: bool) -> TestLane {
    let mut lane = TestLane::new();
    let mut effects = Effects::new();
    let head = Box::new(Message::new(1));
    match phase {
        Phase::Absent | Phase::Ready => {}
        Phase::Entered => lane = TestLane::entered(),
        Phase::Scheduled => {
            lane = TestLane::empty(0);
            lane.schedule(&mut effects);
        }
        Phase::Waiting => lane = TestLane::empty(0),
        Phase::Running => lane.suspend(clock::now(), 1, 0),
        Phase::Backoff => lane.hold(head, Hold::Retry(clock::now()), &mut effects),
        Phase::Halted => lane.hold(head, Hold::Halt, &mut effects),
    }
    drop(effects);
    if parked {
        let offered = lane.park(Message::new(2), usize::MAX, AtLimit::Park, &Spares::new());
        assert!(matches!(offered, Offered::Parked));
    }
    lane
}

/// Lets the transition happen. Returns the phase after it.
fn happen(mut lane: TestLane, transition: Transition) -> Phase {
    let now = clock::now();
    let rules = rules(PlanRules::Fifo);
    let mut effects = Effects::new();
    let (head, mut is_gone) = (Box::new(Message::new(1)), false);
    match transition {
        Transition::Offer => {
            let offered = lane.park(Message::new(3), usize::MAX, AtLimit::Park, &Spares::new());
            assert!(matches!(offered, Offered::Parked));
        }
        Transition::Schedule => lane.schedule(&mut effects),
        Transition::Start if lane.state().phase() == Phase::Entered => assert!(lane.begin()),
        Transition::Start if lane.parked().is_empty() => {
            lane.transition(Transition::Start, State::Ready)
        }
        Transition::Start => lane.start(now, &rules, &mut effects),
        Transition::Wait => lane.wait(WaitReason::Rate, None, &mut effects),
        Transition::Leave => {
            lane.vacate(now, &rules, &mut effects);
            is_gone = effects.removes;
        }
        Transition::Suspend => lane.suspend(now, 2, 0),
        Transition::Finish => match lane.finish() {
            Next::Remove => is_gone = true,
            Next::Stay => unreachable!("a head that finishes does not stay"),
            Next::Start(started) => assert_eq!(started.id, 2, "the message behind the head"),
        },
        Transition::Requeue => lane.transition(Transition::Requeue, State::Scheduled),
        Transition::BackOff => lane.hold(head, Hold::Retry(now), &mut effects),
        Transition::Due => assert_eq!(lane.due().id, 1),
        Transition::Halt => lane.hold(head, Hold::Halt, &mut effects),
        Transition::Resume => lane
            .decide(Decision::Resume, now, &rules, &Spares::new(), &mut effects)
            .expect("it is halted"),
        Transition::HandBack => {
            is_gone = !lane.state().is_out();
            let _ = lane.hand_back();
        }
    }
    drop(effects);
    match is_gone {
        true => Phase::Absent,
        false => lane.state().phase(),
    }
}

/// The lane goes where the table says, and refuses what the table does not have, in every build.
#[test]
fn the_lane_obeys_its_table() {
    for phase in Phase::ALL
        .into_iter()
        .filter(|phase| *phase != Phase::Absent)
    {
        for transition in Transition::ALL {
            for parked in [false, true] {
                let lane = lane_in(phase, parked);
                let told = phase.after(transition, parked);
                let went = catch_unwind(AssertUnwindSafe(|| happen(lane, transition))).ok();
                assert_eq!(went, told, "{transition:?} in {phase:?}, parked: {parked}");
            }
        }
    }
}
