//! The context of clients that are in no group.

use std::sync::{Arc, Mutex};

use keylane_connector::lock;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

use super::codes::REFUSALS;
use crate::log::log;

/// The context of a client that is in no group and has little to report.
#[derive(Clone, Default)]
pub(crate) struct Silent {
    /// The last error by which a broker refuses the user.
    refusal: Arc<Mutex<Option<KafkaError>>>,
}

impl Silent {
    /// Returns the last error by which a broker has refused the user.
    pub(super) fn refusal(&self) -> Option<KafkaError> {
        lock(&self.refusal).clone()
    }
}

impl ClientContext for Silent {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        if code.is_some_and(|code| REFUSALS.contains(&code)) {
            *lock(&self.refusal) = Some(error.clone());
        }
        tracing::debug!(
            target: "keylane",
            %error, reason,
            "the Kafka client that reads single records reports an error"
        );
    }
}

impl ConsumerContext for Silent {}
