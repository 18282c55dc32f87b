//! The context of clients that are in no group.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keylane_connector::lock;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError;

use super::codes::{REFUSALS, is_silence};
use crate::error::KafkaSourceError;
use crate::explain::Heard;
use crate::log::log;

/// How long a client has to tell what it has heard.
const TELL_WITHIN: Duration = Duration::from_millis(200);

/// The context of a client that is in no group and has little to report.
#[derive(Clone)]
pub(crate) struct Silent(Arc<Said>);

struct Said {
    client: ClientConfig,
    /// The last error by which a broker refuses the user.
    refusal: Mutex<Option<KafkaError>>,
    /// What the client has said of TLS or the user.
    heard: Heard,
}

impl Silent {
    pub(crate) fn new(client: &ClientConfig) -> Self {
        Self(Arc::new(Said {
            client: client.clone(),
            refusal: Mutex::default(),
            heard: Heard::default(),
        }))
    }

    /// Returns what a client without an answer has heard of TLS or the user.
    fn why(&self) -> Option<KafkaSourceError> {
        let Said { client, heard, .. } = &*self.0;
        heard.why(|name| client.get(name))
    }
}

/// Why a client has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    Client(KafkaError),
    /// No broker can be reached, because of TLS, or one refuses the user.
    Refused(KafkaSourceError),
}

impl From<KafkaError> for Failure {
    fn from(error: KafkaError) -> Self {
        Self::Client(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

/// Returns what a broker has said, if a request had no answer because of that: the client tells it
/// while it is polled, and lets the request wait.
pub(super) fn explain(consumer: &BaseConsumer<Silent>, error: KafkaError) -> Failure {
    if !is_silence(&error) {
        return Failure::Client(error);
    }
    let context = consumer.context();
    let until = Instant::now() + TELL_WITHIN;
    while Instant::now() < until {
        drop(consumer.poll(Duration::from_millis(10)));
        let refusal = lock(&context.0.refusal).clone();
        if let Some(refusal) = refusal {
            return context
                .why()
                .map_or(Failure::Client(refusal), Failure::Refused);
        }
    }
    context
        .why()
        .map_or(Failure::Client(error), Failure::Refused)
}

impl ClientContext for Silent {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.heard.hear(reason);
        let code = error.rdkafka_error_code();
        if code.is_some_and(|code| REFUSALS.contains(&code)) {
            *lock(&self.0.refusal) = Some(error.clone());
        }
        tracing::debug!(
            target: "keylane",
            %error, reason,
            "the Kafka client that reads single records reports an error"
        );
    }
}

impl ConsumerContext for Silent {}
