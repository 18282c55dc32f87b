//! The names of headers and attributes, as this crate writes them.
//!
//! The conventions for messaging are still in development, so the names of the attributes are
//! constants of this crate. A new version of the conventions changes them here, and the changelog
//! says so.

/// The header with the trace and the span that sent the message.
pub const TRACEPARENT: &str = "traceparent";
/// The header with what vendors of tracing systems add.
pub const TRACESTATE: &str = "tracestate";
/// The header with the baggage.
pub const BAGGAGE: &str = "baggage";

/// The messaging system: `kafka`, `redis`, and so on.
pub const SYSTEM: &str = "messaging.system";
/// The topic, stream, list or table.
pub const DESTINATION: &str = "messaging.destination.name";
/// The number of the partition, as text.
pub const PARTITION: &str = "messaging.destination.partition.id";
/// The consumer group.
pub const GROUP: &str = "messaging.consumer.group.name";
/// `process`, `send` or `settle`.
pub const OPERATION: &str = "messaging.operation.name";
/// The same, in the words of the conventions.
pub const OPERATION_TYPE: &str = "messaging.operation.type";
/// The id of the message. An id that is not text is in hexadecimal digits.
pub const MESSAGE_ID: &str = "messaging.message.id";
/// The offset of a record of Kafka.
pub const KAFKA_OFFSET: &str = "messaging.kafka.offset";
/// The number of messages in a batch.
pub const BATCH_SIZE: &str = "messaging.batch.message_count";
/// Why the attempt or call failed: the type of the error, `panic`, `timeout` or `dropped`.
pub const ERROR_TYPE: &str = "error.type";

/// The number of the attempt, from 1. Retries in this process raise it.
pub const ATTEMPT: &str = "keylane.attempt";
/// How the attempt ended: `done`, `failed`, `panicked`, `timed_out` or `dropped`.
pub const OUTCOME: &str = "keylane.outcome";
/// The time from when the message came into its source until the attempt began, in seconds. Two
/// clocks measure it, that of the source and that of this process.
pub const AGE: &str = "keylane.age";
/// The time from when the message was decoded in this process until the attempt began, in seconds:
/// in its lane, behind earlier messages of its key, and in earlier attempts.
pub const WAITED: &str = "keylane.waited";
/// The number of messages of a batch that have failed.
pub const FAILED: &str = "keylane.failed";
/// The number of messages that were acknowledged to the source.
pub const ACKED: &str = "keylane.acked";
