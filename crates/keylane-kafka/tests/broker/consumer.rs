//! A consumer that writes down what it has handled.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane::source::RawMessage;
use keylane::{Dispatcher, Intake, IntakeReport, IntakeSettings, OnExhausted, Overflow};
use keylane_kafka::KafkaSource;
use tokio::time::{Instant, sleep};

use crate::support::PATIENCE;

type Records = Arc<Mutex<Vec<RawMessage>>>;

/// Handles records of one source, and holds those back whose key is held.
pub(crate) struct Consumer {
    pub(crate) dispatcher: Dispatcher<Bytes, RawMessage, (), io::Error>,
    pub(crate) intake: Intake,
    handled: Records,
    held: Arc<Mutex<BTreeSet<Bytes>>>,
}

impl Consumer {
    pub(crate) fn of(source: KafkaSource) -> Self {
        Self::holding(source, &[])
    }

    /// The records of these keys do not end before they are [let go](Self::let_go).
    pub(crate) fn holding(source: KafkaSource, keys: &[&str]) -> Self {
        let settings = IntakeSettings::new().revoke_within(Duration::from_millis(300));
        Self::holding_with(source, keys, settings)
    }

    /// The same with other settings.
    pub(crate) fn holding_with(
        source: KafkaSource,
        keys: &[&str],
        settings: IntakeSettings,
    ) -> Self {
        let handled = Records::default();
        let keys = keys.iter().map(|key| Bytes::from((*key).to_owned()));
        let held = Arc::new(Mutex::new(keys.collect::<BTreeSet<_>>()));
        let (theirs, until) = (Arc::clone(&handled), Arc::clone(&held));
        let dispatcher = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
            .lane_capacity(16, Overflow::Wait)
            .on_exhausted(OnExhausted::Halt)
            .spawn(move |raw: RawMessage| {
                let (handled, held) = (Arc::clone(&theirs), Arc::clone(&until));
                async move {
                    while let Some(key) = &raw.key
                        && held.lock().expect("no panic").contains(key)
                    {
                        sleep(Duration::from_millis(5)).await;
                    }
                    handled.lock().expect("no panic").push(raw);
                    Ok::<(), io::Error>(())
                }
            })
            .expect("a dispatcher");
        let intake = dispatcher
            .consume_with(source, settings)
            .expect("an intake");
        Self {
            dispatcher,
            intake,
            handled,
            held,
        }
    }

    pub(crate) fn let_go(&self) {
        self.held.lock().expect("no panic").clear();
    }

    pub(crate) fn handled(&self) -> Vec<RawMessage> {
        self.handled.lock().expect("no panic").clone()
    }

    /// The payloads of what was handled, as text, sorted.
    pub(crate) fn texts(&self) -> Vec<String> {
        let handled = self.handled();
        let texts = handled.iter().map(|raw| text_of(&raw.payload));
        let mut texts: Vec<_> = texts.collect();
        texts.sort();
        texts
    }

    /// Waits until so many were handled.
    pub(crate) async fn until_handled(&self, count: usize) {
        until(&format!("{count} are handled"), || {
            self.handled().len() >= count
        })
        .await;
    }

    /// Stops in order, at once for what has not started.
    pub(crate) async fn stop(self) -> IntakeReport {
        let report = self.intake.stop().within(Duration::ZERO).await;
        self.dispatcher.close().await;
        report
    }
}

pub(crate) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it was never so that {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// A record of a key.
pub(crate) fn record(key: &str, text: impl Into<String>) -> RawMessage {
    RawMessage::new(text.into()).key(key.to_owned())
}
