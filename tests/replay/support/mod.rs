//! Repositories made for one test, and the example run on them.

use clap::Parser;

use crate::arguments::Arguments;
use crate::replay::{self, ReplayError};

mod import;
mod repo;

pub(crate) use import::Edit;
pub(crate) use repo::{Repo, plain_git};

/// The designs as the command line names them. Three workers, so that paths must share them.
pub(crate) const DESIGNS: [&str; 4] = ["single", "per-key", "static:3", "dynamic"];

/// What a replay in this process said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) good: Result<bool, ReplayError>,
    pub(crate) out: String,
}

impl Said {
    /// The rest of the report's line that starts with `name`; fails the test if there is none.
    pub(crate) fn line(&self, name: &str) -> &str {
        line(&self.out, name)
    }

    /// The error's text; fails the test if there was a report.
    pub(crate) fn error(&self) -> String {
        match &self.good {
            Ok(good) => panic!("a report instead of an error (good: {good}):\n{}", self.out),
            Err(error) => error.to_string(),
        }
    }

    /// Fails the test unless this was a flawless replay of so many events on so many paths.
    pub(crate) fn assert_good(&self, events: usize, keys: usize) {
        assert!(
            matches!(self.good, Ok(true)),
            "{:?}\n{}",
            self.good,
            self.out
        );
        assert_eq!(self.line("events"), events.to_string());
        assert_eq!(self.line("keys"), format!("{keys} paths"));
        assert_eq!(self.line("order breaks"), "0");
        assert!(self.line("state").starts_with("equal "), "{}", self.out);
    }
}

/// Runs the example in this process.
pub(crate) async fn replay(arguments: &[&str]) -> Said {
    let arguments = Arguments::try_parse_from(["replay"].iter().chain(arguments))
        .unwrap_or_else(|error| panic!("{error}"));
    let mut out = Vec::new();
    let good = replay::run(&arguments, &mut out).await;
    Said {
        good,
        out: String::from_utf8(out).unwrap(),
    }
}

/// The rest of the line that starts with `name`.
pub(crate) fn line<'a>(report: &'a str, name: &str) -> &'a str {
    let found = report
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix("  "));
    found
        .unwrap_or_else(|| panic!("no line {name:?} in:\n{report}"))
        .trim_start()
}
