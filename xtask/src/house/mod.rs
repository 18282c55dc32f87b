//! `cargo xtask house`: measures how the code is built, and compares that with limits.
//!
//! The limits are in `xtask/house.txt`, one for each measure of each crate and of each document.
//! They only fall: a value above its limit is a failure, and a raised limit needs a reason beside
//! it.
//!
//! # What counts
//!
//! - The *files of a crate* are the files below its `src` that a build for a user includes: they
//!   are found from `lib.rs`, `main.rs` and `bin/`, along `mod`.
//! - A *test* does not count: an item, a field, a statement and so on whose `cfg` holds only with
//!   `test` or `keylane_shuttle` set, a function with `#[test]`, and all files below such a module.
//! - A *line of code* has a token that is neither comment nor doc comment. All lines of a literal
//!   are lines of code.
//! - The contents of a macro are read as far as their tokens allow: paths and calls always, items
//!   if they parse as items. `--details` names the macros that stand for items and do not parse.

mod measure;

mod limits;

mod history;

mod code;

mod measures;

mod report;

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::workspace;
use code::Crate;
use limits::{Limit, Limits};
use measure::Measurement;
use report::Comparison;

/// The documents that are measured.
const DOCUMENTS: [&str; 3] = ["README.md", "ARCHITECTURE.md", "COMPARE.md"];

/// Measure how the code is built, and compare that with the limits in xtask/house.txt
///
/// Circles of imports and of calls between files, sizes of types and files, names at the roots,
/// repeated bounds, the width of comments, the lengths of the documents. The limits only fall.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the values below their limits into xtask/house.txt
    #[arg(long)]
    lower: bool,
    /// Show the parts of every value
    #[arg(long)]
    details: bool,
    /// Measure the workspace in DIR instead, and judge nothing
    #[arg(long, value_name = "DIR", conflicts_with = "lower")]
    root: Option<PathBuf>,
}

/// The values of all measures.
struct Survey {
    measurements: Vec<Measurement>,
    /// The macros that stand for items and cannot be read as items.
    unread: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    if let Some(root) = &args.root {
        print(&survey(root)?, None, args.details);
        return Ok(());
    }
    let root = workspace::root();
    let survey = survey(root)?;
    let file = root.join(limits::FILE);
    let text = fs::read_to_string(&file);
    let text = text.map_err(|error| format!("{}: {error}", limits::FILE))?;
    let mut limits = limits::parse(&text)?;
    limits.agree(&survey.measurements)?;
    if args.lower {
        let text = limits.lower(&survey.measurements);
        fs::write(&file, &text)?;
        limits = limits::parse(&text)?;
    }
    print(&survey, Some(&limits), args.details);
    let rises = rises_without_reason(root, &limits);
    conclude(&compare(&survey.measurements, Some(&limits)), &rises)
}

fn survey(root: &Path) -> Result<Survey, Error> {
    let mut survey = Survey {
        measurements: Vec::new(),
        unread: Vec::new(),
    };
    for package in code::packages(root)? {
        let code = Crate::parse(&package)?;
        survey.measurements.extend(measures::of_crate(&code));
        let unread = code.files.iter().flat_map(|file| &file.unread);
        let places = unread.map(|place| format!("{}: {place}", code.name));
        survey.unread.extend(places);
    }
    for name in DOCUMENTS {
        let text = code::document(root, name)?;
        let measurements = measures::of_document(name, &text);
        survey.measurements.extend(measurements);
    }
    Ok(survey)
}

fn compare<'a>(measurements: &'a [Measurement], limits: Option<&Limits>) -> Vec<Comparison<'a>> {
    let comparisons = measurements.iter().map(|measurement| Comparison {
        measurement,
        limit: limits.and_then(|limits| limits.of(measurement)),
    });
    comparisons.collect()
}

fn print(survey: &Survey, limits: Option<&Limits>, with_details: bool) {
    let all = compare(&survey.measurements, limits);
    print!("{}", report::tables(&all));
    if with_details {
        print!("{}", report::details(&all));
        let count = survey.unread.len();
        println!("\nmacros that are not read as items: {count}");
        for place in &survey.unread {
            println!("    {place}");
        }
    }
    print!("{}", report::above(&all));
    print!("{}", report::below(&all).unwrap_or_default());
}

fn rises_without_reason(root: &Path, limits: &Limits) -> Vec<String> {
    let Some(additions) = history::additions(root) else {
        println!("\nWithout the git history, no limit is compared with what it was.");
        return Vec::new();
    };
    let rises = history::without_reason(limits.rows(), &additions);
    let line = |(row, lowest): (&Limit, usize)| {
        let (measure, of, limit) = (row.measure.name(), &row.of, row.limit);
        format!("{measure} {of} (from {lowest} to {limit})")
    };
    rises.into_iter().map(line).collect()
}

fn conclude(all: &[Comparison], rises: &[String]) -> Result<(), Error> {
    let above = all.iter().filter(|comparison| comparison.is_above());
    let above: Vec<String> = above.map(Comparison::name).collect();
    let mut wrong = Vec::new();
    if !above.is_empty() {
        wrong.push(format!("above the limit: {}", above.join(", ")));
    }
    if !rises.is_empty() {
        let (file, rises) = (limits::FILE, rises.join(", "));
        wrong.push(format!(
            "{file} has limits that rise without a reason beside them: {rises}"
        ));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::Measure;

    #[test]
    fn one_value_above_is_a_failure() {
        let limits = limits::parse("calls keylane 21").unwrap();
        let conclude = |value, rises: &[String]| {
            let measurement = Measurement {
                measure: Measure::Calls,
                of: "keylane".to_owned(),
                value,
                parts: Vec::new(),
            };
            let result = conclude(&compare(&[measurement], Some(&limits)), rises);
            result.map_err(|error| error.to_string())
        };
        assert_eq!(conclude(21, &[]), Ok(()));
        assert_eq!(conclude(20, &[]), Ok(()));
        let above = "above the limit: calls keylane".to_owned();
        assert_eq!(conclude(22, &[]), Err(above));
        let rise = "calls keylane (from 20 to 21)".to_owned();
        let error = conclude(21, &[rise]).unwrap_err();
        let end = "without a reason beside them: calls keylane (from 20 to 21)";
        assert!(error.ends_with(end), "{error}");
    }

    #[test]
    fn the_table_can_be_read() {
        let text = fs::read_to_string(workspace::root().join(limits::FILE)).unwrap();
        assert!(!limits::parse(&text).unwrap().rows().is_empty());
    }
}
