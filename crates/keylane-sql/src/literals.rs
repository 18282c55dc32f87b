//! Values in the texts for MySQL and MariaDB.

use std::fmt::{Display, Write};

/// Bytes as both databases read them.
pub(crate) fn hex(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    let mut text = String::with_capacity(bytes.len() * 2 + 3);
    text.push_str("x'");
    push_hex(&mut text, bytes);
    text.push('\'');
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
}

/// The same digits, and nothing around them.
pub(crate) fn digits(bytes: impl AsRef<[u8]>) -> String {
    let mut text = String::new();
    push_hex(&mut text, bytes.as_ref());
    text
}

/// Joins parts with commas.
pub(crate) fn joined(parts: impl IntoIterator<Item = impl Display>) -> String {
    separated(parts, ", ")
}

/// Builds a table of constants from its rows.
pub(crate) fn table(rows: impl IntoIterator<Item = impl Display>) -> String {
    separated(rows, " union all ")
}

fn separated(parts: impl IntoIterator<Item = impl Display>, separator: &str) -> String {
    let mut text = String::new();
    for (at, part) in parts.into_iter().enumerate() {
        if at > 0 {
            text.push_str(separator);
        }
        write!(text, "{part}").expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_the_databases_read_them() {
        assert_eq!(hex([0, 10, 255]), "x'000aff'");
        assert_eq!(hex(""), "x''");
        assert_eq!(digits([0, 10, 255]), "000aff");
        assert_eq!(joined([1, 2, 3]), "1, 2, 3");
        assert_eq!(
            table(["select 1 as n", "select 2"]),
            "select 1 as n union all select 2"
        );
    }
}
