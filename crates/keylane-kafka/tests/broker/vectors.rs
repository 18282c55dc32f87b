//! Metadata of commits that Parallel Consumer has written, in each of its encodings: a group
//! resumes from there, and handles exactly the records that are not done.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_testkit::scenario::boxed;
use serde_json::Value;
use testkit_servers::Kafka;
use tokio::task::LocalSet;

use crate::logs::commit;
use crate::records::Order;
use crate::stage::until;
use crate::support::{Topic, show_log};

/// The number of records below the committed offset, as far as there is room for them.
const BELOW: u64 = 3;

/// The number of records after Parallel Consumer's commit.
const BEHIND: u64 = 5;

/// A broker with any limit closes the connection at a commit with longer metadata: the length of a
/// string has two bytes there.
const MOST_CHARS: usize = 32_767;

/// A test vector of Parallel Consumer: the committed offset, one past the last done offset, the
/// offsets below it that are not done, and the same as metadata in each of its encodings.
struct Vector {
    name: String,
    committed: u64,
    end: u64,
    not_done: Vec<Range<u64>>,
    texts: Vec<(String, String)>,
}

impl Vector {
    fn of(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let committed = value["committed"].as_u64().unwrap();
        let not_done = value["incomplete"].as_array().unwrap().iter().map(|run| {
            let start = committed + run[0].as_u64().unwrap();
            start..start + run[1].as_u64().unwrap()
        });
        let texts = value["payloads"].as_array().unwrap().iter();
        let texts = texts.map(|one| (text(&one["encoding"]), text(&one["metadata"])));
        Self {
            name: text(&value["name"]),
            committed,
            end: value["highest"].as_u64().unwrap() + 1,
            not_done: not_done.collect(),
            texts: texts.collect(),
        }
    }

    fn all() -> Vec<Self> {
        let text = include_str!("../data/parallel_consumer.json");
        let all: Value = serde_json::from_str(text).unwrap();
        let all = all["vectors"].as_array().unwrap().iter();
        all.map(Self::of).collect()
    }

    /// Returns where the log of its topic begins.
    fn first(&self) -> u64 {
        self.committed.saturating_sub(BELOW)
    }

    /// Returns where it ends.
    fn last(&self) -> u64 {
        self.end + BEHIND
    }

    /// Returns the offsets that are not done.
    fn left(&self) -> Vec<u64> {
        let not_done = self.not_done.iter().cloned().flatten();
        not_done.chain(self.end..self.last()).collect()
    }
}

/// Makes the empty log of a topic begin at this offset, while its broker is stopped: a segment is
/// named after its first offset. No client can bring a log to 2^40 otherwise.
fn begin_at(node: &Path, topic: &str, first: u64) {
    for file in fs::read_dir(node.join(format!("{topic}-0"))).expect("a log") {
        let file = file.expect("a file").path();
        let name = file.file_name().and_then(|name| name.to_str());
        if let Some(end) = name.and_then(|name| name.strip_prefix(&format!("{:020}.", 0))) {
            let renamed = file.with_file_name(format!("{first:020}.{end}"));
            fs::rename(&file, renamed).expect("another name");
        }
    }
}

/// Runs these at the same time, and returns their results.
async fn together<T: 'static>(
    all: impl IntoIterator<Item: Future<Output = T> + 'static>,
) -> Vec<T> {
    let here = LocalSet::new();
    let tasks: Vec<_> = all.into_iter().map(|one| here.spawn_local(one)).collect();
    let returned = async {
        let mut returned = Vec::new();
        for task in tasks {
            returned.push(task.await.expect("no panic"));
        }
        returned
    };
    here.run_until(returned).await
}

/// A topic for each vector, with as many records as its Parallel Consumer has seen.
async fn filled(kafka: Arc<Kafka>, vectors: &[Arc<Vector>]) -> Vec<Topic> {
    let topics = vectors.iter().map(|_| Topic::new(Arc::clone(&kafka), 1));
    let topics = together(topics).await;
    kafka.stop(0).await.expect("it stops");
    for (topic, vector) in topics.iter().zip(vectors) {
        begin_at(&kafka.folder().join("node-0"), &topic.name, vector.first());
    }
    kafka.start_again(0).await.expect("it starts");
    let fill = |(topic, vector): (&Topic, &Arc<Vector>)| {
        let (topic, vector) = (topic.clone(), Arc::clone(vector));
        async move {
            let records = vector.last() - vector.first();
            let records = vec![RawMessage::new(""); usize::try_from(records).unwrap()];
            topic.produce(records).await;
            let ends = topic.ends().await;
            assert_eq!(ends, [(vector.first(), vector.last())], "{}", vector.name);
        }
    };
    together(topics.iter().zip(vectors).map(fill)).await;
    topics
}

/// Returns the offsets that a source hands over to a group that resumes after Parallel Consumer,
/// sorted.
async fn handed_over(topic: Topic, committed: u64, text: &str, last: u64) -> Vec<u64> {
    commit(&topic, committed, text).await;
    let said = topic.committed().await;
    assert_eq!(said, [(Some(committed), text.to_owned())]);
    let seen = Arc::<Mutex<Vec<u64>>>::default();
    let sees = Arc::clone(&seen);
    let consumer = Dispatcher::key_by_opt(|_: &Order| None::<u64>)
        .concurrency(256)
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |order: Order| {
            sees.lock().unwrap().push(order.offset);
            async { Ok(()) }
        }))
        .expect("a consumer");
    let source = topic.builder().build_with(Order::of);
    let source = source.expect("a source");
    let control = source.control();
    let intake = consumer.consume(source).expect("an intake");
    until("all is committed", async || {
        let here = control.partitions();
        here.iter().any(|one| one.committed == Some(last))
    })
    .await;
    intake.stop().await;
    assert_eq!(topic.committed().await, [(Some(last), String::new())]);
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.sort_unstable();
    seen
}

/// All 13 sets, and all 88 of their texts except two, which are longer than a broker can store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_parallel_consumer_has_done_is_not_done_again() {
    show_log();
    let vectors: Vec<_> = Vector::all().into_iter().map(Arc::new).collect();
    let kafka = Kafka::builder().property("offset.metadata.max.bytes", "100000");
    let kafka = Arc::new(kafka.start().await.expect("a broker"));
    let (mut groups, mut left_out) = (0, Vec::new());
    for (topic, vector) in filled(kafka, &vectors).await.iter().zip(&vectors) {
        let (kept, too_long): (Vec<_>, Vec<_>) =
            (vector.texts.iter().cloned()).partition(|(_, text)| text.len() <= MOST_CHARS);
        left_out.extend(too_long.into_iter().map(|(encoding, _)| encoding));
        let go_on = |(encoding, text): (String, String)| {
            let (mut topic, vector) = (topic.clone(), Arc::clone(vector));
            topic.group = format!("{}-{encoding}", topic.group);
            async move {
                let seen = handed_over(topic, vector.committed, &text, vector.last()).await;
                assert!(seen == vector.left(), "{}: {encoding}", vector.name);
            }
        };
        groups += together(kept.into_iter().map(go_on)).await.len();
    }
    assert_eq!((vectors.len(), groups), (13, 86));
    assert_eq!(left_out, ["RunLength", "RunLengthV2"]);
}
