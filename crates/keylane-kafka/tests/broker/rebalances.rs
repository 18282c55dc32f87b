//! Members come and go while records are handled: nothing is lost, nothing of a key overlaps or
//! changes its order, and only what was not committed is done again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane::source::RawMessage;
use keylane::{Dispatcher, Intake, IntakeSettings, OnExhausted};
use keylane_kafka::{Builder, Control};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::consumer::{record, text_of, until};
use crate::support::{Topic, shared};

const PARTITIONS: i32 = 6;
const KEYS: usize = 200;

/// How many records of each key are written at a time.
const AT_ONCE: u64 = 10;

/// How many rebalances each protocol has; more are for long runs.
fn rebalances() -> usize {
    let asked = std::env::var("KEYLANE_KAFKA_REBALANCES");
    let asked = asked.ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(7)
}

/// What all members have done.
#[derive(Default)]
struct History {
    /// Which record of a key is running.
    running: BTreeMap<String, u64>,
    /// The records of each key, in the order of their first starts.
    firsts: BTreeMap<String, Vec<u64>>,
    ended: BTreeSet<(String, u64)>,
    /// Starts of records that had ended before.
    repeats: usize,
    wrong: Vec<String>,
}

impl History {
    fn starts(&mut self, key: &str, seq: u64) {
        if let Some(other) = self.running.insert(key.to_owned(), seq) {
            self.wrong
                .push(format!("{key}/{seq} started while {key}/{other} ran"));
        }
        let firsts = self.firsts.entry(key.to_owned()).or_default();
        match firsts.last() {
            Some(last) if *last >= seq && !firsts.contains(&seq) => {
                self.wrong
                    .push(format!("{key}/{seq} came after {key}/{last}"));
            }
            _ if firsts.contains(&seq) => {}
            _ => firsts.push(seq),
        }
        self.repeats += usize::from(self.ended.contains(&(key.to_owned(), seq)));
    }

    fn ends(&mut self, key: &str, seq: u64) {
        self.ended.insert((key.to_owned(), seq));
    }
}

/// An attempt. One that is dropped has ended as well, and is not done.
struct Attempt(Arc<Mutex<History>>, String);

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.lock().expect("no panic").running.remove(&self.1);
    }
}

struct Member {
    intake: Intake,
    control: Control,
    dispatcher: Dispatcher<Bytes, RawMessage, (), io::Error>,
}

impl Member {
    fn join(builder: Builder, history: &Arc<Mutex<History>>) -> Self {
        let source = builder.build().expect("a source");
        let control = source.control();
        let history = Arc::clone(history);
        let dispatcher = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
            .on_exhausted(OnExhausted::Halt)
            .spawn(move |raw: RawMessage| {
                let history = Arc::clone(&history);
                async move {
                    let key = text_of(raw.key.as_deref().unwrap_or_default());
                    let seq = text_of(&raw.payload).parse().expect("a number");
                    history.lock().expect("no panic").starts(&key, seq);
                    let attempt = Attempt(Arc::clone(&history), key.clone());
                    sleep(Duration::from_millis(seq % 4)).await;
                    history.lock().expect("no panic").ends(&key, seq);
                    drop(attempt);
                    Ok::<(), io::Error>(())
                }
            })
            .expect("a dispatcher");
        let settings = IntakeSettings::new().revoke_within(Duration::from_secs(5));
        let intake = dispatcher
            .consume_with(source, settings)
            .expect("an intake");
        Self {
            intake,
            control,
            dispatcher,
        }
    }

    async fn leave(self) {
        self.intake.stop().within(Duration::ZERO).await;
        self.dispatcher.close().await;
    }
}

/// All partitions are somewhere, and each member has some.
async fn shared_out(members: &[Member]) {
    until("all members have partitions", || {
        let counts = members
            .iter()
            .map(|member| member.control.partitions().len());
        let counts: Vec<_> = counts.collect();
        counts.iter().sum::<usize>() == PARTITIONS as usize && !counts.contains(&0)
    })
    .await;
}

/// Writes records of all keys until it is told to end. Returns how many there are of each.
fn produce(topic: Topic, ends: Arc<AtomicBool>) -> JoinHandle<u64> {
    tokio::spawn(async move {
        let mut seq = 0;
        while !ends.load(Ordering::Relaxed) {
            let of_all =
                |seq: u64| (0..KEYS).map(move |key| record(&format!("key-{key}"), seq.to_string()));
            topic
                .produce((seq..seq + AT_ONCE).flat_map(of_all).collect())
                .await;
            seq += AT_ONCE;
        }
        seq
    })
}

/// Sees that no committed offset goes back.
fn watch(topic: Topic, ends: Arc<AtomicBool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut last = vec![0; PARTITIONS as usize];
        while !ends.load(Ordering::Relaxed) {
            for (number, (at, _)) in topic.committed().await.iter().enumerate() {
                let at = at.unwrap_or(0);
                assert!(at >= last[number], "partition {number} went back to {at}");
                last[number] = at;
            }
            sleep(Duration::from_millis(50)).await;
        }
    })
}

async fn rebalance(builder: impl Fn(&Topic) -> Builder) {
    let topic = Topic::new(shared().await, PARTITIONS).await;
    let history = Arc::new(Mutex::new(History::default()));
    let ends = Arc::new(AtomicBool::new(false));
    let producing = produce(topic.clone(), Arc::clone(&ends));
    let watching = watch(topic.clone(), Arc::clone(&ends));
    let mut members = vec![Member::join(builder(&topic), &history)];
    for turn in 0..rebalances() {
        match members.len() {
            1 => members.push(Member::join(builder(&topic), &history)),
            2 if turn % 2 == 0 => members.push(Member::join(builder(&topic), &history)),
            // The oldest one, which has led the group.
            _ => members.remove(0).leave().await,
        }
        shared_out(&members).await;
    }
    ends.store(true, Ordering::Relaxed);
    let each = producing.await.expect("records");
    watching.await.expect("no offset went back");
    let all = KEYS * usize::try_from(each).expect("a number");
    until("all are handled", || {
        history.lock().expect("no panic").ended.len() >= all
    })
    .await;
    for member in members {
        member.leave().await;
    }
    {
        let history = history.lock().expect("no panic");
        assert_eq!(history.wrong, Vec::<String>::new());
        assert_eq!(history.ended.len(), all);
        // They leave in order: what they have done is committed before.
        println!("{all} records, {} done again", history.repeats);
        assert_eq!(history.repeats, 0);
    }
    assert_eq!(topic.left().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_taken_from_everyone() {
    rebalance(|topic| {
        let builder = topic.builder();
        builder.property("partition.assignment.strategy", "range")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_moves_is_taken() {
    rebalance(Topic::builder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_decides() {
    rebalance(|topic| {
        let builder = topic.builder_of_new_protocol(topic.kafka.bootstrap());
        builder.property("group.protocol", "consumer")
    })
    .await;
}
