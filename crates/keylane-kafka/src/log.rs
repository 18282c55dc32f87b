//! Logs the lines of a client.

use std::sync::{LazyLock, Mutex};

use keylane_connector::{Repeats, lock};
use rdkafka::config::RDKafkaLogLevel as Level;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::time::Instant;

/// The lines of all clients of this process, without their numbers. While a broker is down, each
/// client reports that several times a second.
static LINES: LazyLock<Mutex<Repeats<String>>> = LazyLock::new(Mutex::default);

/// Logs a line of the client: the same one at once, and then at growing intervals.
///
/// What the client calls an error is a warning here: it recovers from it by itself. The source
/// fails, and says so, when it does not.
pub(crate) fn log(level: Level, facility: &str, message: &str) {
    let logs = match level {
        Level::Debug => {
            tracing::debug!(target: "keylane", facility, "{message}");
            return;
        }
        Level::Notice | Level::Info => {
            tracing::info!(target: "keylane", facility, "{message}");
            return;
        }
        level => is_news(kind_of(level, message)),
    };
    let Some(left_out) = logs else {
        return;
    };
    tracing::warn!(target: "keylane", facility, left_out, "{message}");
}

/// Returns how many lines of this kind were left out, if this one is to be logged.
pub(crate) fn is_news(kind: String) -> Option<u64> {
    lock(&LINES).hear(kind, Instant::now())
}

/// The errors that a client has reported. While brokers are down it reports twenty a second.
#[derive(Debug, Default)]
pub(crate) struct Errors(Mutex<Repeats<Option<i32>>>);

impl Errors {
    /// Returns how many of the same error were left out, if this one is to be logged.
    pub(crate) fn hear(&self, error: &KafkaError) -> Option<u64> {
        let code = error.rdkafka_error_code();
        // It sums up failures that were reported before, or says that the only connection was
        // closed because it was idle.
        if code == Some(RDKafkaErrorCode::AllBrokersDown) {
            return None;
        }
        lock(&self.0).hear(code.map(|code| code as i32), Instant::now())
    }
}

/// Returns a line without what differs each time: how long it took, and how often it happened.
fn kind_of(level: Level, message: &str) -> String {
    let end = message.find(" (after ").unwrap_or(message.len());
    format!("{level:?} {}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_the_same_with_other_counts() {
        let line = |ms| {
            format!(
                "[thrd:localhost:9092/1]: localhost:9092/1: Connect to ipv4#127.0.0.1:9092 failed: \
                 Connection refused (after {ms}ms in state CONNECT, 30 identical error(s) \
                 suppressed)"
            )
        };
        assert_eq!(
            kind_of(Level::Error, &line(0)),
            kind_of(Level::Error, &line(12))
        );
        assert_ne!(
            kind_of(Level::Error, &line(0)),
            kind_of(Level::Warning, &line(0))
        );
        assert_ne!(
            kind_of(Level::Error, &line(0)),
            kind_of(Level::Error, "another")
        );
    }
}
