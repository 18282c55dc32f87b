//! A letter as a console shows it. Pure.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::Value;

use crate::output::{Dead, Shown};

/// Most characters of a key that a console shows.
pub(super) const MOST_CHARS: usize = 256;

/// A letter.
#[derive(Deserialize, Debug)]
pub(super) struct LetterRow {
    pub(super) id: String,
    key: Option<String>,
    attempts: u32,
    cause: String,
    error: String,
    at_ms: Option<u64>,
    #[serde(default)]
    accepted_at_ms: Option<u64>,
    #[serde(default)]
    message_id: Option<String>,
    /// A number. An older console does not say these three.
    #[serde(default)]
    version: Option<String>,
    payload: Payload,
    #[serde(default)]
    headers: Vec<(String, String)>,
}

#[derive(Deserialize, Debug)]
struct Payload {
    bytes: usize,
    form: String,
    shown: String,
}

impl LetterRow {
    pub(super) fn is_of(&self, key: &[u8]) -> bool {
        self.key.as_deref().is_some_and(|text| bytes(text) == key)
    }

    /// Whether it became a letter before this time. One without a time did not.
    pub(super) fn is_before(&self, until: SystemTime) -> bool {
        self.at_ms.and_then(time).is_some_and(|at| at < until)
    }

    pub(super) fn shown(&self) -> Shown<'_> {
        let payload = self.payload.contents();
        let headers = self.headers.iter();
        Shown {
            sequence: named(&self.id),
            accepted_at: self.accepted_at_ms.and_then(time),
            key: self.key.as_deref().map(|key| bytes(key).into()),
            id: self.message_id.as_deref().map(|id| bytes(id).into()),
            version: self.version.as_deref().and_then(|it| it.parse().ok()),
            headers: headers
                .map(|(name, value)| (&**name, bytes(value).into()))
                .collect(),
            payload_bytes: self.payload.bytes,
            payload_is_cut: payload.len() < self.payload.bytes,
            payload,
            dead: Some(Dead {
                attempts: self.attempts,
                kind: Cow::Borrowed(&self.cause),
                error: &self.error,
                at: self.at_ms.and_then(time),
            }),
        }
    }
}

impl Payload {
    fn contents(&self) -> Cow<'_, [u8]> {
        match &*self.form {
            "hex" => {
                let pairs = self.shown.split_whitespace();
                let bytes = pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok());
                bytes.collect::<Vec<_>>().into()
            }
            _ => self.shown.as_bytes().into(),
        }
    }
}

fn time(ms: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(ms))
}

/// An id that is a sequence is a number, as in a list of an inbox.
fn named(id: &str) -> Value {
    match id.parse::<u64>() {
        Ok(number) if number.to_string() == id => number.into(),
        _ => id.into(),
    }
}

/// The bytes of a text of a console: a backslash is `\\` there, and a byte that is not UTF-8 is
/// `\xff`. A text that was cut within such a pair ends with its characters.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        let digits = escape.strip_prefix('x').and_then(|rest| rest.get(..2));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let (byte, used) = match byte {
            Some(byte) => (byte, 3),
            None => (b'\\', usize::from(escape.starts_with('\\'))),
        };
        bytes.push(byte);
        rest = &escape[used..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// The text of a key in a console.
pub(super) fn text(key: &[u8]) -> String {
    let mut text = String::new();
    for chunk in key.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_text_and_bytes_again() {
        for key in [&b"user-7"[..], b"\xff\\x00\\", "né\\".as_bytes(), b""] {
            assert_eq!(bytes(&text(key)), key);
        }
        assert_eq!(bytes(r"cut\"), br"cut\");
        assert_eq!(bytes(r"cut\xf"), br"cut\xf");
    }

    #[test]
    fn an_id_is_a_number_if_it_is_written_like_one() {
        assert_eq!(named("17"), Value::from(17));
        for id in ["017", "1-0", "", "+1"] {
            assert_eq!(named(id), Value::from(id));
        }
    }

    #[test]
    fn a_payload_of_bytes_is_read_from_its_digits() {
        let payload = Payload {
            bytes: 18,
            form: "hex".into(),
            shown: "00 ff\n10".into(),
        };
        assert_eq!(*payload.contents(), [0, 0xff, 0x10]);
    }
}
