//! A disk that does not answer: what waits for it waits, what does not goes on, and nothing is
//! reported as done. When it answers again, all is in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::consume::{Intake, IntakeReport, IntakeSettings, IntakeState};
use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_inbox::store::EmbeddedStore;
use keylane_inbox::{Bytes, Inbox, NewMessage};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{until, until_async};
use tokio::time::timeout;

use crate::disk::Disk;
use crate::failing::{after_power_failure, open, waiting};

const KEYS: u64 = 4;
const MESSAGES: u64 = 40;

/// Done-marks that are under way at a time, and some more.
const ROUNDS: u64 = 50;

/// Longer than the time between two done-marks.
const TAKES: Duration = Duration::from_millis(10);

/// What was handled of each key, in its order.
type Handled = Arc<Mutex<BTreeMap<u64, Vec<u64>>>>;

struct Rig {
    disk: Disk,
    store: Arc<EmbeddedStore>,
    inbox: Inbox,
    handled: Handled,
    /// Handlers wait here.
    gate: Gate,
    orders: Dispatcher<Bytes, RawMessage>,
    intake: Intake,
}

impl Rig {
    /// All messages are in the hands of their handlers.
    async fn new(messages: u64, settings: IntakeSettings) -> Self {
        let disk = Disk::default();
        let store = Arc::new(open(&disk));
        let inbox = Inbox::with_store(Arc::clone(&store) as _);
        let (handled, gate) = (Handled::default(), Gate::new());
        let (log, pass) = (Arc::clone(&handled), gate.clone());
        let orders = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .on_exhausted(OnExhausted::AtSource)
            .spawn(move |message: RawMessage| {
                let (log, pass) = (Arc::clone(&log), pass.clone());
                async move {
                    pass.pass().await;
                    tokio::time::sleep(TAKES).await;
                    let id = u64::from_be_bytes(message.payload[..8].try_into().unwrap());
                    log.lock().unwrap().entry(id % KEYS).or_default().push(id);
                    Ok::<_, std::convert::Infallible>(())
                }
            })
            .unwrap();
        for id in 0..messages {
            inbox.accept_message(message(id)).await.unwrap();
        }
        let intake = orders.consume_with(inbox.source(), settings).unwrap();
        until(|| intake.stats().held == messages as usize).await;
        Self {
            disk,
            store,
            inbox,
            handled,
            gate,
            orders,
            intake,
        }
    }

    fn count(&self) -> u64 {
        let handled = self.handled.lock().unwrap();
        handled.values().map(|ids| ids.len() as u64).sum()
    }

    /// The disk answers: all of it is handled in its order, and nothing waits.
    async fn ends(self, last: u64) -> IntakeReport {
        let is_empty = async || self.inbox.stats().await.unwrap().waiting == 0;
        until_async("nothing waits", is_empty).await;
        let report = self.intake.stop().await;
        self.orders.drain().await;
        for (key, ids) in &*self.handled.lock().unwrap() {
            let mut first = BTreeSet::new();
            let ids = ids.iter().copied().filter(|id| first.insert(*id));
            let expected = (0..last).filter(|id| id % KEYS == *key);
            assert!(ids.eq(expected), "key {key}");
        }
        self.inbox.close().await.unwrap();
        report
    }
}

fn message(id: u64) -> NewMessage {
    NewMessage::new((id % KEYS).to_string(), id.to_be_bytes().to_vec()).id(id.to_string())
}

fn settings() -> IntakeSettings {
    IntakeSettings::new().confirm_every(Duration::from_millis(5))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_silent_disk_waits_and_handlers_go_on() {
    let rig = Rig::new(MESSAGES, settings()).await;
    let silence = rig.disk.is_silent();
    let accepting = {
        let inbox = rig.inbox.clone();
        tokio::spawn(async move { inbox.accept_message(message(MESSAGES)).await })
    };
    until(|| silence.waiting() == 1).await;
    // What was read goes on, of each key one after the other.
    rig.gate.open();
    until(|| rig.count() == MESSAGES).await;
    // So do reads; what they see was committed.
    let read = timeout(Duration::from_secs(120), waiting(&rig.store)).await;
    let read = read.expect("a read does not wait for the disk");
    assert_eq!(read.len() as u64, MESSAGES);
    assert_eq!(rig.intake.stats().restarts, 0);
    assert!(!accepting.is_finished(), "it is not on the disk");
    let before = BTreeSet::from_iter(read);
    let left = waiting(&open(&after_power_failure(&rig.disk))).await;
    assert!(before.is_subset(&BTreeSet::from_iter(left)));
    drop(silence);
    accepting.await.unwrap().unwrap();
    until(|| rig.count() == MESSAGES + 1).await;
    let report = rig.ends(MESSAGES + 1).await;
    assert_eq!(report.acked, MESSAGES + 1, "each once: {report}");
}

/// More done-marks wait than may be under way, for longer than the source may be silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_silent_for_long_loses_nothing() {
    let messages = ROUNDS * KEYS;
    let rig = Rig::new(messages, settings().stall_after(Duration::from_secs(1))).await;
    let silence = rig.disk.is_silent();
    rig.gate.open();
    until(|| rig.count() == messages).await;
    // It is opened anew, and that waits for the disk. An operator sees it, and no handler is started
    // again meanwhile.
    until(|| {
        let stats = rig.intake.stats();
        let why = stats.last_error.unwrap_or_default();
        stats.state == IntakeState::Opening && why.contains("`open` did not return in time")
    })
    .await;
    assert_eq!(rig.count(), messages);
    drop(silence);
    // What was handled and not yet handed to the disk is handled again.
    let report = rig.ends(messages).await;
    let sum = report.acked + report.given_back;
    assert!(report.acked > 0 && sum == report.received, "{report}");
}
