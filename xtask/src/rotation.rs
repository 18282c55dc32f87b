//! Which tests are left to the runs of other commits.

use std::collections::BTreeSet;
use std::process::Command;

use crate::Error;
use crate::executables::Executable;
use crate::git;
use crate::rows;
use crate::workspace;

/// The file, seen from the top of the workspace.
pub(crate) const FILE: &str = "xtask/rotation.txt";

/// The table as it is in the file.
#[derive(Debug)]
pub(crate) struct Rotation {
    rows: Vec<Row>,
}

/// One test of so many runs, of those in `program` whose names have `part`.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    share: usize,
    program: String,
    part: String,
}

/// Reads the table.
pub(crate) fn parse(text: &str) -> Result<Rotation, Error> {
    let mut table: Vec<Row> = Vec::new();
    for (number, row) in rows::rows(text) {
        let wrong = |why: &str| format!("{FILE}, line {number}: {why}");
        let words: Vec<&str> = row.split_whitespace().collect();
        let [share, program, part] = words[..] else {
            return Err(wrong("a row is a share, a program, and a part of names").into());
        };
        let share = share.parse().ok().filter(|share| *share > 1);
        table.push(Row {
            share: share.ok_or_else(|| wrong("the share is a number above 1"))?,
            program: program.to_owned(),
            part: part.to_owned(),
        });
    }
    Ok(Rotation { rows: table })
}

/// The turn of the commit that is checked out: its hash as a number. `None` without git's history.
pub(crate) fn turn() -> Option<usize> {
    let mut head = git::command(workspace::root());
    let hash = git::run(head.args(["rev-parse", "--verify", "--quiet", "HEAD"])).ok()?;
    usize::from_str_radix(hash.get(..8)?, 16).ok()
}

impl Rotation {
    /// The packages and targets that have rows.
    pub(crate) fn programs(&self) -> BTreeSet<(&str, &str)> {
        let programs = self.rows.iter();
        programs
            .filter_map(|row| row.program.split_once('/'))
            .collect()
    }

    /// The parts of names in all rows.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| &*row.part)
    }

    /// Makes `command`, which starts `program`, leave out the tests that it is not the turn of.
    pub(crate) fn leave_out(
        &self,
        program: &Executable,
        turn: usize,
        command: &mut Command,
    ) -> Result<(), Error> {
        let place = program.place();
        if self.rows.iter().all(|row| row.program != place) {
            return Ok(());
        }
        let mut list = program.command();
        let output = list.args(["--list", "--format", "terse"]).output()?;
        let listed = String::from_utf8_lossy(&output.stdout);
        let tests: Vec<&str> = listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .collect();
        let left_out = self.left_out(&place, &tests, turn)?;
        command.arg("--exact");
        for test in left_out {
            command.args(["--skip", test]);
        }
        Ok(())
    }

    /// The tests of a program that it is not the turn of. The error names a row without tests.
    fn left_out<'a>(
        &self,
        program: &str,
        tests: &[&'a str],
        turn: usize,
    ) -> Result<Vec<&'a str>, Error> {
        let mut left_out = Vec::new();
        for row in self.rows.iter().filter(|row| row.program == program) {
            let mut all: Vec<&str> = tests.to_vec();
            all.retain(|test| test.contains(&*row.part));
            all.sort_unstable();
            if all.len() < 2 {
                let why = "has fewer than two tests with";
                return Err(format!("{FILE}: {program} {why} `{}`", row.part).into());
            }
            let others = all.iter().enumerate();
            let others = others.filter(|(number, _)| number % row.share != turn % row.share);
            left_out.extend(others.map(|(_, test)| *test));
        }
        left_out.sort_unstable();
        left_out.dedup();
        Ok(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# share program part
2 sql/inbox source::mariadb:: # a comment
3 redis/lists valkey
";

    const TESTS: [&str; 5] = [
        "source::mariadb::order",
        "source::mariadb::idle",
        "source::postgres::idle",
        "valkey::a",
        "valkey::b",
    ];

    #[test]
    fn each_test_has_its_turn_and_the_others_run_always() {
        let rotation = parse(TABLE).unwrap();
        let left_out = |turn| rotation.left_out("sql/inbox", &TESTS, turn).unwrap();
        assert_eq!(left_out(0), ["source::mariadb::order"]);
        assert_eq!(left_out(1), ["source::mariadb::idle"]);
        assert_eq!(left_out(2), left_out(0));
        let lists: BTreeSet<_> = (0..3)
            .map(|turn| rotation.left_out("redis/lists", &TESTS, turn).unwrap())
            .collect();
        let both = vec!["valkey::a", "valkey::b"];
        assert_eq!(
            lists,
            [both, vec!["valkey::a"], vec!["valkey::b"]]
                .into_iter()
                .collect()
        );
        assert!(
            rotation
                .left_out("kafka/broker", &TESTS, 0)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn wrong_rows_are_named() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            error("1 a b"),
            "xtask/rotation.txt, line 1: the share is a number above 1"
        );
        assert!(error("\n2 a").contains("line 2: a row is a share"));
        let rotation = parse("2 a gone").unwrap();
        let error = rotation.left_out("a", &TESTS, 0).unwrap_err().to_string();
        assert!(error.ends_with("a has fewer than two tests with `gone`"));
    }

    #[test]
    fn the_table_is_read() {
        let text = std::fs::read_to_string(workspace::root().join(FILE)).unwrap();
        let rotation = parse(&text).unwrap();
        assert!(rotation.programs().contains(&("keylane-sql", "inbox")));
        // Each program is named as its folder and its target.
        assert!(rotation.rows.iter().all(|row| row.program.contains('/')));
    }
}
