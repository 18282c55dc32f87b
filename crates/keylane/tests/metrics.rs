//! What the `metrics` facade shows: names with the prefix, never a key, and figures that agree.
#![cfg(all(feature = "metrics", not(keylane_shuttle)))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::discipline::{Coalesce, Sequence};
use keylane::error::BoxError;
use keylane::{Builder, DeadLetter, DeadLetterSink, Dispatcher, OnExhausted, Retry};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// A key that no label may show.
const SECRET: &str = "ada@example.org";

/// All that can become of a message.
const OUTCOMES: [&str; 7] = [
    "coalesced",
    "dead_lettered",
    "discarded",
    "done",
    "duplicate",
    "expired",
    "handed_back",
];

/// The values that one metric was given.
#[derive(Debug, Default)]
struct Series(Mutex<Vec<f64>>);

impl Series {
    fn push(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }

    fn add(&self, value: f64) {
        let mut values = self.0.lock().unwrap();
        let last = values.last().copied().unwrap_or_default();
        values.push(last + value);
    }

    fn last(&self) -> f64 {
        self.0.lock().unwrap().last().copied().unwrap_or(f64::NAN)
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, value: u64) {
        self.push(value as f64);
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, value: f64) {
        self.push(value);
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.push(value);
    }
}

/// Every metric by its name and labels, as text.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<BTreeMap<String, Arc<Series>>>>);

impl Book {
    fn series(&self, key: &Key) -> Arc<Series> {
        let labels: String = key
            .labels()
            .map(|label| format!(",{}={}", label.key(), label.value()))
            .collect();
        let name = format!("{}{labels}", key.name());
        Arc::clone(self.0.lock().unwrap().entry(name).or_default())
    }

    fn get(&self, name: &str) -> Arc<Series> {
        let book = self.0.lock().unwrap();
        let series = book
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in {:?}", book.keys()));
        Arc::clone(series)
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    /// What has settled, by outcome, whichever outcomes are published.
    fn settled(&self) -> BTreeMap<String, f64> {
        let book = self.0.lock().unwrap();
        book.iter()
            .filter_map(|(name, series)| {
                let outcome = name.strip_prefix("keylane_settled_total,outcome=")?;
                Some((outcome.to_owned(), series.last()))
            })
            .collect()
    }
}

impl Recorder for Book {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

/// Some of everything: done, retried, panicked, timed out, halted and handed back.
async fn live(book: &Book, name: Option<&str>) {
    let mut builder = Dispatcher::builder(|n: &u64| format!("{SECRET} {}", n % 10))
        .attempt_timeout(Duration::from_secs(1))
        .retry(Retry::fixed(Duration::from_secs(1)).max_attempts(2))
        .on_exhausted(OnExhausted::Halt)
        .trace_keys();
    if let Some(name) = name {
        builder = builder.name(name);
    }
    let handler = |ctx: keylane::Context<String>, n: u64| async move {
        match n {
            1 if ctx.attempt() == 1 => Err("not yet"),
            2 => Err("never"),
            3 if ctx.attempt() == 1 => std::panic::resume_unwind(Box::new("a panic")),
            4 if ctx.attempt() == 1 => std::future::pending().await,
            _ => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok(())
            }
        }
    };
    // Handles are looked up when it starts.
    let numbers = metrics::with_local_recorder(book, || builder.spawn(handler)).unwrap();
    for n in 1..=20 {
        numbers.send(n).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let in_between = book.get(&match name {
        Some(name) => format!("keylane_halted,dispatcher={name}"),
        None => "keylane_halted".to_owned(),
    });
    assert_eq!(in_between.last(), 1.0, "published while it runs");
    numbers.drain().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn counters_gauges_and_histograms_agree_with_what_happened() {
    let book = Book::default();
    live(&book, None).await;
    let counters = [
        ("keylane_accepted_total", 20.0),
        ("keylane_settled_total,outcome=done", 18.0),
        ("keylane_settled_total,outcome=dead_lettered", 0.0),
        ("keylane_settled_total,outcome=discarded", 0.0),
        ("keylane_settled_total,outcome=coalesced", 0.0),
        ("keylane_settled_total,outcome=duplicate", 0.0),
        ("keylane_settled_total,outcome=expired", 0.0),
        // The halted one, and the one behind it.
        ("keylane_settled_total,outcome=handed_back", 2.0),
        ("keylane_attempt_failures_total", 5.0),
        ("keylane_retries_total", 4.0),
        ("keylane_panics_total", 1.0),
        ("keylane_timeouts_total", 1.0),
        ("keylane_halted", 0.0),
        ("keylane_lanes", 0.0),
        ("keylane_in_flight", 0.0),
        ("keylane_stalled", 0.0),
    ];
    for (name, value) in counters {
        assert_eq!(book.get(name).last(), value, "{name}");
    }
    // One attempt for each start; a time in seconds.
    assert_eq!(book.get("keylane_attempt_seconds").len(), 19 + 4);
    assert_eq!(book.get("keylane_wait_seconds").len(), 19 + 4);
    let longest = book
        .get("keylane_attempt_seconds")
        .0
        .lock()
        .unwrap()
        .iter()
        .copied()
        .fold(0.0, f64::max);
    assert!((1.0..1.1).contains(&longest), "{longest}");
}

#[tokio::test(start_paused = true)]
async fn names_have_the_prefix_and_no_label_is_a_key() {
    let book = Book::default();
    live(&book, None).await;
    live(&book, Some("bills")).await;
    let names = book.names();
    assert!(names.len() > 30, "{names:?}");
    for name in &names {
        assert!(name.starts_with("keylane_"), "{name}");
        assert!(!name.contains(SECRET), "{name}");
        for label in name.split(',').skip(1) {
            let (label, value) = label.split_once('=').unwrap();
            let known = match label {
                "dispatcher" => value == "bills",
                "outcome" => OUTCOMES.contains(&value),
                _ => false,
            };
            assert!(known, "{name}");
        }
    }
    // As many for two dispatchers as for twenty keys.
    let named = names
        .iter()
        .filter(|name| name.contains("dispatcher=bills"))
        .count();
    assert_eq!(named * 2, names.len());
}

type Numbers = Dispatcher<u64, u64, (), &'static str>;

/// Numbers of one key.
fn numbers() -> Builder<u64, u64, &'static str, impl Fn(&u64) -> Option<u64> + Send + Sync> {
    Dispatcher::builder(|_: &u64| 1)
}

/// 13 fails, and all take a while.
async fn handle(n: u64) -> Result<(), &'static str> {
    tokio::time::sleep(Duration::from_millis(10)).await;
    if n == 13 { Err("thirteen") } else { Ok(()) }
}

/// Takes any letter.
struct Sink;

#[keylane::async_trait]
impl DeadLetterSink<u64, u64, &'static str> for Sink {
    async fn accept(&self, _: &DeadLetter<u64, u64, &'static str>) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Sends these numbers and drains. Returns what has settled, by outcome; the sum is what was
/// accepted.
async fn outcomes(start: impl FnOnce() -> Numbers, sent: &[u64]) -> BTreeMap<String, f64> {
    let book = Book::default();
    let numbers = metrics::with_local_recorder(&book, start);
    for n in sent {
        numbers.send(*n).await.unwrap();
    }
    // One that halts is handed back only after it was tried.
    tokio::time::sleep(Duration::from_millis(30)).await;
    numbers.drain().await;
    // At once: what is published last stands before the report does.
    let settled = book.settled();
    let accepted = book.get("keylane_accepted_total").last();
    assert_eq!(accepted, sent.len() as f64);
    assert_eq!(settled.values().sum::<f64>(), accepted, "{settled:?}");
    settled
}

#[tokio::test(start_paused = true)]
async fn all_outcomes_are_published_and_their_sum_is_what_was_accepted() {
    let halt = || {
        numbers()
            .on_exhausted(OnExhausted::Halt)
            .spawn(handle)
            .unwrap()
    };
    let dead_letter = || {
        let letters = OnExhausted::dead_letter(Sink);
        numbers().on_exhausted(letters).spawn(handle).unwrap()
    };
    let coalesce = || {
        let latest = Coalesce::keep_latest();
        numbers().coalesce(latest).spawn(handle).unwrap()
    };
    let sequence = || {
        let versions = Sequence::monotonic(|n: &u64| *n);
        numbers().sequence(versions).spawn(handle).unwrap()
    };
    let expire = || {
        let soon = Duration::from_millis(15);
        numbers().expire_after(soon).spawn(handle).unwrap()
    };
    let settled = [
        outcomes(|| numbers().spawn(handle).unwrap(), &[1, 13, 2]).await,
        outcomes(halt, &[1, 13, 2]).await,
        outcomes(dead_letter, &[1, 13, 2]).await,
        outcomes(coalesce, &[1, 2, 3, 4]).await,
        outcomes(sequence, &[5, 6, 6, 2]).await,
        outcomes(expire, &[1, 2, 3, 4]).await,
    ];
    let mut sums = BTreeMap::<_, f64>::new();
    for (outcome, count) in settled.into_iter().flatten() {
        *sums.entry(outcome).or_default() += count;
    }
    assert_eq!(sums.keys().collect::<Vec<_>>(), Vec::from_iter(&OUTCOMES));
    assert!(sums.values().all(|count| *count > 0.0), "{sums:?}");
}

/// What changes after a rest is published: by a message, by an operator, by handlers.
#[tokio::test(start_paused = true)]
async fn what_changes_after_a_rest_is_published_and_at_rest_nothing_is() {
    let book = Book::default();
    let builder = Dispatcher::builder(|n: &u64| *n)
        .stuck_after(Duration::from_secs(4))
        .on_exhausted(OnExhausted::Halt);
    let handler = |n: u64| async move { if n == 13 { Err("thirteen") } else { Ok(()) } };
    let numbers = metrics::with_local_recorder(&book, || builder.spawn(handler)).unwrap();
    let rest = || tokio::time::sleep(Duration::from_secs(60));
    let published = || book.get("keylane_lanes").len();
    let last = |name| book.get(name).last();

    rest().await;
    assert_eq!(published(), 0, "nothing has ever happened");

    numbers.send(13).await.unwrap();
    rest().await;
    assert_eq!(last("keylane_halted"), 1.0);
    let before = published();
    assert!(before <= 3, "a tick with the message, and one without");
    rest().await;
    assert_eq!(published(), before, "at rest");

    // It changes no lane, and starts no runner.
    numbers.send(13).await.unwrap();
    rest().await;
    assert_eq!(last("keylane_accepted_total"), 2.0);

    // Nor does this, which comes from outside.
    let lane = numbers.lane(&13);
    std::thread::spawn(move || lane.skip().unwrap())
        .join()
        .unwrap();
    rest().await;
    assert_eq!(last("keylane_settled_total,outcome=discarded"), 1.0);
    assert_eq!(last("keylane_halted"), 1.0, "the next one of its key");

    // While something goes on: four times in each `stuck_after`.
    let before = published();
    for n in 0..60 {
        numbers.send(100 + n).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let ticks = published() - before;
    assert!((58..=62).contains(&ticks), "{ticks}");
    numbers.drain().await;
}
