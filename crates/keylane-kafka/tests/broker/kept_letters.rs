//! Dead letters in a topic, of which an operator chooses single ones.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use keylane::source::RawMessage;
use keylane_kafka::{
    KafkaLetters, KafkaLettersError, LetterId, Producer, Redrive, RedriveError, metadata,
};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use testkit_servers::Kafka;

use crate::logs::{delete_records_below, transactions};
use crate::stage::{id_of, message, until};
use crate::support::{Topic, shared, show_log};

/// A topic of letters, the topic from which they came, and the group that marks them.
struct Shelf {
    letters: Topic,
    origin: Topic,
    producer: Producer,
}

impl Shelf {
    async fn new(partitions: i32) -> Self {
        show_log();
        Self::at(shared().await, partitions).await
    }

    async fn at(kafka: Arc<Kafka>, partitions: i32) -> Self {
        let origin = Topic::new(kafka, 1).await;
        let mut letters = origin.clone();
        letters.partitions = partitions;
        let mut letters = letters.beside(".dead", &[]).await;
        letters.group = format!("{}.redrive", letters.name);
        let producer = Producer::builder(origin.kafka.bootstrap())
            .property("topic.metadata.propagation.max.ms", "1000")
            .property("linger.ms", "0");
        Self {
            letters,
            origin,
            producer: producer.build().expect("a producer"),
        }
    }

    fn kept(&self) -> KafkaLetters {
        let brokers = self.letters.kafka.bootstrap();
        KafkaLetters::new(brokers, &self.letters.name, self.producer.clone())
    }

    fn redrive(&self) -> Redrive {
        let brokers = self.letters.kafka.bootstrap();
        Redrive::new(brokers, &self.letters.name, self.producer.clone())
    }

    /// The letter of a message of the topic.
    fn letter(&self, id: u64) -> RawMessage {
        let mut letter = message(id, id);
        for (name, value) in [
            ("trace", "a"),
            ("keylane.topic", &*self.origin.name),
            ("keylane.partition", "0"),
            ("keylane.offset", &id.to_string()),
            ("keylane.time", "1700"),
            ("keylane.clock", "broker"),
            ("keylane.group", "billing"),
            ("keylane.attempts", "5"),
            ("keylane.cause", "timed out"),
            ("keylane.error", "no funds"),
        ] {
            let value = bytes::Bytes::copy_from_slice(value.as_bytes());
            letter.headers.push((name.to_owned(), Some(value)));
        }
        letter
    }

    /// Writes the letters of these messages.
    async fn keep(&self, partition: i32, ids: impl IntoIterator<Item = u64>) {
        let letters = ids.into_iter().map(|id| self.letter(id)).collect();
        self.letters.produce_to(Some(partition), letters).await;
    }

    /// The messages that came back, in this order.
    async fn back(&self) -> Vec<u64> {
        let records = self.origin.records().await;
        records.iter().filter_map(id_of).collect()
    }
}

fn id(partition: i32, offset: u64) -> LetterId {
    format!("{partition}:{offset}").parse().expect("an id")
}

fn ids(partition: i32, offsets: impl IntoIterator<Item = u64>) -> Vec<LetterId> {
    let offsets = offsets.into_iter();
    offsets.map(|offset| id(partition, offset)).collect()
}

async fn listed(kept: &KafkaLetters) -> Vec<LetterId> {
    let letters = kept.list(None, 10_000).await.expect("letters");
    letters.iter().map(|letter| letter.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_letters_go_back_and_a_redrive_sends_the_rest() {
    let shelf = Shelf::new(3).await;
    shelf.keep(0, 0..5).await;
    shelf.keep(2, 5..8).await;
    let kept = shelf.kept();
    let all = [ids(0, 0..5), ids(2, 0..3)].concat();
    assert_eq!(listed(&kept).await, all);
    // Page by page.
    let mut pages = Vec::new();
    while let Ok(page) = kept.list(pages.last().copied(), 2).await
        && !page.is_empty()
    {
        assert!(page.len() <= 2);
        pages.extend(page.iter().map(|letter| letter.id));
    }
    assert_eq!(pages, all);

    let letter = kept.show(id(0, 2)).await.expect("a letter");
    let letter = letter.expect("a letter");
    assert_eq!(letter.message.payload, message(2, 2).payload);
    assert_eq!(letter.message.key, message(2, 2).key);
    let trace = ("trace".to_owned(), Some("a".into()));
    assert_eq!(letter.message.headers, [trace]);
    let place = format!("{}/0@2", shelf.origin.name);
    assert_eq!(letter.message.id, Some(place.into()));
    assert_eq!(letter.topic.as_ref(), Some(&shelf.origin.name));
    assert_eq!(letter.group.as_deref(), Some("billing"));
    assert_eq!((letter.attempts, &*letter.cause), (5, "timed out"));
    assert_eq!(letter.error, "no funds");
    assert!(letter.at.is_some());

    // In this order, each once, and no others.
    let chosen = [id(0, 3), id(2, 1), id(0, 1), id(0, 3), id(0, 99), id(7, 0)];
    assert_eq!(kept.redrive(&chosen).await.expect("a redrive"), 3);
    assert_eq!(shelf.back().await, [3, 6, 1]);
    assert_eq!(kept.redrive(&chosen).await.expect("a redrive"), 0);
    assert_eq!(kept.show(id(0, 3)).await.expect("an answer"), None);
    // Another handle, which has seen nothing of this, adds its marks to them.
    let other = shelf.kept();
    assert_eq!(other.purge(&[id(0, 2)]).await.expect("a purge"), 1);
    assert_eq!(other.purge(&[id(0, 2)]).await.expect("a purge"), 0);
    let rest = [id(0, 0), id(0, 4), id(2, 0), id(2, 2)];
    assert_eq!(listed(&kept).await, rest);

    let report = shelf.redrive().run().await.expect("a redrive");
    assert_eq!(report.redriven, 4);
    let mut back = shelf.back().await;
    back.sort_unstable();
    assert_eq!(back, [0, 1, 3, 4, 5, 6, 7]);
    assert!(listed(&kept).await.is_empty());
    shelf.keep(0, [8]).await;
    assert_eq!(listed(&kept).await, [id(0, 5)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_sends_nothing_and_a_redrive_leaves_its_letters_out() {
    let shelf = Shelf::new(1).await;
    shelf.keep(0, 0..250).await;
    let kept = shelf.kept();
    let purged = kept.purge(&ids(0, 1..249)).await.expect("a purge");
    assert_eq!(purged, 248);
    let report = shelf.redrive().run().await.expect("a redrive");
    assert_eq!(report.redriven, 2);
    // They have two keys, so either may be the first.
    let mut back = shelf.back().await;
    back.sort_unstable();
    assert_eq!(back, [0, 249]);
    // The records are there.
    assert_eq!(shelf.letters.records().await.len(), 250);
    assert_eq!(
        shelf.letters.committed().await,
        [(Some(250), String::new())]
    );
}

/// Marks of transactions, aborted letters, and letters that retention has removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaps_are_no_letters_and_hold_up_nothing() {
    let shelf = Shelf::new(1).await;
    let kept = shelf.kept().to(&shelf.origin.name);
    // A mark at 2, an aborted letter at 3 and its mark, letters at 5 and 7.
    let all = vec![
        (vec![(1, 0), (2, 1)], true),
        (vec![(3, 3)], false),
        (vec![(4, 5)], true),
        (vec![(5, 7)], true),
    ];
    transactions(&shelf.letters, all).await;
    let letters = [0, 1, 5, 7];
    assert_eq!(listed(&kept).await, ids(0, letters));
    let gaps = ids(0, [2, 3, 4, 6, 8]);
    assert_eq!(kept.show(id(0, 3)).await.expect("an answer"), None);
    assert_eq!(kept.purge(&gaps).await.expect("a purge"), 0);
    assert_eq!(kept.redrive(&gaps).await.expect("a redrive"), 0);
    assert_eq!(kept.redrive(&ids(0, [1, 0])).await.expect("a redrive"), 2);
    assert_eq!(shelf.back().await, [1, 0]);
    // It has passed the gap, since it has seen the letter behind it.
    assert_eq!(shelf.letters.committed().await[0].0, Some(5));
    delete_records_below(&shelf.letters, 7).await;
    assert_eq!(listed(&kept).await, [id(0, 7)]);
    assert_eq!(kept.redrive(&ids(0, [5, 7])).await.expect("a redrive"), 1);
    assert_eq!(shelf.back().await, [1, 0, 7]);
    assert!(listed(&kept).await.is_empty());
    let report = shelf.redrive().to(&shelf.origin.name).run().await;
    assert_eq!(report.expect("a redrive").redriven, 0);
}

/// A member of the group of the redrive, which is in it when this returns.
async fn member(shelf: &Shelf, protocol: &str) -> BaseConsumer {
    let mut client = shelf.letters.client();
    client.set("group.id", &shelf.letters.group);
    client.set("group.protocol", protocol);
    client.set("enable.auto.commit", "false");
    let name = shelf.letters.name.clone();
    let join = move || {
        let consumer: BaseConsumer = client.create().expect("a consumer");
        consumer.subscribe(&[&name]).expect("a subscription");
        while consumer.assignment().expect("partitions").count() == 0 {
            let _ = consumer.poll(Duration::from_millis(20));
        }
        consumer
    };
    tokio::task::spawn_blocking(join).await.expect("a member")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_while_a_redrive_runs() {
    for protocol in ["classic", "consumer"] {
        let shelf = Shelf::new(1).await;
        shelf.keep(0, 0..3).await;
        let member = member(&shelf, protocol).await;
        let kept = shelf.kept();
        for acted in [
            kept.redrive(&[id(0, 1)]).await,
            kept.purge(&[id(0, 1)]).await,
        ] {
            let error = acted.expect_err("the group has a member");
            let KafkaLettersError::GroupInUse { group } = &error else {
                panic!("{protocol}: {error}");
            };
            assert_eq!(*group, shelf.letters.group);
            assert!(error.to_string().contains("wait until"), "{error}");
        }
        assert!(shelf.back().await.is_empty());
        assert_eq!(listed(&kept).await.len(), 3);
        let leave = tokio::task::spawn_blocking(move || drop(member));
        leave.await.expect("it leaves");
        until("the group is free", async || {
            kept.purge(&[id(0, 1)])
                .await
                .is_ok_and(|purged| purged == 1)
        })
        .await;
        assert_eq!(kept.redrive(&[id(0, 2)]).await.expect("a redrive"), 1);
        assert_eq!(shelf.back().await, [2]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_is_named_with_what_to_do() {
    let shelf = Shelf::new(1).await;
    let brokers = shelf.letters.kafka.bootstrap();
    let none = KafkaLetters::new(&brokers, "no-such-letters", shelf.producer.clone());
    let errors = [
        none.list(None, 10).await.expect_err("no topic"),
        none.show(id(0, 0)).await.expect_err("no topic"),
        none.redrive(&[id(0, 0)]).await.expect_err("no topic"),
    ];
    for error in errors {
        let is_so =
            matches!(&error, KafkaLettersError::NoTopic { topic } if topic == "no-such-letters");
        assert!(is_so, "{error}");
        assert!(error.to_string().contains("create it"), "{error}");
    }
    // The first two go back, the third one cannot, and the fourth one waits.
    shelf.keep(0, 0..2).await;
    let mut nowhere = shelf.letter(2);
    nowhere.headers.retain(|(name, _)| name != "keylane.topic");
    let mut lost = shelf.letter(3);
    for (name, value) in &mut lost.headers {
        if name == "keylane.topic" {
            *value = Some("no-such-orders".into());
        }
    }
    shelf.letters.produce_to(Some(0), vec![nowhere, lost]).await;
    let kept = shelf.kept();
    let error = kept.redrive(&ids(0, 0..4)).await.expect_err("no topic");
    let KafkaLettersError::NoOrigin {
        id: at,
        redriven: 2,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(at, id(0, 2));
    assert_eq!(shelf.back().await, [0, 1]);
    assert_eq!(listed(&kept).await, ids(0, 2..4));
    let error = kept.redrive(&[id(0, 3)]).await.expect_err("no topic");
    let is_so = matches!(&error, KafkaLettersError::NotSent { redriven: 0, .. });
    assert!(
        is_so && error.to_string().contains("create the topic"),
        "{error}"
    );
    let error = shelf.redrive().to("no-such-orders").run().await;
    let error = error.expect_err("no topic");
    let is_so = matches!(error, RedriveError::Refused { redriven: 0, .. });
    assert!(
        is_so && error.to_string().contains("create the topic"),
        "{error}"
    );
    assert_eq!(
        kept.to(&shelf.origin.name)
            .redrive(&[id(0, 3)])
            .await
            .expect("it goes"),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_whose_marks_have_no_room() {
    const ROOM: usize = 12;
    let shelf = Shelf::new(1).await;
    shelf.keep(0, 0..60).await;
    let kept = shelf.kept().metadata_chars(ROOM);
    let odd = ids(0, (0..60).filter(|offset| offset % 2 == 1));
    let error = kept.redrive(&odd).await.expect_err("no room");
    let KafkaLettersError::MarksFull {
        oldest, most_chars, ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((oldest, most_chars), (id(0, 0), ROOM));
    assert!(shelf.back().await.is_empty());
    assert_eq!(listed(&kept).await.len(), 60);
    // All of a row have room, but not each part of it that may be sent.
    let from_both_ends = [
        odd.clone(),
        ids(0, (0..60).filter(|offset| offset % 2 == 0)),
    ]
    .concat();
    assert!(kept.redrive(&from_both_ends).await.is_err());
    assert!(shelf.back().await.is_empty());
    // The oldest ones first, as the error says.
    assert_eq!(kept.redrive(&ids(0, 0..55)).await.expect("a redrive"), 55);
    assert_eq!(kept.redrive(&[odd[29]]).await.expect("a redrive"), 1);
    assert_eq!(listed(&kept).await, ids(0, 55..59));
    let committed = shelf.letters.committed().await;
    let (Some(at), text) = &committed[0] else {
        panic!("{committed:?}");
    };
    assert!(text.len() <= ROOM);
    let beyond = metadata::decode(*at, text).expect("our own metadata");
    assert!(*at == 55 && beyond.contains(59));
}

/// The room is not known before the first commit that is too long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_went_back_without_a_mark_are_counted() {
    show_log();
    let kafka = Kafka::builder().property("offset.metadata.max.bytes", "16");
    let shelf = Shelf::at(Arc::new(kafka.start().await.expect("a broker")), 1).await;
    shelf.keep(0, 0..100).await;
    let odd = ids(0, (0..100).map(|offset| offset / 3 * 3 + 1));
    let kept = shelf.kept();
    let error = kept.redrive(&odd).await.expect_err("no room");
    let KafkaLettersError::Unmarked { unmarked: 33, why } = error else {
        panic!("{error}");
    };
    assert!(why.contains("the brokers accept"), "{why}");
    assert_eq!(shelf.back().await.len(), 33);
    assert_eq!(listed(&kept).await.len(), 100);
    let error = kept.clone().metadata_chars(16).redrive(&odd).await;
    let error = error.expect_err("no room");
    assert!(
        matches!(error, KafkaLettersError::MarksFull { .. }),
        "{error}"
    );
    assert_eq!(shelf.back().await.len(), 33);
}

/// The caller is gone while letters are sent, as when an operator stops a job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_when_the_caller_left_is_marked() {
    const LETTERS: u64 = 2_000;
    let shelf = Shelf::new(1).await;
    shelf.keep(0, 0..LETTERS).await;
    let kept = shelf.kept();
    let all = ids(0, 0..LETTERS);
    let end = async || shelf.origin.ends().await[0].1;
    {
        let mut redrive = pin!(kept.redrive(&all));
        tokio::select! {
            ended = &mut redrive => panic!("it has ended before it was dropped: {ended:?}"),
            () = until("some have gone", async || end().await >= 20) => {}
        }
    }
    // The next call begins when the first one has marked what it sent.
    assert_eq!(kept.purge(&[id(0, LETTERS - 1)]).await.expect("a purge"), 1);
    let back = shelf.back().await;
    let gone = BTreeSet::from_iter(back.iter().copied());
    assert_eq!(gone.len(), back.len(), "some went twice");
    assert!(gone.len() < 1_900, "{} went", gone.len());
    let left = listed(&kept).await;
    assert!(left.iter().all(|letter| !gone.contains(&letter.offset)));
    assert_eq!(left.len() + gone.len() + 1, all.len());
    let report = shelf.redrive().run().await.expect("a redrive");
    assert_eq!(report.redriven, left.len() as u64);
}
