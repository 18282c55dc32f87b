//! One test, run on the copy as it stands: with one planted bug or with none.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::switches;
use super::table::Planted;
use crate::Error;
use crate::executables::{self, Executable};
use crate::libtest::Tally;
use crate::process::{self, Ended};
use crate::schedules;
use crate::tree::Tree;
use crate::workspace;

/// What came of it.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) verdict: Verdict,
    /// Time of the run, without the build.
    pub(super) took: Duration,
}

/// What the test has shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// These tests have failed; none is named when the whole run was brought down.
    Caught { tests: Vec<String> },
    /// Still running at the limit.
    TimedOut,
    /// Everything has passed.
    Survived,
    /// No run, and why: nothing is known.
    Broken(String),
}

impl Trial {
    /// One that could not be run.
    pub(super) fn broken(why: String) -> Self {
        Trial {
            verdict: Verdict::Broken(why),
            took: Duration::ZERO,
        }
    }
}

impl Verdict {
    /// Whether the bug was found.
    pub(super) fn is_caught(&self) -> bool {
        matches!(self, Verdict::Caught { .. } | Verdict::TimedOut)
    }

    fn of(ended: Ended, tally: Tally) -> Self {
        match ended {
            Ended::TimedOut => Verdict::TimedOut,
            Ended::Exited(status) if !status.success() => Verdict::Caught {
                tests: tally.failures,
            },
            // A filter that matches nothing passes whatever is planted.
            Ended::Exited(_) if tally.passed == 0 => Verdict::Broken("no such test".to_owned()),
            Ended::Exited(_) => Verdict::Survived,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Caught { tests } => match &tests[..] {
                [] => f.write_str("the end of the test process"),
                [test] => f.write_str(test),
                [test, more @ ..] => write!(f, "{test} and {} more", more.len()),
            },
            Verdict::TimedOut => f.write_str("time-out"),
            Verdict::Survived => f.write_str("NOTHING: it survived"),
            Verdict::Broken(why) => write!(f, "NOT TRIED: {}", why.trim_end()),
        }
    }
}

/// Which bug is there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bug<'a> {
    None,
    /// The one that was built in.
    BuiltIn,
    /// The one of this name, of all that have a switch.
    Switched(&'a str),
}

/// Schedules over all scenarios, of which the test has its share. Most bugs are found in the first
/// second; a few show in one schedule of many thousands, and they must not escape by chance.
const SCHEDULES: u32 = 104_000_000;

/// How many times fewer there are without a bug: that a test passes at all is soon seen.
pub(super) const FEWER: u32 = 200;

/// Builds the test of `planted`. The error is why it cannot be run.
pub(super) fn build(tree: &Tree, planted: &Planted) -> Result<Executable, String> {
    let built = executables::build(build_command(tree, planted))
        .map_err(|error| format!("it does not build\n{error}"))?;
    built
        .into_iter()
        .find(|program| is_target(program, &planted.target))
        .ok_or_else(|| {
            format!(
                "{} has no test target `{}`",
                planted.package, planted.target
            )
        })
}

/// Runs the test of `planted`.
pub(super) fn run(
    test: &Executable,
    planted: &Planted,
    bug: Bug<'_>,
    limit: Duration,
) -> Result<Trial, Error> {
    let (name, count) = match bug {
        Bug::None => ("", SCHEDULES / FEWER),
        Bug::BuiltIn => ("", SCHEDULES),
        Bug::Switched(name) => (name, SCHEDULES),
    };
    let mut command = test.command();
    command
        .arg(&planted.test)
        .env(switches::PLANTED, name)
        .env(schedules::COUNT, count.to_string())
        .env(schedules::SCHEDULER, planted.scheduler.unwrap_or_default())
        // A failure is expected here: it must leave no saved cases in the tree.
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
    let mut tally = Tally::default();
    let started = Instant::now();
    let ended = process::run_silent(command, Some(limit), |line| tally.read(line), |_| {})?;
    Ok(Trial {
        verdict: Verdict::of(ended, tally),
        took: started.elapsed(),
    })
}

fn build_command(tree: &Tree, planted: &Planted) -> Command {
    let mut command = workspace::cargo(["test", "--no-run", "-p", &planted.package]);
    match &*planted.target {
        "lib" => command.arg("--lib"),
        test => command.args(["--test", test]),
    };
    // The others have a dev-dependency on themselves with the features of their tests.
    if planted.package == "keylane-metrics" {
        command.args(["--features", "metrics"]);
    }
    if planted.scheduler.is_some() {
        command.arg("--release");
        schedules::build_settings(&mut command);
    }
    tree.redirect(&mut command);
    command
}

fn is_target(program: &Executable, target: &str) -> bool {
    let named = if target == "lib" {
        program.kind == "lib"
    } else {
        program.name == target
    };
    program.harness && named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32) -> Ended {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exit {code}")]);
        process::run(command, None).unwrap()
    }

    fn tally(passed: usize, failures: &[&str]) -> Tally {
        let failures: Vec<String> = failures.iter().map(|&name| name.to_owned()).collect();
        Tally {
            passed,
            failed: failures.len(),
            failures,
            ..Tally::default()
        }
    }

    #[test]
    fn a_failing_test_is_a_catch() {
        let verdict = Verdict::of(ended(101), tally(3, &["order::a"]));
        assert!(verdict.is_caught());
        assert_eq!(verdict.to_string(), "order::a");
        let verdict = Verdict::of(ended(134), tally(0, &[]));
        assert!(verdict.is_caught());
        assert_eq!(verdict.to_string(), "the end of the test process");
        assert!(Verdict::of(Ended::TimedOut, tally(0, &[])).is_caught());
    }

    #[test]
    fn a_passing_test_and_no_test_are_none() {
        assert_eq!(Verdict::of(ended(0), tally(3, &[])), Verdict::Survived);
        assert!(!Verdict::Survived.is_caught());
        let lost = Verdict::of(ended(0), tally(0, &[]));
        assert_eq!(lost, Verdict::Broken("no such test".to_owned()));
        assert!(!lost.is_caught());
    }
}
