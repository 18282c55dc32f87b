//! Converts bytes to text and back, so that no raw byte of a key or payload reaches the terminal.

use std::time::Duration;

/// A key from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

/// How many bytes of a long value are shown.
const SHOWN_BYTES: usize = 64;

/// Escapes bytes, and cuts them unless `full` is set.
pub(crate) fn escape(bytes: &[u8], full: bool) -> String {
    let shown = if full { bytes.len() } else { SHOWN_BYTES };
    match bytes.get(..shown) {
        Some(start) if start.len() < bytes.len() => format!("{}…", start.escape_ascii()),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Escapes a text that is shown without quotes, and never parsed again.
pub(crate) fn unquoted(text: &str, full: bool) -> String {
    let escaped = escape(text.as_bytes(), full);
    escaped.replace("\\\"", "\"").replace("\\'", "'")
}

/// Parses the output of [`escape`].
pub(crate) fn parse(text: &str) -> Result<Bytes, String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let escaped = match rest.next() {
            Some(b'n') => Some(b'\n'),
            Some(b'r') => Some(b'\r'),
            Some(b't') => Some(b'\t'),
            Some(byte @ (b'\\' | b'"' | b'\'')) => Some(byte),
            Some(b'x') => digit(rest.next())
                .zip(digit(rest.next()))
                .map(|(high, low)| high << 4 | low),
            _ => None,
        };
        let unknown = r#"after a \ there must be n, r, t, \, ", ', or x and two hex digits"#;
        bytes.push(escaped.ok_or(unknown)?);
    }
    Ok(Bytes(bytes))
}

fn digit(byte: Option<u8>) -> Option<u8> {
    let digit = char::from(byte?).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// Parses a number and a unit: `45s`, `30m`, `12h`, `7d`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let how = "a time is a number followed by s, m, h or d, such as 7d";
    let (unit_at, unit) = text.char_indices().last().ok_or(how)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(how.into()),
    };
    let number: u64 = text[..unit_at].parse().map_err(|_| how)?;
    let seconds = number.checked_mul(seconds).ok_or("that is too long ago")?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_is_read_again() {
        let all: Vec<u8> = (0..=255).collect();
        let text = escape(&all, true);
        assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        assert_eq!(parse(&text), Ok(Bytes(all)));
        assert_eq!(parse("Zoë"), Ok(Bytes("Zoë".into())));
        assert_eq!(parse(""), Ok(Bytes(vec![])));
        for wrong in ["\\", "\\q", "\\x", "\\x1", "\\xzz", "\\x+1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn quotes_in_errors_are_quotes() {
        let text = "it's \"no\"\n\u{1b}[1m";
        assert_eq!(unquoted(text, true), r#"it's "no"\n\x1b[1m"#);
    }

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(escape(&[b'a'; 64], false), "a".repeat(64));
        assert_eq!(escape(&[b'a'; 65], false), "a".repeat(64) + "…");
        assert_eq!(escape(&[b'a'; 65], true), "a".repeat(65));
    }

    #[test]
    fn times() {
        assert_eq!(parse_time("45s"), Ok(Duration::from_secs(45)));
        assert_eq!(parse_time("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for wrong in [
            "",
            "7",
            "d",
            "-1d",
            "7w",
            "1.5h",
            "99999999999999999d",
            "7ä",
        ] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
