//! A topic as the place where a spool delivers to.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use keylane::source::RawMessage;
use keylane_inbox::spool::{MessageId, SinkError, SpoolSink, Spooled, async_trait};

use super::builder::{ProducerBuilder, TIMEOUT};
use super::client::Delivery;
use super::{Producer, SendError};
use crate::error::ConfigError;

/// The header that has the [id](Spooled::id) of the message.
const ID: &str = "keylane.id";

/// A topic as the target of a [`Spool`](keylane_inbox::Spool).
///
/// The records of a key are written in the order in which they were pushed. The spool forgets a
/// message when all replicas have its record. The id of the message is in the header `keylane.id`, as
/// its 20 bytes: a record that is written a second time, after a crash, has the same.
///
/// A batch whose time has run out is not sent a second time while it is on its way: its records wait
/// in the client, and the next call waits for the same ones.
///
/// # What fails
///
/// A record that is too large, or against a policy of the broker, is refused, and
/// [`on_refused`](keylane_inbox::spool::Builder::on_refused) says what happens to it. Everything else
/// is tried again.
///
/// # Examples
///
/// ```no_run
/// use keylane_inbox::Spool;
/// use keylane_kafka::{Producer, SpoolTopic};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let topic = SpoolTopic::new(Producer::builder("localhost:9092"), "orders")?;
/// let spool = Spool::builder(topic).dir("/var/lib/shop/spool").open().await?;
/// // It is on the disk when this returns, and in Kafka when the broker is there.
/// spool.push("user-7", r#"{"cents": 100}"#).await?;
/// # Ok(())
/// # }
/// ```
pub struct SpoolTopic {
    producer: Producer,
    topic: String,
    /// What calls that were dropped have begun.
    begun: Mutex<HashMap<MessageId, Delivery>>,
}

impl SpoolTopic {
    /// A topic, and how its records are sent. They have no timeout in the client: that is a matter of
    /// the spool.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], as [`ProducerBuilder::build`].
    pub fn new(builder: ProducerBuilder, topic: impl Into<String>) -> Result<Self, ConfigError> {
        Ok(Self {
            // A record that times out would let a later one of its key pass.
            producer: builder.property(TIMEOUT, "0").build()?,
            topic: topic.into(),
            begun: Mutex::default(),
        })
    }

    async fn begin(
        &self,
        batch: &[Spooled],
        under_way: &mut UnderWay<'_>,
    ) -> Result<(), SendError> {
        // One client for the whole batch: what follows a record that has broken it fails, too.
        let client = self.producer.client(&self.topic)?;
        for spooled in batch {
            let begun = self.begun().remove(&spooled.id);
            let delivery = match begun {
                Some(delivery) => delivery,
                None => client.begin(&self.topic, &record(spooled)).await?,
            };
            under_way.deliveries.push((spooled.id, delivery));
        }
        Ok(())
    }

    fn begun(&self) -> std::sync::MutexGuard<'_, HashMap<MessageId, Delivery>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The records of a call. If it is dropped before they are answered, the next call finds them.
struct UnderWay<'a> {
    of: &'a SpoolTopic,
    deliveries: Vec<(MessageId, Delivery)>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.deliveries.is_empty() {
            self.of.begun().extend(self.deliveries.drain(..));
        }
    }
}

#[async_trait]
impl SpoolSink for SpoolTopic {
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
        let mut under_way = UnderWay {
            of: self,
            deliveries: Vec::with_capacity(batch.len()),
        };
        let begun = self.begin(batch, &mut under_way).await;
        for (_, delivery) in &mut under_way.deliveries {
            delivery.answer().await;
        }
        let mut answers = Vec::with_capacity(batch.len());
        for (_, mut delivery) in under_way.deliveries.drain(..) {
            // It is there.
            answers.push(delivery.answer().await.clone().map(drop));
        }
        // The first one that could not begin; those behind it were not tried.
        answers.extend(begun.err().map(Err));
        result(&answers)
    }
}

/// What the spool is told of the answers to the first records of a batch.
fn result(answers: &[Result<(), SendError>]) -> Result<(), SinkError> {
    let places = |holds: fn(&Result<(), SendError>) -> bool| {
        let places = answers.iter().enumerate();
        places.filter_map(move |(place, answer)| holds(answer).then_some(place))
    };
    let Some(why) = answers.iter().find_map(|answer| answer.as_ref().err()) else {
        return Ok(());
    };
    let refused = places(|answer| answer.as_ref().is_err_and(SendError::is_refused));
    let refused: Vec<_> = refused.collect();
    let error = match refused.len() {
        0 => SinkError::failed(why),
        1 => SinkError::refused(refused, why),
        // The broker refuses what has come in one request together, for one of them.
        _ => SinkError::refused_batch(why),
    };
    Err(error.with_written(places(Result::is_ok)))
}

fn record(spooled: &Spooled) -> RawMessage {
    let mut record = RawMessage::new(spooled.payload.clone()).key(spooled.key.clone());
    let headers = spooled.headers.iter();
    record.headers = headers
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    let id = Bytes::copy_from_slice(&spooled.id.to_bytes());
    record.headers.push((ID.to_owned(), id));
    record
}

impl fmt::Debug for SpoolTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpoolTopic")
            .field("producer", &self.producer)
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}
