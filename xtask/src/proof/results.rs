//! What is known of a step, from the runs before.

use serde::{Deserialize, Serialize};

use super::step::{Step, Work};
use crate::kept;

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The hash of the tree that it ran on.
    pub(super) tree: String,
    /// The name without the part.
    pub(super) step: String,
    pub(super) part: u64,
    pub(super) amount: u64,
    /// The scale of the run.
    pub(super) scale: String,
    pub(super) passed: bool,
    pub(super) result: String,
    /// How many tests passed, or how many mutations were found.
    pub(super) tests: Option<u64>,
    pub(super) seconds: f64,
    /// What its tests have measured, in words.
    #[serde(default)]
    pub(super) measured: Vec<String>,
    /// The seed of the run: that of the part follows from it.
    pub(super) seed: u64,
    /// How often it has failed on this tree.
    pub(super) failures: u64,
    pub(super) commit: String,
    pub(super) rustc: String,
}

/// How a step stands on a tree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum State<'a> {
    Passed(&'a Record),
    Failed(&'a Record),
    Skipped(&'static str),
    /// It has not run with this amount.
    Missing,
}

/// Whether a step is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// With this amount, and with the seed of an earlier run if there is one to repeat.
    Run {
        amount: u64,
        seed: Option<u64>,
    },
    Keep,
}

impl kept::Record for Record {
    fn tree(&self) -> &str {
        &self.tree
    }
}

impl Record {
    fn is_of(&self, step: &Step) -> bool {
        self.step == step.name && self.part == step.part.number()
    }

    fn replaces(&self, other: &Self) -> bool {
        (&self.tree, &self.step, self.part) == (&other.tree, &other.step, other.part)
    }
}

/// How `step` stands on `tree`.
pub(super) fn state<'a>(records: &'a [Record], tree: &str, step: &Step) -> State<'a> {
    if let Work::SinceRelease { release: None, .. } = step.work {
        return State::Skipped("no release yet");
    }
    let mut records = records.iter();
    match records.find(|record| record.tree == tree && record.is_of(step)) {
        Some(record) if !record.passed => State::Failed(record),
        Some(record) if record.amount >= step.amount => State::Passed(record),
        _ => State::Missing,
    }
}

/// What is to be done about `step`. What has failed is repeated as it was.
pub(super) fn next(state: State<'_>, step: &Step, again: bool) -> Next {
    match state {
        State::Skipped(_) => Next::Keep,
        State::Passed(_) if !again => Next::Keep,
        State::Passed(_) | State::Missing => Next::Run {
            amount: step.amount,
            seed: None,
        },
        State::Failed(record) => Next::Run {
            amount: step.amount.max(record.amount),
            seed: Some(record.seed),
        },
    }
}

/// Adds a result. A failure stands until the same step has passed with the same amount, and a pass
/// until there is another one with its amount.
pub(super) fn add(records: &mut Vec<Record>, mut new: Record) {
    if let Some(at) = records.iter().position(|old| new.replaces(old)) {
        let old = &records[at];
        if new.passed && new.amount < old.amount {
            return;
        }
        new.failures += old.failures;
        records.remove(at);
    }
    records.push(new);
}

/// How long `step` took when it passed last with its amount, on any tree.
pub(super) fn last_seconds(records: &[Record], step: &Step) -> Option<f64> {
    let mut latest = records.iter().rev();
    let is_like = |record: &&Record| record.is_of(step) && record.amount == step.amount;
    let last = latest.find(|record| is_like(record) && record.passed);
    last.map(|record| record.seconds)
}

#[cfg(test)]
pub(super) mod tests {
    use std::process::Command;

    use super::super::estimate::{Estimate, Origin};
    use super::*;
    use crate::part::Part;

    pub(in super::super) fn step(amount: u64) -> Step {
        Step {
            name: "inbox kills".to_owned(),
            part: Part::all(2).next().unwrap(),
            amount,
            estimate: Estimate {
                seconds: 600,
                origin: Origin::Guess("none"),
            },
            work: Work::Tests(|_| Command::new("true")),
        }
    }

    pub(in super::super) fn record(tree: &str, amount: u64, passed: bool) -> Record {
        Record {
            tree: tree.to_owned(),
            step: "inbox kills".to_owned(),
            part: 1,
            amount,
            scale: "normal".to_owned(),
            passed,
            result: if passed { "ok" } else { "FAILED" }.to_owned(),
            tests: Some(7),
            seconds: 12.5,
            measured: Vec::new(),
            seed: 4_711,
            failures: u64::from(!passed),
            commit: String::new(),
            rustc: String::new(),
        }
    }

    fn run(amount: u64) -> Next {
        let seed = None;
        Next::Run { amount, seed }
    }

    #[track_caller]
    fn assert_next(records: &[Record], step: &Step, again: bool, expected: Next) {
        assert_eq!(next(state(records, "now", step), step, again), expected);
    }

    #[test]
    fn what_has_passed_on_this_tree_is_not_run_again() {
        let step = step(1_000);
        let records = [record("now", 1_000, true)];
        assert_eq!(state(&records, "now", &step), State::Passed(&records[0]));
        assert_next(&records, &step, false, Next::Keep);
        assert_next(&records, &step, true, run(1_000));
        assert_next(&[], &step, false, run(1_000));
    }

    #[test]
    fn what_has_passed_on_another_tree_is_missing() {
        let step = step(1_000);
        let records = [
            record("before", 1_000, true),
            record("before", 1_000, false),
        ];
        assert_eq!(state(&records, "now", &step), State::Missing);
        assert_next(&records, &step, false, run(1_000));
    }

    #[test]
    fn more_shows_what_less_would_and_not_the_reverse() {
        let records = [record("now", 200, true)];
        assert_next(&records, &step(200), false, Next::Keep);
        assert_next(&records, &step(100), false, Next::Keep);
        assert_next(&records, &step(201), false, run(201));
    }

    #[test]
    fn a_part_shows_nothing_of_another_part_or_step() {
        let mut other = step(1_000);
        other.part = Part::all(2).last().unwrap();
        let records = [record("now", 1_000, true)];
        assert_next(&records, &other, false, run(1_000));
        let mut other = step(1_000);
        other.name = "spool kills".to_owned();
        assert_next(&records, &other, false, run(1_000));
    }

    #[test]
    fn a_failure_is_repeated_as_it_was() {
        let records = [record("now", 1_000, false)];
        let repeat = |amount| Next::Run {
            amount,
            seed: Some(4_711),
        };
        for again in [false, true] {
            assert_next(&records, &step(1_000), again, repeat(1_000));
            assert_next(&records, &step(100), again, repeat(1_000));
            assert_next(&records, &step(2_000), again, repeat(2_000));
        }
    }

    #[test]
    fn without_a_release_there_is_nothing_to_compare_with() {
        let mut step = step(1);
        step.work = Work::SinceRelease {
            command: |_| Ok(Command::new("true")),
            release: None,
        };
        assert_eq!(state(&[], "now", &step), State::Skipped("no release yet"));
        assert_next(&[], &step, true, Next::Keep);
    }

    fn added(all: &[&Record]) -> Vec<Record> {
        let mut records = Vec::new();
        for one in all {
            add(&mut records, (*one).clone());
        }
        records
    }

    #[test]
    fn less_does_not_stand_for_more() {
        let (large, small) = (record("now", 1_000, true), record("now", 100, true));
        for order in [[&large, &small], [&small, &large]] {
            assert_eq!(added(&order), std::slice::from_ref(&large), "{order:?}");
        }
        let failed = record("now", 1_000, false);
        assert_eq!(added(&[&failed, &small]), [failed]);
    }

    #[test]
    fn failures_are_counted_on_their_tree() {
        let (passed, failed) = (record("now", 100, true), record("now", 100, false));
        let before = record("before", 100, false);
        let all = added(&[&before, &failed, &failed, &passed]);
        assert_eq!(all.len(), 2);
        assert_eq!((all[1].passed, all[1].failures), (true, 2));
        let all = added(&[&passed, &failed]);
        assert_eq!((all[0].passed, all[0].failures), (false, 1));
    }

    #[test]
    fn the_last_duration_is_of_any_tree() {
        let mut slow = record("before", 100, true);
        slow.seconds = 99.0;
        let mut failed = record("now", 100, false);
        failed.seconds = 1.0;
        let records = [
            record("older", 100, true),
            slow,
            failed,
            record("now", 10, true),
        ];
        assert_eq!(last_seconds(&records, &step(100)), Some(99.0));
        assert_eq!(last_seconds(&records, &step(1_000)), None);
    }
}
