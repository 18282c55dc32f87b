//! Sending records.

mod builder;
mod client;
mod error;
#[cfg(feature = "spool")]
mod spool;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keylane_source::RawMessage;
use rdkafka::ClientConfig;

pub use builder::ProducerBuilder;
pub(crate) use client::Delivery;
pub use client::Sent;
pub use error::SendError;
#[cfg(feature = "spool")]
pub use spool::SpoolTopic;

use client::Client;

/// Sends records to topics, and confirms them when they are written.
///
/// It is a handle: its clones share one client. The client is idempotent, so its own retries never
/// write a record twice. A record is confirmed when all replicas have it.
///
/// # Order
///
/// A handler that awaits [`send`](Self::send) before it returns keeps the order of its key: the
/// next message of the key is handled after the record is confirmed. If an attempt fails and is
/// tried again, the topic may have its record twice, next to each other among the records of the
/// key.
///
/// # Examples
///
/// Each order makes an invoice. The order is committed when its invoice is written:
///
/// ```no_run
/// use keylane::source::RawMessage;
/// use keylane::{Context, Dispatcher, OnExhausted};
/// use keylane_kafka::{KafkaSource, Producer};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let invoices = Producer::builder("localhost:9092").build()?;
/// let orders = Dispatcher::key_by_opt(|order: &RawMessage| order.key.clone())
///     .on_exhausted(OnExhausted::Halt)
///     .spawn(move |_: Context<_>, mut order: RawMessage| {
///         let invoices = invoices.clone();
///         async move {
///             order.payload = "42 EUR".into();
///             invoices.send("invoices", &order).await.map(drop)
///         }
///     })?;
/// let source = KafkaSource::builder("localhost:9092", "billing").topic("orders").build()?;
/// let intake = orders.consume(source)?;
/// # tokio::signal::ctrl_c().await?;
/// # intake.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Shared>,
}

struct Shared {
    config: ClientConfig,
    client: Mutex<Option<Client>>,
}

impl Producer {
    fn new(config: ClientConfig) -> Self {
        let client = Mutex::new(None);
        Self {
            shared: Arc::new(Shared { config, client }),
        }
    }

    /// Sends a record, and waits until it is written. Its key chooses its partition, as in the Java
    /// clients.
    ///
    /// The record has the key, the payload (none if the message is a tombstone) and the headers of
    /// the message. Its time is [`enqueued_at`](RawMessage::enqueued_at), or now if there is none.
    ///
    /// # Errors
    ///
    /// Returns [`SendError`]. With one that [`is_retryable`](SendError::is_retryable) the record may be
    /// written all the same.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the record may be written, at any time until the
    /// [timeout](ProducerBuilder::timeout).
    pub async fn send(&self, topic: &str, message: &RawMessage) -> Result<Sent, SendError> {
        let mut delivery = self.begin(topic, message).await?;
        delivery.answer().await.clone()
    }

    /// Sends a record, and returns when it is on its way.
    pub(crate) async fn begin(
        &self,
        topic: &str,
        message: &RawMessage,
    ) -> Result<Delivery, SendError> {
        self.client(topic)?.begin(topic, message).await
    }

    /// Asks the brokers for a topic. Blocks the thread.
    pub(crate) fn look(&self, topic: &str, within: Duration) -> Result<(), SendError> {
        self.client(topic)?.look(topic, within)
    }

    /// Returns the client, or a new one in place of a broken one.
    fn client(&self, topic: &str) -> Result<Client, SendError> {
        let client = self.shared.client.lock();
        let mut client = client.unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*client
            && !client.is_broken()
        {
            return Ok(client.clone());
        }
        let new = Client::new(&self.shared.config).map_err(|error| {
            SendError::not_confirmed(topic, format!("the client cannot start: {error}"))
        })?;
        *client = Some(new.clone());
        Ok(new)
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("brokers", &self.shared.config.get("bootstrap.servers"))
            .finish_non_exhaustive()
    }
}
