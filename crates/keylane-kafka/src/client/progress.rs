//! How far a group is in a topic, seen from outside of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::job::blocking;
use super::reader::Silent;
use crate::config::Config;

/// What one question is given.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// How long one look at the queue may take.
const POLL: Duration = Duration::from_millis(100);

/// A topic as it was at a moment, and what a group has committed of it since.
pub(crate) struct Progress {
    consumer: Arc<BaseConsumer<Silent>>,
    topic: Arc<str>,
    /// The partitions that had records, and the offset behind the last one.
    ends: Arc<[(i32, i64)]>,
    /// Those that were not committed as a whole when it was looked last.
    left: Vec<Left>,
}

/// What is not committed of a partition.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Left {
    number: i32,
    /// Nothing if the group has no offset.
    from: Option<i64>,
    end: i64,
}

impl Progress {
    /// Looks where the partitions of a topic end now.
    pub(crate) async fn open(config: &Config, topic: &str) -> KafkaResult<Self> {
        let client = config.reader();
        let topic: Arc<str> = topic.into();
        let asked = Arc::clone(&topic);
        let (consumer, ends) = wait(move || {
            let consumer: BaseConsumer<Silent> = client.create_with_context(Silent)?;
            let ends = ends(&consumer, &asked)?;
            Ok((Arc::new(consumer), ends))
        })
        .await?;
        Ok(Self {
            consumer,
            topic,
            ends: ends.into(),
            left: Vec::new(),
        })
    }

    /// Whether the group has committed all of it.
    pub(crate) async fn is_over(&mut self) -> KafkaResult<bool> {
        let left = self.left().await?;
        let stands = self.left == left;
        self.left.clone_from(&left);
        if left.is_empty() || !stands {
            return Ok(left.is_empty());
        }
        // Offsets without a record are never committed, if no record comes behind them: marks of
        // transactions, and what was aborted, compacted or deleted.
        let (consumer, topic) = (Arc::clone(&self.consumer), Arc::clone(&self.topic));
        wait(move || {
            for left in left {
                if has_record(&consumer, &topic, left)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    async fn left(&self) -> KafkaResult<Vec<Left>> {
        let consumer = Arc::clone(&self.consumer);
        let (topic, ends) = (Arc::clone(&self.topic), Arc::clone(&self.ends));
        wait(move || {
            let mut list = TopicPartitionList::with_capacity(ends.len());
            for (number, _) in &*ends {
                list.add_partition(&topic, *number);
            }
            let committed = consumer.committed_offsets(list, ASKED_FOR)?;
            let left = ends.iter().map(|(number, end)| {
                let one = committed.find_partition(&topic, *number);
                let from = match one.map(|one| one.offset()) {
                    Some(Offset::Offset(at)) => Some(at),
                    _ => None,
                };
                Left {
                    number: *number,
                    from,
                    end: *end,
                }
            });
            let is_left = |left: &Left| left.from.is_none_or(|from| from < left.end);
            Ok(left.filter(is_left).collect())
        })
        .await
    }
}

/// Whether the log has a record there. If that is not known, it has.
fn has_record(consumer: &BaseConsumer<Silent>, topic: &str, left: Left) -> KafkaResult<bool> {
    let Some(from) = left.from else {
        return Ok(true);
    };
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, left.number, Offset::Offset(from))?;
    consumer.assign(&list)?;
    let until = Instant::now() + ASKED_FOR;
    let found = loop {
        match consumer.poll(POLL) {
            None if Instant::now() >= until => break Ok(true),
            None => {}
            Some(Ok(record)) => break Ok(record.offset() < left.end),
            Some(Err(KafkaError::PartitionEOF(_))) => break Ok(false),
            Some(Err(error)) => break Err(error),
        }
    };
    consumer.unassign()?;
    found
}

fn ends(consumer: &BaseConsumer<Silent>, topic: &str) -> KafkaResult<Vec<(i32, i64)>> {
    let all = consumer.fetch_metadata(Some(topic), ASKED_FOR)?;
    let mut ends = Vec::new();
    for topic in all.topics() {
        if let Some(error) = topic.error() {
            return Err(KafkaError::MetadataFetch(error.into()));
        }
        for partition in topic.partitions() {
            let (low, high) = consumer.fetch_watermarks(topic.name(), partition.id(), ASKED_FOR)?;
            if high > low {
                ends.push((partition.id(), high));
            }
        }
    }
    Ok(ends)
}

async fn wait<T: Send + 'static>(
    ask: impl FnOnce() -> KafkaResult<T> + Send + 'static,
) -> KafkaResult<T> {
    let asked = blocking(ask).await;
    asked.unwrap_or_else(|error| Err(KafkaError::ClientCreation(error.to_string())))
}
