//! A tonic server whose calls for one account never overlap, though its handlers read, wait and write.
//!
//! ```text
//! cargo run -p grpc_accounts -- --demo   # with lanes and without, as a table
//! cargo run -p grpc_accounts             # the server, with commands to paste; Ctrl-C stops it
//! ```
//!
//! `RUST_LOG=debug` logs on stderr what the server does.
//!
//! One layer does it (`lanes.rs`): the lane of a call is named by its metadata `x-account`. The bank behind it
//! (`bank.rs`) has no lock that is held while it waits, and needs none.

mod bank;
mod client;
mod demo;
mod lanes;
mod server;
mod wire;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use bank::Bank;
use client::Ask;
use lanes::Mode;

/// Accounts whose calls never overlap, behind a tonic server
#[derive(Parser)]
struct Arguments {
    /// The port on 127.0.0.1, to listen on or to ask; 0 takes any free port
    #[arg(long, default_value_t = 0, global = true)]
    port: u16,

    /// Run it against itself, print what there is to see, and end
    #[arg(long, conflicts_with = "port")]
    demo: bool,

    /// Ask a server that runs, instead of being one
    #[command(subcommand)]
    ask: Option<Ask>,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn Error + Send + Sync>> {
    let wish = async {
        match arguments.ask {
            Some(ask) => ask.put(arguments.port).await,
            None if arguments.demo => demo::show().await,
            None => serve(arguments.port).await,
        }
    };
    tokio::select! {
        outcome = wish => outcome,
        // The server looks for itself, and ends in good order.
        pressed = tokio::signal::ctrl_c(), if arguments.demo => Ok(pressed?),
    }
}

async fn serve(port: u16) -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let port = address.port();
    println!(
        r#"listening on {address}

  cargo run -p grpc_accounts -- --port {port} deposit alice 500
  cargo run -p grpc_accounts -- --port {port} withdraw alice 120
  cargo run -p grpc_accounts -- --port {port} balance alice

or, with the interface in examples/grpc_accounts:

  grpcurl -plaintext -import-path examples/grpc_accounts -proto accounts.proto \
    -H 'x-account: alice' -d '{{"cents": 500}}' {address} accounts.Accounts/Deposit

Ctrl-C stops the server.
"#
    );
    let stop = async {
        // An error means that Ctrl-C cannot be caught: then the server stops at once, and not never.
        let _ = tokio::signal::ctrl_c().await;
        println!("stopping: no more calls are taken, those that are in are finished");
    };
    server::serve(listener, Bank::default(), Mode::Lanes, stop).await?;
    Ok(())
}
