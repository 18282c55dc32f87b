//! How often each thing is tried in a soak.

use super::Args;

/// How often each thing is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale {
    /// How many times the cases that random tests have in `cargo xtask test`.
    pub(super) times: u64,
    /// Schedules over all scenarios, for each scheduler.
    pub(super) schedules: u64,
    /// Random points at which the runtime is dropped, and at which a process with an inbox is
    /// killed.
    pub(super) kills: u64,
    /// Drains under load.
    pub(super) drains: u64,
    /// Pauses of processes past their leases, on each database.
    pub(super) pauses: u64,
    /// Messages of a run with an inbox in tables whose connections and server are killed.
    pub(super) chaos: u64,
    /// Metadata of commits to Kafka that are written and read.
    pub(super) round_trips: u64,
    /// Rebalances of a group of consumers in one process, for each protocol, and of one of processes.
    pub(super) rebalances: u64,
    /// Faults of processes that work on a list in Redis, half of them kills, and half pauses past a
    /// lease; of each of six connections half as many resets, and ten times as many steps of a model.
    /// And faults of processes that share streams, a third of them kills, and a third pauses.
    pub(super) redis_faults: u64,
    /// Of the first 2,000 system calls of an inbox, how many fail.
    pub(super) syscalls: u64,
    /// How long the decoders are fuzzed, in seconds.
    pub(super) fuzzing_s: u64,
    /// Messages that pass an inbox at constant depth.
    pub(super) passed: u64,
    /// Messages of a large backlog, of each shape.
    pub(super) backlog: u64,
    /// Whether the power fails at every sync of a workload, and not at a sample of them.
    pub(super) every_power_failure: bool,
    /// One mutation in so many.
    pub(super) mutations: u64,
}

/// The scale without flags.
pub(super) const SOAK: Scale = Scale {
    times: 10,
    schedules: 2_600_000,
    kills: 2_000,
    drains: 5_000,
    pauses: 1_000,
    chaos: 50_000,
    round_trips: 1_000_000,
    rebalances: 500,
    redis_faults: 1_000,
    syscalls: 2_000,
    fuzzing_s: 600,
    passed: 5_000_000,
    backlog: 10_000_000,
    every_power_failure: true,
    mutations: 1,
};

impl Scale {
    /// The scale of these flags.
    pub(super) fn chosen(args: &Args) -> Self {
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
            mutations,
        } = SOAK;
        if args.short {
            Scale {
                times: times / 10,
                schedules: schedules / 10,
                kills: kills / 10,
                drains: drains / 10,
                pauses: pauses / 10,
                chaos: chaos / 10,
                round_trips: round_trips / 10,
                rebalances: rebalances / 10,
                redis_faults: redis_faults / 10,
                syscalls: syscalls / 10,
                fuzzing_s: fuzzing_s / 10,
                passed: passed / 10,
                backlog: backlog / 10,
                every_power_failure: false,
                mutations: mutations * 10,
            }
        } else if args.long {
            Scale {
                times: times * 10,
                schedules: schedules * 10,
                kills: kills * 10,
                drains: drains * 10,
                pauses: pauses * 10,
                chaos: chaos * 10,
                round_trips: round_trips * 10,
                rebalances: rebalances * 10,
                redis_faults: redis_faults * 10,
                fuzzing_s: fuzzing_s * 10,
                passed: passed * 10,
                // There are no more of them.
                syscalls,
                backlog,
                every_power_failure,
                mutations,
            }
        } else {
            SOAK
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_scale_everything_alike() {
        let chosen = |short, long| {
            Scale::chosen(&Args {
                short,
                long,
                seed: None,
                only: Vec::new(),
            })
        };
        assert_eq!(chosen(false, false), SOAK);
        let tenth = Scale {
            times: 1,
            schedules: 260_000,
            kills: 200,
            drains: 500,
            pauses: 100,
            chaos: 5_000,
            round_trips: 100_000,
            rebalances: 50,
            redis_faults: 100,
            syscalls: 200,
            fuzzing_s: 60,
            passed: 500_000,
            backlog: 1_000_000,
            every_power_failure: false,
            mutations: 10,
        };
        assert_eq!(chosen(true, false), tenth);
        let tenfold = Scale {
            times: 100,
            schedules: 26_000_000,
            kills: 20_000,
            drains: 50_000,
            pauses: 10_000,
            chaos: 500_000,
            round_trips: 10_000_000,
            rebalances: 5_000,
            redis_faults: 10_000,
            syscalls: 2_000,
            fuzzing_s: 6_000,
            passed: 50_000_000,
            backlog: 10_000_000,
            every_power_failure: true,
            mutations: 1,
        };
        assert_eq!(chosen(false, true), tenfold);
    }
}
