//! A record of a topic as a raw message.

use std::fmt;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use keylane::source::RawMessage;
use rdkafka::message::{BorrowedMessage, Headers, Message, Timestamp};

use crate::config::Keyless;

/// Keys and payloads are put into blocks of this size together. A block lives as long as one of them,
/// so it is not much larger than what a parked message has of its own.
const BLOCK: usize = 4_096;

/// What is larger has a block of its own.
const LARGE: usize = 1_024;

/// The name of a header whose name is no UTF-8.
const NO_TEXT: &str = "\u{fffd}";

/// Where a record is in Kafka: its topic, its partition and its offset there.
///
/// It is the [`id`](RawMessage::id) of the message, written as `topic/partition@offset`: the same when
/// the record comes again.
///
/// # Examples
///
/// ```
/// use keylane::source::RawMessage;
/// use keylane_kafka::Place;
///
/// let mut raw = RawMessage::new("250");
/// assert_eq!(Place::of(&raw), None);
/// raw.id = Some("orders/3@1200".into());
/// let place = Place::of(&raw).unwrap();
/// assert_eq!((place.topic, place.partition, place.offset), ("orders", 3, 1_200));
/// assert_eq!(place.to_string(), "orders/3@1200");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The number of the partition.
    pub partition: i32,
    /// The offset in the partition.
    pub offset: u64,
}

impl<'a> Place<'a> {
    /// Where this message is from, if a [`KafkaSource`](crate::KafkaSource) has handed it over.
    pub fn of(raw: &'a RawMessage) -> Option<Self> {
        let text = std::str::from_utf8(raw.id.as_ref()?).ok()?;
        let (partition, offset) = text.split_once('@')?;
        let (topic, partition) = partition.rsplit_once('/')?;
        Some(Self {
            topic,
            partition: partition.parse().ok()?,
            offset: offset.parse().ok()?,
        })
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.topic, self.partition, self.offset)
    }
}

/// Copies records out of the memory of the client, which has it back when the next one is read.
#[derive(Debug, Default)]
pub(crate) struct Copier {
    block: BytesMut,
}

impl Copier {
    fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > LARGE {
            return Bytes::copy_from_slice(bytes);
        }
        self.make_room(bytes.len());
        self.block.extend_from_slice(bytes);
        self.block.split().freeze()
    }

    fn make_room(&mut self, bytes: usize) {
        if self.block.capacity() - self.block.len() < bytes {
            self.block = BytesMut::with_capacity(BLOCK);
        }
    }

    /// The record as it goes to the handler, or to the function that decodes it.
    pub(crate) fn raw(
        &mut self,
        partition: &str,
        keyless: Keyless,
        record: &BorrowedMessage<'_>,
    ) -> RawMessage {
        let payload = record.payload().map(|payload| self.copy(payload));
        let mut raw = RawMessage::new(payload.unwrap_or_default());
        raw.is_tombstone = record.payload().is_none();
        raw.key = match (record.key(), keyless) {
            (Some(key), _) => Some(self.copy(key)),
            (None, Keyless::ByPartition) => Some(self.copy(partition.as_bytes())),
            (None, Keyless::Unordered) => None,
        };
        raw.id = Some(self.id(partition, record.offset()));
        if let Some(headers) = record.headers() {
            let all = 0..headers.count();
            raw.headers = all.map(|place| self.header(headers, place)).collect();
        }
        raw.enqueued_at = match record.timestamp() {
            Timestamp::CreateTime(at) | Timestamp::LogAppendTime(at) => u64::try_from(at)
                .ok()
                .and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at))),
            Timestamp::NotAvailable => None,
        };
        raw
    }

    fn header(&mut self, headers: &impl Headers, place: usize) -> (String, Bytes) {
        // The client panics at a name that is no UTF-8, and a broker takes any. There is no other
        // way to its value.
        let header = catch_unwind(AssertUnwindSafe(|| headers.get(place)));
        match header {
            Ok(header) => {
                let value = header.value.map(|value| self.copy(value));
                (header.key.to_owned(), value.unwrap_or_default())
            }
            Err(_) => (NO_TEXT.to_owned(), Bytes::new()),
        }
    }

    fn id(&mut self, partition: &str, offset: i64) -> Bytes {
        // An `@`, and the longest number there is.
        self.make_room(partition.len() + 21);
        self.block.extend_from_slice(partition.as_bytes());
        // Never fails: a `BytesMut` grows.
        let _ = write!(self.block, "@{offset}");
        self.block.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_stays_as_it_was() {
        let mut copier = Copier::default();
        let texts: Vec<_> = (0..3_000_usize).map(|n| vec![n as u8; n % 1_500]).collect();
        let copies: Vec<_> = texts.iter().map(|text| copier.copy(text)).collect();
        assert!(copies.iter().zip(&texts).all(|(copy, text)| copy == text));
    }

    #[test]
    fn what_is_no_place_is_none() {
        let mut raw = RawMessage::new("");
        for id in [
            "",
            "orders",
            "orders/3",
            "orders@3",
            "orders/x@3",
            "orders/3@-1",
        ] {
            raw.id = Some(id.into());
            assert_eq!(Place::of(&raw), None, "{id}");
        }
    }
}
