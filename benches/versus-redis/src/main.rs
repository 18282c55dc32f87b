//! Measures keylane-redis beside other ways to consume Redis, and says so in tables and JSON.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;
use tracing_subscriber::EnvFilter;
use versus_redis::bars::{self, Bar};
use versus_redis::contenders::{CONCURRENCY, HELD, Id};
use versus_redis::measure::{self, Sample};
use versus_redis::results::Results;
use versus_redis::server::{Fsync, Kind, Server};
use versus_redis::workload::{self, What, Workload};
use versus_redis::{Error, Table, glob, leased, leases, tables};

/// Leases that are held.
const LEASES: usize = 100_000;

/// Measures keylane-redis beside a plain loop over XREADGROUP, a loop with an LMOVE and an LREM for
/// each message, and apalis-redis.
///
/// One server is started for the run, and removed. In each round every contender is measured at each
/// workload; the first of them is another one each time. All messages are stored before the clock
/// starts, and it runs until the last one is handled and the server knows it. Handlers do nothing but
/// check the order of each key. `leases` holds leases, and measures the processor time that takes.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// 20,000 messages and one round.
    #[arg(long)]
    quick: bool,
    /// Messages of each measurement [default: 200,000, quick: 20,000].
    #[arg(long, value_name = "NUMBER")]
    messages: Option<u64>,
    /// Leases that are held.
    #[arg(long, value_name = "NUMBER", default_value_t = LEASES)]
    leases: usize,
    /// Only these workloads: names with `*` and `?`, several separated by commas.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these contenders, in the same way; `--list` names all.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    contender: Vec<String>,
    /// How often each is measured [default: 3, quick: 1].
    #[arg(long, value_name = "NUMBER")]
    rounds: Option<usize>,
    /// When a measurement is cut; its rate until then is marked with `~`.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    limit: u64,
    /// Which server.
    #[arg(long, value_enum, default_value_t = Kind::Redis8)]
    server: Kind,
    /// When it writes its append-only file to the disk.
    #[arg(long, value_enum, default_value_t = Fsync::Everysec)]
    fsync: Fsync,
    /// Writes the tables into this file as Markdown, too.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Writes all figures into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only names the workloads and who takes part.
    #[arg(long)]
    list: bool,
}

impl Arguments {
    fn messages(&self) -> u64 {
        let usual = if self.quick { 20_000 } else { 200_000 };
        self.messages.unwrap_or(usual).max(1)
    }

    fn rounds(&self) -> usize {
        let usual = if self.quick { 1 } else { 3 };
        self.rounds.unwrap_or(usual).max(1)
    }

    /// How often each lease is renewed.
    fn periods(&self) -> u32 {
        if self.quick { 2 } else { 4 }
    }
}

fn main() -> ExitCode {
    // Silent unless RUST_LOG asks: what the contenders log costs them time.
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let mut workloads = workload::all(arguments.messages(), arguments.leases.max(1));
    workloads.retain(|workload| glob::any(&arguments.only, &workload.name));
    for workload in &mut workloads {
        let is_asked = |id: &Id| glob::any(&arguments.contender, id.name());
        workload.ids.retain(is_asked);
    }
    workloads.retain(|workload| !workload.ids.is_empty());
    if workloads.is_empty() {
        return Err("nothing of that name; `--list` names all".into());
    }
    if arguments.list {
        for workload in &workloads {
            let names: Vec<&str> = workload.ids.iter().map(|id| id.name()).collect();
            println!("{}: {}", workload.name, names.join(", "));
        }
        return Ok(());
    }

    // The server outlives the runtimes of the measurements.
    let outer = measure::runtime();
    let server = outer.block_on(Server::start(arguments.server, arguments.fsync))?;
    eprintln!("{}", server.version);
    let mut results = Results::default();
    measure_all(arguments, &server, &workloads, &mut results);
    let bars = bars::bars(&results);
    let tables = tables(&results, &bars);
    for table in &tables {
        println!("{}", table.text());
    }
    if let Some(file) = &arguments.markdown {
        let text: Vec<String> = tables.iter().map(Table::markdown).collect();
        fs::write(file, text.join("\n"))?;
    }
    if let Some(file) = &arguments.json {
        write_json(arguments, &server, &results, &bars, file)?;
    }
    Ok(())
}

fn measure_all(
    arguments: &Arguments,
    server: &Server,
    workloads: &[Workload],
    results: &mut Results,
) {
    let began = Instant::now();
    let rounds = arguments.rounds();
    for (i, workload) in workloads.iter().enumerate() {
        for round in 0..rounds {
            for turn in 0..workload.ids.len() {
                let id = workload.ids[(turn + round) % workload.ids.len()];
                show(&format!(
                    "{:>5} s  [{}/{}] {}, round {}/{rounds}: {}",
                    began.elapsed().as_secs(),
                    i + 1,
                    workloads.len(),
                    workload.name,
                    round + 1,
                    id.name(),
                ));
                let sample = apart(one(arguments, server, workload, id));
                // After an error the others can still be measured.
                let sample = sample.map_err(|error| error.to_string());
                results.push(&workload.name, id, round, sample);
            }
        }
    }
    show("");
    eprintln!("done in {} s", began.elapsed().as_secs());
}

async fn one(
    arguments: &Arguments,
    server: &Server,
    workload: &Workload,
    id: Id,
) -> Result<Sample, Error> {
    match workload.what {
        What::Consume { traffic, workers } => {
            let limit = Duration::from_secs(arguments.limit);
            measure::consume(server, id, traffic, workers, limit).await
        }
        What::Leases(count) => leases::measure(server, count, arguments.periods()).await,
        What::Leased(traffic) => leased::measure(server, id, traffic).await,
    }
}

/// In a runtime of its own.
fn apart<T>(measurement: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = measure::runtime();
    let measured = runtime.block_on(measurement);
    runtime.shutdown_timeout(Duration::from_secs(1));
    measured
}

/// One line on the terminal, or a line for each in a log.
fn show(what: &str) {
    let mut stderr = std::io::stderr();
    // A line that cannot be written is no reason to stop.
    let _ = match (stderr.is_terminal(), what) {
        (true, what) => write!(stderr, "\r\x1b[2K{what}").and_then(|()| stderr.flush()),
        (false, "") => Ok(()),
        (false, what) => writeln!(stderr, "{what}"),
    };
}

fn write_json(
    arguments: &Arguments,
    server: &Server,
    results: &Results,
    bars: &[Bar],
    file: &Path,
) -> Result<(), Error> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let document = json!({
        "machine": {
            "cores": cores,
            "os": std::env::consts::OS,
            "architecture": std::env::consts::ARCH,
        },
        "server": server.version,
        "fsync": arguments.fsync,
        "messages": arguments.messages(),
        "rounds": arguments.rounds(),
        "concurrency": CONCURRENCY,
        "held": HELD,
        "lease_seconds": leases::TTL.as_secs(),
        "results": results,
        "bars": bars,
    });
    fs::write(file, serde_json::to_vec_pretty(&document)?)?;
    Ok(())
}
