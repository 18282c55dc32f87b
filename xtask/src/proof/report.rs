//! What a run says at its end.

use super::estimate::rough;
use super::results::{Record, State, last_seconds};
use super::step::Step;
use crate::fingerprint;

/// A step and how it stands.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) step: &'a Step,
    pub(super) state: State<'a>,
    /// Whether it has run in this run.
    pub(super) is_new: bool,
}

impl Row<'_> {
    fn result(&self) -> String {
        let when = if self.is_new { "" } else { ", kept" };
        match self.state {
            State::Passed(record) => match record.failures {
                0 => format!("ok{when}"),
                1 => format!("ok{when}, had failed once"),
                times => format!("ok{when}, had failed {times} times"),
            },
            State::Failed(record) => format!("{}{when}", record.result),
            State::Skipped(why) => format!("skipped: {why}"),
            State::Missing => "MISSING".to_owned(),
        }
    }

    fn record(&self) -> Option<&Record> {
        match self.state {
            State::Passed(record) | State::Failed(record) => Some(record),
            State::Skipped(_) | State::Missing => None,
        }
    }
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

/// The steps and their results. Parts that are missing beside each other share a line.
pub(super) fn table(rows: &[Row]) -> String {
    let are_missing = |one: &Row, next: &Row| {
        let is_missing = |row: &Row| row.state == State::Missing;
        one.step.name == next.step.name && is_missing(one) && is_missing(next)
    };
    let groups: Vec<&[Row]> = rows.chunk_by(are_missing).collect();
    let names: Vec<String> = groups.iter().map(|group| name(group)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0).max(4);
    let mut table = format!(
        "{:<width$}  {:>9}  {:>9}  {:>8}  result\n",
        "step", "amount", "tests", "seconds"
    );
    for (name, group) in names.iter().zip(groups) {
        let record = group[0].record();
        let wanted = || group.iter().map(|row| row.step.amount).sum();
        let amount = record.map_or_else(wanted, |record| record.amount);
        let tests = or_dash(record.and_then(|record| Some(record.tests?.to_string())));
        let seconds = or_dash(record.map(|record| format!("{:.1}", record.seconds)));
        let result = group[0].result();
        table += &format!("{name:<width$}  {amount:>9}  {tests:>9}  {seconds:>8}  {result}\n");
        for measured in record.map_or(&[][..], |record| &record.measured) {
            table += &format!("    {measured}\n");
        }
    }
    table
}

/// The name of a step, or of some that follow each other.
fn name(group: &[Row]) -> String {
    let first = group[0].step.to_string();
    match group {
        [_, .., last] => format!("{first} to {}", last.step.part),
        _ => first,
    }
}

/// How many steps stand how, and whether they are all.
pub(super) fn summary(rows: &[Row], records: &[Record], tree: &str) -> String {
    let count = |is: fn(&Row) -> bool| rows.iter().filter(|row| is(row)).count();
    let new = count(|row| row.is_new && matches!(row.state, State::Passed(_)));
    let kept = count(|row| !row.is_new && matches!(row.state, State::Passed(_)));
    let failed = count(|row| matches!(row.state, State::Failed(_)));
    let skipped = count(|row| matches!(row.state, State::Skipped(_)));
    let missing = count(|row| row.state == State::Missing);
    let tree = fingerprint::short(tree);
    let all = rows.len();
    let counts = format!(
        "tree {tree}, {all} steps: {new} have passed in this run and {kept} in earlier ones, \
         {failed} have failed, {skipped} are skipped, {missing} are missing\n"
    );
    let verdict = match (failed, missing) {
        (0, 0) if skipped == 0 => "All steps have passed on this tree.".to_owned(),
        (0, 0) => "All steps but the skipped ones have passed on this tree.".to_owned(),
        (_, 0) => "All steps have run on this tree, and not all have passed.".to_owned(),
        _ => {
            let rows = rows.iter().filter(|row| row.state == State::Missing);
            let seconds = rows.map(|row| expected(records, row.step)).sum();
            let time = rough(seconds);
            format!("NOT ALL STEPS HAVE RUN ON THIS TREE: {missing} are missing, about {time}.")
        }
    };
    counts + &verdict
}

/// How long it has taken, or will take.
fn expected(records: &[Record], step: &Step) -> f64 {
    last_seconds(records, step).unwrap_or(step.estimate.seconds as f64)
}

/// The steps, how long they take, and how they stand.
pub(super) fn list(rows: &[Row], records: &[Record]) -> String {
    let names = rows.iter().map(|row| row.step.to_string().len());
    let width = names.max().unwrap_or(0).max(4);
    let mut list = format!(
        "{:<width$}  {:>9}  {:>7}  {:<28}  known from\n",
        "step", "amount", "takes", "on this tree"
    );
    for row in rows {
        let (step, result) = (row.step, row.result());
        let last = last_seconds(records, step);
        let from = last.map_or_else(|| step.estimate.origin.to_string(), |_| "last run".into());
        let takes = rough(expected(records, step));
        let (name, amount) = (step.to_string(), step.amount);
        list += &format!("{name:<width$}  {amount:>9}  {takes:>7}  {result:<28}  {from}\n");
    }
    list
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::{record, step};
    use super::*;

    const TREE: &str = "0123456789abcdef";

    #[test]
    fn the_table_tells_what_ran_what_is_kept_and_what_is_missing() {
        let step = step(1_000);
        let (passed, failed) = (record(TREE, 2_000, true), record(TREE, 1_000, false));
        let again = Record {
            failures: 2,
            tests: None,
            measured: vec!["3 lost".to_owned()],
            ..passed.clone()
        };
        let row = |state, is_new| Row {
            step: &step,
            state,
            is_new,
        };
        let rows = [
            row(State::Passed(&passed), true),
            row(State::Passed(&again), false),
            row(State::Failed(&failed), true),
            row(State::Failed(&failed), false),
            row(State::Skipped("no release yet"), false),
            row(State::Missing, false),
        ];
        let expected = "\
step                amount      tests   seconds  result
inbox kills 1/2       2000          7      12.5  ok
inbox kills 1/2       2000          -      12.5  ok, kept, had failed 2 times
\x20   3 lost
inbox kills 1/2       1000          7      12.5  FAILED
inbox kills 1/2       1000          7      12.5  FAILED, kept
inbox kills 1/2       1000          -         -  skipped: no release yet
inbox kills 1/2       1000          -         -  MISSING
";
        assert_eq!(table(&rows), expected);
        let expected = "\
tree 0123456789ab, 6 steps: 1 have passed in this run and 1 in earlier ones, 2 have failed, 1 are \
skipped, 1 are missing
NOT ALL STEPS HAVE RUN ON THIS TREE: 1 are missing, about 10 min.";
        assert_eq!(summary(&rows, &[], TREE), expected);
        let verdict = |rows: &[Row]| {
            let summary = summary(rows, &[], TREE);
            summary.lines().last().unwrap().to_owned()
        };
        assert_eq!(
            verdict(&rows[..5]),
            "All steps have run on this tree, and not all have passed."
        );
        assert_eq!(verdict(&rows[..2]), "All steps have passed on this tree.");
        let skipped = [row(State::Skipped("no release yet"), false)];
        assert_eq!(
            verdict(&skipped),
            "All steps but the skipped ones have passed on this tree."
        );
    }

    #[test]
    fn missing_parts_share_a_line() {
        let steps = ["1/4", "2/4", "3/4", "4/4"].map(|part| {
            let mut step = step(1_000);
            step.part = part.parse().unwrap();
            step
        });
        let passed = record(TREE, 1_000, true);
        let row = |step, state| Row {
            step,
            state,
            is_new: false,
        };
        let rows = [
            row(&steps[0], State::Missing),
            row(&steps[1], State::Passed(&passed)),
            row(&steps[2], State::Missing),
            row(&steps[3], State::Missing),
        ];
        let expected = "\
step                       amount      tests   seconds  result
inbox kills 1/4              1000          -         -  MISSING
inbox kills 2/4              1000          7      12.5  ok, kept
inbox kills 3/4 to 4/4       2000          -         -  MISSING
";
        assert_eq!(table(&rows), expected);
    }

    #[test]
    fn the_list_has_the_last_duration_or_an_estimate() {
        let step = step(1_000);
        let row = |state| Row {
            step: &step,
            state,
            is_new: false,
        };
        let mut passed = record("before", 1_000, true);
        passed.seconds = 1_200.0;
        let rows = [row(State::Missing)];
        let expected = "\
step                amount    takes  on this tree                  known from
inbox kills 1/2       1000   20 min  MISSING                       last run
";
        assert_eq!(list(&rows, &[passed]), expected);
        let expected = "\
step                amount    takes  on this tree                  known from
inbox kills 1/2       1000   10 min  MISSING                       guess: none
";
        assert_eq!(list(&rows, &[]), expected);
    }
}
