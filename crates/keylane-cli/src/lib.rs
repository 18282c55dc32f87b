//! The program `keylane`, and its old name `keylane-inbox`. This is no library to build on: it has
//! what the two programs share.

mod args;
mod commands;
mod console;
mod failure;
mod letters;
mod opened;
mod output;
mod selection;
mod text;
mod top;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use args::{Args, Program};
use clap::Parser;
use failure::Failure;
use keylane_inbox::error::OpenError;

/// Another process has the inbox open.
const RUNNING: u8 = 2;
/// The command line is not valid. clap would return 2.
const USAGE: u8 = 64;

/// Runs `keylane` with the arguments of the process. Returns its exit code.
#[doc(hidden)]
#[must_use]
pub fn main() -> ExitCode {
    run(std::env::args_os().collect())
}

/// Runs `keylane inbox` with the arguments of the process, and says on stderr that this is its
/// name. Returns its exit code.
#[doc(hidden)]
#[must_use]
pub fn main_by_the_old_name() -> ExitCode {
    eprintln!("keylane-inbox: the next version has no such program: call `keylane inbox` instead");
    let mut all = vec![OsString::from("keylane"), OsString::from("inbox")];
    all.extend(std::env::args_os().skip(1));
    run(all)
}

fn run(all: Vec<OsString>) -> ExitCode {
    let args = match Args::try_parse_from(all) {
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(program(args.program)),
        Err(error) => Err(Failure::Output(error)),
    };
    ended(done)
}

async fn program(program: Program) -> Result<(), Failure> {
    match program {
        Program::Inbox(args) => commands::run(args).await,
        Program::Letters(args) => letters::run(args).await,
        Program::Top(args) => top::run(args).await,
    }
}

fn ended(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the pipe has closed it.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error @ Failure::Open(OpenError::Locked { .. })) => {
            eprintln!("keylane: the inbox is in use: {error}");
            RUNNING.into()
        }
        Err(error) => {
            eprintln!("keylane: {error}");
            ExitCode::FAILURE
        }
    }
}
