//! Logs the lines of a client.

use rdkafka::config::RDKafkaLogLevel;

/// Logs a line of the client.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error => tracing::error!(target: "keylane", facility, "{message}"),
        RDKafkaLogLevel::Warning => tracing::warn!(target: "keylane", facility, "{message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
            tracing::info!(target: "keylane", facility, "{message}");
        }
        RDKafkaLogLevel::Debug => tracing::debug!(target: "keylane", facility, "{message}"),
    }
}
