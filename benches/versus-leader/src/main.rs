//! Measures keylane-leader on ZooKeeper beside Apache Curator, and says so in tables.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use versus_leader::changes::{self, Times};
use versus_leader::curator::Curator;
use versus_leader::load::{self, Extent};
use versus_leader::server::Server;
use versus_leader::side::Side;
use versus_leader::{Error, Results, Table, tables, worker};

/// Measures the leader election of keylane on ZooKeeper beside Curator's `LeaderSelector`.
///
/// One server is started for the run. Two processes of each side change the leader, in turns with
/// the other side: it resigns, and it is killed. Then 100 candidates wait in one process.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A fifth of the changes, and a third of the time at rest.
    #[arg(long)]
    quick: bool,
    /// Writes the tables into this file as Markdown, too.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Runs candidates in this process.
    #[command(name = worker::SUBCOMMAND, hide = true)]
    Candidates(worker::Settings),
}

impl Arguments {
    fn times(&self) -> Times {
        let (resigned, killed) = if self.quick { (20, 2) } else { (100, 10) };
        Times { resigned, killed }
    }

    fn extent(&self) -> Extent {
        let (seconds, changes) = if self.quick { (5, 4) } else { (15, 20) };
        Extent {
            waiting: 100,
            rest: Duration::from_secs(seconds),
            changes,
        }
    }
}

fn main() -> ExitCode {
    // Silent unless RUST_LOG asks.
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    if let Some(Command::Candidates(settings)) = &arguments.command {
        return runtime.block_on(worker::run(settings));
    }
    let curator = Curator::build()?;
    let results = runtime.block_on(measure(&arguments, &curator))?;
    let tables = tables(&results);
    for table in &tables {
        println!("{}", table.text());
    }
    if let Some(file) = &arguments.markdown {
        let text: Vec<String> = tables.iter().map(Table::markdown).collect();
        std::fs::write(file, text.join("\n"))?;
    }
    Ok(())
}

async fn measure(arguments: &Arguments, curator: &Curator) -> Result<Results, Error> {
    let server = Server::start().await?;
    eprintln!("changes of the leader …");
    let gaps = changes::measure(curator, &server, arguments.times()).await?;
    server.has(0).await?;
    let extent = arguments.extent();
    let [ours, theirs] = Side::BOTH;
    eprintln!("{} candidates that wait …", extent.waiting);
    let loads = [
        load::measure(ours, curator, &server, extent).await?,
        load::measure(theirs, curator, &server, extent).await?,
    ];
    Ok(Results {
        gaps,
        loads,
        extent,
    })
}
