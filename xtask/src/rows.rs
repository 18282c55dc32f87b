//! Small tables in files: a row a line, and `#` begins a comment.

/// The rows of `text`, each with the number of its line.
pub(crate) fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().zip(1..).filter_map(|(line, number)| {
        let row = line.split('#').next().unwrap_or_default().trim();
        (!row.is_empty()).then_some((number, row))
    })
}

/// The first word of a row, and what follows it.
pub(crate) fn split(row: &str) -> (&str, &str) {
    let (first, rest) = row.split_once(char::is_whitespace).unwrap_or((row, ""));
    (first, rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_empty_lines_are_no_rows() {
        let text = "# seconds name\n\n12  doc tests # slow\n  \n3 docs\n";
        let found: Vec<_> = rows(text).collect();
        assert_eq!(found, [(3, "12  doc tests"), (5, "3 docs")]);
    }

    #[test]
    fn a_name_may_have_several_words() {
        assert_eq!(split("12   doc tests"), ("12", "doc tests"));
        assert_eq!(split("12"), ("12", ""));
    }
}
