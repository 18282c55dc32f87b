//! What the `metrics` facade is told: names with the prefix, and never a key.
#![cfg(all(feature = "metrics", not(keylane_shuttle)))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::{Dispatcher, Exhausted, Retry};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// A key that no label may show.
const SECRET: &str = "ada@example.org";

/// The values that one metric was given.
#[derive(Debug, Default)]
struct Series(Mutex<Vec<f64>>);

impl Series {
    fn push(&self, value: f64) {
        self.0.lock().unwrap().push(value);
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
        self.push(self.last() + value as f64);
    }

    fn absolute(&self, value: u64) {
        self.push(value as f64);
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.push(self.last() + value);
    }

    fn decrement(&self, value: f64) {
        self.push(self.last() - value);
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
        .on_exhausted(Exhausted::Halt)
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
                "outcome" => ["done", "dead_lettered", "discarded", "handed_back"].contains(&value),
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
