//! A reference server, a dispatcher whose handler follows a script, and the judge of both.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::{Intake, IntakeReport, IntakeSettings};
use keylane::source::{Features, RawMessage};
use keylane::{Builder, Context, Dispatcher, OnExhausted};
use keylane_testkit::reference::{MessageState, ReferenceServer};
pub(crate) use keylane_testkit::scenario::until;
use keylane_testkit::scenario::{
    Random, SECOND, assert_no_engine_panics, assert_nothing_left, watch_for_engine_panics, within,
};
use keylane_testkit::{Act, Evidence, History, Id, Key, Script, ScriptError, Scripted};
use tokio::time::Instant;

pub(crate) const REVOKE_WITHIN: Duration = Duration::from_secs(1);

pub(crate) type Orders = OrdersBy<Bytes>;

/// A dispatcher whose lanes have keys of this type.
pub(crate) type OrdersBy<K> = Dispatcher<K, RawMessage, Id, ScriptError>;

/// A key of lanes.
pub(crate) trait LaneKey: Hash + Eq + Clone + fmt::Debug + Send + Sync + 'static {}

impl<K: Hash + Eq + Clone + fmt::Debug + Send + Sync + 'static> LaneKey for K {}

/// The message `id` of a key.
pub(crate) fn message(key: Key, id: Id) -> RawMessage {
    RawMessage::new(id.to_be_bytes().to_vec()).key(key.to_string())
}

pub(crate) fn id_of(message: &RawMessage) -> Id {
    Id::from_be_bytes(message.payload[..8].try_into().unwrap())
}

pub(crate) fn key_of(message: &RawMessage) -> Option<Key> {
    let key = message.key.as_ref()?;
    std::str::from_utf8(key).unwrap().parse().ok()
}

/// A dispatcher of raw messages that halts a key whose message fails.
pub(crate) fn orders()
-> Builder<Bytes, RawMessage, ScriptError, impl Fn(&RawMessage) -> Option<Bytes> + Send + Sync> {
    watch_for_engine_panics();
    Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .on_exhausted(OnExhausted::Halt)
}

/// The script as a handler.
pub(crate) fn scripted<K: LaneKey>(
    script: Script,
) -> impl Fn(Context<K>, RawMessage) -> Scripted + Send + Sync + 'static {
    move |context, message| script.run(key_of(&message), id_of(&message), context.attempt())
}

pub(crate) fn settings() -> IntakeSettings {
    IntakeSettings::new()
        .revoke_within(REVOKE_WITHIN)
        .stall_after(Duration::from_secs(10))
}

/// A source that survives restarts of its server, and can do nothing else.
pub(crate) fn plain() -> Features {
    Features::new().survives_restart()
}

/// One server, and what happens to its messages.
pub(crate) struct Rig {
    pub(crate) server: ReferenceServer,
    pub(crate) history: History,
    seqs: std::cell::RefCell<HashMap<Key, u64>>,
    last_id: Cell<Id>,
}

impl Rig {
    pub(crate) fn new(features: Features) -> Self {
        Self::of(ReferenceServer::new(features))
    }

    pub(crate) fn of(server: ReferenceServer) -> Self {
        Self {
            server,
            history: History::new(),
            seqs: Default::default(),
            last_id: Cell::new(0),
        }
    }

    /// A dispatcher whose handlers follow this script.
    pub(crate) fn spawn(&self, act: Act) -> Orders {
        orders()
            .spawn(scripted(Script::new(&self.history).otherwise(act)))
            .unwrap()
    }

    /// Publishes one message for each key. The ids count from 1.
    pub(crate) fn publish(&self, keys: impl IntoIterator<Item = Key>) -> Vec<Id> {
        let mut ids = Vec::new();
        for key in keys {
            let id = self.last_id.get() + 1;
            self.last_id.set(id);
            let mut seqs = self.seqs.borrow_mut();
            let seq = seqs.entry(key).or_default();
            *seq += 1;
            self.history.sending(key, *seq, id).ok();
            let mut message = message(key, id);
            message.version = Some(*seq);
            self.server.publish([message]);
            ids.push(id);
        }
        ids
    }

    /// All that was published.
    pub(crate) fn sent(&self) -> impl Iterator<Item = Id> + use<> {
        1..=self.last_id.get()
    }

    pub(crate) fn consume(&self, orders: &Orders) -> Intake {
        orders
            .consume_with(self.server.source(), settings())
            .unwrap()
    }

    /// Waits until so many handlers have succeeded.
    pub(crate) async fn handled(&self, count: usize) {
        until(|| self.history.handled().len() >= count).await;
    }

    /// Waits until so many attempts have started.
    pub(crate) async fn started(&self, count: usize) {
        until(|| self.history.started().len() >= count).await;
    }

    pub(crate) fn revoke(&self) {
        self.history.revoke(0);
        self.server.revoke();
    }

    pub(crate) fn lose(&self) {
        self.history.revoke(0);
        self.server.lose();
    }

    /// How many messages stand so.
    pub(crate) fn ready(&self) -> usize {
        self.server
            .count(|standing| standing == MessageState::Ready)
    }

    /// Everything is handled: stops, and judges.
    pub(crate) async fn finish(&self, orders: &Orders, intake: Intake) -> IntakeReport {
        self.finish_with(orders, intake, Evidence::new()).await
    }

    pub(crate) async fn finish_with(
        &self,
        orders: &Orders,
        intake: Intake,
        evidence: Evidence,
    ) -> IntakeReport {
        self.server.until(|server| server.left() == 0).await;
        let report = within(async { intake.stop().await }).await;
        adds_up(&report);
        assert_eq!(self.server.held(), 0);
        assert_eq!(self.server.counts().stale, 0, "a stale ack was told");
        self.judge(orders, evidence);
        report
    }

    pub(crate) fn judge<K: LaneKey>(&self, orders: &OrdersBy<K>, evidence: Evidence) {
        assert_no_engine_panics();
        assert_nothing_left(orders);
        let evidence = evidence.quiescent(Instant::now());
        self.history.check(&evidence).expect("a correct driver");
    }
}

/// Some of what a source can do besides.
pub(crate) fn some_features(mut features: Features, random: &mut Random) -> Features {
    if random.one_in(2) {
        features = features.nack();
    }
    if random.one_in(3) {
        features = features.lease(SECOND);
    }
    if random.one_in(3) {
        features = features.counts_attempts();
    }
    features
}

/// One attempt in so many fails, and each sleeps for less than so many milliseconds.
pub(crate) fn fallible(history: &History, fails: u64, longest: u64) -> Script {
    Script::new(history).choose(move |cue| {
        let act = match (cue.id * 7 + u64::from(cue.attempt)) % fails {
            0 => Act::error(),
            _ => Act::ok(),
        };
        act.sleeps(Duration::from_millis(cue.id * 13 % longest))
    })
}

/// Without another fault everything settles: stops the intake.
pub(crate) async fn come_to_rest<K: LaneKey>(rig: &Rig, orders: &OrdersBy<K>, intake: Intake) {
    rig.server.faults().none();
    let settled = rig.server.until(|server| server.left() == 0);
    let settled = tokio::time::timeout(100 * SECOND, settled).await;
    assert!(
        settled.is_ok(),
        "it does not end: {:?} {:?} {:?}",
        intake.stats(),
        orders.stats(),
        rig.server
    );
    let report = within(async { intake.stop().await }).await;
    adds_up(&report);
    assert_nothing_left(orders);
}

/// S7.
#[track_caller]
pub(crate) fn adds_up(report: &IntakeReport) {
    let sum = report.acked + report.dead_lettered + report.nacked + report.given_back;
    assert_eq!(sum, report.received, "{report}");
}

/// What was received is always accounted for.
#[track_caller]
pub(crate) fn stats_add_up(intake: &Intake) {
    let stats = intake.stats();
    let sum = stats.acked + stats.dead_lettered + stats.nacked + stats.given_back;
    assert_eq!(sum + stats.held as u64, stats.received, "{stats:?}");
}
