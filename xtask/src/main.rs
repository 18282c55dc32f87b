//! Set-up, checks and measurements of keylane, one file per command.
//!
//! | command | question it answers |
//! | --- | --- |
//! | `setup` | has this machine what the others need? |
//! | `test` | may this change go in? |
//! | `house` | is the code still built as well as it was? |
//! | `soak` | does the engine survive a night of it? |
//! | `mutants` | would the tests notice if the engine were wrong? |
//! | `mutation` | would a unit test notice a change of one expression? |
//! | `versus` | how fast is it, beside the others? |
//! | `bench` | did it get slower? |

mod setup;
mod test;

mod house;

mod soak;

mod mutants;
mod mutation;

mod bench;
mod versus;

mod error;
use error::Error;

mod durations;
mod executables;
mod git;
mod job;
mod libtest;
mod outcome;
mod process;
mod queue;
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
