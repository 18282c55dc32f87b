//! A dead letter as it is shown. Pure.

use std::time::{Duration, SystemTime};

use keylane_source::RawMessage;

use super::headers::{
    ATTEMPTS, CAUSE, CLOCK, ERROR, GROUP, OFFSET, PARTITION, TIME, TOPIC, original,
};
use super::id::LetterId;
use crate::record::Place;

/// A dead letter in a topic.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaLetter {
    /// Its place in the topic of the letters.
    pub id: LetterId,
    /// The original message. Its id is the [`Place`] of its record, if the letter has it.
    pub message: RawMessage,
    /// The topic of the record; `None` if the letter does not name it.
    pub topic: Option<String>,
    /// The group that could not handle it; `None` if the letter does not name it.
    pub group: Option<String>,
    /// How many attempts its handler had.
    pub attempts: u32,
    /// Why it was given up: `failed`, `panicked`, `timed out`, `undecodable`, `skipped`, …
    pub cause: String,
    /// The text of the error, 2,000 characters at most.
    pub error: String,
    /// When it became a letter, to the millisecond. The clock is that of the producer or of the
    /// broker: `message.timestamp.type` of the topic decides.
    pub at: Option<SystemTime>,
}

/// Returns the letter in a record.
pub(super) fn letter(id: LetterId, record: &RawMessage) -> KafkaLetter {
    let text = |name| {
        let value = record.header(name)?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    let topic = text(TOPIC);
    let mut message = original(record);
    let place = topic.as_deref().zip(text(PARTITION)).zip(text(OFFSET));
    message.id = place.and_then(|((topic, partition), offset)| {
        let place = Place {
            topic,
            partition: partition.parse().ok()?,
            offset: offset.parse().ok()?,
        };
        Some(place.to_string().into())
    });
    let millis = text(TIME).and_then(|millis| millis.parse().ok());
    message.enqueued_at =
        millis.and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
    message.is_producer_time = text(CLOCK).as_deref() == Some("producer");
    let attempts = text(ATTEMPTS).and_then(|attempts| attempts.parse().ok());
    KafkaLetter {
        id,
        message,
        topic,
        group: text(GROUP),
        attempts: attempts.unwrap_or_default(),
        cause: text(CAUSE).unwrap_or_default(),
        error: text(ERROR).unwrap_or_default(),
        at: record.enqueued_at,
    }
}

#[cfg(test)]
mod tests {
    use keylane_connector::Why;
    use keylane_source::LetterCause;

    use super::super::headers;
    use super::*;

    const ID: LetterId = LetterId {
        partition: 1,
        offset: 7,
    };

    #[test]
    fn a_letter_has_the_message_and_why() {
        let mut record = RawMessage::new("250").key("user-7");
        record.headers.push(("trace".into(), Some("a".into())));
        record.id = Some("orders/3@1200".into());
        record.enqueued_at = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_700));
        record.is_producer_time = true;
        let why = Why {
            attempts: 5,
            cause: LetterCause::Failed,
            error: "no funds".to_owned(),
        };
        let mut kept = headers::letter(&record, Some("billing"), &why);
        kept.id = Some("orders.dead/1@7".into());
        kept.enqueued_at = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(9_000));
        let found = letter(ID, &kept);
        assert_eq!((found.id, found.at), (ID, kept.enqueued_at));
        assert_eq!(found.topic.as_deref(), Some("orders"));
        assert_eq!(found.group.as_deref(), Some("billing"));
        assert_eq!(found.attempts, 5);
        assert_eq!((&*found.cause, &*found.error), ("failed", "no funds"));
        assert_eq!(found.message, record);
    }

    #[test]
    fn what_a_letter_does_not_say_is_left_open() {
        let found = letter(ID, &RawMessage::new("250"));
        assert_eq!((found.topic, found.group, found.at), (None, None, None));
        assert_eq!((found.message.id, found.attempts), (None, 0));
        assert_eq!((&*found.cause, &*found.error), ("", ""));
    }
}
