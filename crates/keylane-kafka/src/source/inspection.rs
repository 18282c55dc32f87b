//! When the settings of the topics are looked at, and what is warned of.

use std::time::Duration;

use rdkafka::error::KafkaResult;
use tokio::time::Instant;

use crate::core::TopicSettings;
use crate::link::Job;

/// How often the source looks.
const EVERY: Duration = Duration::from_secs(300);

/// The pause after a look, although partitions come.
const PAUSE: Duration = Duration::from_secs(30);

/// The looks at the settings of the topics. They outlive a session.
#[derive(Default)]
pub(super) struct Inspection {
    /// When the last one began.
    last: Option<Instant>,
    /// When to look next.
    at: Option<Instant>,
    pub(super) asked: Option<Job<KafkaResult<Vec<TopicSettings>>>>,
}

impl Inspection {
    /// There are other partitions.
    pub(super) fn look_soon(&mut self) {
        let soon = self.last.map_or_else(Instant::now, |last| last + PAUSE);
        self.at = Some(self.at.map_or(soon, |at| at.min(soon)));
    }

    /// When the source is to look. `None`: it does.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.at.filter(|_| self.asked.is_none())
    }

    /// Whether it is time to look. Then the source does.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.wake_at().is_some_and(|at| at <= now);
        if is_due {
            (self.last, self.at) = (Some(now), Some(now + EVERY));
        }
        is_due
    }

    /// Warns of what was found.
    pub(super) fn follow(found: KafkaResult<Vec<TopicSettings>>, brokers: &str) {
        let topics = match found {
            Ok(topics) => topics,
            Err(error) => {
                let why = "the settings of the topics are not known, will retry";
                tracing::debug!(target: "keylane", %error, "{why}");
                return;
            }
        };
        for topic in topics {
            let name = format!("{brokers} topic {}", topic.name);
            topic.hazards().iter().for_each(|hazard| hazard.warn(&name));
        }
    }
}
