//! A redrive that is interrupted, and run again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keylane::source::RawMessage;
use keylane_kafka::{Producer, Redrive, RedriveError, RedriveReport, metadata};
use testkit_servers::Kafka;
use tokio::runtime::Runtime;

use crate::stage::{Stage, id_of, place_of, until};
use crate::support::Topic;

const KEYS: u64 = 12;
const LETTERS: u64 = 4_000;

/// How many letters have gone back when a redrive is interrupted.
const GONE: u64 = 600;

/// Letters of some keys, and their target.
struct Shelf {
    stage: Stage,
    to: Topic,
    producer: Producer,
}

impl Shelf {
    async fn new() -> Self {
        let stage = Stage::new(3).await;
        let to = stage.topic.beside(".to", &[]).await;
        stage.publish((0..LETTERS).map(|n| n % KEYS)).await;
        let producer = Producer::builder(stage.topic.kafka.bootstrap()).build();
        Self {
            stage,
            to,
            producer: producer.expect("a producer"),
        }
    }

    fn redrive(&self) -> impl Future<Output = Result<RedriveReport, RedriveError>> + use<> {
        let topic = &self.stage.topic;
        let redrive = Redrive::new(topic.kafka.bootstrap(), &topic.name, self.producer.clone());
        redrive.group(&topic.group).to(&self.to.name).run()
    }

    /// Returns how many letters have arrived at their target.
    async fn gone(&self) -> u64 {
        let ends = self.to.ends().await;
        ends.iter().map(|(low, high)| high - low).sum()
    }

    async fn some_gone(&self) {
        until("some letters have gone", async || self.gone().await >= GONE).await;
    }

    /// Waits until the member of an earlier redrive has left its group.
    async fn left(&self) {
        let topic = &self.stage.topic;
        until("the redrive has left", async || {
            topic.members().await.is_empty()
        })
        .await;
    }

    /// The places of the letters that the group has committed.
    async fn confirmed(&self) -> BTreeSet<(i32, u64)> {
        let committed = self.stage.topic.committed().await;
        let places = (0..).zip(committed).flat_map(|(number, (at, text))| {
            let at = at.unwrap_or_default();
            let beyond = metadata::decode(at, &text).expect("our own metadata");
            let beyond: Vec<_> = beyond.runs().flatten().collect();
            let offsets = (0..at).chain(beyond);
            offsets.map(move |offset| (number, offset))
        });
        places.collect()
    }

    /// Runs it once more, and checks all letters that have gone back.
    async fn judge(self, confirmed: &BTreeSet<(i32, u64)>) {
        let report = self.redrive().await.expect("a redrive");
        let places = self.stage.topic.records().await;
        let places = places.iter().map(|raw| (id_of(raw), place_of(raw)));
        let places = BTreeMap::from_iter(places);
        let mut times = BTreeMap::<_, u64>::new();
        let mut firsts = BTreeMap::<_, Vec<_>>::new();
        let all = self.to.records().await;
        for raw in &all {
            let id = id_of(raw);
            let times = times.entry(id).or_default();
            *times += 1;
            if *times == 1 {
                firsts.entry(raw.key.clone()).or_default().push(id);
            }
        }
        let left = LETTERS - confirmed.len() as u64;
        assert_eq!(report.redriven, left);
        assert_eq!(times.len() as u64, LETTERS, "letters are lost");
        assert!(firsts.values().all(|of_key| of_key.is_sorted()));
        for (id, times) in times {
            let most = if confirmed.contains(&places[&id]) {
                1
            } else {
                2
            };
            assert!(times <= most, "{id:?} has gone {times} times of {most}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_that_is_dropped_ends_and_the_next_one_goes_on() {
    let shelf = Shelf::new().await;
    tokio::select! {
        ended = shelf.redrive() => panic!("it has ended before it was dropped: {ended:?}"),
        () = shelf.some_gone() => {}
    }
    let at_first = shelf.gone().await;
    shelf.left().await;
    let gone = shelf.gone().await;
    // One of each key was on its way.
    assert!(gone <= at_first + KEYS, "{at_first} and then {gone}");
    // And it is committed: no letter goes a second time.
    let confirmed = shelf.confirmed().await;
    assert_eq!(confirmed.len() as u64, gone);
    shelf.judge(&confirmed).await;
}

/// The proxy counts the bytes of the letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_can_never_go_back_is_tried_once() {
    const BYTES: usize = 500_000;
    let kafka = Arc::new(Kafka::start().await.expect("a broker"));
    let letters = Topic::new(kafka, 1).await;
    let to = letters
        .beside(".to", &[("max.message.bytes", "10000")])
        .await;
    let letter = RawMessage::new(vec![7; BYTES]).key("k");
    letters.produce(vec![letter]).await;
    let kafka = &letters.kafka;
    let producer = Producer::builder(kafka.proxied())
        .property("topic.metadata.propagation.max.ms", "1000")
        .build()
        .expect("a producer");
    let missing = format!("{}.missing", letters.name);
    for (to, is_refused) in [(&to.name, true), (&missing, false)] {
        let redrive = Redrive::new(kafka.bootstrap(), &letters.name, producer.clone());
        let error = redrive.to(to).run().await.expect_err("it cannot go back");
        let RedriveError::Refused { redriven: 0, error } = error else {
            panic!("{error}");
        };
        assert_eq!(error.is_refused(), is_refused, "{error}");
        assert!(!error.is_retryable(), "{error}");
    }
    let sent = kafka.proxy(0).traffic().to_server;
    let sent = usize::try_from(sent).expect("a few bytes");
    assert!((BYTES..2 * BYTES).contains(&sent), "{sent} bytes were sent");
}

/// All of its tasks end where they are, and settle and commit nothing more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_that_is_killed_loses_nothing_and_the_next_one_goes_on() {
    let shelf = Shelf::new().await;
    let runtime = Runtime::new().expect("a runtime");
    let redrive = runtime.spawn(shelf.redrive());
    shelf.some_gone().await;
    assert!(!redrive.is_finished(), "it has ended before it was killed");
    runtime.shutdown_background();
    shelf.left().await;
    let confirmed = shelf.confirmed().await;
    shelf.judge(&confirmed).await;
}
