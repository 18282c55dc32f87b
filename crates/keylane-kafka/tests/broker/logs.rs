//! The effects of a log on its readers: gaps, markers of transactions, truncated logs, topics that
//! appear, disappear and grow, and records without a key, a payload or a valid format.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::IntakeState;
use keylane::error::BoxError;
use keylane::source::{RawLetter, RawLetterSink, RawMessage, Source as _};
use keylane_kafka::{Keyless, Place, StartAt};
use keylane_testkit::scenario::give_up;
use keylane_testkit::{Act, Evidence, Gate, Lines, Rule};
use rdkafka::admin::{AdminOptions, NewPartitions};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use testkit_servers::Kafka;

use crate::stage::{Member, Stage, id_of, message, until, waiting};
use crate::support::{PATIENCE, Topic, shared, show_log};

/// Returns the offsets in the log of partition 0.
async fn offsets_there(topic: &Topic) -> BTreeSet<u64> {
    let (topic, consumer) = (topic.clone(), topic.consumer());
    let read = move || {
        let (low, high) = consumer
            .fetch_watermarks(&topic.name, 0, PATIENCE)
            .expect("the ends");
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(&topic.name, 0, Offset::Offset(low))
            .expect("an offset");
        consumer.assign(&from).expect("a partition");
        let mut there = BTreeSet::new();
        while there.last() != Some(&(high.unsigned_abs() - 1)) {
            if let Some(record) = consumer.poll(Duration::from_millis(100)) {
                there.insert(record.expect("a record").offset().unsigned_abs());
            }
        }
        there
    };
    tokio::task::spawn_blocking(read).await.expect("records")
}

pub(crate) async fn delete_records_below(topic: &Topic, offset: u64) {
    let mut below = TopicPartitionList::new();
    let at = Offset::Offset(offset.cast_signed());
    below
        .add_partition_offset(&topic.name, 0, at)
        .expect("an offset");
    let deleted = topic
        .admin()
        .delete_records(&below, &AdminOptions::new())
        .await;
    deleted.expect("records are deleted");
}

async fn delete_topic(topic: &Topic) {
    let deleted = topic
        .admin()
        .delete_topics(&[&topic.name], &AdminOptions::new())
        .await;
    deleted.expect("a topic").remove(0).expect("it is deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_frontier_passes_the_gaps_of_a_compacted_log() {
    show_log();
    let settings = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("segment.ms", "100"),
        ("delete.retention.ms", "0"),
    ];
    let stage = Stage::of(Topic::with(shared().await, 1, &settings).await);
    stage.publish((0..100).map(|n| n % 5)).await;
    // The active segment is not compacted: a later record begins the next one.
    let mut last = 99;
    until("the log has gaps", async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        stage.publish([5]).await;
        last += 1;
        offsets_there(&stage.topic).await.len() < 60
    })
    .await;
    let member = stage.member();
    stage.committed(&[last + 1]).await;
    let handled = BTreeSet::from_iter(stage.offsets(0));
    assert!(handled.len() < 60 + 40, "{handled:?}");
    assert!(offsets_there(&stage.topic).await.is_subset(&handled));
    member.stop().await;
}

/// Writes these keys in one transaction for each inner list, with whether it is committed.
pub(crate) async fn transactions(topic: &Topic, all: Vec<(Vec<(u64, u64)>, bool)>) {
    let mut client = topic.client();
    client.set("transactional.id", &topic.name);
    let name = topic.name.clone();
    let write = move || {
        let producer: BaseProducer = client.create().expect("a producer");
        producer.init_transactions(PATIENCE).expect("transactions");
        for (records, is_committed) in all {
            producer.begin_transaction().expect("a transaction");
            for (key, id) in records {
                let raw = message(key, id);
                let key = raw.key.expect("a key");
                let record = BaseRecord::to(&name)
                    .key(&key[..])
                    .payload(&raw.payload[..]);
                assert!(producer.send(record).is_ok(), "a record");
            }
            producer.flush(PATIENCE).expect("the records are there");
            let ended = match is_committed {
                true => producer.commit_transaction(PATIENCE),
                false => producer.abort_transaction(PATIENCE),
            };
            ended.expect("the end of a transaction");
        }
    };
    tokio::task::spawn_blocking(write).await.expect("records");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_records_are_not_handled_and_hold_up_nothing() {
    let stage = Stage::new(1).await;
    let member = stage.member();
    let all = (0..20).map(|n| {
        let records = (0..5).map(|i| (i, 5 * n + i)).collect();
        (records, n % 2 == 0)
    });
    // The last one is aborted: the log ends without a record to hand over.
    transactions(&stage.topic, all.collect()).await;
    stage.handled(50).await;
    // A marker behind the last record is passed with the next record.
    transactions(&stage.topic, vec![(vec![(1, 1_000)], true)]).await;
    stage.handled(51).await;
    // Five records and a marker for each transaction.
    stage.committed(&[20 * 6 + 1]).await;
    member.stop().await;
    let ids: Vec<_> = stage.done().iter().filter_map(id_of).collect();
    assert_eq!(ids.len(), 51);
    let is_committed = |id: &u64| *id == 1_000 || (id / 5).is_multiple_of(2);
    assert!(ids.iter().all(is_committed), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_was_cut_off_while_stopped_goes_on_at_its_new_start() {
    let stage = Stage::new(1).await;
    stage.publish([1; 10]).await;
    let member = stage.member();
    stage.committed(&[10]).await;
    member.stop().await;
    stage.publish([1; 20]).await;
    delete_records_below(&stage.topic, 20).await;
    let member = stage.member();
    stage.committed(&[30]).await;
    member.stop().await;
    let expected: Vec<_> = (0..10).chain(20..30).collect();
    assert_eq!(stage.offsets(0), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_cut_off_while_consumed_holds_up_nothing() {
    let stage = Stage::new(1).await;
    let gate = Gate::new();
    // More than the lane has room for: the rest is read again, and is gone by then.
    stage.publish([1; 400]).await;
    let member = stage.member_with(waiting(&stage, &gate, |id| id <= 400));
    until("all are held", async || {
        member.intake.stats().held == 400 && gate.waiting() == 1
    })
    .await;
    delete_records_below(&stage.topic, 300).await;
    gate.open();
    stage.publish([1, 2]).await;
    stage.committed(&[402]).await;
    member.stop().await;
    let offsets = stage.offsets(0);
    assert!(offsets.ends_with(&Vec::from_iter(300..402)), "{offsets:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_made_anew_is_handled_from_its_start() {
    made_anew(5, "500").await;
}

/// The new log has a record where the old one ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_made_anew_and_longer_is_handled_from_its_start() {
    made_anew(30, "500").await;
}

/// It happens between two metadata requests: the client never sees that the topic was gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_made_anew_unseen_is_handled_from_its_start() {
    made_anew(5, "300000").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_made_anew_unseen_and_longer_is_handled_from_its_start() {
    made_anew(30, "300000").await;
}

/// The committed offsets of the group are deleted with the topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_made_anew_while_stopped_is_handled_from_its_start() {
    let stage = Stage::new(1).await;
    let gate = Gate::new();
    stage.publish([1, 2, 2, 2, 2, 2, 2, 2, 2, 2]).await;
    // The first record stays open: the metadata of the commit contains the done records beyond it.
    let member = stage.member_with(waiting(&stage, &gate, |id| id == 1));
    until("what is done is committed", async || {
        !stage.topic.committed().await[0].1.is_empty() && stage.done().len() == 9
    })
    .await;
    member.stop().await;
    make_anew(&stage).await;
    let ids = stage.publish(0..30).await;
    let member = stage.member();
    are_done(&stage, &ids).await;
    stage.committed(&[30]).await;
    member.stop().await;
}

/// Records of the old topic settle when the new one exists: they do not count for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_settles_of_an_old_topic_leaves_out_nothing_of_the_new_one() {
    let stage = Stage::new(1).await;
    let gate = Gate::new();
    stage.publish([1; 10]).await;
    let member = stage.member_with(waiting(&stage, &gate, |id| id <= 10));
    until("all are held", async || member.intake.stats().held == 10).await;
    make_anew(&stage).await;
    let ids = stage.publish(vec![2; 30]).await;
    gate.open();
    are_done(&stage, &ids).await;
    stage.committed(&[30]).await;
    member.stop().await;
}

async fn are_done(stage: &Stage, ids: &[u64]) {
    until("the records of the new topic were handled", async || {
        let done: BTreeSet<_> = stage.done().iter().filter_map(id_of).collect();
        ids.iter().all(|id| done.contains(id))
    })
    .await;
}

/// Deletes the topic, and creates another one with its name.
async fn make_anew(stage: &Stage) {
    delete_topic(&stage.topic).await;
    // It is deleted in the background, and keeps its name until then.
    until("the topic is gone", async || {
        let consumer = stage.topic.consumer();
        let all = consumer.fetch_metadata(None, PATIENCE).expect("topics");
        all.topics()
            .iter()
            .all(|one| one.name() != stage.topic.name)
    })
    .await;
    stage.topic.create(&[]).await;
}

async fn made_anew(records: usize, refresh_ms: &str) {
    let stage = Stage::new(1).await;
    stage.publish([1; 10]).await;
    let builder = stage.topic.builder();
    let builder = builder.property("topic.metadata.refresh.interval.ms", refresh_ms);
    let member = stage.member_of(builder, stage.script());
    stage.committed(&[10]).await;
    make_anew(&stage).await;
    let ids = stage.publish(vec![1; records]).await;
    are_done(&stage, &ids).await;
    stage.committed(&[records as u64]).await;
    member.stop().await;
}

/// The client goes on at its position, in a log that is long enough for that. The same holds with
/// `Latest`: the group begins with the old topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_made_anew_while_its_broker_is_away_is_handled_from_its_start() {
    show_log();
    let kafka = Arc::new(Kafka::start().await.expect("a broker"));
    for (has_read, is_committed) in [(true, false), (false, false), (true, true)] {
        let stage = Stage::of(Topic::new(Arc::clone(&kafka), 1).await);
        let join = || {
            let builder = stage.topic.builder_at(kafka.proxied());
            let builder = builder.start_at(StartAt::Latest);
            // It stays in its group, or is removed from it.
            let session_ms = if is_committed { "3000" } else { "45000" };
            let builder = builder.property("session.timeout.ms", session_ms);
            stage.member_of(builder, stage.script())
        };
        let mut member = join();
        stage.committed(&[0]).await;
        stage.publish([1; 10]).await;
        stage.committed(&[10]).await;
        if !has_read {
            member.stop().await;
            member = join();
            member.has(1).await;
        }
        let proxy = kafka.proxy(0);
        proxy.cut();
        make_anew(&stage).await;
        let ids = stage.publish(vec![1; 30]).await;
        if is_committed {
            until("the group is empty", async || {
                tokio::time::sleep(Duration::from_millis(50)).await;
                stage.topic.members().await.is_empty()
            })
            .await;
            // As if the last commit of the old topic had come late.
            commit(&stage.topic, 10, "").await;
        }
        proxy.reset();
        proxy.heal();
        are_done(&stage, &ids).await;
        stage.committed(&[30]).await;
        let error = member.intake.stats().last_error.expect("it is said");
        assert!(error.contains("created again"), "{error}");
        member.stop().await;
    }
}

/// The offset belongs to another log. The client goes to the first record, and does so again when
/// it is told a second time where the partition begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_ends_below_what_is_committed_is_handled_from_its_start() {
    let stage = Stage::new(1).await;
    let ids = stage.publish(vec![1; 30]).await;
    commit(&stage.topic, 200, "").await;
    let member = stage.member();
    are_done(&stage, &ids).await;
    stage.committed(&[30]).await;
    member.stop().await;
}

/// Its late settlements cannot be committed, which is no failure of the source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_goes_with_work_in_flight_holds_up_no_other() {
    show_log();
    let stage = Stage::new(1).await;
    let other = stage.topic.beside("-other", &[]).await;
    stage.publish([1; 3]).await;
    let of_other = (100..103).map(|id| message(id, id));
    other.produce(of_other.collect()).await;
    let gate = Gate::new();
    let builder = stage.topic.builder().topic(&other.name);
    let member = stage.member_of(builder, waiting(&stage, &gate, |_| true));
    until("all are held", async || member.intake.stats().held == 6).await;
    delete_topic(&stage.topic).await;
    gate.open();
    until(
        "what is done of the other is known to be committed",
        async || {
            let all = member.control.partitions();
            let mut of_other = all.iter().filter(|one| one.topic == other.name);
            of_other.any(|one| one.committed == Some(3))
        },
    )
    .await;
    let stats = member.intake.stats();
    assert_eq!((stats.restarts, stats.last_error), (0, None));
    let report = member.stop().await;
    // Those of the topic that is gone may be lost before they are done.
    assert_eq!(report.received, 6, "{report}");
    assert!(report.acked >= 3, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_are_added_are_handled() {
    let mut stage = Stage::new(1).await;
    stage.publish([1]).await;
    let member = stage.member();
    stage.handled(1).await;
    let admin = stage.topic.admin();
    let more = [NewPartitions::new(&stage.topic.name, 3)];
    let grown = admin.create_partitions(&more, &AdminOptions::new()).await;
    grown.expect("a topic").remove(0).expect("it grows");
    member.has(3).await;
    stage.topic.partitions = 3;
    for partition in 0..3 {
        stage.publish_to(Some(partition), [10, 11]).await;
    }
    stage.committed(&[3, 2, 2]).await;
    member.stop().await;
    assert_eq!(stage.done().len(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_may_appear_late() {
    show_log();
    let stage = Stage::of(Topic::unmade(shared().await, 2));
    let member = stage.member();
    until("it runs", async || {
        member.intake.stats().state == IntakeState::Running
    })
    .await;
    stage.topic.create(&[]).await;
    stage.publish(0..10).await;
    stage.handled(10).await;
    stage.nothing_left().await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tombstones_headers_and_empty_payloads_come_as_they_are() {
    let stage = Stage::new(1).await;
    let mut tombstone = RawMessage::new("").key("gone");
    tombstone.is_tombstone = true;
    let empty = RawMessage::new("").key("");
    let mut full = RawMessage::new("full").key("k");
    for (name, value) in [
        ("a", Some("1")),
        ("a", Some("2")),
        ("", Some("")),
        ("", None),
    ] {
        let value = value.map(Bytes::from);
        full.headers.push((name.to_owned(), value));
    }
    let sent = [tombstone, empty, full];
    stage.topic.produce(sent.to_vec()).await;
    let member = stage.member();
    stage.committed(&[3]).await;
    member.stop().await;
    let mut done = stage.done();
    done.sort_by_key(|raw| Place::of(raw).map(|place| place.offset));
    for (sent, done) in sent.iter().zip(&done) {
        assert_eq!(done.is_tombstone, sent.is_tombstone);
        assert_eq!((&done.key, &done.payload), (&sent.key, &sent.payload));
        assert_eq!(done.headers, sent.headers);
        assert!(done.enqueued_at.is_some());
    }
}

/// Missing keys have crashed consumers of other systems.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_without_a_key_have_no_order_or_that_of_their_partition() {
    for keyless in [Keyless::Unordered, Keyless::ByPartition] {
        let stage = Stage::new(1).await;
        let messages = (1..=6_u64).map(|id| RawMessage::new(id.to_be_bytes().to_vec()));
        stage.topic.produce(messages.collect()).await;
        let gate = Gate::new();
        let script = waiting(&stage, &gate, |_| true);
        let member = stage.member_of(stage.topic.builder().keyless(keyless), script);
        let at_once = match keyless {
            Keyless::Unordered => 6,
            _ => 1,
        };
        until("all of them are here", async || {
            member.intake.stats().held == 6 && gate.waiting() == at_once
        })
        .await;
        gate.open();
        stage.committed(&[6]).await;
        member.stop().await;
        let done = stage.done();
        let keys: BTreeSet<_> = done.iter().map(|raw| raw.key.clone()).collect();
        let key = match keyless {
            Keyless::Unordered => None,
            _ => Some(Bytes::from(format!("{}/0", stage.topic.name))),
        };
        assert_eq!(keys, [key].into());
        if keyless == Keyless::ByPartition {
            let ids: Vec<_> = done.iter().filter_map(id_of).collect();
            assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
        }
    }
}

/// Parallel Consumer has a lane for each partition and key, so one key of two topics runs twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_of_two_topics_never_overlaps() {
    let stage = Stage::new(1).await;
    let other = Topic::new(shared().await, 1).await;
    for id in 1..=40 {
        let topic = [&stage.topic, &other][id as usize % 2];
        let sending = stage.history.sending(7, id, id);
        topic.produce(vec![message(7, id)]).await;
        sending.ok();
    }
    let script = stage
        .script()
        .otherwise(Act::ok().sleeps(Duration::from_millis(1)));
    let member = stage.member_of(stage.topic.builder().topic(&other.name), script);
    stage.handled(40).await;
    member.stop().await;
    let evidence = Evidence::new().redelivers();
    let broken = stage.history.check(&evidence).err().unwrap_or_default();
    let overlaps: Vec<_> = broken
        .iter()
        .filter(|violation| violation.rule == Rule::Exclusion)
        .collect();
    assert!(overlaps.is_empty(), "{overlaps:?}");
}

/// A key is equal by its bytes, wherever they are in memory; it need not be text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_equal_if_their_bytes_are() {
    let stage = Stage::new(1).await;
    let keys: [&[u8]; 3] = [b"\xff\x00", b"\xff", b""];
    let messages = (1..=30_u64).map(|id| {
        let key = keys[id as usize % 3].to_vec();
        RawMessage::new(id.to_be_bytes().to_vec()).key(key)
    });
    stage.topic.produce(messages.collect()).await;
    let gate = Gate::new();
    let member = stage.member_with(waiting(&stage, &gate, |_| true));
    until("one of each key runs", async || {
        member.intake.stats().held == 30 && gate.waiting() == 3
    })
    .await;
    gate.open();
    stage.committed(&[30]).await;
    member.stop().await;
    for key in keys {
        let done = stage.done();
        let of_key = done.iter().filter(|raw| raw.key.as_deref() == Some(key));
        let ids: Vec<_> = of_key.filter_map(id_of).collect();
        assert!(ids.len() == 10 && ids.is_sorted(), "{key:?}: {ids:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_at_the_end_of_the_log_is_remembered() {
    let stage = Stage::new(1).await;
    stage.publish([1; 5]).await;
    let latest = || stage.topic.builder().start_at(StartAt::Latest);
    let member = stage.member_of(latest(), stage.script());
    stage.committed(&[5]).await;
    member.stop().await;
    // The group has no member at this time.
    stage.publish([1; 5]).await;
    let member = stage.member_of(latest(), stage.script());
    stage.committed(&[10]).await;
    member.stop().await;
    assert_eq!(stage.offsets(0), [5, 6, 7, 8, 9]);
}

/// Keeps letters.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<RawLetter>>>);

#[keylane::async_trait]
impl RawLetterSink for Shelf {
    async fn accept(&self, letter: &RawLetter) -> Result<(), BoxError> {
        let letter = RawLetter::new(letter.raw.clone(), letter.error.to_string(), "");
        self.0.lock().unwrap().push(letter);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_decoded_is_a_letter_and_holds_up_nothing() {
    let stage = Stage::new(1).await;
    let messages = (1..=9_u64).map(|id| match id % 3 {
        0 => RawMessage::new("odd").key("7"),
        _ => message(7, id),
    });
    stage.topic.produce(messages.collect()).await;
    let shelf = Shelf::default();
    let source = stage.topic.builder().build().expect("a source");
    let control = source.control();
    let decoded = source
        .decode(|raw| match id_of(raw) {
            Some(_) => Ok(raw.clone()),
            None => Err("too short".into()),
        })
        .letters(shelf.clone());
    let member = Member::new(decoded, control, stage.consumer(stage.script()));
    stage.committed(&[9]).await;
    member.stop().await;
    let letters = shelf.0.lock().unwrap();
    let places: Vec<_> = letters
        .iter()
        .map(|letter| Place::of(&letter.raw).expect("a place").offset)
        .collect();
    assert_eq!(places, [2, 5, 8]);
    assert!(letters.iter().all(|one| one.raw.payload == "odd"));
    assert_eq!(stage.offsets(0), [0, 1, 3, 4, 6, 7]);
}

/// Commits an offset with this metadata, as another program would.
pub(crate) async fn commit(topic: &Topic, at: u64, text: &str) {
    let (name, consumer, text) = (topic.name.clone(), topic.consumer(), text.to_owned());
    let commit = move || {
        let mut list = TopicPartitionList::new();
        let mut element = list.add_partition(&name, 0);
        element
            .set_offset(Offset::Offset(at.cast_signed()))
            .expect("an offset");
        element.set_metadata(&text);
        let consumer: BaseConsumer = consumer;
        consumer.commit(&list, CommitMode::Sync).expect("a commit");
    };
    tokio::task::spawn_blocking(commit).await.expect("a commit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_others_and_damaged_one_is_ignored_and_nothing_is_left_out() {
    // Metadata of another program, of an unknown encoding, truncated, or with an invalid frame.
    for text in ["host-7", "{\"at\": 3}", "/w==", "bgAB", "Sii1L/0A", "bA=="] {
        let stage = Stage::new(1).await;
        stage.publish([1; 10]).await;
        commit(&stage.topic, 4, text).await;
        let member = stage.member();
        stage.committed(&[10]).await;
        member.stop().await;
        assert_eq!(stage.offsets(0), [4, 5, 6, 7, 8, 9], "{text}");
    }
}

#[tokio::test]
async fn the_lines_about_a_record_name_its_topic_partition_and_offset() {
    let topic = Topic::new(shared().await, 3).await;
    let messages = (0..2).map(|id| message(7, id)).collect();
    topic.produce_to(Some(2), messages).await;
    let lines = Lines::new();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.writer());
    // On one thread, so that all of it is logged to these lines.
    let _on = keylane_testkit::set_subscriber(subscriber.finish());
    let source = topic.builder().build().expect("a source");
    let named = keylane::source::Source::name(&source);
    give_up(source, 2).await;
    for offset in 0..2 {
        let position = format!("source={named} position={}/2@{offset} attempt", topic.name);
        assert_eq!(
            lines.with(&position).len(),
            3,
            "{position}: {:#?}",
            lines.all()
        );
    }
    lines.assert_named(&format!("position={}/2@", topic.name));
}
