//! What a replay found out, for people to read.

use std::fmt::{self, Write as _};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::event::RepoPath;
use crate::git::Repository;
use crate::state::{Comparison, Summary};

/// The outcome of one design.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) design: String,
    pub(crate) elapsed: Duration,
    pub(crate) handled: u64,
    pub(crate) summary: Summary,
    pub(crate) waits: Histogram<u64>,
    pub(crate) most_in_flight: u64,
    pub(crate) comparison: Comparison,
}

impl Report {
    /// Every event handled once, in order, and the tree that git says.
    pub(crate) fn is_good(&self) -> bool {
        self.comparison.is_equal()
            && self.summary.breaks == 0
            && self.handled == self.summary.events
    }

    /// One row of [`table`].
    fn row(&self) -> [String; COLUMNS.len()] {
        [
            self.design.clone(),
            rate(self.handled, self.elapsed),
            duration(self.elapsed),
            self.wait(50.0),
            self.wait(99.0),
            grouped(self.most_in_flight),
            self.deepest_lane().to_string(),
            grouped(self.summary.breaks),
            if self.comparison.is_equal() {
                "equal"
            } else {
                "NOT EQUAL"
            }
            .to_owned(),
        ]
    }

    fn wait(&self, percentile: f64) -> String {
        duration(Duration::from_nanos(
            self.waits.value_at_percentile(percentile),
        ))
    }

    fn deepest_lane(&self) -> String {
        grouped(
            self.summary
                .deepest_lane
                .as_ref()
                .map_or(0, |(depth, _)| *depth),
        )
    }

    fn state(&self) -> String {
        let Comparison {
            entries,
            differences,
            first_differences,
        } = &self.comparison;
        let entries = grouped(*entries as u64);
        if self.comparison.is_equal() {
            return format!("equal to git ls-tree, {entries} entries");
        }
        let mut state = format!(
            "NOT EQUAL to git ls-tree: {} differences",
            grouped(*differences)
        );
        for difference in first_differences {
            let _ = write!(state, "\n{INDENT}{difference}");
        }
        state
    }

    fn breaks(&self) -> String {
        let mut breaks = grouped(self.summary.breaks);
        for first in &self.summary.first_breaks {
            let _ = write!(breaks, "\n{INDENT}{first}");
        }
        breaks
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary {
            events,
            keys,
            hottest,
            deepest_lane,
            busy_paths,
            ..
        } = &self.summary;
        let named = |(count, path): &(u64, RepoPath)| format!("{} {path}", grouped(*count));
        let hottest: Vec<String> = hottest.iter().map(named).collect();
        let hottest = hottest.join(&format!("\n{INDENT}"));
        line(f, "design", &self.design)?;
        line(f, "events", &grouped(*events))?;
        if self.handled != *events {
            line(f, "handled", &format!("ONLY {}", grouped(self.handled)))?;
        }
        line(f, "keys", &format!("{} paths", grouped(*keys as u64)))?;
        line(
            f,
            "hottest paths",
            if hottest.is_empty() { "none" } else { &hottest },
        )?;
        line(
            f,
            "deepest lane",
            &deepest_lane.as_ref().map_or("0".to_owned(), named),
        )?;
        line(
            f,
            "at most",
            &format!(
                "{} handlers in flight, {} paths waiting or in flight",
                grouped(self.most_in_flight),
                grouped(*busy_paths)
            ),
        )?;
        let throughput = rate(self.handled, self.elapsed);
        line(
            f,
            "throughput",
            &format!("{throughput} events/s, {}", duration(self.elapsed)),
        )?;
        let (p50, p99) = (self.wait(50.0), self.wait(99.0));
        line(
            f,
            "wait",
            &format!("p50 {p50}, p99 {p99} (from send to handler start)"),
        )?;
        line(f, "order breaks", &self.breaks())?;
        line(f, "state", &self.state())
    }
}

/// Commits below which a history shows little.
const FEW: u64 = 500;

/// What is replayed, said before it is.
pub(crate) struct Heading<'a> {
    pub(crate) repository: &'a Repository,
    pub(crate) limits: String,
}

impl fmt::Display for Heading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repository = self.repository;
        line(f, "repository", repository.root())?;
        let commits = grouped(repository.commits());
        let head = repository.head();
        line(
            f,
            "history",
            &format!("{commits} commits along first parents, up to {head:.12}"),
        )?;
        for note in repository.notes() {
            line(f, "note", note)?;
        }
        if repository.commits() < FEW {
            let note = "a short history hardly ever has two events of a path at once: \
                        give the path of a larger repository to see more";
            line(f, "note", note)?;
        }
        line(f, "limits", &self.limits)
    }
}

/// The designs side by side, under the speed of git alone.
pub(crate) fn table(git_alone: (u64, Duration), reports: &[Report]) -> String {
    let (events, elapsed) = git_alone;
    let blank = || "-".to_owned();
    let mut git: [String; COLUMNS.len()] = std::array::from_fn(|_| blank());
    git[0] = "(git alone)".to_owned();
    git[1] = rate(events, elapsed);
    git[2] = duration(elapsed);
    let mut rows = vec![COLUMNS.map(str::to_owned), git];
    rows.extend(reports.iter().map(Report::row));

    let mut widths = [0; COLUMNS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut table = String::new();
    for row in &rows {
        let [design, numbers @ ..] = row;
        let _ = write!(table, "{design:<0$}", widths[0]);
        for (cell, width) in numbers.iter().zip(&widths[1..]) {
            let _ = write!(table, "  {cell:>width$}");
        }
        table.push('\n');
    }
    table
}

/// `1234567` → `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Three digits and a unit.
pub(crate) fn duration(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    let (value, unit) = match nanos {
        ..1e3 => (nanos, "ns"),
        1e3..1e6 => (nanos / 1e3, "µs"),
        1e6..1e9 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    let decimals = match value {
        _ if unit == "ns" => 0,
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

const COLUMNS: [&str; 9] = [
    "design",
    "events/s",
    "time",
    "p50 wait",
    "p99 wait",
    "in flight",
    "deepest",
    "order breaks",
    "state",
];

const INDENT: &str = "               ";

fn line(f: &mut fmt::Formatter<'_>, name: &str, value: &str) -> fmt::Result {
    writeln!(f, "{name:<15}{value}")
}

fn rate(events: u64, elapsed: Duration) -> String {
    grouped((events as f64 / elapsed.as_secs_f64().max(1e-9)) as u64)
}
