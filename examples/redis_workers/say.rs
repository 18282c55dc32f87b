//! What is written to the standard output, and to the standard error.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

pub(crate) use crate::screen::{block, line};

/// Writes an error and its causes to the standard error.
pub(crate) fn error(error: &dyn Error) {
    let mut out = io::stderr().lock();
    let _ = writeln!(out, "error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = writeln!(out, "  because: {cause}");
        source = cause.source();
    }
}

/// `1234567` → `1,234,567`.
pub(crate) fn grouped(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Seconds with one decimal.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(999_u64), "999");
        assert_eq!(grouped(1_234_567_u64), "1,234,567");
        assert_eq!(seconds(Duration::from_millis(2_340)), "2.3 s");
    }
}
