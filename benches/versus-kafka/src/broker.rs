//! The broker, and what is written to it.

use std::collections::HashMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use testkit_servers::Kafka;

use crate::Error;
use crate::record::Traffic;

const PATIENCE: Duration = Duration::from_secs(120);

/// The broker of a run.
#[derive(Debug)]
pub struct Broker {
    kafka: Kafka,
    topics: HashMap<(Traffic, u32), String>,
}

impl Broker {
    /// Starts it.
    pub async fn start() -> Result<Self, Error> {
        Ok(Self {
            kafka: Kafka::builder().for_throughput().start().await?,
            topics: HashMap::new(),
        })
    }

    /// Its address.
    pub fn bootstrap(&self) -> String {
        self.kafka.bootstrap()
    }

    /// The topic with these records; it is filled when it is asked for the first time.
    pub async fn topic(&mut self, traffic: Traffic, partitions: u32) -> Result<String, Error> {
        if let Some(name) = self.topics.get(&(traffic, partitions)) {
            return Ok(name.clone());
        }
        let name = format!("topic-{}", self.topics.len());
        self.create(&name, partitions).await?;
        let (bootstrap, topic) = (self.bootstrap(), name.clone());
        tokio::task::spawn_blocking(move || fill(&bootstrap, &topic, partitions, traffic))
            .await??;
        self.topics.insert((traffic, partitions), name.clone());
        Ok(name)
    }

    async fn create(&self, name: &str, partitions: u32) -> Result<(), Error> {
        let admin: AdminClient<DefaultClientContext> = client(&self.bootstrap()).create()?;
        let partitions = i32::try_from(partitions)?;
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let made = admin.create_topics(&[topic], &AdminOptions::new()).await?;
        for made in made {
            made.map_err(|(topic, code)| format!("{topic} is not created: {code}"))?;
        }
        Ok(())
    }
}

fn client(bootstrap: &str) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", bootstrap);
    client
}

/// Writes the records, and checks that all are there.
fn fill(bootstrap: &str, topic: &str, partitions: u32, traffic: Traffic) -> Result<(), Error> {
    let producer: BaseProducer = client(bootstrap)
        // The order is kept when something is sent again.
        .set("enable.idempotence", "true")
        .set("partitioner", "murmur2_random")
        .set("linger.ms", "20")
        .create()?;
    let mut records: u64 = 0;
    for record in traffic.records() {
        let (key, payload) = (record.key.to_string(), record.payload());
        let mut next = BaseRecord::to(topic).key(&key).payload(&payload[..]);
        while let Err((error, back)) = producer.send(next) {
            let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
            if error != full {
                return Err(error.into());
            }
            producer.poll(Duration::from_millis(5));
            next = back;
        }
        records += 1;
    }
    producer.flush(PATIENCE)?;
    let reader: BaseConsumer = client(bootstrap).set("group.id", "fill").create()?;
    let mut there = 0;
    for partition in 0..i32::try_from(partitions)? {
        let (low, high) = reader.fetch_watermarks(topic, partition, PATIENCE)?;
        there += high.abs_diff(low);
    }
    if there != records {
        return Err(format!("{topic} has {there} records, not {records}").into());
    }
    Ok(())
}
