//! Measures keylane beside its rivals, and says so in tables, JSON and pictures.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;
use versus::against::Pair;
use versus::bars::{self, Bar};
use versus::contenders::Id;
use versus::counter::Counter;
use versus::disciplines::{self, Arm};
use versus::extra::Extra;
use versus::footprint::BARE_TASK;
use versus::measure::Cut;
use versus::results::Results;
use versus::table::{self, Table};
use versus::workload::{Scale, Workload};
use versus::{glob, plot, pull, source, tower, work};

/// What takes longer is measured once in a quick run.
const ONCE: Duration = Duration::from_millis(1_200);

/// Measures keylane beside its rivals: all in one process, in turns, the order checked inside.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Fewer messages, workloads and rounds: done in three minutes.
    #[arg(long)]
    quick: bool,
    /// Only these workloads: names with `*` and `?`, several separated by commas; `--list` names
    /// them all.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these contenders. Ratios need `floor` and `spawn` among them.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    contender: Vec<String>,
    /// Only these disciplines, by their names in the table.
    #[arg(long, value_name = "GLOB")]
    discipline: Option<String>,
    /// Dispatchers at rest that are counted [default: 10,000, quick: 1,000].
    #[arg(long, value_name = "NUMBER")]
    dispatchers: Option<usize>,
    /// Compares with another build of this program, process by process.
    #[arg(long, value_name = "PROGRAM")]
    against: Option<PathBuf>,
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
    let mut extras: Vec<Extra> = Extra::all().collect();
    extras.retain(|extra| glob::any(&arguments.only, &extra.name()));
    let mut ids = Id::ALL.to_vec();
    ids.retain(|id| glob::any(&arguments.contender, id.name()));
    if ids.is_empty() || workloads.is_empty() && extras.is_empty() {
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
    let rounds = arguments.rounds.unwrap_or_else(|| scale.rounds()).max(1);
    if let Some(old) = &arguments.against {
        return against(arguments, old, &workloads, &extras, rounds, &out);
    }

    // Before anything is measured, which the build would disturb.
    let counted = extras.iter().any(|extra| extra.is_counted());
    let counter = counted.then(Counter::build).transpose()?;
    let mut results = measure(&workloads, &ids, scale, rounds);
    for extra in &extras {
        add(
            *extra,
            &mut results,
            arguments,
            &ids,
            counter.as_ref(),
            rounds,
        )?;
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

fn list(workloads: &[Workload], extras: &[Extra], ids: &[Id]) {
    for workload in workloads {
        println!("{}", workload.name);
    }
    for extra in extras {
        println!("{}", extra.name());
    }
    println!("\n{}", table::contenders(ids).text());
}

/// Every table but those of single workloads.
fn glance(results: &Results, bars: &[Bar]) -> Vec<Table> {
    let mut tables = table::overviews(results);
    tables.extend(table::settings(results));
    tables.extend(table::disturbed(results));
    tables.extend(table::hot_keys(results));
    tables.extend(table::in_place(results));
    tables.extend(table::round_trips(results));
    tables.extend(table::footprints(&results.footprints));
    tables.extend(table::rate_keys(&results.rate_keys));
    tables.extend(table::idle(&results.idle));
    tables.extend(table::pulls(&results.pulls));
    tables.extend(table::fed(&results.fed));
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
        let ids: Vec<Id> = ids
            .iter()
            .copied()
            .filter(|id| workload.asks(*id))
            .collect();
        for id in &ids {
            match workload.unfit(*id) {
                Some(why) => results.add_unfit(workload, *id, why),
                // Rows stand in the order of the contenders, whichever begins.
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

/// Measures one thing that is no workload.
fn add(
    extra: Extra,
    results: &mut Results,
    arguments: &Arguments,
    ids: &[Id],
    counter: Option<&Counter>,
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    let quick = arguments.quick;
    let progress = Progress::new();
    progress.show(&extra.name());
    match (extra, counter) {
        (Extra::Memory, Some(counter)) => {
            let contenders = ids.iter().map(|id| id.name());
            for name in [BARE_TASK].into_iter().chain(contenders) {
                progress.show(&format!("{}: {name}", extra.name()));
                match counter.footprint(name, quick) {
                    Ok(footprint) => results.footprints.push(footprint),
                    // The others can still be counted.
                    Err(error) => eprintln!("{}: {name}: {error}", extra.name()),
                }
            }
        }
        (Extra::RateKeys, Some(counter)) => results.rate_keys = counter.rate_keys(quick)?,
        (Extra::Idle, Some(counter)) => {
            let usual = if quick { 1_000 } else { 10_000 };
            let dispatchers = arguments.dispatchers.unwrap_or(usual);
            results.idle.push(counter.idle(dispatchers)?);
        }
        (Extra::Memory | Extra::RateKeys | Extra::Idle, None) => {
            unreachable!("the program that counts is built where something is counted")
        }
        (Extra::Pull, _) => results.pulls = pull::measure(quick, rounds),
        (Extra::Source, _) => results.fed = source::measure(quick, rounds),
        (Extra::Tower, _) => results.fronts = tower::measure(quick, rounds),
        (Extra::Disciplines(keys), _) => {
            let wanted = arguments.discipline.as_slice();
            let mut arms = Arm::ALL.to_vec();
            arms.retain(|arm| glob::any(wanted, arm.name()));
            let measured = disciplines::measure(keys, &arms, quick, rounds);
            results.disciplines.extend(measured);
        }
    }
    progress.note(&extra.name());
    progress.finish();
    Ok(())
}

/// Measures this program and another build of it, in turns.
fn against(
    arguments: &Arguments,
    old: &Path,
    workloads: &[Workload],
    extras: &[Extra],
    rounds: usize,
    out: &Path,
) -> Result<(), Box<dyn Error>> {
    let pair = Pair::new(old, passed_on(arguments), out)?;
    let workloads = workloads.iter().map(|workload| workload.name.clone());
    let extras = extras.iter().map(|extra| extra.name());
    let progress = Progress::new();
    let mut compared = Vec::new();
    for name in workloads.chain(extras) {
        progress.show(&name);
        match pair.measure(&name, rounds) {
            Ok(figures) => compared.extend(figures),
            // The old program may not know it.
            Err(error) => eprintln!("{error}"),
        }
        progress.note(&name);
    }
    progress.finish();
    let table = table::against(&compared);
    println!("{}", table.text());
    if let Some(file) = &arguments.markdown {
        fs::write(file, table.markdown())?;
    }
    Ok(())
}

/// What both programs are told besides what to measure: each process measures three times.
fn passed_on(arguments: &Arguments) -> Vec<String> {
    let mut all = vec!["--rounds=3".to_owned()];
    all.extend(arguments.quick.then(|| "--quick".to_owned()));
    if !arguments.contender.is_empty() {
        all.push(format!("--contender={}", arguments.contender.join(",")));
    }
    all.extend(
        arguments
            .discipline
            .iter()
            .map(|glob| format!("--discipline={glob}")),
    );
    all.extend(
        arguments
            .dispatchers
            .map(|count| format!("--dispatchers={count}")),
    );
    all
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
        "rate_keys": results.rate_keys,
        "idle": results.idle,
        "pull": results.pulls,
        "source": results.fed,
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
