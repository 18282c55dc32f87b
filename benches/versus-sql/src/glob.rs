//! Names with `*` and `?`.

/// Whether one of the patterns fits, or there is none.
pub fn any(patterns: &[String], name: &str) -> bool {
    patterns.is_empty()
        || patterns
            .iter()
            .any(|pattern| fits(pattern.as_bytes(), name.as_bytes()))
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=name.len()).any(|skipped| fits(rest, &name[skipped..])),
        (Some((b'?', pattern)), Some((_, name))) => fits(pattern, name),
        (Some((wanted, pattern)), Some((found, name))) => wanted == found && fits(pattern, name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, expected) in [
            ("empty/*", "empty/1k/1p", true),
            ("*/1p", "empty/1k/1p", true),
            ("*/?p", "empty/1k/4p", true),
            ("*/?p", "empty/1k/", false),
            ("empty", "empty/1k/1p", false),
            ("*", "", true),
        ] {
            assert_eq!(
                fits(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }
}
