//! A program that may run beside others: what it says is kept, so that no lines mix.

use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::libtest::Tally;
use crate::outcome::Outcome;
use crate::process::{self, Ended};

/// What is to be run, and what it must show.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
    /// How long it may take. None for `cargo`: killing it would leave its child behind.
    pub(crate) limit: Option<Duration>,
    pub(crate) shows: Shows,
}

/// What a job shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    /// That it ends well.
    Success,
    /// That tests pass, as libtest prints them, and that there are any.
    Tests,
    /// The same of a target that may have none.
    AnyTests,
}

/// What came of a job.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    /// How many tests passed, where tests ran.
    pub(crate) tests: Option<usize>,
    pub(crate) took: Duration,
    /// All lines that it has printed.
    pub(crate) said: String,
}

impl Job {
    /// Runs it to its end or its limit.
    pub(crate) fn run(self) -> Done {
        let mut tally = Tally::default();
        let said = Mutex::new(String::new());
        let say = |line: &str| {
            let mut said = said.lock().expect("no reader panics");
            said.push_str(line);
            said.push('\n');
        };
        let started = Instant::now();
        let out = |line: &str| {
            tally.read(line);
            say(line);
        };
        let ended = process::run_silent(self.command, self.limit, out, say);
        let took = started.elapsed();
        let mut said = said.into_inner().expect("no reader panics");
        let outcome = match ended {
            Ok(Ended::TimedOut) => Outcome::TimedOut,
            Ok(ended) => self.shows.judge(ended.success(), &tally),
            Err(error) => {
                said = format!("{error}\n");
                Outcome::Failed
            }
        };
        let tests = (self.shows != Shows::Success).then_some(tally.passed);
        Done {
            outcome,
            tests,
            took,
            said,
        }
    }
}

impl Shows {
    /// What the exit code and the tests say together.
    pub(crate) fn judge(self, success: bool, tally: &Tally) -> Outcome {
        match self {
            _ if !success => Outcome::Failed,
            Shows::Tests if tally.passed == 0 => Outcome::NoTests,
            Shows::Success | Shows::Tests | Shows::AnyTests => Outcome::Passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit: Option<Duration>, shows: Shows) -> Done {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let name = "job".to_owned();
        let job = Job {
            name,
            command,
            limit,
            shows,
        };
        job.run()
    }

    const THREE: &str = "echo 'test result: ok. 3 passed; 0 failed'";

    #[test]
    fn both_outputs_are_kept_and_the_tests_counted() {
        let script = format!("{THREE}; echo worry >&2");
        let done = run(&script, None, Shows::Tests);
        assert_eq!((done.outcome, done.tests), (Outcome::Passed, Some(3)));
        assert!(done.said.contains("3 passed"), "{}", done.said);
        assert!(done.said.contains("worry\n"), "{}", done.said);
        let done = run(&script, None, Shows::Success);
        assert_eq!((done.outcome, done.tests), (Outcome::Passed, None));
    }

    #[test]
    fn no_tests_are_a_failure_where_some_must_be() {
        let outcome = |shows| run("true", None, shows).outcome;
        assert_eq!(outcome(Shows::Tests), Outcome::NoTests);
        assert_eq!(outcome(Shows::AnyTests), Outcome::Passed);
        assert_eq!(outcome(Shows::Success), Outcome::Passed);
    }

    #[test]
    fn a_bad_end_and_no_end_are_failures() {
        let done = run(&format!("{THREE}; exit 1"), None, Shows::Tests);
        assert_eq!(done.outcome, Outcome::Failed);
        let done = run("exec sleep 20", Some(Duration::ZERO), Shows::AnyTests);
        assert_eq!(done.outcome, Outcome::TimedOut);
    }

    #[test]
    fn a_job_that_cannot_start_says_why() {
        let job = Job {
            name: "none".to_owned(),
            command: Command::new("no-such-program"),
            limit: None,
            shows: Shows::Success,
        };
        let done = job.run();
        assert_eq!(done.outcome, Outcome::Failed);
        assert!(done.said.contains("`no-such-program`"), "{}", done.said);
    }
}
