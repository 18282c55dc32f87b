//! `cargo xtask test`: everything that a change must pass.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Error;
use crate::executables::Executable;
use crate::job::{Job, Shows};
use crate::schedules;
use crate::setup;
use crate::steps::Steps;
use crate::versus::{VERSUS, VERSUS_KAFKA, VERSUS_REDIS, VERSUS_SQL};
use crate::workspace::{self, cargo};

/// A program of tests that starts servers takes some minutes beside another one, on a busy machine
/// twice as long, the others half a minute at most; what takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(1_500);

/// How many programs run at once: many of them wait most of the time.
const AT_ONCE: usize = 2;

/// What measures this process or the whole machine, and so runs alone.
const ALONE: &str = "tests/memory";

/// The default members of the workspace.
const DEFAULT: &[&str] = &[];

/// The same without the examples.
const ALL_BUT_EXAMPLES: &[&str] = &[
    "--workspace",
    "--exclude",
    "examples",
    "--exclude",
    "orders",
    "--exclude",
    "ledger",
    "--exclude",
    "kafka_orders",
    "--exclude",
    "redis_workers",
    "--exclude",
    "http_orders",
    "--exclude",
    "grpc_accounts",
];

/// The examples that are built with what names no package.
const EXAMPLES: &[&str] = &[
    "-p",
    "examples",
    "-p",
    "orders",
    "-p",
    "ledger",
    "-p",
    "kafka_orders",
    "-p",
    "redis_workers",
];

/// The examples that are servers. Not with the others, because they switch features on that would
/// then hold for everything that is built beside them; a step that names no package does not build
/// them.
const SERVICES: &[&str] = &["-p", "http_orders", "-p", "grpc_accounts"];

/// The crate with its optional part.
const METRICS: &[&str] = &["-p", "keylane", "--features", "metrics"];

/// Both in one build: the servers switch that part on too.
const SERVICES_AND_METRICS: &[&str] = &[
    "-p",
    "http_orders",
    "-p",
    "grpc_accounts",
    "-p",
    "keylane",
    "--features",
    "keylane/metrics",
];

/// Everything a change must pass: set-up, format, house, lints, docs, tests, 260,000 schedules,
/// examples
///
/// Stops at the first of the formats, measures, lints, docs and builds that fails; tests and
/// examples all run. The output of a test is shown if it has failed. The schedule tests try
/// KEYLANE_SCHEDULES schedules over all scenarios with each of the two schedulers, if that is set;
/// `soak` runs ten times as many.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build the comparisons with the rivals too (heavy: they bring their own dependencies)
    #[arg(long)]
    with_versus: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    // First of all: one command must do on a bare machine.
    setup::run(&setup::Args {})?;
    let mut steps = Steps::default();
    let outcome = all(args, &mut steps);
    println!("\n{}", steps.table());
    outcome
}

fn all(args: &Args, steps: &mut Steps) -> Result<(), Error> {
    steps.run("format", cargo(["fmt", "--all", "--check"]))?;
    steps.run("format, versus", cargo(["fmt", VERSUS, "--check"]))?;
    steps.run("format, versus-sql", cargo(["fmt", VERSUS_SQL, "--check"]))?;
    let format = cargo(["fmt", VERSUS_KAFKA, "--check"]);
    steps.run("format, versus-kafka", format)?;
    let format = cargo(["fmt", VERSUS_REDIS, "--check"]);
    steps.run("format, versus-redis", format)?;

    steps.run("house", cargo(["xtask", "house"]))?;

    steps.run("lints", lints(ALL_BUT_EXAMPLES))?;
    // With their own dependencies' features, as their first reader builds them. For the tests they
    // are built with everything else.
    steps.run("lints, examples", lints(EXAMPLES))?;
    steps.run("lints, services", lints(SERVICES))?;
    steps.run("lints, metrics", lints(METRICS))?;
    steps.run("lints, schedules", schedules::clippy())?;

    steps.run("docs", docs(DEFAULT))?;
    steps.run("docs, metrics", docs(SERVICES_AND_METRICS))?;

    tests_and_examples(steps)?;

    if args.with_versus {
        steps.run("build, versus", cargo(["build", "--release", VERSUS]))?;
        let build = cargo(["build", "--release", VERSUS_SQL]);
        steps.run("build, versus-sql", build)?;
        let build = cargo(["build", "--release", VERSUS_KAFKA]);
        steps.run("build, versus-kafka", build)?;
        let build = cargo(["build", "--release", VERSUS_REDIS]);
        steps.run("build, versus-redis", build)?;
    }
    Ok(())
}

/// Clippy's lints, each an error.
fn lints(packages: &[&str]) -> Command {
    let mut command = cargo(["clippy", "--all-targets"]);
    command.args(packages).args(["--", "-Dwarnings"]);
    command
}

/// Documentation in which a broken link is an error.
fn docs(packages: &[&str]) -> Command {
    let mut command = cargo(["doc", "--no-deps"]);
    command.args(packages).env("RUSTDOCFLAGS", "-Dwarnings");
    command
}

/// Builds all tests and examples, and runs them side by side.
fn tests_and_examples(steps: &mut Steps) -> Result<(), Error> {
    let default = steps.run_build("build", tests(DEFAULT))?;
    let metrics = steps.run_build("build, metrics", tests(SERVICES_AND_METRICS))?;

    // What takes longest comes first, and what needs a build: it uses the time in which the others
    // wait.
    let count = std::env::var(schedules::COUNT);
    let count = count.as_deref().unwrap_or(schedules::PER_CHANGE);
    let mut jobs = vec![
        schedules(count, schedules::SCHEDULERS[0]),
        doc_tests("doc tests", DEFAULT),
        doc_tests("doc tests, metrics", SERVICES_AND_METRICS),
    ];
    let of = |built: &[Executable], suffix: &str| -> Vec<Job> {
        let tests = built.iter().filter(|program| program.harness);
        tests.map(|program| test(program, suffix)).collect()
    };
    jobs.extend(of(&default, ""));
    jobs.extend(of(&metrics, ", metrics"));
    for example in default.iter().filter(|program| program.kind == "example") {
        let name = format!("example {}", example.name);
        if example.name == "replay" && !has_history(workspace::root()) {
            steps.skip(&name, "these sources came without their git history");
        } else {
            jobs.push(self::example(name, example));
        }
    }
    let others = &schedules::SCHEDULERS[1..];
    jobs.extend(others.iter().map(|scheduler| schedules(count, scheduler)));

    let (alone, together): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.name == ALONE);
    let together = steps.run_together(together, AT_ONCE);
    let alone = steps.run_together(alone, 1);
    together.and(alone)
}

/// Builds unit and integration tests, and the examples of the same packages.
fn tests(packages: &[&str]) -> Command {
    let mut command = cargo(["test", "--no-run"]);
    command.args(packages);
    command
}

/// The unit tests of a target, or an integration test.
fn test(program: &Executable, suffix: &str) -> Job {
    Job {
        name: format!("{}{suffix}", program.place()),
        command: program.command(),
        limit: Some(LIMIT),
        shows: Shows::AnyTests,
    }
}

fn doc_tests(name: &str, packages: &[&str]) -> Job {
    let mut command = cargo(["test", "--doc", "--no-fail-fast"]);
    command.args(packages);
    Job {
        name: name.to_owned(),
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
        _ => {}
    }
    Job {
        name,
        command,
        limit: Some(LIMIT),
        shows: Shows::Success,
    }
}

fn has_history(folder: &Path) -> bool {
    let mut git = Command::new("git");
    git.current_dir(folder)
        .args(["rev-parse", "--verify", "--quiet", "HEAD"]);
    git.stdout(Stdio::null()).stderr(Stdio::null());
    git.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_alone_is_there() {
        assert!(workspace::root().join(ALONE).join("main.rs").is_file());
    }
}
