//! The table of the limits, `xtask/house.txt`.

use std::collections::BTreeSet;
use std::fmt;

use super::measure::{Measure, Measurement};

/// The file, seen from the top of the workspace.
pub(super) const FILE: &str = "xtask/house.txt";

/// The table as it is in the file.
#[derive(Debug)]
pub(super) struct Limits {
    text: String,
    rows: Vec<Limit>,
}

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Limit {
    line: usize,
    pub(super) measure: Measure,
    /// The crate or the document.
    pub(super) of: String,
    pub(super) limit: usize,
    /// Whether a comment stands beside it.
    pub(super) has_reason: bool,
}

/// What is wrong with the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LimitsError {
    Line {
        line: usize,
        error: LineError,
    },
    /// These have no line. The lines that would do.
    Missing(Vec<String>),
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineError {
    /// So many words.
    Words(usize),
    NoMeasure(String),
    NoNumber(String),
    Twice,
    /// The measure is of nothing that has this name.
    NoSuch(Measure, String),
}

impl std::error::Error for LimitsError {}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { line, error } => write!(f, "{FILE}, line {line}: {error}"),
            Self::Missing(rows) => write!(f, "{FILE} lacks\n{}", rows.join("\n")),
        }
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(found) => {
                write!(f, "three words expected (measure of limit), {found} found")
            }
            Self::NoMeasure(name) => write!(f, "no measure is called `{name}`"),
            Self::NoNumber(text) => write!(f, "the limit is a number, not `{text}`"),
            Self::Twice => f.write_str("this limit is there already"),
            Self::NoSuch(measure, of) => {
                write!(f, "`{}` measures nothing called `{of}`", measure.name())
            }
        }
    }
}

/// Reads the table: three words a line, `#` begins a comment.
pub(super) fn parse(text: &str) -> Result<Limits, LimitsError> {
    let mut rows: Vec<Limit> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let wrong = |error| LimitsError::Line {
            line: number,
            error,
        };
        let Some(row) = row(line, number).map_err(wrong)? else {
            continue;
        };
        let is_same = |other: &Limit| (other.measure, &other.of) == (row.measure, &row.of);
        if rows.iter().any(is_same) {
            return Err(wrong(LineError::Twice));
        }
        rows.push(row);
    }
    Ok(Limits {
        text: text.to_owned(),
        rows,
    })
}

/// Reads a line. Nothing if it has no limit.
pub(super) fn row(line: &str, number: usize) -> Result<Option<Limit>, LineError> {
    let (row, reason) = line.split_once('#').unwrap_or((line, ""));
    let words: Vec<&str> = row.split_whitespace().collect();
    let [measure, of, limit] = words[..] else {
        return match words.len() {
            0 => Ok(None),
            count => Err(LineError::Words(count)),
        };
    };
    Ok(Some(Limit {
        line: number,
        measure: Measure::named(measure).ok_or_else(|| LineError::NoMeasure(measure.to_owned()))?,
        of: of.to_owned(),
        limit: limit
            .parse()
            .map_err(|_| LineError::NoNumber(limit.to_owned()))?,
        has_reason: !reason.trim().is_empty(),
    }))
}

impl Limits {
    pub(super) fn rows(&self) -> &[Limit] {
        &self.rows
    }

    /// The limit of what has been measured.
    pub(super) fn of(&self, measurement: &Measurement) -> Option<usize> {
        self.row_of(measurement).map(|row| row.limit)
    }

    /// Checks that each line limits something, and that each measure has a line.
    pub(super) fn agree(&self, measurements: &[Measurement]) -> Result<(), LimitsError> {
        let names: BTreeSet<(Measure, &str)> = measurements
            .iter()
            .map(|one| (one.measure, &*one.of))
            .collect();
        for row in &self.rows {
            if !names.contains(&(row.measure, &*row.of)) {
                return Err(LimitsError::Line {
                    line: row.line,
                    error: LineError::NoSuch(row.measure, row.of.clone()),
                });
            }
        }
        let missing = measurements.iter().filter(|one| self.row_of(one).is_none());
        let rows = missing.map(|one| row_text(one.measure, &one.of, one.value));
        let rows: Vec<String> = rows.collect();
        if rows.is_empty() {
            Ok(())
        } else {
            Err(LimitsError::Missing(rows))
        }
    }

    /// The text of the table in which no limit is above its value. What is above its limit stays as
    /// it is, and so do the comments.
    pub(super) fn lower(&self, measurements: &[Measurement]) -> String {
        let mut lines: Vec<String> = self.text.lines().map(str::to_owned).collect();
        for measurement in measurements {
            if let Some(row) = self.row_of(measurement)
                && measurement.value < row.limit
            {
                let line = &mut lines[row.line - 1];
                let comment = line.find('#').map(|start| line.split_off(start));
                *line = row_text(row.measure, &row.of, measurement.value);
                if let Some(comment) = comment {
                    *line = format!("{line} {comment}");
                }
            }
        }
        lines.join("\n") + "\n"
    }

    fn row_of(&self, measurement: &Measurement) -> Option<&Limit> {
        let is_its =
            |row: &&Limit| (row.measure, &row.of) == (measurement.measure, &measurement.of);
        self.rows.iter().find(is_its)
    }
}

fn row_text(measure: Measure, of: &str, limit: usize) -> String {
    format!("{:<9} {of:<16} {limit:>6}", measure.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(measure: Measure, of: &str, value: usize) -> Measurement {
        Measurement {
            measure,
            of: of.to_owned(),
            value,
            parts: Vec::new(),
        }
    }

    const TABLE: &str = "\
# measure of limit

code      keylane             700
calls     keylane              21 # was 20: a reason
lines     README.md           306
";

    fn all(values: [usize; 3]) -> [Measurement; 3] {
        [
            measurement(Measure::Code, "keylane", values[0]),
            measurement(Measure::Calls, "keylane", values[1]),
            measurement(Measure::Lines, "README.md", values[2]),
        ]
    }

    #[test]
    fn a_line_is_three_words() {
        let limits = parse(TABLE).unwrap();
        let reasons: Vec<bool> = limits.rows.iter().map(|row| row.has_reason).collect();
        assert_eq!(reasons, [false, true, false]);
        let calls = measurement(Measure::Calls, "keylane", 9);
        assert_eq!(limits.of(&calls), Some(21));
        assert_eq!(limits.of(&measurement(Measure::Calls, "other", 9)), None);
        assert_eq!(limits.agree(&all([1, 2, 3])), Ok(()));
    }

    #[test]
    fn wrong_lines_are_named() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            error("\ncode keylane # 700"),
            "xtask/house.txt, line 2: three words expected (measure of limit), 2 found"
        );
        assert_eq!(
            error("size keylane 7"),
            "xtask/house.txt, line 1: no measure is called `size`"
        );
        for number in ["-1", "7k", "1.5", "99999999999999999999999"] {
            assert_eq!(
                error(&format!("code keylane {number}")),
                format!("xtask/house.txt, line 1: the limit is a number, not `{number}`")
            );
        }
        assert_eq!(
            error("code keylane 7\ncode keylane 8"),
            "xtask/house.txt, line 2: this limit is there already"
        );
    }

    #[test]
    fn both_sides_must_know_a_limit() {
        let limits = parse(TABLE).unwrap();
        let error = |all: &[Measurement]| limits.agree(all).unwrap_err().to_string();
        let all = all([1, 2, 3]);
        assert_eq!(
            error(&all[..2]),
            "xtask/house.txt, line 5: `lines` measures nothing called `README.md`"
        );
        let more = [
            measurement(Measure::Code, "keylane-sql", 9),
            measurement(Measure::Bound, "keylane", 4),
        ];
        let all: Vec<Measurement> = all.into_iter().chain(more).collect();
        assert_eq!(
            error(&all),
            "xtask/house.txt lacks\n\
             code      keylane-sql           9\n\
             bound     keylane               4"
        );
    }

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let limits = parse(TABLE).unwrap();
        assert_eq!(limits.lower(&all([700, 21, 306])), TABLE);
        assert_eq!(limits.lower(&all([701, 22, 307])), TABLE);
        let lower = limits.lower(&all([99, 20, 400]));
        let expected = TABLE.replace("700", " 99").replace("21 #", "20 #");
        assert_eq!(lower, expected);
    }
}
