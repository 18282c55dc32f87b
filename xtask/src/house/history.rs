//! Limits that are above what they have been.

use std::path::Path;

use super::limits::{self, Limit};
use crate::git;

/// All lines that have ever been added to the table, as `git log` shows them. Nothing if these
/// sources came without their history.
pub(super) fn additions(root: &Path) -> Option<String> {
    let log = [
        "log",
        "--patch",
        "--unified=0",
        "--no-color",
        "--format=",
        "--",
    ];
    git::run(git::command(root).args(log).arg(limits::FILE)).ok()
}

/// The limits that are above what they have been, without a reason beside them, each with that.
pub(super) fn without_reason<'a>(rows: &'a [Limit], additions: &str) -> Vec<(&'a Limit, usize)> {
    let lines = additions.lines().filter_map(|line| line.strip_prefix('+'));
    let earlier: Vec<Limit> = lines
        .filter_map(|line| limits::row(line, 0).ok().flatten())
        .collect();
    let lowest = |row: &Limit| {
        let same = |other: &&Limit| (other.measure, &other.of) == (row.measure, &row.of);
        let limits = earlier.iter().filter(same).map(|other| other.limit);
        limits.min()
    };
    let rows = rows.iter().filter(|row| !row.has_reason);
    rows.filter_map(|row| Some((row, lowest(row)?)))
        .filter(|(row, lowest)| row.limit > *lowest)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDITIONS: &str = "\
+++ b/xtask/house.txt
@@ -3 +3 @@
-code      keylane            800
+code      keylane            700
+# code    keylane              1
+calls     keylane             21 # was 20
+sizes     keylane             21
";

    fn rises(table: &str) -> Vec<(usize, usize)> {
        let limits = limits::parse(table).unwrap();
        let rises = without_reason(limits.rows(), ADDITIONS);
        rises
            .iter()
            .map(|(row, lowest)| (row.limit, *lowest))
            .collect()
    }

    #[test]
    fn a_rise_needs_a_reason() {
        assert_eq!(rises("code keylane 701"), [(701, 700)]);
        assert_eq!(rises("code keylane 701 #"), [(701, 700)]);
        assert_eq!(rises("code keylane 701 # was 700: a reason"), []);
    }

    #[test]
    fn what_has_not_risen_needs_none() {
        assert_eq!(
            rises("code keylane 700\ncalls keylane 20\ncode other 9"),
            []
        );
    }
}
