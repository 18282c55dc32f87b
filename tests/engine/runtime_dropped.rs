//! The runtime goes away at a random point: every receipt resolves, the report adds up all the same,
//! and what ran was dropped.
//!
//! `KEYLANE_KILLS` says how often.

use std::future::IntoFuture;

use futures::FutureExt;
use keylane::error::{ReserveError, SendError, TrySendError};
use keylane_testkit::scenario::{Message, Random, paused, repeats, settle_until, threads};
use tokio::runtime::Runtime;

use crate::support::Life;

/// Lives to a random point; the senders are left to themselves.
fn live(runtime: &Runtime, seed: u64) -> Life {
    let events = Random::new(!seed).below(300) as usize;
    runtime.block_on(async {
        let life = Life::new(seed);
        let mut tasks = life.begin();
        life.go_on(&mut tasks, events).await;
        tasks.detach_all();
        life
    })
}

/// With the runtime gone everything has been decided, and is told at once.
fn judge(life: &Life) {
    let report = life
        .producer
        .dispatcher
        .drain()
        .into_future()
        .now_or_never();
    let report = report.expect("a dispatcher whose runtime is gone has ended");
    life.judge(&report);

    let dispatcher = &life.producer.dispatcher;
    let message = Message {
        key: Some(1),
        id: 0,
    };
    assert!(dispatcher.is_closed());
    let sent = dispatcher.send(message.clone()).now_or_never();
    assert_eq!(sent, Some(Err(SendError::Closed(message.clone()))));
    assert_eq!(
        dispatcher.try_send(message.clone()),
        Err(TrySendError::Closed(message))
    );
    let reserved = dispatcher
        .reserve()
        .now_or_never()
        .map(|permit| permit.err());
    assert_eq!(reserved, Some(Some(ReserveError)));
}

#[test]
fn runtime_dropped_on_one_thread() {
    for seed in 0..repeats("KEYLANE_KILLS", 100).div_ceil(3) {
        let runtime = paused();
        let life = live(&runtime, seed);
        drop(runtime);
        judge(&life);
    }
}

#[test]
fn runtime_dropped_on_two_threads() {
    for seed in 0..repeats("KEYLANE_KILLS", 100).div_ceil(3) {
        let runtime = threads();
        let life = live(&runtime, 1_000_000 + seed);
        drop(runtime);
        judge(&life);
    }
}

/// A task that outlives the runtime has asked for the report: it stands only when all is settled.
#[test]
fn runtime_dropped_while_another_one_waits_for_the_report() {
    let other = threads();
    for seed in 0..repeats("KEYLANE_KILLS", 100).div_ceil(3) {
        let runtime = threads();
        let life = live(&runtime, 2_000_000 + seed);
        let ending = other.spawn(life.producer.dispatcher.abort().into_future());
        runtime.shutdown_background();
        let report = other.block_on(ending).expect("a report");
        // What a sender has in its hands is its own affair.
        other.block_on(settle_until(|| life.is_alone()));
        life.judge(&report);
    }
}
