//! The headers of a dead letter, in addition to those of its record.

use std::time::UNIX_EPOCH;

use bytes::Bytes;
use keylane_connector::Why;
use keylane_source::RawMessage;

use crate::record::Place;

/// The topic of the record.
pub(super) const TOPIC: &str = "keylane.topic";
pub(super) const PARTITION: &str = "keylane.partition";
pub(super) const OFFSET: &str = "keylane.offset";
/// When the record was written, in milliseconds since 1970.
pub(super) const TIME: &str = "keylane.time";
/// Whose clock that is of: `producer` or `broker`.
pub(super) const CLOCK: &str = "keylane.clock";
pub(super) const GROUP: &str = "keylane.group";
pub(super) const ATTEMPTS: &str = "keylane.attempts";
pub(super) const CAUSE: &str = "keylane.cause";
pub(super) const ERROR: &str = "keylane.error";

/// The headers that replace those from an earlier death. Other headers with the same prefix stay:
/// one of them identifies a record of a spool.
const OURS: [&str; 9] = [
    TOPIC, PARTITION, OFFSET, TIME, CLOCK, GROUP, ATTEMPTS, CAUSE, ERROR,
];

/// Makes the letter of a record.
pub(super) fn letter(record: &RawMessage, group: Option<&str>, why: &Why) -> RawMessage {
    let mut letter = original(record);
    if has_key_of_partition(record) {
        letter.key = None;
    }
    let mut say = |name: &str, value: &str| {
        let value = Bytes::copy_from_slice(value.as_bytes());
        letter.headers.push((name.to_owned(), Some(value)));
    };
    if let Some(place) = Place::of(record) {
        say(TOPIC, place.topic);
        say(PARTITION, &place.partition.to_string());
        say(OFFSET, &place.offset.to_string());
    }
    let time = record.enqueued_at;
    if let Some(since) = time.and_then(|at| at.duration_since(UNIX_EPOCH).ok()) {
        say(TIME, &since.as_millis().to_string());
        let clock = match record.is_producer_time {
            true => "producer",
            false => "broker",
        };
        say(CLOCK, clock);
    }
    if let Some(group) = group {
        say(GROUP, group);
    }
    let why = why.headers().into_iter();
    letter
        .headers
        .extend(why.map(|(name, value)| (name, Some(value))));
    letter
}

/// Whether the record has no key in its topic, and has the name of its partition instead: see
/// [`Keyless::ByPartition`](crate::Keyless::ByPartition).
fn has_key_of_partition(record: &RawMessage) -> bool {
    let (Some(key), Some(id)) = (&record.key, &record.id) else {
        return false;
    };
    let rest = id.strip_prefix(&key[..]);
    Place::of(record).is_some() && rest.is_some_and(|rest| rest.starts_with(b"@"))
}

/// Returns the record as it was before it became a letter. Its time is the time of sending.
pub(super) fn original(record: &RawMessage) -> RawMessage {
    let mut original = RawMessage::new(record.payload.clone());
    original.key = record.key.clone();
    original.is_tombstone = record.is_tombstone;
    let headers = record.headers.iter();
    let theirs = headers.filter(|(name, _)| !OURS.contains(&name.as_str()));
    original.headers = theirs.cloned().collect();
    original
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keylane_source::LetterCause;

    use super::*;

    #[test]
    fn a_letter_says_what_it_was_and_a_second_death_replaces_it() {
        let mut record = RawMessage::new("250").key("user-7");
        record.headers.push(("trace".into(), Some("a".into())));
        record.headers.push(("trace".into(), None));
        record.id = Some("orders/3@1200".into());
        record.enqueued_at = Some(UNIX_EPOCH + Duration::from_millis(1_700));
        let why = |error: &str| Why {
            attempts: 5,
            cause: LetterCause::Failed,
            error: error.to_owned(),
        };
        let mut first = letter(&record, Some("billing"), &why("no funds"));
        let of = |letter: &RawMessage, name| letter.header(name).cloned().unwrap();
        for (name, value) in [
            ("trace", "a"),
            (TOPIC, "orders"),
            (PARTITION, "3"),
            (OFFSET, "1200"),
            (TIME, "1700"),
            (CLOCK, "broker"),
            (GROUP, "billing"),
            (ATTEMPTS, "5"),
            (CAUSE, "failed"),
            (ERROR, "no funds"),
        ] {
            assert_eq!(of(&first, name), value, "{name}");
        }
        assert_eq!(original(&first).headers, record.headers);

        first.id = Some("orders.dead/0@7".into());
        let second = letter(&first, None, &why(&"é".repeat(3_000)));
        assert_eq!(of(&second, TOPIC), "orders.dead");
        assert_eq!(of(&second, ERROR).len(), 2 * 2_000);
        assert_eq!(second.header(GROUP), None);
        let topics = second.headers.iter().filter(|(name, _)| name == TOPIC);
        assert_eq!(topics.count(), 1);
    }

    /// The record keeps the header that identifies a spool's record when it comes twice.
    #[test]
    fn a_header_that_no_letter_has_stays() {
        let mut record = RawMessage::new("250").key("user-7");
        record
            .headers
            .push(("keylane.id".into(), Some("20 bytes".into())));
        let why = Why {
            attempts: 5,
            cause: LetterCause::Failed,
            error: "no funds".to_owned(),
        };
        let letter = letter(&record, None, &why);
        assert_eq!(letter.header("keylane.id"), Some(&"20 bytes".into()));
        assert_eq!(original(&letter).headers, record.headers);
    }

    /// It has the name of its partition as its key, to be handled in order.
    #[test]
    fn the_letter_of_a_record_without_a_key_has_none() {
        let mut record = RawMessage::new("250").key("orders/3");
        record.id = Some("orders/3@1200".into());
        let why = Why {
            attempts: 5,
            cause: LetterCause::Failed,
            error: "no funds".to_owned(),
        };
        assert_eq!(letter(&record, None, &why).key, None);
        record.id = Some("orders/4@1200".into());
        assert_eq!(letter(&record, None, &why).key, Some("orders/3".into()));
    }
}
