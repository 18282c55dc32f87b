//! The tests of a soak, each for an amount. They read it from the environment.

use std::process::Command;

use crate::rotation;
use crate::schedules;
use crate::workspace::cargo;

/// Random tests try so many times their usual cases.
const TIMES: &str = "KEYLANE_TIMES";

/// The packages whose unit tests are random …
const UNITS: [&str; 12] = [
    "keylane",
    "keylane-connector",
    "keylane-inbox",
    "keylane-lanes",
    "keylane-leases",
    "keylane-queue",
    "keylane-redis",
    "keylane-source",
    "keylane-spool",
    "keylane-sql",
    "keylane-testkit",
    "keylane-zookeeper",
];
/// … and those whose other tests are, without a server of their own: with these targets.
const MODELS: [(&str, &[&str]); 5] = [
    (
        "tests",
        &[
            "model",
            "control",
            "disciplines",
            "queue",
            "semaphore",
            "streams",
            "sources",
        ],
    ),
    ("keylane-inbox", &["store", "files"]),
    ("keylane-source", &["decode"]),
    ("keylane-spool", &["spool"]),
    ("testkit-servers", &["proxy"]),
];

/// The spool is killed under four policies, in a process for each.
const SPOOL_POLICIES: u64 = 4;

/// The members of a group of streams are on three servers.
const SERVERS: u64 = 3;

/// So many decoders are fuzzed at the same time.
const DECODERS: usize = 3;

pub(super) fn units(times: u64) -> Command {
    let mut command = cargo(["test", "--no-fail-fast", "--lib"]);
    command.args(packages(&UNITS)).env(TIMES, times.to_string());
    command
}

pub(super) fn models(times: u64) -> Command {
    let mut command = cargo(["test", "--no-fail-fast"]);
    command.args(packages(&MODELS.map(|(package, _)| package)));
    let targets = MODELS.iter().flat_map(|(_, tests)| tests.iter());
    command.args(targets.flat_map(|test| ["--test", test]));
    command.env(TIMES, times.to_string());
    command
}

/// All tests of a dispatcher, with the striped intake.
pub(super) fn striped(times: u64) -> Command {
    let mut command = cargo(["test", "--no-fail-fast", "-p", "tests", "-p", "keylane"]);
    let tests = [
        "engine",
        "control",
        "disciplines",
        "sources",
        "model",
        "observe",
        "watching",
        "queue",
        "streams",
        "conformance",
    ];
    command.arg("--lib");
    command.args(tests.iter().flat_map(|test| ["--test", test]));
    let (variable, striped) = schedules::STRIPED;
    command.env(variable, striped).env(TIMES, times.to_string());
    command
}

/// Every order of the steps of a striped intake, for more programs than `cargo xtask test`
/// explores.
pub(super) fn orders_of_turns(_: u64) -> Command {
    let mut command = cargo(["test", "--release", "-p", "keylane-lanes", "--lib"]);
    command.args(["--", "model::turns"]);
    command.env("KEYLANE_TURNS", "large");
    command
}

pub(super) fn random_schedules(count: u64) -> Command {
    schedules::tests(&count.to_string(), "random")
}

pub(super) fn pct_schedules(count: u64) -> Command {
    schedules::tests(&count.to_string(), "pct")
}

pub(super) fn runtimes_dropped(points: u64) -> Command {
    with(engine("runtime_dropped"), "KEYLANE_KILLS", points)
}

pub(super) fn drains(drains: u64) -> Command {
    with(engine("drains_under_load"), "KEYLANE_DRAINS", drains)
}

pub(super) fn inbox_kills(kills: u64) -> Command {
    let command = inbox(&["--test", "consume"], "kill::");
    with(command, "KEYLANE_KILLS", kills)
}

pub(super) fn spool_kills(kills: u64) -> Command {
    let command = tests("keylane-spool", "spool", &["kill::"]);
    let each = kills.div_ceil(SPOOL_POLICIES);
    with(command, "KEYLANE_SPOOL_KILLS", each)
}

/// All tests of which `cargo xtask test` runs a share.
pub(super) fn rotating(_: u64) -> Command {
    let table = rotation::parse(include_str!("../../rotation.txt"));
    let table = table.expect("a unit test reads the table");
    let mut command = cargo(["test", "--no-fail-fast"]);
    for (package, target) in table.programs() {
        command.args(["-p", package, "--test", target]);
    }
    command.arg("--").args(table.parts());
    command
}

pub(super) fn lease_pauses(pauses: u64) -> Command {
    let command = tests("keylane-sql", "leases", &["fencing::"]);
    with(command, "KEYLANE_LEASE_PAUSES", pauses)
}

pub(super) fn worker_pauses(pauses: u64) -> Command {
    let command = tests("keylane-sql", "inbox", &["fencing::"]);
    with(command, "KEYLANE_INBOX_PAUSES", pauses)
}

pub(super) fn chaos(messages: u64) -> Command {
    let command = tests("keylane-sql", "inbox", &["chaos::"]);
    with(command, "KEYLANE_CHAOS_MESSAGES", messages)
}

pub(super) fn round_trips(count: u64) -> Command {
    let command = cargo([
        "test",
        "--release",
        "-p",
        "keylane-kafka",
        "--test",
        "metadata",
    ]);
    with(command, "KEYLANE_KAFKA_ROUND_TRIPS", count)
}

pub(super) fn rebalances(count: u64) -> Command {
    let filters = ["rebalances::nothing", "processes::"];
    let mut command = cargo(["test", "--release", "-p", "keylane-kafka"]);
    command.args(["--test", "broker", "--"]).args(filters);
    command.args(["--nocapture", "--include-ignored"]);
    with(command, "KEYLANE_KAFKA_REBALANCES", count)
}

pub(super) fn list_faults(faults: u64) -> Command {
    let filters = ["processes::", "faults::", "model::"];
    let mut command = tests("keylane-redis", "lists", &filters);
    for half in [
        "KEYLANE_REDIS_KILLS",
        "KEYLANE_REDIS_STOPS",
        "KEYLANE_REDIS_RESETS",
    ] {
        command.env(half, (faults / 2).to_string());
    }
    with(command, "KEYLANE_REDIS_STEPS", faults * 10)
}

pub(super) fn stream_faults(faults: u64) -> Command {
    let command = tests("keylane-redis", "streams", &["processes::"]);
    let each = faults.div_ceil(SERVERS);
    with(command, "KEYLANE_REDIS_MEMBER_FAULTS", each)
}

pub(super) fn postgres_leaders(changes: u64) -> Command {
    leaders("keylane-sql", "in_postgres", changes)
}

pub(super) fn mariadb_leaders(changes: u64) -> Command {
    leaders("keylane-sql", "in_mariadb", changes)
}

pub(super) fn redis_leaders(changes: u64) -> Command {
    leaders("keylane-redis", "leaders::", changes)
}

pub(super) fn zookeeper_leaders(changes: u64) -> Command {
    leaders("keylane-zookeeper", "leaders::", changes)
}

pub(super) fn etcd_leaders(changes: u64) -> Command {
    leaders("keylane-etcd", "leaders::", changes)
}

pub(super) fn queue_of_a_leader(changes: u64) -> Command {
    leaders("keylane-redis", "queue::", changes)
}

fn leaders(package: &str, filter: &str, changes: u64) -> Command {
    with(
        tests(package, "changes", &[filter]),
        "KEYLANE_CHANGES",
        changes,
    )
}

pub(super) fn postgres_cluster(failovers: u64) -> Command {
    clusters("keylane-sql", "postgres::", failovers)
}

pub(super) fn mariadb_cluster(failovers: u64) -> Command {
    clusters("keylane-sql", "mariadb::", failovers)
}

pub(super) fn redis_cluster(failovers: u64) -> Command {
    clusters("keylane-redis", "cluster::", failovers)
}

pub(super) fn redis_sentinel(failovers: u64) -> Command {
    clusters("keylane-redis", "sentinel::", failovers)
}

pub(super) fn kafka_cluster(failovers: u64) -> Command {
    clusters("keylane-kafka", "brokers::", failovers)
}

/// One cluster at a time: a machine that is too slow looks like one that has failed.
fn clusters(package: &str, filter: &str, failovers: u64) -> Command {
    let mut command = tests(package, "clusters", &[filter]);
    command.args(["--include-ignored", "--test-threads=1"]);
    with(command, "KEYLANE_FAILOVERS", failovers)
}

pub(super) fn system_calls(calls: u64) -> Command {
    let command = inbox(&["--test", "syscalls"], "sweep");
    with(command, "KEYLANE_SYSCALLS", calls)
}

pub(super) fn fuzzing(seconds: u64) -> Command {
    let mut command = cargo(["test", "-p", "keylane-inbox", "-p", "keylane-spool"]);
    command.args(["--lib", "--", "fuzzed", "--nocapture"]);
    command.arg(format!("--test-threads={DECODERS}"));
    with(command, "KEYLANE_FUZZ", seconds)
}

/// Power failures at so many of eight syncs: at all of them, or at the sample that the test has.
pub(super) fn power_failures(of_eight: u64) -> Command {
    let mut command = inbox(&["--test", "faults"], "power::");
    if of_eight == ALL_SYNCS {
        command.env("KEYLANE_INBOX_POWER", "all");
    }
    command
}

/// See [`power_failures`].
pub(super) const ALL_SYNCS: u64 = 8;

pub(super) fn constant_depth(messages: u64) -> Command {
    let command = inbox(&["--release", "--test", "store"], "at_constant_depth");
    with(command, "KEYLANE_PASSED", messages)
}

pub(super) fn backlogs(messages: u64) -> Command {
    large("a_large_backlog_on", messages)
}

pub(super) fn blocked_keys(messages: u64) -> Command {
    large("half_of_a_large_backlog", messages)
}

fn large(filter: &str, messages: u64) -> Command {
    let mut command = inbox(&["--release", "--test", "consume"], filter);
    command.args(["--ignored", "--test-threads=1"]);
    with(command, "KEYLANE_BACKLOG", messages)
}

fn with(mut command: Command, variable: &str, amount: u64) -> Command {
    command.env(variable, amount.to_string());
    command
}

fn packages(names: &[&'static str]) -> Vec<&'static str> {
    names.iter().flat_map(|name| ["-p", name]).collect()
}

/// Tests of the guarantees whose names contain `filter`; what they print is progress.
fn engine(filter: &str) -> Command {
    let mut command = cargo(["test", "--release", "-p", "tests", "--test", "engine"]);
    command.args(["--", filter, "--nocapture"]);
    command
}

/// Tests of one target of the inbox whose names contain `filter`, built with all checks: what they
/// wait for is the disk.
fn inbox(target: &[&str], filter: &str) -> Command {
    let mut command = cargo(["test", "-p", "keylane-inbox"]);
    command.args(target).args(["--", filter, "--nocapture"]);
    command
}

/// Tests of a target whose names contain one of the filters.
fn tests(package: &str, target: &str, filters: &[&str]) -> Command {
    let mut command = cargo(["test", "-p", package, "--test", target, "--"]);
    command.args(filters).arg("--nocapture");
    command
}
