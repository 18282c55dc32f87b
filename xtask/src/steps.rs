//! Commands that run one after the other or side by side, and the table at the end.

use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Error;
use crate::durations::Durations;
use crate::executables::{self, Executable};
use crate::job::{Job, Shows};
use crate::libtest::Tally;
use crate::outcome::Outcome;
use crate::process::{self, Ended};
use crate::queue::Queue;

/// The steps that ran so far.
#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) rows: Vec<Row>,
    /// From the first step to the last: steps side by side count once.
    pub(crate) took: Duration,
    /// What tests of [`run_tests`](Self::run_tests) have measured.
    pub(crate) measured: Vec<String>,
}

/// A step that has ended.
pub(crate) struct Row {
    pub(crate) name: String,
    outcome: Outcome,
    /// How many tests passed, in steps that run tests.
    tests: Option<usize>,
    pub(crate) took: Duration,
    /// The part of the capacity that it took, if it could run beside others.
    pub(crate) room: Option<f64>,
}

impl Row {
    /// How much longer the run has taken for it, if the capacity was in use all the time.
    pub(crate) fn cost(&self) -> Duration {
        self.took.mul_f64(self.room.unwrap_or(1.0))
    }

    #[cfg(test)]
    pub(crate) fn passed(name: &str, took: Duration, room: Option<f64>) -> Self {
        Self {
            name: name.to_owned(),
            outcome: Outcome::Passed,
            tests: None,
            took,
            room,
        }
    }
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
            room: None,
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
        let outcome = Shows::Tests.judge(ended.success(), &tally);
        let tests = Some(tally.passed);
        self.measured.extend(tally.measured);
        self.finish(Row {
            name: name.to_owned(),
            outcome,
            tests,
            took: started.elapsed(),
            room: None,
        })
    }

    /// Runs a step whose output goes to `line`, and for which `judge` tells, once `command` has
    /// ended, how many tests have passed or what is wrong.
    pub(crate) fn run_judged(
        &mut self,
        name: &str,
        command: Command,
        line: impl FnMut(&str) + Send,
        judge: impl FnOnce(Ended) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        let started = announce(name, &command);
        let judged = judge(process::run_reading(command, line)?);
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
            room: None,
        })
    }

    /// Runs a step that builds. What it has built and can be started.
    pub(crate) fn run_build(
        &mut self,
        name: &str,
        mut build: Command,
    ) -> Result<Vec<Executable>, Error> {
        let started = announce(name, &build);
        let mut built = Vec::new();
        build.arg(executables::MESSAGES);
        let ended =
            process::run_reading(build, |line| built.extend(executables::executable(line)))?;
        self.finish(Row {
            name: name.to_owned(),
            outcome: Shows::Success.judge(ended.success(), &Tally::default()),
            tests: None,
            took: started.elapsed(),
            room: None,
        })?;
        Ok(built)
    }

    /// Runs these, the longest first and so many at once as `capacity` has room for. All of them
    /// run, also after one has failed; what the failed ones have said is shown.
    pub(crate) fn run_together(
        &mut self,
        jobs: Vec<Job>,
        durations: &Durations,
        capacity: u32,
    ) -> Result<(), Error> {
        let started = Instant::now();
        let expected = |job: Job| (durations.of(&job.name), job);
        let mut queue = Queue::new(jobs.into_iter().map(expected).collect(), capacity);
        let mut running: Vec<String> = Vec::new();
        let (done, ended) = mpsc::channel();
        let mut first_error = None;
        thread::scope(|scope| {
            loop {
                while let Some((load, job)) = queue.start() {
                    println!("==> {}: {}", job.name, process::display(&job.command));
                    running.push(job.name.clone());
                    let done = done.clone();
                    scope.spawn(move || {
                        let name = job.name.clone();
                        // Read below until the last job has ended.
                        let _ = done.send((name, load, job.run()));
                    });
                }
                if running.is_empty() {
                    break;
                }
                let Ok((name, load, done)) = ended.recv_timeout(process::HEARTBEAT) else {
                    let seconds = started.elapsed().as_secs();
                    eprintln!("    … {seconds} s: {}", running.join(", "));
                    continue;
                };
                running.retain(|other| *other != name);
                queue.end(load);
                if !done.outcome.is_good() {
                    println!("\n{}", done.said);
                }
                let noted = self.note(Row {
                    name,
                    outcome: done.outcome,
                    tests: done.tests,
                    took: done.took,
                    room: Some((f64::from(load.weight()) / f64::from(capacity)).min(1.0)),
                });
                first_error = first_error.take().or(noted.err());
            }
        });
        self.took += started.elapsed();
        first_error.map_or(Ok(()), Err)
    }

    /// Notes a step that could not be started, and why.
    pub(crate) fn fail(&mut self, name: &str, why: &Error) -> Result<(), Error> {
        println!("\n==> {name}: {why}");
        self.finish(Row {
            name: name.to_owned(),
            outcome: Outcome::Failed,
            tests: None,
            took: Duration::ZERO,
            room: None,
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
            room: None,
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
            room: _,
        } in &self.rows
        {
            let tests = tests.map_or_else(|| "-".to_owned(), |tests| tests.to_string());
            let seconds = took.as_secs_f64();
            table += &format!("{name:<width$}  {tests:>7}  {seconds:>8.1}  {outcome}\n");
        }
        let tests: usize = self.rows.iter().filter_map(|row| row.tests).sum();
        let seconds = self.took.as_secs_f64();
        table + &format!("{:<width$}  {tests:>7}  {seconds:>8.1}\n", "total")
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
        self.took += row.took;
        self.note(row)
    }

    fn note(&mut self, row: Row) -> Result<(), Error> {
        let Row {
            name,
            outcome,
            tests,
            took,
            room: _,
        } = &row;
        let tests = tests.map_or_else(String::new, |tests| format!("{tests} tests, "));
        println!("    {name}: {outcome}, {tests}{:.1} s", took.as_secs_f64());
        let result = if outcome.is_good() {
            Ok(())
        } else {
            Err(format!("`{name}` has not passed: {outcome}").into())
        };
        self.rows.push(row);
        result
    }
}

fn announce(name: &str, command: &Command) -> Instant {
    println!("\n==> {name}: {}", process::display(command));
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::CAPACITY;

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
        let mut said = String::new();
        let script = sh("echo found");
        steps
            .run_judged("mutations", script, |line| said.push_str(line), judge)
            .unwrap();
        assert_eq!(said, "found");
        assert!(steps.all_passed());
        assert!(
            steps
                .run_judged("mutations", sh("exit 2"), |_| {}, judge)
                .is_err()
        );
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

    fn job(name: &str, script: &str) -> Job {
        Job {
            name: name.to_owned(),
            command: sh(script),
            limit: Some(Duration::from_secs(60)),
            shows: Shows::Success,
        }
    }

    #[test]
    fn jobs_run_side_by_side() {
        let folder = tempfile("together");
        let meet = |mine: &str, other: &str| {
            let folder = folder.display();
            format!("touch {folder}/{mine}; until test -e {folder}/{other}; do sleep 0.01; done")
        };
        let jobs = vec![job("a", &meet("a", "b")), job("b", &meet("b", "a"))];
        let mut steps = Steps::default();
        let outcome = steps.run_together(jobs, &Durations::default(), CAPACITY);
        std::fs::remove_dir_all(&folder).unwrap();
        outcome.unwrap();
        assert_eq!(steps.rows.len(), 2);
        let longest = steps.rows.iter().map(|row| row.took).max().unwrap();
        assert!(steps.took >= longest);
        let half = |row: &Row| row.room == Some(0.5);
        assert!(steps.rows.iter().all(half));
    }

    #[test]
    fn one_at_once_is_one_after_the_other() {
        let folder = tempfile("alone");
        let only = folder.join("only").display().to_string();
        let alone = format!("mkdir {only} && sleep 0.05 && rmdir {only}");
        let names = ["a", "b", "c"];
        let mut steps = Steps::default();
        let jobs = names.map(|name| job(name, &alone)).into();
        let outcome = steps.run_together(jobs, &Durations::default(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
        outcome.unwrap();
        let ran: Vec<_> = steps.rows.iter().map(|row| &*row.name).collect();
        assert_eq!(ran, names);
    }

    #[test]
    fn all_jobs_run_and_the_first_failure_is_told() {
        let jobs = vec![job("a", "exit 1"), job("b", "exit 2"), job("c", "true")];
        let mut steps = Steps::default();
        let outcome = steps.run_together(jobs, &Durations::default(), 1);
        let error = outcome.unwrap_err();
        assert_eq!(error.to_string(), "`a` has not passed: FAILED");
        assert_eq!(steps.rows.len(), 3);
        assert!(!steps.all_passed());
    }

    #[test]
    fn a_build_tells_what_can_be_started() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/t/Cargo.toml","executable":"/t/e",
            "target":{"kind":["test"],"name":"e"},"profile":{"test":true}}"#;
        let message = message.replace('\n', "");
        // What follows a script are its arguments, from `$0`.
        let asked = format!("test \"$0\" = {}", executables::MESSAGES);
        let mut steps = Steps::default();
        let built = steps
            .run_build("build", sh(&format!("{asked} && echo '{message}'")))
            .unwrap();
        assert_eq!(built.len(), 1);
        assert_eq!(built[0].place(), "t/e");
        assert!(steps.run_build("build", sh("exit 1")).is_err());
    }

    fn tempfile(name: &str) -> std::path::PathBuf {
        let name = format!("keylane-xtask-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
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
        steps.took = Duration::from_millis(3_702);
        let table = "\
step      tests   seconds  result
tests         7       1.2  ok
replay        -       1.2  skipped: no history
docs          -       1.2  FAILED
total         7       3.7
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
