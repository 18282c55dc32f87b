//! rdkafka in a loop. The handler does nothing but check the order.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;

use crate::Error;
use crate::record::Record;
use crate::task::Task;
use crate::work::Work;

pub(super) fn run(task: &Task, work: &Work) -> Result<(), Error> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &task.bootstrap)
        .set("group.id", &task.group)
        .set("auto.offset.reset", "earliest")
        // By default the client pauses for a second whenever its queue is full.
        .set("fetch.queue.backoff.ms", "5")
        .create()?;
    consumer.subscribe(&[&task.topic])?;
    while !work.is_done() {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else {
            continue;
        };
        let message = message?;
        let record = message.payload().and_then(Record::of);
        let record = record.ok_or("not a record of this benchmark")?;
        work.begin(record);
        work.end(record);
    }
    super::finish(work)
}
