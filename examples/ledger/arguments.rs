//! The command line.

use std::time::Duration;

use clap::{Parser, Subcommand};

/// Transfers between accounts, in order for each account, each booked once
///
/// Three worker processes book them from an inbox in PostgreSQL, effects and done-marks in one
/// transaction. One is killed in the middle, one is paused until others have its accounts, and one
/// answer in 100 to a commit is thrown away, as a network does. At the end each balance must be what the
/// same transfers give when they are applied one by one.
///
/// Exit status: 0 if the books balance, 1 if not, 2 if it could not run.
#[derive(Debug, Parser)]
#[command(name = "ledger")]
pub(crate) struct Arguments {
    /// Your PostgreSQL, as postgres://user:password@host:port/database; a schema of its own is made
    /// there, and removed at the end; without it, a server is started for
    /// this run alone
    #[arg(long)]
    url: Option<String>,

    /// How many transfers
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(200..=1_000_000))]
    transfers: u32,

    /// Between how many accounts
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(6..=10_000))]
    accounts: u32,

    /// Which transfers: the same seed gives the same ones, and the same balances
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How many milliseconds a handler works before it books
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    work: u64,

    /// Book in a transaction of its own, without the done-mark: see what goes wrong then
    #[arg(long)]
    apart: bool,

    /// Leave the schema in the database of --url, to be looked at
    #[arg(long, requires = "url")]
    keep: bool,

    #[command(subcommand)]
    role: Option<Hidden>,
}

#[derive(Debug, Subcommand)]
enum Hidden {
    /// Book until the standard input ends: a worker of the demo
    #[command(hide = true)]
    Worker,
}

/// What to do.
pub(crate) enum Role {
    Show(Show),
    /// What there is to know comes by the standard input: an address has a password in it.
    Work,
}

pub(crate) struct Show {
    /// `None`: a server of its own.
    pub(crate) url: Option<String>,
    pub(crate) transfers: u32,
    pub(crate) accounts: u32,
    pub(crate) seed: u64,
    pub(crate) work: Duration,
    pub(crate) is_apart: bool,
    pub(crate) keep: bool,
}

impl Arguments {
    pub(crate) fn role(self) -> Role {
        match self.role {
            Some(Hidden::Worker) => Role::Work,
            None => Role::Show(Show {
                url: self.url,
                transfers: self.transfers,
                accounts: self.accounts,
                seed: self.seed,
                work: Duration::from_millis(self.work),
                is_apart: self.apart,
                keep: self.keep,
            }),
        }
    }
}
