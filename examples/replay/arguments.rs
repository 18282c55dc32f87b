//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::designs::{Choice, Limits};

/// Replay a git history: every path in order, thousands at once
#[derive(Debug, Parser)]
#[command(name = "replay")]
pub(crate) struct Arguments {
    /// A folder in the repository
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,

    /// single, per-key, static:N or dynamic; several are compared [default: dynamic]
    #[arg(long, value_name = "DESIGN", value_delimiter = ',')]
    design: Vec<Choice>,

    /// Compare all four designs; the static one gets a worker per handler in flight
    #[arg(long, conflicts_with = "design")]
    all: bool,

    /// How long each handler waits: microseconds, or 250us, 5ms, 1s (the timer counts whole ms)
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = work)]
    pub(crate) work: Duration,

    /// Most handlers in flight, of per-key and dynamic
    #[arg(long, value_name = "N", default_value_t = 4_096, value_parser = limit())]
    concurrency: u32,

    /// Most events sent and not yet handled
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = limit())]
    capacity: u32,

    /// How many of the hottest paths to show
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) hottest: usize,
}

impl Arguments {
    pub(crate) fn designs(&self) -> Vec<Choice> {
        if self.all {
            let workers = self.concurrency.try_into().expect("its parser starts at 1");
            vec![
                Choice::Single,
                Choice::PerKey,
                Choice::Static(workers),
                Choice::Dynamic,
            ]
        } else if self.design.is_empty() {
            vec![Choice::Dynamic]
        } else {
            self.design.clone()
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            concurrency: self.concurrency as usize,
            capacity: self.capacity as usize,
        }
    }
}

/// `250` and `250us` are microseconds; `5ms` and `1s` are what they say.
fn work(text: &str) -> Result<Duration, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number
        .parse()
        .map_err(|_| "expected a number, such as 250 or 5ms".to_owned())?;
    match unit {
        "" | "us" | "µs" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err("expected the unit us, ms or s".to_owned()),
    }
}

fn limit() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1 << 20)
}
