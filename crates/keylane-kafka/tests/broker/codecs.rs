//! Every codec of the protocol, in both directions: the client reads batches that the broker has
//! compressed, and the broker reads ours.

use keylane::source::RawMessage;
use keylane_kafka::Producer;

use crate::stage::{Stage, id_of, message};
use crate::support::{Topic, shared, show_log};

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

const RECORDS: u64 = 20;

/// Records that become smaller.
fn records(of: impl IntoIterator<Item = u64>) -> Vec<RawMessage> {
    let record = |id: u64| {
        let mut raw = message(id % 3, id);
        let payload = [&raw.payload[..], &[7; 1_000]].concat();
        raw.payload = payload.into();
        raw
    };
    of.into_iter().map(record).collect()
}

/// Writes records with this codec.
async fn send(topic: &Topic, codec: &str, records: Vec<RawMessage>) {
    let producer = Producer::builder(topic.kafka.bootstrap())
        .property("compression.codec", codec)
        // All of them in one batch.
        .property("linger.ms", "50")
        .build()
        .expect("a producer");
    let sends = records.into_iter().map(|record| {
        let (producer, topic) = (producer.clone(), topic.name.clone());
        tokio::spawn(async move { producer.send(&topic, &record).await })
    });
    for sent in sends.collect::<Vec<_>>() {
        sent.await.expect("no panic").expect("it is written");
    }
}

/// All records are handled, each with its content.
async fn are_handled(stage: &Stage, count: u64) {
    let member = stage.member();
    stage.committed(&[count]).await;
    member.stop().await;
    let mut done = stage.done();
    done.sort_by_key(id_of);
    let payloads = done.iter().map(|raw| &raw.payload);
    let sent = records(1..=count);
    assert!(payloads.eq(sent.iter().map(|raw| &raw.payload)));
}

/// The broker writes the records again, in the codec of the topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_has_compressed_is_read() {
    show_log();
    for codec in CODECS {
        let codec = codec.replace("none", "uncompressed");
        let settings = [("compression.type", codec.as_str())];
        let stage = Stage::of(Topic::with(shared().await, 1, &settings).await);
        stage.topic.produce(records(1..=RECORDS)).await;
        are_handled(&stage, RECORDS).await;
    }
}

/// The broker writes the records again, as they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_compressed_here_is_read_by_the_broker() {
    show_log();
    for codec in CODECS {
        let settings = [("compression.type", "uncompressed")];
        let stage = Stage::of(Topic::with(shared().await, 1, &settings).await);
        send(&stage.topic, codec, records(1..=RECORDS)).await;
        are_handled(&stage, RECORDS).await;
    }
}

/// Producers of several programs write like this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_with_batches_of_all_codecs_is_read() {
    let stage = Stage::new(1).await;
    let mut last = 0;
    for codec in CODECS.iter().chain(&CODECS) {
        send(&stage.topic, codec, records(last + 1..=last + RECORDS)).await;
        last += RECORDS;
    }
    are_handled(&stage, last).await;
}
