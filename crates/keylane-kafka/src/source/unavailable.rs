//! Topics that do not exist, or may not be read, while others are read.

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
use crate::error::KafkaSourceError;
use crate::link::{Consumer, Job};

/// The timeout of the request about one topic.
const ASKED_FOR: Duration = Duration::from_secs(3);

/// The pause before the next request while there are unavailable topics.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The availability of a topic.
#[derive(Debug)]
pub(super) enum Availability {
    There,
    /// The topic does not exist: it is waited for.
    Missing,
    /// The user may not read the topic.
    Refused(KafkaError),
}

/// The topics of a request, each with its availability.
pub(super) type Found = Vec<(String, Availability)>;

/// The named topics that cannot be read. Topics that a pattern finds can be read.
#[derive(Default)]
pub(super) struct Unavailable {
    topics: BTreeSet<String>,
    /// When to ask the brokers next.
    pub(super) at: Option<Instant>,
    pub(super) asked: Option<Job<KafkaResult<Found>>>,
}

impl Unavailable {
    pub(super) fn look_now(&mut self) {
        self.at = Some(Instant::now());
    }

    /// Asks which topics are not available, if it is time for that.
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
        found: KafkaResult<Found>,
        config: &Config,
        failures: &mut Failures,
    ) -> Result<(), SourceError> {
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(
                    target: "keylane",
                    %error,
                    "the availability of the topics is not known, will retry"
                );
                self.at = Some(Instant::now() + AGAIN_AFTER);
                return Ok(());
            }
        };
        let is_refused = |of: &Availability| matches!(of, Availability::Refused(_));
        let reads_others = !config.names_all() || !found.iter().all(|(_, of)| is_refused(of));
        for (topic, of) in found {
            let why = match of {
                Availability::There => {
                    if self.topics.remove(&topic) {
                        failures.recover(&topic, Trouble::Unread);
                    }
                    continue;
                }
                Availability::Missing => KafkaSourceError::NoTopic {
                    topic: topic.clone(),
                }
                .to_string(),
                Availability::Refused(error) => {
                    let error = config.not_authorized(&topic, error.to_string());
                    if !reads_others {
                        return Err(SourceError::failed(error));
                    }
                    error.to_string()
                }
            };
            failures.fail(&topic, Trouble::Unread, why);
            self.topics.insert(topic);
        }
        let again = Instant::now() + AGAIN_AFTER;
        self.at = (!self.topics.is_empty()).then_some(again);
        Ok(())
    }
}

fn ask(consumer: &Consumer, topics: Vec<String>) -> KafkaResult<Found> {
    let ask = |topic: String| {
        let said = consumer.fetch_metadata(Some(&topic), ASKED_FOR)?;
        let mut errors = said.topics().iter().filter_map(|one| one.error());
        let availability = match errors.next().map(RDKafkaErrorCode::from) {
            Some(RDKafkaErrorCode::UnknownTopicOrPartition) => Availability::Missing,
            Some(code @ RDKafkaErrorCode::TopicAuthorizationFailed) => {
                Availability::Refused(KafkaError::MetadataFetch(code))
            }
            _ => Availability::There,
        };
        Ok((topic, availability))
    };
    topics.into_iter().map(ask).collect()
}
