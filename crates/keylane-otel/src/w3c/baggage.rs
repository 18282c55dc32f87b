//! The header `baggage`.

use opentelemetry::baggage::{Baggage, KeyValueMetadata};

/// A longer header is dropped.
const MOST_BYTES: usize = 8_192;

/// Reads a header. A malformed member is left out. `None` if nothing is left.
pub(crate) fn parse(header: &[u8]) -> Option<Baggage> {
    let text = std::str::from_utf8(header).ok()?;
    if text.len() > MOST_BYTES {
        return None;
    }
    let baggage: Baggage = text.split(',').filter_map(member).collect();
    (!baggage.is_empty()).then_some(baggage)
}

fn member(member: &str) -> Option<KeyValueMetadata> {
    let (pair, properties) = member.split_once(';').unwrap_or((member, ""));
    let (key, value) = pair.split_once('=')?;
    let value = decode(value.trim())?;
    Some(KeyValueMetadata::new(
        key.trim().to_owned(),
        value,
        properties,
    ))
}

/// Replaces `%20` and so on by what they stand for.
fn decode(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        bytes.push(match byte {
            b'%' => {
                let digits = after.get(..2)?;
                rest = &after[2..];
                16 * digit(digits[0])? + digit(digits[1])?
            }
            _ => *byte,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn digit(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_decoded() {
        let baggage =
            parse(b"user = 7 ;p=1, city=Z%C3%BCrich%2C%20CH,bad,%,x=%4,y=%zz").expect("two");
        assert_eq!(baggage.len(), 2);
        assert_eq!(baggage.get("user").map(|value| value.as_str()), Some("7"));
        let city = baggage.get("city").map(|value| value.as_str());
        assert_eq!(city, Some("Z\u{fc}rich, CH"));
        let (_, metadata) = baggage.get_with_metadata("user").expect("there");
        assert_eq!(metadata.as_str(), "p=1");
    }

    #[test]
    fn a_malformed_header_is_none() {
        assert!(parse(b"").is_none());
        assert!(parse(b"a=\xff").is_none());
        assert!(parse(format!("a={}", "1".repeat(MOST_BYTES)).as_bytes()).is_none());
        assert!(parse(format!("a={}", "1".repeat(MOST_BYTES - 10)).as_bytes()).is_some());
    }
}
