//! The sink of streams.

use std::collections::HashMap;
use std::future::{Future as _, poll_fn};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use keylane::source::{RawLetter, RawLetterSink, RawMessage};
use keylane_redis::{ConfigError, ErrorKind, Redis, StreamFields, StreamSink, partition_of};
use keylane_spool::Spool;
use testkit_servers::RedisKind;
use tokio::time::timeout;

use crate::runtimes::{PUSHES, push_from_each, runtime};
use crate::support::{new_name, own, shared};

/// The fields of each entry, in their order.
async fn entries(stream: &str) -> Vec<Vec<(String, Vec<u8>)>> {
    let server = shared(RedisKind::Redis7).await;
    let client = redis::Client::open(server.url()).unwrap();
    let mut link = client.get_multiplexed_async_connection().await.unwrap();
    let mut range = redis::cmd("XRANGE");
    range.arg(stream).arg("-").arg("+");
    type Entries = Vec<(String, Vec<(String, Vec<u8>)>)>;
    let entries: Entries = range.query_async(&mut link).await.unwrap();
    entries.into_iter().map(|(_, fields)| fields).collect()
}

fn text(value: &[u8]) -> &str {
    std::str::from_utf8(value).unwrap()
}

async fn redis() -> Redis {
    Redis::at(&shared(RedisKind::Redis7).await.url()).unwrap()
}

#[tokio::test]
async fn a_message_has_its_fields_and_goes_to_the_partition_of_its_key() {
    let name = new_name("sink");
    let sink = StreamSink::partitions(&redis().await, &name, 4).unwrap();
    let mut messages = Vec::new();
    for number in 0..40 {
        let mut message = RawMessage::new(format!("{number}")).key(format!("user-{}", number % 8));
        message
            .headers
            .push(("trace".to_owned(), Some("t-9".into())));
        messages.push(message);
    }
    sink.push_all(&messages).await.unwrap();
    let mut seen: HashMap<Vec<u8>, Vec<u32>> = HashMap::new();
    for partition in 0..4 {
        for fields in entries(&format!("{name}:{partition}")).await {
            let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["key", "payload", "trace"]);
            assert_eq!(partition_of(&fields[0].1, 4), partition);
            let number = text(&fields[1].1).parse().unwrap();
            seen.entry(fields[0].1.clone()).or_default().push(number);
        }
    }
    assert_eq!(seen.len(), 8);
    assert!(
        seen.values()
            .all(|numbers| numbers.is_sorted() && numbers.len() == 5)
    );
}

#[tokio::test]
async fn a_letter_replaces_what_an_earlier_one_has_said() {
    let name = new_name("letters");
    let fields = StreamFields::new().payload("body");
    let sink = StreamSink::new(&redis().await, name.clone())
        .unwrap()
        .fields(fields);
    let mut raw = RawMessage::new("no number").key("a");
    raw.headers
        .push(("keylane.cause".to_owned(), Some("failed".into())));
    sink.accept(&RawLetter::new(raw, "not a number", "elsewhere"))
        .await
        .unwrap();
    let letters = entries(&name).await;
    let wanted = [
        ("key", "a"),
        ("body", "no number"),
        ("keylane.attempts", "0"),
        ("keylane.cause", "undecodable"),
        ("keylane.error", "not a number"),
    ];
    assert_eq!(
        letters,
        [wanted.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))]
    );
}

#[tokio::test]
async fn a_spool_delivers_to_a_stream() {
    let name = new_name("spool");
    let sink = StreamSink::partitions(&redis().await, &name, 2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::builder(sink)
        .dir(folder.path())
        .open()
        .await
        .unwrap();
    for number in 0..10 {
        let key: Bytes = format!("key-{}", number % 2).into();
        spool.push(key, format!("{number}")).await.unwrap();
    }
    spool.close().await;
    let mut all = entries(&format!("{name}:0")).await;
    all.extend(entries(&format!("{name}:1")).await);
    let mut numbers: HashMap<Vec<u8>, Vec<u32>> = HashMap::new();
    for fields in all {
        let field = |name: &str| fields.iter().find(|(of, _)| of == name).unwrap().1.clone();
        assert_eq!(field("id").len(), 24);
        let number = text(&field("payload")).parse().unwrap();
        numbers.entry(field("key")).or_default().push(number);
    }
    assert_eq!(numbers[&b"key-0"[..]], [0, 2, 4, 6, 8]);
    assert_eq!(numbers[&b"key-1"[..]], [1, 3, 5, 7, 9]);
}

#[tokio::test]
async fn what_cannot_be_written_is_a_typed_error() {
    let server = shared(RedisKind::Redis7).await;
    let name = new_name("wrong");
    server.execute(&["SET", &name, "text"]).await.unwrap();
    let sink = StreamSink::new(&redis().await, name.clone()).unwrap();
    for count in 1..3 {
        let messages = vec![RawMessage::new("x"); count];
        let error = sink.push_all(&messages).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        let said = error.to_string();
        assert!(said.contains(&format!("`{name}` is a string")), "{said}");
    }
    let none = StreamSink::partitions(&redis().await, "orders", 0);
    assert_eq!(none.unwrap_err(), ConfigError::zero("partitions"));
}

#[test]
fn a_message_is_pushed_once_from_each_runtime() {
    let first = runtime();
    let name = new_name("runtimes");
    let server = first.block_on(own(RedisKind::Redis8));
    let sink = StreamSink::new(&Redis::at(&server.url()).unwrap(), name.clone()).unwrap();
    push_from_each(async |message| sink.push(&message).await);
    let length = first.block_on(server.execute(&["XLEN", &name]));
    assert_eq!(length.unwrap(), PUSHES.to_string());
}

/// A runtime that stands still while it connects holds up no other one.
#[test]
fn a_runtime_waits_for_no_other_one() {
    let (first, second) = (runtime(), runtime());
    let server = first.block_on(own(RedisKind::Redis8));
    let sink = StreamSink::new(&Redis::at(&server.url()).unwrap(), new_name("still")).unwrap();
    let message = RawMessage::new("x");
    let mut still = Box::pin(sink.push(&message));
    let pushed = first.block_on(poll_fn(|cx| Poll::Ready(still.as_mut().poll(cx))));
    assert!(pushed.is_pending());
    let pushed = second.block_on(async {
        let pushed = sink.push(&message);
        timeout(Duration::from_secs(120), pushed).await
    });
    assert!(matches!(pushed, Ok(Ok(_))), "{pushed:?}");
    first.block_on(still).unwrap();
}
