//! `cargo xtask test`: all that a change must pass.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Error;
use crate::executables;
use crate::schedules;
use crate::setup;
use crate::steps::Steps;
use crate::workspace::{self, cargo};

/// An example is a short program; one that takes longer than this hangs.
const EXAMPLE_LIMIT: Duration = Duration::from_secs(120);

/// The examples that are servers. On their own, because they switch features on that would then hold for
/// everything that is built beside them; a step that names no package does not build them.
const SERVICES: [&str; 4] = ["-p", "http_orders", "-p", "grpc_accounts"];

/// Everything a change must pass: set-up, format, lints, docs, tests, 2,600,000 schedules, examples
///
/// Stops at the first step that fails. The schedule tests try KEYLANE_SCHEDULES schedules over all scenarios, if that is set.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build the comparison with the rivals too (heavy: they bring their own dependencies)
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

    let warnings = ["--", "-Dwarnings"];
    let mut clippy = cargo(["clippy", "--all-targets"]);
    clippy.args(warnings);
    steps.run("lints", clippy)?;
    let mut clippy = cargo(["clippy", "--all-targets"]);
    clippy.args(SERVICES).args(warnings);
    steps.run("lints, services", clippy)?;
    let mut clippy = cargo([
        "clippy",
        "-p",
        "keylane",
        "--all-targets",
        "--features",
        "metrics",
    ]);
    clippy.args(warnings);
    steps.run("lints, metrics", clippy)?;
    steps.run("lints, schedules", schedules::clippy())?;

    steps.run("docs", docs([]))?;
    steps.run("docs, services", docs(SERVICES))?;
    steps.run(
        "docs, metrics",
        docs(["-p", "keylane", "--features", "metrics"]),
    )?;

    steps.run_tests("tests", tests([]))?;
    steps.run_tests("tests, services", tests(SERVICES))?;
    steps.run_tests(
        "tests, metrics",
        tests(["-p", "keylane", "--features", "metrics"]),
    )?;
    let count = std::env::var(schedules::COUNT);
    let count = count.as_deref().unwrap_or(schedules::PER_CHANGE);
    for scheduler in schedules::SCHEDULERS {
        let name = format!("schedules, {scheduler}");
        steps.run_tests(&name, schedules::tests(count, scheduler))?;
    }

    examples(steps)?;

    if args.with_versus {
        let manifest = "--manifest-path=benches/versus/Cargo.toml";
        steps.run("format of versus", cargo(["fmt", manifest, "--check"]))?;
        steps.run("build of versus", cargo(["build", "--release", manifest]))?;
    }
    Ok(())
}

/// Documentation in which a broken link is an error.
fn docs<const N: usize>(packages: [&str; N]) -> Command {
    let mut command = cargo(["doc", "--no-deps"]);
    command.args(packages).env("RUSTDOCFLAGS", "-Dwarnings");
    command
}

/// Unit, integration and doc tests.
fn tests<const N: usize>(packages: [&str; N]) -> Command {
    let mut command = cargo(["test", "--no-fail-fast"]);
    // A snapshot that differs is a failure, not a new file in the tree.
    command.args(packages).env("INSTA_UPDATE", "no");
    command
}

/// Every example once, as its first reader would start it.
fn examples(steps: &mut Steps) -> Result<(), Error> {
    let built = executables::build(cargo(["build", "-p", "examples", "--examples"]))?;
    for example in built.iter().filter(|program| program.kind == "example") {
        let name = format!("example {}", example.name);
        if example.name == "replay" && !has_history(workspace::root()) {
            steps.skip(&name, "these sources came without their git history");
            continue;
        }
        let mut command = example.command();
        command.current_dir(workspace::root());
        steps.run_within(&name, command, Some(EXAMPLE_LIMIT))?;
    }
    Ok(())
}

fn has_history(folder: &Path) -> bool {
    let mut git = Command::new("git");
    git.current_dir(folder)
        .args(["rev-parse", "--verify", "--quiet", "HEAD"]);
    git.stdout(Stdio::null()).stderr(Stdio::null());
    git.status().is_ok_and(|status| status.success())
}
