//! `cargo xtask soak`: checks the same guarantees, far more often than a change can wait for.

mod checks;

mod commands;

mod kinds;

mod plan;

mod scale;

use self::scale::Scale;
use crate::Error;
use crate::part::Part;
use crate::proof::{self, Run, Settings, Step};

/// Check the guarantees for a night: 2,600,000 random schedules and as many by PCT, 2,000 kills,
/// 5,000 drains, faults of the disk, mutations
///
/// A soak need not be one run. The result of each step is kept in target/soak/results.json, with
/// the hash of the tree that it ran on: of all files that git tracks or would add, except documents
/// and planted bugs. A step that has passed on this tree, at least as often as requested, does not
/// run again. So an interrupted soak goes on where it stopped, and it is complete when the table at
/// its end has no missing step. A failed step is repeated with its seed. The exit status is a
/// failure if a step has failed on this tree.
///
/// At the normal scale no step takes longer than an hour by its estimate: longer ones are divided
/// into parts with a seed each. Every step runs, even after one has failed. All random tests get
/// fresh numbers from one seed, which is printed and is in the results, and ten times as many cases
/// as in `cargo xtask test`, whose cases are always the same: commit the failures that they find as
/// cases (proptest writes them into proptest-regressions by itself).
///
/// Runtimes are dropped at 2,000 points, and processes with an inbox are killed 2,000 times, a
/// quarter of them while they recover. Processes with a lease in a database are paused past its
/// end, 1,000 times on each database. Consumers of Kafka join, leave, die and stand still 500
/// times, and workers of a list in Redis and members of a group of streams 1,000 times each.
/// Primaries of PostgreSQL, MariaDB and Redis, with Sentinel and in a cluster, and brokers of Kafka
/// fail 20 times each while workers die: benches/results/failovers.md is from there. Each of the
/// first 2,000 system calls of an inbox on its files fails, once with EIO and once with ENOSPC. The
/// decoders of records are fuzzed for 10 minutes; an input with a new kind of answer is added to
/// crates/keylane-inbox/tests/corpus. The power fails at every sync of a workload. 5,000,000
/// messages pass an inbox of constant depth, and backlogs of 10,000,000 are worked off in 256 MiB.
///
/// Before that, cargo-deny checks the dependencies against deny.toml, cargo-semver-checks compares
/// the public items with the last release, and the crates are packed and built from their packages.
/// At the end cargo-mutants changes the pure parts, one expression at a time, and a unit test must
/// fail each time; survivors must be in xtask/survivors.txt, with a reason. These tools are
/// installed below target/tools.
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
    /// Only the step of this name, or those whose names contain this; may be given several times
    #[arg(long, value_name = "NAME")]
    step: Vec<String>,
    /// Only the clusters: servers that fail over while processes work on them
    #[arg(long)]
    clusters: bool,
    /// Also run steps that have passed on this tree
    #[arg(long)]
    again: bool,
    /// Print the steps, how long each took when it passed last, and whether it has passed on this
    /// tree
    #[arg(long, conflicts_with = "again")]
    list: bool,
    /// The commit whose public items are compared with these, instead of the last tag
    #[arg(long, value_name = "REV")]
    baseline_rev: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let scale = Scale::chosen(args.short, args.long);
    let release = checks::release(args.baseline_rev.as_deref())?;
    let steps = plan::steps(scale, release.as_deref());
    let mut names = args.step.clone();
    names.extend(args.clusters.then(|| kinds::CLUSTERS.to_owned()));
    let chosen = proof::choose(&steps, &names)?;
    let mut run = Run::new(Settings {
        scale: scale.name(),
        seed: args.seed,
        again: args.again,
    })?;
    if args.list {
        return run.list(&chosen);
    }
    run.run(&chosen)?;
    run.conclude(&steps.iter().collect::<Vec<_>>())
}

/// The steps that change the code. All of them if no part is named.
pub(crate) fn mutations(parts: &[Part]) -> Vec<Step> {
    plan::mutations(parts)
}
