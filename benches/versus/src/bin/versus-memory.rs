//! Counts the bytes and the allocations of one contender, and prints them as JSON.

use std::alloc::System;
use std::process::ExitCode;

use clap::Parser;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use versus::contenders::Id;
use versus::footprint::{BARE_TASK, Footprint};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Counts the bytes and the allocations of one contender.
#[derive(Parser)]
struct Arguments {
    /// Its name.
    contender: String,
    /// Fewer numbers of messages.
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let footprint = if arguments.contender == BARE_TASK {
        Footprint::of_bare_task()
    } else {
        let Some(id) = Id::ALL.iter().find(|id| id.name() == arguments.contender) else {
            eprintln!("no contender is called {}", arguments.contender);
            return ExitCode::FAILURE;
        };
        Footprint::of(*id, arguments.quick)
    };
    match serde_json::to_string(&footprint) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
