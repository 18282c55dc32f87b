//! `cargo xtask test`: everything that a change must pass.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::Error;
use crate::durations::{self, Durations};
use crate::executables::Executable;
use crate::job::{Job, Shows};
use crate::queue::{CAPACITY, Load};
use crate::rotation::{self, Rotation};
use crate::schedules;
use crate::setup;
use crate::shares;
use crate::steps::Steps;
use crate::versus::{VERSUS, VERSUS_KAFKA, VERSUS_LEADER, VERSUS_REDIS, VERSUS_SQL};
use crate::workspace::{self, cargo};

/// A program of tests that starts servers takes some minutes beside another one, on a busy machine
/// twice as long, the others half a minute at most; what takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(1_500);

/// The tests of the example `replay`, and what tells them where it is: they would build it with
/// other features.
const REPLAY: (&str, &str) = ("tests/replay", "KEYLANE_REPLAY_PROGRAM");

/// The programs whose tests run with the striped intake, too. `soak` runs all of them.
const STRIPED: [&str; 3] = ["tests/control", "tests/disciplines", "tests/engine"];

/// What measures this process or the whole machine, and so runs alone.
const ALONE: &str = "tests/memory";

/// What is linted, documented, built and tested: all members, in one build. With any other choice
/// of members or features, cargo builds their dependencies again. Not `--all-features`:
/// `tls-vendored` and `gssapi` of keylane-kafka need what `setup` does not install.
const WORKSPACE: &[&str] = &[
    "--workspace",
    "--features",
    "consume,handler,inbox,kafka,leader,metrics,redis,spool,tls",
];

/// The tests of memory, in a build without `metrics`, which takes more for each message. All other
/// features stay as they are in `WORKSPACE`, so that the dependencies are not built again.
const MEMORY: &[&str] = &[
    "--workspace",
    "--exclude",
    "http_orders",
    "--features",
    "consume,handler,inbox,kafka,leader,redis,spool,tls",
    "--test",
    "memory",
];

/// What users depend on, without the optional parts that `WORKSPACE` switches on. The test kits
/// have none, and switch features of Tokio on for the others. `tls` of keylane-kafka stays on:
/// without it librdkafka would be built again, from C.
const WITHOUT_FEATURES: &[&str] = &[
    "-p",
    "keylane",
    "-p",
    "keylane-cli",
    "-p",
    "keylane-connector",
    "-p",
    "keylane-console",
    "-p",
    "keylane-disk",
    "-p",
    "keylane-etcd",
    "-p",
    "keylane-inbox",
    "-p",
    "keylane-kafka",
    "-p",
    "keylane-lanes",
    "-p",
    "keylane-leader",
    "-p",
    "keylane-leases",
    "-p",
    "keylane-metrics",
    "-p",
    "keylane-otel",
    "-p",
    "keylane-queue",
    "-p",
    "keylane-redis",
    "-p",
    "keylane-rt",
    "-p",
    "keylane-semaphore",
    "-p",
    "keylane-source",
    "-p",
    "keylane-spool",
    "-p",
    "keylane-sql",
    "-p",
    "keylane-stream",
    "-p",
    "keylane-tower",
    "-p",
    "keylane-zookeeper",
    "--features",
    "keylane-kafka/tls",
];

/// Everything a change must pass: set-up, format, house, lints, docs, tests, 260,000 schedules,
/// examples
///
/// Stops at the first of the formats, measures and builds that fails; lints, docs, tests and
/// examples all run, side by side. The output of each is shown if it has failed. The schedule tests
/// try KEYLANE_SCHEDULES schedules over all scenarios with each of the two schedulers, if that is
/// set; `soak` runs ten times as many. Of the tests that run against several servers or protocols,
/// one runs in full, and a share of the others that the commit chooses: xtask/rotation.txt. At the
/// end, each part of the run is shown beside its share of 16 minutes, from xtask/shares.txt.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build the comparisons with the rivals too (heavy: they bring their own dependencies)
    #[arg(long)]
    with_versus: bool,
    /// Write how long each test and example took into xtask/durations.txt, if all have passed
    #[arg(long)]
    durations: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let durations = durations::parse(&read(durations::FILE)?)?;
    let shares = shares::parse(&read(shares::FILE)?)?;
    let rotation = rotation::parse(&read(rotation::FILE)?)?;
    // Before all steps: one command must do on a bare machine.
    setup::run(&setup::Args {})?;
    let mut steps = Steps::default();
    let outcome = all(args, &durations, &rotation, &mut steps);
    println!("\n{}", steps.table());
    println!("{}", shares.table(&steps.rows, steps.took));
    if args.durations && outcome.is_ok() {
        let jobs = steps.rows.iter().filter(|row| row.room.is_some());
        let took = jobs.map(|row| (&*row.name, row.took));
        let file = workspace::root().join(durations::FILE);
        fs::write(file, durations.measured(took))?;
    }
    outcome
}

fn read(file: &str) -> Result<String, Error> {
    let text = fs::read_to_string(workspace::root().join(file));
    text.map_err(|error| format!("{file}: {error}").into())
}

fn all(
    args: &Args,
    durations: &Durations,
    rotation: &Rotation,
    steps: &mut Steps,
) -> Result<(), Error> {
    steps.run("format", cargo(["fmt", "--all", "--check"]))?;
    steps.run("format, versus", cargo(["fmt", VERSUS, "--check"]))?;
    steps.run("format, versus-sql", cargo(["fmt", VERSUS_SQL, "--check"]))?;
    let format = cargo(["fmt", VERSUS_KAFKA, "--check"]);
    steps.run("format, versus-kafka", format)?;
    let format = cargo(["fmt", VERSUS_REDIS, "--check"]);
    steps.run("format, versus-redis", format)?;
    let format = cargo(["fmt", VERSUS_LEADER, "--check"]);
    steps.run("format, versus-leader", format)?;

    steps.run("house", cargo(["xtask", "house"]))?;

    tests_and_examples(durations, rotation, steps)?;

    if args.with_versus {
        steps.run("build, versus", cargo(["build", "--release", VERSUS]))?;
        let build = cargo(["build", "--release", VERSUS_SQL]);
        steps.run("build, versus-sql", build)?;
        let build = cargo(["build", "--release", VERSUS_KAFKA]);
        steps.run("build, versus-kafka", build)?;
        let build = cargo(["build", "--release", VERSUS_REDIS]);
        steps.run("build, versus-redis", build)?;
        let build = cargo(["build", "--release", VERSUS_LEADER]);
        steps.run("build, versus-leader", build)?;
    }
    Ok(())
}

/// Lints and docs: beside tests that wait for servers, they take little time of their own. Each has
/// one core, as its place in the queue says.
fn checks() -> impl Iterator<Item = Job> {
    let commands = [
        ("lints", lints(WORKSPACE, &["--all-targets"])),
        ("lints, no features", lints(WITHOUT_FEATURES, &[])),
        ("lints, schedules", schedules::clippy()),
        ("docs", docs(WORKSPACE)),
    ];
    commands.into_iter().map(|(name, mut command)| {
        command.env("CARGO_BUILD_JOBS", "1");
        Job {
            name: name.to_owned(),
            command,
            limit: None,
            shows: Shows::Success,
        }
    })
}

/// Clippy's lints over libraries, programs and, as `targets` says, more. Each is an error.
fn lints(packages: &[&str], targets: &[&str]) -> Command {
    let mut command = cargo(["clippy"]);
    command.args(packages).args(targets);
    command.args(["--", "-Dwarnings"]);
    command
}

/// Documentation in which a broken link is an error. It has an example, so that cargo switches on
/// the features that tests and examples need, and does not check their dependencies again.
fn docs(packages: &[&str]) -> Command {
    let mut command = cargo(["doc", "--no-deps", "--lib", "--bins", "--example", "hello"]);
    command.args(packages).env("RUSTDOCFLAGS", "-Dwarnings");
    command
}

/// Builds all tests and examples, and runs them side by side.
fn tests_and_examples(
    durations: &Durations,
    rotation: &Rotation,
    steps: &mut Steps,
) -> Result<(), Error> {
    let mut built = steps.run_build("build", tests(WORKSPACE))?;
    built.retain(|program| !(program.harness && program.place() == ALONE));
    built.extend(steps.run_build("build, memory", tests(MEMORY))?);

    let count = std::env::var(schedules::COUNT);
    let count = count.as_deref().unwrap_or(schedules::PER_CHANGE);
    let schedulers = schedules::SCHEDULERS.iter();
    let mut jobs: Vec<Job> = schedulers.map(|name| schedules(count, name)).collect();
    jobs.push(doc_tests(WORKSPACE));
    jobs.extend(checks());
    // None where the sources came without their git history.
    let turn = rotation::turn();
    jobs.extend(built.iter().filter_map(striped));
    for program in built.iter().filter(|program| program.harness) {
        let mut job = test(program);
        if let Some(turn) = turn {
            rotation.leave_out(program, turn, &mut job.command)?;
        }
        jobs.push(job);
    }
    for example in built.iter().filter(|program| program.kind == "example") {
        let name = format!("example {}", example.name);
        if example.name == "replay" && turn.is_none() {
            steps.skip(&name, "these sources came without their git history");
        } else {
            jobs.push(self::example(name, example));
        }
        if example.name == "replay"
            && let Some(tests) = jobs.iter_mut().find(|job| job.name == REPLAY.0)
        {
            tests.command.env(REPLAY.1, &example.path);
        }
    }

    let (alone, together): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.name == ALONE);
    let together = steps.run_together(together, durations, CAPACITY);
    let alone = steps.run_together(alone, durations, Load::Computes.weight());
    together.and(alone)
}

/// Builds unit and integration tests, and the examples of the same packages.
fn tests(packages: &[&str]) -> Command {
    let mut command = cargo(["test", "--no-run"]);
    command.args(packages);
    command
}

/// The unit tests of a target, or an integration test.
fn test(program: &Executable) -> Job {
    Job {
        name: program.place(),
        command: program.command(),
        limit: Some(LIMIT),
        shows: Shows::AnyTests,
    }
}

/// The same tests with the striped intake.
fn striped(program: &Executable) -> Option<Job> {
    let place = program.place();
    if !program.harness || !STRIPED.contains(&&*place) {
        return None;
    }
    let mut job = test(program);
    job.name = format!("{place}, striped");
    let (variable, striped) = schedules::STRIPED;
    job.command.env(variable, striped);
    Some(job)
}

fn doc_tests(packages: &[&str]) -> Job {
    let mut command = cargo(["test", "--doc", "--no-fail-fast"]);
    command.args(packages);
    Job {
        name: "doc tests".to_owned(),
        command,
        limit: None,
        shows: Shows::Tests,
    }
}

fn schedules(count: &str, scheduler: &str) -> Job {
    Job {
        name: format!("schedules, {scheduler}"),
        command: schedules::tests(count, scheduler),
        limit: None,
        shows: Shows::Tests,
    }
}

/// An example, started from the top of the repository.
fn example(name: String, program: &Executable) -> Job {
    let mut command = program.command();
    command.current_dir(workspace::root());
    // The exit status is the verdict, and less will do.
    match program.name.as_str() {
        "orders" => _ = command.args(["--check", "--load", "20000"]),
        "ledger" => _ = command.args(["--transfers", "2000"]),
        // With ZooKeeper: its tests start it with PostgreSQL.
        "watchman" => _ = command.args(["--rounds", "1"]),
        // In seconds: it serves until then.
        "console" => _ = command.arg("2"),
        _ => {}
    }
    Job {
        name,
        command,
        limit: Some(LIMIT),
        shows: Shows::Success,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_is_linted_without_features() {
        let crates = std::fs::read_dir(workspace::root().join("crates")).unwrap();
        let mut crates: Vec<String> = crates
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.contains("testkit"))
            .collect();
        let (packages, _) = WITHOUT_FEATURES.split_at(WITHOUT_FEATURES.len() - 2);
        let mut named: Vec<&str> = packages
            .iter()
            .copied()
            .filter(|arg| *arg != "-p")
            .collect();
        crates.sort_unstable();
        named.sort_unstable();
        assert_eq!(named, crates);
    }

    #[test]
    fn what_runs_alone_or_striped_is_there() {
        for place in STRIPED.into_iter().chain([ALONE]) {
            assert!(workspace::root().join(place).join("main.rs").is_file());
        }
    }
}
