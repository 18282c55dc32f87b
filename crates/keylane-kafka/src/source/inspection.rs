//! Looks at the settings of the topics, and warns of those that may lose something.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keylane_source::SourceError;
use rdkafka::error::KafkaResult;
use tokio::time::Instant;

use super::job::job;
use super::state::KafkaSource;
use crate::core::{Role, TopicSettings, Warnings};
use crate::link::{Job, topic_settings};

/// How often the source looks.
const EVERY: Duration = Duration::from_secs(300);

/// The pause after a look, although partitions come.
const PAUSE: Duration = Duration::from_secs(30);

/// The topic with the commits of all groups.
const COMMITS: &str = "__consumer_offsets";

/// The looks at the settings of the topics. They outlive a session.
#[derive(Default)]
pub(super) struct Inspection {
    /// When the last one began.
    last: Option<Instant>,
    /// When to look next.
    at: Option<Instant>,
    pub(super) asked: Option<Job<KafkaResult<Vec<TopicSettings>>>>,
    warnings: Warnings,
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

    pub(super) fn follow(&mut self, found: KafkaResult<Vec<TopicSettings>>, brokers: &str) {
        let topics = match found {
            Ok(topics) => topics,
            Err(error) => {
                let why = "the settings of the topics are not known, will retry";
                tracing::debug!(target: "keylane", %error, "{why}");
                return;
            }
        };
        let found = topics.into_iter().flat_map(|topic| {
            let hazards = topic.hazards().into_iter();
            hazards.map(move |hazard| (topic.name.clone(), hazard))
        });
        for (topic, hazard) in self.warnings.due(found.collect(), Instant::now()) {
            hazard.warn(&format!("{brokers} topic {topic}"));
        }
    }
}

impl<M> KafkaSource<M> {
    /// Asks for the settings of the topics, if it is time for that.
    pub(super) fn inspect_if_due(&mut self) -> Result<(), SourceError> {
        let now = Instant::now();
        let inspection = &mut self.inspection;
        if inspection.wake_at().is_none_or(|at| now < at) {
            return Ok(());
        }
        (inspection.last, inspection.at) = (Some(now), Some(now + EVERY));
        let named = self.config.named().iter().cloned();
        let assigned = self.assignment.iter().map(|one| one.topic.to_string());
        let read = named.chain(assigned).map(|name| (name, Role::Read));
        let mut topics: BTreeMap<_, _> = read.collect();
        topics.insert(COMMITS.to_owned(), Role::Commits);
        if let Some(letters) = &self.config.letters {
            topics.insert(letters.name().to_owned(), Role::Letters);
        }
        let (consumer, config) = (self.consumer()?, Arc::clone(&self.config));
        let asked = job(move || topic_settings(&consumer, &config.admin(), topics))?;
        self.inspection.asked = Some(asked);
        Ok(())
    }
}
