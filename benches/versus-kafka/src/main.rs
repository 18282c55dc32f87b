//! Measures keylane-kafka beside other ways to consume a topic, and says so in tables and JSON.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use serde_json::json;
use tracing_subscriber::EnvFilter;
use versus_kafka::bars;
use versus_kafka::broker::Broker;
use versus_kafka::contenders::{self, Id, Parallel};
use versus_kafka::process;
use versus_kafka::report::Report;
use versus_kafka::results::Results;
use versus_kafka::task::Task;
use versus_kafka::workload::{self, Size, Workload};
use versus_kafka::{Error, Table, glob, tables};

/// How often a topic is read before it is measured. After a single time the virtual machine of the broker
/// still compiles, on one of the two cores.
const WARM_UPS: u32 = 6;

/// Measures keylane-kafka beside rdkafka's consumer in a loop, a stream with a lock for each key, and
/// Confluent's Parallel Consumer.
///
/// One broker is started for the run. A topic is filled once and read by all, each in a process and a
/// group of its own; in each round the first one is another one. The clock runs from the start of the
/// first handler to the end of the last one. The order of each key is checked in the handlers.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// At most 20,000 records and one round.
    #[arg(long)]
    quick: bool,
    /// Most records of each workload [default: as many as it has, quick: 20,000].
    #[arg(long, value_name = "NUMBER")]
    records: Option<u32>,
    /// How often each is measured [default: 3, quick: 1].
    #[arg(long, value_name = "NUMBER")]
    rounds: Option<usize>,
    /// Only these workloads: names with `*` and `?`, several separated by commas.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these contenders: keylane, plain, locks, tasks, parallel, parallel-reactor.
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    contender: Vec<String>,
    /// When a process is killed that is not done.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
    /// Writes the tables into this file as Markdown, too.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Writes each report into this file when it is there, and the bars at the end: JSON, one a line.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only names the workloads and who takes part.
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a contender in this process.
    #[command(name = process::SUBCOMMAND, hide = true)]
    Contender { name: String, task: Vec<String> },
}

impl Arguments {
    fn size(&self) -> Size {
        let usual = if self.quick { 20_000 } else { u32::MAX };
        Size {
            most: self.records.unwrap_or(usual).max(10),
        }
    }

    fn rounds(&self) -> usize {
        let usual = if self.quick { 1 } else { 3 };
        self.rounds.unwrap_or(usual).max(1)
    }
}

fn main() -> ExitCode {
    // Silent unless RUST_LOG asks: what the contenders log costs them time.
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let arguments = Arguments::parse();
    let ended = match &arguments.command {
        Some(Command::Contender { name, task }) => {
            Task::from_arguments(task).and_then(|task| contenders::run(name, &task))
        }
        None => run(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let mut workloads = workload::all(arguments.size());
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
    let needs_java = workloads
        .iter()
        .flat_map(|one| &one.ids)
        .any(|id| id.is_java());
    let java = needs_java.then(Parallel::build).transpose()?;
    let json = arguments.json.as_ref().map(File::create).transpose()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let results = runtime.block_on(measure(arguments, &workloads, java.as_ref(), json.as_ref()))?;

    let bars = bars::bars(&results);
    let tables = tables(&results, &bars);
    for table in &tables {
        println!("{}", table.text());
    }
    if let Some(file) = &arguments.markdown {
        let text: Vec<String> = tables.iter().map(Table::markdown).collect();
        std::fs::write(file, text.join("\n"))?;
    }
    if let Some(mut file) = json {
        for bar in &bars {
            writeln!(file, "{}", json!({ "bar": bar, "verdict": bar.verdict() }))?;
        }
    }
    Ok(())
}

async fn measure(
    arguments: &Arguments,
    workloads: &[Workload],
    java: Option<&Parallel>,
    mut json: Option<&File>,
) -> Result<Results, Error> {
    let began = Instant::now();
    let limit = Duration::from_secs(arguments.limit);
    let mut broker = Broker::start().await?;
    let mut results = Results::default();
    let mut groups = 0;
    for workload in workloads {
        let topic = broker.topic(workload.traffic, workload.partitions).await?;
        let mut task = Task {
            bootstrap: broker.bootstrap(),
            topic,
            group: "warm-up".to_owned(),
            partitions: workload.partitions,
            keys: workload.traffic.keys(),
            first_counted: workload.first_counted,
            expected: workload.traffic.counted(workload.first_counted),
            concurrency: workload.concurrency,
            handler: workload.handler,
            started_ms: 0,
            progress: None,
            follows: false,
        };
        // Not measured: the broker has its code compiled and the records at hand for all.
        for time in 0..WARM_UPS {
            task.group = format!("warm-up-{}-{time}", workload.name);
            process::run(Id::Plain, &task, None, limit).await?;
        }
        for round in 0..arguments.rounds() {
            for turn in 0..workload.ids.len() {
                let id = workload.ids[(turn + round) % workload.ids.len()];
                groups += 1;
                task.group = format!("group-{groups}");
                let report = match workload.is_killed {
                    false => process::run(id, &task, java, limit).await,
                    true => {
                        let file = format!("versus-kafka-{}", std::process::id());
                        let file = std::env::temp_dir().join(file);
                        let report = process::run_twice(id, &task, java, limit, &file).await;
                        let _ = std::fs::remove_file(&file);
                        report
                    }
                };
                let report = report.map_err(|error| error.to_string());
                eprintln!(
                    "{:>5} s  {}, round {}, {id}: {}",
                    began.elapsed().as_secs(),
                    workload.name,
                    round + 1,
                    in_short(&report)
                );
                if let Some(file) = &mut json {
                    let line = json!({
                        "workload": workload.name,
                        "contender": id,
                        "round": round,
                        "report": report,
                    });
                    writeln!(file, "{line}")?;
                }
                results.push(&workload.name, id, round, report);
            }
        }
    }
    Ok(results)
}

fn in_short(report: &Result<Report, String>) -> String {
    match report {
        Ok(report) => format!(
            "{:.0} records/s, {:.2} s, {:.2} CPU s, {} MiB, {} out of order, {} again",
            report.rate(),
            report.seconds,
            report.cpu_seconds,
            report.peak_kib / 1_024,
            report.breaks,
            report.again,
        ),
        Err(error) => error.clone(),
    }
}
