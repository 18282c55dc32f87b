//! The settings of a producer, and their checks.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use keylane_connector::ConfigError;
use rdkafka::ClientConfig;

use super::Producer;
use crate::config::{KEEPALIVE, MAX_IDLE};
use crate::error::{no_brokers, of_client, refused};

/// Properties of the client that only the producer may set, each with the reason.
const REFUSED: [(&str, &str); 7] = [
    ("bootstrap.servers", "it is the argument of the builder"),
    ("metadata.broker.list", "it is the argument of the builder"),
    (
        "enable.idempotence",
        "without it a record may be written twice, or behind a later one",
    ),
    (
        "enable.gapless.guarantee",
        "without it a record may be written ahead of one that has failed",
    ),
    ("acks", "a record is confirmed when all replicas have it"),
    (
        "request.required.acks",
        "a record is confirmed when all replicas have it",
    ),
    ("transactional.id", "records are not sent in transactions"),
];

/// How long the client tries to send a record; `delivery.timeout.ms` is another name of it.
pub(super) const TIMEOUT: &str = "message.timeout.ms";

/// Default properties of the client. The partitioner is that of the Java clients, so that the
/// records of a key are in one partition, whichever client sends them; an empty key is a key there.
const DEFAULTS: [(&str, &str); 6] = [
    ("partitioner", "murmur2_random"),
    (TIMEOUT, "30000"),
    // The client's own 30 seconds end with the time of the record, whose error says nothing about
    // the topic.
    ("topic.metadata.propagation.max.ms", "10000"),
    ("client.id", "keylane"),
    KEEPALIVE,
    MAX_IDLE,
];

/// Builds a [`Producer`](super::Producer). See [`Producer::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct ProducerBuilder {
    brokers: String,
    properties: BTreeMap<String, String>,
}

impl Producer {
    /// Begins to build a producer for these brokers: each as `host:port`, several with commas
    /// between them.
    pub fn builder(brokers: impl Into<String>) -> ProducerBuilder {
        ProducerBuilder::new(brokers)
    }
}

impl ProducerBuilder {
    fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            properties: BTreeMap::new(),
        }
    }

    /// Sets a property of the client. librdkafka's `CONFIGURATION.md` lists the names.
    /// [`build`](Self::build) refuses properties that break a guarantee of this crate.
    ///
    /// A later value of the same name replaces an earlier one. `Debug` shows no values, since
    /// passwords are among them.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Sets how long a record is tried before [`SendError::NotConfirmed`](super::SendError); 30
    /// seconds by default. Zero means for ever.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.property(TIMEOUT, timeout.as_millis().to_string())
    }

    /// Checks the settings. The producer connects when it sends the first record, not before.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if the brokers are missing, if a property is refused, or if the
    /// client does not know it.
    pub fn build(self) -> Result<Producer, ConfigError> {
        Ok(Producer::new(self.check()?))
    }

    fn check(mut self) -> Result<ClientConfig, ConfigError> {
        if self.brokers.trim().is_empty() {
            return Err(no_brokers());
        }
        for (name, why) in REFUSED {
            if self.properties.contains_key(name) {
                return Err(refused(name, why));
            }
        }
        for (name, value) in DEFAULTS {
            let entry = self.properties.entry(name.to_owned());
            entry.or_insert_with(|| value.to_owned());
        }
        let mut client = ClientConfig::new();
        for (name, value) in &self.properties {
            client.set(name, value);
        }
        client
            .set("bootstrap.servers", &self.brokers)
            .set("enable.idempotence", "true")
            .set("enable.gapless.guarantee", "true");
        client
            .create_native_config()
            .map_err(|error| of_client(&error))?;
        Ok(client)
    }
}

impl fmt::Debug for ProducerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties: Vec<_> = self.properties.keys().collect();
        f.debug_struct("ProducerBuilder")
            .field("brokers", &self.brokers)
            .field("properties", &properties)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_guarantee_is_refused() {
        for (name, _) in REFUSED {
            let built = Producer::builder("b:9092").property(name, "1").build();
            assert_eq!(built.expect_err("refused").setting(), name);
        }
        let unknown = Producer::builder("b:9092").property("no.such", "1");
        assert_eq!(unknown.build().expect_err("refused").setting(), "no.such");
        assert_eq!(Producer::builder(" ").build().err(), Some(no_brokers()));
        assert!(Producer::builder("b:9092").build().is_ok());
    }
}
