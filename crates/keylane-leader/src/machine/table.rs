//! The transition table, committed as `table.txt`.

use std::fmt::Write;
use std::time::Duration;

use keylane_leases::error::LeaseLost;
use tokio::time::Instant;

use super::input::{Call, Input, Outcome, Phase, Sight, Succession};
use super::state::Machine;
use crate::settings::{Lost, Settings};
use crate::store::CandidateId;

const SNAPSHOT: &str = include_str!("table.txt");

const GRACE: Duration = Duration::from_secs(5);

/// The inputs, by name. `late` is `Tick` when each limit is over.
fn inputs(now: Instant) -> Vec<(&'static str, Input, Duration)> {
    let soon = Duration::ZERO;
    let late = Duration::from_secs(100);
    let sight = |is_next, held, is_leaving| {
        let held_for = Some(Duration::from_secs(9)).filter(|_| held);
        Input::Looked(Sight {
            is_next,
            held_for,
            is_leaving,
        })
    };
    let failed = || Outcome::Failed("no".to_owned());
    vec![
        ("looked: another is next", sight(false, false, false), soon),
        ("looked: next, free", sight(true, false, false), soon),
        ("looked: next, held", sight(true, true, false), soon),
        ("looked: next, leaving", sight(true, true, true), soon),
        ("call failed", Input::CallFailed, soon),
        ("changed", Input::Changed, soon),
        ("granted", Input::Granted, soon),
        ("began, orderly", Input::Began(Succession::Orderly), soon),
        ("began, lost", Input::Began(Succession::Lost), soon),
        ("phase ok", Input::PhaseEnded(Outcome::Ok), soon),
        ("phase failed", Input::PhaseEnded(failed()), soon),
        ("held for long", Input::Held(now + late), soon),
        ("held for a moment", Input::Held(now + GRACE / 100), soon),
        ("lost", Input::Lost(LeaseLost::RanOut), soon),
        ("other history", Input::OtherHistory, soon),
        ("done", Input::Done, soon),
        ("resign", Input::Resign(None), soon),
        ("hand to", Input::Resign(CandidateId::new("b")), soon),
        ("close", Input::Close, soon),
        ("tick, late", Input::Tick, late),
    ]
}

/// Returns a machine in each state that can be reached, in the order in which they are found.
fn reached(lost: Lost) -> Vec<(String, Machine)> {
    let now = Instant::now();
    let settings = Settings {
        lost,
        ..Settings::new()
    };
    let first = Machine::new(settings, now);
    let mut known = vec![(label(&first), first)];
    let mut at = 0;
    while at < known.len() {
        for (_, input, after) in inputs(now) {
            let mut machine = known[at].1.clone();
            machine.on(input, now + after);
            let label = label(&machine);
            if known.iter().all(|(known, _)| *known != label) {
                known.push((label, machine));
            }
        }
        at += 1;
    }
    known
}

/// Returns the state, and what it wants.
fn label(machine: &Machine) -> String {
    let wants = machine.wants();
    let call = match wants.call {
        None => "",
        Some(Call::Look) => " look",
        Some(Call::Watch) => " watch",
        Some(Call::Acquire) => " acquire",
        Some(Call::Begin) => " begin",
        Some(Call::Mark(None)) => " mark",
        Some(Call::Mark(Some(_))) => " mark-to",
        Some(Call::Release {
            is_orderly: true,
            chosen: None,
        }) => " end",
        Some(Call::Release {
            is_orderly: true,
            chosen: Some(_),
        }) => " end-to",
        Some(Call::Release { .. }) => " release",
        Some(Call::Withdraw) => " withdraw",
    };
    let phase = match wants.phase {
        None => "",
        Some(Phase::Prepare) => " +prepare",
        Some(Phase::Inaugurate) => " +inaugurate",
        Some(Phase::Execute) if wants.stop => " +stop",
        Some(Phase::Execute) => " +execute",
        Some(Phase::HandOver(_)) => " +hand_over",
    };
    let closing = if machine.closes() { " (closing)" } else { "" };
    format!("{:?}{call}{phase}{closing}", machine.name())
}

fn table() -> String {
    let now = Instant::now();
    let mut text = String::new();
    for (label_before, machine) in reached(Lost::Wait(GRACE)) {
        writeln!(text, "{label_before}").unwrap();
        for (name, input, after) in inputs(now) {
            let mut machine = machine.clone();
            machine.on(input, now + after);
            let label = label(&machine);
            if label != label_before {
                writeln!(text, "    {name:<24}-> {label}").unwrap();
            }
        }
    }
    text
}

#[test]
fn the_transition_table_is_the_committed_one() {
    let now = table();
    if std::env::var_os("KEYLANE_UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/machine/table.txt");
        std::fs::write(path, &now).unwrap();
        return;
    }
    assert_eq!(
        now, SNAPSHOT,
        "the table has changed: if that is right, run this test with KEYLANE_UPDATE=1, and \
         commit src/machine/table.txt"
    );
}

#[test]
fn a_fenced_candidate_waits_for_no_lost_leader() {
    let labels: Vec<_> = reached(Lost::Fenced)
        .into_iter()
        .map(|(label, _)| label)
        .collect();
    assert!(!labels.contains(&"Inaugurating".to_owned()), "{labels:?}");
    let waiting = reached(Lost::Wait(GRACE));
    assert!(waiting.iter().any(|(label, _)| label == "Inaugurating"));
}

/// Returns whether this input is the answer to this call.
fn answers(input: &Input, call: &Call) -> bool {
    matches!(
        (call, input),
        (Call::Look, Input::Looked(_) | Input::CallFailed)
            | (Call::Watch, Input::Changed | Input::CallFailed)
            | (Call::Acquire, Input::Granted | Input::CallFailed)
            | (Call::Begin, Input::Began(_) | Input::CallFailed)
            | (Call::Release { .. } | Call::Withdraw, Input::Done)
    )
}

/// The task makes no call again that it has made: so the machine must not wait for one.
#[test]
fn a_call_that_is_answered_is_not_waited_for() {
    let now = Instant::now();
    let late = Duration::from_secs(100);
    for (label, machine) in reached(Lost::Wait(GRACE)) {
        let Some(call) = machine.wants().call else {
            continue;
        };
        for (name, input, _) in inputs(now) {
            for after in [Duration::ZERO, late] {
                if !answers(&input, &call) {
                    continue;
                }
                let mut machine = machine.clone();
                machine.on(input.clone(), now + after);
                let wants = machine.wants().call;
                assert_ne!(wants, Some(call.clone()), "{label}: {name}, {after:?}");
            }
        }
    }
}
