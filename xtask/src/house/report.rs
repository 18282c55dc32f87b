//! The values as tables, and what is above its limit.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::measure::{Measure, Measurement};

/// A value beside its limit.
#[derive(Debug)]
pub(super) struct Comparison<'a> {
    pub(super) measurement: &'a Measurement,
    /// Nothing where no limits hold.
    pub(super) limit: Option<usize>,
}

impl Comparison<'_> {
    pub(super) fn is_above(&self) -> bool {
        self.limit
            .is_some_and(|limit| self.measurement.value > limit)
    }

    pub(super) fn is_below(&self) -> bool {
        self.limit
            .is_some_and(|limit| self.measurement.value < limit)
    }

    /// What is measured of what.
    pub(super) fn name(&self) -> String {
        format!(
            "{} {}",
            self.measurement.measure.name(),
            self.measurement.of
        )
    }

    /// The value, and its limit if that is another number.
    fn cell(&self) -> String {
        let value = self.measurement.value;
        match self.limit {
            Some(limit) if limit != value => format!("{value}/{limit}"),
            _ => value.to_string(),
        }
    }

    fn parts(&self) -> String {
        let lines = self
            .measurement
            .parts
            .iter()
            .filter(|part| !part.is_empty());
        lines.map(|part| format!("    {part}\n")).collect()
    }
}

/// The values, a row for each crate and each document.
pub(super) fn tables(all: &[Comparison]) -> String {
    let crates = table("crate", all, &Measure::OF_CRATES);
    let documents = table("document", all, &Measure::OF_DOCUMENTS);
    format!("{crates}\n{documents}\nA value alone is at its limit; the others are value/limit.\n")
}

/// What is above its limit, with its parts and what to do.
pub(super) fn above(all: &[Comparison]) -> String {
    let mut text = String::new();
    for comparison in all.iter().filter(|comparison| comparison.is_above()) {
        let Measurement { measure, value, .. } = comparison.measurement;
        let limit = comparison.limit.unwrap_or_default();
        let (name, parts, advice) = (comparison.name(), comparison.parts(), measure.advice());
        write!(
            text,
            "\n{name}: {value} is above {limit}\n{parts}    To do: {advice}.\n"
        )
        .expect("a string has room");
    }
    text
}

/// What is below its limit.
pub(super) fn below(all: &[Comparison]) -> Option<String> {
    let below = all.iter().filter(|comparison| comparison.is_below());
    let names: Vec<String> = below.map(Comparison::name).collect();
    let hint = || {
        let (count, names) = (names.len(), names.join(", "));
        format!("\n{count} below the limit, `cargo xtask house --lower` lowers it: {names}\n")
    };
    (!names.is_empty()).then(hint)
}

/// The parts of all values.
pub(super) fn details(all: &[Comparison]) -> String {
    let with_parts = all
        .iter()
        .filter(|comparison| !comparison.parts().is_empty());
    with_parts
        .map(|comparison| {
            format!(
                "\n{}: {}\n{}",
                comparison.name(),
                comparison.measurement.value,
                comparison.parts()
            )
        })
        .collect()
}

fn table(title: &str, all: &[Comparison], measures: &[Measure]) -> String {
    let mut rows = vec![heads(title, measures)];
    let mut names = BTreeSet::new();
    for comparison in all
        .iter()
        .filter(|comparison| measures.contains(&comparison.measurement.measure))
    {
        let of = &comparison.measurement.of;
        if names.insert(of) {
            rows.push(row(of, all, measures));
        }
    }
    aligned(&rows)
}

fn heads(title: &str, measures: &[Measure]) -> Vec<String> {
    let heads = measures.iter().map(|measure| measure.name().to_owned());
    std::iter::once(title.to_owned()).chain(heads).collect()
}

fn row(of: &str, all: &[Comparison], measures: &[Measure]) -> Vec<String> {
    let cell = |measure: &Measure| {
        let is_it = |comparison: &&Comparison| {
            comparison.measurement.of == of && comparison.measurement.measure == *measure
        };
        all.iter()
            .find(is_it)
            .map_or_else(String::new, Comparison::cell)
    };
    let cells = measures.iter().map(cell);
    std::iter::once(of.to_owned()).chain(cells).collect()
}

/// The rows below each other: names to the left, numbers to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = 0..rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max();
    let widths: Vec<usize> = columns.map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let written = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
            written.expect("a string has room");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(measure: Measure, of: &str, value: usize, parts: &[&str]) -> Measurement {
        Measurement {
            measure,
            of: of.to_owned(),
            value,
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
        }
    }

    fn some() -> [Measurement; 5] {
        [
            measurement(Measure::Code, "keylane", 700, &["engine: 600 lines"]),
            measurement(
                Measure::Calls,
                "keylane",
                21,
                &["Engine, 21 files: a.rs", "b.rs"],
            ),
            measurement(Measure::Code, "keylane-sql", 9, &[]),
            measurement(Measure::Calls, "keylane-sql", 0, &[]),
            measurement(Measure::Lines, "README.md", 306, &[]),
        ]
    }

    fn comparisons<'a>(measurements: &'a [Measurement], limits: &[usize]) -> Vec<Comparison<'a>> {
        let pairs = measurements.iter().zip(limits);
        let comparisons = pairs.map(|(measurement, limit)| Comparison {
            measurement,
            limit: Some(*limit),
        });
        comparisons.collect()
    }

    #[test]
    fn a_row_is_a_crate() {
        let some = some();
        let all = comparisons(&some, &[700, 20, 9, 0, 310]);
        let expected = "\
crate        code  calls
keylane       700  21/20
keylane-sql     9      0
";
        assert_eq!(
            table("crate", &all, &[Measure::Code, Measure::Calls]),
            expected
        );
        let expected = "\
document     lines
README.md  306/310
";
        assert_eq!(table("document", &all, &[Measure::Lines]), expected);
        assert!(tables(&all).ends_with("value/limit.\n"));
    }

    #[test]
    fn what_is_above_says_why_and_what_to_do() {
        let some = some();
        let all = comparisons(&some, &[700, 20, 9, 0, 310]);
        let expected = "
calls keylane: 21 is above 20
    Engine, 21 files: a.rs
    b.rs
    To do: return what is to do next, and let one caller do it.
";
        assert_eq!(above(&all), expected);
        assert_eq!(above(&comparisons(&some, &[700, 21, 9, 0, 306])), "");
    }

    #[test]
    fn what_is_below_is_named() {
        let some = some();
        let hint = below(&comparisons(&some, &[701, 20, 9, 0, 310])).unwrap();
        assert!(hint.starts_with("\n2 below the limit, "));
        assert!(
            hint.ends_with(": code keylane, lines README.md\n"),
            "{hint}"
        );
        assert_eq!(below(&comparisons(&some, &[700, 20, 9, 0, 306])), None);
    }

    #[test]
    fn without_limits_nothing_is_judged() {
        let some = some();
        let alone = |measurement| Comparison {
            measurement,
            limit: None,
        };
        let all: Vec<Comparison> = some.iter().map(alone).collect();
        assert_eq!((above(&all), below(&all)), (String::new(), None));
        assert!(table("crate", &all, &[Measure::Calls]).contains("keylane         21\n"));
        let parts = "\ncode keylane: 700\n    engine: 600 lines\n\ncalls keylane: 21\n";
        assert!(details(&all).starts_with(parts));
        assert!(!details(&all).contains("keylane-sql"));
    }
}
