//! The errors of sending a record.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use thiserror::Error;

/// A record was not written, or its state is unknown.
#[non_exhaustive]
#[derive(Error, Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The broker will never accept this record: it is too large, or against a policy of the
    /// broker.
    #[error("the record for the topic `{topic}` is refused: {why}")]
    Refused {
        /// The topic.
        topic: String,
        /// The message of the client or the broker.
        why: String,
    },
    /// The broker has not confirmed the record. It may be written all the same; send it again.
    #[error("the record for the topic `{topic}` is not confirmed: {why}")]
    NotConfirmed {
        /// The topic.
        topic: String,
        /// The message of the client or the broker.
        why: String,
    },
}

impl SendError {
    pub(super) fn new(topic: &str, error: &KafkaError) -> Self {
        let (topic, why) = (topic.to_owned(), error.to_string());
        match error.rdkafka_error_code().is_some_and(is_final) {
            true => Self::Refused { topic, why },
            false => Self::NotConfirmed { topic, why },
        }
    }

    pub(super) fn not_confirmed(topic: &str, why: impl Into<String>) -> Self {
        let (topic, why) = (topic.to_owned(), why.into());
        Self::NotConfirmed { topic, why }
    }

    /// Whether it is useless to send the record again.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// Whether a record that fails with this code fails each time. Problems that an operator can solve,
/// such as a missing topic or right, are not final.
fn is_final(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::MessageSizeTooLarge
            | Code::InvalidMessageSize
            | Code::MessageBatchTooLarge
            | Code::InvalidTimestamp
            | Code::InvalidRecord
            | Code::PolicyViolation
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_mended_is_not_refused() {
        let of = |code| SendError::new("t", &KafkaError::MessageProduction(code)).is_refused();
        assert!(of(RDKafkaErrorCode::MessageSizeTooLarge));
        assert!(!of(RDKafkaErrorCode::UnknownTopicOrPartition));
        assert!(!of(RDKafkaErrorCode::TopicAuthorizationFailed));
        assert!(!of(RDKafkaErrorCode::MessageTimedOut));
    }
}
