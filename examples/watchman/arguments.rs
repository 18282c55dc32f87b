//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::plan::Length;
use crate::words::Store;

/// One leader of three processes bills every account once a second
///
/// The leader is killed, paused until another one leads, cut off from the store, and resigns, in
/// turn. A timeline shows who led when, and how long there was no bill. At the end, each account
/// must have been billed once for each second.
///
/// Exit status: 0 if it was, 1 if not, 2 if it could not run.
#[derive(Debug, Parser)]
#[command(name = "watchman")]
pub(crate) struct Arguments {
    /// Where elections and bills are kept; the server is started for this run alone
    #[arg(long, value_enum, default_value_t = Store::Zookeeper)]
    store: Store,

    /// How many rounds of the four faults: 1 to 1,000; a round takes about 15 seconds
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,

    /// Begin faults for so many seconds, instead of --rounds
    #[arg(long, value_name = "N", conflicts_with = "rounds", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,

    /// How many accounts: 1 to 100
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    accounts: u32,

    /// In which order the faults come after the first round, and when: the same seed, the same
    /// faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Where to write the timeline as a picture
    #[arg(long, value_name = "PATH", default_value = "target/watchman.svg")]
    svg: PathBuf,

    /// Bill without the fence, and without a look at what was billed: see what goes wrong then
    #[arg(long)]
    unfenced: bool,

    #[command(subcommand)]
    role: Option<Hidden>,
}

#[derive(Debug, Subcommand)]
enum Hidden {
    /// Stand for election until the standard input ends: a process of the demo
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
    pub(crate) store: Store,
    pub(crate) length: Length,
    pub(crate) accounts: u32,
    pub(crate) seed: u64,
    pub(crate) svg: PathBuf,
    pub(crate) is_unfenced: bool,
}

impl Arguments {
    pub(crate) fn role(self) -> Role {
        let length = match self.seconds {
            Some(seconds) => Length::Time(Duration::from_secs(seconds)),
            None => Length::Rounds(self.rounds),
        };
        match self.role {
            Some(Hidden::Worker) => Role::Work,
            None => Role::Show(Show {
                store: self.store,
                length,
                accounts: self.accounts,
                seed: self.seed,
                svg: self.svg,
                is_unfenced: self.unfenced,
            }),
        }
    }
}
