//! Inspects and repairs an inbox.

mod args;
mod commands;
mod failure;
mod opened;
mod output;
mod selection;
mod text;

use std::io;
use std::process::ExitCode;

use args::Args;
use clap::Parser;
use failure::Failure;
use keylane_inbox::error::OpenError;

/// Another process has the inbox open.
const RUNNING: u8 = 2;
/// The command line is not valid. clap would return 2.
const USAGE: u8 = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // If this cannot be printed, nothing can.
            let _ = error.print();
            return match error.use_stderr() {
                true => USAGE.into(),
                false => ExitCode::SUCCESS,
            };
        }
    };
    match commands::run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the pipe has closed it.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error @ Failure::Open(OpenError::Locked { .. })) => {
            eprintln!("keylane-inbox: the inbox is in use: {error}");
            RUNNING.into()
        }
        Err(error) => {
            eprintln!("keylane-inbox: {error}");
            ExitCode::FAILURE
        }
    }
}
