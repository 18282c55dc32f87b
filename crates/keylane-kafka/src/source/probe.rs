//! Asks the brokers for an answer.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaResult;

use crate::link::{Consumer, NO_LEADER};

/// How long the brokers have until one of them answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How long the leader of a partition has to answer.
const LEADER_ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// The result of asking the brokers for an answer.
pub(super) enum Probed {
    /// They answer, and so does the leader of this partition.
    Well(Option<String>),
    /// A broker answers, but not the leader of this partition. The second text is the reason.
    Silent(String, String),
}

pub(super) fn probe(consumer: &Consumer, place: Option<(Arc<str>, i32)>) -> KafkaResult<Probed> {
    let topic = place.as_ref().map(|(topic, _)| &**topic);
    let metadata = consumer.fetch_metadata(topic, ANSWER_WITHIN)?;
    let Some((topic, number)) = place else {
        return Ok(Probed::Well(None));
    };
    let name = format!("{topic}/{number}");
    let partitions = metadata.topics().iter().flat_map(|one| one.partitions());
    let mut leaderless = partitions.filter(|one| one.leader() < 0);
    if leaderless.any(|one| one.id() == number) {
        return Ok(Probed::Silent(name, NO_LEADER.to_owned()));
    }
    match consumer.fetch_watermarks(&topic, number, LEADER_ANSWERS_WITHIN) {
        Ok(_) => Ok(Probed::Well(Some(name))),
        Err(error) => {
            let why = format!("its leader does not answer: {error}");
            Ok(Probed::Silent(name, why))
        }
    }
}
