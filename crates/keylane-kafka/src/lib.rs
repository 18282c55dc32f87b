#![doc = include_str!("../README.md")]

mod source;
pub use source::KafkaSource;

mod config;
pub use config::{Builder, Keyless, OnOvertaken, StartAt};

mod producer;
#[cfg(feature = "spool")]
pub use producer::SpoolTopic;
pub use producer::{Producer, ProducerBuilder, SendError, Sent};

mod letters;
pub use letters::{DeadLetterTopic, Redrive, RedriveError, RedriveReport};

mod control;
pub use control::{Control, Overtaken, PartitionFailure, PartitionStatus};

mod record;
pub use record::{Place, Record};

// Pure decisions, without a client.
mod assignment;
pub use assignment::Position;
mod partition;
pub use partition::MetadataFull;
mod start;

pub mod metadata;

// Communication with the brokers.
mod client;

mod lock;

mod error;
pub use error::ConfigError;
