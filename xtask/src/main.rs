//! Set-up, checks and measurements of keylane, one file per command.
//!
//! | command | question it answers |
//! | --- | --- |
//! | `setup` | does this machine have what the other commands need? |
//! | `test` | may this change be merged? |
//! | `house` | is the code still built as well as before? |
//! | `soak` | does the engine survive a night? |
//! | `mutants` | do the tests notice a bug in the engine? |
//! | `mutation` | does a unit test notice a change of one expression? |
//! | `versus` | how fast is it, compared with the others? |
//! | `bench` | has it become slower? |

mod setup;
mod test;

mod house;

mod soak;

mod mutants;
mod mutation;

mod bench;
mod results;
mod versus;

mod error;
use error::Error;

mod proof;

mod cargo_mutants;
mod durations;
mod executables;
mod fingerprint;
mod git;
mod job;
mod kept;
mod libtest;
mod outcome;
mod part;
mod process;
mod queue;
mod rotation;
mod rows;
mod schedules;
mod shares;
mod steps;
mod tree;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about,
    disable_help_subcommand = true
)]
/// Set-up, checks and measurements of keylane
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Setup(setup::Args),
    Test(test::Args),
    House(house::Args),
    Soak(soak::Args),
    Mutants(mutants::Args),
    Mutation(mutation::Args),
    Versus(versus::Args),
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Setup(args) => setup::run(&args),
        Command::Test(args) => test::run(&args),
        Command::House(args) => house::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Mutation(args) => mutation::run(&args),
        Command::Versus(args) => versus::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
