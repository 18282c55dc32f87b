//! The client of a producer: a thread that polls it for the result of each record.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use keylane_source::RawMessage;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::error::{SendError, is_out_of_reach};
use crate::explain::Heard;
use crate::log::{Errors, log};

/// How long the thread waits before it checks whether to end.
const POLL: Duration = Duration::from_millis(100);

/// The pause while the queue of the client is full.
const FULL: Duration = Duration::from_millis(5);

/// The prefix of the client's last error.
const FATAL: &str = "Fatal error: ";

/// Where a record was written.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The number of the partition.
    pub partition: i32,
    /// The offset in the partition.
    pub offset: u64,
}

type Answer = Result<Sent, SendError>;

/// One connection to the cluster. The last handle lets the thread end it, so that no other thread
/// waits for the broker.
#[derive(Clone)]
pub(super) struct Client(Arc<BaseProducer<Context>>);

impl Client {
    pub(super) fn new(config: &ClientConfig) -> Result<Self, KafkaError> {
        let producer: BaseProducer<Context> = config.create_with_context(Context::new(config))?;
        let producer = Arc::new(producer);
        let served = Arc::clone(&producer);
        thread::Builder::new()
            .name("keylane-kafka-producer".to_owned())
            .spawn(move || {
                while Arc::strong_count(&served) > 1 {
                    served.poll(POLL);
                }
            })
            .map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
        Ok(Self(producer))
    }

    /// Whether it sends nothing more, so that a new one is needed.
    pub(super) fn is_broken(&self) -> bool {
        self.0.client().fatal_error().is_some()
    }

    /// Asks the brokers for a topic. Blocks the thread.
    pub(super) fn look(&self, topic: &str, within: Duration) -> Result<(), SendError> {
        let metadata = self.0.client().fetch_metadata(Some(topic), within);
        let metadata = metadata.map_err(|error| self.0.context().error_of(topic, &error))?;
        match metadata.topics().iter().find_map(|of| of.error()) {
            Some(error) => {
                let error = KafkaError::MetadataFetch(error.into());
                Err(SendError::new(topic, &error))
            }
            None => Ok(()),
        }
    }

    /// Puts a record into the queue of the client, behind earlier ones. Waits for room there.
    pub(super) async fn begin(
        &self,
        topic: &str,
        message: &RawMessage,
    ) -> Result<Delivery, SendError> {
        loop {
            if let Some(delivery) = self.try_begin(topic, message)? {
                return Ok(delivery);
            }
            tokio::time::sleep(FULL).await;
        }
    }

    /// Puts a record into the queue of the client. Returns `None` if the queue is full.
    fn try_begin(&self, topic: &str, message: &RawMessage) -> Result<Option<Delivery>, SendError> {
        let (answers, answer) = oneshot::channel();
        let opaque = Box::new(answers);
        let mut record = BaseRecord::<[u8], [u8], _>::with_opaque_to(topic, opaque);
        if let Some(key) = &message.key {
            record = record.key(key);
        }
        if !message.is_tombstone {
            record = record.payload(&message.payload);
        }
        if !message.headers.is_empty() {
            let headers = OwnedHeaders::new_with_capacity(message.headers.len());
            let insert = |headers: OwnedHeaders, (key, value): &(String, Option<bytes::Bytes>)| {
                let value = value.as_deref();
                headers.insert(Header { key, value })
            };
            record = record.headers(message.headers.iter().fold(headers, insert));
        }
        let since = message
            .enqueued_at
            .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        if let Some(since) = since
            && let Ok(millis) = i64::try_from(since.as_millis())
        {
            record = record.timestamp(millis);
        }
        match self.0.send(record) {
            Ok(()) => Ok(Some(Delivery::new(topic, answer))),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => Ok(None),
            Err((error, _)) => Err(SendError::new(topic, &error)),
        }
    }
}

/// A record on its way.
pub(crate) struct Delivery {
    /// `None` once the answer is here.
    waits: Option<oneshot::Receiver<Answer>>,
    answer: Answer,
}

impl Delivery {
    fn new(topic: &str, waits: oneshot::Receiver<Answer>) -> Self {
        Self {
            waits: Some(waits),
            answer: Err(SendError::not_confirmed(topic, "the producer has ended")),
        }
    }

    /// Waits for the answer of the broker. If the future is dropped, it can be called again.
    pub(crate) async fn answer(&mut self) -> &Answer {
        if let Some(waits) = &mut self.waits {
            if let Ok(answer) = waits.await {
                self.answer = answer;
            }
            self.waits = None;
        }
        &self.answer
    }

    /// Returns the answer of the broker, if it is here.
    pub(crate) fn try_answer(&mut self) -> Option<&Answer> {
        if let Some(waits) = &mut self.waits {
            match waits.try_recv() {
                Ok(answer) => self.answer = answer,
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Closed) => {}
            }
            self.waits = None;
        }
        Some(&self.answer)
    }
}

struct Context {
    config: ClientConfig,
    /// Why the client sends nothing more.
    broken_by: OnceLock<String>,
    errors: Errors,
    /// What the client has said of TLS or the user at a broker.
    heard: Heard,
}

impl Context {
    fn new(config: &ClientConfig) -> Self {
        Self {
            config: config.clone(),
            broken_by: OnceLock::new(),
            errors: Errors::default(),
            heard: Heard::default(),
        }
    }

    /// Returns the error for a record. If no broker is reached because of TLS or the user, it says
    /// so. Blocks the thread for as long as a handshake takes, once in a while.
    fn error_of(&self, topic: &str, error: &KafkaError) -> SendError {
        if !is_out_of_reach(error) {
            return SendError::new(topic, error);
        }
        match self.heard.why(|name| self.config.get(name)) {
            Some(why) => SendError::of_broker(topic, error, why),
            None => SendError::new(topic, error),
        }
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // The reason comes with the answers of the records, and after some of them as an error.
        if let Some((_, why)) = message.split_once(FATAL) {
            // The first one counts.
            let _ = self.broken_by.set(why.to_owned());
        }
        // The line says that a property of this crate may be removed in a later version.
        let is_known = facility == "CONFWARN" && message.contains("enable.gapless.guarantee");
        if !is_known {
            log(level, facility, message);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.heard.hear(reason);
        if let Some(left_out) = self.errors.hear(&error) {
            let what = "the Kafka producer reports an error";
            tracing::warn!(target: "keylane", %error, reason, left_out, "{what}");
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<oneshot::Sender<Answer>>;

    fn delivery(&self, result: &DeliveryResult<'_>, answers: Self::DeliveryOpaque) {
        let answer = match result {
            Ok(record) => Ok(Sent {
                partition: record.partition(),
                offset: record.offset().max(0).unsigned_abs(),
            }),
            Err((error, record)) => match (error.rdkafka_error_code(), self.broken_by.get()) {
                // The record was dropped, and its own error says no more than that.
                (
                    Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight),
                    Some(why),
                ) => Err(SendError::of_broken_client(record.topic(), why)),
                _ => Err(self.error_of(record.topic(), error)),
            },
        };
        // The sender may be gone.
        let _ = answers.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_is_on_its_way_when_the_client_ends_is_answered() {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", "127.0.0.1:1");
        let client = Client::new(&config).unwrap();
        let mut deliveries = Vec::new();
        for number in 0..200 {
            let record = RawMessage::new("1").key(format!("{number}"));
            let topic = format!("topic-{}", number % 50);
            deliveries.push(client.begin(&topic, &record).await.unwrap());
        }
        drop(client);
        for delivery in &mut deliveries {
            let answer = timeout(Duration::from_secs(10), delivery.answer()).await;
            assert!(answer.expect("it is answered").is_err());
        }
    }
}
