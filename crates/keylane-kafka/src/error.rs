//! The errors of building a source or a producer.

use keylane_connector::ConfigError;
use rdkafka::error::KafkaError;

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
