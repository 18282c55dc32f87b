//! Numbers, times and texts of others, as words. Pure.

/// A number with commas.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of lanes.
pub(super) fn lanes(count: u64) -> String {
    match count {
        1 => "1 lane".to_owned(),
        _ => format!("{} lanes", number(count)),
    }
}

/// Microseconds.
pub(super) fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..10_000 => format!("{:.1} ms", us as f64 / 1_000.0),
        _ => time(us / 1_000),
    }
}

/// Milliseconds.
pub(super) fn time(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        10_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

/// A name of the console.
pub(super) fn words(name: &str) -> String {
    visible(&name.replace('_', " "))
}

/// Whether a text has more characters than the console sends.
pub(super) fn is_cut(text: &str, characters: usize) -> bool {
    characters > text.chars().count()
}

/// A text from elsewhere: what cannot be seen in it, or turns the text around it, is spelled out.
pub(super) fn visible(text: &str) -> String {
    if text.is_empty() {
        return "(empty)".to_owned();
    }
    let mut seen = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\'' | '\\' => seen.push(character),
            _ => seen.extend(character.escape_debug()),
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_short() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(number),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0, 1, 2_000].map(lanes),
            ["0 lanes", "1 lane", "2,000 lanes"]
        );
        assert_eq!(
            [7, 1_500, 12_000, 1_500_000].map(micros),
            ["7 µs", "1.5 ms", "12 ms", "1.5 s"]
        );
        let long = [90_000, 600_000, 36_000_000].map(time);
        assert_eq!(long, ["90 s", "10 min", "10 h"]);
    }

    #[test]
    fn a_text_of_others_moves_no_cursor() {
        assert_eq!(visible("né \"a\\b'"), "né \"a\\b'");
        assert_eq!(visible("\x1b[2J\u{202e}a\n"), r"\u{1b}[2J\u{202e}a\n");
    }
}
