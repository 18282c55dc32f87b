//! Commands that run one after the other, and the table at the end.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Error;
use crate::libtest::Tally;
use crate::process::{self, Ended};

/// The steps that ran so far.
#[derive(Default)]
pub(crate) struct Steps {
    rows: Vec<Row>,
}

struct Row {
    name: String,
    outcome: Outcome,
    /// How many tests passed, in steps that run tests.
    tests: Option<usize>,
    took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    TimedOut,
    /// Exited well without a single test: a filter that has lost its tests must not look green.
    NoTests,
    Skipped(&'static str),
}

impl Steps {
    /// Runs a step that succeeds when `command` does.
    pub(crate) fn run(&mut self, name: &str, command: Command) -> Result<(), Error> {
        self.run_within(name, command, None)
    }

    /// Runs a step that succeeds when `command` does, in time.
    pub(crate) fn run_within(
        &mut self,
        name: &str,
        command: Command,
        limit: Option<Duration>,
    ) -> Result<(), Error> {
        let started = announce(name, &command);
        let outcome = match process::run(command, limit)? {
            Ended::TimedOut => Outcome::TimedOut,
            ended if ended.success() => Outcome::Passed,
            Ended::Exited(_) => Outcome::Failed,
        };
        self.finish(Row {
            name: name.to_owned(),
            outcome,
            tests: None,
            took: started.elapsed(),
        })
    }

    /// Runs a step that succeeds when `command`, a `cargo test`, has run tests and all have passed.
    pub(crate) fn run_tests(&mut self, name: &str, command: Command) -> Result<(), Error> {
        let started = announce(name, &command);
        let mut tally = Tally::default();
        let ended = process::run_reading(command, |line| {
            println!("{line}");
            tally.read(line);
        })?;
        let outcome = judge(ended.success(), &tally);
        let tests = Some(tally.passed);
        self.finish(Row {
            name: name.to_owned(),
            outcome,
            tests,
            took: started.elapsed(),
        })
    }

    /// Runs a step for which `judge` tells, once `command` has ended, how many tests have passed or
    /// what is wrong.
    pub(crate) fn run_judged(
        &mut self,
        name: &str,
        command: Command,
        judge: impl FnOnce(Ended) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        let started = announce(name, &command);
        let judged = judge(process::run(command, None)?);
        if let Err(error) = &judged {
            println!("{error}");
        }
        self.finish(Row {
            name: name.to_owned(),
            outcome: if judged.is_ok() {
                Outcome::Passed
            } else {
                Outcome::Failed
            },
            tests: judged.ok(),
            took: started.elapsed(),
        })
    }

    /// Notes a step that could not be started, and why.
    pub(crate) fn fail(&mut self, name: &str, why: &Error) -> Result<(), Error> {
        println!("\n==> {name}: {why}");
        self.finish(Row {
            name: name.to_owned(),
            outcome: Outcome::Failed,
            tests: None,
            took: Duration::ZERO,
        })
    }

    /// Notes a step that has nothing to run on, and why.
    pub(crate) fn skip(&mut self, name: &str, why: &'static str) {
        println!("\n==> {name}: skipped, {why}");
        let outcome = Outcome::Skipped(why);
        self.rows.push(Row {
            name: name.to_owned(),
            outcome,
            tests: None,
            took: Duration::ZERO,
        });
    }

    /// Whether no step has failed.
    pub(crate) fn all_passed(&self) -> bool {
        self.rows.iter().all(|row| row.outcome.is_good())
    }

    /// The steps as a table.
    pub(crate) fn table(&self) -> String {
        let width = self
            .rows
            .iter()
            .map(|row| row.name.chars().count())
            .max()
            .unwrap_or(0)
            .max(4);
        let mut table = format!(
            "{:<width$}  {:>7}  {:>8}  result\n",
            "step", "tests", "seconds"
        );
        for Row {
            name,
            outcome,
            tests,
            took,
        } in &self.rows
        {
            let tests = tests.map_or_else(|| "-".to_owned(), |tests| tests.to_string());
            let seconds = took.as_secs_f64();
            table += &format!("{name:<width$}  {tests:>7}  {seconds:>8.1}  {outcome}\n");
        }
        let total: Duration = self.rows.iter().map(|row| row.took).sum();
        table
            + &format!(
                "{:<width$}  {:>7}  {:>8.1}\n",
                "total",
                "",
                total.as_secs_f64()
            )
    }

    /// The steps for a machine to read.
    pub(crate) fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "name": row.name,
                "result": row.outcome.to_string(),
                "passed": row.outcome.is_good(),
                "tests": row.tests,
                "seconds": (row.took.as_secs_f64() * 10.0).round() / 10.0,
            })
        });
        rows.collect()
    }

    fn finish(&mut self, row: Row) -> Result<(), Error> {
        let Row {
            name,
            outcome,
            took,
            ..
        } = &row;
        println!("    {name}: {outcome}, {:.1} s", took.as_secs_f64());
        let result = if outcome.is_good() {
            Ok(())
        } else {
            Err(format!("`{name}` has not passed: {outcome}").into())
        };
        self.rows.push(row);
        result
    }
}

impl Outcome {
    fn is_good(self) -> bool {
        matches!(self, Outcome::Passed | Outcome::Skipped(_))
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Passed => f.write_str("ok"),
            Outcome::Failed => f.write_str("FAILED"),
            Outcome::TimedOut => f.write_str("FAILED: out of time"),
            Outcome::NoTests => f.write_str("FAILED: no test has run"),
            Outcome::Skipped(why) => write!(f, "skipped: {why}"),
        }
    }
}

fn announce(name: &str, command: &Command) -> Instant {
    println!("\n==> {name}: {}", process::display(command));
    Instant::now()
}

fn judge(success: bool, tally: &Tally) -> Outcome {
    match (success, tally.passed) {
        (false, _) => Outcome::Failed,
        (true, 0) => Outcome::NoTests,
        (true, _) => Outcome::Passed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_filter_that_matches_nothing_is_a_failure() {
        let mut steps = Steps::default();
        let empty = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'";
        let error = steps.run_tests("schedules", sh(empty)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`schedules` has not passed: FAILED: no test has run"
        );
        assert!(!steps.all_passed());
    }

    #[test]
    fn the_exit_code_decides_whatever_was_printed() {
        let mut steps = Steps::default();
        let script = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 1";
        assert!(steps.run_tests("tests", sh(script)).is_err());
        assert!(!steps.all_passed());
    }

    #[test]
    fn a_judge_hears_of_the_end_and_decides() {
        let mut steps = Steps::default();
        let judge = |ended: Ended| match ended.success() {
            true => Ok(3),
            false => Err("a survivor".into()),
        };
        steps.run_judged("mutations", sh("exit 0"), judge).unwrap();
        assert!(steps.all_passed());
        assert!(steps.run_judged("mutations", sh("exit 2"), judge).is_err());
        assert!(!steps.all_passed());
        let mut steps = Steps::default();
        assert!(steps.fail("mutations", &"no such program".into()).is_err());
        assert!(!steps.all_passed());
    }

    #[test]
    fn a_step_out_of_time_is_a_failure() {
        let mut steps = Steps::default();
        let error = steps.run_within("sleeper", sh("exec sleep 20"), Some(Duration::ZERO));
        assert!(error.unwrap_err().to_string().ends_with("out of time"));
    }

    #[test]
    fn the_table_and_the_report_tell_the_same() {
        let mut steps = Steps::default();
        steps
            .run_tests("tests", sh("echo 'test result: ok. 7 passed; 0 failed'"))
            .unwrap();
        steps.skip("replay", "no history");
        assert!(steps.run("docs", sh("exit 1")).is_err());
        steps
            .rows
            .iter_mut()
            .for_each(|row| row.took = Duration::from_millis(1_234));
        let table = "\
step      tests   seconds  result
tests         7       1.2  ok
replay        -       1.2  skipped: no history
docs          -       1.2  FAILED
total                 3.7
";
        assert_eq!(steps.table(), table);
        let report = json!([
            { "name": "tests", "result": "ok", "passed": true, "tests": 7, "seconds": 1.2 },
            { "name": "replay", "result": "skipped: no history", "passed": true, "tests": null, "seconds": 1.2 },
            { "name": "docs", "result": "FAILED", "passed": false, "tests": null, "seconds": 1.2 },
        ]);
        assert_eq!(steps.to_json(), report);
    }
}
