//! The context of clients that are in no group.

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

use crate::log::log;

/// The context of a client that is in no group and has little to report.
#[derive(Clone)]
pub(crate) struct Silent;

impl ClientContext for Silent {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(
            target: "keylane",
            %error, reason,
            "the Kafka client that reads single records reports an error"
        );
    }
}

impl ConsumerContext for Silent {}
