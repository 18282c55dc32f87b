//! keylane-kafka.

use std::time::Duration;

use keylane::error::Failure;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_kafka::KafkaSource;

use crate::Error;
use crate::handler::SPECIAL;
use crate::record::Record;
use crate::task::Task;
use crate::work::{Failed, Work};

/// Properties of the client, as `name=value,name=value`, to look for better ones.
const PROPERTIES: &str = "VERSUS_KEYLANE_PROPERTIES";

pub(super) async fn run(task: &Task, work: &Work) -> Result<(), Error> {
    let handler: &'static Work = Box::leak(Box::new(work.clone()));
    // One key is tried again for ever, the other one is halted at its first failure.
    let retry = Retry::exponential(Duration::from_millis(100))
        .cap(Duration::from_secs(1))
        .max_attempts(u32::MAX)
        .retry_if(
            |failure: &Failure<Failed>| matches!(failure, Failure::Error(failed) if failed.key == SPECIAL),
        );
    let lanes = Dispatcher::builder(|record: &Record| record.key)
        .concurrency(task.concurrency)
        .retry(retry)
        .on_exhausted(OnExhausted::Halt)
        .spawn(|record: Record| handler.handle(record))?;
    let mut source = KafkaSource::builder(&task.bootstrap, &task.group).topic(&task.topic);
    if task.progress.is_some() {
        // The process that follows a killed one has its partitions soon.
        source = source.property("session.timeout.ms", "6000");
    }
    for (name, value) in properties(&std::env::var(PROPERTIES).unwrap_or_default()) {
        source = source.property(name, value);
    }
    let source = source.build_with(|record| {
        let record = record.payload().and_then(Record::of);
        record.expect("a record of this benchmark")
    })?;
    let intake = lanes.consume(source)?;
    tokio::select! {
        () = work.done() => super::finish(work),
        report = intake.ended() => Err(format!("the intake has ended: {report}").into()),
    }
}

fn properties(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').filter_map(|one| one.split_once('='))
}
