//! Dead letters in a topic.

mod acting;
mod back;
mod client;
mod error;
mod headers;
mod id;
mod kept;
mod letter;
mod redrive;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keylane_connector::{Why, letter_sinks};
use keylane_source::RawMessage;

pub use error::KafkaLettersError;
pub use id::{LetterId, NoLetterId};
pub use kept::KafkaLetters;
pub use letter::KafkaLetter;
pub use redrive::{Redrive, RedriveError, RedriveReport};

use crate::producer::{Delivery, Producer, SendError};

/// A topic for dead letters.
///
/// A letter has the key, the payload and the headers of its record, and these headers:
///
/// | header | its value, as text |
/// | --- | --- |
/// | `keylane.topic`, `keylane.partition`, `keylane.offset` | where the record is |
/// | `keylane.time`, `keylane.clock` | when it was written, in milliseconds since 1970, and whose clock that is of: `producer` or `broker` |
/// | `keylane.group` | the group that could not handle it |
/// | `keylane.attempts` | how many attempts its handler had |
/// | `keylane.cause` | one of `failed`, `panicked`, `timed out`, `undecodable`, `skipped`, … |
/// | `keylane.error` | the text of the error, 2,000 characters at most |
///
/// A letter is accepted when all replicas of the topic have it. It may be written twice if the
/// process ends, or the partition goes, before the record is committed: the three headers of its
/// place identify the copies.
///
/// The headers make a letter larger than its record. If the topic refuses the size, the key of the
/// record waits until the topic accepts it. So set its `max.message.bytes` to 10,000 more than that
/// of the topics that are read. A [`Producer`] of your own has a limit as well,
/// `message.max.bytes`.
///
/// It is a sink for messages that cannot be decoded
/// ([`RawLetterSink`](keylane_source::RawLetterSink)), and for raw messages whose handler has failed
/// ([`DeadLetterSink`](keylane_source::DeadLetterSink)). For handlers of other messages use
/// [`KafkaSourceBuilder::dead_letters`](crate::KafkaSourceBuilder::dead_letters) with
/// [`OnExhausted::AtSource`](keylane::OnExhausted::AtSource).
///
/// # Examples
///
/// ```no_run
/// use keylane::source::RawMessage;
/// use keylane::{Dispatcher, OnExhausted};
/// use keylane_kafka::{DeadLetterTopic, KafkaSource, Producer};
///
/// # async fn bill(order: RawMessage) -> Result<(), std::io::Error> { Ok(()) }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let producer = Producer::builder("localhost:9092").build()?;
/// let letters = DeadLetterTopic::new(producer, "orders.dead").group("billing");
/// let source = KafkaSource::builder("localhost:9092", "billing").topic("orders").build()?;
/// let orders = Dispatcher::key_by_opt(|order: &RawMessage| order.key.clone())
///     .on_exhausted(OnExhausted::dead_letter(letters))
///     .spawn(bill)?;
/// let intake = orders.consume(source)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DeadLetterTopic {
    producer: Producer,
    topic: Arc<str>,
    group: Option<Arc<str>>,
}

impl DeadLetterTopic {
    /// Creates a sink that writes to this topic. The topic must exist, unless the brokers create
    /// topics on the first write.
    pub fn new(producer: Producer, topic: impl Into<String>) -> Self {
        Self {
            producer,
            topic: topic.into().into(),
            group: None,
        }
    }

    /// Names this group in the letters, as the group that could not handle the record.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into().into());
        self
    }

    async fn write(&self, record: &RawMessage, why: &Why) -> Result<(), SendError> {
        let mut delivery = self.begin(record, why).await?;
        delivery.answer().await.clone().map(drop)
    }

    /// Connects, so that the first letter is not late. Returns an error if the topic cannot take
    /// letters. Blocks the thread.
    pub(crate) fn look(&self, within: Duration) -> Result<(), SendError> {
        self.producer.look(&self.topic, within)
    }

    pub(crate) fn name(&self) -> &str {
        &self.topic
    }

    /// Sends a letter, and returns when it is on its way.
    pub(crate) async fn begin(
        &self,
        record: &RawMessage,
        why: &Why,
    ) -> Result<Delivery, SendError> {
        let letter = headers::letter(record, self.group.as_deref(), why);
        self.producer.begin(&self.topic, &letter).await
    }
}

letter_sinks!(DeadLetterTopic, write);

impl fmt::Debug for DeadLetterTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetterTopic")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}
