//! The progress of a group in a topic, seen from outside the group.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message as _;
use rdkafka::metadata::Metadata;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::codes::is_silence;
use super::job::blocking;
use super::silent::{Failure, Silent, explain};
use crate::config::Config;

/// The timeout of one request.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// How long one look at the queue may take.
const POLL: Duration = Duration::from_millis(100);

/// A topic as it was at one moment, and the group's commits in it since.
pub(crate) struct Progress {
    consumer: Arc<BaseConsumer<Silent>>,
    topic: Arc<str>,
    /// The offsets behind the last records, by partition. `None`: its leader has not answered yet.
    ends: Arc<BTreeMap<i32, Option<i64>>>,
    /// The partitions that were not fully committed at the last check.
    left: Vec<Left>,
}

/// The part of a partition that is not committed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Left {
    number: i32,
    /// `None` if the group has no offset.
    from: Option<i64>,
    end: i64,
}

impl Progress {
    /// Asks where the partitions of a topic end now. A partition whose leader is down is asked for
    /// when the leader is back.
    pub(crate) async fn open(config: &Config, topic: &str) -> Result<Self, Failure> {
        let client = config.reader();
        let topic: Arc<str> = topic.into();
        let asked = Arc::clone(&topic);
        let (consumer, ends) = wait::<_, Failure>(move || {
            let consumer = client.create_with_context(Silent::new(&client));
            let consumer: BaseConsumer<Silent> = consumer.map_err(Failure::Client)?;
            let ends = ends(&consumer, &asked).map_err(|error| explain(&consumer, error))?;
            Ok((Arc::new(consumer), ends))
        })
        .await?;
        Ok(Self {
            consumer,
            topic,
            ends: Arc::new(ends),
            left: Vec::new(),
        })
    }

    /// Whether the group has committed all of it.
    pub(crate) async fn is_over(&mut self) -> KafkaResult<bool> {
        if self.ends.values().any(Option::is_none) {
            let (consumer, topic) = (Arc::clone(&self.consumer), Arc::clone(&self.topic));
            let before = Arc::clone(&self.ends);
            let now = wait::<_, KafkaError>(move || {
                let mut now = ends(&consumer, &topic)?;
                now.extend(before.iter().filter(|(_, end)| end.is_some()));
                Ok(now)
            });
            self.ends = Arc::new(now.await?);
        }
        let left = self.left().await?;
        let stands = self.left == left;
        self.left.clone_from(&left);
        let is_known = self.ends.values().all(Option::is_some);
        if left.is_empty() || !stands {
            return Ok(left.is_empty() && is_known);
        }
        // Offsets without a record are never committed if no record follows them: markers of
        // transactions, and records that were aborted, compacted or deleted.
        let (consumer, topic) = (Arc::clone(&self.consumer), Arc::clone(&self.topic));
        wait(move || {
            for left in left {
                if has_record(&consumer, &topic, left)? {
                    return Ok(false);
                }
            }
            Ok(is_known)
        })
        .await
    }

    async fn left(&self) -> KafkaResult<Vec<Left>> {
        let consumer = Arc::clone(&self.consumer);
        let (topic, ends) = (Arc::clone(&self.topic), Arc::clone(&self.ends));
        wait(move || {
            let mut list = TopicPartitionList::with_capacity(ends.len());
            for number in ends.keys() {
                list.add_partition(&topic, *number);
            }
            let committed = consumer.committed_offsets(list, ASKED_FOR)?;
            let known = ends
                .iter()
                .filter_map(|(number, end)| Some((number, (*end)?)));
            let left = known.map(|(number, end)| {
                let one = committed.find_partition(&topic, *number);
                let from = match one.map(|one| one.offset()) {
                    Some(Offset::Offset(at)) => Some(at),
                    _ => None,
                };
                Left {
                    number: *number,
                    from,
                    end,
                }
            });
            let is_left = |left: &Left| left.from.unwrap_or_default() < left.end;
            Ok(left.filter(is_left).collect())
        })
        .await
    }
}

/// Whether the log has a record there. Returns true if that is unknown.
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

/// Asks for the metadata of the topic. Tries another broker if one does not answer.
pub(super) fn metadata(consumer: &BaseConsumer<Silent>, topic: &str) -> KafkaResult<Metadata> {
    let since = Instant::now();
    loop {
        match consumer.fetch_metadata(Some(topic), ASKED_FOR) {
            Err(error) if is_silence(&error) && since.elapsed() < ASKED_FOR => {
                thread::sleep(POLL);
            }
            answer => return answer,
        }
    }
}

fn ends(consumer: &BaseConsumer<Silent>, topic: &str) -> KafkaResult<BTreeMap<i32, Option<i64>>> {
    let all = metadata(consumer, topic)?;
    let mut ends = BTreeMap::new();
    for topic in all.topics() {
        if let Some(error) = topic.error() {
            return Err(KafkaError::MetadataFetch(error.into()));
        }
        for partition in topic.partitions() {
            let asks = || consumer.fetch_watermarks(topic.name(), partition.id(), ASKED_FOR);
            let end = match partition.leader() >= 0 {
                true => match asks() {
                    // A partition without records is never committed.
                    Ok((low, high)) => Some(if high > low { high } else { 0 }),
                    Err(error) if is_silence(&error) => None,
                    Err(error) => return Err(error),
                },
                false => None,
            };
            ends.insert(partition.id(), end);
        }
    }
    Ok(ends)
}

async fn wait<T: Send + 'static, E: From<KafkaError> + Send + 'static>(
    ask: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let asked = blocking(ask).await;
    asked.unwrap_or_else(|error| Err(KafkaError::ClientCreation(error.to_string()).into()))
}
