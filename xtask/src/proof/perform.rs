//! A step as it runs.

use serde_json::Value;

use super::step::{Step, Work, seed};
use crate::Error;
use crate::cargo_mutants;
use crate::part::Part;
use crate::steps::Steps;
use crate::tree::Tree;

/// The random tests read from here with which numbers they are made: those of proptest, and those
/// that are made by hand.
const SEEDS: [&str; 2] = ["PROPTEST_RNG_SEED", "KEYLANE_SEED"];

/// Tells the hash of the tree.
pub(super) type Hash = fn() -> Result<String, Error>;

/// What came of a step.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) passed: bool,
    pub(super) result: String,
    pub(super) tests: Option<u64>,
    pub(super) seconds: f64,
    pub(super) measured: Vec<String>,
    /// The hash of the tree after it, or at the moment at which it made a copy.
    pub(super) tree: String,
}

/// Runs `step` with this amount and with the seed of a run. What is wrong with the step is in the
/// result.
pub(super) fn perform(step: &Step, amount: u64, run: u64, hash: Hash) -> Result<Done, Error> {
    let name = step.to_string();
    let mut steps = Steps::default();
    let mut copied = None;
    let outcome = match &step.work {
        Work::Tests(command) => {
            let seed = seed(run, step.part).to_string();
            let mut command = command(amount);
            command.envs(SEEDS.map(|variable| (variable, &seed)));
            steps.run_tests(&name, command)
        }
        Work::Check(command) => match command() {
            Ok(command) => steps.run(&name, command),
            Err(error) => steps.fail(&name, &error),
        },
        Work::SinceRelease { command, release } => {
            match command(release.as_deref().unwrap_or_default()) {
                Ok(command) => steps.run(&name, command),
                Err(error) => steps.fail(&name, &error),
            }
        }
        Work::Mutations => {
            // The copy is locked until the step is over.
            let tree = Tree::of_workspace();
            copied = Some(hash()?);
            mutations(&name, step.part, tree.as_ref(), &mut steps)
        }
    };
    if let Err(error) = &outcome {
        eprintln!("{error}");
    }
    let tree = copied.map_or_else(hash, Ok)?;
    Ok(done(outcome, &steps, tree))
}

fn mutations(
    name: &str,
    part: Part,
    tree: Result<&Tree, &Error>,
    steps: &mut Steps,
) -> Result<(), Error> {
    let tree = match tree {
        Ok(tree) => tree,
        Err(error) => return steps.fail(name, error),
    };
    match cargo_mutants::command(tree, part) {
        Ok(command) => {
            let (progress, judge) = (cargo_mutants::progress(), cargo_mutants::judge);
            steps.run_judged(name, command, progress, judge)
        }
        Err(error) => steps.fail(name, &error),
    }
}

fn done(outcome: Result<(), Error>, steps: &Steps, tree: String) -> Done {
    let rows = steps.to_json();
    let row = &rows[0];
    // A program that could not be started has no row.
    let result = match (&outcome, row["result"].as_str()) {
        (_, Some(result)) => result.to_owned(),
        (Err(error), None) => format!("FAILED: {error}"),
        (Ok(()), None) => "FAILED: it has not run".to_owned(),
    };
    Done {
        passed: outcome.is_ok() && row["passed"] == Value::Bool(true) && steps.all_passed(),
        result,
        tests: row["tests"].as_u64(),
        seconds: row["seconds"].as_f64().unwrap_or(0.0),
        measured: steps.measured.clone(),
        tree,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::results::tests::step;
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn performed(work: Work) -> Done {
        let mut step = step(7);
        step.part = "2/2".parse().unwrap();
        step.work = work;
        perform(&step, 7, 4_711, || Ok("now".to_owned())).unwrap()
    }

    #[test]
    fn the_amount_and_the_seeds_reach_the_tests() {
        let done = performed(Work::Tests(|amount| {
            sh(&format!(
                "test {amount} = 7 || exit 1
                 test $KEYLANE_SEED = $PROPTEST_RNG_SEED || exit 1
                 echo \"test result: ok. $KEYLANE_SEED passed; 0 failed\"",
            ))
        }));
        assert!(done.passed, "{}", done.result);
        assert_eq!(done.result, "ok");
        let seed = seed(4_711, "2/2".parse().unwrap());
        assert_eq!(done.tests, Some(seed));
        assert_eq!(done.tree, "now");
    }

    #[test]
    fn no_test_no_success_and_no_program_are_failures() {
        let done = performed(Work::Tests(|_| sh("true")));
        assert!(!done.passed);
        assert_eq!(done.result, "FAILED: no test has run");
        let done = performed(Work::Check(|| Ok(sh("exit 1"))));
        assert_eq!((done.passed, &*done.result), (false, "FAILED"));
        let done = performed(Work::Check(|| Ok(Command::new("no-such-program"))));
        assert!(!done.passed);
        assert!(done.result.contains("`no-such-program`"), "{}", done.result);
        let done = performed(Work::Check(|| Err("no network".into())));
        assert_eq!((done.passed, &*done.result), (false, "FAILED"));
    }

    #[test]
    fn a_check_gets_its_release() {
        let work = Work::SinceRelease {
            command: |release| Ok(sh(&format!("test {release} = v1"))),
            release: Some("v1".to_owned()),
        };
        let done = performed(work);
        assert!(done.passed, "{}", done.result);
        assert_eq!(done.tests, None);
    }
}
