//! Measures keylane-sql beside other queues on PostgreSQL, and says so in tables and JSON.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;
use testkit_servers::Postgres;
use tracing_subscriber::EnvFilter;
use versus_sql::bars::{self, Bar};
use versus_sql::contenders::{CONCURRENCY, Id};
use versus_sql::results::{self, Results};
use versus_sql::workload::{self, Workload};
use versus_sql::{Error, Table, backlog, glob, latency, measure};

/// Measures keylane-sql beside awa, Graphile Worker and a table with SKIP LOCKED.
///
/// One PostgreSQL server is started for the run, and removed. In each round every queue is measured
/// at each workload, in a database of its own; the first of them is another one each time. All
/// messages are stored before the clock starts, and it runs until the last one is handled and the
/// database knows it. The order of each key is checked in the handlers.
///
/// Workloads are named handler/keys/workers, for example `empty/10k/1w` or `sleep-5ms/1/3w`. Workers
/// are tasks of one process with a pool each, and run 256 handlers at a time each.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// 10,000 messages and one round.
    #[arg(long)]
    quick: bool,
    /// Messages of each measurement [default: 100,000, quick: 10,000].
    #[arg(long, value_name = "NUMBER")]
    messages: Option<u64>,
    /// Only these workloads: names with `*` and `?`, several separated by commas.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these queues: keylane, awa, graphile, skip-locked, awa-unordered, graphile-unordered.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    contender: Vec<String>,
    /// How often each is measured [default: 3, quick: 1].
    #[arg(long, value_name = "NUMBER")]
    rounds: Option<usize>,
    /// When a measurement is cut; its rate until then is marked with `~`.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    limit: u64,
    /// Measures how soon a message is handled on an idle system, and no workloads.
    #[arg(long)]
    latency: bool,
    /// Measures keylane on a backlog of so many messages, and no workloads.
    #[arg(long, value_name = "MESSAGES")]
    backlog: Option<u64>,
    /// Keys of the backlog.
    #[arg(long, value_name = "NUMBER", default_value_t = 100_000)]
    backlog_keys: u64,
    /// Writes the tables into this file as Markdown, too.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Writes all figures into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Sets something in the server, for example `synchronous_commit=off`; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    server_setting: Vec<String>,
    /// Writes the log of the server into this file.
    #[arg(long, value_name = "FILE")]
    server_log: Option<PathBuf>,
    /// Only names the workloads and the queues.
    #[arg(long)]
    list: bool,
}

impl Arguments {
    fn messages(&self) -> u64 {
        let usual = if self.quick { 10_000 } else { 100_000 };
        self.messages.unwrap_or(usual).max(1)
    }

    fn rounds(&self) -> usize {
        let usual = if self.quick { 1 } else { 3 };
        self.rounds.unwrap_or(usual).max(1)
    }
}

fn main() -> ExitCode {
    // Silent unless RUST_LOG asks: what the queues log costs them time.
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
    let mut workloads = workload::all(arguments.messages());
    workloads.retain(|workload| glob::any(&arguments.only, &workload.name));
    let mut ids = Id::ALL.to_vec();
    ids.retain(|id| glob::any(&arguments.contender, id.name()));
    if ids.is_empty() || workloads.is_empty() {
        return Err("nothing of that name; `--list` names all".into());
    }
    if arguments.list {
        for workload in &workloads {
            println!("{}", workload.name);
        }
        println!("\n{}", versus_sql::names(&ids));
        return Ok(());
    }

    // The server outlives the runtimes of the measurements.
    let outer = measure::runtime();
    let server = outer.block_on(Postgres::start())?;
    let version = outer.block_on(server.execute("postgres", "show server_version"))?;
    eprintln!("PostgreSQL {}", version.trim());
    outer.block_on(set_up(&server, &arguments.server_setting))?;
    let mut results = Results {
        serial: apart(async { Ok(results::serial().await) })?,
        ..Results::default()
    };
    if let Some(messages) = arguments.backlog {
        let keys = arguments.backlog_keys.max(1);
        let measured = apart(backlog::measure(&server, messages, keys))?;
        results.backlogs.push(measured);
    }
    if arguments.latency {
        let messages = if arguments.quick { 200 } else { 1_000 };
        for id in ids.iter().copied() {
            let measured = apart(latency::measure(&server, id, messages))?;
            results.latencies.push(measured);
        }
    }
    if arguments.backlog.is_none() && !arguments.latency {
        measure_all(arguments, &server, &workloads, &ids, &mut results);
    }
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
        write_json(arguments, &results, &bars, version.trim(), file)?;
    }
    if let Some(file) = &arguments.server_log {
        fs::write(file, server.log())?;
    }
    Ok(())
}

async fn set_up(server: &Postgres, settings: &[String]) -> Result<(), Error> {
    for setting in settings {
        let (name, value) = setting.split_once('=').ok_or("NAME=VALUE is needed")?;
        let value = value.replace('\'', "''");
        // Those of libraries are unknown to the server before it has loaded them.
        let whose = match name.contains('.') {
            true => format!("role {}", Postgres::USER),
            false => "system".to_owned(),
        };
        let set = format!("alter {whose} set {name} = '{value}'");
        server.execute("postgres", &set).await?;
        eprintln!("{name} = {value}");
    }
    server
        .execute("postgres", "select pg_reload_conf()")
        .await?;
    Ok(())
}

/// In a runtime of its own.
fn apart<T>(measurement: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = measure::runtime();
    let measured = runtime.block_on(measurement);
    runtime.shutdown_timeout(Duration::from_secs(1));
    measured
}

fn measure_all(
    arguments: &Arguments,
    server: &Postgres,
    workloads: &[Workload],
    ids: &[Id],
    results: &mut Results,
) {
    let began = Instant::now();
    let rounds = arguments.rounds();
    let limit = Duration::from_secs(arguments.limit);
    for (i, workload) in workloads.iter().enumerate() {
        for round in 0..rounds {
            for turn in 0..ids.len() {
                let id = ids[(turn + round) % ids.len()];
                show(&format!(
                    "{:>5} s  [{}/{}] {}, round {}/{rounds}: {}",
                    began.elapsed().as_secs(),
                    i + 1,
                    workloads.len(),
                    workload.name,
                    round + 1,
                    id.name(),
                ));
                let measured = apart(measure::measure(server, workload, id, limit));
                let row = results.row_mut(workload, id);
                match measured {
                    Ok(sample) => {
                        row.samples.insert(round, sample);
                    }
                    // The others can still be measured.
                    Err(error) => row.error = Some(error.to_string()),
                }
            }
        }
    }
    show("");
    eprintln!("done in {} s", began.elapsed().as_secs());
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

fn tables(results: &Results, bars: &[Bar]) -> Vec<Table> {
    let mut tables = Vec::new();
    if !results.rows.is_empty() {
        tables.push(versus_sql::rates(results));
        tables.push(versus_sql::violations(results));
    }
    tables.extend(versus_sql::latencies(results));
    tables.extend(versus_sql::backlogs(results));
    tables.push(versus_sql::bars_table(bars, results));
    tables
}

fn write_json(
    arguments: &Arguments,
    results: &Results,
    bars: &[Bar],
    server: &str,
    file: &PathBuf,
) -> Result<(), Error> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let document = json!({
        "machine": {
            "cores": cores,
            "os": std::env::consts::OS,
            "architecture": std::env::consts::ARCH,
        },
        "postgresql": server,
        "messages": arguments.messages(),
        "rounds": arguments.rounds(),
        "concurrency": CONCURRENCY,
        "results": results,
        "bars": bars,
    });
    fs::write(file, serde_json::to_vec_pretty(&document)?)?;
    Ok(())
}
