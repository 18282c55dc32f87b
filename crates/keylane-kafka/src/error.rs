//! The errors of a source, and of building a source or a producer.

use keylane_connector::ConfigError;
use keylane_connector::tls::{TlsFailure, TlsNames};
use keylane_rt::text_in_debug;
use rdkafka::error::KafkaError;
use thiserror::Error;

/// Why a source does not read, where you can do something about it.
///
/// [`IntakeStats::last_error`](keylane::consume::IntakeStats::last_error) or
/// [`failed_parts`](keylane::consume::IntakeStats::failed_parts) has its text. If you call the source
/// yourself, the value is the [`source`](std::error::Error::source) of the
/// [`SourceError`](keylane::source::SourceError).
#[non_exhaustive]
#[derive(Error, Clone, PartialEq, Eq)]
pub enum KafkaSourceError {
    /// Two processes are static members with the same name. In the classic protocol the brokers
    /// take the partitions from the first one, and in the new one they refuse the second one. The
    /// process with this error stays out of the group until the name is free: the other member has
    /// left, or its session has ended. So the two do not take the partitions from each other again
    /// and again.
    #[error(
        "another member of the group `{group}` has the name `{name}`, or had it a moment ago: give \
         each process a name of its own with `static_member`; this one waits until the name is free"
    )]
    NameTaken {
        /// The group.
        group: String,
        /// The name, from [`static_member`](crate::KafkaSourceBuilder::static_member).
        name: String,
    },
    /// A topic does not exist. The source waits for it, and reads the others.
    #[error("the topic `{topic}` does not exist: create it, or correct the name in `topic`")]
    NoTopic {
        /// The topic.
        topic: String,
    },
    /// No broker can be reached, and with this one TLS fails. The source tries again.
    #[error("{broker}: no TLS: {failure}: {}", failure.advice(NAMES))]
    Tls {
        /// The host and the port.
        broker: String,
        /// What is wrong.
        failure: TlsFailure,
    },
    /// The brokers refuse the user, the password or the mechanism. The source tries again.
    #[error("{broker}: {REFUSES}: {why}: correct the properties `sasl.*`")]
    Denied {
        /// The host and the port.
        broker: String,
        /// The words of the client or the broker. They have no password.
        why: String,
    },
    /// The user has no right to read a topic, or to be a member of the group. The source tries
    /// again.
    #[error("the brokers refuse the user{NEEDS}the topic `{topic}` and the group `{group}`: {why}")]
    NotAuthorized {
        /// The topic, or several with commas between them.
        topic: String,
        /// The group.
        group: String,
        /// The message of the client.
        why: String,
    },
}

text_in_debug! { KafkaSourceError: NameTaken, NoTopic, Tls, Denied, NotAuthorized }

/// What the text of [`KafkaSourceError::NotAuthorized`] contains.
const NEEDS: &str = ", which needs `Read` permission for ";

impl KafkaSourceError {
    /// Returns the message of the client in the text of a
    /// [`NotAuthorized`](KafkaSourceError::NotAuthorized), or the whole text of another error.
    pub(crate) fn cause_of(text: &str) -> &str {
        let needs = text.split_once(NEEDS);
        let cause = needs.and_then(|(_, needs)| needs.split_once("`: "));
        cause.map_or(text, |(_, cause)| cause)
    }
}

/// What the text of [`KafkaSourceError::Denied`] contains.
pub(crate) const REFUSES: &str = "the broker refuses the user";

pub(crate) const NAMES: TlsNames = TlsNames {
    authority: "the property `ssl.ca.location`",
    identity: "the properties `ssl.certificate.location` and `ssl.key.location`",
    with: "set the property `security.protocol` to `ssl` or `sasl_ssl`",
    without: "set the property `security.protocol` to `plaintext` or `sasl_plaintext`",
};

pub(crate) fn no_brokers() -> ConfigError {
    ConfigError::new(
        "brokers",
        "is empty: give `host:port`, or several separated by commas",
    )
}

/// Returns the error for a property that the client does not know, or whose value it refuses.
pub(crate) fn of_client(error: &KafkaError) -> ConfigError {
    let (name, why) = match error {
        // A value may be a password.
        KafkaError::ClientConfig(_, why, name, value) => match value.is_empty() {
            true => (name.clone(), why.clone()),
            false => (name.clone(), why.replace(value.as_str(), "…")),
        },
        other => ("property".to_owned(), other.to_string()),
    };
    ConfigError::new(name, format!("is refused by the client: {}", advised(why)))
}

/// Returns the error for a property that only the source, or the producer, may set.
pub(crate) fn refused(name: &'static str, why: &str) -> ConfigError {
    ConfigError::new(name, format!("cannot be set: {why}"))
}

/// Returns the message of the client, with advice where the message is about how the client was
/// built.
fn advised(why: String) -> String {
    let why = why.trim_end();
    match why.contains("OpenSSL not available at build time") && !cfg!(feature = "tls") {
        true => format!("{why}: enable the feature `tls` of keylane-kafka"),
        false => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::DecodeError;
    use crate::{KafkaLettersError, LetterId, NoLetterId, RedriveError, SendError};

    #[test]
    fn errors_show_their_text() {
        let (topic, group) = (|| "orders".to_owned(), || "billing".to_owned());
        let (broker, why) = (|| "localhost:9092".to_owned(), || "no answer".to_owned());
        let id = LetterId {
            partition: 2,
            offset: 1_200,
        };
        let unsent = || SendError::NotConfirmed {
            topic: topic(),
            why: why(),
        };
        keylane_testkit::error_texts! {
            KafkaSourceError =>
                KafkaSourceError::NameTaken { group: group(), name: "a".to_owned() },
                KafkaSourceError::NoTopic { topic: topic() },
                KafkaSourceError::Tls { broker: broker(), failure: TlsFailure::NoTls },
                KafkaSourceError::Denied { broker: broker(), why: why() };
            SendError =>
                SendError::Refused { topic: topic(), why: why() },
                SendError::Unavailable { topic: topic(), why: why() },
                SendError::Tls { topic: topic(), broker: broker(), failure: TlsFailure::Expired },
                unsent();
            KafkaLettersError =>
                KafkaLettersError::Config(no_brokers()),
                KafkaLettersError::NoTopic { topic: topic() },
                KafkaLettersError::Unreadable { topic: topic(), why: why() },
                KafkaLettersError::Tls { broker: broker(), failure: TlsFailure::WrongHost },
                KafkaLettersError::GroupInUse { group: group() },
                KafkaLettersError::MarksFull { topic: topic(), oldest: id, most_chars: 9 },
                KafkaLettersError::NotSent { id, redriven: 1, error: unsent() },
                KafkaLettersError::NoOrigin { id, redriven: 1 },
                KafkaLettersError::Unmarked { unmarked: 1, why: why() };
            RedriveError =>
                RedriveError::Config(no_brokers()),
                RedriveError::Unreadable { topic: topic(), why: why() },
                RedriveError::Tls { broker: broker(), failure: TlsFailure::NoTls },
                RedriveError::Refused { redriven: 1, error: unsent() },
                RedriveError::Stopped { redriven: 1, why: why() };
            NoLetterId => NoLetterId;
            DecodeError => DecodeError::NotBase64, DecodeError::Foreign(9), DecodeError::Damaged;
        }
    }
}
