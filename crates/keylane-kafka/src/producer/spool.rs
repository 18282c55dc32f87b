//! A topic as the target of a spool.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Mutex;

use bytes::Bytes;
use keylane_connector::{ConfigError, lock};
use keylane_source::RawMessage;
use keylane_spool::{MessageId, SinkError, SpoolSink, Spooled, async_trait};

use super::builder::{ProducerBuilder, TIMEOUT};
use super::client::Delivery;
use super::{Producer, SendError};

/// The header that has the [id](Spooled::id) of the message.
const ID: &str = "keylane.id";

/// A topic as the target of a [`Spool`](keylane_spool::Spool).
///
/// The records of a key are written in the order in which they were pushed. The spool forgets a
/// message when all replicas have its record. The header `keylane.id` contains the id of the
/// message, as its 24 bytes: a record that is written a second time, after a crash, has the same
/// id.
///
/// A batch that times out is not sent a second time while it is on its way: its records wait in the
/// client, and the next call waits for the same records.
///
/// # What fails
///
/// A record that is too large, or against a policy of the broker, is refused, and
/// [`on_refused`](keylane_spool::SpoolBuilder::on_refused) decides what happens to it. All other
/// failures are tried again.
///
/// # Examples
///
/// ```no_run
/// use keylane_spool::Spool;
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
    /// Records that calls have begun which were dropped.
    begun: Mutex<HashMap<MessageId, Delivery>>,
}

impl SpoolTopic {
    /// Creates a target that writes to this topic with a producer of this builder. Its records have
    /// no timeout in the client: the spool has its own.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] as [`ProducerBuilder::build`] does.
    pub fn new(builder: ProducerBuilder, topic: impl Into<String>) -> Result<Self, ConfigError> {
        Ok(Self {
            // A record that times out would let a later one of its key overtake it.
            producer: builder.property(TIMEOUT, "0").build()?,
            topic: topic.into(),
            begun: Mutex::default(),
        })
    }

    /// Begins to send the records that are not on their way. Returns the place of the first record
    /// that could not begin: those behind it were not tried.
    async fn begin(
        &self,
        batch: &[Spooled],
        under_way: &mut UnderWay<'_>,
    ) -> Result<(), (usize, SendError)> {
        // One client for the whole batch: if a record breaks it, the records behind it fail too.
        let client = self.producer.client(&self.topic);
        let client = client.map_err(|error| (0, error))?;
        let begun: HashSet<_> = under_way.places().collect();
        let rest = batch.iter().enumerate();
        for (place, spooled) in rest.filter(|(place, _)| !begun.contains(place)) {
            let delivery = client.begin(&self.topic, &record(spooled)).await;
            let delivery = delivery.map_err(|error| (place, error))?;
            under_way.deliveries.push((place, spooled.id, delivery));
        }
        Ok(())
    }

    fn begun(&self) -> std::sync::MutexGuard<'_, HashMap<MessageId, Delivery>> {
        lock(&self.begun)
    }
}

/// The records of a call, each with its place in the batch. If it is dropped before they are
/// answered, the next call finds them.
struct UnderWay<'a> {
    of: &'a SpoolTopic,
    deliveries: Vec<(usize, MessageId, Delivery)>,
}

impl<'a> UnderWay<'a> {
    /// Returns the records of this batch that earlier, dropped calls have begun.
    fn before(of: &'a SpoolTopic, batch: &[Spooled]) -> Self {
        let mut begun = of.begun();
        let before = batch.iter().enumerate().filter_map(|(place, spooled)| {
            let delivery = begun.remove(&spooled.id)?;
            Some((place, spooled.id, delivery))
        });
        Self {
            of,
            deliveries: before.collect(),
        }
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.deliveries.iter().map(|(place, ..)| *place)
    }

    /// Waits for all of them. Returns whether they are written.
    async fn are_written(&mut self) -> bool {
        let mut are_written = true;
        for (_, _, delivery) in &mut self.deliveries {
            are_written &= delivery.answer().await.is_ok();
        }
        are_written
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.deliveries.is_empty() {
            let begun = self.deliveries.drain(..);
            let begun = begun.map(|(_, id, delivery)| (id, delivery));
            self.of.begun().extend(begun);
        }
    }
}

#[async_trait]
impl SpoolSink for SpoolTopic {
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
        let mut under_way = UnderWay::before(self, batch);
        // They may be at an old client. Later records would overtake one that has failed.
        let begun = match under_way.are_written().await {
            true => self.begin(batch, &mut under_way).await,
            false => Ok(()),
        };
        under_way.are_written().await;
        let mut answers = Vec::with_capacity(batch.len());
        for (place, _, mut delivery) in under_way.deliveries.drain(..) {
            // The answer is here.
            answers.push((place, delivery.answer().await.clone().map(drop)));
        }
        answers.extend(begun.err().map(|(place, error)| (place, Err(error))));
        result(&answers)
    }
}

/// Returns the result for the spool, from the answers to the records at these places of a batch.
fn result(answers: &[(usize, Result<(), SendError>)]) -> Result<(), SinkError> {
    let places = |holds: fn(&Result<(), SendError>) -> bool| {
        let answers = answers.iter();
        answers.filter_map(move |(place, answer)| holds(answer).then_some(*place))
    };
    let Some(why) = answers.iter().find_map(|(_, answer)| answer.as_ref().err()) else {
        return Ok(());
    };
    let refused = places(|answer| answer.as_ref().is_err_and(SendError::is_refused));
    let refused: Vec<_> = refused.collect();
    let error = match refused.len() {
        0 => SinkError::failed(why),
        1 => SinkError::refused(refused, why),
        // The broker refuses all records of a request because of one of them.
        _ => SinkError::refused_batch(why),
    };
    Err(error.with_written(places(Result::is_ok)))
}

fn record(spooled: &Spooled) -> RawMessage {
    let mut record = RawMessage::new(spooled.payload.clone()).key(spooled.key.clone());
    let headers = spooled.headers.iter();
    record.headers = headers
        .map(|(name, value)| (name.to_owned(), Some(value.clone())))
        .collect();
    let id = Bytes::copy_from_slice(&spooled.id.to_bytes());
    record.headers.push((ID.to_owned(), Some(id)));
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
