//! Lines of code, of a crate and of its files; lines of a document.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::house::code::Crate;
use crate::house::measure::Value;

/// More lines of code make a long file.
const LONG: usize = 500;

/// The lines of code of a crate; of each file and folder at its root.
pub(super) fn code(code: &Crate) -> Value {
    let mut entries: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &code.files {
        let entry = file.path.split('/').next().unwrap_or_default();
        *entries.entry(entry).or_default() += file.code();
    }
    let total = entries.values().sum();
    (total, largest_first(entries))
}

/// The lines of code of the file in the middle; of two in the middle, the smaller.
pub(super) fn median(code: &Crate) -> Value {
    let mut sizes: Vec<usize> = code.files.iter().map(|file| file.code()).collect();
    sizes.sort_unstable();
    let middle = sizes.len().saturating_sub(1) / 2;
    let median = sizes.get(middle).copied().unwrap_or(0);
    (median, vec![format!("{} files", sizes.len())])
}

/// The files that are long.
pub(super) fn long_files(code: &Crate) -> Value {
    let files = code.files.iter();
    let sizes = files.map(|file| (file.path.as_str(), file.code()));
    let long: BTreeMap<&str, usize> = sizes.filter(|(_, size)| *size > LONG).collect();
    (long.len(), largest_first(long))
}

/// All lines of a document.
pub(super) fn lines(text: &str) -> Value {
    (text.lines().count(), Vec::new())
}

fn largest_first(sizes: BTreeMap<&str, usize>) -> Vec<String> {
    let mut sizes: Vec<(&str, usize)> = sizes.into_iter().collect();
    sizes.sort_by_key(|(_, size)| Reverse(*size));
    let line = |(path, size)| format!("{path}: {size} lines");
    sizes.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::code::code_of;

    #[test]
    fn lines_are_added_up_by_what_is_at_the_root() {
        let code = code_of(&[
            ("lib.rs", "mod a;\nmod b;\n\n"),
            ("a/mod.rs", "mod c;\n\nfn f() {}\n"),
            ("a/c.rs", "fn f() {}\n// Why.\nfn g() {}\nfn h() {}\n"),
            (
                "b.rs",
                "#[cfg(test)]\nmod tests {}\nfn f() {\n    g();\n}\n",
            ),
        ]);
        let (total, parts) = super::code(&code);
        assert_eq!(total, 10);
        assert_eq!(parts, ["a: 5 lines", "b.rs: 3 lines", "lib.rs: 2 lines"]);
        assert_eq!(median(&code), (2, vec!["4 files".to_owned()]));
    }

    #[test]
    fn a_long_file_has_more_than_500_lines_without_tests() {
        let lines = |count| "fn f() {}\n".repeat(count);
        let root = "mod a; mod b; mod c;";
        let tests = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(9), lines(900));
        let code = code_of(&[
            ("lib.rs", root),
            ("a.rs", &lines(500)),
            ("b.rs", &lines(501)),
            ("c.rs", &tests),
        ]);
        assert_eq!(long_files(&code), (1, vec!["b.rs: 501 lines".to_owned()]));
    }

    #[test]
    fn all_lines_of_a_document_count() {
        assert_eq!(lines("# Title\n\nText.\n").0, 3);
    }

    #[test]
    fn a_crate_without_files_has_no_middle() {
        assert_eq!(median(&code_of(&[])).0, 0);
    }
}
