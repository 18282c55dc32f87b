//! How the time of `cargo xtask test` is divided among its parts.

use std::time::Duration;

use crate::Error;
use crate::rows;
use crate::steps::Row;

/// The file, seen from the top of the workspace.
pub(crate) const FILE: &str = "xtask/shares.txt";

/// The part that has all steps of no other one.
const REST: &str = "rest";

/// The whole run: no part.
const TOTAL: &str = "total";

/// The table as it is in the file: the seconds and the name of each part.
#[derive(Debug)]
pub(crate) struct Shares {
    rows: Vec<Share>,
    total: Share,
}

#[derive(Debug, PartialEq, Eq)]
struct Share {
    seconds: u64,
    part: String,
}

/// Reads the table.
pub(crate) fn parse(text: &str) -> Result<Shares, Error> {
    let mut rows: Vec<Share> = Vec::new();
    for (number, row) in rows::rows(text) {
        let wrong = |why: String| format!("{FILE}, line {number}: {why}");
        let (seconds, part) = rows::split(row);
        let seconds = seconds
            .parse()
            .map_err(|_| wrong(format!("whole seconds come first, not `{seconds}`")))?;
        if part.is_empty() {
            return Err(wrong("the name of the part is missing".to_owned()).into());
        }
        if rows.iter().any(|other| other.part == part) {
            return Err(wrong(format!("`{part}` has a share already")).into());
        }
        let part = part.to_owned();
        rows.push(Share { seconds, part });
    }
    let lacks = |part: &str| format!("{FILE}: add a row for `{part}`");
    if rows.iter().all(|row| row.part != REST) {
        return Err(lacks(REST).into());
    }
    let total = rows.iter().position(|row| row.part == TOTAL);
    let total = rows.remove(total.ok_or_else(|| lacks(TOTAL))?);
    Ok(Shares { rows, total })
}

impl Shares {
    /// The place of the part that has this step: the one with the longest name that the name of the
    /// step begins with, up to the end of a word.
    fn part_of(&self, step: &str) -> usize {
        let has = |share: &Share| match step.strip_prefix(&*share.part) {
            Some(end) => {
                !end.starts_with(|next: char| next.is_alphanumeric() || "-_".contains(next))
            }
            None => share.part == REST,
        };
        let length = |share: &Share| match &*share.part {
            REST => 0,
            part => part.len(),
        };
        let parts = self.rows.iter().enumerate().filter(|(_, share)| has(share));
        let longest = parts.max_by_key(|(_, share)| length(share));
        longest.expect("the rest has what no other part has").0
    }

    /// The seconds of the run that each part took.
    fn divide(&self, steps: &[Row]) -> Vec<f64> {
        let mut seconds = vec![0.0; self.rows.len()];
        for step in steps {
            seconds[self.part_of(&step.name)] += step.cost().as_secs_f64();
        }
        seconds
    }

    /// The parts beside their shares. What is above its share is marked, and fails nothing:
    /// machines differ.
    pub(crate) fn table(&self, steps: &[Row], took: Duration) -> String {
        let rows = self.rows.iter().zip(self.divide(steps));
        let rows = rows.chain([(&self.total, took.as_secs_f64())]);
        let width = self.rows.iter().map(|share| share.part.chars().count());
        let width = width.max().unwrap_or(0).max(TOTAL.len());
        let mut table = format!("{:<width$}  {:>7}  {:>5}\n", "part", "seconds", "share");
        for (Share { seconds, part }, took) in rows {
            let note = if took > *seconds as f64 {
                "  above its share"
            } else {
                ""
            };
            table += &format!("{part:<width$}  {took:>7.1}  {seconds:>5}{note}\n");
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    const TABLE: &str = "\
# seconds part
 60  total
 10  rest
 20  keylane
 30  keylane-sql/inbox
  5  doc tests
";

    #[test]
    fn the_longest_name_at_the_end_of_a_word_has_the_step() {
        let shares = parse(TABLE).unwrap();
        let part = |step| &*shares.rows[shares.part_of(step)].part;
        assert_eq!(part("keylane"), "keylane");
        assert_eq!(part("keylane/metrics"), "keylane");
        assert_eq!(part("keylane-sql"), "rest");
        assert_eq!(part("keylane-sql/inbox"), "keylane-sql/inbox");
        assert_eq!(part("doc tests"), "doc tests");
        assert_eq!(part("docs"), "rest");
    }

    #[test]
    fn what_ran_beside_others_counts_with_its_room() {
        let shares = parse(TABLE).unwrap();
        let step =
            |name: &str, seconds, room| Row::passed(name, Duration::from_secs(seconds), room);
        let steps = [
            step("keylane", 12, None),
            step("keylane/metrics", 30, Some(0.5)),
            step("keylane-sql/inbox", 60, Some(0.25)),
            step("doc tests", 5, None),
            step("hello", 4, Some(0.5)),
        ];
        let table = "\
part               seconds  share
rest                   2.0     10
keylane               27.0     20  above its share
keylane-sql/inbox     15.0     30
doc tests              5.0      5
total                 66.0     60  above its share
";
        assert_eq!(shares.table(&steps, Duration::from_secs(66)), table);
    }

    #[test]
    fn wrong_rows_are_named() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            error("1.5 rest"),
            "xtask/shares.txt, line 1: whole seconds come first, not `1.5`"
        );
        assert!(error("1").ends_with("the name of the part is missing"));
        assert!(error("1 docs\n2 docs").ends_with("line 2: `docs` has a share already"));
        assert_eq!(error("1 docs"), "xtask/shares.txt: add a row for `rest`");
        assert_eq!(error("1 rest"), "xtask/shares.txt: add a row for `total`");
    }

    #[test]
    fn the_parts_together_are_within_the_total() {
        let text = std::fs::read_to_string(workspace::root().join(FILE)).unwrap();
        let shares = parse(&text).unwrap();
        let parts: u64 = shares.rows.iter().map(|share| share.seconds).sum();
        let total = shares.total.seconds;
        assert!(parts <= total, "{parts} s of {total}");
    }
}
