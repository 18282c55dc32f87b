//! How far a group is in a topic, seen from outside of it.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::job::blocking;
use super::reader::Silent;
use crate::config::Config;

/// What one question is given.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// A topic as it was at a moment, and what a group has committed of it since.
pub(crate) struct Progress {
    consumer: Arc<BaseConsumer<Silent>>,
    topic: Arc<str>,
    /// The partitions that had records, and the offset behind the last one.
    ends: Arc<[(i32, i64)]>,
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
        })
    }

    /// Whether the group has committed all of it.
    pub(crate) async fn is_over(&self) -> KafkaResult<bool> {
        let consumer = Arc::clone(&self.consumer);
        let (topic, ends) = (Arc::clone(&self.topic), Arc::clone(&self.ends));
        wait(move || {
            let mut list = TopicPartitionList::with_capacity(ends.len());
            for (number, _) in &*ends {
                list.add_partition(&topic, *number);
            }
            let committed = consumer.committed_offsets(list, ASKED_FOR)?;
            Ok(ends.iter().all(|(number, end)| {
                let one = committed.find_partition(&topic, *number);
                let offset = one.map(|one| one.offset());
                matches!(offset, Some(Offset::Offset(at)) if at >= *end)
            }))
        })
        .await
    }
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
