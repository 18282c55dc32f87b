//! Users whose messages go to numbered lanes. The history names the *users*: order is theirs.

use keylane::routing::{HashLane, hash_lane};
use keylane::{Builder, Dispatcher, Report};
use keylane_testkit::scenario::{
    self, Message, RULES_OF_A_WHOLE_LIFE, settle_until, watch_for_engine_panics, within,
};
use keylane_testkit::{Evidence, Key, ScriptError};

use super::lanes;

pub(super) type Producer = scenario::Producer<HashLane>;

/// A dispatcher with so many lanes, all settings at their defaults.
pub(super) fn hashed(
    count: usize,
) -> Builder<
    HashLane,
    Message,
    ScriptError,
    impl Fn(&Message) -> Option<HashLane> + Send + Sync + 'static,
> {
    watch_for_engine_panics();
    Dispatcher::hash_lanes(lanes(count), |message: &Message| message.key.unwrap())
}

/// Users of one lane, by where they are among another number of lanes.
pub(super) fn users(from: usize, lane: usize, to: usize, moves: bool) -> impl Iterator<Item = Key> {
    let is_there = move |user: &Key| hash_lane(lanes(from), user) == lane;
    (0..)
        .filter(is_there)
        .filter(move |user| (hash_lane(lanes(to), user) != lane) == moves)
}

pub(super) type Changed = Result<(), keylane::error::ResizeError>;

/// Begins a change, and returns when it has begun.
pub(super) async fn begin(producer: &Producer, count: usize) -> tokio::task::JoinHandle<Changed> {
    let dispatcher = producer.dispatcher.clone();
    let change = tokio::spawn(async move { dispatcher.resize(count).await });
    settle_until(|| producer.dispatcher.lanes() == count).await;
    change
}

/// Judges the whole history: nothing runs any more, and this was the report.
#[track_caller]
pub(super) fn judge(producer: &Producer, report: &Report<HashLane, Message>, evidence: Evidence) {
    let back = report
        .returned
        .iter()
        .filter_map(|back| Some(back.message.as_ref()?.id));
    let verdict = producer.judge(report, evidence.handed_back(back));
    verdict.assert_judged(&RULES_OF_A_WHOLE_LIFE);
}

/// Drains and judges.
pub(super) async fn finish(producer: Producer, evidence: Evidence) -> Report<HashLane, Message> {
    let report = within(async { producer.dispatcher.drain().await }).await;
    judge(&producer, &report, evidence);
    report
}
