//! Counts bytes and allocations, and prints them as JSON.

use std::alloc::System;
use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde::Serialize;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use versus::contenders::Id;
use versus::footprint::{BARE_TASK, Footprint};
use versus::{idle, rate_keys};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Counts bytes and allocations.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    count: Count,
}

#[derive(Subcommand)]
enum Count {
    /// The bytes and the allocations of one contender.
    Contender {
        /// Its name.
        name: String,
        /// Fewer numbers of messages.
        #[arg(long)]
        quick: bool,
    },
    /// What keylane remembers of many keys under a rate.
    RateKeys {
        /// Fewer keys.
        #[arg(long)]
        quick: bool,
    },
    /// What many dispatchers at rest take.
    Idle {
        /// How many.
        dispatchers: usize,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(count: Count) -> Result<(), Box<dyn Error>> {
    match count {
        Count::Contender { name, .. } if name == BARE_TASK => print(&Footprint::of_bare_task()),
        Count::Contender { name, quick } => {
            let id = Id::ALL.iter().find(|id| id.name() == name);
            let id = id.ok_or_else(|| format!("no contender is called {name}"))?;
            print(&Footprint::of(*id, quick))
        }
        Count::RateKeys { quick } => print(&rate_keys::measure(quick)),
        Count::Idle { dispatchers } => print(&idle::measure(dispatchers)),
    }
}

fn print(counted: &impl Serialize) -> Result<(), Box<dyn Error>> {
    println!("{}", serde_json::to_string(counted)?);
    Ok(())
}
