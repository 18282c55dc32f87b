//! The table of the planted bugs, `xtask/mutants.txt`.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use crate::Error;
use crate::rows;
use crate::schedules::SCHEDULERS;

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Planted {
    /// The name of its patch.
    pub(super) name: String,
    /// If its test is a schedule test, built with shuttle in place of Tokio: what chooses the
    /// schedules.
    pub(super) scheduler: Option<&'static str>,
    pub(super) package: String,
    /// `lib`, or the name of an integration test.
    pub(super) target: String,
    /// What the names of the tests that must find it contain.
    pub(super) test: String,
}

/// What tells one test from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TestId<'a> {
    scheduler: Option<&'static str>,
    package: &'a str,
    target: &'a str,
    test: &'a str,
}

/// What tells one build of a test from another: package, target, and whether it is built with
/// shuttle.
pub(super) type BuildId<'a> = (&'a str, &'a str, bool);

impl Planted {
    pub(super) fn build_id(&self) -> BuildId<'_> {
        (&self.package, &self.target, self.scheduler.is_some())
    }

    pub(super) fn test_id(&self) -> TestId<'_> {
        TestId {
            scheduler: self.scheduler,
            package: &self.package,
            target: &self.target,
            test: &self.test,
        }
    }
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.test_id())
    }
}

impl fmt::Display for TestId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TestId {
            scheduler,
            package,
            target,
            test,
        } = self;
        write!(f, "{package} {target} {test}")?;
        match scheduler {
            Some(scheduler) => write!(f, ", {scheduler} schedules"),
            None => Ok(()),
        }
    }
}

/// Reads the table of the workspace at `root`.
pub(super) fn read(root: &Path) -> Result<Vec<Planted>, Error> {
    parse(&std::fs::read_to_string(root.join("xtask/mutants.txt"))?)
}

/// Reads the table: five words a line, `#` begins a comment.
pub(super) fn parse(table: &str) -> Result<Vec<Planted>, Error> {
    let mut planted: Vec<Planted> = Vec::new();
    for (number, line) in rows::rows(table) {
        let place = format!("xtask/mutants.txt, line {number}");
        let row = row(line).map_err(|error| format!("{place}: {error}"))?;
        if planted.iter().any(|other| other.name == row.name) {
            return Err(format!("{place}: `{}` is there already", row.name).into());
        }
        planted.push(row);
    }
    Ok(planted)
}

fn row(line: &str) -> Result<Planted, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, scheduler, package, target, test] = words[..] else {
        return Err(format!(
            "five words expected (name scheduler package target test), {} found",
            words.len()
        ));
    };
    // It becomes a file name.
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    {
        return Err(format!(
            "`{name}` is no name: letters, digits, `-` and `_` only"
        ));
    }
    let scheduler = match scheduler {
        "-" => None,
        name => match SCHEDULERS.into_iter().find(|known| *known == name) {
            Some(scheduler) => Some(scheduler),
            None => {
                return Err(format!(
                    "the scheduler is `-`, `random` or `pct`, not `{scheduler}`"
                ));
            }
        },
    };
    let [name, package, target, test] = [name, package, target, test].map(str::to_owned);
    Ok(Planted {
        name,
        scheduler,
        package,
        target,
        test,
    })
}

/// Checks that each line has a patch, and each patch a line.
pub(super) fn agree(table: &[Planted], patches: &BTreeSet<String>) -> Result<(), Error> {
    let listed: BTreeSet<String> = table.iter().map(|planted| planted.name.clone()).collect();
    let quoted = |names: Vec<&String>| {
        names
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let untested: Vec<_> = patches.difference(&listed).collect();
    if !untested.is_empty() {
        return Err(format!(
            "a patch in xtask/mutants, but no line in xtask/mutants.txt: {}",
            quoted(untested)
        )
        .into());
    }
    let gone: Vec<_> = listed.difference(patches).collect();
    if !gone.is_empty() {
        return Err(format!(
            "a line in xtask/mutants.txt, but no patch in xtask/mutants: {}",
            quoted(gone)
        )
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_five_words() {
        let table = "# name scheduler package target test\n\nlost-wake pct keylane lib schedules::overflow # G8\n";
        let expected = Planted {
            name: "lost-wake".to_owned(),
            scheduler: Some("pct"),
            package: "keylane".to_owned(),
            target: "lib".to_owned(),
            test: "schedules::overflow".to_owned(),
        };
        assert_eq!(parse(table).unwrap(), [expected]);
    }

    #[test]
    fn wrong_lines_are_named() {
        let error = |table| parse(table).unwrap_err().to_string();
        let four = "\nname - tests engine\n";
        assert_eq!(
            error(four),
            "xtask/mutants.txt, line 2: five words expected (name scheduler package target test), 4 found"
        );
        assert!(error("../name - tests engine g1").ends_with("letters, digits, `-` and `_` only"));
        assert!(
            error("name loom tests engine g1")
                .ends_with("the scheduler is `-`, `random` or `pct`, not `loom`")
        );
        let twice = "name - tests engine g1\nname - tests engine g2";
        assert_eq!(
            error(twice),
            "xtask/mutants.txt, line 2: `name` is there already"
        );
    }

    #[test]
    fn both_sides_must_know_a_bug() {
        let table = parse("one - tests engine g1").unwrap();
        let patches = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert!(agree(&table, &patches(&["one"])).is_ok());
        let error = agree(&table, &patches(&["one", "two"]))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "a patch in xtask/mutants, but no line in xtask/mutants.txt: `two`"
        );
        let error = agree(&table, &patches(&[])).unwrap_err().to_string();
        assert_eq!(
            error,
            "a line in xtask/mutants.txt, but no patch in xtask/mutants: `one`"
        );
    }
}
