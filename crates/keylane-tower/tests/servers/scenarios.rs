//! What must hold in front of every server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylane_testkit::scenario::until;
use keylane_testkit::{Act, Evidence, Gate, Id, Key, Script};
use keylane_tower::{KeyedSemaphore, KeyedSemaphoreBuilder};
use tokio::task::{JoinHandle, JoinSet};

use crate::front::{Answer, Ask, Front, Server};
use crate::support::Support;

const KEYS: u64 = 50;
const REQUESTS: u64 = 2_000;
const CLIENTS: usize = 64;

pub(crate) async fn many_keys_over_many_connections_are_served_in_order<F: Front>() {
    let support = Support::new(KeyedSemaphore::builder().concurrency(4), |script, gate| {
        let gate = gate.clone();
        script.choose(move |cue| Act::ok().waits(&gate).yields((cue.id % 4) as u32))
    });
    let server = Server::start::<F>(&support).await;
    let next = Arc::new(AtomicU64::new(0));
    let mut askers = JoinSet::new();
    for mut client in F::connect(server.address, CLIENTS).await {
        let next = Arc::clone(&next);
        askers.spawn(async move {
            loop {
                let id = next.fetch_add(1, Ordering::Relaxed);
                if id >= REQUESTS {
                    return;
                }
                // Ten in a row are of one key, so that connections meet in its lane.
                let key = id / 10 % KEYS;
                assert_eq!(client.ask(key, id).await, Answer::Done);
            }
        });
    }
    // All are in before the first is done: there are heads with and without a permit, and requests
    // behind them.
    until(|| support.semaphore.len() == CLIENTS).await;
    support.gate.arrivals(4).await;
    assert_eq!(support.semaphore.permits_in_use(), Some(4));
    assert_eq!(support.semaphore.lanes(), 7);
    support.gate.open();
    while let Some(asker) = askers.join_next().await {
        asker.unwrap();
    }
    support.judge(Evidence::new().concurrency(4)).await;
    assert_eq!(support.starts().len() as u64, REQUESTS);
}

pub(crate) async fn a_slow_key_delays_no_other<F: Front>() {
    let support = held(KeyedSemaphore::builder().concurrency(2), 0);
    let server = Server::start::<F>(&support).await;
    let mut clients = F::connect(server.address, 10).await.into_iter();
    let mut next = || clients.next().expect("there are ten");
    let slow = ask_at(&support, next(), 7, 0).await;
    let behind = ask_at(&support, next(), 7, 1).await;

    // One permit is left, which is enough for all others. Some have no key.
    let mut others = JoinSet::new();
    for n in 0..8 {
        let mut client = next();
        others.spawn(async move {
            for id in 100 * (n + 1)..100 * (n + 1) + 25 {
                let key = (id % 4 != 0).then_some(1_000 + id % 40);
                assert_eq!(client.ask(key, id).await, Answer::Done);
            }
        });
    }
    while let Some(other) = others.join_next().await {
        other.unwrap();
    }
    assert_eq!((support.gate.waiting(), support.semaphore.len()), (1, 2));

    support.gate.open();
    assert_eq!(slow.await.unwrap(), Answer::Done);
    assert_eq!(behind.await.unwrap(), Answer::Done);
    assert_eq!(&support.starts()[201..], [1]);
    support.judge(Evidence::new()).await;
}

pub(crate) async fn a_client_that_disconnects_leaves_the_lane<F: Front>() {
    let support = held(KeyedSemaphore::builder(), 1);
    let server = Server::start::<F>(&support).await;
    let mut clients = F::connect(server.address, 5).await.into_iter();
    let mut asks = Vec::new();
    for id in 1..=5 {
        let client = clients.next().expect("there are five");
        asks.push(ask_at(&support, client, 7, id).await);
    }
    // From the middle, and the last.
    for gone in [2, 4] {
        asks[gone].abort();
    }
    until(|| support.semaphore.len() == 3).await;
    support.gate.open();
    for stays in [0, 1, 3] {
        assert_eq!((&mut asks[stays]).await.unwrap(), Answer::Done);
    }
    assert_eq!(support.starts(), [1, 2, 4]);
    support.judge(Evidence::new()).await;
}

pub(crate) async fn a_client_that_disconnects_while_it_runs_frees_its_key<F: Front>() {
    let support = Support::new(KeyedSemaphore::builder(), |script, _| {
        script.message(1, Act::never())
    });
    let server = Server::start::<F>(&support).await;
    let mut clients = F::connect(server.address, 3).await.into_iter();
    let mut next = || clients.next().expect("there are three");
    let runs = ask_at(&support, next(), 7, 1).await;
    until(|| support.starts() == [1]).await;
    let waits = ask_at(&support, next(), 7, 2).await;
    runs.abort();
    assert_eq!(waits.await.unwrap(), Answer::Done);
    assert_eq!(next().ask(7, 3).await, Answer::Done);
    assert_eq!(support.starts(), [1, 2, 3]);
    support.judge(Evidence::new()).await;
}

pub(crate) async fn a_handler_that_panics_frees_its_key<F: Front>() {
    let support = Support::new(KeyedSemaphore::builder(), |script, gate| {
        // Held until another waits behind it; the panic comes when the gate lets it through.
        script
            .message(1, Act::ok().waits(gate))
            .message(2, Act::panic())
    });
    let server = Server::start::<F>(&support).await;
    let mut asks = Vec::new();
    for (client, id) in F::connect(server.address, 3).await.into_iter().zip(1..) {
        asks.push(ask_at(&support, client, 7, id).await);
    }
    support.gate.open();
    let mut answers = Vec::new();
    for ask in asks {
        answers.push(ask.await.unwrap());
    }
    assert_eq!(answers, [Answer::Done, Answer::Broken, Answer::Done]);
    assert_eq!(support.starts(), [1, 2, 3]);
    support.judge(Evidence::new()).await;
}

pub(crate) async fn a_full_lane_refuses_at_once<F: Front>() {
    let support = held(KeyedSemaphore::builder().lane_capacity(2), 1);
    let server = Server::start::<F>(&support).await;
    let mut clients = F::connect(server.address, 3).await.into_iter();
    let mut next = || clients.next().expect("there are three");
    let runs = ask_at(&support, next(), 7, 1).await;
    let waits = ask_at(&support, next(), 7, 2).await;
    let mut client = next();
    assert_eq!(client.ask(7, 3).await, Answer::LaneFull);
    assert_eq!(client.ask(8, 4).await, Answer::Done);
    support.gate.open();
    assert_eq!(runs.await.unwrap(), Answer::Done);
    assert_eq!(waits.await.unwrap(), Answer::Done);
    assert_eq!(client.ask(7, 5).await, Answer::Done);
    support.judge(Evidence::new()).await;
}

pub(crate) async fn a_graceful_shutdown_finishes_what_is_in<F: Front>() {
    let support = held(KeyedSemaphore::builder(), 1);
    let server = Server::start::<F>(&support).await;
    let mut asks = Vec::new();
    for (client, id) in F::connect(server.address, 3).await.into_iter().zip(1..) {
        asks.push(ask_at(&support, client, 7, id).await);
    }
    support.gate.arrivals(1).await;
    let ending = server.stop().await;
    assert_eq!(support.semaphore.len(), 3);
    support.gate.open();
    for ask in asks {
        assert_eq!(ask.await.unwrap(), Answer::Done);
    }
    ending.await.unwrap();
    assert_eq!(support.starts(), [1, 2, 3]);
    support.judge(Evidence::new()).await;
}

pub(crate) async fn a_close_fails_requests_that_wait<F: Front>() {
    let support = held(KeyedSemaphore::builder(), 1);
    let server = Server::start::<F>(&support).await;
    let mut clients = F::connect(server.address, 4).await.into_iter();
    let mut next = || clients.next().expect("there are four");
    let runs = ask_at(&support, next(), 7, 1).await;
    let waits = [
        ask_at(&support, next(), 7, 2).await,
        ask_at(&support, next(), 7, 3).await,
    ];
    support.semaphore.close();
    for ask in waits {
        assert_eq!(ask.await.unwrap(), Answer::Closed);
    }
    let ending = server.stop().await;
    support.gate.open();
    assert_eq!(runs.await.unwrap(), Answer::Done);
    ending.await.unwrap();
    assert_eq!(support.starts(), [1]);
    support.judge(Evidence::new()).await;
}

/// A server in which one request is held at the gate.
fn held(semaphore: KeyedSemaphoreBuilder<Key>, id: Id) -> Support {
    let script = |script: Script, gate: &Gate| script.message(id, Act::ok().waits(gate));
    Support::new(semaphore, script)
}

/// Asks, and waits until the request stands in its lane: the next one comes behind it.
async fn ask_at<C: Ask>(support: &Support, mut client: C, key: Key, id: Id) -> JoinHandle<Answer> {
    let before = support.semaphore.len();
    let asks = tokio::spawn(async move { client.ask(key, id).await });
    until(|| support.semaphore.len() > before).await;
    // A reservation counts as well, and nothing shows when its request has taken its place.
    tokio::time::sleep(Duration::from_millis(20)).await;
    asks
}
