//! What must hold in front of every server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keylane_testkit::{Act, Evidence, Gate, Id, Key, Script};
use keylane_tower::{Turnstile, TurnstileBuilder};
use tokio::task::{JoinHandle, JoinSet};

use crate::desk::Desk;
use crate::front::{Answer, Ask, Front, Server, until};

const KEYS: u64 = 50;
const REQUESTS: u64 = 2_000;
const CLIENTS: usize = 64;

pub(crate) async fn many_keys_over_many_connections_are_served_in_order<F: Front>() {
    let desk = Desk::new(Turnstile::builder().concurrency(4), |script, gate| {
        let gate = gate.clone();
        script.choose(move |cue| Act::ok().waits(&gate).yields((cue.id % 4) as u32))
    });
    let server = Server::start::<F>(&desk).await;
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
    // All are in before the first is done: there are heads with and without a turn, and those behind them.
    until(|| desk.lanes.places() == CLIENTS).await;
    desk.gate.arrivals(4).await;
    assert_eq!(desk.lanes.turns(), Some(4));
    assert_eq!(desk.lanes.lanes(), 7);
    desk.gate.open();
    while let Some(asker) = askers.join_next().await {
        asker.unwrap();
    }
    desk.judge(Evidence::new().concurrency(4)).await;
    assert_eq!(desk.starts().len() as u64, REQUESTS);
}

pub(crate) async fn a_slow_key_delays_no_other<F: Front>() {
    let desk = held(Turnstile::builder().concurrency(2), 0);
    let server = Server::start::<F>(&desk).await;
    let mut clients = F::connect(server.address, 10).await.into_iter();
    let mut next = || clients.next().expect("there are ten");
    let slow = ask_at(&desk, next(), 7, 0).await;
    let behind = ask_at(&desk, next(), 7, 1).await;

    // One turn is left, and enough for all others. Some have no key.
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
    assert_eq!((desk.gate.waiting(), desk.lanes.places()), (1, 2));

    desk.gate.open();
    assert_eq!(slow.await.unwrap(), Answer::Done);
    assert_eq!(behind.await.unwrap(), Answer::Done);
    assert_eq!(&desk.starts()[201..], [1]);
    desk.judge(Evidence::new()).await;
}

pub(crate) async fn who_hangs_up_leaves_the_lane<F: Front>() {
    let desk = held(Turnstile::builder(), 1);
    let server = Server::start::<F>(&desk).await;
    let mut clients = F::connect(server.address, 5).await.into_iter();
    let mut asks = Vec::new();
    for id in 1..=5 {
        let client = clients.next().expect("there are five");
        asks.push(ask_at(&desk, client, 7, id).await);
    }
    // From the middle, and the last.
    for gone in [2, 4] {
        asks[gone].abort();
    }
    until(|| desk.lanes.places() == 3).await;
    desk.gate.open();
    for stays in [0, 1, 3] {
        assert_eq!((&mut asks[stays]).await.unwrap(), Answer::Done);
    }
    assert_eq!(desk.starts(), [1, 2, 4]);
    desk.judge(Evidence::new()).await;
}

pub(crate) async fn who_hangs_up_while_it_runs_gives_its_turn_on<F: Front>() {
    let desk = Desk::new(Turnstile::builder(), |script, _| {
        script.message(1, Act::never())
    });
    let server = Server::start::<F>(&desk).await;
    let mut clients = F::connect(server.address, 3).await.into_iter();
    let mut next = || clients.next().expect("there are three");
    let runs = ask_at(&desk, next(), 7, 1).await;
    until(|| desk.starts() == [1]).await;
    let waits = ask_at(&desk, next(), 7, 2).await;
    runs.abort();
    assert_eq!(waits.await.unwrap(), Answer::Done);
    assert_eq!(next().ask(7, 3).await, Answer::Done);
    assert_eq!(desk.starts(), [1, 2, 3]);
    desk.judge(Evidence::new()).await;
}

pub(crate) async fn a_handler_that_panics_gives_its_turn_on<F: Front>() {
    let desk = Desk::new(Turnstile::builder(), |script, gate| {
        // Held until another waits behind it; the panic comes when the gate lets it through.
        script
            .message(1, Act::ok().waits(gate))
            .message(2, Act::panic())
    });
    let server = Server::start::<F>(&desk).await;
    let mut asks = Vec::new();
    for (client, id) in F::connect(server.address, 3).await.into_iter().zip(1..) {
        asks.push(ask_at(&desk, client, 7, id).await);
    }
    desk.gate.open();
    let mut answers = Vec::new();
    for ask in asks {
        answers.push(ask.await.unwrap());
    }
    assert_eq!(answers, [Answer::Done, Answer::Broken, Answer::Done]);
    assert_eq!(desk.starts(), [1, 2, 3]);
    desk.judge(Evidence::new()).await;
}

pub(crate) async fn a_full_lane_refuses_at_once<F: Front>() {
    let desk = held(Turnstile::builder().lane_capacity(2), 1);
    let server = Server::start::<F>(&desk).await;
    let mut clients = F::connect(server.address, 3).await.into_iter();
    let mut next = || clients.next().expect("there are three");
    let runs = ask_at(&desk, next(), 7, 1).await;
    let waits = ask_at(&desk, next(), 7, 2).await;
    let mut client = next();
    assert_eq!(client.ask(7, 3).await, Answer::LaneFull);
    assert_eq!(client.ask(8, 4).await, Answer::Done);
    desk.gate.open();
    assert_eq!(runs.await.unwrap(), Answer::Done);
    assert_eq!(waits.await.unwrap(), Answer::Done);
    assert_eq!(client.ask(7, 5).await, Answer::Done);
    desk.judge(Evidence::new()).await;
}

pub(crate) async fn a_graceful_shutdown_finishes_what_is_in<F: Front>() {
    let desk = held(Turnstile::builder(), 1);
    let server = Server::start::<F>(&desk).await;
    let mut asks = Vec::new();
    for (client, id) in F::connect(server.address, 3).await.into_iter().zip(1..) {
        asks.push(ask_at(&desk, client, 7, id).await);
    }
    desk.gate.arrivals(1).await;
    let ending = server.stop().await;
    assert_eq!(desk.lanes.places(), 3);
    desk.gate.open();
    for ask in asks {
        assert_eq!(ask.await.unwrap(), Answer::Done);
    }
    ending.await.unwrap();
    assert_eq!(desk.starts(), [1, 2, 3]);
    desk.judge(Evidence::new()).await;
}

pub(crate) async fn closed_lanes_send_home_who_waits<F: Front>() {
    let desk = held(Turnstile::builder(), 1);
    let server = Server::start::<F>(&desk).await;
    let mut clients = F::connect(server.address, 4).await.into_iter();
    let mut next = || clients.next().expect("there are four");
    let runs = ask_at(&desk, next(), 7, 1).await;
    let waits = [
        ask_at(&desk, next(), 7, 2).await,
        ask_at(&desk, next(), 7, 3).await,
    ];
    desk.lanes.close();
    for ask in waits {
        assert_eq!(ask.await.unwrap(), Answer::Closed);
    }
    let ending = server.stop().await;
    desk.gate.open();
    assert_eq!(runs.await.unwrap(), Answer::Done);
    ending.await.unwrap();
    assert_eq!(desk.starts(), [1]);
    desk.judge(Evidence::new()).await;
}

/// A desk at which one request is held at the gate.
fn held(lanes: TurnstileBuilder<Key>, id: Id) -> Desk {
    let script = |script: Script, gate: &Gate| script.message(id, Act::ok().waits(gate));
    Desk::new(lanes, script)
}

/// Asks, and waits until the request stands in its lane: the next one comes behind it.
async fn ask_at<C: Ask>(desk: &Desk, mut client: C, key: Key, id: Id) -> JoinHandle<Answer> {
    let places = desk.lanes.places();
    let asks = tokio::spawn(async move { client.ask(key, id).await });
    until(|| desk.lanes.places() > places).await;
    asks
}
