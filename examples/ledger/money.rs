//! Sums of money, as text.

use examples::say::grouped;

/// `123456` → `1,234.56`.
pub(crate) fn money(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    let cents = cents.unsigned_abs();
    format!("{sign}{}.{:02}", grouped(cents / 100), cents % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_readable() {
        assert_eq!(money(5), "0.05");
        assert_eq!(money(-123_456), "-1,234.56");
    }
}
