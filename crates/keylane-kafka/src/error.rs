//! The errors of building a source or a producer.

use rdkafka::error::KafkaError;
use thiserror::Error;

/// An error in the settings of a source or a producer.
#[non_exhaustive]
#[derive(Error, Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No broker is given.
    #[error("no broker is given: give `host:port`, or several separated by commas")]
    NoBrokers,
    /// No group is given.
    #[error("no consumer group is given: give the name that the consumers of this topic share")]
    NoGroup,
    /// No topic is given, or one without a name.
    #[error("no topic is given: use `topic` or `pattern`")]
    NoTopic,
    /// A pattern is not a regular expression.
    #[error("the pattern `{pattern}` is not a regular expression: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The message of the client.
        why: String,
    },
    /// The topic of the dead letters has no name, or is one of the topics that are read.
    #[error("dead letters need their own topic: set `dead_letters` to one that is not read")]
    Letters,
    /// An interval is zero.
    #[error("`commit_every` and `commit_after` must be more than zero")]
    NeverCommits,
    /// Only the source, or the producer, may set this property.
    #[error("the property `{name}` cannot be set: {why}")]
    Refused {
        /// The property.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// The client was built without this feature.
    #[error("`{what}` needs the feature `{feature}` of keylane-kafka")]
    Feature {
        /// The setting that needs it.
        what: String,
        /// The feature of this crate.
        feature: &'static str,
    },
    /// The client does not know this property, or refuses this value.
    #[error("the client refuses the property `{name}`: {why}")]
    Property {
        /// The property.
        name: String,
        /// The message of the client, without the value.
        why: String,
    },
}

impl ConfigError {
    pub(crate) fn client(error: &KafkaError) -> Self {
        match error {
            KafkaError::ClientConfig(_, why, name, value) => Self::Property {
                name: name.clone(),
                // A value may be a password.
                why: advised(match value.is_empty() {
                    true => why.clone(),
                    false => why.replace(value.as_str(), "…"),
                }),
            },
            other => Self::Property {
                name: String::new(),
                why: other.to_string(),
            },
        }
    }
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
