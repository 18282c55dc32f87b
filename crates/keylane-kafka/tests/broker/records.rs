//! Messages that are made from records in the memory of the client.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use keylane::consume::IntakeSettings;
use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane::{Builder, Dispatcher, OnExhausted, Overflow};
use keylane_kafka::{Keyless, Record};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{boxed, by_key};

use crate::loudness::logged;
use crate::stage::{Stage, message, until};
use crate::support::show_log;

/// All parts of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    key: Option<Vec<u8>>,
    payload: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    place: String,
    at: Option<SystemTime>,
}

impl Seen {
    fn of(record: &Record<'_>) -> Self {
        let headers = record
            .headers()
            .map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)));
        Self {
            key: record.key().map(<[u8]>::to_vec),
            payload: record.payload().map(<[u8]>::to_vec),
            headers: headers.collect(),
            place: record.place().to_string(),
            at: record.timestamp(),
        }
    }

    /// Returns the same parts of the raw message that the source makes otherwise.
    fn of_raw(raw: &RawMessage) -> Self {
        let headers = raw.headers.iter();
        Self {
            key: raw.key.as_ref().map(|key| key.to_vec()),
            payload: (!raw.is_tombstone).then(|| raw.payload.to_vec()),
            headers: headers
                .map(|(name, value)| (name.clone(), value.as_ref().map(|value| value.to_vec())))
                .collect(),
            place: String::from_utf8(raw.id.as_ref().expect("an id").to_vec()).expect("text"),
            at: raw.enqueued_at,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_sees_what_a_raw_message_has() {
    let stage = Stage::new(1).await;
    let mut sent = vec![
        message(7, 1),
        RawMessage::new("").key("gone"),
        RawMessage::new("").key("empty"),
        RawMessage::new(vec![9; 100_000]).key(""),
        RawMessage::new("no key"),
    ];
    sent[0].headers = vec![
        ("trace".into(), Some("a".into())),
        ("trace".into(), Some("".into())),
        ("trace".into(), None),
        ("more".into(), Some(vec![255, 0].into())),
    ];
    sent[1].is_tombstone = true;
    stage.topic.produce(sent.clone()).await;

    let made = Arc::new(Mutex::new(BTreeMap::new()));
    let theirs = Arc::clone(&made);
    let source = stage.topic.builder().keyless(Keyless::ByPartition);
    let make = move |record: &Record<'_>| {
        let seen = Seen::of(record);
        theirs.lock().unwrap().insert(seen.place.clone(), seen);
        Order::of(record)
    };
    let source = source.build_with(make).expect("a source");
    let consumer = orders()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: Order| async { Ok(()) }))
        .expect("a consumer");
    let intake = consumer.consume(source).expect("an intake");
    stage.committed(&[5]).await;
    intake.stop().await;

    let mut other = stage.topic.clone();
    other.group += "-raw";
    let raws = Arc::new(Mutex::new(BTreeMap::new()));
    let theirs = Arc::clone(&raws);
    let source = other.builder().keyless(Keyless::ByPartition);
    let source = source.build().expect("a source");
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |raw: RawMessage| {
            let seen = Seen::of_raw(&raw);
            theirs.lock().unwrap().insert(seen.place.clone(), seen);
            async { Ok(()) }
        }))
        .expect("a consumer");
    let intake = consumer.consume(source).expect("an intake");
    until("all were handled", async || raws.lock().unwrap().len() == 5).await;
    intake.stop().await;

    let made = made.lock().unwrap();
    assert_eq!(*made, *raws.lock().unwrap());
    for (seen, sent) in made.values().zip(&sent) {
        let partition = format!("{}/0", stage.topic.name).into_bytes();
        let key = sent.key.as_ref().map_or(partition, |key| key.to_vec());
        assert_eq!(seen.key, Some(key));
        let payload = (!sent.is_tombstone).then(|| sent.payload.to_vec());
        assert_eq!(seen.payload, payload);
        let headers = sent.headers.iter();
        let headers =
            headers.map(|(name, value)| (name.clone(), value.as_ref().map(|v| v.to_vec())));
        assert_eq!(seen.headers, Vec::from_iter(headers));
        assert!(seen.at.is_some());
    }
}

/// A message of its own type, much smaller than its record.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) key: u64,
    /// `None`: the payload is not a number.
    number: Option<u64>,
    pub(crate) offset: u64,
}

/// Returns the builder of a dispatcher of orders, in the order of their keys.
pub(crate) fn orders() -> Builder<u64, Order, BoxError, impl Fn(&Order) -> Option<u64> + Send + Sync>
{
    Dispatcher::builder(|order: &Order| order.key)
}

impl Order {
    pub(crate) fn of(record: &Record<'_>) -> Self {
        let key = record.key().and_then(|key| std::str::from_utf8(key).ok());
        let number = record.payload().and_then(|bytes| bytes.try_into().ok());
        Self {
            key: key.and_then(|key| key.parse().ok()).unwrap_or(u64::MAX),
            number: number.map(u64::from_be_bytes),
            offset: record.place().offset,
        }
    }
}

/// One key has many times as many records as the source may hold. So most of them are made a second
/// time, when they are read from the log again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_again_is_made_again_and_a_letter_has_the_record() {
    const EACH: u64 = 1_000;
    let stage = Stage::new(1).await;
    let letters = stage.topic.beside(".dead", &[]).await;
    // Key 0 is every other record.
    stage.publish((0..EACH).flat_map(|n| [0, 1 + n % 5])).await;
    let odd = RawMessage::new("no number").key("77");
    stage.topic.produce(vec![odd.clone()]).await;

    let gate = Gate::new();
    let done = Arc::new(Mutex::new(Vec::new()));
    let (opened, theirs) = (gate.clone(), Arc::clone(&done));
    let consumer = orders()
        .lane_capacity(8, Overflow::Wait)
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(move |order: Order| {
            let (gate, done) = (opened.clone(), Arc::clone(&theirs));
            async move {
                let number = order.number.ok_or("no number")?;
                if order.key == 0 {
                    gate.pass().await;
                }
                done.lock().unwrap().push((order.key, number));
                Ok(())
            }
        }))
        .expect("a consumer");
    let source = stage.topic.builder().dead_letters(&letters.name);
    let source = source.build_with(Order::of).expect("a source");
    let settings = IntakeSettings::new().held(100);
    let intake = consumer.consume_with(source, settings).expect("an intake");
    until("the others are done", async || {
        done.lock().unwrap().len() == EACH as usize && intake.stats().dead_lettered == 1
    })
    .await;
    gate.open();
    stage.nothing_left().await;
    assert_eq!(intake.stop().await.acked, 2 * EACH);

    let done = done.lock().unwrap().clone();
    assert_eq!(done.len(), 2 * EACH as usize);
    let mut last = BTreeMap::new();
    for (key, number) in &done {
        let before = last.insert(key, number);
        assert!(before < Some(number), "{number} of key {key}");
    }
    let letters = letters.records().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(
        (&letters[0].key, &letters[0].payload),
        (&odd.key, &odd.payload)
    );
}

/// No record is lost or skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_panics_sees_the_record_again() {
    let stage = Stage::new(1).await;
    stage.publish(0..50).await;
    let panics = AtomicBool::new(true);
    let make = move |record: &Record<'_>| {
        let is_it = record.place().offset == 20;
        assert!(
            !(is_it && panics.swap(false, Ordering::Relaxed)),
            "as it is asked to"
        );
        Order::of(record)
    };
    let done = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&done);
    let consumer = orders()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |order: Order| {
            theirs.lock().unwrap().push(order.number);
            async { Ok(()) }
        }))
        .expect("a consumer");
    let source = stage.topic.builder().build_with(make).expect("a source");
    let intake = consumer.consume(source).expect("an intake");
    stage.committed(&[50]).await;
    let report = intake.stop().await;
    assert_eq!(report.acked, 50, "{report}");
    let mut done = done.lock().unwrap().clone();
    done.sort_unstable();
    done.dedup();
    assert_eq!(done.len(), 50);
}

/// Nothing is said if an order was chosen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_without_a_key_are_warned_of_once_for_each_source() {
    show_log();
    let stage = Stage::new(2).await;
    let records = (0..20).map(|n| RawMessage::new(format!("{n}")));
    stage.topic.produce(records.collect()).await;
    for (name, keyless) in [("silent", Some(Keyless::Unordered)), ("warned", None)] {
        let mut topic = stage.topic.clone();
        topic.group += name;
        let builder = topic.builder();
        let builder = match keyless {
            Some(keyless) => builder.keyless(keyless),
            None => builder,
        };
        let consumer = by_key()
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(|_: RawMessage| async { Ok(()) }))
            .expect("a consumer");
        let intake = consumer.consume(builder.build().expect("a source"));
        let intake = intake.expect("an intake");
        until("all were handled", async || intake.stats().acked == 20).await;
        intake.stop().await;
        let said = logged(&format!("source=kafka {} ", topic.group));
        let warned = said
            .iter()
            .filter(|(_, line)| line.contains("a record has no key"));
        let lines = Vec::from_iter(warned.map(|(_, line)| line));
        assert_eq!(lines.len(), usize::from(keyless.is_none()), "{lines:?}");
        let place = format!("position={}/", topic.name);
        assert!(lines.iter().all(|line| line.contains(&place)), "{lines:?}");
    }
}
