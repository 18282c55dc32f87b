//! A letter as a page shows it, and the letters that a filter chooses. Pure.

use std::time::{SystemTime, UNIX_EPOCH};

use keylane::Bytes;
use serde::Serialize;
use serde::de::IgnoredAny;

use super::store::StoredLetter;
use crate::key::ConsoleKey;
use crate::rows::{MOST_CHARS, cut, cut_to, ms};

/// Most characters of an error. What is longer is cut, and its length is said.
const MOST_ERROR: usize = 4_096;

/// How much of a letter is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    /// Bytes of its payload.
    bytes: usize,
    /// Characters of its key, of its id, and of the value of a header.
    chars: usize,
    headers: usize,
}

/// Of a letter in a list.
pub(crate) const IN_LIST: Most = Most {
    bytes: 256,
    chars: MOST_CHARS,
    headers: 64,
};

/// Of one letter: all, but for one that no page can show.
pub(crate) const ALONE: Most = Most {
    bytes: 64 << 10,
    chars: 64 << 10,
    headers: 1_024,
};

/// One letter.
#[derive(Debug, Serialize)]
pub(crate) struct LetterRow {
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) key_chars: Option<usize>,
    pub(crate) attempts: u32,
    pub(crate) cause: String,
    pub(crate) error: String,
    pub(crate) error_chars: usize,
    /// Milliseconds since 1970.
    pub(crate) at_ms: Option<u64>,
    pub(crate) accepted_at_ms: Option<u64>,
    pub(crate) message_id: Option<String>,
    /// As text: it is a number of 64 bits.
    pub(crate) version: Option<String>,
    pub(crate) payload: Payload,
    pub(crate) headers: Vec<(String, String)>,
    /// The number of characters of each name and each value.
    pub(crate) header_chars: Vec<(usize, usize)>,
    /// Headers that are not in the list.
    pub(crate) more_headers: usize,
}

/// Bytes as a page shows them.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Payload {
    /// All bytes there are.
    pub(crate) bytes: usize,
    /// `json`, `text` or `hex`: what `shown` is.
    pub(crate) form: &'static str,
    /// The first bytes.
    pub(crate) shown: String,
    /// How many these are.
    pub(crate) shown_bytes: usize,
}

impl LetterRow {
    pub(crate) fn of(letter: &StoredLetter, most: Most) -> Self {
        let headers = letter.headers.iter().take(most.headers);
        let headers = headers.map(|(name, value)| (name, value.to_text()));
        let headers: Vec<_> = headers.collect();
        let key = letter.key.as_ref().map(ConsoleKey::to_text);
        let text = |text: &str| cut_to(text, most.chars);
        Self {
            id: letter.id.clone(),
            key_chars: key.as_deref().map(chars),
            key: key.as_deref().map(text),
            attempts: letter.attempts,
            cause: cut(&letter.cause),
            error: cut_to(&letter.error, MOST_ERROR),
            error_chars: chars(&letter.error),
            at_ms: letter.at.and_then(since_1970),
            accepted_at_ms: letter.accepted_at.and_then(since_1970),
            message_id: letter.message_id.as_ref().map(|id| text(&id.to_text())),
            version: letter.version.map(|version| version.to_string()),
            payload: Payload::of(&letter.payload, most.bytes),
            header_chars: headers
                .iter()
                .map(|(name, value)| (chars(name), chars(value)))
                .collect(),
            headers: headers
                .iter()
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
            more_headers: letter.headers.len().saturating_sub(most.headers),
        }
    }
}

impl Payload {
    fn of(bytes: &Bytes, most: usize) -> Self {
        let first = &bytes[..bytes.len().min(most)];
        let is_whole = first.len() == bytes.len();
        let (form, shown) = match whole_chars(first) {
            Some(text) if is_whole && is_json(text) => ("json", text.to_owned()),
            Some(text) if !text.chars().any(is_binary) => ("text", text.to_owned()),
            _ => ("hex", hex(first)),
        };
        Self {
            bytes: bytes.len(),
            form,
            shown_bytes: first.len(),
            shown,
        }
    }
}

/// The text of bytes that are UTF-8, but for a character that is cut at the end.
fn whole_chars(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

/// Whether it is an object or a list: a number or a word is shown as it is. Numbers of any size are
/// JSON, so none is parsed.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Whether no text has this character.
fn is_binary(character: char) -> bool {
    character.is_control() && !matches!(character, '\t' | '\n' | '\r')
}

/// Sixteen bytes to a line.
fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).map(|line| {
        let pairs = line.iter().map(|byte| format!("{byte:02x}"));
        pairs.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn since_1970(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH).ok().map(ms)
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

/// Whether a filter chooses a letter: each of its words is in the key, the cause or the error. An
/// empty filter chooses all. A letter that is newer than `until` is not chosen: a message that is
/// redriven and fails again does not come twice.
pub(crate) fn matches(letter: &StoredLetter, filter: &str, until: Option<SystemTime>) -> bool {
    if let (Some(at), Some(until)) = (letter.at, until)
        && at > until
    {
        return false;
    }
    let key = letter.key.as_ref().map(ConsoleKey::to_text);
    let texts = [key.as_deref().unwrap_or(""), &letter.cause, &letter.error];
    let mut words = filter.split_whitespace();
    words.all(|word| texts.iter().any(|text| text.contains(word)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shown(bytes: &'static [u8], most: usize) -> (&'static str, String) {
        let payload = Payload::of(&Bytes::from_static(bytes), most);
        assert_eq!(payload.bytes, bytes.len());
        (payload.form, payload.shown)
    }

    #[test]
    fn a_payload_is_json_text_or_hex() {
        assert_eq!(shown(b"{\"a\":1}", 99), ("json", "{\"a\":1}".into()));
        assert_eq!(shown(b"{\"a\":1}", 3), ("text", "{\"a".into()));
        assert_eq!(shown(b" [1e400]", 99), ("json", " [1e400]".into()));
        assert_eq!(shown(b"{\"a\":1} 2", 99), ("text", "{\"a\":1} 2".into()));
        assert_eq!(shown(b"17", 99), ("text", "17".into()));
        assert_eq!(shown("né".as_bytes(), 2), ("text", "n".into()));
        assert_eq!(shown(b"\xff\x00", 99), ("hex", "ff 00".into()));
        let line = ["00"; 16].join(" ");
        assert_eq!(shown(&[0; 17], 99), ("hex", format!("{line}\n00")));
        assert_eq!(shown(b"a\tb\r\n", 99), ("text", "a\tb\r\n".into()));
    }

    #[test]
    fn a_filter_is_words_that_are_all_there() {
        let letter = StoredLetter {
            key: Some(Bytes::from_static(b"ann")),
            cause: "failed".into(),
            error: "the bank has declined it".into(),
            at: Some(UNIX_EPOCH + Duration::from_secs(10)),
            ..StoredLetter::default()
        };
        for filter in ["", "ann", "declined bank", "failed ann"] {
            assert!(matches(&letter, filter, None), "{filter}");
        }
        for filter in ["bob", "ann bob"] {
            assert!(!matches(&letter, filter, None), "{filter}");
        }
        let until = |seconds| Some(UNIX_EPOCH + Duration::from_secs(seconds));
        assert!(matches(&letter, "", until(10)) && !matches(&letter, "", until(9)));
    }
}
