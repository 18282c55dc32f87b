//! Measures keylane beside its rivals, and says so in tables, JSON and pictures.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;
use versus::bars::{self, Bar};
use versus::contenders::Id;
use versus::disciplines::{self, Discipline};
use versus::footprint::{BARE_TASK, Footprint};
use versus::measure::Cut;
use versus::pull::{self, Pull};
use versus::results::Results;
use versus::table::{self, Table};
use versus::tower::{self, Front};
use versus::workload::{Scale, Workload};
use versus::{glob, plot, work};

/// The name under which `--only` finds the bytes and allocations.
const MEMORY: &str = "memory";

/// The name under which `--only` finds the pull queues.
const PULL: &str = "pull";
/// The name under which `--only` finds what stands in front of a service.
const TOWER: &str = "tower";

/// The name under which `--only` finds the disciplines.
const DISCIPLINES: &str = "disciplines";

/// The program that counts them.
const COUNTER: &str = "versus-memory";

/// What takes longer is measured once in a quick run.
const ONCE: Duration = Duration::from_millis(1_200);

/// Measures keylane beside its rivals: all in one process, in turns, the order checked inside.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Fewer messages, workloads and rounds: done in two minutes.
    #[arg(long)]
    quick: bool,
    /// Only these workloads: names with `*` and `?`, several separated by commas.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these contenders. Ratios need `floor` and `spawn` among them.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    contender: Vec<String>,
    /// How often each contender is measured at each workload [default: 5, quick: 2].
    #[arg(long, value_name = "NUMBER")]
    rounds: Option<usize>,
    /// Where versus.json and the pictures go [default: target/versus].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Writes the tables into this file as Markdown, too.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Only names the workloads and the contenders.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let scale = Scale {
        quick: arguments.quick,
    };
    let mut workloads = scale.workloads();
    workloads.retain(|workload| glob::any(&arguments.only, &workload.name));
    let memory = glob::any(&arguments.only, MEMORY);
    let pull = glob::any(&arguments.only, PULL);
    let tower = glob::any(&arguments.only, TOWER);
    let disciplines = glob::any(&arguments.only, DISCIPLINES);
    let mut ids = Id::ALL.to_vec();
    ids.retain(|id| glob::any(&arguments.contender, id.name()));
    let extras = [
        (memory, MEMORY),
        (pull, PULL),
        (tower, TOWER),
        (disciplines, DISCIPLINES),
    ];
    let nothing = workloads.is_empty() && !extras.iter().any(|(wanted, _)| *wanted);
    if ids.is_empty() || nothing {
        return Err("nothing of that name; `--list` names all".into());
    }
    if arguments.list {
        list(&workloads, &extras, &ids);
        return Ok(());
    }
    let out = match &arguments.out {
        Some(folder) => folder.clone(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/versus"),
    };
    fs::create_dir_all(&out)?;

    let counter = if memory { Some(build_counter()?) } else { None };
    let rounds = arguments.rounds.unwrap_or_else(|| scale.rounds()).max(1);
    let mut results = measure(&workloads, &ids, scale, rounds);
    if let Some(counter) = counter {
        results.footprints = footprints(&counter, &ids, scale.quick)?;
    }
    if pull {
        results.pulls = pulls(scale.quick, rounds);
    }
    if tower {
        results.fronts = fronts(scale.quick, rounds);
    }
    if disciplines {
        results.disciplines = costs(scale.quick, rounds);
    }
    let bars = bars::bars(&results);

    let mut tables = vec![table::contenders(&ids)];
    tables.extend(table::details(&results));
    let glance = glance(&results, &bars);
    tables.extend(glance.iter().cloned());
    for table in &tables {
        println!("{}", table.text());
    }
    write_json(&results, &bars, rounds, &out.join("versus.json"))?;
    let pictures = plot::draw(&results, &out)?;
    eprintln!(
        "{} pictures and versus.json are in {}",
        pictures.len(),
        out.display()
    );
    if let Some(file) = &arguments.markdown {
        let text: Vec<String> = [table::contenders(&ids)]
            .iter()
            .chain(&glance)
            .map(Table::markdown)
            .collect();
        fs::write(file, text.join("\n"))?;
    }
    Ok(())
}

fn list(workloads: &[Workload], extras: &[(bool, &str)], ids: &[Id]) {
    for workload in workloads {
        println!("{}", workload.name);
    }
    for (_, name) in extras.iter().filter(|(wanted, _)| *wanted) {
        println!("{name}");
    }
    println!("\n{}", table::contenders(ids).text());
}

/// Every table but those of single workloads.
fn glance(results: &Results, bars: &[Bar]) -> Vec<Table> {
    let mut tables = table::overviews(results);
    tables.extend(table::disturbed(results));
    tables.extend(table::round_trips(results));
    tables.extend(table::footprints(&results.footprints));
    tables.extend(table::pulls(&results.pulls));
    tables.extend(table::fronts(&results.fronts));
    tables.extend(table::disciplines(&results.disciplines));
    tables.push(table::bars(bars));
    tables
}

/// Workload after workload, round after round, and in each round every contender, the first of
/// them another one each time: what disturbs the machine disturbs all alike.
fn measure(workloads: &[Workload], ids: &[Id], scale: Scale, rounds: usize) -> Results {
    work::warm_up();
    let mut results = Results::default();
    let progress = Progress::new();
    for (i, workload) in workloads.iter().enumerate() {
        for id in ids {
            match workload.unfit(*id) {
                Some(why) => results.add_unfit(workload, *id, why),
                // Rows stand in the order of the contenders, whoever begins.
                None => results.add_waiting(workload, *id),
            }
        }
        let rounds = if workload.rounds == 0 {
            rounds
        } else {
            rounds.min(workload.rounds)
        };
        let mut slow = HashSet::new();
        for round in 0..rounds {
            for turn in 0..ids.len() {
                let id = ids[(turn + round) % ids.len()];
                // Once more would be the same, and take as long.
                let stalled = results.cut(workload, id) == Some(Cut::Stalled);
                if stalled || slow.contains(&id) || workload.unfit(id).is_some() {
                    continue;
                }
                progress.show(&format!(
                    "[{}/{}] {}, round {}/{rounds}: {}",
                    i + 1,
                    workloads.len(),
                    workload.name,
                    round + 1,
                    id.name(),
                ));
                let began = Instant::now();
                results.add(workload, id, round, workload.measure(id, scale));
                if scale.quick && began.elapsed() > ONCE {
                    slow.insert(id);
                }
            }
        }
        progress.note(&workload.name);
    }
    progress.finish();
    results
}

/// Builds the program that counts. Before anything is measured, so that both are of one source.
fn build_counter() -> Result<PathBuf, Box<dyn Error>> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--quiet",
        "--manifest-path",
        manifest,
        "--bin",
        COUNTER,
    ]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    if !command.status()?.success() {
        return Err(format!("{COUNTER} does not build").into());
    }
    let beside = std::env::current_exe()?.with_file_name(COUNTER);
    Ok(beside.with_extension(std::env::consts::EXE_EXTENSION))
}

/// Each contender in a process of its own, under the counting allocator.
fn footprints(counter: &Path, ids: &[Id], quick: bool) -> Result<Vec<Footprint>, Box<dyn Error>> {
    let progress = Progress::new();
    let names = [BARE_TASK]
        .into_iter()
        .chain(ids.iter().map(|id| id.name()));
    let mut all = Vec::new();
    for name in names {
        progress.show(&format!("{MEMORY}: {name}"));
        let mut command = Command::new(counter);
        command.arg(name).args(quick.then_some("--quick"));
        let output = command.output()?;
        progress.note(&format!("{MEMORY}: {name}"));
        if output.status.success() {
            all.push(serde_json::from_slice(&output.stdout)?);
        } else {
            progress.finish();
            eprintln!(
                "{MEMORY}: {name}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
    }
    progress.finish();
    Ok(all)
}

/// Both pull queues, beside few and many parked messages.
fn pulls(quick: bool, rounds: usize) -> Vec<Pull> {
    let progress = Progress::new();
    progress.show(PULL);
    let pulls = pull::measure(quick, rounds);
    progress.note(PULL);
    progress.finish();
    pulls
}

/// keylane's layer beside tower's own.
fn fronts(quick: bool, rounds: usize) -> Vec<Front> {
    let progress = Progress::new();
    progress.show(TOWER);
    let fronts = tower::measure(quick, rounds);
    progress.note(TOWER);
    progress.finish();
    fronts
}

/// Each discipline beside plain FIFO.
fn costs(quick: bool, rounds: usize) -> Vec<Discipline> {
    let progress = Progress::new();
    progress.show(DISCIPLINES);
    let costs = disciplines::measure(quick, rounds);
    progress.note(DISCIPLINES);
    progress.finish();
    costs
}

fn write_json(
    results: &Results,
    bars: &[Bar],
    rounds: usize,
    file: &Path,
) -> Result<(), Box<dyn Error>> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let document = json!({
        "machine": {
            "cores": cores,
            "os": std::env::consts::OS,
            "architecture": std::env::consts::ARCH,
        },
        "rounds": rounds,
        "rows": results.records(),
        "memory": results.footprints,
        "pull": results.pulls,
        "tower": results.fronts,
        "disciplines": results.disciplines,
        "bars": bars,
    });
    fs::write(file, serde_json::to_vec_pretty(&document)?)?;
    Ok(())
}

/// One line on the terminal, or one per workload in a log.
struct Progress {
    began: Instant,
    terminal: bool,
}

impl Progress {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn show(&self, what: &str) {
        if self.terminal {
            eprint!("\r\x1b[2K{:>4} s  {what}", self.began.elapsed().as_secs());
            // A progress line that cannot be written is no reason to stop.
            let _ = std::io::stderr().flush();
        }
    }

    /// For those who read a log.
    fn note(&self, done: &str) {
        if !self.terminal {
            eprintln!("{:>4} s  {done}", self.began.elapsed().as_secs());
        }
    }

    fn finish(&self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
        eprintln!("done in {} s", self.began.elapsed().as_secs());
    }
}
