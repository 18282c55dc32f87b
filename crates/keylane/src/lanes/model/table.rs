//! The transition table as a committed file, and proof that the lane obeys it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::clock;
use crate::lanes::backlog::Spares;
use crate::lanes::lane::{AtLimit, Event, Lane, Next, Offered, Phase, Rest};

type TestLane = Lane<u32, u32, ()>;

const SNAPSHOT: &str = include_str!("table.txt");

/// Every phase times every event, with and without something parked.
fn render() -> String {
    let mut table = format!("{:<9} {:<7}", "event", "parked");
    for phase in Phase::ALL {
        table += &format!(" {:<8}", format!("{phase:?}"));
    }
    let mut lines = vec![table.trim_end().to_owned()];
    for event in Event::ALL {
        for parked in [false, true] {
            let event_name = format!("{event:?}");
            let mut line = format!(
                "{event_name:<9} {:<7}",
                if parked { "some" } else { "none" }
            );
            for phase in Phase::ALL {
                let after = phase.after(event, parked);
                let after = after.map_or("-".to_owned(), |after| format!("{after:?}"));
                line += &format!(" {after:<8}");
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
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lanes/model/table.txt");
        std::fs::write(path, &table).expect("the file can be written");
        return;
    }
    assert_eq!(
        table, SNAPSHOT,
        "the transition table has changed; if it is meant, run this test with KEYLANE_UPDATE=1 and \
         commit src/lanes/model/table.txt"
    );
}

/// A lane in a phase, with one message behind the head or none.
fn lane_in(phase: Phase, parked: bool) -> TestLane {
    let mut lane = TestLane::new();
    match phase {
        Phase::Absent | Phase::Ready => {}
        Phase::Called => lane.finish_calling(),
        Phase::Resting => lane.rest(Rest::Paused, None),
        Phase::Running => lane.wait(clock::now(), 1, 0),
        Phase::Backoff => lane.back_off(Box::new(1), clock::now()),
        Phase::Halted => lane.halt(Box::new(1)),
    }
    if parked {
        let offered = lane.offer(2, usize::MAX, AtLimit::Park, &Spares::new());
        assert!(matches!(offered, Offered::Parked));
    }
    lane
}

/// Lets the event happen. Returns the phase after it.
fn happen(mut lane: TestLane, event: Event) -> Phase {
    let next = match event {
        Event::Offer => {
            let offered = lane.offer(3, usize::MAX, AtLimit::Park, &Spares::new());
            assert!(matches!(offered, Offered::Parked));
            None
        }
        Event::Wait => {
            lane.wait(clock::now(), 2, 0);
            None
        }
        Event::Finish => Some(lane.finish()),
        Event::BackOff => {
            lane.back_off(Box::new(1), clock::now());
            None
        }
        Event::Due => {
            assert_eq!(*lane.due(), 1);
            None
        }
        Event::Halt => {
            lane.halt(Box::new(1));
            None
        }
        Event::Resume => {
            assert_eq!(*lane.resume(), 1);
            None
        }
        Event::Call => {
            lane.call();
            None
        }
        Event::Pick => {
            assert_eq!(lane.pick(), Some(2));
            None
        }
        Event::Rest => {
            lane.rest(Rest::Rate, None);
            None
        }
        Event::Ask => {
            lane.finish_calling();
            None
        }
        Event::Leave => {
            lane.leave();
            Some(Next::Remove)
        }
        Event::HandBack => {
            let stays = lane.is_out();
            let _ = lane.hand_back();
            (!stays).then_some(Next::Remove)
        }
    };
    match next {
        Some(Next::Remove) => Phase::Absent,
        Some(Next::Stay) => unreachable!("a head that finishes does not stay"),
        Some(Next::Start(started)) => {
            assert_eq!(started, 2, "the message behind the head");
            lane.phase()
        }
        None => lane.phase(),
    }
}

/// The lane goes where the table says, and refuses what the table does not have. That it refuses
/// is an assertion of debug builds.
#[test]
fn the_lane_obeys_its_table() {
    for phase in Phase::ALL
        .into_iter()
        .filter(|phase| *phase != Phase::Absent)
    {
        for event in Event::ALL {
            for parked in [false, true] {
                let lane = lane_in(phase, parked);
                let told = phase.after(event, parked);
                let went = catch_unwind(AssertUnwindSafe(|| happen(lane, event))).ok();
                if told.is_some() || cfg!(debug_assertions) {
                    assert_eq!(went, told, "{event:?} in {phase:?}, parked: {parked}");
                }
            }
        }
    }
}
