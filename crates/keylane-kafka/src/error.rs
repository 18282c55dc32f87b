//! What goes wrong while a source or a producer is built.

use rdkafka::error::KafkaError;
use thiserror::Error;

/// The settings of a source or a producer do not go together.
#[non_exhaustive]
#[derive(Error, Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// There is no broker to begin with.
    #[error("no broker is named: give `host:port`, or several with commas between them")]
    NoBrokers,
    /// There is no group.
    #[error("no group is named: give the name that the consumers of this topic share")]
    NoGroup,
    /// There is no topic, or one without a name.
    #[error("no topic is named: use `topic` or `pattern`")]
    NoTopic,
    /// A pattern is no regular expression.
    #[error("the pattern `{pattern}` is no regular expression: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What the client says.
        why: String,
    },
    /// The topic of the dead letters has no name, or is one of those that are read.
    #[error("dead letters need a topic of their own: give `dead_letters` one that is not read")]
    Letters,
    /// An interval is zero.
    #[error("`commit_every` and `commit_after` must be more than zero")]
    NeverCommits,
    /// The source, or the producer, sets this property itself.
    #[error("the property `{name}` is not for you to set: {why}")]
    Refused {
        /// The property.
        name: String,
        /// Why.
        why: &'static str,
    },
    /// The client was built without this.
    #[error("`{what}` needs the feature `{feature}` of keylane-kafka")]
    Feature {
        /// What was asked for.
        what: String,
        /// The feature of this crate.
        feature: &'static str,
    },
    /// The client does not know this property, or not this value of it.
    #[error("the property `{name}`: {why}")]
    Property {
        /// The property.
        name: String,
        /// What the client says, without the value.
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

/// What the client says, and what to do where it speaks of how it was built.
fn advised(why: String) -> String {
    let why = why.trim_end();
    match why.contains("OpenSSL not available at build time") && !cfg!(feature = "tls") {
        true => format!("{why}: enable the feature `tls` of keylane-kafka"),
        false => why.to_owned(),
    }
}
