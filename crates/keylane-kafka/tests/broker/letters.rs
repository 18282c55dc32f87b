//! Dead letters in a topic, and their way back.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::{Intake, IntakeSettings};
use keylane::source::{Deliveries, LetterCause, RawMessage, Source, SourceLetter};
use keylane::{OnExhausted, Retry};
use keylane_kafka::{DeadLetterTopic, KafkaSource, Producer, Redrive, RedriveError};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::Kafka;
use testkit_servers::proxy::Proxy;
use tokio::time::{Instant, sleep};
use tracing::Level;

use crate::loudness::logged;
use crate::stage::{Stage, id_of, message, until};
use crate::support::{PATIENCE, Topic, show_log};

/// The messages that a handler has handled, in this order.
type Done = Arc<std::sync::Mutex<Vec<RawMessage>>>;

/// Fails twice at each message while `fails` is set, and then leaves it to the source.
fn consume(stage: &Stage, source: KafkaSource, fails: &Arc<AtomicBool>, done: &Done) -> Intake {
    let _ = stage;
    let (fails, done) = (Arc::clone(fails), Arc::clone(done));
    let handler = boxed(move |raw: RawMessage| {
        let (fails, done) = (fails.load(Ordering::Relaxed), Arc::clone(&done));
        async move {
            if fails {
                return Err(format!("no funds for {:?}", raw.key).into());
            }
            done.lock().unwrap().push(raw);
            Ok(())
        }
    });
    let consumer = by_key()
        .retry(Retry::fixed(Duration::from_millis(2)).max_attempts(2))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(handler)
        .expect("a consumer");
    let settings = IntakeSettings::new().confirm_every(Duration::from_millis(20));
    consumer.consume_with(source, settings).expect("an intake")
}

fn source(stage: &Stage, letters: &Topic) -> KafkaSource {
    let builder = stage.topic.builder().dead_letters(&letters.name);
    builder.build().expect("a source")
}

fn text<'a>(letter: &'a RawMessage, name: &str) -> &'a str {
    let value = letter
        .header(name)
        .unwrap_or_else(|| panic!("{name}: {letter:?}"));
    std::str::from_utf8(value).expect("text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_has_the_record_and_says_what_became_of_it() {
    let stage = Stage::new(1).await;
    let letters = stage.topic.beside(".dead", &[]).await;
    let mut sent = vec![
        message(7, 1),
        RawMessage::new("").key("gone"),
        message(8, 3),
    ];
    sent[0].headers.push(("trace".into(), Some("a".into())));
    sent[1].is_tombstone = true;
    sent.push(RawMessage::new("no key"));
    stage.topic.produce(sent.clone()).await;
    let fails = Arc::new(AtomicBool::new(true));
    let intake = consume(&stage, source(&stage, &letters), &fails, &Done::default());
    stage.committed(&[4]).await;
    assert_eq!(intake.stop().await.dead_lettered, 4);
    let mut kept = letters.records().await;
    let offset = |letter: &RawMessage| text(letter, "keylane.offset").parse::<usize>().unwrap();
    kept.sort_by_key(offset);
    assert_eq!(kept.len(), 4);
    for (letter, sent) in kept.iter().zip(&sent) {
        assert_eq!((&letter.key, &letter.payload), (&sent.key, &sent.payload));
        assert_eq!(letter.is_tombstone, sent.is_tombstone);
        assert_eq!(text(letter, "keylane.topic"), stage.topic.name);
        assert_eq!(text(letter, "keylane.partition"), "0");
        assert_eq!(text(letter, "keylane.group"), stage.topic.group);
        assert_eq!(text(letter, "keylane.attempts"), "2");
        assert_eq!(text(letter, "keylane.cause"), "failed");
        assert!(text(letter, "keylane.error").contains("no funds for"));
        assert!(text(letter, "keylane.time").parse::<u64>().is_ok());
    }
    assert_eq!(kept[0].header("trace"), Some(&Bytes::from("a")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_go_back_in_the_order_of_their_keys_and_once() {
    const KEYS: u64 = 20;
    const EACH: u64 = 15;
    let stage = Stage::new(3).await;
    let letters = stage.topic.beside(".dead", &[]).await;
    let ids = stage.publish((0..KEYS * EACH).map(|n| n % KEYS)).await;
    let fails = Arc::new(AtomicBool::new(true));
    let done = Done::default();
    let intake = consume(&stage, source(&stage, &letters), &fails, &done);
    stage.nothing_left().await;
    assert_eq!(letters.records().await.len(), ids.len());

    fails.store(false, Ordering::Relaxed);
    let brokers = stage.topic.kafka.bootstrap();
    let producer = Producer::builder(&brokers).build().expect("a producer");
    let redrive = || Redrive::new(&brokers, &letters.name, producer.clone());
    let report = redrive().run().await.expect("a redrive");
    assert_eq!(report.redriven, ids.len() as u64);
    until("all were handled", async || {
        done.lock().unwrap().len() >= ids.len()
    })
    .await;
    stage.nothing_left().await;
    assert_eq!(redrive().run().await.expect("a redrive").redriven, 0);
    intake.stop().await;

    let done = done.lock().unwrap();
    assert_eq!(done.len(), ids.len());
    for key in 0..KEYS {
        let key = Some(Bytes::from(key.to_string()));
        let of_key = done.iter().filter(|raw| raw.key == key);
        let of_key: Vec<_> = of_key.filter_map(id_of).collect();
        assert!(
            of_key.len() == EACH as usize && of_key.is_sorted(),
            "{of_key:?}"
        );
    }
    // The headers of the letters are gone.
    assert!(done.iter().all(|raw| raw.headers.is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_waits_for_its_topic_and_the_others_go_on() {
    let stage = Stage::new(1).await;
    let mut letters = stage.topic.clone();
    letters.name += ".dead";
    stage.publish([7]).await;
    let fails = Arc::new(AtomicBool::new(true));
    let done = Done::default();
    let intake = consume(&stage, source(&stage, &letters), &fails, &done);
    until("it was received", async || intake.stats().received == 1).await;
    until("it is a letter", async || {
        // Its attempts are over when those of another one are.
        let _ = stage.publish([8]).await;
        intake.stats().received > 4
    })
    .await;
    fails.store(false, Ordering::Relaxed);
    stage.publish(100..120).await;
    until("others are handled", async || {
        done.lock().unwrap().len() >= 20
    })
    .await;
    assert_eq!(stage.topic.committed().await[0].0.unwrap_or_default(), 0);
    letters.create(&[]).await;
    stage.nothing_left().await;
    intake.stop().await;
    let kept: BTreeSet<_> = letters.records().await.iter().filter_map(id_of).collect();
    assert!(kept.contains(&1), "{kept:?}");
}

/// Otherwise the driver of the source, and so all other keys, would wait for each late letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_is_late_is_waited_for_once_and_not_again() {
    let stage = Stage::new(1).await;
    stage.publish(0..2).await;
    let builder = stage.topic.builder().dead_letters("there.is.no.such.topic");
    let mut source = builder.build().unwrap();
    source.open().await.unwrap();
    let mut into = Deliveries::new(2, Instant::now() + PATIENCE);
    while into.len() < 2 {
        source.receive(&mut into).await.unwrap();
    }
    let letters = into.take().into_iter().map(|one| {
        let position = one.position;
        move || SourceLetter::new(position, 1, LetterCause::Failed, "no funds".to_owned())
    });
    let letters: Vec<_> = letters.collect();
    for letter in &letters {
        assert!(source.dead_letter(letter()).await.is_err());
    }
    for letter in &letters {
        let again = pin!(source.dead_letter(letter()));
        let polled = again.poll(&mut task::Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Err(_))), "{polled:?}");
    }
    source.close().await.unwrap();
}

/// The broker stands still for longer than the source waits for a letter: while it reads the record,
/// or while it writes the letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_is_slow_is_no_failure_and_is_written_once() {
    show_log();
    let kafka = Arc::new(Kafka::start().await.expect("a broker"));
    let stage = Stage::of(Topic::new(kafka, 1).await);
    let kafka = &stage.topic.kafka;
    let letters = stage.topic.beside(".dead", &[]).await;
    // The first letter connects, and the others are in the middle of a fault.
    let faults: [fn(&Proxy); 3] = [|_| {}, Proxy::cut, Proxy::cut_to_client];
    let gate = Gate::new();
    let waits = gate.clone();
    let handler = boxed(move |_: RawMessage| {
        let waits = waits.clone();
        async move {
            waits.pass().await;
            Err("never".into())
        }
    });
    let consumer = by_key()
        .on_exhausted(OnExhausted::AtSource)
        .spawn(handler)
        .expect("a consumer");
    let builder = stage.topic.builder_at(kafka.proxied());
    let source = builder
        .property("session.timeout.ms", "45000")
        .dead_letters(&letters.name)
        .build();
    let intake = consumer.consume(source.expect("a source"));
    let intake = intake.expect("an intake");
    for (fault, count) in faults.iter().zip(1..) {
        stage.publish([1, 2, 3]).await;
        until("they are handled", async || gate.waiting() == 3).await;
        fault(kafka.proxy(0));
        gate.open();
        sleep(Duration::from_secs(3)).await;
        kafka.proxy(0).heal();
        until("the letters are kept", async || {
            intake.stats().dead_lettered == 3 * count
        })
        .await;
        gate.shut();
    }
    stage.nothing_left().await;
    intake.stop().await;
    assert_eq!(letters.records().await.len(), 3 * faults.len());
    let errors = logged(&stage.topic.name).into_iter();
    let errors: Vec<_> = errors.filter(|(level, _)| *level == Level::ERROR).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(consumer.stats().letter_failures, 0);
}

/// A letter that fails would become a letter again, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pattern_does_not_take_the_letters() {
    let stage = Stage::new(1).await;
    let letters = stage.topic.beside(".dead", &[]).await;
    let builder = KafkaSource::builder(stage.topic.kafka.bootstrap(), &stage.topic.group);
    let builder = builder
        .pattern(format!("{}.*", stage.topic.name))
        .property("topic.metadata.refresh.interval.ms", "200")
        .dead_letters(&letters.name);
    let fails = Arc::new(AtomicBool::new(true));
    let source = builder.build().expect("a source");
    let intake = consume(&stage, source, &fails, &Done::default());
    stage.publish(0..10).await;
    stage.committed(&[10]).await;
    // The topic of the letters would be found no later than this one.
    let other = stage.topic.beside(".other", &[]).await;
    other.produce(vec![message(1, 1)]).await;
    until("the other topic is read", async || {
        intake.stats().dead_lettered == 11
    })
    .await;
    intake.stop().await;
    assert_eq!(letters.records().await.len(), 11);
    assert_eq!(letters.committed().await[0].0, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_of_nowhere_stops_its_redrive() {
    let stage = Stage::new(1).await;
    stage.publish([1, 2]).await;
    let brokers = stage.topic.kafka.bootstrap();
    let producer = Producer::builder(&brokers).build().expect("a producer");
    let redrive = || Redrive::new(&brokers, &stage.topic.name, producer.clone());
    let error = redrive().run().await.expect_err("no topic");
    assert!(
        matches!(error, RedriveError::Stopped { redriven: 0, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("set one with `to`"), "{error}");

    let to = stage.topic.beside(".to", &[]).await;
    let report = redrive().to(&to.name).run().await.expect("a redrive");
    assert_eq!(report.redriven, 2);
    assert_eq!(to.records().await.len(), 2);
    let error = Redrive::new(&brokers, "no-such-topic", producer)
        .run()
        .await;
    let error = error.expect_err("no topic");
    assert!(matches!(error, RedriveError::NoTopic { .. }), "{error}");
    assert!(error.to_string().contains("create it"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topic_is_a_sink_of_a_dispatcher() {
    let stage = Stage::new(1).await;
    let letters = stage.topic.beside(".dead", &[]).await;
    let producer = Producer::builder(stage.topic.kafka.bootstrap()).build();
    let sink = DeadLetterTopic::new(producer.expect("a producer"), &letters.name);
    let consumer = by_key()
        .on_exhausted(OnExhausted::dead_letter(sink))
        .spawn(boxed(|_: RawMessage| async { Err("never".into()) }))
        .expect("a consumer");
    let source = stage.topic.builder().build().expect("a source");
    let intake = consumer.consume(source).expect("an intake");
    let ids = stage.publish(0..5).await;
    stage.nothing_left().await;
    intake.stop().await;
    let kept: Vec<_> = letters.records().await.iter().filter_map(id_of).collect();
    assert_eq!(BTreeSet::from_iter(kept), BTreeSet::from_iter(ids));
}

/// The topic of the letters does not exist. The intake says so before the first letter, and that it
/// is well when the topic is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_topic_of_letters_is_a_failed_part() {
    // Without one that makes topics of its own accord.
    show_log();
    let kafka = Kafka::builder().property("auto.create.topics.enable", "false");
    let kafka = Arc::new(kafka.start().await.expect("a broker"));
    let topic = Topic::new(Arc::clone(&kafka), 1).await;
    let letters = Topic::unmade(kafka, 1);
    let orders = by_key()
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(|_: RawMessage| async { Ok(()) }))
        .expect("a dispatcher");
    let source = topic.builder().dead_letters(&letters.name).build();
    let intake = orders
        .consume(source.expect("a source"))
        .expect("an intake");
    until("the topic is missed", async || {
        !intake.stats().failed_parts.is_empty()
    })
    .await;
    let failed = intake.stats().failed_parts;
    assert_eq!(failed[0].part, letters.name);
    assert!(failed[0].why.contains("create the topic"), "{failed:?}");
    letters.create(&[]).await;
    until("it is well", async || {
        intake.stats().failed_parts.is_empty()
    })
    .await;
    intake.stop().await;
}
