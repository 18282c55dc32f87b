//! Commits, in a thread of their own: encodes the metadata and waits for the broker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;

use super::context::{Consumer, Ownership};
use super::offset::offset;
use crate::core::Commit;
use crate::metadata::{self, Encoded};

/// The result of a commit.
pub(crate) struct Answer {
    pub(crate) said: Vec<(Commit, Encoded)>,
    pub(crate) taken: KafkaResult<()>,
    /// How long it took to encode the metadata.
    pub(crate) encoding: Duration,
}

/// The commit of one partition.
pub(crate) struct ToCommit {
    pub(crate) topic: Arc<str>,
    pub(crate) number: i32,
    pub(crate) ownership: Ownership,
    pub(crate) commit: Commit,
}

/// Commits the partitions that are still ours, and waits for the answer of the broker. Call it
/// where a thread may block. (The client reports the result of an asynchronous commit nowhere.)
pub(crate) fn commit(consumer: &Consumer, mut commits: Vec<ToCommit>, most_chars: usize) -> Answer {
    let began = Instant::now();
    let encode = |one: &ToCommit| {
        let runs = || one.commit.runs.iter().cloned();
        metadata::encode(one.commit.offset, runs, most_chars)
    };
    let mut encoded: Vec<_> = commits.iter().map(encode).collect();
    let encoding = began.elapsed();
    let taken = consumer.context().commit(|| {
        // The source learns which partitions are lost, and forgets their settled records.
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
        if !taken.as_ref().is_err_and(is_refused) {
            return taken;
        }
        // A partition that may not be read does not hold up the others: it has no settled records.
        let mut lasts = Vec::with_capacity(commits.len());
        let mut taken = Ok(());
        for (one, encoded) in commits.iter().zip(&encoded) {
            let mut list = TopicPartitionList::with_capacity(1);
            add(&mut list, one, encoded)?;
            let alone = consumer.commit(&list, CommitMode::Sync);
            lasts.push(!(one.commit.is_start && alone.as_ref().is_err_and(is_refused)));
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
