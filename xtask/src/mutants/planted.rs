//! The planted bugs: as `xtask/mutants.txt` lists them, and as the sources have them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use crate::Error;
use crate::schedules::SCHEDULERS;

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Planted {
    /// The value of `keylane_mutant`.
    pub(super) name: String,
    /// If its test is a schedule test, built with shuttle in place of Tokio: what chooses the schedules.
    pub(super) scheduler: Option<&'static str>,
    pub(super) package: String,
    /// `lib`, or the name of an integration test.
    pub(super) target: String,
    /// What the names of the tests that must notice it contain.
    pub(super) test: String,
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Planted {
            name,
            scheduler,
            package,
            target,
            test,
        } = self;
        write!(f, "{name}: {package} {target} {test}")?;
        match scheduler {
            Some(scheduler) => write!(f, ", {scheduler} schedules"),
            None => Ok(()),
        }
    }
}

/// Reads the table: five words a line, `#` begins a comment.
pub(super) fn parse(table: &str) -> Result<Vec<Planted>, Error> {
    let mut planted: Vec<Planted> = Vec::new();
    for (index, line) in table.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        if line.trim().is_empty() {
            continue;
        }
        let place = format!("xtask/mutants.txt, line {}", index + 1);
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
    let [name, cfg, package, target, test] = words[..] else {
        return Err(format!(
            "five words expected (name cfg package target test), {} found",
            words.len()
        ));
    };
    // The name becomes a file name and a compiler argument.
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    {
        return Err(format!(
            "`{name}` is no name: letters, digits, `-` and `_` only"
        ));
    }
    let scheduler = match cfg {
        "-" => None,
        name => match SCHEDULERS.into_iter().find(|known| *known == name) {
            Some(scheduler) => Some(scheduler),
            None => return Err(format!("cfg is `-`, `random` or `pct`, not `{cfg}`")),
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

/// The names of all bugs planted in the Rust files below `folder`.
pub(super) fn in_sources(folder: &Path) -> Result<BTreeSet<String>, Error> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(in_sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(in_text(&std::fs::read_to_string(&path)?));
        }
    }
    Ok(found)
}

/// The names in one file. Comments may speak of planted bugs without planting one.
fn in_text(text: &str) -> impl Iterator<Item = String> + '_ {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("keylane_mutant").skip(1))
        .filter_map(|rest| {
            let value = rest
                .trim_start()
                .strip_prefix('=')?
                .trim_start()
                .strip_prefix('"')?;
            Some(value.split_once('"')?.0.to_owned())
        })
}

/// Checks that table and sources know the same bugs.
pub(super) fn agree(table: &[Planted], sources: &BTreeSet<String>) -> Result<(), Error> {
    let listed: BTreeSet<String> = table.iter().map(|planted| planted.name.clone()).collect();
    let quoted = |names: Vec<&String>| {
        names
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let untested: Vec<_> = sources.difference(&listed).collect();
    if !untested.is_empty() {
        return Err(format!(
            "planted, but not in xtask/mutants.txt: {}",
            quoted(untested)
        )
        .into());
    }
    let gone: Vec<_> = listed.difference(sources).collect();
    if !gone.is_empty() {
        return Err(format!("in xtask/mutants.txt, but not planted: {}", quoted(gone)).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_five_words() {
        let table = "# name cfg package target test\n\nlost-wake pct keylane lib schedules::overflow # G8\n";
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
            "xtask/mutants.txt, line 2: five words expected (name cfg package target test), 4 found"
        );
        assert!(error("../name - tests engine g1").ends_with("letters, digits, `-` and `_` only"));
        assert!(
            error("name loom tests engine g1")
                .ends_with("cfg is `-`, `random` or `pct`, not `loom`")
        );
        let twice = "name - tests engine g1\nname - tests engine g2";
        assert_eq!(
            error(twice),
            "xtask/mutants.txt, line 2: `name` is there already"
        );
    }

    #[test]
    fn names_are_found_in_code_only() {
        let text = r#"
            /// Not this: keylane_mutant = "doc".
            #[cfg(not(keylane_mutant = "one"))]
            fn a() {}
            #[cfg(any(keylane_mutant="two", keylane_mutant = "three"))]
            fn b() { if cfg!(keylane_mutant = "one") {} } // keylane_mutant
        "#;
        let found: BTreeSet<String> = in_text(text).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), ["one", "three", "two"]);
    }

    #[test]
    fn both_sides_must_know_a_bug() {
        let table = parse("one - tests engine g1").unwrap();
        let sources = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert!(agree(&table, &sources(&["one"])).is_ok());
        let error = agree(&table, &sources(&["one", "two"]))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "planted, but not in xtask/mutants.txt: `two`");
        let error = agree(&table, &sources(&[])).unwrap_err().to_string();
        assert_eq!(error, "in xtask/mutants.txt, but not planted: `one`");
    }
}
