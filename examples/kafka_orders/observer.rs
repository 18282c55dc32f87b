//! What the brokers say of a topic and a group, to a client that is not in the group.

use std::sync::Arc;
use std::time::Duration;

use keylane_kafka::metadata;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::Failure;
use crate::judge::Committed;

/// What one question may take.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Observer {
    client: Arc<BaseConsumer>,
    topic: String,
    partitions: i32,
}

/// A partition, as the brokers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) number: i32,
    pub(crate) committed: Option<u64>,
    /// One past the last record.
    pub(crate) end: u64,
    /// How many records come at or after what is committed.
    pub(crate) lag: u64,
}

impl Observer {
    /// An error if no broker answers, or there is no such topic.
    pub(crate) async fn new(
        brokers: &str,
        topic: &str,
        group: &str,
        properties: &[(String, String)],
    ) -> Result<Self, Failure> {
        let mut client = ClientConfig::new();
        for (name, value) in properties {
            client.set(name, value);
        }
        client
            .set("bootstrap.servers", brokers)
            .set("group.id", group)
            .set("enable.auto.commit", "false");
        let client: Arc<BaseConsumer> = Arc::new(client.create()?);
        let (asked, name, at) = (Arc::clone(&client), topic.to_owned(), brokers.to_owned());
        let partitions = blocking(move || {
            let metadata = asked.fetch_metadata(Some(&name), PATIENCE);
            let metadata =
                metadata.map_err(|error| format!("no broker answers at {at}: {error}"))?;
            let partitions = metadata
                .topics()
                .first()
                .map_or(0, |of| of.partitions().len());
            match i32::try_from(partitions)? {
                0 => Err(format!("there is no topic {name} at {at}").into()),
                partitions => Ok(partitions),
            }
        });
        Ok(Self {
            partitions: partitions.await?,
            client,
            topic: topic.to_owned(),
        })
    }

    /// How far the group is.
    pub(crate) async fn see(&self) -> Result<Vec<Seen>, Failure> {
        let this = self.clone();
        blocking(move || {
            let committed = this.offsets()?;
            let mut seen = Vec::new();
            for number in 0..this.partitions {
                let marks = this.client.fetch_watermarks(&this.topic, number, PATIENCE);
                let (low, end) = marks?;
                let committed = committed
                    .find_partition(&this.topic, number)
                    .and_then(|one| of(one.offset()));
                let (low, end) = (u64::try_from(low)?, u64::try_from(end)?);
                seen.push(Seen {
                    number,
                    committed,
                    end,
                    lag: end.saturating_sub(committed.unwrap_or(low)),
                });
            }
            Ok(seen)
        })
        .await
    }

    /// What the group has committed, with what is done beyond it.
    pub(crate) async fn committed(&self) -> Result<Committed, Failure> {
        let this = self.clone();
        blocking(move || {
            let mut committed = Committed::new();
            for one in this.offsets()?.elements() {
                if let Some(offset) = of(one.offset()) {
                    let beyond = match one.metadata() {
                        "" => Default::default(),
                        text => metadata::decode(offset, text)?,
                    };
                    committed.insert(one.partition(), (offset, beyond));
                }
            }
            Ok(committed)
        })
        .await
    }

    fn offsets(&self) -> Result<TopicPartitionList, Failure> {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(&self.topic, 0, self.partitions - 1);
        Ok(self.client.committed_offsets(asked, PATIENCE)?)
    }
}

fn of(offset: Offset) -> Option<u64> {
    match offset {
        Offset::Offset(offset) => u64::try_from(offset).ok(),
        _ => None,
    }
}

async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(ask).await?
}
