//! The steps of a soak: how often, in parts of what size, and how long that takes.

use super::checks;
use super::commands::{self, ALL_SYNCS};
use super::scale::Amount;
use crate::proof::Origin::{self, Derived, Guess, Measured};
use crate::proof::Work;

/// A step, at all scales.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) amount: Amount,
    /// The largest amount of one part, if the step can be divided. Such a part takes an hour at
    /// most.
    pub(super) part: Option<u64>,
    /// How long a part of that size takes, or all of it at the normal scale.
    pub(super) seconds: u64,
    pub(super) origin: Origin,
    pub(super) work: Work,
}

/// The mutations are divided into so many parts, of 70 on 27 November 2026. A short soak takes one
/// in ten.
pub(super) const MUTATIONS: u64 = 20;

/// The name of the step.
pub(super) const MUTATIONS_NAME: &str = "mutations";

/// What `cargo xtask test` says of its programs: those with a server take some minutes, the others
/// half a minute at most.
const TEST_COMMAND: &str = "the limit of a program in `cargo xtask test`, times the amount";

/// The names of the steps with servers that fail over begin like this.
pub(super) const CLUSTERS: &str = "fail-overs of ";

const MINUTE: u64 = 60;

pub(super) static KINDS: [Kind; 39] = [
    Kind {
        name: "dependencies",
        amount: Amount::from(1, 1),
        part: None,
        seconds: 7 * MINUTE,
        origin: Measured("2.8 s, and 382 s for the build of cargo-deny, 27 November 2026"),
        work: Work::Check(checks::deny),
    },
    Kind {
        name: "public items",
        amount: Amount::from(1, 1),
        part: None,
        seconds: 40 * MINUTE,
        origin: Guess("the docs of all crates, twice, and the build of cargo-semver-checks"),
        work: Work::SinceRelease {
            command: checks::semver,
            release: None,
        },
    },
    Kind {
        name: "packages",
        amount: Amount::from(1, 1),
        part: None,
        seconds: 583,
        origin: Measured("583 s with one job, 27 November 2026"),
        work: Work::Check(checks::publish),
    },
    Kind {
        name: "random units",
        amount: Amount::of(10),
        part: Some(5),
        seconds: 15 * MINUTE,
        origin: Guess(TEST_COMMAND),
        work: Work::Tests(commands::units),
    },
    Kind {
        name: "random models",
        amount: Amount::of(10),
        part: Some(5),
        seconds: 30 * MINUTE,
        origin: Guess(TEST_COMMAND),
        work: Work::Tests(commands::models),
    },
    Kind {
        name: "striped intake",
        amount: Amount::of(10),
        part: Some(5),
        seconds: 15 * MINUTE,
        origin: Guess("what the programs take in `cargo xtask test`, and the build"),
        work: Work::Tests(commands::striped),
    },
    Kind {
        name: "orders of turns",
        amount: Amount::from(1, 1),
        part: None,
        seconds: 6 * MINUTE,
        origin: Measured("103 s for 11,948,863 states, and the build, 27 November 2026"),
        work: Work::Tests(commands::orders_of_turns),
    },
    // Over both intakes.
    Kind {
        name: "schedules random",
        amount: Amount::of(5_200_000),
        part: Some(520_000),
        seconds: 30 * MINUTE,
        origin: Guess("150 schedules in a second"),
        work: Work::Tests(commands::random_schedules),
    },
    Kind {
        name: "schedules pct",
        amount: Amount::of(5_200_000),
        part: Some(520_000),
        seconds: 30 * MINUTE,
        origin: Guess("150 schedules in a second"),
        work: Work::Tests(commands::pct_schedules),
    },
    // At points by chance, on one thread and on two.
    Kind {
        name: "runtime drops",
        amount: Amount::of(2_000),
        part: Some(2_000),
        seconds: 20 * MINUTE,
        origin: Guess("half a second each, and the build"),
        work: Work::Tests(commands::runtimes_dropped),
    },
    Kind {
        name: "drains under load",
        amount: Amount::of(5_000),
        part: Some(5_000),
        seconds: 30 * MINUTE,
        origin: Guess("a third of a second each, and the build"),
        work: Work::Tests(commands::drains),
    },
    // Over five workloads, a quarter of them while the process recovers.
    Kind {
        name: "inbox kills",
        amount: Amount::of(2_000),
        part: Some(1_000),
        seconds: 20 * MINUTE,
        origin: Guess("a second each, and the build"),
        work: Work::Tests(commands::inbox_kills),
    },
    Kind {
        name: "spool kills",
        amount: Amount::of(2_000),
        part: Some(1_000),
        seconds: 20 * MINUTE,
        origin: Guess("a second each, and the build"),
        work: Work::Tests(commands::spool_kills),
    },
    Kind {
        name: "rotating tests",
        amount: Amount::from(1, 1),
        part: None,
        seconds: 20 * MINUTE,
        origin: Guess("half of what their programs take in `cargo xtask test`, and the build"),
        work: Work::Tests(commands::rotating),
    },
    // Of processes past their leases, on each database.
    Kind {
        name: "lease pauses",
        amount: Amount::of(1_000),
        part: Some(500),
        seconds: 10 * MINUTE,
        origin: Derived(
            "takeovers within 0.43 s, five keys at once, in the tables of COMPARE; and the build",
        ),
        work: Work::Tests(commands::lease_pauses),
    },
    Kind {
        name: "worker pauses",
        amount: Amount::of(1_000),
        part: Some(500),
        seconds: 658,
        origin: Measured("100 pauses in 131.6 s, soak of 416a359, 27 November 2026"),
        work: Work::Tests(commands::worker_pauses),
    },
    // An inbox in tables, whose connections and server are killed.
    Kind {
        name: "messages in chaos",
        amount: Amount::of(50_000),
        part: Some(50_000),
        seconds: 258,
        origin: Measured("5,000 messages in 25.8 s, soak of 416a359, 27 November 2026"),
        work: Work::Tests(commands::chaos),
    },
    Kind {
        name: "metadata of commits",
        amount: Amount::of(1_000_000),
        part: Some(1_000_000),
        seconds: 20 * MINUTE,
        origin: Guess("a millisecond each, and the build"),
        work: Work::Tests(commands::round_trips),
    },
    // Of a group in one process and of one of processes, for each protocol.
    Kind {
        name: "rebalances",
        amount: Amount::of(500),
        part: Some(50),
        seconds: 30 * MINUTE,
        origin: Guess("ten seconds each, seven tests, two at once; and the build"),
        work: Work::Tests(commands::rebalances),
    },
    // Half of them kills of workers, and half pauses past a lease; of each of six connections half
    // as many resets, and ten times as many steps of a model.
    Kind {
        name: "list faults",
        amount: Amount::of(1_000),
        part: Some(500),
        seconds: 30 * MINUTE,
        origin: Guess("five minutes for 100"),
        work: Work::Tests(commands::list_faults),
    },
    // A third of them kills of members, and a third pauses.
    Kind {
        name: "stream faults",
        amount: Amount::of(1_000),
        part: Some(500),
        seconds: 30 * MINUTE,
        origin: Guess("five minutes for 100"),
        work: Work::Tests(commands::stream_faults),
    },
    // Leaders are killed, paused, cut off and replaced, each kind of fault as often as the others.
    Kind {
        name: "leaders in PostgreSQL",
        amount: Amount::of(1_000),
        part: Some(500),
        seconds: 15 * MINUTE,
        origin: Guess("a second each, and the build"),
        work: Work::Tests(commands::postgres_leaders),
    },
    Kind {
        name: "leaders in MariaDB",
        amount: Amount::of(1_000),
        part: Some(500),
        seconds: 15 * MINUTE,
        origin: Guess("a second each, and the build"),
        work: Work::Tests(commands::mariadb_leaders),
    },
    Kind {
        name: "leaders in Redis",
        amount: Amount::of(1_000),
        part: Some(500),
        seconds: 15 * MINUTE,
        origin: Guess("a second each, and the build"),
        work: Work::Tests(commands::redis_leaders),
    },
    Kind {
        name: "leaders in ZooKeeper",
        amount: Amount::of(1_000),
        part: Some(500),
        seconds: 25 * MINUTE,
        origin: Guess("two seconds each, and the build"),
        work: Work::Tests(commands::zookeeper_leaders),
    },
    Kind {
        name: "leaders in etcd",
        amount: Amount::of(1_000),
        part: Some(500),
        seconds: 30 * MINUTE,
        origin: Guess("2.5 seconds each, and the build"),
        work: Work::Tests(commands::etcd_leaders),
    },
    Kind {
        name: "the queue of a leader",
        amount: Amount::of(1_000),
        part: Some(500),
        seconds: 25 * MINUTE,
        origin: Guess("two seconds each, and the build"),
        work: Work::Tests(commands::queue_of_a_leader),
    },
    Kind {
        name: "fail-overs of PostgreSQL",
        amount: Amount::of(20),
        part: Some(20),
        seconds: 15 * MINUTE,
        origin: Guess("20 s each, and the build"),
        work: Work::Tests(commands::postgres_cluster),
    },
    Kind {
        name: "fail-overs of MariaDB",
        amount: Amount::of(20),
        part: Some(20),
        seconds: 12 * MINUTE,
        origin: Guess("20 s each, and the build"),
        work: Work::Tests(commands::mariadb_cluster),
    },
    Kind {
        name: "fail-overs of Redis Cluster",
        amount: Amount::of(20),
        part: Some(20),
        seconds: 12 * MINUTE,
        origin: Guess("20 s each, and the build"),
        work: Work::Tests(commands::redis_cluster),
    },
    Kind {
        name: "fail-overs of Redis with Sentinel",
        amount: Amount::of(20),
        part: Some(20),
        seconds: 12 * MINUTE,
        origin: Guess("20 s each, and the build"),
        work: Work::Tests(commands::redis_sentinel),
    },
    Kind {
        name: "fail-overs of Kafka",
        amount: Amount::of(20),
        part: Some(20),
        seconds: 12 * MINUTE,
        origin: Guess("20 s each, and the build"),
        work: Work::Tests(commands::kafka_cluster),
    },
    // Of the first 2,000 of an inbox, with two errors each.
    Kind {
        name: "system calls",
        amount: Amount::at_most(2_000),
        part: None,
        seconds: 30 * MINUTE,
        origin: Guess(TEST_COMMAND),
        work: Work::Tests(commands::system_calls),
    },
    // In seconds.
    Kind {
        name: "fuzzing",
        amount: Amount::of(600),
        part: Some(600),
        seconds: 15 * MINUTE,
        origin: Derived("600 s, and the build"),
        work: Work::Tests(commands::fuzzing),
    },
    Kind {
        name: "power failures",
        amount: Amount::from(1, ALL_SYNCS),
        part: None,
        seconds: 30 * MINUTE,
        origin: Guess("66,112 of them, 40 in a second"),
        work: Work::Tests(commands::power_failures),
    },
    // One file that lives so long: not to be divided.
    Kind {
        name: "messages at constant depth",
        amount: Amount::of(5_000_000),
        part: None,
        seconds: 30 * MINUTE,
        origin: Guess("3,000 messages in a second, and the build"),
        work: Work::Tests(commands::constant_depth),
    },
    Kind {
        name: "backlogs",
        amount: Amount::at_most(10_000_000),
        part: None,
        seconds: 15 * MINUTE,
        origin: Derived(
            "three shapes, 173,493 messages in a second, in the tables of COMPARE; and the build",
        ),
        work: Work::Tests(commands::backlogs),
    },
    Kind {
        name: "blocked keys",
        amount: Amount::at_most(10_000_000),
        part: None,
        seconds: 20 * MINUTE,
        origin: Derived(
            "six backlogs, 81,280 messages in a second, in the tables of COMPARE; and the build",
        ),
        work: Work::Tests(commands::blocked_keys),
    },
    Kind {
        name: MUTATIONS_NAME,
        amount: Amount::at_most(MUTATIONS),
        part: Some(1),
        seconds: 2_000,
        origin: Measured("a build in 214 s, five in 127 s, one job, 27 November 2026"),
        work: Work::Mutations,
    },
];
