//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// One slow user among many: who waits for it, in each of four designs?
#[derive(Debug, Parser)]
#[command(name = "four_designs")]
pub(crate) struct Arguments {
    /// How long users send, in each design
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    pub(crate) seconds: Duration,

    /// How many users send; the first is the slow one
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=500))]
    pub(crate) users: u32,

    /// Lanes of the static design
    #[arg(long, value_name = "N", default_value = "4", value_parser = lanes)]
    pub(crate) lanes: NonZeroUsize,

    /// How long each message of the slow user takes, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    slow_ms: u32,

    /// How many users send one message and are silent then, in the second part; 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) crowd: u32,

    /// Where the picture of the second part goes [default: beside the other, as many_users.svg]
    #[arg(long, value_name = "FILE")]
    crowd_out: Option<PathBuf>,

    /// Where the picture goes [default: four_designs.svg in the folder for temporary files]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn slow(&self) -> Duration {
        Duration::from_millis(self.slow_ms.into())
    }

    pub(crate) fn out(&self) -> PathBuf {
        let default = || std::env::temp_dir().join("four_designs.svg");
        self.out.clone().unwrap_or_else(default)
    }

    pub(crate) fn crowd_out(&self) -> PathBuf {
        let beside = || self.out().with_file_name("many_users.svg");
        self.crowd_out.clone().unwrap_or_else(beside)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=60.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number from 0.1 to 60".to_owned()),
    }
}

fn lanes(text: &str) -> Result<NonZeroUsize, String> {
    match text.parse::<NonZeroUsize>() {
        Ok(lanes) if lanes.get() <= 1_024 => Ok(lanes),
        _ => Err("expected a number from 1 to 1024".to_owned()),
    }
}
