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

/// The default members of the workspace.
const DEFAULT: &[&str] = &[];

/// The same without the examples.
const ALL_BUT_EXAMPLES: &[&str] = &[
    "--workspace",
    "--exclude",
    "examples",
    "--exclude",
    "http_orders",
    "--exclude",
    "grpc_accounts",
];

/// The examples that are one program each.
const EXAMPLES: &[&str] = &["-p", "examples"];

/// The examples that are servers. On their own, because they switch features on that would then
/// hold for everything that is built beside them; a step that names no package does not build them.
const SERVICES: &[&str] = &["-p", "http_orders", "-p", "grpc_accounts"];

/// The crate with its optional part.
const METRICS: &[&str] = &["-p", "keylane", "--features", "metrics"];

/// Everything a change must pass: set-up, format, lints, docs, tests, 260,000 schedules, examples
///
/// Stops at the first step that fails. The schedule tests try KEYLANE_SCHEDULES schedules over all
/// scenarios with each of the two schedulers, if that is set; `soak` runs ten times as many.
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

    steps.run("lints", lints(ALL_BUT_EXAMPLES))?;
    // With their own dependencies' features, as their first reader builds them. The tests build
    // them with everything else, and so they are run at the end.
    steps.run("lints, examples", lints(EXAMPLES))?;
    steps.run("lints, services", lints(SERVICES))?;
    steps.run("lints, metrics", lints(METRICS))?;
    steps.run("lints, schedules", schedules::clippy())?;

    steps.run("docs", docs(DEFAULT))?;
    steps.run("docs, services", docs(SERVICES))?;
    steps.run("docs, metrics", docs(METRICS))?;

    steps.run_tests("tests", tests(DEFAULT))?;
    steps.run_tests("tests, services", tests(SERVICES))?;
    steps.run_tests("tests, metrics", tests(METRICS))?;
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

/// Unit, integration and doc tests.
fn tests(packages: &[&str]) -> Command {
    let mut command = cargo(["test", "--no-fail-fast"]);
    command.args(packages);
    command
}

/// Every example once, from the top of the repository.
fn examples(steps: &mut Steps) -> Result<(), Error> {
    // Of all default members, as the tests were built: with fewer packages the features would
    // differ, and all be built again.
    let built = executables::build(cargo(["build", "--examples"]))?;
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
