//! `cargo xtask soak`: the same guarantees, far more often than a change can wait for.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::Error;
use crate::mutation::{self, Shard};
use crate::schedules;
use crate::steps::Steps;
use crate::tree::Tree;
use crate::workspace::{self, cargo};

/// Run the guarantees for a night: 2,600,000 schedules by chance and as many by PCT, 2,000 kills,
/// 5,000 drains, mutations
///
/// Every step runs, also after one has failed. The report is target/soak/report.json. The last step
/// changes the pure parts, one expression at a time, with cargo-mutants (installed below
/// target/tools), and a unit test must fail each time; what survives must be in
/// xtask/survivors.txt, with a reason.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A tenth of everything
    #[arg(long, conflicts_with = "long")]
    short: bool,
    /// Ten times everything but the mutations
    #[arg(long)]
    long: bool,
}

/// How often each thing is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scale {
    /// Schedules over all scenarios, for each scheduler.
    schedules: u64,
    /// Random points at which the runtime is dropped.
    kills: u64,
    /// Drains under load.
    drains: u64,
    /// One mutation in so many.
    mutations: u64,
}

/// The scale without flags.
const SOAK: Scale = Scale {
    schedules: 2_600_000,
    kills: 2_000,
    drains: 5_000,
    mutations: 1,
};

/// The tests in `tests/engine` that drop the runtime read this many points from here.
const KILLS: &str = "KEYLANE_KILLS";
/// … and their names contain this.
const KILLS_FILTER: &str = "runtime_dropped";

/// The tests in `tests/engine` that drain under load read how often from here.
const DRAINS: &str = "KEYLANE_DRAINS";
/// … and their names contain this.
const DRAINS_FILTER: &str = "drains_under_load";

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let scale = Scale::chosen(args);
    let mut steps = Steps::default();
    // A failed step is in the table and the report; the others still have something to say.
    for (name, command) in plan(scale) {
        if let Err(error) = steps.run_tests(&name, command) {
            eprintln!("{error}");
        }
        // After each step, so that a night cut short has not been for nothing.
        write_report(scale, &steps)?;
    }
    if let Err(error) = mutations(scale, &mut steps) {
        eprintln!("{error}");
    }
    write_report(scale, &steps)?;
    println!("\n{}\nreport: {}", steps.table(), report_path().display());
    if steps.all_passed() {
        Ok(())
    } else {
        Err("the soak has found something".into())
    }
}

impl Scale {
    fn chosen(args: &Args) -> Self {
        let Scale {
            schedules,
            kills,
            drains,
            mutations,
        } = SOAK;
        if args.short {
            Scale {
                schedules: schedules / 10,
                kills: kills / 10,
                drains: drains / 10,
                mutations: mutations * 10,
            }
        } else if args.long {
            Scale {
                schedules: schedules * 10,
                kills: kills * 10,
                drains: drains * 10,
                // There are no more of them.
                mutations,
            }
        } else {
            SOAK
        }
    }
}

fn plan(scale: Scale) -> Vec<(String, Command)> {
    let Scale {
        schedules,
        kills,
        drains,
        mutations: _,
    } = scale;
    let count = schedules.to_string();
    let mut killed = engine(KILLS_FILTER);
    killed.env(KILLS, kills.to_string());
    let mut drained = engine(DRAINS_FILTER);
    drained.env(DRAINS, drains.to_string());
    vec![
        (
            format!("{schedules} schedules, random"),
            schedules::tests(&count, "random"),
        ),
        (
            format!("{schedules} schedules, PCT"),
            schedules::tests(&count, "pct"),
        ),
        (format!("runtime dropped at {kills} points"), killed),
        (format!("{drains} drains under load"), drained),
    ]
}

fn mutations(scale: Scale, steps: &mut Steps) -> Result<(), Error> {
    let name = match scale.mutations {
        1 => "all mutations".to_owned(),
        parts => format!("one mutation in {parts}"),
    };
    let shard = Shard::first_of(scale.mutations);
    // The copy is locked until the step is over.
    let tree = Tree::of_workspace();
    let command = tree.and_then(|tree| Ok((mutation::command(&tree, shard)?, tree)));
    match command {
        Ok((command, _tree)) => {
            steps.run_judged(&name, command, mutation::progress(), mutation::judge)
        }
        Err(error) => steps.fail(&name, &error),
    }
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

fn report_path() -> PathBuf {
    workspace::target("soak").join("report.json")
}

fn write_report(scale: Scale, steps: &Steps) -> Result<(), Error> {
    let report = json!({
        "commit": answer(Command::new("git").args(["rev-parse", "HEAD"])),
        "clean": answer(Command::new("git").args(["status", "--porcelain"])).is_empty(),
        "rustc": answer(Command::new("rustc").arg("--version")),
        "schedules": scale.schedules,
        "kills": scale.kills,
        "drains": scale.drains,
        "one_mutation_in": scale.mutations,
        "passed": steps.all_passed(),
        "steps": steps.to_json(),
    });
    let path = report_path();
    std::fs::create_dir_all(path.parent().expect("the report lies in a folder"))?;
    std::fs::write(path, format!("{report:#}\n"))?;
    Ok(())
}

/// What `command` prints, or nothing where it does not run.
fn answer(command: &mut Command) -> String {
    let output = command.current_dir(workspace::root()).output();
    let stdout = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&stdout).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn the_flags_scale_everything_alike() {
        let chosen = |short, long| Scale::chosen(&Args { short, long });
        assert_eq!(chosen(false, false), SOAK);
        let tenth = Scale {
            schedules: 260_000,
            kills: 200,
            drains: 500,
            mutations: 10,
        };
        assert_eq!(chosen(true, false), tenth);
        let tenfold = Scale {
            schedules: 26_000_000,
            kills: 20_000,
            drains: 50_000,
            mutations: 1,
        };
        assert_eq!(chosen(false, true), tenfold);
    }

    #[test]
    fn the_numbers_reach_the_tests() {
        let commands: Vec<_> = plan(SOAK)
            .iter()
            .map(|(_, step)| process::display(step))
            .collect();
        assert_eq!(commands.len(), 4);
        let random = "KEYLANE_SCHEDULER=random KEYLANE_SCHEDULES=2600000";
        assert!(commands[0].contains(random), "{}", commands[0]);
        let pct = "KEYLANE_SCHEDULER=pct KEYLANE_SCHEDULES=2600000";
        assert!(commands[1].contains(pct), "{}", commands[1]);
        assert!(
            commands[2].starts_with("KEYLANE_KILLS=2000 "),
            "{}",
            commands[2]
        );
        assert!(
            commands[3].starts_with("KEYLANE_DRAINS=5000 "),
            "{}",
            commands[3]
        );
    }
}
