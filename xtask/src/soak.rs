//! `cargo xtask soak`: the same guarantees, far more often than a change can wait for.

mod scale;

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use self::scale::Scale;
use crate::Error;
use crate::mutation::{self, Shard};
use crate::schedules;
use crate::steps::Steps;
use crate::tree::Tree;
use crate::workspace::{self, answer, cargo};

/// Run the guarantees for a night: 2,600,000 schedules by chance and as many by PCT, 2,000 kills,
/// 5,000 drains, faults of the disk, mutations
///
/// Every step runs, also after one has failed. The report is target/soak/report.json. All random
/// tests get fresh numbers from one seed, which is printed and is in the report, and ten times as many
/// cases as in `cargo xtask test`, whose cases are always the same: commit what they find as a
/// case (proptest writes it into proptest-regressions by itself). Runtimes are
/// dropped at 2,000 points, and processes with an inbox are killed 2,000 times, a quarter of them
/// while they recover. Processes with a lease in a database are paused past it, 1,000 times on each
/// database. Consumers of Kafka join, leave, die and stand still 500 times, and workers of a list
/// in Redis and members of a group of streams 1,000 times each. Each of the first 2,000 system
/// calls of an inbox on its files fails, once with EIO and once with ENOSPC. The decoders of
/// records are fuzzed for 10 minutes; an input that shows something new is added to
/// crates/keylane-inbox/tests/corpus. The power fails at every sync of a workload. 5,000,000
/// messages pass an inbox of constant depth, and backlogs of 10,000,000 are worked off in 256 MiB.
/// The last step changes the pure parts, one expression at a time, with cargo-mutants (installed
/// below target/tools), and a unit test must fail each time; what survives must be in
/// xtask/survivors.txt, with a reason.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A tenth of everything
    #[arg(long, conflicts_with = "long")]
    short: bool,
    /// Ten times everything but the system calls, the backlogs and the mutations
    #[arg(long)]
    long: bool,
    /// The seed of an earlier run, to repeat it
    #[arg(long)]
    seed: Option<u64>,
    /// Only the steps whose names contain this; may be given several times. A name that is none shows them
    /// all
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
}

impl Args {
    fn wants(&self, step: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| step.contains(text.as_str()))
    }
}

/// Random tests read from here how many times their usual cases they try …
const TIMES: &str = "KEYLANE_TIMES";
/// … and with which numbers they are made: those of proptest, and those that are made by hand.
const SEEDS: [&str; 2] = ["PROPTEST_RNG_SEED", "KEYLANE_SEED"];

/// The packages whose unit tests are random …
const UNITS: [&str; 6] = [
    "keylane",
    "keylane-inbox",
    "keylane-leases",
    "keylane-redis",
    "keylane-sql",
    "keylane-testkit",
];
/// … and those whose other tests are, without a server of their own: with these targets.
const MODELS: [(&str, &[&str]); 3] = [
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
    ("keylane-inbox", &["store", "spool", "files"]),
    ("keylane-testkit", &["proxy"]),
];

/// The tests in `tests/engine` that drop the runtime read from here at how many points, and those of
/// `keylane-inbox` that kill a process, how often.
const KILLS: &str = "KEYLANE_KILLS";
/// The names of the former contain this …
const DROPS_FILTER: &str = "runtime_dropped";
/// … and those of the latter this.
const KILLS_FILTER: &str = "kill::";
/// Those of the spool have one process for each of four policies, which is killed this often.
const SPOOL_KILLS: &str = "KEYLANE_SPOOL_KILLS";
const SPOOL_POLICIES: u64 = 4;

/// The tests in `tests/engine` that drain under load read how often from here.
const DRAINS: &str = "KEYLANE_DRAINS";
/// … and their names contain this.
const DRAINS_FILTER: &str = "drains_under_load";

/// The tests of `keylane-sql` that pause processes past their leases read from here how often.
const PAUSES: &str = "KEYLANE_LEASE_PAUSES";
const PAUSES_FILTER: &str = "fencing::";

/// The same for a worker of an inbox in tables.
const INBOX_PAUSES: &str = "KEYLANE_INBOX_PAUSES";

/// The tests of `keylane-sql` that kill connections and servers read from here how many messages there
/// are.
const CHAOS: &str = "KEYLANE_CHAOS_MESSAGES";
const CHAOS_FILTER: &str = "chaos::";

/// The test of `keylane-kafka` that writes and reads the metadata of commits reads from here how often.
const ROUND_TRIPS: &str = "KEYLANE_KAFKA_ROUND_TRIPS";

/// The tests of `keylane-kafka` in which members come, go, die and stand still read from here how many
/// rebalances there are.
const REBALANCES: &str = "KEYLANE_KAFKA_REBALANCES";
/// … and their names contain this, in one process …
const REBALANCES_FILTER: &str = "rebalances::nothing";
/// … and in several.
const PROCESSES_FILTER: &str = "processes::";

/// The tests of `keylane-redis` in which workers of a list are killed and stand still read from here how
/// often …
const LIST_KILLS: &str = "KEYLANE_REDIS_KILLS";
const LIST_STOPS: &str = "KEYLANE_REDIS_STOPS";
/// … how often a connection is reset …
const LIST_RESETS: &str = "KEYLANE_REDIS_RESETS";
const LIST_FAULTS_FILTER: &str = "faults::";
/// … and how many things happen that are drawn.
const LIST_STEPS: &str = "KEYLANE_REDIS_STEPS";
const LIST_MODEL_FILTER: &str = "model::";

/// Those in which members of a group of streams are killed, stand still and leave read from here how
/// often that is, on each of three servers.
const MEMBER_FAULTS: &str = "KEYLANE_REDIS_MEMBER_FAULTS";
const SERVERS: u64 = 3;

/// The test of `keylane-inbox` that makes system calls fail reads from here how many.
const SYSCALLS: &str = "KEYLANE_SYSCALLS";
/// … and its name contains this.
const SYSCALLS_FILTER: &str = "sweep";

/// The unit tests of `keylane-inbox` that fuzz a decoder read from here for how many seconds.
const FUZZ: &str = "KEYLANE_FUZZ";
/// … and their names contain this.
const FUZZ_FILTER: &str = "fuzzed";
/// There are so many, all of them at the same time.
const DECODERS: usize = 3;

/// The test of `keylane-inbox` that watches the file at constant depth reads from here how many
/// messages pass.
const PASSED: &str = "KEYLANE_PASSED";
const PASSED_FILTER: &str = "at_constant_depth";

/// The tests of `keylane-inbox` that watch the memory beside a large backlog read from here how large.
const BACKLOG: &str = "KEYLANE_BACKLOG";
const BACKLOG_FILTER: &str = "large_backlog";

/// With this, the test of power failures takes all of them.
const POWER: (&str, &str) = ("KEYLANE_INBOX_POWER", "all");
const POWER_FILTER: &str = "power::";

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let scale = Scale::chosen(args);
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let plan = plan(scale, seed);
    let last = mutations_name(scale);
    let names: Vec<&str> = plan
        .iter()
        .map(|(name, _)| &name[..])
        .chain([&last[..]])
        .collect();
    if !names.iter().any(|name| args.wants(name)) {
        return Err(format!("no step has such a name; there are:\n{}", names.join("\n")).into());
    }
    println!("the seed is {seed}: `--seed {seed}` repeats it");
    let mut steps = Steps::default();
    // A failed step is in the table and the report; the others still have something to say.
    for (name, command) in plan.into_iter().filter(|(name, _)| args.wants(name)) {
        if let Err(error) = steps.run_tests(&name, command) {
            eprintln!("{error}");
        }
        // After each step, so that a night cut short has not been for nothing.
        write_report(scale, seed, &steps)?;
    }
    if args.wants(&last)
        && let Err(error) = mutations(&last, scale, &mut steps)
    {
        eprintln!("{error}");
    }
    write_report(scale, seed, &steps)?;
    println!("\n{}\nreport: {}", steps.table(), report_path().display());
    if steps.all_passed() {
        Ok(())
    } else {
        Err("the soak has found something".into())
    }
}

/// A number for all random tests of a run.
fn fresh_seed() -> u64 {
    // Short enough to be typed.
    RandomState::new().hash_one("soak") >> 32
}

/// The steps, all with the seed.
fn plan(scale: Scale, seed: u64) -> Vec<(String, Command)> {
    let mut plan = steps(scale);
    for (_, command) in &mut plan {
        command.envs(SEEDS.map(|variable| (variable, seed.to_string())));
    }
    plan
}

fn steps(scale: Scale) -> Vec<(String, Command)> {
    let Scale {
        times,
        schedules,
        kills,
        drains,
        pauses,
        chaos,
        round_trips,
        rebalances,
        redis_faults,
        syscalls,
        fuzzing_s,
        passed,
        backlog,
        every_power_failure,
        mutations: _,
    } = scale;
    let count = schedules.to_string();
    let mut units = cargo(["test", "--no-fail-fast", "--lib"]);
    units.args(packages(&UNITS)).env(TIMES, times.to_string());
    let mut models = cargo(["test", "--no-fail-fast"]);
    models.args(packages(&MODELS.map(|(package, _)| package)));
    models.args(
        MODELS
            .iter()
            .flat_map(|(_, tests)| tests.iter())
            .flat_map(|test| ["--test", test]),
    );
    models.env(TIMES, times.to_string());
    let mut dropped = engine(DROPS_FILTER);
    dropped.env(KILLS, kills.to_string());
    let mut drained = engine(DRAINS_FILTER);
    drained.env(DRAINS, drains.to_string());
    let mut killed = inbox(&["--test", "consume"], KILLS_FILTER);
    killed.env(KILLS, kills.to_string());
    let mut spool_killed = inbox(&["--test", "spool"], KILLS_FILTER);
    spool_killed.env(SPOOL_KILLS, kills.div_ceil(SPOOL_POLICIES).to_string());
    let mut paused = cargo(["test", "-p", "keylane-sql", "--test", "leases"]);
    paused.args(["--", PAUSES_FILTER, "--nocapture"]);
    paused.env(PAUSES, pauses.to_string());
    let mut workers_paused = cargo(["test", "-p", "keylane-sql", "--test", "inbox"]);
    workers_paused.args(["--", PAUSES_FILTER, "--nocapture"]);
    workers_paused.env(INBOX_PAUSES, pauses.to_string());
    let mut in_chaos = cargo(["test", "-p", "keylane-sql", "--test", "inbox"]);
    in_chaos.args(["--", CHAOS_FILTER, "--nocapture"]);
    in_chaos.env(CHAOS, chaos.to_string());
    let mut round = cargo([
        "test",
        "--release",
        "-p",
        "keylane-kafka",
        "--test",
        "metadata",
    ]);
    round.env(ROUND_TRIPS, round_trips.to_string());
    let mut rebalanced = cargo([
        "test",
        "--release",
        "-p",
        "keylane-kafka",
        "--test",
        "broker",
    ]);
    rebalanced.args(["--", REBALANCES_FILTER, PROCESSES_FILTER, "--nocapture"]);
    rebalanced.env(REBALANCES, rebalances.to_string());
    let mut list = cargo(["test", "-p", "keylane-redis", "--test", "lists"]);
    list.args([
        "--",
        PROCESSES_FILTER,
        LIST_FAULTS_FILTER,
        LIST_MODEL_FILTER,
    ]);
    list.arg("--nocapture");
    for half in [LIST_KILLS, LIST_STOPS, LIST_RESETS] {
        list.env(half, (redis_faults / 2).to_string());
    }
    list.env(LIST_STEPS, (redis_faults * 10).to_string());
    let mut streams = cargo(["test", "-p", "keylane-redis", "--test", "streams"]);
    streams.args(["--", PROCESSES_FILTER, "--nocapture"]);
    streams.env(MEMBER_FAULTS, redis_faults.div_ceil(SERVERS).to_string());
    let mut failed = inbox(&["--test", "syscalls"], SYSCALLS_FILTER);
    failed.env(SYSCALLS, syscalls.to_string());
    let mut fuzzed = inbox(&["--lib"], FUZZ_FILTER);
    fuzzed.env(FUZZ, fuzzing_s.to_string());
    fuzzed.arg(format!("--test-threads={DECODERS}"));
    let mut powerless = inbox(&["--test", "faults"], POWER_FILTER);
    if every_power_failure {
        powerless.env(POWER.0, POWER.1);
    }
    let mut deep = inbox(&["--release", "--test", "store"], PASSED_FILTER);
    deep.env(PASSED, passed.to_string());
    let mut large = inbox(&["--release", "--test", "consume"], BACKLOG_FILTER);
    large.env(BACKLOG, backlog.to_string());
    large.args(["--ignored", "--test-threads=1"]);
    vec![
        (format!("random units {times} times"), units),
        (format!("random models {times} times"), models),
        (
            format!("{schedules} schedules, random"),
            schedules::tests(&count, "random"),
        ),
        (
            format!("{schedules} schedules, PCT"),
            schedules::tests(&count, "pct"),
        ),
        (format!("runtime dropped at {kills} points"), dropped),
        (format!("{drains} drains under load"), drained),
        (format!("inbox killed {kills} times"), killed),
        (format!("spool killed {kills} times"), spool_killed),
        (format!("{pauses} holders of leases paused"), paused),
        (
            format!("{pauses} workers of inboxes paused"),
            workers_paused,
        ),
        (format!("{chaos} messages in chaos"), in_chaos),
        (format!("{round_trips} metadata of commits"), round),
        (format!("{rebalances} rebalances"), rebalanced),
        (format!("{redis_faults} faults of a list"), list),
        (format!("{redis_faults} faults of streams"), streams),
        (format!("{syscalls} system calls fail"), failed),
        (format!("decoders fuzzed for {fuzzing_s} s"), fuzzed),
        ("power fails".to_owned(), powerless),
        (format!("{passed} messages at constant depth"), deep),
        (format!("backlogs of {backlog} messages"), large),
    ]
}

fn mutations_name(scale: Scale) -> String {
    match scale.mutations {
        1 => "all mutations".to_owned(),
        parts => format!("one mutation in {parts}"),
    }
}

fn mutations(name: &str, scale: Scale, steps: &mut Steps) -> Result<(), Error> {
    let shard = Shard::first_of(scale.mutations);
    // The copy is locked until the step is over.
    let tree = Tree::of_workspace();
    let command = tree.and_then(|tree| Ok((mutation::command(&tree, shard)?, tree)));
    match command {
        Ok((command, _tree)) => {
            steps.run_judged(name, command, mutation::progress(), mutation::judge)
        }
        Err(error) => steps.fail(name, &error),
    }
}

fn packages(names: &[&'static str]) -> Vec<&'static str> {
    names.iter().flat_map(|name| ["-p", name]).collect()
}

/// Tests of the guarantees whose names contain `filter`; what they print is progress.
fn engine(filter: &str) -> Command {
    cargo([
        "test",
        "--release",
        "-p",
        "tests",
        "--test",
        "engine",
        "--",
        filter,
        "--nocapture",
    ])
}

/// Tests of one target of the inbox whose names contain `filter`, built with all checks: what they
/// wait for is the disk.
fn inbox(target: &[&str], filter: &str) -> Command {
    let mut command = cargo(["test", "-p", "keylane-inbox"]);
    command.args(target).args(["--", filter, "--nocapture"]);
    command
}

fn report_path() -> PathBuf {
    workspace::target("soak").join("report.json")
}

fn write_report(scale: Scale, seed: u64, steps: &Steps) -> Result<(), Error> {
    let report = json!({
        "commit": answer(Command::new("git").args(["rev-parse", "HEAD"])),
        "clean": answer(Command::new("git").args(["status", "--porcelain"])).is_empty(),
        "rustc": answer(Command::new("rustc").arg("--version")),
        "seed": seed,
        "times": scale.times,
        "schedules": scale.schedules,
        "kills": scale.kills,
        "drains": scale.drains,
        "pauses": scale.pauses,
        "faults_of_a_list_and_of_streams": scale.redis_faults,
        "syscalls": scale.syscalls,
        "fuzzing_s": scale.fuzzing_s,
        "passed_at_constant_depth": scale.passed,
        "backlog": scale.backlog,
        "every_power_failure": scale.every_power_failure,
        "one_mutation_in": scale.mutations,
        "passed": steps.all_passed(),
        "steps": steps.to_json(),
    });
    let path = report_path();
    std::fs::create_dir_all(path.parent().expect("the report lies in a folder"))?;
    std::fs::write(path, format!("{report:#}\n"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::scale::SOAK;
    use super::*;
    use crate::process;

    #[test]
    fn the_numbers_reach_the_tests() {
        let commands: Vec<_> = plan(SOAK, 4_711)
            .iter()
            .map(|(_, step)| process::display(step))
            .collect();
        let numbers = [
            "KEYLANE_TIMES=10 ",
            "KEYLANE_TIMES=10 ",
            "KEYLANE_SCHEDULER=random KEYLANE_SCHEDULES=2600000",
            "KEYLANE_SCHEDULER=pct KEYLANE_SCHEDULES=2600000",
            "KEYLANE_KILLS=2000 ",
            "KEYLANE_DRAINS=5000 ",
            "KEYLANE_KILLS=2000 ",
            "KEYLANE_SPOOL_KILLS=500 ",
            "KEYLANE_LEASE_PAUSES=1000 ",
            "KEYLANE_INBOX_PAUSES=1000 ",
            "KEYLANE_CHAOS_MESSAGES=50000 ",
            "KEYLANE_KAFKA_ROUND_TRIPS=1000000 ",
            "KEYLANE_KAFKA_REBALANCES=500 ",
            "KEYLANE_REDIS_STOPS=500 ",
            "KEYLANE_REDIS_MEMBER_FAULTS=334 ",
            "KEYLANE_SYSCALLS=2000 ",
            "KEYLANE_FUZZ=600 ",
            "KEYLANE_INBOX_POWER=all ",
            "KEYLANE_PASSED=5000000 ",
            "KEYLANE_BACKLOG=10000000 ",
        ];
        assert_eq!(commands.len(), numbers.len());
        for (command, number) in commands.iter().zip(numbers) {
            assert!(command.contains(number), "{command}");
            assert!(command.contains("KEYLANE_SEED=4711 "), "{command}");
            assert!(command.contains("PROPTEST_RNG_SEED=4711 "), "{command}");
        }
    }
}
