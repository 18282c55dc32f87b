//! Asks for the settings of the topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use keylane_source::SourceError;
use tokio::time::Instant;

use super::job::job;
use super::state::KafkaSource;
use crate::core::Role;
use crate::link::topic_settings;

/// The topic with the commits of all groups.
const COMMITS: &str = "__consumer_offsets";

impl<M> KafkaSource<M> {
    /// Asks for the settings of the topics, if it is time for that.
    pub(super) fn inspect_if_due(&mut self) -> Result<(), SourceError> {
        if !self.inspection.is_due(Instant::now()) {
            return Ok(());
        }
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
