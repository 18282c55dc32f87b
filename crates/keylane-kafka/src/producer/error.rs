//! The errors of sending a record.

use keylane_connector::tls::TlsFailure;
use keylane_rt::text_in_debug;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use thiserror::Error;

use crate::error::{KafkaSourceError, NAMES};

/// A record was not written, or its state is unknown.
#[non_exhaustive]
#[derive(Error, Clone, PartialEq, Eq)]
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
    /// The topic takes no record from this producer: it does not exist, or the user may not write
    /// to it. Nothing was written. Send the record again when that has changed.
    #[error("the topic `{topic}` takes no record: {why}")]
    Unavailable {
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
    /// No broker can be reached, and with this one TLS fails. The record may be written all the
    /// same, if it was on its way before; send it again.
    #[error(
        "the record for the topic `{topic}` is not confirmed: {broker}: no TLS: {failure}: {}",
        failure.advice(NAMES)
    )]
    Tls {
        /// The topic.
        topic: String,
        /// The host and the port.
        broker: String,
        /// What is wrong.
        failure: TlsFailure,
    },
}

text_in_debug! { SendError: Refused, Unavailable, NotConfirmed, Tls }

impl SendError {
    pub(super) fn new(topic: &str, error: &KafkaError) -> Self {
        let (topic, why) = (topic.to_owned(), error.to_string());
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageTimedOut) => Self::NotConfirmed {
                topic,
                why: format!("{why}: {OUT_OF_TIME}"),
            },
            Some(code) if is_final(code) => Self::Refused {
                topic,
                why: match is_too_large(code) {
                    true => format!("{why}: {TOO_LARGE}"),
                    false => why,
                },
            },
            Some(code) if is_missing(code) => Self::Unavailable {
                topic,
                why: format!("{why}: {MISSING}"),
            },
            Some(code) if is_unauthorized(code) => Self::Unavailable {
                topic,
                why: format!("{why}: {UNAUTHORIZED}"),
            },
            _ => Self::NotConfirmed { topic, why },
        }
    }

    /// Returns the error of a record that was dropped because the client has ended for this reason.
    pub(super) fn of_broken_client(topic: &str, why: &str) -> Self {
        // The client gives the text of its reason alone.
        match why.contains("authorization failed") {
            true => Self::Unavailable {
                topic: topic.to_owned(),
                why: format!("{why}: {UNAUTHORIZED}"),
            },
            false => Self::not_confirmed(topic, why),
        }
    }

    /// Returns the error of a record for which no broker is reached for this reason.
    pub(super) fn of_broker(topic: &str, error: &KafkaError, why: KafkaSourceError) -> Self {
        match why {
            KafkaSourceError::Tls { broker, failure } => Self::Tls {
                topic: topic.to_owned(),
                broker,
                failure,
            },
            why => Self::not_confirmed(topic, format!("{error}: {why}")),
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

    /// Whether the same record may be written if it is sent again, without any other change.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NotConfirmed { .. } | Self::Tls { .. })
    }
}

/// What to look at when the time of a record is over.
const OUT_OF_TIME: &str = "check that a broker answers at the address";

/// What to do about a topic that does not exist, and about a right that is missing.
const MISSING: &str = "create the topic, or correct its name";
const UNAUTHORIZED: &str = "give the user of the producer `Write` permission for it";

/// What to do about a record that is too large.
const TOO_LARGE: &str = "send less, or raise `max.message.bytes` of the topic and \
                         `message.max.bytes` of the producer";

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

/// Whether this code says that a record, or its batch, is too large.
fn is_too_large(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge
    )
}

/// Whether this says that no broker has answered in time.
pub(super) fn is_out_of_reach(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    let code = error.rdkafka_error_code();
    code.is_some_and(|code| {
        matches!(
            code,
            Code::MessageTimedOut
                | Code::OperationTimedOut
                | Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::Authentication
        )
    })
}

/// Whether this code says that a topic does not exist.
fn is_missing(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(code, Code::UnknownTopic | Code::UnknownTopicOrPartition)
}

/// Whether this code says that the brokers refuse a user.
fn is_unauthorized(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_mended_is_not_refused() {
        use RDKafkaErrorCode as Code;
        let of = |code| {
            let error = SendError::new("t", &KafkaError::MessageProduction(code));
            (error.is_refused(), error.is_retryable())
        };
        assert_eq!(of(Code::MessageSizeTooLarge), (true, false));
        assert_eq!(of(Code::UnknownTopicOrPartition), (false, false));
        assert_eq!(of(Code::TopicAuthorizationFailed), (false, false));
        assert_eq!(of(Code::MessageTimedOut), (false, true));
        let large = Code::MessageSizeTooLarge;
        let large = SendError::new("t", &KafkaError::MessageProduction(large));
        assert!(large.to_string().ends_with(TOO_LARGE), "{large}");
        let late = SendError::new("t", &KafkaError::MessageProduction(Code::MessageTimedOut));
        assert!(late.to_string().ends_with(OUT_OF_TIME), "{late}");
        let missing = Code::UnknownTopicOrPartition;
        let missing = SendError::new("t", &KafkaError::MessageProduction(missing));
        assert!(missing.to_string().ends_with(MISSING), "{missing}");
    }
}
