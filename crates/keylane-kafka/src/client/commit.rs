//! Committing, aside from everything else: what is done is written down, and the broker is waited
//! for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;

use super::context::{Ownership, offset};
use super::session::Consumer;
use crate::metadata::{self, Encoded};
use crate::partition::Commit;

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

/// Commits these, as far as they are still ours, and waits for the answer of the broker: call it
/// where a thread may block. (The client tells the outcome of a commit that is not waited for to no
/// one.)
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
        if !taken.as_ref().is_err_and(is_refused) {
            return taken;
        }
        // The others are not held up by one that may not be read: nothing of it is done.
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
