//! How figures are written.

/// A figure with as many digits as it can bear.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "∞".to_owned()
    } else if size >= 1_000.0 {
        grouped(value.round() as i64)
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.1 || size == 0.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.6}")
    }
}

/// A whole number, in groups of three digits.
pub fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_as_many_digits_as_they_can_bear() {
        let texts: Vec<String> = [1_234_567.0, 999.6, 123.4, 12.34, 1.234, 0.0, 0.000_12]
            .map(number)
            .into();
        assert_eq!(
            texts,
            [
                "1,234,567",
                "1000",
                "123",
                "12.3",
                "1.23",
                "0.00",
                "0.000120"
            ]
        );
    }
}
