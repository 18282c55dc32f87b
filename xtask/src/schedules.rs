//! The schedule tests: the engine's own code under shuttle, which decides who runs next.

use std::process::Command;

use crate::workspace;

/// Selects shuttle's runtime instead of Tokio's inside the engine.
const CFG: &str = "--cfg keylane_shuttle";

/// What the names of all schedule tests begin with or contain, and no other test's.
const FILTER: &str = "schedules";

/// The packages that are built for the model checker.
const MODELLED: [&str; 5] = [
    "keylane",
    "keylane-lanes",
    "keylane-queue",
    "keylane-rt",
    "keylane-semaphore",
];

/// How many schedules a change must pass, over all scenarios, with each scheduler: a tenth of what
/// `soak` runs.
pub(crate) const PER_CHANGE: &str = "130000";

/// The schedulers: what runs next is chosen evenly; or rarely, so that one task gets far ahead of
/// the others (Burckhardt and others, "A randomized scheduler with probabilistic guarantees of
/// finding bugs", 2010).
pub(crate) const SCHEDULERS: [&str; 2] = ["random", "pct"];

/// How many schedules to try over all scenarios, read by the tests.
pub(crate) const COUNT: &str = "KEYLANE_SCHEDULES";

/// How shuttle chooses them, `random` or `pct`, read by the tests.
pub(crate) const SCHEDULER: &str = "KEYLANE_SCHEDULER";

/// Has a debug build use the striped intake where the builder does not say.
pub(crate) const STRIPED: (&str, &str) = ("KEYLANE_INTAKE", "striped");

/// The command that runs the schedule tests.
pub(crate) fn tests(count: &str, scheduler: &str) -> Command {
    let mut command = workspace::cargo(["test", "--release", "-p", "keylane", "--lib"]);
    command
        .args(["--", FILTER])
        .env(COUNT, count)
        .env(SCHEDULER, scheduler);
    build_settings(&mut command);
    command
}

/// The lints over the code that exists only under shuttle.
pub(crate) fn clippy() -> Command {
    let mut command = workspace::cargo(["clippy", "--release", "--lib", "--tests"]);
    command.args(MODELLED.iter().flat_map(|package| ["-p", package]));
    command.args(["--", "-Dwarnings"]);
    build_settings(&mut command);
    command
}

/// The flags and the folder of everything built for shuttle.
pub(crate) fn build_settings(command: &mut Command) {
    workspace::add_rustflags(command, CFG);
    command
        .env("CARGO_TARGET_DIR", workspace::target("shuttle"))
        // With more, the build takes longer than all schedules of a change save by it. The engine's
        // own assertions stay on.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
}
