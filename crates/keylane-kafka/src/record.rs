//! A record of a topic, and the message that is made of it.

use std::fmt;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use keylane_source::RawMessage;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _, Timestamp};

/// The size of the blocks that keys and payloads share. A block lives as long as one of them, so it
/// is not much larger than the own memory of a parked message.
const BLOCK: usize = 4_096;

/// Larger keys and payloads have a block of their own.
const LARGE: usize = 1_024;

/// Stands for the name of a header that is not UTF-8.
const NO_TEXT: &str = "\u{fffd}";

/// The place of a record in Kafka: its topic, its partition and its offset.
///
/// It is the [`id`](RawMessage::id) of the message, written as `topic/partition@offset`: the same
/// when the record comes again.
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
    /// Returns the place of this message, if a [`KafkaSource`](crate::KafkaSource) has handed it
    /// over.
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

/// The order in which records without a key are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keyless {
    /// The records have no key and no order. Build the dispatcher with
    /// [`key_by_opt`](keylane::Dispatcher::key_by_opt), or take the key from the payload.
    #[default]
    Unordered,
    /// The key of these records is the name of their partition, `topic/number`: they are handled in
    /// the order of the partition.
    ByPartition,
}

/// A record in the memory of the client: the argument of the function of
/// [`KafkaSourceBuilder::build_with`](crate::KafkaSourceBuilder::build_with). It is not copied.
///
/// # Examples
///
/// ```
/// use keylane_kafka::{Place, Record};
///
/// struct Order {
///     account: Option<u64>,
///     cents: u64,
///     offset: u64,
/// }
///
/// fn number(bytes: &[u8]) -> Option<u64> {
///     Some(u64::from_be_bytes(bytes.try_into().ok()?))
/// }
///
/// fn order(record: &Record<'_>) -> Result<Order, String> {
///     let Place { offset, .. } = record.place();
///     let cents = record.payload().and_then(number);
///     Ok(Order {
///         account: record.key().and_then(number),
///         cents: cents.ok_or_else(|| format!("{}: no amount", record.place()))?,
///         offset,
///     })
/// }
/// # let _ = order;
/// ```
pub struct Record<'a> {
    message: &'a BorrowedMessage<'a>,
    /// `topic/number`.
    partition: &'a str,
    keyless: Keyless,
}

impl<'a> Record<'a> {
    /// Returns the key. With [`Keyless::ByPartition`] the key of a record without one is the name
    /// of its partition.
    pub fn key(&self) -> Option<&'a [u8]> {
        match (self.message.key(), self.keyless) {
            (None, Keyless::ByPartition) => Some(self.partition.as_bytes()),
            (key, _) => key,
        }
    }

    /// Returns the payload; `None` for a tombstone. An empty payload is a payload.
    pub fn payload(&self) -> Option<&'a [u8]> {
        self.message.payload()
    }

    /// Returns the names and values of the headers, in their order. A name may occur more than
    /// once. A name that is not UTF-8 is `\u{fffd}` here, and has no value.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + use<'a> {
        let headers = self.message.headers();
        let all = 0..headers.map_or(0, |headers| headers.count());
        all.filter_map(move |place| {
            let headers = headers?;
            // The client panics at a name that is not UTF-8, and a broker accepts any name. There
            // is no other way to its value.
            let header = catch_unwind(AssertUnwindSafe(|| headers.get(place)));
            Some(header.map_or((NO_TEXT, None), |header| (header.key, header.value)))
        })
    }

    /// Returns when the record was produced, or appended to its log, depending on the topic.
    pub fn timestamp(&self) -> Option<SystemTime> {
        match self.message.timestamp() {
            Timestamp::CreateTime(at) | Timestamp::LogAppendTime(at) => u64::try_from(at)
                .ok()
                .and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at))),
            Timestamp::NotAvailable => None,
        }
    }

    /// Returns whether the timestamp is by the clock of the producer: `message.timestamp.type` of
    /// the topic is `CreateTime`.
    pub fn is_producer_time(&self) -> bool {
        matches!(self.message.timestamp(), Timestamp::CreateTime(_))
    }

    /// Returns the place of the record.
    pub fn place(&self) -> Place<'a> {
        let topic = self.partition.rsplit_once('/');
        Place {
            topic: topic.map_or(self.partition, |(topic, _)| topic),
            partition: self.message.partition(),
            offset: self.message.offset().max(0).unsigned_abs(),
        }
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("place", &self.place())
            .finish_non_exhaustive()
    }
}

/// Makes messages of records, with the state that this needs.
pub(crate) struct Maker<M> {
    make: Arc<Make<M>>,
    keyless: Keyless,
    no_key: Option<Arc<NoKey>>,
    copier: Copier,
}

/// Warns of the first record of a source without a key.
struct NoKey {
    source: String,
    is_known: AtomicBool,
}

impl NoKey {
    #[cold]
    fn warn(&self, place: &Place<'_>) {
        if !self.is_known.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "keylane",
                source = %self.source,
                position = %place,
                "a record has no key, so its order is not kept: let producers write one, or choose \
                 an order with `KafkaSourceBuilder::keyless`"
            );
        }
    }
}

type Make<M> = dyn Fn(&Record<'_>, &mut Copier) -> M + Send + Sync;

impl Maker<RawMessage> {
    /// Makes raw messages, which are copies.
    pub(crate) fn raw(keyless: Keyless) -> Self {
        Self {
            make: Arc::new(|record, copier| copier.raw(record)),
            keyless,
            no_key: None,
            copier: Copier::default(),
        }
    }
}

impl<M> Maker<M> {
    /// Warns of a record without a key, once for the source with this name.
    pub(crate) fn warning(self, source: String) -> Self {
        let no_key = NoKey {
            source,
            is_known: AtomicBool::new(false),
        };
        Self {
            no_key: Some(Arc::new(no_key)),
            ..self
        }
    }

    /// Makes messages with this function.
    pub(crate) fn by(
        make: impl Fn(&Record<'_>) -> M + Send + Sync + 'static,
        keyless: Keyless,
    ) -> Self {
        Self {
            make: Arc::new(move |record, _| make(record)),
            keyless,
            no_key: None,
            copier: Copier::default(),
        }
    }

    /// Makes the message of a record of this partition.
    pub(crate) fn make(&mut self, partition: &str, message: &BorrowedMessage<'_>) -> M {
        let record = Record {
            message,
            partition,
            keyless: self.keyless,
        };
        if let Some(no_key) = &self.no_key
            && message.key().is_none()
        {
            no_key.warn(&record.place());
        }
        (self.make)(&record, &mut self.copier)
    }
}

/// The clone is for another thread: the block that the first one has begun stays there.
impl<M> Clone for Maker<M> {
    fn clone(&self) -> Self {
        Self {
            make: Arc::clone(&self.make),
            keyless: self.keyless,
            no_key: self.no_key.clone(),
            copier: Copier::default(),
        }
    }
}

/// Copies records out of the memory of the client, which reuses it for the next record.
#[derive(Debug, Default)]
struct Copier {
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

    fn raw(&mut self, record: &Record<'_>) -> RawMessage {
        let payload = record.payload().map(|payload| self.copy(payload));
        let mut raw = RawMessage::new(payload.unwrap_or_default());
        raw.is_tombstone = record.payload().is_none();
        raw.key = record.key().map(|key| self.copy(key));
        raw.id = Some(self.id(record.partition, record.message.offset()));
        let headers = record
            .headers()
            .map(|(name, value)| (name.to_owned(), value.map(|value| self.copy(value))));
        raw.headers = headers.collect();
        raw.enqueued_at = record.timestamp();
        raw.is_producer_time = record.is_producer_time();
        raw
    }

    fn id(&mut self, partition: &str, offset: i64) -> Bytes {
        // An `@` and the longest number.
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
