//! A dead letter as an entry of a stream. Pure.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylane_source::RawMessage;

use super::answer::Fields;
use super::id::EntryId;
use super::record::StreamFields;

const STREAM: &str = "keylane.stream";
const ENTRY: &str = "keylane.entry";
const TIME: &str = "keylane.time";
const GROUP: &str = "keylane.group";
const ATTEMPTS: &str = "keylane.attempts";
const CAUSE: &str = "keylane.cause";
const ERROR: &str = "keylane.error";

/// The fields that an entry has as a letter. The redriven one is without them.
pub(super) const OURS: [&str; 7] = [STREAM, ENTRY, TIME, GROUP, ATTEMPTS, CAUSE, ERROR];

/// A dead letter in a stream.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamLetter {
    /// Its entry in the stream of the letters. The [time](EntryId::time) of the entry is when the
    /// message became a letter.
    pub id: EntryId,
    /// The original message. Unless its producer has set an id, the id is that of its entry, as in
    /// `orders/1700000000000-3`.
    pub message: RawMessage,
    /// The stream of the original entry; `None` if the letter does not name it.
    pub stream: Option<Bytes>,
    /// The group that could not handle it; `None` if the letter does not name it.
    pub group: Option<Bytes>,
    /// How many attempts its handler had.
    pub attempts: u32,
    /// Why it was given up: `failed`, `panicked`, `timed out`, `undecodable`, `skipped`, …
    pub cause: String,
    /// The text of the error, 2,000 characters at most.
    pub error: String,
}

/// Returns the letter in an entry.
pub(super) fn letter(id: EntryId, entry: &[(Bytes, Bytes)], fields: &StreamFields) -> StreamLetter {
    let mut message = fields.message(original(entry));
    let stream = value(entry, STREAM);
    if let (None, Some(stream), Some(at)) = (&message.id, stream, value(entry, ENTRY)) {
        message.id = Some([&stream[..], b"/", at].concat().into());
    }
    message.attempt = 1;
    let ms = value(entry, TIME).and_then(|ms| text(ms).parse().ok());
    message.enqueued_at =
        ms.and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
    let text_of = |name| value(entry, name).map(text).unwrap_or_default();
    StreamLetter {
        id,
        message,
        stream: stream.cloned(),
        group: value(entry, GROUP).cloned(),
        attempts: text_of(ATTEMPTS).parse().unwrap_or_default(),
        cause: text_of(CAUSE),
        error: text_of(ERROR),
    }
}

/// Returns the stream that a letter names.
pub(super) fn stream(entry: &[(Bytes, Bytes)]) -> Option<&Bytes> {
    value(entry, STREAM)
}

/// Returns the fields of the original entry.
pub(super) fn original(entry: &[(Bytes, Bytes)]) -> Fields {
    let is_ours = |name: &Bytes| OURS.iter().any(|ours| ours.as_bytes() == name);
    let theirs = entry.iter().filter(|(name, _)| !is_ours(name));
    theirs.cloned().collect()
}

fn value<'a>(entry: &'a [(Bytes, Bytes)], name: &str) -> Option<&'a Bytes> {
    let field = entry.iter().find(|(of, _)| of == name.as_bytes());
    field.map(|(_, value)| value)
}

fn text(value: &Bytes) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fields: &[(&'static str, &'static str)]) -> Fields {
        let fields = fields.iter().copied();
        fields
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    #[test]
    fn a_letter_has_the_message_and_why() {
        let entry = entry(&[
            ("key", "u-7"),
            ("trace", "t"),
            ("payload", "12"),
            (STREAM, "orders"),
            (ENTRY, "1700-3"),
            (TIME, "1700"),
            (GROUP, "billing"),
            (ATTEMPTS, "5"),
            (CAUSE, "timed out"),
            (ERROR, "no funds"),
        ]);
        let id = EntryId::new(1_800, 0);
        let found = letter(id, &entry, &StreamFields::new());
        assert_eq!((found.id, found.attempts), (id, 5));
        assert_eq!((&*found.cause, &*found.error), ("timed out", "no funds"));
        assert_eq!(found.stream, Some("orders".into()));
        assert_eq!(found.group, Some("billing".into()));
        let message = found.message;
        assert_eq!(message.key, Some("u-7".into()));
        assert_eq!(message.payload, "12");
        assert_eq!(
            message.headers,
            [("trace".to_owned(), Some(Bytes::from("t")))]
        );
        assert_eq!(message.id, Some("orders/1700-3".into()));
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700);
        assert_eq!(message.enqueued_at, Some(at));
        assert_eq!(original(&entry), entry[..3]);
    }

    #[test]
    fn what_a_letter_does_not_say_is_left_open() {
        let entry = entry(&[("id", "order-1"), (STREAM, "orders"), (ATTEMPTS, "many")]);
        let found = letter(EntryId::new(1, 1), &entry, &StreamFields::new());
        assert_eq!(found.message.id, Some("order-1".into()));
        assert_eq!(found.message.enqueued_at, None);
        assert_eq!((found.group, found.attempts), (None, 0));
        assert_eq!((&*found.cause, &*found.error), ("", ""));
    }
}
