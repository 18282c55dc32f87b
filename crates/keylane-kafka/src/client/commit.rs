//! Committing, aside from everything else: what is done is written down, and the broker is waited
//! for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;

use super::context::{Ownership, offset};
use super::session::Consumer;
use crate::metadata::{self, Encoded};
use crate::partition::Commit;

/// What the question is given whether a topic is gone.
const ASKED_FOR: Duration = Duration::from_secs(3);

/// What became of a commit.
pub(crate) struct Answer {
    pub(crate) said: Vec<(Commit, Encoded)>,
    pub(crate) taken: KafkaResult<()>,
    /// How long it took to write down what is done.
    pub(crate) encoding: Duration,
}

/// What is to be committed of one partition.
pub(crate) struct ToCommit {
    pub(crate) topic: Arc<str>,
    pub(crate) number: i32,
    pub(crate) ownership: Ownership,
    pub(crate) commit: Commit,
}

/// Commits these, as far as they are still ours, and waits for the answer of the broker: call it where a thread may block. (The client
/// tells the outcome of a commit that is not waited for to no one.)
pub(crate) fn commit(consumer: &Consumer, mut commits: Vec<ToCommit>, most_chars: usize) -> Answer {
    let began = Instant::now();
    let encode = |one: &ToCommit| {
        let runs = || one.commit.runs.iter().cloned();
        metadata::encode(one.commit.offset, runs, most_chars)
    };
    let mut encoded: Vec<_> = commits.iter().map(encode).collect();
    let encoding = began.elapsed();
    let taken = consumer.context().commit(|| {
        // The source hears of those that are lost, and forgets what is done of them.
        let lasts: Vec<_> = commits.iter().map(|one| one.ownership.lasts()).collect();
        retain(&mut commits, &lasts);
        retain(&mut encoded, &lasts);
        let mut list = TopicPartitionList::with_capacity(commits.len());
        for (one, encoded) in commits.iter().zip(&encoded) {
            add(&mut list, one, encoded)?;
        }
        if commits.is_empty() {
            return Ok(());
        }
        let taken = consumer.commit(&list, CommitMode::Sync);
        let is_of_one = |error: &KafkaError| is_refused(error) || is_unknown(error);
        if !taken.as_ref().is_err_and(is_of_one) {
            return taken;
        }
        // The others are not held up by one that may not be read, of which nothing is done, or by one
        // whose topic is gone.
        let mut lasts = Vec::with_capacity(commits.len());
        let mut taken = Ok(());
        for (one, encoded) in commits.iter().zip(&encoded) {
            let mut list = TopicPartitionList::with_capacity(1);
            add(&mut list, one, encoded)?;
            let alone = consumer.commit(&list, CommitMode::Sync);
            let is_over = alone.as_ref().is_err_and(|error| {
                one.commit.is_start && is_refused(error)
                    || is_unknown(error) && is_gone(consumer, &one.topic)
            });
            lasts.push(!is_over);
            if lasts.last() == Some(&true) {
                taken = taken.and(alone);
            }
        }
        retain(&mut commits, &lasts);
        retain(&mut encoded, &lasts);
        taken
    });
    let commits = commits.into_iter().map(|one| one.commit);
    Answer {
        said: commits.zip(encoded).collect(),
        taken,
        encoding,
    }
}

fn is_refused(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed)
}

fn is_unknown(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::UnknownTopicOrPartition)
}

/// Whether the brokers say that there is no such topic. One of them alone may not know of it yet.
fn is_gone(consumer: &Consumer, topic: &str) -> bool {
    let asked = consumer.fetch_metadata(Some(topic), ASKED_FOR);
    asked.is_ok_and(|said| {
        let mut errors = said.topics().iter().filter_map(|one| one.error());
        errors.any(|error| error == RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
    })
}

fn retain<T>(all: &mut Vec<T>, lasts: &[bool]) {
    let mut lasts = lasts.iter();
    all.retain(|_| lasts.next() == Some(&true));
}

fn add(list: &mut TopicPartitionList, one: &ToCommit, encoded: &Encoded) -> KafkaResult<()> {
    let mut element = list.add_partition(&one.topic, one.number);
    element.set_offset(offset(one.commit.offset))?;
    if !encoded.text.is_empty() {
        element.set_metadata(&encoded.text);
    }
    Ok(())
}
