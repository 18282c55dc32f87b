//! Committing, aside from everything else: what is done is written down, and the broker is waited
//! for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::TopicPartitionList;

use super::context::offset;
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

/// Commits these, and waits for the answer of the broker: call it where a thread may block. (The client
/// tells the outcome of a commit that is not waited for to no one.)
pub(crate) fn commit(
    consumer: &Consumer,
    commits: Vec<(Arc<str>, i32, Commit)>,
    most_chars: usize,
) -> Answer {
    let began = Instant::now();
    let mut list = TopicPartitionList::with_capacity(commits.len());
    let mut said = Vec::with_capacity(commits.len());
    let mut built = Ok(());
    for (topic, number, commit) in commits {
        let runs = || commit.runs.iter().cloned();
        let encoded = metadata::encode(commit.offset, runs, most_chars);
        built = built.and(add(&mut list, &topic, number, commit.offset, &encoded));
        said.push((commit, encoded));
    }
    let encoding = began.elapsed();
    Answer {
        said,
        taken: built.and_then(|()| consumer.commit(&list, CommitMode::Sync)),
        encoding,
    }
}

fn add(
    list: &mut TopicPartitionList,
    topic: &str,
    number: i32,
    at: u64,
    encoded: &Encoded,
) -> KafkaResult<()> {
    let mut element = list.add_partition(topic, number);
    element.set_offset(offset(at))?;
    if !encoded.text.is_empty() {
        element.set_metadata(&encoded.text);
    }
    Ok(())
}
