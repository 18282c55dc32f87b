//! A stream of records, many handlers at once, and a lock for each key.

use std::sync::Arc;

use dashmap::DashMap;
use futures::StreamExt;
use rdkafka::ClientConfig;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use tokio::sync::Mutex;

use crate::Error;
use crate::record::Record;
use crate::task::Task;
use crate::work::Work;

pub(super) async fn run(task: &Task, work: &Work) -> Result<(), Error> {
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", &task.bootstrap)
        .set("group.id", &task.group)
        .set("auto.offset.reset", "earliest")
        // By default the client pauses for a second whenever its queue is full.
        .set("fetch.queue.backoff.ms", "5")
        // Stored after the handler, committed by the client: as it is often written. What is before
        // the stored offset may not be done.
        .set("enable.auto.offset.store", "false")
        .create()?;
    consumer.subscribe(&[&task.topic])?;
    let locks: DashMap<Vec<u8>, Arc<Mutex<()>>> = DashMap::new();
    let (consumer, locks) = (&consumer, &locks);
    let all = consumer
        .stream()
        .for_each_concurrent(task.concurrency, |message| async move {
            if let Err(error) = one(consumer, locks, work, message).await {
                eprintln!("error: {error}");
            }
        });
    tokio::select! {
        () = work.done() => super::finish(work),
        () = all => Err("the stream has ended".into()),
    }
}

async fn one(
    consumer: &StreamConsumer,
    locks: &DashMap<Vec<u8>, Arc<Mutex<()>>>,
    work: &Work,
    message: Result<BorrowedMessage<'_>, KafkaError>,
) -> Result<(), Error> {
    let message = message?;
    let key = message.key().unwrap_or_default().to_vec();
    let lock = Arc::clone(&locks.entry(key).or_default());
    let _held = lock.lock().await;
    let record = message.payload().and_then(Record::of);
    work.handle(record.ok_or("not a record of this benchmark")?)
        .await?;
    consumer.store_offset_from_message(&message)?;
    Ok(())
}
