//! Topics that may not be read, while others are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keylane_source::SourceError;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use tokio::time::Instant;

use super::failures::{Failures, Trouble};
use super::job::job;
use crate::config::Config;
use crate::link::{Consumer, Job};

/// The timeout of the request about one topic.
const ASKED_FOR: Duration = Duration::from_secs(3);

/// The pause before the next request while there are refused topics.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A topic, and the error if it may not be read.
pub(super) type Refusal = (String, Option<KafkaError>);

/// The named topics that may not be read. Topics that a pattern finds can be read.
#[derive(Default)]
pub(super) struct Refused {
    topics: BTreeSet<String>,
    /// When to ask the brokers next.
    pub(super) at: Option<Instant>,
    pub(super) asked: Option<Job<KafkaResult<Vec<Refusal>>>>,
}

impl Refused {
    pub(super) fn look_now(&mut self) {
        self.at = Some(Instant::now());
    }

    /// Asks which topics may not be read, if it is time for that.
    pub(super) fn ask_if_due(
        &mut self,
        consumer: Arc<Consumer>,
        config: &Config,
    ) -> Result<(), SourceError> {
        let is_due = |at: &mut Instant| *at <= Instant::now();
        if self.asked.is_none() && self.at.take_if(is_due).is_some() {
            let topics = config.named().to_vec();
            self.asked = Some(job(move || ask(&consumer, topics))?);
        }
        Ok(())
    }

    /// Processes the answer. A source that may read none of its topics fails as a whole.
    pub(super) fn follow(
        &mut self,
        found: KafkaResult<Vec<Refusal>>,
        config: &Config,
        failures: &mut Failures,
    ) -> Result<(), SourceError> {
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(
                    target: "keylane",
                    %error,
                    "the permissions for the topics are not known, will retry"
                );
                self.at = Some(Instant::now() + AGAIN_AFTER);
                return Ok(());
            }
        };
        let reads_others = !config.names_all() || found.iter().any(|(_, why)| why.is_none());
        for (topic, why) in found {
            match why {
                Some(error) if !reads_others => return Err(SourceError::failed(error)),
                Some(error) => {
                    let why = format!("it cannot be read: {error}");
                    failures.fail(&topic, Trouble::Unread, why);
                    self.topics.insert(topic);
                }
                None => {
                    if self.topics.remove(&topic) {
                        failures.recover(&topic, Trouble::Unread);
                    }
                }
            }
        }
        let again = Instant::now() + AGAIN_AFTER;
        self.at = (!self.topics.is_empty()).then_some(again);
        Ok(())
    }
}

fn ask(consumer: &Consumer, topics: Vec<String>) -> KafkaResult<Vec<Refusal>> {
    let ask = |topic: String| {
        let said = consumer.fetch_metadata(Some(&topic), ASKED_FOR)?;
        let mut errors = said.topics().iter().filter_map(|one| one.error());
        let error = errors.next().map(RDKafkaErrorCode::from);
        let is_refused =
            |code: &RDKafkaErrorCode| matches!(code, RDKafkaErrorCode::TopicAuthorizationFailed);
        let error = error.filter(is_refused).map(KafkaError::MetadataFetch);
        Ok((topic, error))
    };
    topics.into_iter().map(ask).collect()
}
