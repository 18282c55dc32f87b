//! `cargo mutants`: it changes one expression of the pure parts after the other, and a unit test
//! must fail.
//!
//! What survives is listed in `xtask/survivors.txt`, with the reason why no test can or need find
//! it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Error;
use crate::part::Part;
use crate::process::Ended;
use crate::setup;
use crate::tree::Tree;
use crate::workspace;

/// The packages that the files belong to. For a mutation, only the unit tests of its package run.
const PACKAGES: [&str; 3] = ["keylane", "keylane-lanes", "keylane-queue"];

/// The tests that may find a mutation: those of the same modules. No other one is run, so that a
/// mutation costs seconds.
const TESTS: &[&str] = &[
    // `keylane`
    "engine::outcome::verdict::",
    "rate::",
    "retry::",
    // `keylane-lanes`
    "gate::",
    "gcra::",
    "lane::",
    "map::",
    "model::",
    "ready::",
    "rules::",
    "timers::",
    // `keylane-queue`
    "expiry_queue::",
    "lease_table::",
];

/// What is in the files, and only there for the schedule explorer.
const EXCEPT: &str = "modelled::";

/// A mutation that makes a loop endless is stopped after so many seconds; the tests take a few.
const TIMEOUT: &str = "60";

/// The files that are mutated: they decide, and do not wait.
const FILES: &[&str] = &[
    "crates/keylane-lanes/src/gate.rs",
    "crates/keylane-lanes/src/gcra.rs",
    "crates/keylane-lanes/src/item.rs",
    "crates/keylane-lanes/src/lane/backlog.rs",
    "crates/keylane-lanes/src/lane/core.rs",
    "crates/keylane-lanes/src/lane/decide.rs",
    "crates/keylane-lanes/src/lane/deque.rs",
    "crates/keylane-lanes/src/lane/effects.rs",
    "crates/keylane-lanes/src/lane/end.rs",
    "crates/keylane-lanes/src/lane/gate.rs",
    "crates/keylane-lanes/src/lane/hold.rs",
    "crates/keylane-lanes/src/lane/more.rs",
    "crates/keylane-lanes/src/lane/next.rs",
    "crates/keylane-lanes/src/lane/offer.rs",
    "crates/keylane-lanes/src/lane/plan/batch.rs",
    "crates/keylane-lanes/src/lane/plan/coalesce.rs",
    "crates/keylane-lanes/src/lane/plan/kept.rs",
    "crates/keylane-lanes/src/lane/plan/sequence.rs",
    "crates/keylane-lanes/src/lane/plan/sequencer.rs",
    "crates/keylane-lanes/src/lane/rejoin.rs",
    "crates/keylane-lanes/src/lane/state.rs",
    "crates/keylane-lanes/src/lane/step.rs",
    "crates/keylane-lanes/src/lane/wake.rs",
    "crates/keylane-lanes/src/map.rs",
    "crates/keylane-lanes/src/ready/mod.rs",
    "crates/keylane-lanes/src/ready/order.rs",
    "crates/keylane-lanes/src/ready/pace.rs",
    "crates/keylane-lanes/src/ready/queue.rs",
    "crates/keylane-lanes/src/rules.rs",
    "crates/keylane-lanes/src/timers.rs",
    "crates/keylane-queue/src/expiry_queue.rs",
    "crates/keylane-queue/src/lease_table.rs",
    "crates/keylane/src/engine/failures/verdict.rs",
    "crates/keylane/src/rate/memory.rs",
    "crates/keylane/src/rate/mod.rs",
    "crates/keylane/src/rate/spec.rs",
    "crates/keylane/src/retry/budget.rs",
    "crates/keylane/src/retry/mod.rs",
    "crates/keylane/src/retry/policy.rs",
];

/// The survivors that have been looked at.
const SURVIVORS: &str = "xtask/survivors.txt";

/// A line of that file: `<file>: <mutation> # <reason>`.
#[derive(Debug, PartialEq, Eq)]
struct Survivor {
    /// As `cargo mutants` prints it, without line and column.
    mutation: String,
}

/// Prints the lines of `cargo mutants`, and how far it is.
pub(crate) fn progress() -> impl FnMut(&str) + Send {
    let mut progress = Progress::default();
    move |line| println!("{}", progress.numbered(line))
}

/// The mutations that have been tried, of how many.
#[derive(Debug, Default)]
struct Progress {
    tried: usize,
    of: usize,
}

impl Progress {
    /// The line with a number in front, if it is the end of a mutation.
    fn numbered(&mut self, line: &str) -> String {
        let mut words = line.split(' ');
        match words.next() {
            Some("Found") => {
                self.of = words.next().and_then(|of| of.parse().ok()).unwrap_or(0);
                line.to_owned()
            }
            Some("caught" | "MISSED" | "TIMEOUT" | "unviable") => {
                self.tried += 1;
                format!("[{}/{}] {line}", self.tried, self.of)
            }
            _ => line.to_owned(),
        }
    }
}

/// The command that mutates all files in the copy: this part of all mutations.
pub(crate) fn command(tree: &Tree, part: Part) -> Result<Command, Error> {
    // It counts from 0.
    let shard = format!("{}/{}", part.number() - 1, part.of());
    let mut command = Command::new(setup::mutation_tester()?);
    command
        .args(["mutants", "--in-place", "--colors", "never"])
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
        .args(FILES.iter().flat_map(|file| ["--file", *file]))
        .args(["--exclude-re", EXCEPT])
        .args(["--timeout", TIMEOUT])
        // A line for each, as progress.
        .args(["--caught", "--unviable"])
        .args(["--sharding", "round-robin", "--shard", &shard])
        .arg("--output")
        .arg(output())
        .args(["--", "--lib", "--"])
        .args(TESTS);
    tree.redirect(&mut command);
    command
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        // A failure is expected here: it must leave no saved cases in the copy, and the smallest
        // one is not looked for.
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        // What survives once survives each time.
        .env("PROPTEST_RNG_SEED", "1");
    Ok(command)
}

/// What `cargo mutants` has found, once it has ended: how many mutations a test has found, if no
/// other has survived than those that are listed.
pub(crate) fn judge(ended: Ended) -> Result<usize, Error> {
    // 2: some have survived. 3: a test was stopped at its time limit, so it has found something.
    match ended {
        Ended::Exited(status) if matches!(status.code(), Some(0 | 2 | 3)) => {}
        _ => return Err("cargo mutants has not come to its end".into()),
    }
    let results = output().join("mutants.out");
    let outcomes = std::fs::read_to_string(results.join("outcomes.json"))?;
    let outcomes: Value = serde_json::from_str(&outcomes)?;
    let count = |name: &str| outcomes[name].as_u64().unwrap_or(0);
    let found = count("caught") + count("timeout");
    if found == 0 {
        return Err("no mutation was found by a test: have the files moved?".into());
    }
    let missed = std::fs::read_to_string(results.join("missed.txt"))?;
    let unlisted = unlisted(&missed, &read(workspace::root())?);
    if unlisted.is_empty() {
        Ok(usize::try_from(found)?)
    } else {
        let lines = unlisted.join("\n    ");
        Err(format!("survived, and not in {SURVIVORS}:\n    {lines}").into())
    }
}

/// Where `cargo mutants` puts what it has found.
fn output() -> PathBuf {
    workspace::target("mutation")
}

/// The lines of `missed` that are not among the `survivors`. Each survivor stands for one line.
fn unlisted<'a>(missed: &'a str, survivors: &[Survivor]) -> Vec<&'a str> {
    let mut listed: Vec<&str> = survivors.iter().map(|line| &*line.mutation).collect();
    let is_unlisted = |line: &&str| {
        let mutation = without_position(line);
        match listed.iter().position(|listed| *listed == mutation) {
            Some(at) => {
                listed.swap_remove(at);
                false
            }
            None => true,
        }
    };
    missed.lines().filter(is_unlisted).collect()
}

/// `src/a.rs:30:9: replace …` as `src/a.rs: replace …`: other changes to the file move the rest of
/// it.
fn without_position(line: &str) -> String {
    let Some((position, mutation)) = line.split_once(": ") else {
        return line.to_owned();
    };
    let file = position.split(':').next().unwrap_or_default();
    format!("{file}: {mutation}")
}

fn read(root: &Path) -> Result<Vec<Survivor>, Error> {
    parse(&std::fs::read_to_string(root.join(SURVIVORS))?)
}

/// Reads the survivors. A line that begins with `#` is a comment.
fn parse(text: &str) -> Result<Vec<Survivor>, Error> {
    let mut survivors = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{SURVIVORS}, line {}", index + 1);
        let Some((mutation, reason)) = line.split_once(" # ") else {
            return Err(format!("{place}: no reason, after ` # `").into());
        };
        let mutation = mutation.trim();
        if reason.trim().is_empty() {
            return Err(format!("{place}: the reason is empty").into());
        }
        let file = mutation.split(": ").next().unwrap_or_default();
        if !FILES.contains(&file) {
            return Err(format!("{place}: `{file}` is not mutated").into());
        }
        let mutation = mutation.to_owned();
        survivors.push(Survivor { mutation });
    }
    Ok(survivors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutation_has_its_number() {
        let mut progress = Progress::default();
        let lines = [
            ("Found 3 mutants to test", "Found 3 mutants to test"),
            ("ok       Unmutated baseline", "ok       Unmutated baseline"),
            ("caught   a.rs: replace a", "[1/3] caught   a.rs: replace a"),
            ("MISSED   a.rs: replace b", "[2/3] MISSED   a.rs: replace b"),
            ("TIMEOUT  a.rs: replace c", "[3/3] TIMEOUT  a.rs: replace c"),
            ("3 mutants tested in 9s", "3 mutants tested in 9s"),
        ];
        for (line, numbered) in lines {
            assert_eq!(progress.numbered(line), numbered);
        }
    }

    fn survivor(line: &str) -> String {
        format!("{}: replace {line}", FILES[0])
    }

    #[test]
    fn every_file_is_there() {
        for file in FILES {
            assert!(workspace::root().join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn every_survivor_has_a_reason() {
        read(workspace::root()).unwrap();
        let error = |text: String| parse(&text).unwrap_err().to_string();
        let place = "xtask/survivors.txt, line 2: ";
        let bare = error(format!("\n{}", survivor("a")));
        assert_eq!(bare, format!("{place}no reason, after ` # `"));
        let blank = error(format!("\n{} #  ", survivor("a")));
        assert_eq!(blank, format!("{place}the reason is empty"));
        let other = error("\nsrc/no.rs: replace a # because".to_owned());
        assert_eq!(other, format!("{place}`src/no.rs` is not mutated"));
    }

    #[test]
    fn a_listed_survivor_stands_for_one_in_its_file() {
        let file = FILES[0];
        let text = format!(
            "# comment\n\n{} # equal\n{} # a # b\n",
            survivor("< with <= in f"),
            survivor("f with ()"),
        );
        let survivors = parse(&text).unwrap();
        let missed = format!(
            "{file}:3:9: replace < with <= in f\n\
             {file}:5:9: replace < with <= in f\n\
             {file}:7:1: replace f with ()\n\
             src/other.rs:7:1: replace f with ()\n",
        );
        let expected = [
            format!("{file}:5:9: replace < with <= in f"),
            "src/other.rs:7:1: replace f with ()".to_owned(),
        ];
        assert_eq!(unlisted(&missed, &survivors), expected);
        assert!(unlisted("", &survivors).is_empty());
    }
}
