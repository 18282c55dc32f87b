//! A stream of records, and a task for each, as many at once as are allowed. No order.

use std::sync::Arc;

use rdkafka::ClientConfig;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::Message;
use tokio::sync::Semaphore;

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
        .create()?;
    consumer.subscribe(&[&task.topic])?;
    let room = Arc::new(Semaphore::new(task.concurrency));
    tokio::select! {
        () = work.done() => super::finish(work),
        ended = all(&consumer, &room, work) => ended,
    }
}

async fn all(consumer: &StreamConsumer, room: &Arc<Semaphore>, work: &Work) -> Result<(), Error> {
    loop {
        let message = consumer.recv().await?;
        let record = message.payload().and_then(Record::of);
        let record = record.ok_or("not a record of this benchmark")?;
        drop(message);
        let place = Arc::clone(room).acquire_owned().await?;
        let work = work.clone();
        tokio::spawn(async move {
            // It does not fail: it takes part where no key does.
            let _ = work.handle(record).await;
            drop(place);
        });
    }
}
